use std::sync::Mutex;
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use toolgate_wire::{RawJson, RequestId};

use super::*;
use crate::request::Principal;

const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;

struct House {
    watch: Watch,
    clock: Clock,
    told: Arc<Mutex<Vec<(String, Value)>>>,
}

fn house() -> House {
    let clock = Clock::manual();
    let watch = Watch::new("evt".into(), clock.clone(), Events::of_server(None));
    House { watch, clock, told: Arc::default() }
}

impl House {
    fn listen(&self, names: &str) {
        let told = Arc::clone(&self.told);
        let listener = move |event: &mut Event| {
            told.lock().unwrap().push((event.name().to_owned(), event.data()));
        };
        self.watch.events.on(names, listener).unwrap();
    }

    fn told(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    fn call(&self, finished: &Finished<'_>, params: Value) -> Result<Bytes, Rejection> {
        let mut sight = self.watch.begin();
        if sight.is_heard() {
            let mut headers = HeaderMap::new();
            headers.insert("x-client-id", "c1".parse().unwrap());
            headers.insert("authorization", "Bearer s3cret".parse().unwrap());
            let incoming = Incoming {
                id: Some(&RequestId::Number(7)),
                method: finished.method,
                params: Some(&RawJson::from(params)),
                headers: &Arc::new(headers.into()),
                remote: Some("192.0.2.1:80".parse().unwrap()),
                principal: &Principal::new("ada"),
                transport: Transport::Http,
            };
            let Asked::Now(event) = self.watch.ask(&sight, &incoming) else {
                panic!("nobody has to wait");
            };
            if let Some(rejection) = sight.settle(event).rejection {
                return Err(rejection);
            }
            self.watch.starts(&sight);
        }
        self.clock.advance(Duration::from_micros(1500));
        Ok(self.watch.end(sight, finished, 200, Bytes::from_static(ANSWER)))
    }
}

fn echo(verdict: Verdict<'_>) -> Finished<'_> {
    Finished { method: "tools/call", subject: Some(Subject::Tool("echo")), verdict }
}

#[test]
fn everything_is_told_in_order_and_with_the_keys_that_people_know() {
    let house = house();
    house.listen("onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute");
    let params = json!({ "name": "echo", "arguments": { "msg": "hi" } });
    house.call(&echo(Verdict::Ok), params.clone()).unwrap();
    let told = house.told();
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
    let answer: Value = serde_json::from_slice(ANSWER).unwrap();
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
    let house = house();
    house.listen("onMCPError,onMCPResponse,afterAIToolExecute");
    let fault = Verdict::Fault { code: -32601, message: "no such method: unknown/method" };
    house
        .call(&Finished { method: "unknown/method", subject: None, verdict: fault }, json!({ "a": 1 }))
        .unwrap();
    let told = house.told();
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

    house.call(&echo(Verdict::ToolError { message: "boom" }), json!({ "name": "echo" })).unwrap();
    let told = house.told();
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
    let house = house();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let totals = Arc::clone(&seen);
    house.watch.events.on_response(move |response| {
        totals.lock().unwrap().push((response.stats().total_requests, response.stats().active_requests));
    });
    house.call(&echo(Verdict::Ok), json!({})).unwrap();
    house.call(&echo(Verdict::Ok), json!({})).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (2, 0)]);
}

#[test]
fn times_are_told_even_if_nothing_is_counted() {
    let house = house();
    house.watch.stats.disable();
    house.listen("onMCPResponse");
    house.call(&echo(Verdict::Ok), json!({})).unwrap();
    assert_eq!(house.told()[0].1["responseTime"], json!(1.5));
}

#[test]
fn who_is_not_let_in_is_counted_and_told() {
    let house = house();
    house.listen("onMCPError");
    let rows = [
        (Refusal::Auth, "auth", "AuthFailure"),
        (Refusal::ApiKey, "auth", "ApiKeyFailure"),
        (Refusal::Ip, "auth", "IpFilterFailure"),
        (Refusal::Origin, "auth", "OriginFailure"),
        (Refusal::Rate, "auth", "RateLimited"),
        (Refusal::BodySize, "transport", "BodySizeViolation"),
    ];
    for (refusal, context, kind) in rows {
        house.watch.refused(refusal, Transport::Http, Some("192.0.2.1:80".parse().unwrap()), "no");
        let (_, data) = house.told().remove(0);
        assert_eq!((&data["context"], &data["kind"]), (&json!(context), &json!(kind)));
        assert_eq!((&data["exception"]["message"], &data["remote"]), (&json!("no"), &json!("192.0.2.1:80")));
    }
    let security = house.watch.stats.summary().security;
    let all = serde_json::to_value(security).unwrap();
    assert!(all.as_object().unwrap().values().all(|count| *count == 1), "{all}");
}

#[test]
fn a_refusal_of_the_server_itself_is_a_401() {
    let house = house();
    house.watch.events.on_request(|request| request.reject("not you"));
    let rejection = house.call(&echo(Verdict::Ok), json!({})).unwrap_err();
    assert_eq!((rejection.status, rejection.code, &*rejection.message), (Some(401), -32000, "not you"));
    assert_eq!(house.watch.stats.summary().active_requests, 0, "the sight was dropped");
}

#[test]
fn with_nobody_listening_the_answer_passes_through() {
    let house = house();
    assert!(!house.watch.begin().is_heard());
    let body = house.call(&echo(Verdict::Ok), json!({})).unwrap();
    assert_eq!(body, ANSWER);
    assert_eq!(house.watch.stats.summary().total_requests, 1);
    assert!(size_of::<Sight>() <= 32);
}

#[test]
fn debug_shows_no_secrets() {
    let house = house();
    let shown = Arc::new(Mutex::new(String::new()));
    let text = Arc::clone(&shown);
    let names = "onMCPRequest,onMCPResponse,onMCPError,beforeAIToolExecute,afterAIToolExecute";
    house.watch.events.on(names, move |event| *text.lock().unwrap() += &format!("{event:?}")).unwrap();
    let params = json!({ "name": "echo", "arguments": { "password": "s3cret" } });
    house.call(&echo(Verdict::ToolError { message: "x" }), params).unwrap();
    let shown = shown.lock().unwrap();
    assert!(shown.contains("evt") && !shown.contains("s3cret"), "{shown}");
}
