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
use toolgate::{Context, RawJson, HandlerError};

use super::answer::{Answer, BACKEND_KEY, Kind, PAGING_KEY, failed, retry_after};
use super::body::{Body, Pair};
use super::connection::{Failure, HttpConnection, Outgoing, header, judge_auth};
use super::encode::{Serial, header_text, in_header, in_path, percent};
use super::pick::Pick;
use super::template::{Braces, Piece, Template, given, plain};
use super::{Errors, Expect, Field, HttpSpec, OnExceed, Paging, PathStyle};
use crate::clock::Stopwatch;
use crate::observe::{self, brief};
use crate::source::{Act, Acting, Problem, Reading};

/// The longest address that is sent.
const ADDRESS_LIMIT: usize = 8 * 1024;

/// A tool that is a request.
pub(crate) struct HttpAct {
    connection: Arc<HttpConnection>,
    parts: Parts,
    spec: HttpSpec,
    seats: Semaphore,
    /// Calls that wait for a seat.
    waiting: AtomicUsize,
}

/// A description, taken apart.
struct Parts {
    method: Method,
    target: Target,
    query: Vec<Pair>,
    headers: Vec<Pair>,
    cookies: Vec<Pair>,
    body: Body,
    pick: Option<Pick>,
}

enum Target {
    /// Segments below the base.
    Path(Vec<Template>),
    /// An argument that is a whole address.
    Address(String),
}

impl HttpAct {
    /// A tool, or everything that is wrong with its description. `arguments` is the JSON Schema of all arguments, also
    /// of those that a caller does not see.
    pub(crate) fn new(
        spec: HttpSpec,
        connection: Arc<HttpConnection>,
        arguments: &Value,
    ) -> Result<HttpAct, Vec<Problem>> {
        let parts = Parts::new(&spec, arguments)?;
        let (seats, waiting) = (Semaphore::new(spec.concurrency), AtomicUsize::new(0));
        Ok(HttpAct { connection, parts, spec, seats, waiting })
    }

    /// Everything that is wrong with a description, whatever it is connected to.
    pub(crate) fn check(spec: &HttpSpec, arguments: &Value) -> Vec<Problem> {
        Parts::new(spec, arguments).err().unwrap_or_default()
    }

    async fn call(&self, cx: &Context, arguments: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        let outgoing = self.fill(cx, arguments)?;
        if !observe::is_on() {
            return self.ask(cx, &outgoing).await;
        }
        let watch = Stopwatch::start();
        let output = self.ask(cx, &outgoing).await;
        let is_good = output.as_ref().is_ok_and(|output| !output.is_error);
        observe::collectors().http.note(watch.took(), is_good, |_| {
            // Nothing that arguments have put there: neither a path nor, where that is one, the host.
            let authority = outgoing.uri.authority().filter(|_| matches!(self.parts.target, Target::Path(_)));
            json!({
                "method": outgoing.method.as_str(),
                "host": authority.map(|authority| authority.host().to_owned()),
                "path": brief(&self.place()),
                "ok": is_good,
            })
        });
        output
    }

    /// Whether this argument is written somewhere where there is only text: anywhere but in a JSON body.
    pub(super) fn writes_as_text(&self, name: &str) -> bool {
        let Parts { target, query, headers, cookies, body, .. } = &self.parts;
        let is_in = |template: &Template| template.arguments().any(|known| known == name);
        let in_target = match target {
            Target::Path(segments) => segments.iter().any(is_in),
            Target::Address(argument) => argument == name,
        };
        let in_body = !matches!(body, Body::Json { .. }) && body.arguments().contains(&name);
        in_target || in_body || [query, headers, cookies].into_iter().flatten().any(|pair| is_in(&pair.value))
    }

    /// Where it goes, with names where arguments are.
    fn place(&self) -> String {
        let segments = match &self.parts.target {
            Target::Path(segments) => segments,
            Target::Address(name) => return format!("{{{name}}}"),
        };
        let mut place = self.connection.prefix.clone();
        for segment in segments {
            place.push('/');
            for piece in &segment.0 {
                match piece {
                    Piece::Text(text) => place.push_str(text),
                    Piece::Argument(name) => drop(write!(place, "{{{name}}}")),
                }
            }
        }
        place
    }

