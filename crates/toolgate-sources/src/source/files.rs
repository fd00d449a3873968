//! Serves the files of a folder as resources, and nothing outside of it, whatever file names and links contain.
//!
//! Names are validated before a file is opened, and the kernel is asked to stay below the root while it resolves the
//! path, so there is no gap between the check and the use.

mod path;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolgate::HandlerError;
use toolgate::model::ResourceContents;

pub use path::media_type;

use super::Problem;
use super::percent::percent_encode_path;
use crate::sync::lock;
use path::{is_safe_path, open_below};

/// Maximum depth of nested folders.
const MAX_SCAN_DEPTH: usize = 64;

/// The description of the served files.
#[derive(Clone, Debug, PartialEq)]
pub struct FilesSpec {
    pub root: PathBuf,
    pub globs: Vec<String>,
    pub exclude: Vec<String>,
    /// A URI with `{path}` for the path below the root.
    pub uri: String,
    pub hidden: bool,
    pub max_size: u64,
    pub max_files: usize,
    /// Media type of all files; derived from the file name if not set.
    pub mime: Option<String>,
    /// Serves only this file of the folder, at exactly this URI.
    pub single_file: Option<String>,
}

impl Default for FilesSpec {
    fn default() -> FilesSpec {
        FilesSpec {
            root: PathBuf::from("."),
            globs: vec!["**/*".into()],
            exclude: Vec::new(),
            uri: String::new(),
            hidden: false,
            max_size: 8 << 20,
            max_files: 10_000,
            mime: None,
            single_file: None,
        }
    }
}

impl FilesSpec {
    /// A single file at this URI.
    pub fn single(path: &Path, uri: String) -> FilesSpec {
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        FilesSpec {
            root: root.to_owned(),
            single_file: Some(name.unwrap_or_default()),
            uri,
            hidden: true,
            ..FilesSpec::default()
        }
    }
}

/// A served folder.
#[derive(Debug)]
pub struct Files {
    spec: FilesSpec,
    include: GlobSet,
    exclude: GlobSet,
    /// The result of the last scan.
    last_listing: Mutex<Vec<ListedFile>>,
}

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Relative to the root, with `/` as separator.
    pub path: String,
    pub uri: String,
    pub mime: Option<String>,
    pub size: u64,
    pub modified: Option<SystemTime>,
}

