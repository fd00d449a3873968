//! Imports tools from OpenAPI documents: Swagger 2.0, OpenAPI 3.0 and 3.1, as JSON or YAML.
//!
//! Works on plain JSON values, because real documents rarely conform to the specification. All operations that can be
//! served are imported; the others are listed with the reason. Nothing in a document causes a connection, and files are
//! read only below its own folder.

mod document;
mod naming;
mod operation;
mod schema;
mod security;
mod tool;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;
use toolgate::model::ToolHints;

pub use security::SecurityScheme;
pub use tool::validate_tools;

use super::Problem;
use super::http::{HttpBackend, HttpSpec};
use document::{OpenApiDocument, OpenApiVersion};
use naming::{NameAllocator, OperationPattern};
use operation::OperationReader;

/// Maximum size of a document.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of operations of one document.
pub const MAX_OPERATIONS: usize = 2000;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// How a document is imported.
#[derive(Clone, Debug, Default)]
pub struct OpenApiSpec {
    /// Prefix of every tool name.
    pub prefix: String,
    /// `GET /v2/**`, `/v2/**`, `tag:stock`, `listItems`, `id:list*`, `deprecated`. Empty means all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Kinds of operations, by the same patterns.
    pub kinds: Vec<(String, OperationKind)>,
    /// New names, by `operationId` or by the name that the operation would have.
    pub rename: Vec<(String, String)>,
    /// The folder for other files of the document; files outside of it are not read. `None` if there are none.
    pub folder: Option<PathBuf>,
    /// The URL of the document, if it was fetched.
    pub source_url: Option<String>,
}

/// What an operation is imported as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationKind {
    #[default]
    Tool,
    Resource,
    Template,
}

/// The result of an import.
#[derive(Debug, Default)]
pub struct ImportedApi {
    pub title: String,
    pub version: String,
    pub operations: Vec<Operation>,
    /// Operations that are not served, and why.
    pub skipped: Vec<SkippedOperation>,
    /// The backend's URL according to the document. Callers decide whether to trust it.
    pub server_url: Option<String>,
    /// The security schemes.
    pub schemes: Vec<SecurityScheme>,
    /// Files that the document refers to, whether they exist or not.
    pub referenced_files: Vec<PathBuf>,
}

/// One imported operation.
#[derive(Clone, Debug)]
pub struct Operation {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub spec: HttpSpec,
    pub hints: ToolHints,
    pub kind: OperationKind,
    /// Names of the required security schemes.
    pub security: Vec<String>,
    /// `GET /items/{id}`
    pub route: String,
}

/// An operation of an OpenAPI document that is not served, or a pattern that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedOperation {
    /// `GET /items/{id}`, or the unused pattern.
    pub subject: String,
    /// Why it is not served.
    pub reason: String,
}

impl Operation {
    /// The URI or URI template of an operation that is a resource.
    pub fn uri(&self, scheme: &str) -> String {
        let fields: Vec<&str> = self
            .spec
            .query
            .iter()
            .filter_map(|field| field.value.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        let path = self.spec.path.split('?').next().unwrap_or_default();
        if fields.is_empty() {
            format!("{scheme}://{path}")
        } else {
            format!("{scheme}://{path}{{?{}}}", fields.join(","))
        }
    }
}

/// Imports a document. An error concerns the whole document; problems of single operations are in the result.
pub fn import(text: &str, spec: &OpenApiSpec) -> Result<ImportedApi, Vec<Problem>> {
    let problem = |path: &str, message: String| vec![Problem { path: path.into(), message }];
    let document =
        OpenApiDocument::load(text, spec.folder.as_deref()).map_err(|message| problem("spec", message))?;
    let mut problems = Vec::new();
    let mut patterns = |path: &str, texts: &mut dyn Iterator<Item = &String>| -> Vec<OperationPattern> {
        texts
            .filter_map(|text| match OperationPattern::parse(text) {
                Ok(pattern) => Some(pattern),
                Err(message) => {
                    problems.push(Problem { path: path.into(), message });
                    None
                }
            })
            .collect()
    };
    let mut import = Importer {
        include: patterns("include", &mut spec.include.iter()),
        exclude: patterns("exclude", &mut spec.exclude.iter()),
        kinds: patterns("as", &mut spec.kinds.iter().map(|(pattern, _)| pattern)),
        names: NameAllocator::new(&spec.prefix, &spec.rename),
        operation_ids: HashMap::new(),
        imported: ImportedApi {
            referenced_files: document.referenced_files().to_vec(),
            ..ImportedApi::default()
        },
        document: &document,
        spec,
    };
    problems.extend(import.names.validate());
    if !problems.is_empty() {
        return Err(problems);
    }
    import.run().map_err(|message| problem("spec", message))?;
    Ok(import.imported)
}

struct Importer<'a> {
    document: &'a OpenApiDocument,
    spec: &'a OpenApiSpec,
    include: Vec<OperationPattern>,
    exclude: Vec<OperationPattern>,
    kinds: Vec<OperationPattern>,
    names: NameAllocator,
    /// Every `operationId`, and where it first occurred.
    operation_ids: HashMap<String, String>,
    imported: ImportedApi,
}

