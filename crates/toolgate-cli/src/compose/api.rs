//! Whole APIs: each operation of a description becomes a tool, a resource or a template.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::{Builder, Context, ResourceSpec, Server, TemplateSpec, ToolSpec};

use super::backends::shown;
use super::bounds::Bounds;
use super::library::{Library, Reader, Words};
use super::{Making, Note, Plain as _};
use crate::config::{self, Argument, Arguments, Beside, Document, OpenApi};
use crate::source::Act;
use crate::source::http::{HttpAct, HttpConnection};
use crate::source::openapi::{self, Imported, Kind, OpenApiSpec, Operation};

/// A tool that is an operation of an API, and where that is said.
pub(crate) struct Foreign {
    pub(crate) tool: String,
    pub(crate) at: config::Place,
    /// `GET /items/{id}`
    pub(crate) route: String,
    /// Names of the credentials that the description says it asks for.
    pub(crate) security: Vec<String>,
}

impl Making<'_> {
    /// Adds everything that a description has. What of it cannot be served is noted.
    pub(super) fn openapi(
        &mut self,
        api: &OpenApi,
        mut builder: Builder,
        library: &mut Library,
        taken: &mut HashSet<String>,
    ) -> Builder {
        let connection = self.backends.api(&self.server.name, api);
        let Some(text) = self.described(api, connection.as_deref()) else {
            return builder;
        };
        let imported = match openapi::import(&text, &spec(api)) {
            Ok(imported) => imported,
            Err(problems) => {
                self.problems(&api.node, "", problems);
                return builder;
            }
        };
        self.beside.extend(imported.files.iter().map(|path| Beside::of(path)));
        let Some(connection) = connection else {
            self.homeless(api, &imported);
            return builder;
        };
        for missing in &imported.missing {
            self.notes.push(Note::new(api.node.at, format!("{}: {}", missing.what, missing.reason)));
        }
        let operations = imported.operations;
        let is_whole = are_sound(operations.iter().filter(|operation| operation.kind == Kind::Tool));
        for operation in operations {
            match self.operation(api, operation, &connection, is_whole, library, taken) {
                Ok(add) => builder = add(builder),
                Err(said) => self.notes.push(Note::new(api.node.at, said)),
            }
        }
        builder
    }

    /// The text of a description. None if there is none, which was told.
    fn described(&mut self, api: &OpenApi, connection: Option<&HttpConnection>) -> Option<String> {
        match (&api.spec, connection) {
            (Document::File { text, .. }, _) => Some(text.clone()),
            (Document::Url(url), Some(connection)) => match self.backends.document(url, connection) {
                Ok(text) => Some(text),
                Err(said) => {
                    // What others do not send keeps nothing else from being served.
                    self.notes.push(Note::new(api.node.reach("spec"), format!("{}: {said}", shown(url))));
                    None
                }
            },
            (Document::Url(_), None) => {
                self.homeless(api, &Imported::default());
                None
            }
        }
    }

    /// Nobody said where the API is.
    fn homeless(&mut self, api: &OpenApi, imported: &Imported) {
        if api.on.is_some() || api.base.is_some() {
            // It was said, and is wrong. That was told.
            return;
        }
        let hint = match &imported.server {
            Some(server) => {
                format!("; the description says {server:?}: if that is right, `base = {server:?}`")
            }
            None => ": `base = \"https://…\"`".into(),
        };
        let said = format!("`{}` needs `base`, or `on` and a connection{hint}", api.name);
        self.troubles.say(api.node.at, said);
    }

    fn operation(
        &mut self,
        api: &OpenApi,
        operation: Operation,
        connection: &Arc<HttpConnection>,
        is_whole: bool,
        library: &mut Library,
        taken: &mut HashSet<String>,
    ) -> Result<Box<dyn FnOnce(Builder) -> Builder>, String> {
        let route = &operation.route;
        let cannot = |said: &str| format!("{route}: {said}");
        let act = HttpAct::new(operation.spec.clone(), Arc::clone(connection), &operation.input_schema);
        let act: Arc<dyn Act> = match act {
            Ok(act) => Arc::new(act),
            Err(problems) => {
                let said: Vec<String> = problems.into_iter().map(|problem| problem.said).collect();
                return Err(cannot(&said.join("; ")));
            }
        };
        if operation.kind == Kind::Tool {
            let name = &operation.name;
            if !taken.insert(name.clone()) {
                return Err(cannot(&format!("there is a tool `{name}` already: give this API a `prefix`")));
            }
            if !is_whole && let Err(error) = trial([&operation]) {
                return Err(cannot(error.lines().last().unwrap_or_default().trim()));
            }
            let (tool, route) = (name.clone(), route.clone());
            let security = operation.security.clone();
            self.foreign.push(Foreign { tool, at: api.node.at, route, security });
            let spec = tool_of(&operation, act, &self.bounds);
            return Ok(Box::new(|builder| builder.add_tool(spec).into_plain()));
        }
        let uri = operation.uri(&api.name);
        if !taken.insert(uri.clone()) {
            return Err(cannot(&format!("there is `{uri}` already")));
        }
        let reader = Arc::new(Reader::new(act, &arguments(&operation.input_schema), None));
        if operation.kind == Kind::Resource {
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
            return Ok(Box::new(|builder| builder.add_resource(spec).into_plain()));
        }
        library.add_template(&uri, &reader);
        let mut spec = TemplateSpec::new(&uri, move |words: Words, cx: Context| {
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
        Ok(Box::new(|builder| builder.add_template(spec).into_plain()))
    }
}

fn spec(api: &OpenApi) -> OpenApiSpec {
    let kind = |word: &str| match word {
        "resource" => Kind::Resource,
        "template" => Kind::Template,
        _ => Kind::Tool,
    };
    let (folder, origin) = match &api.spec {
        Document::File { path, .. } => (path.parent().map(std::path::Path::to_owned), None),
        Document::Url(url) => (None, Some(url.clone())),
    };
    OpenApiSpec {
        prefix: api.prefix.clone(),
        include: api.include.clone(),
        exclude: api.exclude.clone(),
        kinds: api.becomes.iter().map(|(pattern, word)| (pattern.clone(), kind(word))).collect(),
        rename: api.rename.clone(),
        folder,
        origin,
    }
}

fn tool_of(operation: &Operation, act: Arc<dyn Act>, bounds: &Bounds) -> ToolSpec {
    let bounds = bounds.clone();
    let handler = move |given: Value, cx: Context| {
        let (act, bounds) = (Arc::clone(&act), bounds.clone());
        async move {
            let arguments = match given {
                Value::Object(arguments) => arguments,
                _ => Map::new(),
            };
            bounds.around(act.act(&cx, &arguments)).await
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
struct Nothing;

impl Act for Nothing {
    fn act<'a>(&'a self, _: &'a Context, _: &'a Map<String, Value>) -> crate::source::Acting<'a> {
        Box::pin(async { Err(toolgate::HandlerError::new("nothing is served here")) })
    }
}

/// Whether a server takes these tools. One that it does not take must not keep the others from being served.
fn trial<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Result<(), String> {
    let mut builder = Server::new("trial", "1");
    for operation in operations {
        builder = builder.add_tool(tool_of(operation, Arc::new(Nothing), &Bounds::default())).into_plain();
    }
    builder.build().map(drop).map_err(|error| error.to_string())
}

fn are_sound<'a>(operations: impl Iterator<Item = &'a Operation>) -> bool {
    trial(operations).is_ok()
}

/// The variables of an address, by the schema of all arguments.
fn arguments(schema: &Value) -> Arguments {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|known| known == name));
    let argument = |(name, schema): (&String, &Value)| Argument {
        name: name.clone(),
        schema: schema.clone(),
        default: None,
        is_required: is_required(name),
        from: None,
        clean: None,
    };
    let list = schema["properties"].as_object().into_iter().flatten().map(argument).collect();
    Arguments { list }
}
