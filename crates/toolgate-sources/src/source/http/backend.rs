//! HTTP tools: builds the request, sends it, retries it if that is safe, and shapes the response.

mod output;
mod request;
mod request_template;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::SemaphorePermit;
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError, RawJson};

use super::HttpSpec;
use super::client::{HttpClient, OutgoingRequest};
use super::error::RequestError;
use super::response::{BACKEND_KEY, BackendResponse, retry_after};
use crate::clock::Stopwatch;
use crate::source::call_observer::{CallKind, ObservedCall};
use crate::source::call_queue::CallQueue;
use crate::source::{BackendFuture, BackendReadFuture, Problem, ToolBackend};
use output::transport_error_output;
use request_template::{RequestTarget, RequestTemplate};

/// Maximum length of a path that is reported to an observer.
const MAX_OBSERVED_PATH_CHARS: usize = 200;

/// A tool that sends an HTTP request.
pub struct HttpBackend {
    client: Arc<HttpClient>,
    template: RequestTemplate,
    spec: HttpSpec,
    queue: CallQueue,
}

impl HttpBackend {
    /// Parses a description, or returns all of its problems. `arguments` is the JSON Schema of all arguments,
    /// including those that callers do not see.
    pub fn new(
        spec: HttpSpec,
        client: Arc<HttpClient>,
        arguments: &Value,
    ) -> Result<HttpBackend, Vec<Problem>> {
        let template = RequestTemplate::new(&spec, arguments)?;
        let queue = CallQueue::new(spec.concurrency, spec.queue);
        Ok(HttpBackend { client, template, spec, queue })
    }

    /// Returns all problems of a description, without a client.
    pub fn validate(spec: &HttpSpec, arguments: &Value) -> Vec<Problem> {
        RequestTemplate::new(spec, arguments).err().unwrap_or_default()
    }

    async fn call(&self, cx: &Context, arguments: &Map<String, Value>) -> Result<ToolOutput, HandlerError> {
        let outgoing = self.build_request(cx, arguments)?;
        let Some(observer) = self.client.outbound.observer() else {
            return self.call_with_timeout(cx, &outgoing).await;
        };
        let stopwatch = Stopwatch::start();
        let output = self.call_with_timeout(cx, &outgoing).await;
        let is_ok = output.as_ref().is_ok_and(|output| !output.is_error);
        // Arguments must not be recorded: the path is the template, and the host is left out if an argument sets it.
        let details = |_| {
            let authority =
                outgoing.uri.authority().filter(|_| matches!(self.template.target, RequestTarget::Path(_)));
            json!({
                "method": outgoing.method.as_str(),
                "host": authority.map(|authority| authority.host().to_owned()),
                "path": self.path_template().chars().take(MAX_OBSERVED_PATH_CHARS).collect::<String>(),
                "ok": is_ok,
            })
        };
        let duration = stopwatch.elapsed();
        observer.record(&ObservedCall { kind: CallKind::Http, duration, is_ok, details: &details });
        output
    }

    async fn call_with_timeout(
        &self,
        cx: &Context,
        outgoing: &OutgoingRequest,
    ) -> Result<ToolOutput, HandlerError> {
        let time_at_start = cx.time_left();
        let timeout = self.timeout().min(time_at_start);
        let Ok(result) =
            tokio::time::timeout(timeout, self.send_with_retries(cx, outgoing, time_at_start, timeout)).await
        else {
            return Ok(transport_error_output("the backend timed out", "timeout"));
        };
        let response = match result? {
            Ok(response) => response,
            Err(failure) => {
                let is_unavailable = matches!(failure, RequestError::Unreachable(_));
                let mut output = transport_error_output(&failure.to_string(), failure.code());
                output.is_unavailable = is_unavailable;
                return Ok(output);
            }
        };
        let time_left = timeout.saturating_sub(time_at_start.saturating_sub(cx.time_left()));
        let mut output = self.to_output(response, &outgoing.headers, time_left).await?;
        if self.spec.output_schema.is_some() && output.structured_content.is_none() && !output.is_error {
            output.structured_content = Some(RawJson::empty_object());
        }
        Ok(output)
    }

    fn timeout(&self) -> Duration {
        self.spec.timeout.map_or(self.client.timeout, |own| own.min(self.client.timeout))
    }

    fn response_limit(&self) -> usize {
        self.spec.response_limit.map_or(self.client.response_limit, |own| own.min(self.client.response_limit))
    }

