use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};
use toolgate_wire::{RawJson, RequestId};

use super::background::MAX_QUEUED_EVENTS;
use super::*;
use crate::observe::events::{
    CallEnd, ErrorContext, ErrorEvent, RequestInfo, RequestInfoParts, ServerChange, ServerEvent, Transport,
};
use crate::observe::outcome::CallOutcome;
use crate::observe::stats::Stats;
use crate::request::Principal;
use crate::util::clock::{Clock, timer_now};

type CallLog = Arc<Mutex<Vec<String>>>;

fn record_call(calls: &CallLog, call: impl Into<String>) {
    lock(calls).push(call.into());
}

fn request_with(params: Value) -> RequestEvent {
    let parts = RequestInfoParts {
        id: Some(&RequestId::String("a".into())),
        method: "tools/call",
        params: Some(&RawJson::from(params)),
        headers: &Arc::default(),
        remote: None,
        principal: &Principal::anonymous(),
        transport: Transport::Stdio,
    };
    RequestEvent::new(Arc::new(RequestInfo::new(&"evt".into(), &Stats::new(Clock::manual()), &parts)))
}

fn request_event() -> RequestEvent {
    request_with(json!({ "name": "echo", "arguments": { "n": 1 } }))
}

fn response_event() -> ResponseEvent {
    let (info, ..) = request_event().into_parts();
    let body = br#"{"jsonrpc":"2.0","id":"a","result":1}"#;
    let end = CallEnd { outcome: CallOutcome::Ok, error: None, nanos: 5 };
    ResponseEvent::new(info, bytes::Bytes::from_static(body), 200, end)
}

fn server_event() -> ServerEvent {
    ServerEvent::new(ServerChange::Created, &"evt".into(), "about", "1.2.3")
}

fn error_event() -> ErrorEvent {
    ErrorEvent::new(&"evt".into(), ErrorContext::ScanClass, "no such class")
}

fn expect_ready(poll: ListenerPoll) -> RequestEvent {
    match poll {
        ListenerPoll::Ready(event) => event,
        ListenerPoll::Pending(_) => panic!("a listener is async"),
    }
}

async fn wait_ready(poll: ListenerPoll) -> RequestEvent {
    match poll {
        ListenerPoll::Ready(event) => event,
        ListenerPoll::Pending(event) => event.await,
    }
}

#[test]
fn subscribed_kinds_follow_subscriptions() {
    let parent = Events::new();
    let events = Events::for_server(Some(&parent));
    assert!(events.has_no_listeners() && !events.has_request_listeners() && !events.has_response_listeners());
    let own = events.on_request(|_| {});
    assert!(events.has_request_listeners() && !events.has_response_listeners() && !events.has_no_listeners());
    assert!(parent.has_no_listeners());
    own.off();
    assert!(events.has_no_listeners());
    let inherited = parent.on_response(|_| {});
    assert!(events.has_response_listeners() && !events.has_request_listeners());
    inherited.off();
    inherited.off();
    assert!(events.has_no_listeners());
}

#[test]
fn dropping_a_subscription_keeps_the_listener() {
    let events = Events::new();
    drop(events.on_error(|_| {}));
    assert!(!events.has_no_listeners());
}

#[test]
fn a_list_of_names_subscribes_to_each() {
    let events = Events::new();
    let calls = CallLog::default();
    let log = Arc::clone(&calls);
    let listener = move |event: &mut Event| record_call(&log, format!("{} {}", event.name(), event.server()));
    let subscription =
        events.on(" onMCPRequest, onmcpresponse,onMCPError,onMCPServerCreate ", listener).unwrap();
    expect_ready(events.notify_request(request_event()));
    events.notify_response(response_event());
    events.publish(error_event());
    events.publish(server_event());
    events.publish(ServerEvent::new(ServerChange::Removed, &"evt".into(), "", ""));
    let expected = ["onMCPRequest evt", "onMCPResponse evt", "onMCPError evt", "onMCPServerCreate evt"];
    assert_eq!(*lock(&calls), expected);
    subscription.off();
    events.publish(error_event());
    assert_eq!(lock(&calls).len(), 4);
}

