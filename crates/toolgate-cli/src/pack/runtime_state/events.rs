//! Records requests and events of all servers, without what callers chose.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde_json::{Value, json};
use toolgate::events::{ErrorCode, RequestInfo, ResponseEvent};
use toolgate::uri_template::UriTemplate;
use toolgate::{Server, Servers};

use crate::clock::{format_iso8601, unix_millis};
use crate::observe::{collectors, truncate};
use crate::sync::lock;

/// How many events are kept.
const MAX_EVENTS: usize = 200;

/// The longest URI for which somebody looks which template it is of.
const MAX_MATCHED_URI_BYTES: usize = 8 << 10;

/// An answer is about to be sent: by any server.
pub(super) fn record_response(servers: &Servers, answer: &ResponseEvent) {
    let (request, took) = (answer.request(), answer.time());
    let (method, subject) =
        (truncate(request.method()), redacted_subject(servers, request).unwrap_or_default());
    let error = answer.error_code().map(|code| match code {
        ErrorCode::Number(number) => number.to_string(),
        code => truncate(&code.to_string()),
    });
    let collectors = collectors();
    let is_good = error.is_none();
    collectors.requests.record(took, is_good, |captures| {
        json!({
            "server": request.server(),
            "method": method,
            "subject": subject,
            "transport": request.transport().as_str(),
            "status": answer.status(),
            "error": error,
            "principal": request.principal().id().map(truncate),
            "remote": captures.then(|| request.remote().map(|remote| remote.to_string())).flatten(),
        })
    });
    collectors.routes.record(&method, request.server(), &subject, took, error);
}

/// What a request is about, without what its caller put there.
pub(super) fn redacted_subject(servers: &Servers, request: &RequestInfo) -> Option<String> {
    let subject = request.subject()?;
    if !request.method().starts_with("resources/") {
        return Some(truncate(&subject));
    }
    Some(redact_uri(servers.get(request.server()).as_ref(), &subject))
}

/// What a URI is like: one that is listed is itself, one of a template is the template. Of others only the scheme is
/// told; what follows it may be anything.
pub(crate) fn redact_uri(server: Option<&Server>, uri: &str) -> String {
    if let Some(server) = server.filter(|_| uri.len() <= MAX_MATCHED_URI_BYTES) {
        if server.has_resource(uri) {
            return truncate(uri.split(['?', '#']).next().unwrap_or_default());
        }
        let templates = server.templates();
        let is_its = |text: &str| UriTemplate::parse(text).is_ok_and(|known| known.match_uri(uri).is_some());
        if let Some(known) = templates.iter().find(|known| is_its(&known.uri_template)) {
            return truncate(&known.uri_template);
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

pub(super) fn push_event(events: &Mutex<VecDeque<Value>>, name: &str, server: &str, about: &Value) {
    let mut events = lock(events);
    // When it is full, the oldest goes.
    while events.len() >= MAX_EVENTS {
        events.pop_front();
    }
    events.push_back(
        json!({ "at": format_iso8601(unix_millis()), "event": name, "server": server, "data": about }),
    );
}