    async fn ask(&self, cx: &Context, outgoing: &Outgoing) -> Result<ToolOutput, HandlerError> {
        let start = cx.time_left();
        let time = self.time().min(start);
        let Ok(called) = tokio::time::timeout(time, self.send(cx, outgoing, start, time)).await else {
            return Ok(unanswered("the backend took too long", "timeout"));
        };
        let answer = match called? {
            Ok(answer) => answer,
            Err(failure) => {
                let is_unavailable = matches!(failure, Failure::Unreachable(_));
                return Ok(ToolOutput { is_unavailable, ..unanswered(&failure.to_string(), failure.word()) });
            }
        };
        let left = time.saturating_sub(start.saturating_sub(cx.time_left()));
        let mut output = self.shape(answer, &outgoing.headers, left).await?;
        if self.spec.output_schema.is_some() && output.structured_content.is_none() && !output.is_error {
            output.structured_content = Some(RawJson::empty_object());
        }
        Ok(output)
    }

    fn time(&self) -> Duration {
        self.spec.timeout.map_or(self.connection.timeout, |own| own.min(self.connection.timeout))
    }

    fn limit(&self) -> usize {
        self.spec
            .response_limit
            .map_or(self.connection.response_limit, |own| own.min(self.connection.response_limit))
    }

    /// Every argument in its place.
    fn fill(&self, cx: &Context, arguments: &Map<String, Value>) -> Result<Outgoing, HandlerError> {
        let uri = self.uri(arguments)?;
        let auth = self.spec.auth.as_ref().unwrap_or(&self.connection.auth);
        let mut headers = if self.connection.is_home(&uri) {
            self.connection.presented(cx, auth).map_err(HandlerError::new)?
        } else {
            self.connection.anonymous()
        };
        if self.spec.expect == Expect::Json {
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        }
        for pair in &self.parts.headers {
            let text = match pair.value.whole() {
                Some(name) => given(arguments, name).map(|value| in_header(value, pair.serial)),
                None => pair.value.fill(arguments),
            };
            if let Some(text) = text {
                let (name, value) =
                    header(&pair.name, &header_text(&pair.name, text)?).map_err(HandlerError::new)?;
                headers.insert(name, value);
            }
        }
        if let Some(cookies) = self.cookies(arguments)? {
            headers.insert(COOKIE, cookies);
        }
        let body = match self.parts.body.fill(arguments)? {
            Some((bytes, mime)) => {
                let mime = HeaderValue::try_from(mime)
                    .map_err(|_| HandlerError::new("invalid header value for `content-type`"))?;
                headers.insert(CONTENT_TYPE, mime);
                bytes
            }
            None => Bytes::new(),
        };
        Ok(Outgoing { method: self.parts.method.clone(), uri, headers, body })
    }

    fn uri(&self, arguments: &Map<String, Value>) -> Result<Uri, HandlerError> {
        let segments = match &self.parts.target {
            Target::Address(name) => {
                let text = given(arguments, name).map(plain).unwrap_or_default();
                return self.connection.judged(&text).map_err(|failure| HandlerError::new(failure.to_string()));
            }
            Target::Path(segments) => segments,
        };
        let HttpConnection { scheme, authority, prefix, query, .. } = &*self.connection;
        let mut address = format!("{scheme}://{authority}{prefix}");
        for segment in segments {
            address.push('/');
            address.push_str(&self.segment(segment, arguments)?);
        }
        let mut pairs = query.clone();
        Pair::fill(&self.parts.query, arguments, &mut pairs)?;
        if !pairs.is_empty() {
            address.push('?');
            address.push_str(&pairs.join("&"));
        }
        if address.len() > ADDRESS_LIMIT {
            return Err(HandlerError::new("the arguments are too long for an address"));
        }
        match Uri::try_from(address) {
            // Cannot happen, and is checked all the same: arguments never choose whom we talk to.
            Ok(uri) if uri.authority() == Some(authority) && uri.scheme() == Some(scheme) => Ok(uri),
            _ => Err(HandlerError::new("the arguments do not make an address")),
        }
    }