impl Importer<'_> {
    fn run(&mut self) -> Result<(), String> {
        let root = self.document.root();
        let info = |name: &str| {
            root.pointer(&format!("/info/{name}")).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        self.imported.title = info("title");
        self.imported.version = info("version");
        self.imported.schemes = security::security_schemes(self.document);
        self.imported.server_url = self.server_url(root);
        let Some(paths) = root.get("paths").and_then(Value::as_object) else {
            return Err("`paths` is missing".into());
        };
        for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
            self.import_path(path, item)?;
        }
        self.report_unused();
        Ok(())
    }

    fn import_path(&mut self, path: &str, item: &Value) -> Result<(), String> {
        let (file_index, item) = match self.document.follow(0, item) {
            Ok(found) => found,
            Err(message) => {
                self.skip(path, message);
                return Ok(());
            }
        };
        let Some(members) = item.as_object() else {
            self.skip(path, "it is not an object".into());
            return Ok(());
        };
        let methods =
            members.iter().filter(|(method, _)| METHODS.contains(&method.to_ascii_lowercase().as_str()));
        for (method, operation) in methods {
            let route = format!("{} {path}", method.to_ascii_uppercase());
            if !self.is_selected(&route, operation) {
                continue;
            }
            if self.imported.operations.len() + self.imported.skipped.len() >= MAX_OPERATIONS {
                return Err(format!(
                    "it has more than {MAX_OPERATIONS} operations; choose some with `include`"
                ));
            }
            match self.import_operation(&route, path, file_index, item, operation) {
                Ok(operation) => self.imported.operations.push(operation),
                Err(message) => self.skip(&route, message),
            }
        }
        Ok(())
    }

    fn import_operation(
        &mut self,
        route: &str,
        path: &str,
        file_index: usize,
        item: &Value,
        operation: &Value,
    ) -> Result<Operation, String> {
        if !operation.is_object() {
            return Err("it is not an object".into());
        }
        let id = operation.get("operationId").and_then(Value::as_str).filter(|id| !id.is_empty());
        if let Some(id) = id {
            naming::validate_operation_id(id)?;
            if let Some(first) = self.operation_ids.insert(id.to_owned(), route.to_owned()) {
                return Err(format!(
                    "its operationId `{}` is already used by {first}",
                    naming::display_text(id)
                ));
            }
        }
        let info = operation_info(route, operation);
        let kind_index = self.kinds.iter().position(|pattern| pattern.matches(&info));
        let kind = kind_index
            .and_then(|index| self.spec.kinds.get(index))
            .map_or(OperationKind::Tool, |(_, kind)| *kind);
        let mut imported_operation = OperationReader::new(self.document, file_index, &self.imported.schemes)
            .read(route, path, item, operation)?;
        imported_operation.kind = kind;
        validate_kind(&mut imported_operation)?;
        if let Some(problem) =
            HttpBackend::validate(&imported_operation.spec, &imported_operation.input_schema)
                .into_iter()
                .next()
        {
            return Err(format!("its {}: {}", problem.path, problem.message));
        }
        imported_operation.name = self.names.allocate(id, route);
        Ok(imported_operation)
    }

    fn is_selected(&self, route: &str, operation: &Value) -> bool {
        let info = operation_info(route, operation);
        // Every pattern is tested against every operation, so that unused patterns are detected.
        let matches_any = |patterns: &[OperationPattern]| {
            patterns.iter().filter(|pattern| pattern.matches(&info)).count() > 0
        };
        let (is_included, is_excluded) = (matches_any(&self.include), matches_any(&self.exclude));
        (self.include.is_empty() || is_included) && !is_excluded
    }

    fn skip(&mut self, subject: &str, reason: String) {
        self.imported.skipped.push(SkippedOperation { subject: naming::display_text(subject), reason });
    }

    /// Reports unused patterns and renames, which often are typos.
    fn report_unused(&mut self) {
        let lists = [("include", &self.include), ("exclude", &self.exclude), ("as", &self.kinds)];
        let mut unused: Vec<String> = lists
            .iter()
            .flat_map(|(list, patterns)| {
                patterns
                    .iter()
                    .filter(|pattern| !pattern.is_used())
                    .map(move |pattern| format!("{list} `{pattern}`"))
            })
            .collect();
        unused.extend(self.names.unused_renames().map(|name| format!("rename `{name}`")));
        for subject in unused {
            self.imported
                .skipped
                .push(SkippedOperation { subject, reason: "it matches no operation".into() });
        }
    }

    fn server_url(&self, root: &Value) -> Option<String> {
        let url = match self.document.version() {
            OpenApiVersion::V2 => {
                let text = |name: &str| root.get(name).and_then(Value::as_str);
                let path = text("basePath").unwrap_or_default().trim_end_matches('/').to_owned();
                let schemes = root.get("schemes").and_then(Value::as_array);
                let is_plain =
                    schemes.is_some_and(|all| !all.is_empty() && !all.iter().any(|scheme| scheme == "https"));
                let scheme = if is_plain { "http" } else { "https" };
                text("host").map_or(path.clone(), |host| format!("{scheme}://{host}{path}"))
            }
            _ => operation::server_url(root.pointer("/servers/0")?)?,
        };
        if url.contains("://") {
            return Some(url.trim_end_matches('/').to_owned());
        }
        // A relative server URL is resolved against the URL of the document.
        let origin = self.spec.source_url.as_deref()?;
        let start = origin.find("://")? + 3;
        let end = origin[start..].find('/').map_or(origin.len(), |offset| start + offset);
        let path = if url.starts_with('/') || url.is_empty() { url } else { format!("/{url}") };
        Some(format!("{}{}", &origin[..end], path.trim_end_matches('/')))
    }
}

