use std::sync::Mutex;
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use toolgate_wire::{RawJson, RequestId};

use super::*;
use crate::request::Principal;

const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;

struct TestObserver {
    observer: Observer,
    clock: Clock,
    received: Arc<Mutex<Vec<(String, Value)>>>,
}

fn test_observer() -> TestObserver {
    let clock = Clock::manual();
    let observer = Observer::new("evt".into(), clock.clone(), Events::for_server(None));
    TestObserver { observer, clock, received: Arc::default() }
}

impl TestObserver {
    fn listen(&self, names: &str) {
        let received = Arc::clone(&self.received);
        let listener = move |event: &mut Event| {
            received.lock().unwrap().push((event.name().to_owned(), event.data()));
        };
        self.observer.events.on(names, listener).unwrap();
    }

    fn take_received(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.received.lock().unwrap())
    }

    /// Begins a request and offers it to its listeners.
    fn begin(&self, method: &str, params: Value) -> Result<ObservedRequest, ListenerRejection> {
        let mut observed = self.observer.begin();
        if observed.has_listeners() {
            let mut headers = HeaderMap::new();
            headers.insert("x-client-id", "c1".parse().unwrap());
            headers.insert("authorization", "Bearer s3cret".parse().unwrap());
            let parts = RequestInfoParts {
                id: Some(&RequestId::Number(7)),
                method,
                params: Some(&RawJson::from(params)),
                headers: &Arc::new(headers.into()),
                remote: Some("192.0.2.1:80".parse().unwrap()),
                principal: &Principal::new("ada"),
                transport: Transport::Http,
            };
            let ListenerPoll::Ready(event) = self.observer.notify_request(&mut observed, &parts) else {
                panic!("no listener is async");
            };
            if let Some(rejection) = observed.decide(event).rejection {
                return Err(rejection);
            }
        }
        Ok(observed)
    }

    fn call(&self, end: &RequestEnd<'_>, params: Value) -> Result<Bytes, ListenerRejection> {
        let mut observed = self.begin(end.method, params)?;
        observed.notify_tool_start(false);
        self.clock.advance(Duration::from_micros(1500));
        Ok(self.observer.end(observed, end, 200, Bytes::from_static(RESPONSE)))
    }
}

fn echo(status: EndStatus<'_>) -> RequestEnd<'_> {
    RequestEnd { method: "tools/call", subject: Some(Subject::Tool("echo")), status }
}

#[test]
fn events_are_published_in_order_with_the_documented_keys() {
    let test = test_observer();
    test.listen("onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute");
    let params = json!({ "name": "echo", "arguments": { "msg": "hi" } });
    test.call(&echo(EndStatus::Ok), params.clone()).unwrap();
    let received = test.take_received();
    let names: Vec<&str> = received.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["onMCPRequest", "beforeAIToolExecute", "afterAIToolExecute", "onMCPResponse"]);
    let data = |name: &str| {
        received.iter().find(|(received, _)| received == name).map(|(_, data)| data.clone()).unwrap()
    };
    let request = json!({
        "server": "evt", "serverName": "evt", "requestId": 7,
        "requestData": { "id": 7, "method": "tools/call", "params": params },
        "headers": { "x-client-id": "c1", "authorization": "***" },
        "remote": "192.0.2.1:80", "principal": "ada", "transport": "http",
    });
    let mut first = request.clone();
    (first["reject"], first["errorMessage"]) = (json!(false), json!(""));
    assert_eq!(data("onMCPRequest"), first);
    let response: Value = serde_json::from_slice(RESPONSE).unwrap();
    let mut last = request;
    (last["responseData"], last["response"]) = (response.clone(), response.clone());
    (last["success"], last["responseTime"], last["status"]) = (json!(true), json!(1.5), json!(200));
    last["outcome"] = json!("ok");
    assert_eq!(data("onMCPResponse"), last);
    let tool = json!({
        "server": "evt", "serverName": "evt", "requestId": 7, "tool": "echo", "name": "echo",
        "arguments": { "msg": "hi" },
    });
    assert_eq!(data("beforeAIToolExecute"), tool);
    let mut ended = tool;
    (ended["results"], ended["success"], ended["executionTime"]) =
        (response["result"].clone(), json!(true), json!(1.5));
    ended["outcome"] = json!("ok");
    assert_eq!(data("afterAIToolExecute"), ended);
}