    fn segment(&self, segment: &Template, arguments: &Map<String, Value>) -> Result<String, HandlerError> {
        let mut filled = String::new();
        for piece in &segment.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => {
                    let value = given(arguments, name).ok_or_else(|| {
                        HandlerError::new(format!("`{name}` is missing: it is part of a path"))
                    })?;
                    let style = self.spec.path_styles.iter().find(|style| style.argument == *name);
                    let (wire, serial) = style
                        .map_or((name.as_str(), Serial::SIMPLE), |PathStyle { name, serial, .. }| {
                            (name, *serial)
                        });
                    filled.push_str(&in_path(wire, value, serial)?);
                }
            }
        }
        if segment.literal().is_none() && matches!(filled.as_str(), "" | "." | "..") {
            return Err(HandlerError::new("the arguments do not make a path"));
        }
        Ok(filled)
    }

    fn cookies(&self, arguments: &Map<String, Value>) -> Result<Option<HeaderValue>, HandlerError> {
        let filled = self.parts.cookies.iter().filter_map(|pair| {
            let text = match pair.value.whole() {
                Some(name) => in_header(given(arguments, name)?, pair.serial),
                None => pair.value.fill(arguments)?,
            };
            Some(format!("{}={}", percent(&pair.name), percent(&text)))
        });
        let joined = filled.collect::<Vec<_>>().join("; ");
        if joined.is_empty() {
            return Ok(None);
        }
        let mut value = HeaderValue::try_from(header_text("cookie", joined)?)
            .map_err(|_| HandlerError::new("invalid header value for `cookie`"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// A seat among the calls of this tool. When all are taken and enough wait, one more is refused.
    async fn seat(&self) -> Result<SemaphorePermit<'_>, HandlerError> {
        if let Ok(seat) = self.seats.try_acquire() {
            return Ok(seat);
        }
        let waiting = Waiting::begin(&self.waiting);
        if waiting.before >= self.spec.queue {
            return Err(HandlerError::new("busy: too many calls wait for this backend"));
        }
        self.seats.acquire().await.map_err(|_| HandlerError::new("busy"))
    }

    async fn send(
        &self,
        cx: &Context,
        outgoing: &Outgoing,
        start: Duration,
        time: Duration,
    ) -> Result<Result<Answer, Failure>, HandlerError> {
        let _seat = self.seat().await?;
        let retry = &self.connection.retry;
        let is_safe = self.spec.idempotent.unwrap_or_else(|| self.parts.method.is_idempotent());
        let mut turn = 0;
        loop {
            let sent = self.connection.exchange(outgoing, self.limit()).await;
            let again = match &sent {
                Ok(answer) => is_safe && retry.on.contains(&answer.status.as_u16()),
                Err(Failure::Unreachable(_)) => true,
                Err(Failure::Broken) => is_safe,
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
    async fn shape(
        &self,
        answer: Answer,
        headers: &HeaderMap,
        left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        if !answer.status.is_success() {
            return Ok(self.complain(&answer, headers));
        }
        let paging = if self.spec.paging == Paging::Off { None } else { answer.paging() };
        let paging = paging.and_then(|paging| self.connection.told(paging, headers));
        let limit = self.limit();
        if answer.is_cut && (self.spec.on_exceed == OnExceed::Error || self.parts.pick.is_some()) {
            return Err(HandlerError::new(format!("the answer is larger than {limit} bytes; ask for less")));
        }
        if answer.body.is_empty() {
            return Ok(ToolOutput::text(told(answer.status)));
        }
        let kind = match (self.spec.expect, answer.kind()) {
            (Expect::Text, _) => Kind::Text,
            (_, Kind::Json) => Kind::Json,
            (Expect::Json, _) => return Err(HandlerError::new("the backend did not answer with JSON")),
            (Expect::Auto, _) if self.parts.pick.is_some() => {
                return Err(HandlerError::new("the backend did not answer with JSON"));
            }
            (Expect::Auto, Kind::Page) => {
                return Err(HandlerError::new("the backend answered with a web page instead of data"));
            }
            (Expect::Auto, kind) => kind,
        };
        if !matches!(kind, Kind::Json | Kind::Text) {
            return Ok(answer.into_media());
        }
        let is_cut = answer.is_cut;
        let text = match String::from_utf8(answer.body) {
            Ok(text) => text,
            Err(_) if kind == Kind::Json => return Err(HandlerError::new("the answer is not valid JSON")),
            Err(bytes) => String::from_utf8_lossy(bytes.as_bytes()).into_owned(),
        };
        let text = self.connection.masked(text, headers);
        if is_cut {
            return Ok(ToolOutput::text(format!("{text}\n… cut after {limit} bytes")));
        }
        if kind == Kind::Text {
            let promised = self.spec.output_schema.as_ref().map(|_| RawJson::from(json!({ "result": text })));
            return Ok(with_paging(ToolOutput { structured_content: promised, ..ToolOutput::text(text) }, paging));
        }
        self.structured(text, paging, left).await
    }

    async fn structured(
        &self,
        text: String,
        paging: Option<Value>,
        left: Duration,
    ) -> Result<ToolOutput, HandlerError> {
        let broken = |_| HandlerError::new("the answer is not valid JSON");
        let value = match &self.parts.pick {
            // jq nests without end, we do not.
            Some(pick) => {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(broken)?;
                pick.run(text, self.limit(), left).await?
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
        let value = match (&self.parts.pick, value) {
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

    fn complain(&self, answer: &Answer, headers: &HeaderMap) -> ToolOutput {
        let status = answer.status;
        if status.is_redirection() {
            return failed(status, Some("the backend sends elsewhere, and redirects are not followed"), None);
        }
        let (message, code) = match self.spec.errors {
            Errors::Status => (None, None),
            Errors::Auto if status.is_server_error() => (None, None),
            // Whether there is such a user is not told to who does not know the password.
            _ if status == StatusCode::UNAUTHORIZED && answer.tells_users() => {
                (Some("the backend does not accept these credentials".into()), None)
            }
            Errors::Auto | Errors::Message => answer.complaint(),
        };
        if status.is_server_error() {
            let said = answer.complaint().0.map(|said| self.connection.masked(said, headers));
            self.connection.note(status.as_u16(), said.as_deref().unwrap_or_default());
        }
        let masked = |text: Option<String>| text.map(|text| self.connection.masked(text, headers));
        let is_unavailable = !self.spec.unavailable.is_empty()
            && answer.complaint().1.is_some_and(|code| self.spec.unavailable.contains(&code));
        let mut output = failed(status, masked(message).as_deref(), masked(code).as_deref());
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

impl Parts {
    fn new(spec: &HttpSpec, arguments: &Value) -> Result<Parts, Vec<Problem>> {
        let mut known = Known::new(arguments);
        let method = match Method::try_from(spec.method.to_ascii_uppercase().as_str()) {
            Ok(method)
                if ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]
                    .contains(&method.as_str()) =>
            {
                method
            }
            _ => {
                known.wrong("method", format!("`{}` is no method that a tool can use", spec.method));
                Method::GET
            }
        };
        let mut query = Vec::new();
        let target = match &spec.url {
            Some(url) => known.address(url),
            None => known.path(&spec.path, &mut query),
        };
        query.extend(known.pairs("query", &spec.query));
        let headers = known.pairs("headers", &spec.headers);
        for pair in &headers {
            if let Err(said) = header(&pair.name, pair.value.literal().unwrap_or_default()) {
                known.wrong(&format!("headers.{}", pair.name), said);
            }
        }
        let cookies = known.pairs("cookies", &spec.cookies);
        let body = known.body(spec, &method);
        let pick = spec.pick.as_deref().map(Pick::new).transpose().unwrap_or_else(|said| {
            known.wrong("pick", said);
            None
        });
        if let Some(Err(said)) = spec.auth.as_ref().map(judge_auth) {
            known.wrong("auth", said);
        }
        if spec.concurrency == 0 {
            known.wrong("concurrency", "no call at a time is none at all".into());
        }
        if !known.problems.is_empty() {
            return Err(known.problems);
        }
        Ok(Parts { method, target, query, headers, cookies, body, pick })
    }
}

impl Act for HttpAct {
    /// Cancel safe: yes, because dropping the call drops the request.
    fn act<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> Acting<'a> {
        Box::pin(self.call(cx, arguments))
    }

    fn read<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> Reading<'a> {
        Box::pin(async move {
            let output = self.act(cx, arguments).await?;
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
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Waiting<'a> {
        Waiting { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
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
fn unanswered(said: &str, word: &str) -> ToolOutput {
    let meta = json!({ BACKEND_KEY: { "failure": word } });
    ToolOutput { meta: Some(RawJson::from(meta)), ..ToolOutput::error(said) }
}

fn told(status: StatusCode) -> String {
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
struct Known<'a> {
    names: Vec<&'a str>,
    /// Those that are always there.
    certain: Vec<&'a str>,
    problems: Vec<Problem>,
}

impl<'a> Known<'a> {
    fn new(schema: &'a Value) -> Known<'a> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let mut certain: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
        certain.extend(
            properties
                .into_iter()
                .flatten()
                .filter(|(_, property)| property.get("default").is_some())
                .map(|(name, _)| name.as_str()),
        );
        let names = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        Known { names, certain, problems: Vec::new() }
    }

    fn wrong(&mut self, at: &str, said: String) {
        self.problems.push(Problem { at: at.into(), said });
    }

    fn check<'n>(&mut self, at: &str, used: impl IntoIterator<Item = &'n str>) {
        for name in used {
            if !self.names.contains(&name) {
                let there = if self.names.is_empty() {
                    "there are none".into()
                } else {
                    format!("there are: {}", self.names.join(", "))
                };
                self.wrong(at, format!("`{name}` is not among the arguments; {there}"));
            }
        }
    }

    fn pairs(&mut self, at: &str, fields: &[Field]) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for field in fields {
            let at = format!("{at}.{}", field.name);
            match Pair::parse(field) {
                Ok(pair) => {
                    self.check(&at, pair.value.arguments());
                    pairs.push(pair);
                }
                Err(said) => self.wrong(&at, said),
            }
        }
        pairs
    }

    fn address(&mut self, url: &str) -> Target {
        let template = Template::parse(url, Braces::Every);
        let Some(name) = template.as_ref().ok().and_then(Template::whole).map(str::to_owned) else {
            self.wrong(
                "url",
                format!(
                    "`{url}` must be one argument, such as `{{url}}`; a fixed host belongs into a connection"
                ),
            );
            return Target::Address(String::new());
        };
        self.check("url", [name.as_str()]);
        Target::Address(name)
    }

    /// Segments of a path; what follows a question mark are fields of the query.
    fn path(&mut self, text: &str, query: &mut Vec<Pair>) -> Target {
        let (path, rest) = text.split_once('?').map_or((text, None), |(path, rest)| (path, Some(rest)));
        if !path.starts_with('/') || text.contains('#') {
            self.wrong("path", format!("`{text}` must start with `/` and have no `#`"));
            return Target::Path(Vec::new());
        }
        let mut segments = Vec::new();
        for segment in path.split('/').skip(1) {
            match Template::parse(segment, Braces::Every) {
                Ok(template) => {
                    let uncertain: Vec<String> = template
                        .arguments()
                        .filter(|name| self.names.contains(name) && !self.certain.contains(name))
                        .map(str::to_owned)
                        .collect();
                    for name in uncertain {
                        self.wrong(
                            "path",
                            format!("`{name}` is part of the path, so it must be required or have a default"),
                        );
                    }
                    self.check("path", template.arguments());
                    let is_text = template.0.iter().all(|piece| match piece {
                        Piece::Text(text) => {
                            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte))
                        }
                        Piece::Argument(_) => true,
                    });
                    if !is_text || matches!(template.literal(), Some("." | "..")) {
                        self.wrong("path", format!("`{segment}` cannot be part of a path"));
                    }
                    segments.push(template);
                }
                Err(said) => self.wrong("path", said),
            }
        }
        let pairs = rest.into_iter().flat_map(|rest| rest.split('&')).filter(|pair| !pair.is_empty());
        let fields: Vec<Field> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| Field::new(name, value))
            .collect();
        query.extend(self.pairs("path", &fields));
        Target::Path(segments)
    }

    fn body(&mut self, spec: &HttpSpec, method: &Method) -> Body {
        match Body::parse(&spec.body) {
            Ok(body) => {
                self.check("body", body.arguments());
                if !matches!(body, Body::None) && (method == Method::GET || method == Method::HEAD) {
                    self.wrong(
                        "body",
                        format!("a request with the method {method} has no body; use `query`"),
                    );
                }
                body
            }
            Err((at, said)) => {
                self.wrong(&at, said);
                Body::None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::egress::{Egress, EgressSpec};
    use crate::source::http::{ConnectionSpec, Outside, unescaped};

    fn act() -> HttpAct {
        let outside = Outside::new(Egress::new(&EgressSpec::default()).unwrap());
        let base = "https://api.example.com:8443/base/v1".into();
        let query = vec![("key".into(), "k".into())];
        let connection = ConnectionSpec { base, query, ..ConnectionSpec::default() };
        let connection = HttpConnection::new(&connection, &outside).unwrap();
        let spec = HttpSpec {
            path: "/items/{id}/x-{id}.json?q={q}".into(),
            query: vec![Field::new("list", "{list}"), Field::new("both", "{q}:{q}")],
            ..HttpSpec::default()
        };
        let schema = json!({ "properties": { "id": {}, "q": {}, "list": {} }, "required": ["id", "q"] });
        HttpAct::new(spec, connection, &schema).unwrap()
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
            let Ok(uri) = act().uri(arguments.as_object().unwrap()) else {
                let is_step = |part: &str| part == "." || part == "..";
                let is_bad = id.is_empty() || id.chars().any(char::is_control) || id.split(['/', '\\']).any(is_step);
                prop_assert!(is_bad, "refused without a reason: {:?}", id);
                return Ok(());
            };
            prop_assert_eq!(uri.authority().unwrap().as_str(), "api.example.com:8443");
            let segments: Vec<String> = uri.path().split('/').map(unescaped).collect();
            let tail = format!("x-{id}.json");
            prop_assert_eq!(segments, ["", "base", "v1", "items", id.as_str(), tail.as_str()]);
            let pairs: Vec<(String, String)> = uri.query().unwrap().split('&')
                .map(|pair| pair.split_once('=').unwrap())
                .map(|(name, value)| (unescaped(name), unescaped(value)))
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
        assert_eq!(act().place(), "/base/v1/items/{id}/x-{id}.json");
        let spec = HttpSpec { url: Some("{where}".into()), ..HttpSpec::default() };
        let schema = json!({ "properties": { "where": {} }, "required": ["where"] });
        let free = HttpAct::new(spec, Arc::clone(&act().connection), &schema).unwrap();
        assert_eq!(free.place(), "{where}");
    }

    #[test]
    fn nothing_that_can_be_printed_has_a_secret() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let outside = Outside::new(Egress::new(&EgressSpec::default()).unwrap());
        let headers = vec![("Authorization".into(), "Bearer s3cret-token".into())];
        let spec =
            ConnectionSpec { base: "https://api.example.com".into(), headers, ..ConnectionSpec::default() };
        let connection = HttpConnection::new(&spec, &outside).unwrap();
        let spec = HttpSpec { headers: vec![Field::new("X-Key", "s3cret-token")], ..HttpSpec::default() };
        let printed = format!("{connection:?} {spec:?} {outside:?}");
        assert!(!printed.contains("s3cret") && printed.contains("api.example.com"), "{printed}");
    }
}
