//! Reads a description, connects to its API and builds the items.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use toolgate::Item;

use super::resource::operation_resource;
use super::{DocumentLocation, LoadedApi, OpenApi};
use crate::error::{SourceError, SourceErrorKind, SourceProblem, setting_problems};
use crate::source::ToolBackend;
use crate::source::egress::{EgressError, EgressGuard};
use crate::source::http::{HttpBackend, HttpClient, HttpClientSpec, OutboundContext};
use crate::source::openapi::{
    ImportedApi, MAX_DOCUMENT_BYTES, OpenApiSpec, Operation, OperationKind, SkippedOperation, import,
    validate_tools,
};

pub(super) async fn load(api: &OpenApi) -> Result<LoadedApi, SourceError> {
    let egress = EgressGuard::new(&api.egress).map_err(invalid_settings)?;
    let outbound = OutboundContext::new(egress);
    let text = document_text(api, &outbound).await?;
    let (folder, source_url) = match &api.document {
        DocumentLocation::Text(_) => (None, None),
        DocumentLocation::File(path) => (Some(folder_of(path)), None),
        DocumentLocation::Url(url) => (None, Some(url.clone())),
    };
    let spec = OpenApiSpec { folder, source_url, ..api.spec.clone() };
    let imported = tokio::task::spawn_blocking(move || import(&text, &spec)).await;
    let imported = match imported {
        Ok(imported) => imported.map_err(|problems| import_error(&api.document, problems))?,
        Err(error) => {
            let message = "reading the document was interrupted";
            return Err(
                SourceError::new(SourceErrorKind::InvalidDocument, "document", message).with_source(error)
            );
        }
    };
    let base_url = base_url(api, &imported)?;
    let client = connect(&HttpClientSpec { base_url, ..api.client.clone() }, &outbound).await?;
    build_items(imported, &client, &api.uri_scheme)
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

async fn document_text(api: &OpenApi, outbound: &Arc<OutboundContext>) -> Result<String, SourceError> {
    match &api.document {
        DocumentLocation::Text(text) => Ok(text.clone()),
        DocumentLocation::File(path) => {
            let file = path.clone();
            let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file)).await;
            read.unwrap_or_else(|error| Err(error.into())).map_err(|error| {
                let message = format!("cannot read the document: {error}");
                SourceError::new(SourceErrorKind::Unavailable, path.display().to_string(), message)
                    .with_source(error)
            })
        }
        DocumentLocation::Url(url) => {
            let base_url =
                if api.client.base_url.is_empty() { origin_of(url)? } else { api.client.base_url.clone() };
            let spec = HttpClientSpec { base_url, ..api.client.clone() };
            check_private(url, outbound, "from_url").await?;
            let client = connect(&spec, outbound).await?;
            let unavailable = |message: &str| {
                SourceError::new(SourceErrorKind::Unavailable, url_without_query(url), message)
            };
            match client.fetch(url, None, MAX_DOCUMENT_BYTES).await {
                Ok(Some(document)) => Ok(document.text),
                Ok(None) => Err(unavailable("the server sent no document")),
                Err(message) => Err(unavailable(&message)),
            }
        }
    }
}

/// The base URL that is set. Without one, the server of a description from a URL is used if it has the origin of that
/// URL: the author chose that host.
fn base_url(api: &OpenApi, imported: &ImportedApi) -> Result<String, SourceError> {
    if !api.client.base_url.is_empty() {
        return Ok(api.client.base_url.clone());
    }
    if let DocumentLocation::Url(url) = &api.document {
        let origin = origin_of(url)?;
        match &imported.server_url {
            None => return Ok(origin),
            Some(server) if origin_of(server).is_ok_and(|own| own.eq_ignore_ascii_case(&origin)) => {
                return Ok(server.clone());
            }
            Some(_) => {}
        }
    }
    let message = match &imported.server_url {
        Some(server) => format!(
            "not set; the document names {server:?}, which is not used unless you confirm it: call `.base_url({server:?})`"
        ),
        None => "not set; call `.base_url(\"https://api.example.com\")`".to_owned(),
    };
    Err(SourceError::new(SourceErrorKind::InvalidSetting, "base_url", message))
}

/// Scheme and authority of a URL.
fn origin_of(url: &str) -> Result<String, SourceError> {
    let uri = Uri::try_from(url).ok();
    let origin = uri.as_ref().and_then(|uri| Some(format!("{}://{}", uri.scheme()?, uri.authority()?)));
    origin.ok_or_else(|| {
        let message = format!(
            "`{}` is not an absolute URL such as `https://api.example.com/openapi.json`",
            url_without_query(url)
        );
        SourceError::new(SourceErrorKind::InvalidSetting, "from_url", message)
    })
}