#[test]
fn an_unknown_name_is_rejected_with_the_known_ones() {
    let events = Events::new();
    let message = events.on("onMCPRequest,onMCPFoo", |_| {}).unwrap_err().to_string();
    assert!(message.starts_with("unknown event: onMCPFoo; known are onMCPServerCreate, "), "{message}");
    for kind in EventKind::ALL {
        assert!(message.contains(kind.name()), "{message}");
        assert!(events.on(kind.name(), |_| {}).is_ok());
    }
    assert!(events.on(" , ", |_| {}).is_err());
}

#[test]
fn the_first_rejection_of_a_request_counts() {
    let events = Events::new();
    events.on_request(|request| request.reject_with(429, -32005, "too many"));
    events.on_request(|request| {
        assert!(request.is_rejected());
        request.reject("later");
    });
    let (_, _, rejection) = expect_ready(events.notify_request(request_event())).into_parts();
    let rejection = rejection.unwrap();
    assert_eq!((rejection.status, rejection.code, &*rejection.message), (Some(429), -32005, "too many"));

    let events = Events::new();
    events.on_request(|request| request.reject("Rate limit exceeded"));
    let rejection = expect_ready(events.notify_request(request_event())).into_parts().2.unwrap();
    assert_eq!(
        (rejection.status, rejection.code, &*rejection.message),
        (Some(200), -32000, "Rate limit exceeded")
    );
}

#[test]
fn a_request_can_be_changed() {
    let events = Events::new();
    events.on_request(|request| {
        assert_eq!((request.id(), request.method()), (json!("a"), "tools/call"));
        assert_eq!(request.subject().as_deref(), Some("echo"));
        request.params_mut()["arguments"]["n"] = json!(2);
        request.params_mut()["name"] = json!("other");
        assert_eq!(request.subject().as_deref(), Some("other"));
    });
    let (info, is_changed, rejection) = expect_ready(events.notify_request(request_event())).into_parts();
    assert!(is_changed && rejection.is_none());
    assert_eq!(info.params.as_ref().unwrap().to_value(), json!({ "name": "other", "arguments": { "n": 2 } }));
    assert_eq!(*info.params(), json!({ "name": "other", "arguments": { "n": 2 } }));

    let events = Events::new();
    events.on_request(|request| request.set_method("ping"));
    let (info, is_changed, _) = expect_ready(events.notify_request(request_event())).into_parts();
    assert!(is_changed && info.method() == "ping" && info.params.is_some());

    let events = Events::new();
    events.on_request(|request| *request.params_mut() = json!("nonsense"));
    let (info, is_changed, _) = expect_ready(events.notify_request(request_event())).into_parts();
    assert!(is_changed && info.params.is_none());
    assert_eq!(*info.params(), json!({}));

    let (info, is_changed, _) = expect_ready(Events::new().notify_request(request_event())).into_parts();
    assert!(!is_changed && info.params.is_some());
}

#[test]
fn a_response_can_be_replaced_but_keeps_its_id() {
    let events = Events::new();
    events.on_response(|response| response.set_response(json!({ "id": 99, "result": "other" })));
    events.on_response(|response| assert_eq!(response.response()["result"], "other"));
    events.on_response(|response| response.set_response(json!("no object")));
    let sent: Value = serde_json::from_slice(&events.notify_response(response_event()).into_bytes()).unwrap();
    assert_eq!(sent, json!({ "jsonrpc": "2.0", "id": "a", "result": "other" }));
}

#[test]
fn the_changes_of_a_panicking_listener_are_undone_and_reported() {
    let events = Events::new();
    let calls = CallLog::default();
    let log = Arc::clone(&calls);
    events.on_request(|request| {
        request.set_method("broken");
        panic!("first")
    });
    events.on_request(|request| request.params_mut()["arguments"]["n"] = json!(3));
    events.on_response(|response| {
        response.set_response(json!({ "result": "broken" }));
        panic!("{}", String::from("second"))
    });
    events.on_error(move |error| record_call(&log, format!("{} {}", error.context(), error.message())));
    events.on_error(|_| panic!("third"));
    let (info, ..) = expect_ready(events.notify_request(request_event())).into_parts();
    assert_eq!((info.method(), &info.params()["arguments"]["n"]), ("tools/call", &json!(3)));
    assert_eq!(events.notify_response(response_event()).response()["result"], json!(1));
    assert_eq!(
        *lock(&calls),
        ["listener a listener panicked: first", "listener a listener panicked: second"]
    );
}

