//! Everything of a server that can be read, for those inside: prompts show resources.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::model::ResourceContents;
use toolgate::uri_template::UriTemplate;
use toolgate::{Context, HandlerError, Profile};

use super::argument_resolver::ArgumentResolver;
use crate::config::Arguments;
use crate::source::ToolBackend;
use crate::source::files::Files;
use crate::source::prompt::{self, ResourceFuture};

/// Names and texts: the variables of a URI, or the arguments of a prompt.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct TextArguments(pub(super) BTreeMap<String, String>);

impl TextArguments {
    pub(super) fn into_pairs(self) -> Vec<(String, String)> {
        self.0.into_iter().collect()
    }
}

/// Something that acts, read as a resource.
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

    /// Its text. None if the variables name nothing.
    pub(super) async fn read(
        &self,
        cx: &Context,
        words: Vec<(String, String)>,
    ) -> Result<Option<String>, HandlerError> {
        let Ok(given) = self.resolver.coerce_texts(words) else {
            return Ok(None);
        };
        let arguments = self.resolver.resolve(given, cx)?;
        let Some(output) = self.backend.read(cx, &arguments).await? else {
            return Ok(None);
        };
        let texts: Vec<&str> = output.content.iter().filter_map(|content| content.as_text()).collect();
        let text = texts.join("\n");
        if output.is_error { Err(HandlerError::new(text)) } else { Ok(Some(text)) }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct ServerResources {
    pub(super) resources: HashMap<String, Arc<BackendReader>>,
    pub(super) templates: Vec<(UriTemplate, Arc<BackendReader>)>,
    pub(super) files: Vec<Arc<Files>>,
    /// What anybody may see.
    pub(super) profile: Option<Profile>,
}

impl ServerResources {
    pub(super) fn add_template(&mut self, uri: &str, reader: &Arc<BackendReader>) {
        // What is no template is told when the server is built.
        if let Ok(pattern) = UriTemplate::parse(uri) {
            self.templates.push((pattern, Arc::clone(reader)));
        }
    }

    async fn find(&self, cx: &Context, uri: &str) -> Result<Option<ResourceContents>, HandlerError> {
        let own = |reader: &BackendReader, text: Option<String>| {
            let contents = text.map(|text| ResourceContents::text(uri, text));
            match &reader.mime {
                Some(mime) => contents.map(|contents| contents.with_mime(mime)),
                None => contents,
            }
        };
        if let Some(reader) = self.resources.get(uri) {
            return Ok(own(reader, reader.read(cx, Vec::new()).await?));
        }
        for files in &self.files {
            if let Some(path) = files.path_for_uri(uri) {
                return Arc::clone(files).read(path).await;
            }
        }
        for (pattern, reader) in &self.templates {
            if let Some(words) = pattern.match_uri(uri) {
                return Ok(own(reader, reader.read(cx, words).await?));
            }
        }
        Ok(None)
    }
}

impl prompt::ResourceProvider for ServerResources {
    fn read<'a>(&'a self, cx: &'a Context, uri: &'a str) -> ResourceFuture<'a> {
        Box::pin(async move {
            let nothing = || HandlerError::new(format!("there is no resource `{uri}`"));
            // What a caller may not read is not shown by a prompt either.
            let profiles = [self.profile.as_ref(), cx.principal().profile()];
            if !profiles.into_iter().flatten().all(|profile| profile.allows_resource(uri)) {
                return Err(nothing());
            }
            self.find(cx, uri).await?.map(|contents| vec![contents]).ok_or_else(nothing)
        })
    }
}