pub(super) fn url_without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

async fn connect(
    spec: &HttpClientSpec,
    outbound: &Arc<OutboundContext>,
) -> Result<Arc<HttpClient>, SourceError> {
    check_private(&spec.base_url, outbound, "base_url").await?;
    HttpClient::new(spec, outbound).map_err(invalid_settings)
}

/// Rejects private addresses before the first request, with the call that allows them. Names other than `localhost` are
/// only resolved by requests, which check them too.
async fn check_private(url: &str, outbound: &OutboundContext, method: &str) -> Result<(), SourceError> {
    let Ok(uri) = Uri::try_from(url) else { return Ok(()) };
    let Some(host) = uri.host() else { return Ok(()) };
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let is_rejected = outbound.egress.rejects_literal(host, port)
        || (host.eq_ignore_ascii_case("localhost")
            && outbound.egress.resolve(host, port).await == Err(EgressError::AddressNotAllowed));
    if !is_rejected {
        return Ok(());
    }
    let message =
        format!("{host}:{port} is a private address; to allow it, call `.allow_host(\"{host}:{port}\")`");
    Err(SourceError::new(SourceErrorKind::InvalidSetting, method, message))
}

fn invalid_settings(problems: Vec<crate::source::Problem>) -> SourceError {
    let method_of = |path: &str| match path.split('.').next().unwrap_or_default() {
        "http" => "base_url".to_owned(),
        "allow" => "allow_host".to_owned(),
        "headers" => path.replacen("headers.", "header ", 1),
        "auth" => "forward_headers".to_owned(),
        "ca" => "ca_certificates".to_owned(),
        other => other.to_owned(),
    };
    SourceError::from_problems(SourceErrorKind::InvalidSetting, setting_problems(problems, method_of))
}

/// Problems of the document itself have the path `spec`, those of patterns and names the name of their setting.
fn import_error(document: &DocumentLocation, problems: Vec<crate::source::Problem>) -> SourceError {
    let is_document = problems.iter().any(|problem| problem.path == "spec");
    let kind = if is_document { SourceErrorKind::InvalidDocument } else { SourceErrorKind::InvalidSetting };
    let subject = match document {
        DocumentLocation::Text(_) => "document".to_owned(),
        DocumentLocation::File(path) => path.display().to_string(),
        DocumentLocation::Url(url) => url_without_query(url).to_owned(),
    };
    let method_of = |path: &str| match path {
        "spec" => subject.clone(),
        "as" => "resources".to_owned(),
        other => other.to_owned(),
    };
    SourceError::from_problems(kind, setting_problems(problems, method_of))
}

fn build_items(
    imported: ImportedApi,
    client: &Arc<HttpClient>,
    uri_scheme: &str,
) -> Result<LoadedApi, SourceError> {
    let ImportedApi { title, version, operations, mut skipped, .. } = imported;
    let tools = operations.iter().filter(|operation| operation.kind == OperationKind::Tool);
    // Tools are only checked one by one if one of them is invalid.
    let are_valid = validate_tools(tools).is_ok();
    let mut items = Vec::new();
    for operation in operations {
        let route = operation.route.clone();
        match build_item(operation, client, uri_scheme, are_valid) {
            Ok(item) => items.push(item),
            Err(reason) => skipped.push(SkippedOperation { subject: route, reason }),
        }
    }
    if items.is_empty() {
        let mut problems: Vec<SourceProblem> =
            skipped.into_iter().map(|skipped| SourceProblem::new(skipped.subject, skipped.reason)).collect();
        let message =
            "no operation can be served; check the document and the patterns of `include` and `exclude`";
        problems.insert(0, SourceProblem::new("document", message));
        return Err(SourceError::from_problems(SourceErrorKind::InvalidDocument, problems));
    }
    Ok(LoadedApi { title, version, items, skipped })
}

fn build_item(
    operation: Operation,
    client: &Arc<HttpClient>,
    uri_scheme: &str,
    is_valid_tool: bool,
) -> Result<Item, String> {
    let backend = HttpBackend::new(operation.spec.clone(), Arc::clone(client), &operation.input_schema);
    let backend: Arc<dyn ToolBackend> = Arc::new(backend.map_err(|problems| {
        let messages: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        messages.join("; ")
    })?);
    if operation.kind != OperationKind::Tool {
        return Ok(operation_resource(operation, backend, uri_scheme));
    }
    if !is_valid_tool {
        validate_tools([&operation])?;
    }
    Ok(operation.tool_spec(backend).into())
}
