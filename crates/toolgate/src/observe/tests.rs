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
    let watch = Observer::new("evt".into(), clock.clone(), Events::for_server(None));
    TestObserver { observer: watch, clock, received: Arc::default() }
}

impl TestObserver {
    fn listen(&self, names: &str) {
        let told = Arc::clone(&self.received);
        let listener = move |event: &mut Event| {
            told.lock().unwrap().push((event.name().to_owned(), event.data()));
        };
        self.observer.events.on(names, listener).unwrap();
    }

    fn take_received(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.received.lock().unwrap())
    }

    fn call(&self, finished: &RequestEnd<'_>, params: Value) -> Result<Bytes, ListenerRejection> {
        let mut sight = self.observer.begin();
        if sight.has_listeners() {
            let mut headers = HeaderMap::new();
            headers.insert("x-client-id", "c1".parse().unwrap());
            headers.insert("authorization", "Bearer s3cret".parse().unwrap());
            let incoming = RequestInfoParts {
                id: Some(&RequestId::Number(7)),
                method: finished.method,
                params: Some(&RawJson::from(params)),
                headers: &Arc::new(headers.into()),
                remote: Some("192.0.2.1:80".parse().unwrap()),
                principal: &Principal::new("ada"),
                transport: Transport::Http,
            };
            let ListenerPoll::Ready(event) = self.observer.notify_request(&sight, &incoming) else {
                panic!("nobody has to wait");
            };
            if let Some(rejection) = sight.decide(event).rejection {
                return Err(rejection);
            }
            self.observer.notify_tool_start(&sight);
        }
        self.clock.advance(Duration::from_micros(1500));
        Ok(self.observer.end(sight, finished, 200, Bytes::from_static(RESPONSE)))
    }
}

fn echo(verdict: EndStatus<'_>) -> RequestEnd<'_> {
    RequestEnd { method: "tools/call", subject: Some(Subject::Tool("echo")), status: verdict }
}

#[test]
fn everything_is_told_in_order_and_with_the_keys_that_people_know() {
    let house = test_observer();
    house.listen("onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute");
    let params = json!({ "name": "echo", "arguments": { "msg": "hi" } });
    house.call(&echo(EndStatus::Ok), params.clone()).unwrap();
    let told = house.take_received();
    let names: Vec<&str> = told.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["onMCPRequest", "beforeAIToolExecute", "afterAIToolExecute", "onMCPResponse"]);
    let data = |name: &str| told.iter().find(|(told, _)| told == name).map(|(_, data)| data.clone()).unwrap();
    let request = json!({
        "server": "evt", "serverName": "evt", "requestId": 7,
        "requestData": { "id": 7, "method": "tools/call", "params": params },
        "headers": { "x-client-id": "c1", "authorization": "***" },
        "remote": "192.0.2.1:80", "principal": "ada", "transport": "http",
    });
    let mut first = request.clone();
    (first["reject"], first["errorMessage"]) = (json!(false), json!(""));
    assert_eq!(data("onMCPRequest"), first);
    let answer: Value = serde_json::from_slice(RESPONSE).unwrap();
    let mut last = request;
    (last["responseData"], last["response"]) = (answer.clone(), answer.clone());
    (last["success"], last["responseTime"], last["status"]) = (json!(true), json!(1.5), json!(200));
    assert_eq!(data("onMCPResponse"), last);
    let tool = json!({
        "server": "evt", "serverName": "evt", "requestId": 7, "tool": "echo", "name": "echo",
        "arguments": { "msg": "hi" },
    });
    assert_eq!(data("beforeAIToolExecute"), tool);
    let mut ended = tool;
    (ended["results"], ended["success"], ended["executionTime"]) =
        (answer["result"].clone(), json!(true), json!(1.5));
    assert_eq!(data("afterAIToolExecute"), ended);
}

