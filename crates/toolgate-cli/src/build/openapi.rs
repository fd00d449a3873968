//! Imports APIs: each operation of an OpenAPI document becomes a tool, a resource or a template.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::{Builder, Context};
use toolgate_sources::source::http::{HttpBackend, HttpClient};
use toolgate_sources::source::openapi::{self, ImportedApi, OpenApiSpec, Operation, OperationKind};
use toolgate_sources::source::{BackendFuture, ToolBackend};

use super::ServerBuild;
use super::limits::CallLimits;
use super::resources::{BackendReader, ServerResources, backend_resource, backend_template};
use crate::config::{self, Argument, Arguments, FileStamp, OpenApi, OpenApiSource, redact_url};

/// A tool that is an operation of an imported API.
pub(crate) struct ApiTool {
    pub(crate) name: String,
    pub(crate) span: config::Span,
    /// `GET /items/{id}`
    pub(crate) route: String,
    /// Names of the security schemes that the document states for the operation.
    pub(crate) security: Vec<String>,
}

/// The state that all operations of an API share.
struct ApiImport<'a> {
    api: &'a OpenApi,
    client: Arc<HttpClient>,
    resources: &'a mut ServerResources,
    /// Names and URIs of the server that are in use.
    taken: &'a mut HashSet<String>,
    tool_check: ToolCheck,
}

/// Whether each tool has to be checked before it is added, so that one invalid tool does not keep the others from being
/// served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolCheck {
    AllValid,
    Each,
}

impl ServerBuild<'_> {
    /// Adds the operations of an API. Operations that cannot be served become warnings.
    pub(super) fn add_openapi(
        &mut self,
        api: &OpenApi,
        mut builder: Builder,
        resources: &mut ServerResources,
        taken: &mut HashSet<String>,
    ) -> Builder {
        let client = self.upstreams.api_connection(&self.server.name, api);
        let Some(text) = self.document_text(api, client.as_deref()) else {
            return builder;
        };
        let imported = match openapi::import(&text, &import_spec(api)) {
            Ok(imported) => imported,
            Err(problems) => {
                self.report_problems(&api.node, "", problems);
                return builder;
            }
        };
        self.file_stamps.extend(imported.referenced_files.iter().map(|path| FileStamp::new(path)));
        let Some(client) = client else {
            self.report_missing_base(api, &imported);
            return builder;
        };
        for skipped in &imported.skipped {
            self.warn(api.node.span, format!("{}: {}", skipped.subject, skipped.reason));
        }
        let operations = imported.operations;
        let tools = operations.iter().filter(|operation| operation.kind == OperationKind::Tool);
        let tool_check =
            if openapi::validate_tools(tools).is_ok() { ToolCheck::AllValid } else { ToolCheck::Each };
        let mut import = ApiImport { api, client, resources, taken, tool_check };
        for operation in operations {
            let route = operation.route.clone();
            match self.register_operation(&mut import, operation) {
                Ok(add) => builder = add(builder),
                Err(reason) => self.warn(api.node.span, format!("{route}: {reason}")),
            }
        }
        builder
    }

    /// Returns `None` after reporting that the document cannot be read.
    fn document_text(&mut self, api: &OpenApi, client: Option<&HttpClient>) -> Option<String> {
        match (&api.spec, client) {
            (OpenApiSource::File { text, .. }, _) => Some(text.clone()),
            (OpenApiSource::Url(url), Some(client)) => match self.upstreams.fetch_document(url, client) {
                Ok(text) => Some(text),
                Err(reason) => {
                    // A warning only: the rest of the configuration is served.
                    let message = format!("{}: {reason}", redact_url(url));
                    self.warn(api.node.span_at("spec"), message);
                    None
                }
            },
            (OpenApiSource::Url(_), None) => {
                self.report_missing_base(api, &ImportedApi::default());
                None
            }
        }
    }

    fn report_missing_base(&mut self, api: &OpenApi, imported: &ImportedApi) {
        if api.connection.is_some() || api.base.is_some() {
            // It is set but invalid, which has been reported.
            return;
        }
        let hint = match &imported.server_url {
            Some(server) => {
                format!("; the document names {server:?}; if that is right, set `base = {server:?}`")
            }
            None => "; for example `base = \"https://api.example.com\"`".into(),
        };
        let message = format!("`{}` requires `base` or `on`{hint}", api.name);
        self.diagnostics.report(api.node.span, message);
    }

    /// Returns a function that adds the operation to a builder, or the reason why it cannot be served.
    fn register_operation(
        &mut self,
        import: &mut ApiImport<'_>,
        operation: Operation,
    ) -> Result<Box<dyn FnOnce(Builder) -> Builder>, String> {
        let client = Arc::clone(&import.client);
        let backend = HttpBackend::new(operation.spec.clone(), client, &operation.input_schema);
        let backend: Arc<dyn ToolBackend> = match backend {
            Ok(backend) => Arc::new(backend),
            Err(problems) => {
                let messages: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
                return Err(messages.join("; "));
            }
        };
        if operation.kind == OperationKind::Tool {
            let name = &operation.name;
            if !import.taken.insert(name.clone()) {
                return Err(format!("a tool `{name}` exists already; set `prefix` for this API"));
            }
            if import.tool_check == ToolCheck::Each {
                openapi::validate_tools([&operation])?;
            }
            self.api_tools.push(ApiTool {
                name: name.clone(),
                span: import.api.node.span,
                route: operation.route.clone(),
                security: operation.security.clone(),
            });
            let spec = operation.tool_spec(Arc::new(LimitedBackend { backend, limits: self.limits.clone() }));
            return Ok(Box::new(|builder| builder.add_tool(spec).done()));
        }
        let uri = operation.uri(&import.api.name);
        if !import.taken.insert(uri.clone()) {
            return Err(format!("`{uri}` exists already"));
        }
        let reader = Arc::new(BackendReader::new(backend, &uri_arguments(&operation.input_schema), None));
        if operation.kind == OperationKind::Resource {
            import.resources.resources.insert(uri.clone(), Arc::clone(&reader));
            let mut spec = backend_resource(&uri, &operation.name, reader);
            if let Some(title) = operation.title {
                spec = spec.title(title);
            }
            if let Some(description) = operation.description {
                spec = spec.describe(description);
            }
            return Ok(Box::new(|builder| builder.add_resource(spec).done()));
        }
        import.resources.add_template(&uri, &reader);
        let mut spec = backend_template(&uri, &operation.name, reader);
        if let Some(title) = operation.title {
            spec = spec.title(title);
        }
        if let Some(description) = operation.description {
            spec = spec.describe(description);
        }
        Ok(Box::new(|builder| builder.add_template(spec).done()))
    }
}

