//! Whole APIs: each operation of a description becomes a tool, a resource or a template.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::{Builder, Context, ResourceSpec, Server, TemplateSpec, ToolSpec};

use super::limits::CallLimits;
use super::resources::{BackendReader, ServerResources, TextArguments};
use super::upstreams::strip_url_secrets;
use super::{BuildWarning, ServerBuild};
use crate::config::{self, Argument, Arguments, FileStamp, OpenApi, OpenApiSource};
use crate::source::ToolBackend;
use crate::source::http::{HttpBackend, HttpClient};
use crate::source::openapi::{self, ImportedApi, OpenApiSpec, Operation, OperationKind};

/// A tool that is an operation of an API, and where that is said.
pub(crate) struct ApiTool {
    pub(crate) name: String,
    pub(crate) span: config::Span,
    /// `GET /items/{id}`
    pub(crate) route: String,
    /// Names of the credentials that the description says it asks for.
    pub(crate) security: Vec<String>,
}

impl ServerBuild<'_> {
    /// Adds everything that a description has. What of it cannot be served is noted.
    pub(super) fn add_openapi(
        &mut self,
        api: &OpenApi,
        mut builder: Builder,
        library: &mut ServerResources,
        taken: &mut HashSet<String>,
    ) -> Builder {
        let connection = self.upstreams.api_connection(&self.server.name, api);
        let Some(text) = self.document_text(api, connection.as_deref()) else {
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
        let Some(connection) = connection else {
            self.report_missing_base(api, &imported);
            return builder;
        };
        for missing in &imported.skipped {
            self.warnings
                .push(BuildWarning::new(api.node.span, format!("{}: {}", missing.subject, missing.reason)));
        }
        let operations = imported.operations;
        let is_whole = all_build(operations.iter().filter(|operation| operation.kind == OperationKind::Tool));
        for operation in operations {
            match self.register_operation(api, operation, &connection, is_whole, library, taken) {
                Ok(add) => builder = add(builder),
                Err(said) => self.warnings.push(BuildWarning::new(api.node.span, said)),
            }
        }
        builder
    }

    /// The text of a description. None if there is none, which was told.
    fn document_text(&mut self, api: &OpenApi, connection: Option<&HttpClient>) -> Option<String> {
        match (&api.spec, connection) {
            (OpenApiSource::File { text, .. }, _) => Some(text.clone()),
            (OpenApiSource::Url(url), Some(connection)) => {
                match self.upstreams.fetch_document(url, connection) {
                    Ok(text) => Some(text),
                    Err(said) => {
                        // What others do not send keeps nothing else from being served.
                        self.warnings.push(BuildWarning::new(
                            api.node.span_at("spec"),
                            format!("{}: {said}", strip_url_secrets(url)),
                        ));
                        None
                    }
                }
            }
            (OpenApiSource::Url(_), None) => {
                self.report_missing_base(api, &ImportedApi::default());
                None
            }
        }
    }

    /// Nobody said where the API is.
    fn report_missing_base(&mut self, api: &OpenApi, imported: &ImportedApi) {
        if api.connection.is_some() || api.base.is_some() {
            // It was said, and is wrong. That was told.
            return;
        }
        let hint = match &imported.server_url {
            Some(server) => {
                format!("; the description says {server:?}: if that is right, `base = {server:?}`")
            }
            None => ": `base = \"https://…\"`".into(),
        };
        let said = format!("`{}` needs `base`, or `on` and a connection{hint}", api.name);
        self.diagnostics.report(api.node.span, said);
    }

    fn register_operation(
        &mut self,
        api: &OpenApi,
        operation: Operation,
        connection: &Arc<HttpClient>,
        is_whole: bool,
        library: &mut ServerResources,
        taken: &mut HashSet<String>,
    ) -> Result<Box<dyn FnOnce(Builder) -> Builder>, String> {
        let route = &operation.route;
        let cannot = |said: &str| format!("{route}: {said}");
        let act = HttpBackend::new(operation.spec.clone(), Arc::clone(connection), &operation.input_schema);
        let act: Arc<dyn ToolBackend> = match act {
            Ok(act) => Arc::new(act),
            Err(problems) => {
                let said: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
                return Err(cannot(&said.join("; ")));
            }
        };
        if operation.kind == OperationKind::Tool {
            let name = &operation.name;
            if !taken.insert(name.clone()) {
                return Err(cannot(&format!("there is a tool `{name}` already: give this API a `prefix`")));
            }
            if !is_whole && let Err(error) = try_build([&operation]) {
                return Err(cannot(error.lines().last().unwrap_or_default().trim()));
            }
            let (tool, route) = (name.clone(), route.clone());
            let security = operation.security.clone();
            self.api_tools.push(ApiTool { name: tool, span: api.node.span, route, security });
            let spec = operation_tool_spec(&operation, act, &self.limits);
            return Ok(Box::new(|builder| builder.add_tool(spec).done()));
        }
        let uri = operation.uri(&api.name);
        if !taken.insert(uri.clone()) {
            return Err(cannot(&format!("there is `{uri}` already")));
        }
        let reader = Arc::new(BackendReader::new(act, &uri_arguments(&operation.input_schema), None));
        if operation.kind == OperationKind::Resource {
            library.resources.insert(uri.clone(), Arc::clone(&reader));
            let mut spec = ResourceSpec::new(&uri, move |cx: Context| {
                let reader = Arc::clone(&reader);
                async move { reader.read(&cx, Vec::new()).await }
            })
            .name(&operation.name);
            if let Some(title) = operation.title {
                spec = spec.title(title);
            }
            if let Some(description) = operation.description {
                spec = spec.describe(description);
            }
            return Ok(Box::new(|builder| builder.add_resource(spec).done()));
        }
        library.add_template(&uri, &reader);
        let mut spec = TemplateSpec::new(&uri, move |words: TextArguments, cx: Context| {
            let reader = Arc::clone(&reader);
            async move { reader.read(&cx, words.into_pairs()).await }
        })
        .name(&operation.name);
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
    let kind = |word: &str| match word {
        "resource" => OperationKind::Resource,
        "template" => OperationKind::Template,
        _ => OperationKind::Tool,
    };
    let (folder, origin) = match &api.spec {
        OpenApiSource::File { path, .. } => (path.parent().map(std::path::Path::to_owned), None),
        OpenApiSource::Url(url) => (None, Some(url.clone())),
    };
    OpenApiSpec {
        prefix: api.prefix.clone(),
        include: api.include.clone(),
        exclude: api.exclude.clone(),
        kinds: api.kinds.iter().map(|(pattern, word)| (pattern.clone(), kind(word))).collect(),
        rename: api.rename.clone(),
        folder,
        source_url: origin,
    }
}

fn operation_tool_spec(operation: &Operation, act: Arc<dyn ToolBackend>, bounds: &CallLimits) -> ToolSpec {
    let bounds = bounds.clone();
    let handler = move |given: Value, cx: Context| {
        let (act, bounds) = (Arc::clone(&act), bounds.clone());
        async move {
            let arguments = match given {
                Value::Object(arguments) => arguments,
                _ => Map::new(),
            };
            bounds.run(act.execute(&cx, &arguments)).await
        }
    };
    let mut spec = ToolSpec::new(&operation.name, handler)
        .input_schema(operation.input_schema.clone())
        .hints(operation.hints.clone());
    if let Some(title) = &operation.title {
        spec = spec.title(title);
    }
    if let Some(description) = &operation.description {
        spec = spec.describe(description);
    }
    if let Some(schema) = &operation.output_schema {
        spec = spec.output_schema(schema.clone());
    }
    spec
}

/// Stands where only the description of a tool matters.
struct UnavailableBackend;

impl ToolBackend for UnavailableBackend {
    fn execute<'a>(&'a self, _: &'a Context, _: &'a Map<String, Value>) -> crate::source::BackendFuture<'a> {
        Box::pin(async { Err(toolgate::HandlerError::new("nothing is served here")) })
    }
}

/// Whether a server takes these tools. One that it does not take must not keep the others from being served.
fn try_build<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Result<(), String> {
    let mut builder = Server::new("trial", "1");
    for operation in operations {
        builder = builder
            .add_tool(operation_tool_spec(operation, Arc::new(UnavailableBackend), &CallLimits::default()))
            .done();
    }
    builder.build().map(drop).map_err(|error| error.to_string())
}

fn all_build<'a>(operations: impl Iterator<Item = &'a Operation>) -> bool {
    try_build(operations).is_ok()
}

/// The variables of an address, by the schema of all arguments.
fn uri_arguments(schema: &Value) -> Arguments {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|known| known == name));
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