#[test]
fn a_rejection_before_a_panic_counts() {
    let events = Events::new();
    events.on_request(|request| {
        request.reject("no");
        panic!("oops")
    });
    assert_eq!(expect_ready(events.notify_request(request_event())).into_parts().2.unwrap().message, "no");
}

#[test]
fn a_listener_cannot_replace_an_event_by_another_kind() {
    let events = Events::new();
    events.on("onMCPRequest,onMCPResponse", |event| *event = error_event().into()).unwrap();
    assert_eq!(expect_ready(events.notify_request(request_event())).method(), "tools/call");
    assert!(events.notify_response(response_event()).is_success());
}

#[test]
fn the_parent_gets_requests_first_and_responses_last() {
    let parent = Events::new();
    let events = Events::for_server(Some(&parent));
    let calls = CallLog::default();
    for (bus, name) in [(&events, "own"), (&parent, "parent")] {
        let log = Arc::clone(&calls);
        bus.on_request(move |_| record_call(&log, format!("{name} request")));
        let log = Arc::clone(&calls);
        bus.on_response(move |response| {
            record_call(&log, format!("{name} {}", response.response()["result"]))
        });
    }
    events.on_response(|response| response.set_response(json!({ "result": 2 })));
    expect_ready(events.notify_request(request_event()));
    events.notify_response(response_event());
    assert_eq!(*lock(&calls), ["parent request", "own request", "own 1", "parent 2"]);

    let rejection = {
        parent.on_request(|request| request.reject("by parent"));
        expect_ready(events.notify_request(request_event())).into_parts().2.unwrap()
    };
    assert_eq!(rejection.status, Some(200));
}

#[test]
fn listeners_can_be_added_and_removed_during_delivery() {
    let events = Events::new();
    let n_calls = Arc::new(AtomicU64::new(0));
    let slot: Arc<Mutex<Option<Subscription>>> = Arc::default();
    let (slot_in_listener, counter) = (Arc::clone(&slot), Arc::clone(&n_calls));
    let subscription = events.on_error(move |_| {
        counter.fetch_add(1, SeqCst);
        if let Some(subscription) = lock(&slot_in_listener).take() {
            subscription.off();
        }
    });
    *lock(&slot) = Some(subscription);
    events.publish(error_event());
    events.publish(error_event());
    assert_eq!(n_calls.load(SeqCst), 1);

    let n_calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let subscription = events.on_server(|_| {});
                    events.publish(server_event());
                    n_calls.fetch_add(1, SeqCst);
                    subscription.off();
                }
            });
        }
    });
    assert_eq!(n_calls.load(SeqCst), 800);
    assert!(events.has_no_listeners(), "all are off");
}

