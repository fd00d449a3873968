//! One request with holes: filled, sent, tried again if that is safe, and its answer shaped.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError, RawJson};

use super::body::{BodyTemplate, FieldTemplate};
use super::client::{HttpClient, OutgoingRequest, RequestError, parse_header, validate_auth};
use super::encode::{
    Serialization, encode_header_value, encode_path_value, percent_encode, validate_header_value,
};
use super::jq::JqFilter;
use super::response::{BACKEND_KEY, BackendResponse, BodyKind, PAGING_KEY, error_output, retry_after};
use super::template::{BraceSyntax, StringTemplate, TemplatePart, get_argument, value_text};
use super::{ErrorExposure, Expect, Field, HttpSpec, OnExceed, Paging, PathStyle};
use crate::clock::Stopwatch;
use crate::observe::{self, truncate};
use crate::source::{BackendFuture, BackendReadFuture, Problem, ToolBackend};

/// The longest address that is sent.
const MAX_URL_BYTES: usize = 8 * 1024;

/// A tool that is a request.
pub(crate) struct HttpBackend {
    connection: Arc<HttpClient>,
    template: RequestTemplate,
    spec: HttpSpec,
    permits: Semaphore,
    /// Calls that wait for a seat.
    n_queued: AtomicUsize,
}

/// A description, taken apart.
struct RequestTemplate {
    method: Method,
    target: RequestTarget,
    query: Vec<FieldTemplate>,
    headers: Vec<FieldTemplate>,
    cookies: Vec<FieldTemplate>,
    body: BodyTemplate,
    pick: Option<JqFilter>,
}

enum RequestTarget {
    /// Segments below the base.
    Path(Vec<StringTemplate>),
    /// An argument that is a whole address.
    Url(String),
}

impl HttpBackend {
    /// A tool, or everything that is wrong with its description. `arguments` is the JSON Schema of all arguments, also
    /// of those that a caller does not see.
    pub(crate) fn new(
        spec: HttpSpec,
        connection: Arc<HttpClient>,
        arguments: &Value,
    ) -> Result<HttpBackend, Vec<Problem>> {
        let parts = RequestTemplate::new(&spec, arguments)?;
        let (seats, waiting) = (Semaphore::new(spec.concurrency), AtomicUsize::new(0));
        Ok(HttpBackend { connection, template: parts, spec, permits: seats, n_queued: waiting })
    }

    /// Everything that is wrong with a description, whatever it is connected to.
    pub(crate) fn validate(spec: &HttpSpec, arguments: &Value) -> Vec<Problem> {
        RequestTemplate::new(spec, arguments).err().unwrap_or_default()
    }

    async fn call(&self, cx: &Context, arguments: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        let outgoing = self.build_request(cx, arguments)?;
        if !observe::is_enabled() {
            return self.call_with_timeout(cx, &outgoing).await;
        }
        let watch = Stopwatch::start();
        let output = self.call_with_timeout(cx, &outgoing).await;
        let is_good = output.as_ref().is_ok_and(|output| !output.is_error);
        observe::collectors().http.record(watch.elapsed(), is_good, |_| {
            // Nothing that arguments have put there: neither a path nor, where that is one, the host.
            let authority =
                outgoing.uri.authority().filter(|_| matches!(self.template.target, RequestTarget::Path(_)));
            json!({
                "method": outgoing.method.as_str(),
                "host": authority.map(|authority| authority.host().to_owned()),
                "path": truncate(&self.path_template()),
                "ok": is_good,
            })
        });
        output
    }

    /// Whether this argument is written somewhere where there is only text: anywhere but in a JSON body.
    pub(super) fn writes_as_text(&self, name: &str) -> bool {
        let RequestTemplate { target, query, headers, cookies, body, .. } = &self.template;
        let is_in = |template: &StringTemplate| template.argument_names().any(|known| known == name);
        let in_target = match target {
            RequestTarget::Path(segments) => segments.iter().any(is_in),
            RequestTarget::Url(argument) => argument == name,
        };
        let in_body = !matches!(body, BodyTemplate::Json { .. }) && body.argument_names().contains(&name);
        in_target || in_body || [query, headers, cookies].into_iter().flatten().any(|pair| is_in(&pair.value))
    }