#[test]
fn error_events_describe_the_failed_request() {
    let test = test_observer();
    test.listen("onMCPError,onMCPResponse,afterAIToolExecute");
    let error = EndStatus::ProtocolError { code: -32601, message: "no such method: unknown/method" };
    test.call(&RequestEnd { method: "unknown/method", subject: None, status: error }, json!({ "a": 1 }))
        .unwrap();
    let received = test.take_received();
    let expected = json!({
        "server": "evt", "serverName": "evt", "context": "handleRequest", "kind": "MethodNotFound",
        "exception": {
            "type": "MethodNotFound", "message": "no such method: unknown/method", "detail": "", "stacktrace": "",
        },
        "remote": "192.0.2.1:80", "transport": "http", "method": "unknown/method", "requestId": 7,
        "params": { "a": 1 }, "responseTime": 1.5, "errorCode": -32601,
    });
    assert_eq!(received[0], ("onMCPError".into(), expected));
    assert_eq!((&*received[1].0, &received[1].1["success"]), ("onMCPResponse", &json!(false)));

    test.call(&echo(EndStatus::ToolError { message: "boom" }), json!({ "name": "echo" })).unwrap();
    let received = test.take_received();
    let names: Vec<&str> = received.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["afterAIToolExecute", "onMCPError", "onMCPResponse"]);
    assert_eq!(
        (&received[1].1["errorCode"], &received[1].1["exception"]["message"]),
        (&json!("isError"), &json!("boom"))
    );
    assert_eq!(received[0].1["success"], json!(false));
}

#[test]
fn statistics_are_current_when_a_response_is_published() {
    let test = test_observer();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let totals = Arc::clone(&seen);
    test.observer.events.on_response(move |response| {
        totals.lock().unwrap().push((response.stats().total_requests, response.stats().active_requests));
    });
    test.call(&echo(EndStatus::Ok), json!({})).unwrap();
    test.call(&echo(EndStatus::Ok), json!({})).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (2, 0)]);
}

#[test]
fn durations_are_published_even_if_statistics_are_disabled() {
    let test = test_observer();
    test.observer.stats.disable();
    test.listen("onMCPResponse");
    test.call(&echo(EndStatus::Ok), json!({})).unwrap();
    assert_eq!(test.take_received()[0].1["responseTime"], json!(1.5));
}

#[test]
fn rejected_clients_are_counted_and_published() {
    let test = test_observer();
    test.listen("onMCPError");
    let rows = [
        (SecurityRejection::Auth, "auth", "AuthFailure"),
        (SecurityRejection::ApiKey, "auth", "ApiKeyFailure"),
        (SecurityRejection::Ip, "auth", "IpFilterFailure"),
        (SecurityRejection::Origin, "auth", "OriginFailure"),
        (SecurityRejection::RateLimit, "auth", "RateLimited"),
        (SecurityRejection::BodySize, "transport", "BodySizeViolation"),
    ];
    for (rejection, context, kind) in rows {
        test.observer.record_rejection(
            rejection,
            Transport::Http,
            Some("192.0.2.1:80".parse().unwrap()),
            "no",
        );
        let (_, data) = test.take_received().remove(0);
        assert_eq!((&data["context"], &data["kind"]), (&json!(context), &json!(kind)));
        assert_eq!((&data["exception"]["message"], &data["remote"]), (&json!("no"), &json!("192.0.2.1:80")));
    }
    let security = test.observer.stats.summary().security;
    let all = serde_json::to_value(security).unwrap();
    assert!(all.as_object().unwrap().values().all(|count| *count == 1), "{all}");
}

#[test]
fn a_rejection_by_a_listener_of_the_server_is_a_401() {
    let test = test_observer();
    test.observer.events.on_request(|request| request.reject("not you"));
    let rejection = test.call(&echo(EndStatus::Ok), json!({})).unwrap_err();
    assert_eq!((rejection.status, rejection.code, &*rejection.message), (Some(401), -32000, "not you"));
    assert_eq!(test.observer.stats.summary().active_requests, 0, "the observed request was dropped");
}

