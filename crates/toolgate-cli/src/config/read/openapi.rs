//! Reads APIs that are imported from OpenAPI documents.

use super::ConfigReader;
use crate::config::connection::UpstreamAuth;
use crate::config::items::{OpenApi, OpenApiSource};
use crate::config::tree::{Node, TableEntry};

impl ConfigReader<'_> {
    pub(super) fn openapi(&mut self, entry: &TableEntry) -> Option<OpenApi> {
        let node = &entry.node;
        let spec = node.get("spec").and_then(|spec| self.openapi_source(spec));
        let connection = self.connection_name(node, &["http"]);
        if connection.is_none() && node.get("on").is_some() {
            return None;
        }
        let (spec, base) = (spec?, node.text("base"));
        if connection.is_some() && base.is_some() {
            self.diagnostics.report(
                node.span_at("base"),
                "`base` and `on` cannot be used together; the connection has a base",
            );
        }
        if let (OpenApiSource::File { .. }, Some(refresh)) = (&spec, node.get("refresh")) {
            self.diagnostics.report(
                refresh.span,
                "`refresh` can only be used with a URL; a file is reloaded when it changes",
            );
        }
        let auth = node.get("auth").cloned().unwrap_or_else(Node::empty);
        let forward = auth.texts("forward");
        Some(OpenApi {
            name: entry.key.clone(),
            spec,
            connection,
            base,
            refresh: node.duration("refresh"),
            prefix: node.text("prefix").unwrap_or_default(),
            include: node.texts("include"),
            exclude: node.texts("exclude"),
            kinds: node.text_pairs("as"),
            rename: node.text_pairs("rename"),
            auth: match forward.as_slice() {
                [] => None,
                [name] if name == "principal" => Some(UpstreamAuth::Forward),
                _ => Some(UpstreamAuth::Headers(forward)),
            },
            headers: auth.text_pairs("headers"),
            node: node.clone(),
        })
    }

    fn openapi_source(&mut self, node: &Node) -> Option<OpenApiSource> {
        let spec = node.as_text()?;
        if spec.starts_with("http://") || spec.starts_with("https://") {
            return Some(OpenApiSource::Url(spec.to_owned()));
        }
        let (path, text) = self.read_text(node)?;
        self.extra_files.push((path.clone(), text.clone()));
        Some(OpenApiSource::File { path, text })
    }
}