    /// Where it goes, with names where arguments are.
    fn path_template(&self) -> String {
        let segments = match &self.template.target {
            RequestTarget::Path(segments) => segments,
            RequestTarget::Url(name) => return format!("{{{name}}}"),
        };
        let mut place = self.connection.path_prefix.clone();
        for segment in segments {
            place.push('/');
            for piece in &segment.0 {
                match piece {
                    TemplatePart::Text(text) => place.push_str(text),
                    TemplatePart::Argument(name) => drop(write!(place, "{{{name}}}")),
                }
            }
        }
        place
    }

    async fn call_with_timeout(
        &self,
        cx: &Context,
        outgoing: &OutgoingRequest,
    ) -> Result<ToolOutput, HandlerError> {
        let start = cx.time_left();
        let time = self.timeout().min(start);
        let Ok(called) = tokio::time::timeout(time, self.send_with_retries(cx, outgoing, start, time)).await
        else {
            return Ok(transport_error_output("the backend took too long", "timeout"));
        };
        let answer = match called? {
            Ok(answer) => answer,
            Err(failure) => {
                let is_unavailable = matches!(failure, RequestError::Unreachable(_));
                return Ok(ToolOutput {
                    is_unavailable,
                    ..transport_error_output(&failure.to_string(), failure.code())
                });
            }
        };
        let left = time.saturating_sub(start.saturating_sub(cx.time_left()));
        let mut output = self.to_output(answer, &outgoing.headers, left).await?;
        if self.spec.output_schema.is_some() && output.structured_content.is_none() && !output.is_error {
            output.structured_content = Some(RawJson::empty_object());
        }
        Ok(output)
    }

    fn timeout(&self) -> Duration {
        self.spec.timeout.map_or(self.connection.timeout, |own| own.min(self.connection.timeout))
    }

    fn response_limit(&self) -> usize {
        self.spec
            .response_limit
            .map_or(self.connection.response_limit, |own| own.min(self.connection.response_limit))
    }

    /// Every argument in its place.
    fn build_request(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
    ) -> Result<OutgoingRequest, HandlerError> {
        let uri = self.build_uri(arguments)?;
        let auth = self.spec.auth.as_ref().unwrap_or(&self.connection.auth);
        let mut headers = if self.connection.is_own_origin(&uri) {
            self.connection.request_headers(cx, auth).map_err(HandlerError::new)?
        } else {
            self.connection.anonymous_headers()
        };
        if self.spec.expect == Expect::Json {
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        }
        for pair in &self.template.headers {
            let text = match pair.value.sole_argument() {
                Some(name) => {
                    get_argument(arguments, name).map(|value| encode_header_value(value, pair.serialization))
                }
                None => pair.value.render(arguments),
            };
            if let Some(text) = text {
                let (name, value) = parse_header(&pair.name, &validate_header_value(&pair.name, text)?)
                    .map_err(HandlerError::new)?;
                headers.insert(name, value);
            }
        }
        if let Some(cookies) = self.build_cookie_header(arguments)? {
            headers.insert(COOKIE, cookies);
        }
        let body = match self.template.body.encode(arguments)? {
            Some((bytes, mime)) => {
                let mime = HeaderValue::try_from(mime)
                    .map_err(|_| HandlerError::new("invalid header value for `content-type`"))?;
                headers.insert(CONTENT_TYPE, mime);
                bytes
            }
            None => Bytes::new(),
        };
        Ok(OutgoingRequest { method: self.template.method.clone(), uri, headers, body })
    }

    fn build_uri(&self, arguments: &Map<String, Value>) -> Result<Uri, HandlerError> {
        let segments = match &self.template.target {
            RequestTarget::Url(name) => {
                let text = get_argument(arguments, name).map(value_text).unwrap_or_default();
                return self
                    .connection
                    .validate_url(&text)
                    .map_err(|failure| HandlerError::new(failure.to_string()));
            }
            RequestTarget::Path(segments) => segments,
        };
        let HttpClient { scheme, authority, path_prefix: prefix, query, .. } = &*self.connection;
        let mut address = format!("{scheme}://{authority}{prefix}");
        for segment in segments {
            address.push('/');
            address.push_str(&self.render_segment(segment, arguments)?);
        }
        let mut pairs = query.clone();
        FieldTemplate::render_all(&self.template.query, arguments, &mut pairs)?;
        if !pairs.is_empty() {
            address.push('?');
            address.push_str(&pairs.join("&"));
        }
        if address.len() > MAX_URL_BYTES {
            return Err(HandlerError::new("the arguments are too long for an address"));
        }
        match Uri::try_from(address) {
            // Cannot happen, and is checked all the same: arguments never choose whom we talk to.
            Ok(uri) if uri.authority() == Some(authority) && uri.scheme() == Some(scheme) => Ok(uri),
            _ => Err(HandlerError::new("the arguments do not make an address")),
        }
    }

