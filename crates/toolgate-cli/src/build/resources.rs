//! Builds resources and templates, and reads them for prompts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::model::ResourceContents;
use toolgate::uri_template::UriTemplate;
use toolgate::{Builder, Context, HandlerError, Profile, ResourceSpec, TemplateSpec};
use toolgate_sources::source::ToolBackend;
use toolgate_sources::source::files::{Files, ListedFile};
use toolgate_sources::source::prompt::{self, ResourceFuture};

use super::ServerBuild;
use super::argument_resolver::ArgumentResolver;
use crate::config::{self, Arguments};

impl ServerBuild<'_> {
    /// Adds a resource, or the files of a folder. Problems are reported, and the builder is returned unchanged.
    pub(super) fn add_resource(
        &mut self,
        resource: &config::Resource,
        builder: Builder,
        resources: &mut ServerResources,
    ) -> Builder {
        match &resource.kind {
            config::ResourceKind::Backend(backend) => {
                let backend =
                    self.build_backend(backend, &resource.arguments, &resource.output, &resource.node);
                let Some(backend) = backend else { return builder };
                let reader =
                    Arc::new(BackendReader::new(backend, &resource.arguments, resource.mime.clone()));
                resources.resources.insert(resource.uri.clone(), Arc::clone(&reader));
                let mut spec = backend_resource(&resource.uri, &resource.name, reader);
                if let Some(title) = &resource.title {
                    spec = spec.title(title);
                }
                if let Some(description) = &resource.description {
                    spec = spec.describe(description);
                }
                if let Some(mime) = &resource.mime {
                    spec = spec.mime(mime);
                }
                builder.add_resource(spec).done()
            }
            config::ResourceKind::Files { spec, watch } => match Files::new((**spec).clone()) {
                Ok(files) => {
                    let files = Arc::new(files);
                    resources.files.push(Arc::clone(&files));
                    if *watch {
                        self.watched_folders.push(Arc::clone(&files));
                    }
                    add_files(resource, &files, builder)
                }
                Err(problems) => {
                    let key = if resource.node.get("files").is_some() { "files" } else { "file" };
                    self.report_problems(&resource.node, key, problems);
                    builder
                }
            },
        }
    }

    /// Returns `None` after reporting why the template cannot be built.
    pub(super) fn template_spec(
        &mut self,
        template: &config::ResourceTemplate,
        resources: &mut ServerResources,
    ) -> Option<TemplateSpec> {
        let backend =
            self.build_backend(&template.backend, &template.arguments, &template.output, &template.node)?;
        let reader = Arc::new(BackendReader::new(backend, &template.arguments, template.mime.clone()));
        resources.add_template(&template.uri, &reader);
        let mut spec = backend_template(&template.uri, &template.name, reader);
        if let Some(title) = &template.title {
            spec = spec.title(title);
        }
        if let Some(description) = &template.description {
            spec = spec.describe(description);
        }
        if let Some(mime) = &template.mime {
            spec = spec.mime(mime);
        }
        for completion in &template.completions {
            let complete = self.completion_fn(completion)?;
            spec = spec.complete(&completion.name, move |prefix, cx| complete(prefix, cx));
        }
        Some(spec)
    }
}

/// Adds the listed files as resources, and a template for those that are not listed.
fn add_files(resource: &config::Resource, files: &Arc<Files>, mut builder: Builder) -> Builder {
    for listed in files.refresh() {
        builder = builder.add_resource(file_resource(files, &listed)).done();
    }
    let Some(template) = files.uri_template() else { return builder };
    let files = Arc::clone(files);
    let mut spec = TemplateSpec::new(&template, move |mut texts: TextArguments| {
        Arc::clone(&files).read(texts.0.remove("path").unwrap_or_default())
    })
    .name(&resource.name);
    if let Some(title) = &resource.title {
        spec = spec.title(title);
    }
    if let Some(description) = &resource.description {
        spec = spec.describe(description);
    }
    builder.add_template(spec).done()
}

/// The resource of one file of a folder.
pub(crate) fn file_resource(files: &Arc<Files>, listed: &ListedFile) -> ResourceSpec {
    let (files, path) = (Arc::clone(files), listed.path.clone());
    let spec = ResourceSpec::new(&listed.uri, move || Arc::clone(&files).read(path.clone()))
        .name(toolgate_sources::source::files::escape_display_name(&listed.path))
        .size(listed.size);
    match &listed.mime {
        Some(mime) => spec.mime(mime),
        None => spec,
    }
}

