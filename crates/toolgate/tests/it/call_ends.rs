//! Every call that began has exactly one end: in the events, in the statistics and in the audit log.

mod disconnect;
mod random;
mod tasks;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::events::AuditLog;
use toolgate::model::TaskSupport;
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Context, HandlerError, ProtocolError, Server, State, ToolSpec};

use crate::fixture::NamedSemaphores;

/// The time limit of handlers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What the tools of the server do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Behavior {
    Return,
    Fail,
    Panic,
    /// Waits until it is cancelled, or exceeds its time limit.
    Wait,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Tells calls apart.
    key: u64,
    behavior: Behavior,
    /// How often the handler gives way to others before it ends.
    #[serde(default)]
    yields: u32,
}

/// A server whose calls are recorded in every way there is.
struct Recorded {
    server: Server,
    semaphores: NamedSemaphores,
    log: AuditLog,
    lines: SharedBuffer,
    events: Arc<Mutex<RecordedEvents>>,
}

/// Outcomes by the key of the call. Each list has one element if all is well.
#[derive(Default)]
struct RecordedEvents {
    /// Keys of the tools that began.
    starts: Vec<u64>,
    tool_ends: BTreeMap<u64, Vec<&'static str>>,
    /// Requests that were offered to listeners, by method.
    requests: BTreeMap<String, u64>,
    responses: BTreeMap<String, u64>,
    /// Responses of all methods by outcome.
    outcomes: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Signals the drop of a handler.
struct DropSignal(NamedSemaphores);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.add_permit("dropped");
    }
}

async fn act(arguments: Arguments, semaphores: State<NamedSemaphores>) -> Result<String, HandlerError> {
    let _signal = DropSignal(NamedSemaphores::clone(&semaphores));
    semaphores.add_permit("started");
    for _ in 0..arguments.yields {
        tokio::task::yield_now().await;
    }
    match arguments.behavior {
        Behavior::Return => Ok(format!("done {}", arguments.key)),
        Behavior::Fail => Err(HandlerError::new("failed")),
        Behavior::Panic => panic!("a test panics"),
        Behavior::Wait => std::future::pending().await,
    }
}

impl Recorded {
    fn new() -> Recorded {
        let semaphores = NamedSemaphores::default();
        let server = Server::new("ends", "1.0.0")
            .state(semaphores.clone())
            .handler_timeout(TIMEOUT)
            .tool("act", act)
            .destructive()
            .tool("refuse", |_: Arguments| async { ProtocolError::invalid_params("refused") })
            .add_tool(
                ToolSpec::new("work", |arguments: Arguments, state: State<NamedSemaphores>, _: Context| {
                    act(arguments, state)
                })
                .task(TaskSupport::Required)
                .destructive(),
            )
            .resource("wait://here", |semaphores: State<NamedSemaphores>| async move {
                semaphores.add_permit("started");
                std::future::pending::<String>().await
            })
            .build()
            .unwrap();
        let lines = SharedBuffer::default();
        let log = AuditLog::new(lines.clone()).unwrap();
        log.attach(server.events());
        let events = Arc::new(Mutex::new(RecordedEvents::default()));
        let recorded = Arc::clone(&events);
        server.events().on_tool(move |event| {
            let mut recorded = recorded.lock().unwrap();
            let key = event.arguments()["key"].as_u64().unwrap();
            match event.outcome() {
                None => recorded.starts.push(key),
                Some(outcome) => recorded.tool_ends.entry(key).or_default().push(outcome.as_str()),
            }
        });
        let recorded = Arc::clone(&events);
        server.events().on_request(move |request| {
            *recorded.lock().unwrap().requests.entry(request.method().to_owned()).or_default() += 1;
        });
        let recorded = Arc::clone(&events);
        server.events().on_response(move |response| {
            let mut recorded = recorded.lock().unwrap();
            *recorded.responses.entry(response.request().method().to_owned()).or_default() += 1;
            *recorded.outcomes.entry(response.outcome().as_str()).or_default() += 1;
        });
        Recorded { server, semaphores, log, lines, events }
    }