    /// Waits for a permit. Fails at once if all permits are taken and the waiting queue is full.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, HandlerError> {
        let busy = || HandlerError::new("busy: too many calls wait for this backend");
        self.queue.acquire().await.ok_or_else(busy)
    }

    async fn send_with_retries(
        &self,
        cx: &Context,
        outgoing: &OutgoingRequest,
        time_at_start: Duration,
        timeout: Duration,
    ) -> Result<Result<BackendResponse, RequestError>, HandlerError> {
        let _permit = self.acquire_permit().await?;
        let retry = &self.client.retry;
        let is_safe = self.spec.idempotent.unwrap_or_else(|| self.template.method.is_idempotent());
        let mut attempt = 0;
        loop {
            let result = self.client.exchange(outgoing, self.response_limit()).await;
            let should_retry = match &result {
                Ok(response) => is_safe && retry.statuses.contains(&response.status.as_u16()),
                Err(RequestError::Unreachable(_)) => true,
                Err(RequestError::ConnectionLost) => is_safe,
                Err(_) => false,
            };
            let requested_delay = result.as_ref().ok().and_then(|response| retry_after(&response.headers));
            let delay = requested_delay.unwrap_or_else(|| backoff(attempt));
            let time_left = timeout.saturating_sub(time_at_start.saturating_sub(cx.time_left()));
            if !should_retry || attempt >= retry.max || delay >= time_left {
                return Ok(result);
            }
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
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
            let meta = output.meta.as_ref().filter(|_| output.is_error).map(RawJson::to_value);
            let is_gone =
                meta.is_some_and(|meta| matches!(meta[BACKEND_KEY]["status"].as_u64(), Some(404 | 410)));
            Ok((!is_gone).then_some(output))
        })
    }

    fn output_schema(&self) -> Option<Value> {
        self.spec.output_schema.clone()
    }
}

/// Exponential backoff with jitter.
fn backoff(attempt: u32) -> Duration {
    let max_delay =
        Duration::from_millis(100).saturating_mul(1 << attempt.min(6)).min(Duration::from_secs(5));
    let jitter = u32::try_from(RandomState::new().hash_one(attempt) % 512).unwrap_or_default();
    max_delay * (512 + jitter) / 1024
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::egress::{EgressGuard, EgressSpec};
    use crate::source::http::{Field, HttpClientSpec, OutboundContext};
    use crate::source::percent::percent_decode;

    fn test_backend() -> HttpBackend {
        let outbound = OutboundContext::new(EgressGuard::new(&EgressSpec::default()).unwrap());
        let base = "https://api.example.com:8443/base/v1".into();
        let query = vec![("key".into(), "k".into())];
        let client = HttpClientSpec { base_url: base, query, ..HttpClientSpec::default() };
        let client = HttpClient::new(&client, &outbound).unwrap();
        let spec = HttpSpec {
            path: "/items/{id}/x-{id}.json?q={q}".into(),
            query: vec![Field::new("list", "{list}"), Field::new("both", "{q}:{q}")],
            ..HttpSpec::default()
        };
        let schema = json!({ "properties": { "id": {}, "q": {}, "list": {} }, "required": ["id", "q"] });
        HttpBackend::new(spec, client, &schema).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the arguments are, the request goes to the same host, has the same segments and the same fields,
        /// and each of them decodes to its argument.
        #[test]
        fn arguments_stay_in_their_segments(
            id in prop_oneof![any::<String>(), "[./%\\\\a-c?#&=@:;{} ]{0,8}"],
            q in prop_oneof![any::<String>(), "[./%a-c?#&=+;{} ]{0,8}"],
            list in prop::collection::vec(any::<String>(), 0..3),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _guard = runtime.enter();
            let arguments = json!({ "id": id, "q": q, "list": list });
            let Ok(uri) = test_backend().build_uri(arguments.as_object().unwrap()) else {
                let is_step = |part: &str| part == "." || part == "..";
                let is_bad = id.is_empty() || id.chars().any(char::is_control) || id.split(['/', '\\']).any(is_step);
                prop_assert!(is_bad, "rejected without a reason: {:?}", id);
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
    fn path_template_shows_argument_names() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        assert_eq!(test_backend().path_template(), "/base/v1/items/{id}/x-{id}.json");
        let spec = HttpSpec { url: Some("{where}".into()), ..HttpSpec::default() };
        let schema = json!({ "properties": { "where": {} }, "required": ["where"] });
        let url_backend = HttpBackend::new(spec, Arc::clone(&test_backend().client), &schema).unwrap();
        assert_eq!(url_backend.path_template(), "{where}");
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let outbound = OutboundContext::new(EgressGuard::new(&EgressSpec::default()).unwrap());
        let headers = vec![("Authorization".into(), "Bearer s3cret-token".into())];
        let spec = HttpClientSpec {
            base_url: "https://api.example.com".into(),
            headers,
            ..HttpClientSpec::default()
        };
        let client = HttpClient::new(&spec, &outbound).unwrap();
        let spec = HttpSpec { headers: vec![Field::new("X-Key", "s3cret-token")], ..HttpSpec::default() };
        let printed = format!("{client:?} {spec:?} {outbound:?}");
        assert!(!printed.contains("s3cret") && printed.contains("api.example.com"), "{printed}");
    }
}