/// Escapes invisible and bidirectional characters of a file name for display.
pub fn escape_display_name(path: &str) -> String {
    let is_invisible = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut escaped = String::with_capacity(path.len());
    for character in path.chars() {
        if is_invisible(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Changes since the last scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    pub added: Vec<ListedFile>,
    pub removed: Vec<String>,
    pub changed: Vec<ListedFile>,
}

impl Files {
    pub fn new(spec: FilesSpec) -> Result<Files, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut report = |path: &str, message: String| problems.push(Problem { path: path.into(), message });
        let (include, exclude) = (build_glob_set(&spec.globs), build_glob_set(&spec.exclude));
        for (path, set) in [("glob", &include), ("exclude", &exclude)] {
            if let Err(message) = set {
                report(path, message.clone());
            }
        }
        match &spec.single_file {
            Some(name) if !spec.root.join(name).is_file() => {
                report("", format!("there is no file `{}`", spec.root.join(name).display()));
            }
            Some(_) => {}
            None => {
                if !spec.root.is_dir() {
                    report("root", format!("there is no folder `{}`", spec.root.display()));
                }
                let n_placeholders = spec.uri.matches("{path}").count() + spec.uri.matches("{+path}").count();
                if n_placeholders != 1 || spec.uri.matches('{').count() != 1 {
                    report(
                        "uri",
                        "the URI must contain `{path}` exactly once, such as `docs:///{path}`".into(),
                    );
                }
            }
        }
        match (include, exclude, problems.is_empty()) {
            (Ok(include), Ok(exclude), true) => {
                Ok(Files { spec, include, exclude, last_listing: Mutex::default() })
            }
            _ => Err(problems),
        }
    }

    pub fn root(&self) -> &Path {
        &self.spec.root
    }

    /// The URI template of the files, or `None` for a single file.
    pub fn uri_template(&self) -> Option<String> {
        self.spec.single_file.is_none().then(|| self.spec.uri.replace("{path}", "{+path}"))
    }

    /// Lists the files, sorted by name. Blocks.
    pub fn scan(&self) -> Vec<ListedFile> {
        let mut found = Vec::new();
        match &self.spec.single_file {
            Some(name) => found.extend(self.describe_file(name)),
            None => self.scan_dir(&self.spec.root, "", 0, &mut found),
        }
        if found.len() > self.spec.max_files {
            let max_files = self.spec.max_files;
            tracing::warn!(root = %self.spec.root.display(), max_files, "too many files to list; all of them can still be read");
            found.truncate(max_files);
        }
        found
    }

    /// Lists the files and remembers the result for [`Files::take_changes`]. Blocks.
    pub fn refresh(&self) -> Vec<ListedFile> {
        let found = self.scan();
        lock(&self.last_listing).clone_from(&found);
        found
    }

    /// Returns the changes since the last scan. Blocks.
    pub fn take_changes(&self) -> FileChanges {
        let now = self.scan();
        let mut last_listing = lock(&self.last_listing);
        let mut changes = FileChanges::default();
        // Both lists are sorted, so one pass is enough.
        let (mut old, mut new) = (last_listing.iter().peekable(), now.iter().peekable());
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(before), Some(after)) if before.path == after.path => {
                    if before != after {
                        changes.changed.push((*after).clone());
                    }
                    old.next();
                    new.next();
                }
                (Some(before), after) if after.is_none_or(|after| before.path < after.path) => {
                    changes.removed.push(before.uri.clone());
                    old.next();
                }
                (_, Some(after)) => {
                    changes.added.push((*after).clone());
                    new.next();
                }
                (Some(_), None) => break,
            }
        }
        *last_listing = now;
        changes
    }

    fn scan_dir(&self, folder: &Path, below: &str, depth: usize, found: &mut Vec<ListedFile>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut names: Vec<(String, bool)> = entries
            .filter_map(Result::ok)
            // Links are not listed, but can be read if their target is below the root.
            .filter_map(|entry| {
                let kind = entry.file_type().ok().filter(|kind| kind.is_dir() || kind.is_file())?;
                // A folder sorts like its files: `a-b` before `a/b`.
                Some((entry.file_name().into_string().ok()?, kind.is_dir()))
            })
            .collect();
        let order =
            |(name, is_folder): &(String, bool)| if *is_folder { format!("{name}/") } else { name.clone() };
        names.sort_by_cached_key(order);
        for (name, is_folder) in names {
            if found.len() > self.spec.max_files {
                return;
            }
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            if is_folder && depth < MAX_SCAN_DEPTH && self.is_visible(&name) {
                self.scan_dir(&folder.join(&name), &path, depth + 1, found);
            } else if !is_folder && self.is_served(&path) {
                found.extend(self.describe_file(&path));
            }
        }
    }

    fn describe_file(&self, path: &str) -> Option<ListedFile> {
        let data = self.spec.root.join(path).metadata().ok()?;
        Some(ListedFile {
            path: path.to_owned(),
            uri: self.uri(path),
            mime: self.mime(path),
            size: data.len(),
            modified: data.modified().ok(),
        })
    }

    fn uri(&self, path: &str) -> String {
        if self.spec.single_file.is_some() {
            return self.spec.uri.clone();
        }
        let escaped = percent_encode_path(path);
        self.spec.uri.replace("{+path}", &escaped).replace("{path}", &escaped)
    }

    /// The path of a URI, or `None` if the URI is not one of these files.
    pub fn path_for_uri(&self, uri: &str) -> Option<String> {
        if let Some(single_file) = &self.spec.single_file {
            return (uri == self.spec.uri).then(|| single_file.clone());
        }
        let template = toolgate::uri_template::UriTemplate::parse(&self.uri_template()?).ok()?;
        template.match_uri(uri)?.into_iter().next().map(|(_, path)| path)
    }

    fn mime(&self, path: &str) -> Option<String> {
        self.spec.mime.clone().or_else(|| media_type(Path::new(path)).map(str::to_owned))
    }

    fn is_visible(&self, name: &str) -> bool {
        self.spec.hidden || !name.starts_with('.')
    }

    /// Whether this path may be read, judged by its name.
    fn is_served(&self, path: &str) -> bool {
        if let Some(single_file) = &self.spec.single_file {
            return path == single_file;
        }
        is_safe_path(path)
            && path.split('/').all(|part| self.is_visible(part))
            && self.include.is_match(path)
            && !self.exclude.is_match(path)
    }

    /// Reads a file. Returns `None` if there is no readable file of that name, whatever the reason.
    ///
    /// Cancel safe: yes, because nothing is changed.
    pub async fn read(self: Arc<Files>, path: String) -> Result<Option<ResourceContents>, HandlerError> {
        if !self.is_served(&path) {
            return Ok(None);
        }
        let read = tokio::task::spawn_blocking(move || self.read_blocking(&path)).await;
        read.map_err(|_| HandlerError::new("the file could not be read"))?
    }

    fn read_blocking(&self, path: &str) -> Result<Option<ResourceContents>, HandlerError> {
        // A single file is named in the configuration, so it may be a link.
        let opened = match &self.spec.single_file {
            Some(name) if self.spec.root.join(name).is_file() => File::open(self.spec.root.join(name)).ok(),
            Some(_) => None,
            None => open_below(&self.spec.root, path),
        };
        let Some(file) = opened else {
            return Ok(None);
        };
        let Ok(data) = file.metadata() else {
            return Ok(None);
        };
        // Opening a pipe could block forever.
        if !data.is_file() {
            return Ok(None);
        }
        let too_large =
            || HandlerError::new(format!("too large: the limit for files is {} bytes", self.spec.max_size));
        if data.len() > self.spec.max_size {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(data.len()).unwrap_or(0));
        let read = file.take(self.spec.max_size + 1).read_to_end(&mut bytes);
        read.map_err(|_| HandlerError::new("unavailable: the file could not be read"))?;
        if bytes.len() as u64 > self.spec.max_size {
            return Err(too_large());
        }
        let uri = self.uri(path);
        let contents = match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => ResourceContents::text(uri, text),
            Ok(text) => ResourceContents::blob(uri, text.into_bytes()),
            Err(error) => ResourceContents::blob(uri, error.into_bytes()),
        };
        Ok(Some(match self.mime(path) {
            Some(mime) => contents.with_mime(mime),
            None => contents,
        }))
    }
}

fn build_glob_set(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| format!("{pattern:?}: {error}"))?);
    }
    set.build().map_err(|error| error.to_string())
}