    fn audit_lines(&self, event: &str) -> Vec<Value> {
        assert!(self.log.flush());
        let bytes = self.lines.0.lock().unwrap().clone();
        let lines = String::from_utf8(bytes).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == event).collect()
    }

    /// Waits until no request is in progress. Most ends need no time, but some come from another task.
    async fn wait_idle(&self) {
        for _ in 0..10_000 {
            let is_ended = {
                let events = self.events.lock().unwrap();
                events.starts.len() == events.tool_ends.values().map(Vec::len).sum::<usize>()
            };
            if is_ended && self.server.stats_summary().active_requests == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("a call has not ended: {:?}", self.server.stats_summary());
    }

    /// Checks that everything that began has ended once, and that all records agree.
    fn check(&self) {
        let events = self.events.lock().unwrap();
        let mut starts = events.starts.clone();
        starts.sort_unstable();
        assert_eq!(starts, events.tool_ends.keys().copied().collect::<Vec<_>>(), "each start has an end");
        assert!(
            events.tool_ends.values().all(|ends| ends.len() == 1),
            "one end each: {:?}",
            events.tool_ends
        );
        assert_eq!(events.requests, events.responses, "each request has an end");

        let stats = self.server.stats();
        assert_eq!(stats.active_requests, 0);
        assert_eq!(stats.requests.by_method, events.responses);
        assert_eq!(stats.requests.by_outcome.total(), stats.requests.total);
        let counted = serde_json::to_value(stats.requests.by_outcome).unwrap();
        for (outcome, count) in counted.as_object().unwrap() {
            let published = events.outcomes.get(&**outcome).copied().unwrap_or_default();
            assert_eq!(*count, json!(published), "{outcome}");
        }
        let calls: u64 = stats.tools.by_tool.values().map(|calls| calls.count).sum();
        assert_eq!(calls, stats.tools.total_invocations);
        assert_eq!(calls, starts.len() as u64);
        let mut by_outcome = BTreeMap::<&str, u64>::new();
        for ends in events.tool_ends.values() {
            *by_outcome.entry(ends[0]).or_default() += 1;
        }
        for outcome in ["ok", "tool_error", "protocol_error", "cancelled", "timeout", "panic"] {
            let counted: u64 = stats.tools.by_tool.values().map(|calls| outcome_count(calls, outcome)).sum();
            assert_eq!(counted, by_outcome.get(outcome).copied().unwrap_or_default(), "{outcome}");
        }
        for calls in stats.tools.by_tool.values() {
            assert_eq!(calls.by_outcome.total(), calls.count);
        }

        let responses = self.audit_lines("response");
        let mut by_outcome = BTreeMap::<String, u64>::new();
        for line in &responses {
            assert_eq!(line["ok"] == true, line["outcome"] == "ok", "{line}");
            assert!(line["ms"].is_f64(), "{line}");
            *by_outcome.entry(line["outcome"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        let published = events.outcomes.iter().map(|(outcome, count)| ((*outcome).to_owned(), *count));
        assert_eq!(by_outcome, published.collect(), "audit lines and events");
        let destructive = stats.tools.by_tool.iter().filter(|(tool, _)| *tool != "refuse");
        let begun: u64 = destructive.map(|(_, calls)| calls.count).sum();
        assert_eq!(
            self.audit_lines("begin").len() as u64,
            begun,
            "destructive tools have a line at the beginning"
        );
    }
}

fn outcome_count(calls: &toolgate::stats::ToolCalls, outcome: &str) -> u64 {
    serde_json::to_value(calls.by_outcome).unwrap()[outcome].as_u64().unwrap()
}

fn arguments(key: u64, behavior: &str) -> Value {
    json!({ "key": key, "behavior": behavior })
}

/// Clients of one protocol version over both framings. Over HTTP, the newest version cancels by disconnecting.
fn clients(server: &Server, version: TestVersion) -> [TestClient; 2] {
    [TestClient::new(server, version), TestClient::new(server, version).over_http()]
}

#[tokio::test]
async fn a_cancelled_call_ends_in_every_version() {
    for version in TestVersion::all() {
        let recorded = Recorded::new();
        for (key, client) in clients(&recorded.server, version).into_iter().enumerate() {
            let call = client.call("act", arguments(key as u64, "wait")).start();
            recorded.semaphores.acquire("started").await;
            assert_eq!(recorded.audit_lines("begin").len(), key + 1, "{version}: written before the end");
            call.cancel().await;
            recorded.semaphores.acquire("dropped").await;
        }
        recorded.wait_idle().await;
        let ends = recorded.events.lock().unwrap().tool_ends.clone();
        assert_eq!(ends, BTreeMap::from([(0, vec!["cancelled"]), (1, vec!["cancelled"])]), "{version}");
        let lines = recorded.audit_lines("response");
        let cancelled: Vec<_> = lines.iter().filter(|line| line["outcome"] == "cancelled").collect();
        assert_eq!(cancelled.len(), 2, "{version}: {lines:?}");
        for line in cancelled {
            assert_eq!((&line["name"], &line["status"]), (&json!("act"), &json!(499)), "{version}");
        }
        let act = recorded.server.stats().tools.by_tool["act"].clone();
        assert_eq!((act.count, act.by_outcome.cancelled, act.errors), (2, 2, 0), "{version}");
        recorded.check();
    }
}

#[tokio::test(start_paused = true)]
async fn every_other_end_is_told_apart_in_every_version() {
    for version in TestVersion::all() {
        let recorded = Recorded::new();
        for client in clients(&recorded.server, version) {
            let base = recorded.events.lock().unwrap().starts.len() as u64;
            for (key, behavior) in ["return", "fail", "panic", "wait"].into_iter().enumerate() {
                let _ = client.call("act", arguments(base + key as u64, behavior)).await;
            }
            let _ = client.call("refuse", arguments(base + 4, "return")).await;
            let _ = client.call("missing", arguments(base + 5, "return")).await;
            let ends = recorded.events.lock().unwrap().tool_ends.clone();
            let ends: Vec<_> = ends.range(base..).map(|(_, ends)| ends[0]).collect();
            assert_eq!(ends, ["ok", "tool_error", "panic", "timeout", "protocol_error"], "{version}");
        }
        let counts = recorded.server.stats().requests.by_outcome;
        assert_eq!((counts.tool_error, counts.panic, counts.timeout), (2, 2, 2), "{version}");
        assert_eq!((counts.protocol_error, counts.cancelled), (4, 0), "{version}");
        let metrics = toolgate::Servers::new();
        metrics.add(&recorded.server).unwrap();
        let metrics = metrics.prometheus();
        for line in [
            "mcp_request_outcomes_total{server=\"ends\",outcome=\"timeout\"} 2",
            "mcp_tool_outcomes_total{server=\"ends\",tool=\"act\",outcome=\"panic\"} 2",
            "mcp_tool_outcomes_total{server=\"ends\",tool=\"act\",outcome=\"cancelled\"} 0",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
        }
        recorded.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_times_out_or_is_cancelled_has_an_end() {
    let recorded = Recorded::new();
    let client = TestClient::new(&recorded.server, TestVersion::newest());
    client.read("wait://here").await.error();
    recorded.semaphores.acquire("started").await;
    let read = client.read("wait://here").start();
    recorded.semaphores.acquire("started").await;
    read.cancel().await;
    recorded.wait_idle().await;
    let stats = recorded.server.stats();
    assert_eq!((stats.requests.by_outcome.timeout, stats.requests.cancelled), (1, 1));
    assert_eq!(stats.resources.total_reads, 0, "none was read");
    recorded.check();
}

#[tokio::test]
async fn a_call_that_waits_for_a_listener_can_be_cancelled_too() {
    let recorded = Recorded::new();
    recorded.server.events().on_request_async(|request| async move {
        std::future::pending::<()>().await;
        request
    });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "act" } });
    let call = recorded.server.handle(request);
    assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err());
    let line = &recorded.audit_lines("response")[0];
    assert_eq!(
        (&line["outcome"], &line["name"], &line["transport"]),
        (&json!("cancelled"), &json!("act"), &json!("memory"))
    );
    recorded.check();
}
