//! Records requests and events of all servers, without values that callers chose.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde_json::{Value, json};
use toolgate::events::{ErrorCode, RequestInfo, ResponseEvent};
use toolgate::uri_template::UriTemplate;
use toolgate::{Server, Servers};

use crate::clock::{format_iso8601, unix_millis};
use crate::observe::{collectors, truncate};
use crate::sync::lock;

/// Maximum number of events in the buffer.
const MAX_EVENTS: usize = 200;

/// Longer URIs are not matched against templates.
const MAX_MATCHED_URI_BYTES: usize = 8 << 10;

/// Records a response of any server.
pub(super) fn record_response(servers: &Servers, response: &ResponseEvent) {
    let (request, duration) = (response.request(), response.time());
    let (method, subject) =
        (truncate(request.method()), redacted_subject(servers, request).unwrap_or_default());
    let error = response.error_code().map(|code| match code {
        ErrorCode::Number(number) => number.to_string(),
        code => truncate(&code.to_string()),
    });
    let collectors = collectors();
    let is_ok = error.is_none();
    collectors.requests.record(duration, is_ok, |captures| {
        json!({
            "server": request.server(),
            "method": method,
            "subject": subject,
            "transport": request.transport().as_str(),
            "status": response.status(),
            "outcome": response.outcome().as_str(),
            "error": error,
            "principal": request.principal().id().map(truncate),
            "remote": captures.then(|| request.remote().map(|remote| remote.to_string())).flatten(),
        })
    });
    collectors.routes.record(&method, request.server(), &subject, duration, error);
}

/// The subject of a request, without values that the caller chose.
pub(super) fn redacted_subject(servers: &Servers, request: &RequestInfo) -> Option<String> {
    let subject = request.subject()?;
    if !request.method().starts_with("resources/") {
        return Some(truncate(&subject));
    }
    Some(redact_uri(servers.get(request.server()).as_ref(), &subject))
}

/// Redacts a URI: a listed resource stays, a URI that matches a template becomes the template, and any other URI is
/// reduced to its scheme.
pub(crate) fn redact_uri(server: Option<&Server>, uri: &str) -> String {
    if let Some(server) = server.filter(|_| uri.len() <= MAX_MATCHED_URI_BYTES) {
        if server.has_resource(uri) {
            return truncate(uri.split(['?', '#']).next().unwrap_or_default());
        }
        let templates = server.templates();
        let matches_template =
            |text: &str| UriTemplate::parse(text).is_ok_and(|template| template.match_uri(uri).is_some());
        if let Some(template) = templates.iter().find(|template| matches_template(&template.uri_template)) {
            return truncate(&template.uri_template);
        }
    }
    let is_scheme = |text: &&str| {
        text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    match uri.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme) {
        Some(scheme) => format!("{scheme}://…"),
        None => "…".to_owned(),
    }
}

pub(super) fn push_event(events: &Mutex<VecDeque<Value>>, name: &str, server: &str, data: &Value) {
    let mut events = lock(events);
    // When the buffer is full, the oldest event is dropped.
    while events.len() >= MAX_EVENTS {
        events.pop_front();
    }
    events.push_back(
        json!({ "at": format_iso8601(unix_millis()), "event": name, "server": server, "data": data }),
    );
}