    fn render_segment(
        &self,
        segment: &StringTemplate,
        arguments: &Map<String, Value>,
    ) -> Result<String, HandlerError> {
        let mut filled = String::new();
        for piece in &segment.0 {
            match piece {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Argument(name) => {
                    let value = get_argument(arguments, name).ok_or_else(|| {
                        HandlerError::new(format!("`{name}` is missing: it is part of a path"))
                    })?;
                    let style = self.spec.path_styles.iter().find(|style| style.argument == *name);
                    let (wire, serial) = style.map_or(
                        (name.as_str(), Serialization::SIMPLE),
                        |PathStyle { name, serialization: serial, .. }| (name, *serial),
                    );
                    filled.push_str(&encode_path_value(wire, value, serial)?);
                }
            }
        }
        if segment.literal().is_none() && matches!(filled.as_str(), "" | "." | "..") {
            return Err(HandlerError::new("the arguments do not make a path"));
        }
        Ok(filled)
    }

    fn build_cookie_header(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Option<HeaderValue>, HandlerError> {
        let filled = self.template.cookies.iter().filter_map(|pair| {
            let text = match pair.value.sole_argument() {
                Some(name) => encode_header_value(get_argument(arguments, name)?, pair.serialization),
                None => pair.value.render(arguments)?,
            };
            Some(format!("{}={}", percent_encode(&pair.name), percent_encode(&text)))
        });
        let joined = filled.collect::<Vec<_>>().join("; ");
        if joined.is_empty() {
            return Ok(None);
        }
        let mut value = HeaderValue::try_from(validate_header_value("cookie", joined)?)
            .map_err(|_| HandlerError::new("invalid header value for `cookie`"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// A seat among the calls of this tool. When all are taken and enough wait, one more is refused.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, HandlerError> {
        if let Ok(seat) = self.permits.try_acquire() {
            return Ok(seat);
        }
        let waiting = HttpQueueSlot::enter(&self.n_queued);
        if waiting.position >= self.spec.queue {
            return Err(HandlerError::new("busy: too many calls wait for this backend"));
        }
        self.permits.acquire().await.map_err(|_| HandlerError::new("busy"))
    }

    async fn send_with_retries(
        &self,
        cx: &Context,
        outgoing: &OutgoingRequest,
        start: Duration,
        time: Duration,
    ) -> Result<Result<BackendResponse, RequestError>, HandlerError> {
        let _seat = self.acquire_permit().await?;
        let retry = &self.connection.retry;
        let is_safe = self.spec.idempotent.unwrap_or_else(|| self.template.method.is_idempotent());
        let mut turn = 0;
        loop {
            let sent = self.connection.exchange(outgoing, self.response_limit()).await;
            let again = match &sent {
                Ok(answer) => is_safe && retry.statuses.contains(&answer.status.as_u16()),
                Err(RequestError::Unreachable(_)) => true,
                Err(RequestError::ConnectionLost) => is_safe,
                Err(_) => false,
            };
            let asked = sent.as_ref().ok().and_then(|answer| retry_after(&answer.headers));
            let wait = asked.unwrap_or_else(|| backoff(turn));
            let left = time.saturating_sub(start.saturating_sub(cx.time_left()));
            if !again || turn >= retry.max || wait >= left {
                return Ok(sent);
            }
            tokio::time::sleep(wait).await;
            turn += 1;
        }
    }

    /// An answer as the result of a tool.
    async fn to_output(
        &self,
        answer: BackendResponse,
        headers: &HeaderMap,
        left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        if !answer.status.is_success() {
            return Ok(self.failure_output(&answer, headers));
        }
        let paging = if self.spec.paging == Paging::Off { None } else { answer.paging() };
        let paging = paging.and_then(|paging| self.connection.mask_paging(paging, headers));
        let limit = self.response_limit();
        if answer.is_truncated && (self.spec.on_exceed == OnExceed::Error || self.template.pick.is_some()) {
            return Err(HandlerError::new(format!("the answer is larger than {limit} bytes; ask for less")));
        }
        if answer.body.is_empty() {
            return Ok(ToolOutput::text(status_text(answer.status)));
        }
        let kind = match (self.spec.expect, answer.kind()) {
            (Expect::Text, _) => BodyKind::Text,
            (_, BodyKind::Json) => BodyKind::Json,
            (Expect::Json, _) => return Err(HandlerError::new("the backend did not answer with JSON")),
            (Expect::Auto, _) if self.template.pick.is_some() => {
                return Err(HandlerError::new("the backend did not answer with JSON"));
            }
            (Expect::Auto, BodyKind::Html) => {
                return Err(HandlerError::new("the backend answered with a web page instead of data"));
            }
            (Expect::Auto, kind) => kind,
        };
        if !matches!(kind, BodyKind::Json | BodyKind::Text) {
            return Ok(answer.into_media());
        }
        let is_cut = answer.is_truncated;
        let text = match String::from_utf8(answer.body) {
            Ok(text) => text,
            Err(_) if kind == BodyKind::Json => {
                return Err(HandlerError::new("the answer is not valid JSON"));
            }
            Err(bytes) => String::from_utf8_lossy(bytes.as_bytes()).into_owned(),
        };
        let text = self.connection.mask_secrets(text, headers);
        if is_cut {
            return Ok(ToolOutput::text(format!("{text}\n… cut after {limit} bytes")));
        }
        if kind == BodyKind::Text {
            let promised = self.spec.output_schema.as_ref().map(|_| RawJson::from(json!({ "result": text })));
            return Ok(with_paging(
                ToolOutput { structured_content: promised, ..ToolOutput::text(text) },
                paging,
            ));
        }
        self.structured_output(text, paging, left).await
    }

    async fn structured_output(
        &self,
        text: String,
        paging: Option<Value>,
        left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        let broken = |_| HandlerError::new("the answer is not valid JSON");
        let value = match &self.template.pick {
            // jq nests without end, we do not.
            Some(pick) => {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(broken)?;
                pick.run(text, self.response_limit(), left).await?
            }
            None => serde_json::from_str(&text).map_err(broken)?,
        };
        match self.spec.paging {
            Paging::Result => {
                let value = json!({ "result": value, "paging": paging.unwrap_or_else(|| json!({})) });
                Ok(self.json_output(value))
            }
            Paging::Meta | Paging::Off => Ok(with_paging(self.json_output(value), paging)),
        }
    }

    /// Where an object was promised, anything else is wrapped in one: backends do not always keep their word.
    fn json_output(&self, value: Value) -> ToolOutput {
        let value = match (&self.template.pick, value) {
            // A text that was picked is what is to be read, not JSON.
            (Some(_), Value::String(text)) if self.spec.output_schema.is_none() => {
                return ToolOutput::text(text);
            }
            (_, value) => value,
        };
        let text = value.to_string();
        let structured = match value {
            value if self.spec.output_schema.is_some() && !value.is_object() => json!({ "result": value }),
            value => value,
        };
        ToolOutput { structured_content: Some(RawJson::from(structured)), ..ToolOutput::text(text) }
    }

    fn failure_output(&self, answer: &BackendResponse, headers: &HeaderMap) -> ToolOutput {
        let status = answer.status;
        if status.is_redirection() {
            return error_output(
                status,
                Some("the backend sends elsewhere, and redirects are not followed"),
                None,
            );
        }
        let (message, code) = match self.spec.errors {
            ErrorExposure::Status => (None, None),
            ErrorExposure::Auto if status.is_server_error() => (None, None),
            // Whether there is such a user is not told to who does not know the password.
            _ if status == StatusCode::UNAUTHORIZED && answer.reveals_wrong_credential() => {
                (Some("the backend does not accept these credentials".into()), None)
            }
            ErrorExposure::Auto | ErrorExposure::Message => answer.error_details(),
        };
        if status.is_server_error() {
            let said = answer.error_details().0.map(|said| self.connection.mask_secrets(said, headers));
            self.connection.log_failure(status.as_u16(), said.as_deref().unwrap_or_default());
        }
        let masked = |text: Option<String>| text.map(|text| self.connection.mask_secrets(text, headers));
        let is_unavailable = !self.spec.unavailable_codes.is_empty()
            && answer.error_details().1.is_some_and(|code| self.spec.unavailable_codes.contains(&code));
        let mut output = error_output(status, masked(message).as_deref(), masked(code).as_deref());
        if let Some(wait) = retry_after(&answer.headers)
            && let Some(first) = output.content.first().and_then(|content| content.as_text())
        {
            let text = format!("{first}; try again in {} s", wait.as_secs());
            output.content = vec![toolgate::model::Content::text(text)];
        }
        output.is_unavailable = is_unavailable;
        output
    }
}

impl RequestTemplate {
    fn new(spec: &HttpSpec, arguments: &Value) -> Result<RequestTemplate, Vec<Problem>> {
        let mut known = RequestValidator::new(arguments);
        let method = match Method::try_from(spec.method.to_ascii_uppercase().as_str()) {
            Ok(method)
                if ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]
                    .contains(&method.as_str()) =>
            {
                method
            }
            _ => {
                known.push_problem("method", format!("`{}` is no method that a tool can use", spec.method));
                Method::GET
            }
        };
        let mut query = Vec::new();
        let target = match &spec.url {
            Some(url) => known.parse_url(url),
            None => known.parse_path(&spec.path, &mut query),
        };
        query.extend(known.parse_fields("query", &spec.query));
        let headers = known.parse_fields("headers", &spec.headers);
        for pair in &headers {
            if let Err(said) = parse_header(&pair.name, pair.value.literal().unwrap_or_default()) {
                known.push_problem(&format!("headers.{}", pair.name), said);
            }
        }
        let cookies = known.parse_fields("cookies", &spec.cookies);
        let body = known.parse_body(spec, &method);
        let pick = spec.pick.as_deref().map(JqFilter::new).transpose().unwrap_or_else(|said| {
            known.push_problem("pick", said);
            None
        });
        if let Some(Err(said)) = spec.auth.as_ref().map(validate_auth) {
            known.push_problem("auth", said);
        }
        if spec.concurrency == 0 {
            known.push_problem("concurrency", "no call at a time is none at all".into());
        }
        if !known.problems.is_empty() {
            return Err(known.problems);
        }
        Ok(RequestTemplate { method, target, query, headers, cookies, body, pick })
    }
}

impl ToolBackend for HttpBackend {
    /// Cancel safe: yes, because dropping the call drops the request.
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(self.call(cx, arguments))
    }

    fn read<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendReadFuture<'a> {
        Box::pin(async move {
            let output = self.execute(cx, arguments).await?;
            let said = output.meta.as_ref().filter(|_| output.is_error).map(RawJson::to_value);
            let is_gone =
                said.is_some_and(|said| matches!(said[BACKEND_KEY]["status"].as_u64(), Some(404 | 410)));
            Ok((!is_gone).then_some(output))
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.spec.output_schema.clone()
    }
}

/// Counts a call while it waits, also when it is dropped.
struct HttpQueueSlot<'a> {
    count: &'a AtomicUsize,
    position: usize,
}

impl<'a> HttpQueueSlot<'a> {
    fn enter(count: &'a AtomicUsize) -> HttpQueueSlot<'a> {
        HttpQueueSlot { count, position: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for HttpQueueSlot<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Longer each time, and never for two at the same moment.
fn backoff(turn: u32) -> Duration {
    let most = Duration::from_millis(100).saturating_mul(1 << turn.min(6)).min(Duration::from_secs(5));
    let chance = u32::try_from(RandomState::new().hash_one(turn) % 512).unwrap_or_default();
    most * (512 + chance) / 1024
}

/// A failure without an answer: in words for people, and in one for programs.
fn transport_error_output(said: &str, word: &str) -> ToolOutput {
    let meta = json!({ BACKEND_KEY: { "failure": word } });
    ToolOutput { meta: Some(RawJson::from(meta)), ..ToolOutput::error(said) }
}

fn status_text(status: StatusCode) -> String {
    format!(
        "{}{}",
        status.as_u16(),
        status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default()
    )
}

fn with_paging(mut output: ToolOutput, paging: Option<Value>) -> ToolOutput {
    if let Some(paging) = paging {
        output.meta = Some(RawJson::from(json!({ PAGING_KEY: paging })));
    }
    output
}

/// What a description is checked against, and what was found.
struct RequestValidator<'a> {
    argument_names: Vec<&'a str>,
    /// Those that are always there.
    always_present: Vec<&'a str>,
    problems: Vec<Problem>,
}

impl<'a> RequestValidator<'a> {
    fn new(schema: &'a Value) -> RequestValidator<'a> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let mut always_present: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).collect();
        always_present.extend(
            properties
                .into_iter()
                .flatten()
                .filter(|(_, property)| property.get("default").is_some())
                .map(|(name, _)| name.as_str()),
        );
        let argument_names = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        RequestValidator { argument_names, always_present, problems: Vec::new() }
    }

    fn push_problem(&mut self, at: &str, said: String) {
        self.problems.push(Problem { path: at.into(), message: said });
    }

    fn check_arguments<'n>(&mut self, at: &str, used: impl IntoIterator<Item = &'n str>) {
        for name in used {
            if !self.argument_names.contains(&name) {
                let there = if self.argument_names.is_empty() {
                    "there are none".into()
                } else {
                    format!("there are: {}", self.argument_names.join(", "))
                };
                self.push_problem(at, format!("`{name}` is not among the arguments; {there}"));
            }
        }
    }

    fn parse_fields(&mut self, at: &str, fields: &[Field]) -> Vec<FieldTemplate> {
        let mut pairs = Vec::new();
        for field in fields {
            let at = format!("{at}.{}", field.name);
            match FieldTemplate::parse(field) {
                Ok(pair) => {
                    self.check_arguments(&at, pair.value.argument_names());
                    pairs.push(pair);
                }
                Err(said) => self.push_problem(&at, said),
            }
        }
        pairs
    }

    fn parse_url(&mut self, url: &str) -> RequestTarget {
        let template = StringTemplate::parse(url, BraceSyntax::Strict);
        let Some(name) = template.as_ref().ok().and_then(StringTemplate::sole_argument).map(str::to_owned)
        else {
            self.push_problem(
                "url",
                format!(
                    "`{url}` must be one argument, such as `{{url}}`; a fixed host belongs into a connection"
                ),
            );
            return RequestTarget::Url(String::new());
        };
        self.check_arguments("url", [name.as_str()]);
        RequestTarget::Url(name)
    }

    /// Segments of a path; what follows a question mark are fields of the query.
    fn parse_path(&mut self, text: &str, query: &mut Vec<FieldTemplate>) -> RequestTarget {
        let (path, rest) = text.split_once('?').map_or((text, None), |(path, rest)| (path, Some(rest)));
        if !path.starts_with('/') || text.contains('#') {
            self.push_problem("path", format!("`{text}` must start with `/` and have no `#`"));
            return RequestTarget::Path(Vec::new());
        }
        let mut segments = Vec::new();
        for segment in path.split('/').skip(1) {
            match StringTemplate::parse(segment, BraceSyntax::Strict) {
                Ok(template) => {
                    let uncertain: Vec<String> = template
                        .argument_names()
                        .filter(|name| {
                            self.argument_names.contains(name) && !self.always_present.contains(name)
                        })
                        .map(str::to_owned)
                        .collect();
                    for name in uncertain {
                        self.push_problem(
                            "path",
                            format!("`{name}` is part of the path, so it must be required or have a default"),
                        );
                    }
                    self.check_arguments("path", template.argument_names());
                    let is_text = template.0.iter().all(|piece| match piece {
                        TemplatePart::Text(text) => {
                            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte))
                        }
                        TemplatePart::Argument(_) => true,
                    });
                    if !is_text || matches!(template.literal(), Some("." | "..")) {
                        self.push_problem("path", format!("`{segment}` cannot be part of a path"));
                    }
                    segments.push(template);
                }
                Err(said) => self.push_problem("path", said),
            }
        }
        let pairs = rest.into_iter().flat_map(|rest| rest.split('&')).filter(|pair| !pair.is_empty());
        let fields: Vec<Field> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| Field::new(name, value))
            .collect();
        query.extend(self.parse_fields("path", &fields));
        RequestTarget::Path(segments)
    }

    fn parse_body(&mut self, spec: &HttpSpec, method: &Method) -> BodyTemplate {
        match BodyTemplate::parse(&spec.body) {
            Ok(body) => {
                self.check_arguments("body", body.argument_names());
                if !matches!(body, BodyTemplate::None) && (method == Method::GET || method == Method::HEAD) {
                    self.push_problem(
                        "body",
                        format!("a request with the method {method} has no body; use `query`"),
                    );
                }
                body
            }
            Err((at, said)) => {
                self.push_problem(&at, said);
                BodyTemplate::None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::egress::{EgressGuard, EgressSpec};
    use crate::source::http::{HttpClientSpec, OutboundContext, percent_decode};

    fn test_backend() -> HttpBackend {
        let outside = OutboundContext::new(EgressGuard::new(&EgressSpec::default()).unwrap());
        let base = "https://api.example.com:8443/base/v1".into();
        let query = vec![("key".into(), "k".into())];
        let connection = HttpClientSpec { base_url: base, query, ..HttpClientSpec::default() };
        let connection = HttpClient::new(&connection, &outside).unwrap();
        let spec = HttpSpec {
            path: "/items/{id}/x-{id}.json?q={q}".into(),
            query: vec![Field::new("list", "{list}"), Field::new("both", "{q}:{q}")],
            ..HttpSpec::default()
        };
        let schema = json!({ "properties": { "id": {}, "q": {}, "list": {} }, "required": ["id", "q"] });
        HttpBackend::new(spec, connection, &schema).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever arguments are, a request goes to the same host, has the same segments and the same fields, and each
        /// of them says exactly its argument.
        #[test]
        fn arguments_stay_in_their_places(
            id in prop_oneof![any::<String>(), "[./%\\\\a-c?#&=@:;{} ]{0,8}"],
            q in prop_oneof![any::<String>(), "[./%a-c?#&=+;{} ]{0,8}"],
            list in prop::collection::vec(any::<String>(), 0..3),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _inside = runtime.enter();
            let arguments = json!({ "id": id, "q": q, "list": list });
            let Ok(uri) = test_backend().build_uri(arguments.as_object().unwrap()) else {
                let is_step = |part: &str| part == "." || part == "..";
                let is_bad = id.is_empty() || id.chars().any(char::is_control) || id.split(['/', '\\']).any(is_step);
                prop_assert!(is_bad, "refused without a reason: {:?}", id);
                return Ok(());
            };
            prop_assert_eq!(uri.authority().unwrap().as_str(), "api.example.com:8443");
            let segments: Vec<String> = uri.path().split('/').map(percent_decode).collect();
            let tail = format!("x-{id}.json");
            prop_assert_eq!(segments, ["", "base", "v1", "items", id.as_str(), tail.as_str()]);
            let pairs: Vec<(String, String)> = uri.query().unwrap().split('&')
                .map(|pair| pair.split_once('=').unwrap())
                .map(|(name, value)| (percent_decode(name), percent_decode(value)))
                .collect();
            let mut wanted = vec![("key".to_owned(), "k".to_owned()), ("q".to_owned(), q.clone())];
            wanted.extend(list.iter().map(|item| ("list".to_owned(), item.clone())));
            wanted.push(("both".to_owned(), format!("{q}:{q}")));
            prop_assert_eq!(pairs, wanted);
        }
    }

    #[test]
    fn a_place_has_names_where_arguments_are() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        assert_eq!(test_backend().path_template(), "/base/v1/items/{id}/x-{id}.json");
        let spec = HttpSpec { url: Some("{where}".into()), ..HttpSpec::default() };
        let schema = json!({ "properties": { "where": {} }, "required": ["where"] });
        let free = HttpBackend::new(spec, Arc::clone(&test_backend().connection), &schema).unwrap();
        assert_eq!(free.path_template(), "{where}");
    }

    #[test]
    fn nothing_that_can_be_printed_has_a_secret() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let outside = OutboundContext::new(EgressGuard::new(&EgressSpec::default()).unwrap());
        let headers = vec![("Authorization".into(), "Bearer s3cret-token".into())];
        let spec = HttpClientSpec {
            base_url: "https://api.example.com".into(),
            headers,
            ..HttpClientSpec::default()
        };
        let connection = HttpClient::new(&spec, &outside).unwrap();
        let spec = HttpSpec { headers: vec![Field::new("X-Key", "s3cret-token")], ..HttpSpec::default() };
        let printed = format!("{connection:?} {spec:?} {outside:?}");
        assert!(!printed.contains("s3cret") && printed.contains("api.example.com"), "{printed}");
    }
}