fn operation_info<'a>(route: &'a str, operation: &'a Value) -> naming::OperationInfo<'a> {
    let tags =
        operation.get("tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let (method, path) = route.split_once(' ').unwrap_or((route, ""));
    naming::OperationInfo {
        method,
        path,
        tags: tags.collect(),
        id: operation.get("operationId").and_then(Value::as_str).unwrap_or_default(),
        is_deprecated: operation.get("deprecated") == Some(&Value::Bool(true)),
    }
}

/// Only GET operations that need no headers or cookies from arguments can be resources.
fn validate_kind(operation: &mut Operation) -> Result<(), String> {
    if operation.kind == OperationKind::Tool {
        return Ok(());
    }
    if operation.spec.method != "GET" {
        return Err("only a GET can be a resource".into());
    }
    if !operation.spec.headers.is_empty() || !operation.spec.cookies.is_empty() {
        operation.spec.headers.retain(|field| !field.value.contains('{'));
        operation.spec.cookies.retain(|field| !field.value.contains('{'));
    }
    let has_arguments = operation
        .input_schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|all| !all.is_empty());
    let has_required =
        operation.input_schema.get("required").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    match operation.kind {
        OperationKind::Template if !has_arguments => operation.kind = OperationKind::Resource,
        OperationKind::Resource if has_required => {
            return Err("a resource has no arguments; make it a template".into());
        }
        OperationKind::Resource => operation.spec.query.retain(|field| !field.value.contains('{')),
        _ => {}
    }
    Ok(())
}