#[tokio::test]
async fn async_request_listeners_run_in_order() {
    let events = Events::new();
    let calls = CallLog::default();
    let log = Arc::clone(&calls);
    events.on_request(move |_| record_call(&log, "first"));
    let log = Arc::clone(&calls);
    events.on_request_async(move |mut request| {
        let log = Arc::clone(&log);
        async move {
            tokio::task::yield_now().await;
            record_call(&log, "second");
            request.params_mut()["arguments"]["n"] = json!(5);
            request.reject("no");
            request
        }
    });
    let log = Arc::clone(&calls);
    events.on_request(move |request| {
        record_call(&log, format!("third {}", request.params()["arguments"]["n"]))
    });
    let (info, _, rejection) = wait_ready(events.notify_request(request_event())).await.into_parts();
    assert_eq!(*lock(&calls), ["first", "second", "third 5"]);
    assert_eq!(info.params()["arguments"]["n"], json!(5));
    assert_eq!(rejection.unwrap().status, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_stalls_times_out_and_is_then_suspended() {
    let events = Events::new();
    let n_calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&n_calls);
    events.set_listener_timeout(Duration::from_secs(2));
    events.on_request_async(move |request| {
        counter.fetch_add(1, SeqCst);
        async move {
            std::future::pending::<()>().await;
            request
        }
    });
    let errors = CallLog::default();
    let log = Arc::clone(&errors);
    events.on_error(move |error| record_call(&log, error.message()));
    for round in 1..=3 {
        let start = timer_now();
        let event = wait_ready(events.notify_request(request_event())).await;
        assert!(!event.is_rejected());
        assert_eq!(start.elapsed().as_secs(), 2, "in round {round}");
    }
    let start = timer_now();
    wait_ready(events.notify_request(request_event())).await;
    assert_eq!((start.elapsed().as_secs(), n_calls.load(SeqCst), events.dropped()), (0, 3, 1));
    tokio::time::advance(Duration::from_secs(61)).await;
    wait_ready(events.notify_request(request_event())).await;
    assert_eq!(n_calls.load(SeqCst), 4, "the suspension has ended");
    assert_eq!(*lock(&errors), ["a listener took longer than 2s"; 4]);
}

#[tokio::test]
async fn async_listeners_that_panic_are_caught() {
    let events = Events::new();
    let errors = CallLog::default();
    let log = Arc::clone(&errors);
    events.on_error(move |error| record_call(&log, error.message()));
    events.on_request_async(|request| async move {
        if request.id() == "a" {
            panic!("later");
        }
        request
    });
    events.on_request_async(|request| {
        assert!(request.id().is_null(), "at once");
        async move { request }
    });
    events.on_error_async(|_| async { panic!("only logged") });
    let event = wait_ready(events.notify_request(request_event())).await;
    assert_eq!(event.method(), "tools/call");
    events.wait_idle().await;
    assert_eq!(*lock(&errors), ["a listener panicked: later", "a listener panicked: at once"]);
}

#[tokio::test]
async fn background_listeners_run_later() {
    let events = Events::new();
    let calls = CallLog::default();
    let log = Arc::clone(&calls);
    events.on_response_async(move |response| {
        let log = Arc::clone(&log);
        async move { record_call(&log, response.response()["result"].to_string()) }
    });
    let log = Arc::clone(&calls);
    let all = move |event: Event| {
        let log = Arc::clone(&log);
        async move { record_call(&log, event.name()) }
    };
    events.on_async("onMCPRequest,onMCPServerCreate,onMCPError", all).unwrap();
    events.notify_response(response_event());
    expect_ready(events.notify_request(request_event()));
    events.publish(server_event());
    events.publish(error_event());
    assert!(lock(&calls).is_empty(), "no listener has run yet");
    events.wait_idle().await;
    assert_eq!(*lock(&calls), ["1", "onMCPRequest", "onMCPServerCreate", "onMCPError"]);
    assert_eq!(events.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_its_oldest_events() {
    let events = Events::new();
    let messages = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&messages);
    events.on_error_async(move |error| {
        lock(&log).push(error.message().to_owned());
        async {}
    });
    for number in 0..MAX_QUEUED_EVENTS + 10 {
        events.publish(ErrorEvent::new(&"evt".into(), ErrorContext::Callback, number.to_string()));
    }
    assert_eq!(events.dropped(), 10);
    events.wait_idle().await;
    let messages = lock(&messages);
    assert_eq!((messages.len(), &*messages[0]), (MAX_QUEUED_EVENTS, "10"));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_background_listener_does_not_block_others() {
    let events = Events::new();
    let n_calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&n_calls);
    events.on_server_async(|_| std::future::pending());
    events.on_server_async(move |_| {
        counter.fetch_add(1, SeqCst);
        async {}
    });
    for _ in 0..10 {
        events.publish(server_event());
    }
    events.wait_idle().await;
    assert_eq!((n_calls.load(SeqCst), events.dropped()), (10, 7), "suspended after three stalls");
}

#[test]
fn events_published_outside_of_a_runtime_wait_for_the_next_one() {
    let events = Events::new();
    let calls = CallLog::default();
    let log = Arc::clone(&calls);
    events.on_server_async(move |event| {
        record_call(&log, event.version());
        async {}
    });
    events.publish(server_event());
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            events.publish(server_event());
            events.wait_idle().await;
        });
    }
    assert_eq!(*lock(&calls), ["1.2.3"; 3]);
}

#[tokio::test]
async fn the_background_task_ends_with_the_last_handle() {
    let events = Events::new();
    let owner = Arc::new(());
    let token = Arc::clone(&owner);
    events.on_server_async(move |_| {
        let _token = &token;
        async {}
    });
    events.publish(server_event());
    let other = events.clone();
    drop(events);
    other.wait_idle().await;
    assert_eq!(Arc::strong_count(&owner), 2);
    other.publish(server_event());
    drop(other);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&owner), 1, "the task has ended and its listeners are dropped");
}