fn import_spec(api: &OpenApi) -> OpenApiSpec {
    let kind = |name: &str| match name {
        "resource" => OperationKind::Resource,
        "template" => OperationKind::Template,
        _ => OperationKind::Tool,
    };
    let (folder, source_url) = match &api.spec {
        OpenApiSource::File { path, .. } => (path.parent().map(std::path::Path::to_owned), None),
        OpenApiSource::Url(url) => (None, Some(url.clone())),
    };
    OpenApiSpec {
        prefix: api.prefix.clone(),
        include: api.include.clone(),
        exclude: api.exclude.clone(),
        kinds: api.kinds.iter().map(|(pattern, name)| (pattern.clone(), kind(name))).collect(),
        rename: api.rename.clone(),
        folder,
        source_url,
    }
}

/// A backend whose calls are subject to the limits of the server.
struct LimitedBackend {
    backend: Arc<dyn ToolBackend>,
    limits: CallLimits,
}

impl ToolBackend for LimitedBackend {
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(self.limits.run(self.backend.execute(cx, arguments)))
    }
}

/// The variables of a URI template, by the schema of all arguments.
fn uri_arguments(schema: &Value) -> Arguments {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    let argument = |(name, schema): (&String, &Value)| Argument {
        name: name.clone(),
        schema: schema.clone(),
        default: None,
        is_required: is_required(name),
        origin: None,
        clean: None,
    };
    let list = schema["properties"].as_object().into_iter().flatten().map(argument).collect();
    Arguments { list }
}