#[test]
fn errors_say_which_request_failed_and_how() {
    let house = test_observer();
    house.listen("onMCPError,onMCPResponse,afterAIToolExecute");
    let fault = EndStatus::ProtocolError { code: -32601, message: "no such method: unknown/method" };
    house
        .call(&RequestEnd { method: "unknown/method", subject: None, status: fault }, json!({ "a": 1 }))
        .unwrap();
    let told = house.take_received();
    let wanted = json!({
        "server": "evt", "serverName": "evt", "context": "handleRequest", "kind": "MethodNotFound",
        "exception": {
            "type": "MethodNotFound", "message": "no such method: unknown/method", "detail": "", "stacktrace": "",
        },
        "remote": "192.0.2.1:80", "transport": "http", "method": "unknown/method", "requestId": 7,
        "params": { "a": 1 }, "responseTime": 1.5, "errorCode": -32601,
    });
    assert_eq!(told[0], ("onMCPError".into(), wanted));
    assert_eq!((&*told[1].0, &told[1].1["success"]), ("onMCPResponse", &json!(false)));

    house.call(&echo(EndStatus::ToolError { message: "boom" }), json!({ "name": "echo" })).unwrap();
    let told = house.take_received();
    let names: Vec<&str> = told.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["afterAIToolExecute", "onMCPError", "onMCPResponse"]);
    assert_eq!(
        (&told[1].1["errorCode"], &told[1].1["exception"]["message"]),
        (&json!("isError"), &json!("boom"))
    );
    assert_eq!(told[0].1["success"], json!(false));
}

#[test]
fn numbers_are_up_to_date_when_an_answer_is_told() {
    let house = test_observer();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let totals = Arc::clone(&seen);
    house.observer.events.on_response(move |response| {
        totals.lock().unwrap().push((response.stats().total_requests, response.stats().active_requests));
    });
    house.call(&echo(EndStatus::Ok), json!({})).unwrap();
    house.call(&echo(EndStatus::Ok), json!({})).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (2, 0)]);
}

#[test]
fn times_are_told_even_if_nothing_is_counted() {
    let house = test_observer();
    house.observer.stats.disable();
    house.listen("onMCPResponse");
    house.call(&echo(EndStatus::Ok), json!({})).unwrap();
    assert_eq!(house.take_received()[0].1["responseTime"], json!(1.5));
}

#[test]
fn who_is_not_let_in_is_counted_and_told() {
    let house = test_observer();
    house.listen("onMCPError");
    let rows = [
        (SecurityRejection::Auth, "auth", "AuthFailure"),
        (SecurityRejection::ApiKey, "auth", "ApiKeyFailure"),
        (SecurityRejection::Ip, "auth", "IpFilterFailure"),
        (SecurityRejection::Origin, "auth", "OriginFailure"),
        (SecurityRejection::RateLimit, "auth", "RateLimited"),
        (SecurityRejection::BodySize, "transport", "BodySizeViolation"),
    ];
    for (refusal, context, kind) in rows {
        house.observer.record_rejection(
            refusal,
            Transport::Http,
            Some("192.0.2.1:80".parse().unwrap()),
            "no",
        );
        let (_, data) = house.take_received().remove(0);
        assert_eq!((&data["context"], &data["kind"]), (&json!(context), &json!(kind)));
        assert_eq!((&data["exception"]["message"], &data["remote"]), (&json!("no"), &json!("192.0.2.1:80")));
    }
    let security = house.observer.stats.summary().security;
    let all = serde_json::to_value(security).unwrap();
    assert!(all.as_object().unwrap().values().all(|count| *count == 1), "{all}");
}

#[test]
fn a_refusal_of_the_server_itself_is_a_401() {
    let house = test_observer();
    house.observer.events.on_request(|request| request.reject("not you"));
    let rejection = house.call(&echo(EndStatus::Ok), json!({})).unwrap_err();
    assert_eq!((rejection.status, rejection.code, &*rejection.message), (Some(401), -32000, "not you"));
    assert_eq!(house.observer.stats.summary().active_requests, 0, "the sight was dropped");
}

#[test]
fn with_nobody_listening_the_answer_passes_through() {
    let house = test_observer();
    assert!(!house.observer.begin().has_listeners());
    let body = house.call(&echo(EndStatus::Ok), json!({})).unwrap();
    assert_eq!(body, RESPONSE);
    assert_eq!(house.observer.stats.summary().total_requests, 1);
    assert!(size_of::<ObservedRequest>() <= 32);
}

#[test]
fn debug_shows_no_secrets() {
    let house = test_observer();
    let shown = Arc::new(Mutex::new(String::new()));
    let text = Arc::clone(&shown);
    let names = "onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute";
    house.observer.events.on(names, move |event| *text.lock().unwrap() += &format!("{event:?}")).unwrap();
    let params = json!({ "name": "echo", "arguments": { "password": "s3cret" } });
    house.call(&echo(EndStatus::ToolError { message: "x" }), params).unwrap();
    let shown = shown.lock().unwrap();
    assert!(shown.contains("evt") && !shown.contains("s3cret"), "{shown}");
}
