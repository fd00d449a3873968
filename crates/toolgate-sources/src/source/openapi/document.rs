//! Loads a document and the files it refers to, and resolves references.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::MAX_DOCUMENT_BYTES;
use crate::source::percent::percent_decode;

/// Maximum number of files of one document.
const MAX_FILES: usize = 5000;
const YAML_STACK_BYTES: usize = 32 * 1024 * 1024;
/// Maximum length of a chain of references.
const MAX_REFERENCE_HOPS: usize = 32;

/// The OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiVersion {
    V2,
    V3_0,
    V3_1,
}

/// A document with all its files. The first file is the document itself.
pub(super) struct OpenApiDocument {
    files: Vec<DocumentFile>,
    /// File indexes by path relative to the folder.
    index: HashMap<PathBuf, usize>,
    /// All files that were looked for.
    referenced_files: Vec<PathBuf>,
    version: OpenApiVersion,
}

struct DocumentFile {
    /// Relative to the folder of the document.
    path: PathBuf,
    value: Value,
}

impl OpenApiDocument {
    pub(super) fn load(text: &str, folder: Option<&Path>) -> Result<OpenApiDocument, String> {
        let value = parse_document(text)?;
        let version = detect_version(&value)?;
        let files = vec![DocumentFile { path: PathBuf::new(), value }];
        let mut document =
            OpenApiDocument { files, index: HashMap::new(), referenced_files: Vec::new(), version };
        if let Some(folder) = folder {
            document.load_references(folder);
        }
        Ok(document)
    }

    pub(super) fn root(&self) -> &Value {
        &self.files[0].value
    }

    pub(super) fn referenced_files(&self) -> &[PathBuf] {
        &self.referenced_files
    }

    pub(super) fn version(&self) -> OpenApiVersion {
        self.version
    }

    /// Loads all files that are referred to, directly or indirectly. A file that cannot be read is reported where it
    /// is used.
    fn load_references(&mut self, folder: &Path) {
        let Ok(folder) = folder.canonicalize() else { return };
        let mut index = 0;
        let mut bytes_left = MAX_DOCUMENT_BYTES;
        while index < self.files.len() {
            let mut found = Vec::new();
            collect_references(&self.files[index].value, &mut found);
            let path_of_file = self.files[index].path.clone();
            for reference in found {
                let Some(path) = resolve_relative_path(&path_of_file, &reference) else { continue };
                if self.index.contains_key(&path) || self.files.len() > MAX_FILES {
                    continue;
                }
                self.referenced_files.push(folder.join(&path));
                if let Some((size, value)) = read_below(&folder, &path, bytes_left) {
                    bytes_left = bytes_left.saturating_sub(size);
                    self.index.insert(path.clone(), self.files.len());
                    self.files.push(DocumentFile { path, value });
                }
            }
            index += 1;
        }
    }

    /// Follows references. Returns the file index and the target.
    pub(super) fn follow<'a>(
        &'a self,
        file_index: usize,
        value: &'a Value,
    ) -> Result<(usize, &'a Value), String> {
        let (mut file_index, mut value) = (file_index, value);
        for _ in 0..MAX_REFERENCE_HOPS {
            match reference_target(value) {
                Some(reference) => (file_index, value) = self.resolve(file_index, reference)?,
                None => return Ok((file_index, value)),
            }
        }
        Err("its references form a cycle".into())
    }

    /// Resolves one reference.
    pub(super) fn resolve(&self, file_index: usize, reference: &str) -> Result<(usize, &Value), String> {
        let displayed = super::naming::display_text(reference);
        let (file, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let file_index = if file.is_empty() {
            file_index
        } else {
            if file.contains("://") || file.starts_with("//") {
                return Err(format!("it refers to `{displayed}`, and other servers are not contacted"));
            }
            let path = resolve_relative_path(&self.files[file_index].path, reference);
            let found = path.and_then(|path| self.index.get(&path).copied());
            found.ok_or_else(|| format!("it refers to `{displayed}`, which cannot be read"))?
        };
        let root = &self.files[file_index].value;
        let found = match percent_decode(pointer) {
            pointer if pointer.is_empty() => Some(root),
            pointer if pointer.starts_with('/') => root.pointer(&pointer),
            _ => None,
        };
        found
            .map(|value| (file_index, value))
            .ok_or_else(|| format!("it refers to `{displayed}`, which does not exist"))
    }
}

/// The target of a `$ref`, if the value is one.
pub(super) fn reference_target(value: &Value) -> Option<&str> {
    value.as_object()?.get("$ref")?.as_str()
}

fn parse_document(text: &str) -> Result<Value, String> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(format!("it is larger than {MAX_DOCUMENT_BYTES} bytes"));
    }
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['{', '[']) {
        return serde_json::from_str(text).map_err(|error| format!("it is not valid JSON: {error}"));
    }
    // Parsing YAML needs far more stack than JSON, so it runs on its own thread.
    let parse = |text: &str| {
        let thread = std::thread::Builder::new().name("toolgate-yaml".into()).stack_size(YAML_STACK_BYTES);
        std::thread::scope(|scope| thread.spawn_scoped(scope, || parse_yaml(text)).ok()?.join().ok())
    };
    parse(text).unwrap_or_else(|| Err("it cannot be read".into()))
}

fn parse_yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 100,
            max_events: 4_000_000,
            max_nodes: 2_000_000,
            max_aliases: 10_000,
            max_documents: 1,
            max_total_scalar_bytes: MAX_DOCUMENT_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 200_000,
            max_replay_stack_depth: 16,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message: String =
            error.to_string().lines().next().unwrap_or_default().chars().take(300).collect();
        format!("it is not valid YAML: {message}")
    })
}

fn detect_version(value: &Value) -> Result<OpenApiVersion, String> {
    let text = |name: &str| match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        // An unquoted version in YAML is a number.
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    match (text("swagger").as_str(), text("openapi").as_str()) {
        (two, _) if two.starts_with('2') => Ok(OpenApiVersion::V2),
        (_, three) if three.starts_with("3.0") || three == "3" => Ok(OpenApiVersion::V3_0),
        (_, three) if three.starts_with("3.") => Ok(OpenApiVersion::V3_1),
        ("", "") => Err("it is not an OpenAPI document: `openapi` or `swagger` is missing".into()),
        (two, three) => Err(format!(
            "version {} is not supported; 2.0, 3.0 and 3.1 are",
            super::naming::display_text(&format!("{two}{three}"))
        )),
    }
}

fn collect_references(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(reference) = reference_target(value)
                && !reference.starts_with('#')
            {
                into.push(reference.to_owned());
            }
            members.values().for_each(|member| collect_references(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        _ => {}
    }
}

/// The path of a referenced file relative to the folder, or `None` if it is outside.
fn resolve_relative_path(path_of_file: &Path, reference: &str) -> Option<PathBuf> {
    let file = percent_decode(reference.split('#').next().unwrap_or_default());
    if file.is_empty() || file.contains("://") || file.contains('\0') || file.contains('\\') {
        return None;
    }
    let mut path = path_of_file.parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(&file).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

fn read_below(folder: &Path, path: &Path, limit: usize) -> Option<(usize, Value)> {
    let full_path = folder.join(path).canonicalize().ok()?;
    // A link may point outside of the folder.
    let metadata = std::fs::metadata(&full_path)
        .ok()
        .filter(|metadata| metadata.is_file() && full_path.starts_with(folder))?;
    if usize::try_from(metadata.len()).ok()? > limit {
        return None;
    }
    let text = std::fs::read_to_string(&full_path).ok()?;
    parse_document(&text).ok().map(|value| (text.len(), value))
}