#[test]
fn without_listeners_the_response_passes_through() {
    let test = test_observer();
    let observed = test.observer.begin();
    assert!(!observed.has_listeners());
    test.observer.end(observed, &echo(EndStatus::Ok), 200, Bytes::new());
    let body = test.call(&echo(EndStatus::Ok), json!({})).unwrap();
    assert_eq!(body, RESPONSE);
    assert_eq!(test.observer.stats.summary().total_requests, 2);
    assert!(size_of::<ObservedRequest>() <= 32);
}

#[test]
fn debug_shows_no_secrets() {
    let test = test_observer();
    let shown = Arc::new(Mutex::new(String::new()));
    let text = Arc::clone(&shown);
    let names = "onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute";
    test.observer.events.on(names, move |event| *text.lock().unwrap() += &format!("{event:?}")).unwrap();
    let params = json!({ "name": "echo", "arguments": { "password": "s3cret" } });
    test.call(&echo(EndStatus::ToolError { message: "x" }), params).unwrap();
    let shown = shown.lock().unwrap();
    assert!(shown.contains("evt") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn a_dropped_request_is_counted_as_cancelled() {
    let test = test_observer();
    drop(test.observer.begin());
    let mut observed = test.observer.begin();
    observed.notify_tool_start(true);
    test.clock.advance(Duration::from_micros(1500));
    observed.cancel("tools/call", Some(Subject::Tool("echo")));
    let detail = test.observer.stats.detail();
    assert_eq!((detail.requests.total, detail.requests.cancelled, detail.active_requests), (2, 2, 0));
    assert_eq!((detail.requests.successful, detail.requests.failed), (0, 0));
    assert_eq!(detail.requests.by_method, [("(unknown)".into(), 1), ("tools/call".into(), 1)].into());
    let echo = &detail.tools.by_tool["echo"];
    assert_eq!((echo.count, echo.errors, echo.by_outcome.cancelled, echo.total_time), (1, 0, 1, 1.5));
    assert_eq!(test.observer.stats.summary().total_cancelled, 2);
}

#[test]
fn listeners_are_told_of_a_dropped_request_even_if_statistics_are_disabled() {
    for is_counted in [true, false] {
        let test = test_observer();
        if !is_counted {
            test.observer.stats.disable();
        }
        test.listen("onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute");
        let mut observed = test.begin("tools/call", json!({ "name": "echo" })).unwrap();
        observed.notify_tool_start(false);
        test.clock.advance(Duration::from_micros(1500));
        observed.cancel("tools/call", Some(Subject::Tool("echo")));
        let received = test.take_received();
        let names: Vec<&str> = received.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["onMCPRequest", "beforeAIToolExecute", "afterAIToolExecute", "onMCPResponse"]);
        for (_, data) in &received[2..] {
            assert_eq!((&data["outcome"], &data["success"]), (&json!("cancelled"), &json!(false)), "{data}");
        }
        assert_eq!((&received[2].1["executionTime"], &received[2].1["results"]), (&json!(1.5), &json!(null)));
        assert_eq!((&received[3].1["status"], &received[3].1["response"]), (&json!(499), &json!(null)));
    }
}

#[test]
fn a_timeout_and_a_panic_have_outcomes_of_their_own() {
    let test = test_observer();
    test.listen("onMCPError,onMCPResponse");
    let code = ErrorCode::ToolError;
    for (status, kind, outcome) in [
        (EndStatus::TimedOut { code, message: "late" }, "Timeout", "timeout"),
        (EndStatus::Panicked { code, message: "boom" }, "Panic", "panic"),
    ] {
        test.call(&echo(status), json!({ "name": "echo" })).unwrap();
        let received = test.take_received();
        assert_eq!((&received[0].1["kind"], &received[0].1["errorCode"]), (&json!(kind), &json!("isError")));
        assert_eq!(received[1].1["outcome"], json!(outcome));
    }
    let detail = test.observer.stats.detail();
    let counts = detail.requests.by_outcome;
    assert_eq!((counts.timeout, counts.panic, counts.total(), detail.requests.failed), (1, 1, 2, 2));
    assert_eq!(detail.tools.by_tool["echo"].by_outcome, counts);
}