/// A resource whose text is the output of a backend.
pub(super) fn backend_resource(uri: &str, name: &str, reader: Arc<BackendReader>) -> ResourceSpec {
    ResourceSpec::new(uri, move |cx: Context| {
        let reader = Arc::clone(&reader);
        async move { reader.read(&cx, Vec::new()).await }
    })
    .name(name)
}

/// A template whose texts are the output of a backend.
pub(super) fn backend_template(uri: &str, name: &str, reader: Arc<BackendReader>) -> TemplateSpec {
    TemplateSpec::new(uri, move |texts: TextArguments, cx: Context| {
        let reader = Arc::clone(&reader);
        async move { reader.read(&cx, texts.into_pairs()).await }
    })
    .name(name)
}

/// Text arguments by name: the variables of a URI, or the arguments of a prompt.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct TextArguments(pub(super) BTreeMap<String, String>);

impl TextArguments {
    pub(super) fn into_pairs(self) -> Vec<(String, String)> {
        self.0.into_iter().collect()
    }
}

/// Reads the output of a backend as a resource.
pub(super) struct BackendReader {
    backend: Arc<dyn ToolBackend>,
    resolver: ArgumentResolver,
    mime: Option<String>,
}

impl BackendReader {
    pub(super) fn new(
        backend: Arc<dyn ToolBackend>,
        arguments: &Arguments,
        mime: Option<String>,
    ) -> BackendReader {
        BackendReader { backend, resolver: ArgumentResolver::for_text_arguments(arguments), mime }
    }

    /// Returns `None` if the variables are invalid or identify no resource.
    pub(super) async fn read(
        &self,
        cx: &Context,
        variables: Vec<(String, String)>,
    ) -> Result<Option<String>, HandlerError> {
        let Ok(arguments) = self.resolver.coerce_texts(variables) else {
            return Ok(None);
        };
        let arguments = self.resolver.resolve(arguments, cx)?;
        let Some(output) = self.backend.read(cx, &arguments).await? else {
            return Ok(None);
        };
        let texts: Vec<&str> = output.content.iter().filter_map(|content| content.as_text()).collect();
        let text = texts.join("\n");
        if output.is_error { Err(HandlerError::new(text)) } else { Ok(Some(text)) }
    }
}

/// The resources of a server, for prompts that embed them.
#[derive(Default)]
pub(super) struct ServerResources {
    pub(super) resources: HashMap<String, Arc<BackendReader>>,
    pub(super) templates: Vec<(UriTemplate, Arc<BackendReader>)>,
    pub(super) files: Vec<Arc<Files>>,
    /// The profile of the server, which applies to every caller.
    pub(super) profile: Option<Profile>,
}

impl ServerResources {
    pub(super) fn add_template(&mut self, uri: &str, reader: &Arc<BackendReader>) {
        // An invalid template is reported when the server is built.
        if let Ok(pattern) = UriTemplate::parse(uri) {
            self.templates.push((pattern, Arc::clone(reader)));
        }
    }

    async fn find(&self, cx: &Context, uri: &str) -> Result<Option<ResourceContents>, HandlerError> {
        let contents = |reader: &BackendReader, text: Option<String>| {
            let contents = text.map(|text| ResourceContents::text(uri, text));
            match &reader.mime {
                Some(mime) => contents.map(|contents| contents.with_mime(mime)),
                None => contents,
            }
        };
        if let Some(reader) = self.resources.get(uri) {
            return Ok(contents(reader, reader.read(cx, Vec::new()).await?));
        }
        for files in &self.files {
            if let Some(path) = files.path_for_uri(uri) {
                return Arc::clone(files).read(path).await;
            }
        }
        for (pattern, reader) in &self.templates {
            if let Some(variables) = pattern.match_uri(uri) {
                return Ok(contents(reader, reader.read(cx, variables).await?));
            }
        }
        Ok(None)
    }
}

impl prompt::ResourceProvider for ServerResources {
    fn read<'a>(&'a self, cx: &'a Context, uri: &'a str) -> ResourceFuture<'a> {
        Box::pin(async move {
            let not_found = || HandlerError::new(format!("there is no resource `{uri}`"));
            // A prompt must not show a resource that the caller cannot read.
            let profiles = [self.profile.as_ref(), cx.principal().profile()];
            if !profiles.into_iter().flatten().all(|profile| profile.allows_resource(uri)) {
                return Err(not_found());
            }
            self.find(cx, uri).await?.map(|contents| vec![contents]).ok_or_else(not_found)
        })
    }
}
