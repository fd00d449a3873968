use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::counters::CounterShard;
use super::*;

const PING: RequestEnd<'static> = RequestEnd { method: "ping", subject: None, status: EndStatus::Ok };

fn tool<'a>(name: &'a str, status: EndStatus<'a>) -> RequestEnd<'a> {
    RequestEnd { method: "tools/call", subject: Some(Subject::Tool(name)), status }
}

fn record_after(stats: &Arc<Stats>, clock: &Clock, millis: u64, end: &RequestEnd<'_>) {
    let active = stats.begin().unwrap();
    clock.advance(Duration::from_millis(millis));
    stats.end(active, end);
}

fn stats() -> (Arc<Stats>, Clock) {
    let clock = Clock::manual();
    // The 2nd of January 1970.
    clock.advance(Duration::from_secs(86_400));
    (Stats::new(clock.clone()), clock)
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_keys_are_those_of_the_dashboards() {
    let (stats, _) = stats();
    let summary = serde_json::to_value(stats.summary()).unwrap();
    let expected = "uptime totalRequests successRate avgResponseTime totalToolInvocations totalResourceReads \
        totalPromptGenerations totalErrors totalCancelled lastRequestAt activeRequests requestsPerMinute security";
    assert_eq!(keys(&summary), expected.split_whitespace().collect());
    let detail = serde_json::to_value(stats.detail()).unwrap();
    let rows = [
        (
            "",
            "enabled createdAt uptime activeRequests requestsPerMinute security requests tools resources \
             prompts errors",
        ),
        (
            "/security",
            "authFailures apiKeyFailures bodySizeViolations ipFilterFailures originFailures rateLimited",
        ),
        (
            "/requests",
            "total successful failed cancelled byOutcome byMethod responseTimes avgResponseTime \
             minResponseTime maxResponseTime p50ResponseTime p95ResponseTime p99ResponseTime lastRequestAt",
        ),
        (
            "/tools",
            "totalInvocations byTool executionTimes avgExecutionTime minExecutionTime maxExecutionTime \
             p50ExecutionTime p95ExecutionTime p99ExecutionTime",
        ),
        ("/resources", "totalReads byUri"),
        ("/prompts", "totalGenerations byName"),
        ("/errors", "total byCode byTool lastError"),
        ("/errors/lastError", ""),
    ];
    for (pointer, expected) in rows {
        assert_eq!(
            keys(detail.pointer(pointer).unwrap()),
            expected.split_whitespace().collect(),
            "in {pointer:?}"
        );
    }
}

#[test]
fn a_new_server_has_empty_statistics() {
    let (stats, _) = stats();
    let summary = stats.summary();
    assert_eq!(summary.last_request_at, "");
    assert_eq!(summary.success_rate, 0.0);
    assert_eq!(summary, StatsSummary::default());
    let detail = stats.detail();
    assert!(detail.enabled);
    assert_eq!(detail.created_at, "1970-01-02T00:00:00.000Z");
    assert_eq!(detail.requests, RequestStats::default());
    assert_eq!(detail.errors.last_error, None);
}

#[test]
fn requests_are_counted_by_kind_and_outcome() {
    let (stats, clock) = stats();
    record_after(&stats, &clock, 2, &tool("echo", EndStatus::Ok));
    record_after(&stats, &clock, 4, &tool("echo", EndStatus::ToolError { message: "no" }));
    record_after(&stats, &clock, 6, &tool("boom", EndStatus::Ok));
    let read = RequestEnd {
        method: "resources/read",
        subject: Some(Subject::Resource("a://b")),
        status: EndStatus::Ok,
    };
    record_after(&stats, &clock, 1, &read);
    let get =
        RequestEnd { method: "prompts/get", subject: Some(Subject::Prompt("hi")), status: EndStatus::Ok };
    record_after(&stats, &clock, 1, &get);
    let error = EndStatus::ProtocolError { code: -32601, message: "no such method: x" };
    record_after(&stats, &clock, 1, &RequestEnd { method: "x", subject: None, status: error });
    stats.record_rejection(SecurityRejection::Auth);
    stats.record_rejection(SecurityRejection::RateLimit);
    stats.record_rejection(SecurityRejection::RateLimit);

    let detail = serde_json::to_value(stats.detail()).unwrap();
    let rows = [
        ("/uptime", json!(15)),
        ("/activeRequests", json!(0)),
        ("/requestsPerMinute", json!(6)),
        ("/security/authFailures", json!(1)),
        ("/security/rateLimited", json!(2)),
        ("/security/originFailures", json!(0)),
        ("/requests/total", json!(6)),
        ("/requests/successful", json!(4)),
        ("/requests/failed", json!(2)),
        ("/requests/byMethod", json!({ "prompts/get": 1, "resources/read": 1, "tools/call": 3, "x": 1 })),
        ("/requests/responseTimes", json!([2.0, 4.0, 6.0, 1.0, 1.0, 1.0])),
        ("/requests/avgResponseTime", json!(2.5)),
        ("/requests/minResponseTime", json!(1.0)),
        ("/requests/maxResponseTime", json!(6.0)),
        ("/requests/lastRequestAt", json!("1970-01-02T00:00:00.015Z")),
        ("/tools/totalInvocations", json!(3)),
        (
            "/tools/byTool/echo",
            json!({
                "count": 2, "totalTime": 6.0, "avgTime": 3.0, "errors": 1,
                "byOutcome": {
                    "ok": 1, "tool_error": 1, "protocol_error": 0, "cancelled": 0, "timeout": 0, "panic": 0,
                },
            }),
        ),
        ("/tools/byTool/boom/count", json!(1)),
        ("/tools/executionTimes", json!([2.0, 4.0, 6.0])),
        ("/tools/avgExecutionTime", json!(4.0)),
        ("/tools/minExecutionTime", json!(2.0)),
        ("/tools/maxExecutionTime", json!(6.0)),
        ("/resources", json!({ "totalReads": 1, "byUri": { "a://b": 1 } })),
        ("/prompts", json!({ "totalGenerations": 1, "byName": { "hi": 1 } })),
        ("/errors/total", json!(2)),
        ("/errors/byCode", json!({ "-32601": 1, "isError": 1 })),
        ("/errors/byTool", json!({ "echo": 1 })),
        (
            "/errors/lastError",
            json!({ "code": -32601, "message": "no such method: x", "timestamp": "1970-01-02T00:00:00.015Z" }),
        ),
    ];
    for (pointer, expected) in rows {
        assert_eq!(detail.pointer(pointer), Some(&expected), "{pointer}");
    }
    let summary = stats.summary();
    assert_eq!((summary.total_requests, summary.total_errors, summary.uptime), (6, 2, 15));
    assert!((summary.success_rate - 66.666_666).abs() < 1e-3);
    assert_eq!(summary.avg_response_time, 2.5);
    assert_eq!(summary.last_request_at, "1970-01-02T00:00:00.015Z");
    let counts =
        (summary.total_tool_invocations, summary.total_resource_reads, summary.total_prompt_generations);
    assert_eq!(counts, (3, 1, 1));
}

#[test]
fn a_tool_that_ended_with_a_protocol_error_was_called() {
    let (stats, clock) = stats();
    record_after(
        &stats,
        &clock,
        1,
        &tool("echo", EndStatus::ProtocolError { code: -32602, message: "no such row" }),
    );
    let detail = stats.detail();
    let echo = &detail.tools.by_tool["echo"];
    assert_eq!((echo.count, echo.errors, echo.by_outcome.protocol_error), (1, 1, 1));
    assert_eq!(detail.errors.by_tool["echo"], 1);
    assert_eq!(detail.requests.by_method["tools/call"], 1);
}

#[test]
fn durations_below_a_millisecond_are_reported() {
    let (stats, clock) = stats();
    let active = stats.begin().unwrap();
    clock.advance(Duration::from_nanos(12_500));
    assert_eq!(stats.elapsed(&active), 12_500);
    assert_eq!(stats.end(active, &PING), 12_500);
    assert_eq!(stats.detail().requests.response_times, [0.0125]);
}

#[test]
fn disabled_statistics_do_not_change() {
    let (stats, clock) = stats();
    record_after(&stats, &clock, 1, &PING);
    let active = stats.begin().unwrap();
    stats.disable();
    assert!(!stats.is_enabled());
    let before = stats.detail();
    assert!(stats.begin().is_none());
    stats.record_rejection(SecurityRejection::Ip);
    stats.end(active, &PING);
    let frozen = stats.detail();
    assert_eq!((frozen.requests, frozen.security), (before.requests, before.security));
    assert_eq!((before.active_requests, frozen.active_requests), (1, 0));
    stats.enable();
    record_after(&stats, &clock, 1, &PING);
    assert_eq!(stats.summary().total_requests, 2);
}

#[test]
fn a_reset_keeps_active_requests_and_the_creation_time() {
    let (stats, clock) = stats();
    record_after(&stats, &clock, 1, &tool("echo", EndStatus::ToolError { message: "x" }));
    stats.record_rejection(SecurityRejection::BodySize);
    let active = stats.begin().unwrap();
    stats.reset();
    let detail = stats.detail();
    assert_eq!(detail.active_requests, 1);
    assert_eq!(detail.created_at, "1970-01-02T00:00:00.000Z");
    assert_eq!(detail.uptime, 1);
    let fresh = StatsDetail { enabled: true, active_requests: 1, uptime: 1, ..StatsDetail::default() };
    assert_eq!(StatsDetail { created_at: String::new(), ..detail }, fresh);
    drop(active);
    assert_eq!(stats.summary().active_requests, 0);
}

#[test]
fn an_abandoned_request_is_no_longer_active() {
    let (stats, _) = stats();
    let active = [stats.begin(), stats.begin()];
    assert_eq!(stats.summary().active_requests, 2);
    drop(active);
    let summary = stats.summary();
    assert_eq!((summary.active_requests, summary.total_requests), (0, 0));
}

#[test]
fn a_request_may_end_on_another_thread() {
    let (stats, _) = stats();
    let active: Vec<ActiveRequest> = (0..20)
        .map(|_| std::thread::scope(|scope| scope.spawn(|| stats.begin().unwrap()).join().unwrap()))
        .collect();
    assert_eq!(stats.summary().active_requests, 20);
    for active in active {
        std::thread::scope(|scope| _ = scope.spawn(|| stats.end(active, &PING)));
    }
    let summary = stats.summary();
    assert_eq!((summary.active_requests, summary.total_requests), (0, 20));
}

#[test]
fn failed_requests_have_a_hundred_names_from_any_number_of_threads() {
    let (stats, _) = stats();
    // All threads alive at once, so that each has a shard.
    let all = std::sync::Barrier::new(12);
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (stats, all) = (&stats, &all);
            scope.spawn(move || {
                stats.end(stats.begin().unwrap(), &tool("echo", EndStatus::Ok));
                all.wait();
                for number in 0..50 {
                    let method = format!("method {thread} {number}");
                    let status = EndStatus::ProtocolError { code: -32601, message: "no" };
                    stats.end(stats.begin().unwrap(), &RequestEnd { method: &method, subject: None, status });
                }
            });
        }
    });
    let detail = stats.detail();
    let n_names = detail.requests.by_method.len();
    assert!((50..=102).contains(&n_names), "a hundred, `tools/call`, and `(other)`, not {n_names}");
    assert_eq!(detail.requests.by_method["tools/call"], 12);
    assert_eq!(detail.tools.by_tool["echo"].count, 12);
    assert_eq!(detail.requests.by_method.values().sum::<u64>(), 12 * 51);
}

#[test]
fn requests_per_minute_covers_sixty_seconds() {
    let (stats, clock) = stats();
    for _ in 0..90 {
        record_after(&stats, &clock, 1000, &PING);
    }
    assert_eq!(stats.summary().requests_per_minute, 60);
    clock.advance(Duration::from_secs(30));
    assert_eq!(stats.summary().requests_per_minute, 30);
    clock.advance(Duration::from_secs(300));
    assert_eq!(stats.summary().requests_per_minute, 0);
}

#[test]
fn the_newest_1000_samples_are_kept() {
    let (stats, clock) = stats();
    for number in 0..1500 {
        record_after(&stats, &clock, number, &PING);
    }
    let requests = stats.detail().requests;
    assert_eq!((requests.total, requests.response_times.len()), (1500, 1000));
    assert_eq!((requests.response_times[0], requests.response_times[999]), (500.0, 1499.0));
    assert_eq!((requests.min_response_time, requests.max_response_time), (0.0, 1499.0));
}

#[test]
fn concurrent_requests_are_all_counted() {
    let stats = Stats::new(Clock::system());
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let stats = &stats;
            scope.spawn(move || {
                let name = format!("tool {}", thread % 8);
                for number in 0..1000 {
                    let status =
                        if number % 10 == 0 { EndStatus::ToolError { message: "x" } } else { EndStatus::Ok };
                    stats.end(stats.begin().unwrap(), &tool(&name, status));
                }
            });
        }
    });
    let detail = stats.detail();
    let requests = &detail.requests;
    assert_eq!((requests.total, requests.successful, requests.failed), (64_000, 57_600, 6_400));
    assert_eq!(requests.by_method["tools/call"], 64_000);
    assert_eq!(requests.response_times.len(), 1000);
    assert!(requests.min_response_time <= requests.avg_response_time);
    assert!(requests.avg_response_time <= requests.max_response_time);
    assert_eq!(detail.tools.total_invocations, 64_000);
    assert_eq!(detail.tools.by_tool.len(), 8);
    for calls in detail.tools.by_tool.values() {
        assert_eq!((calls.count, calls.errors), (8000, 800));
    }
    assert_eq!(detail.errors.by_code["isError"], 6400);
    assert_eq!(detail.active_requests, 0);
}

#[test]
fn a_concurrent_reset_makes_no_number_negative() {
    let stats = Stats::new(Clock::system());
    let is_finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let recorders: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for number in 0..5000 {
                        let status = if number % 2 == 0 {
                            EndStatus::Ok
                        } else {
                            EndStatus::ToolError { message: "x" }
                        };
                        stats.end(stats.begin().unwrap(), &tool("echo", status));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_finished.load(SeqCst) {
                stats.reset();
                let detail = stats.detail();
                let requests = detail.requests;
                assert!(requests.total <= 40_000 && requests.failed <= 20_000);
                assert!(requests.successful <= requests.total);
                assert!(requests.min_response_time <= requests.avg_response_time);
                assert!(requests.avg_response_time <= requests.max_response_time);
                assert!(detail.active_requests <= 8);
                let summary = stats.summary();
                assert!((0.0..=100.0).contains(&summary.success_rate), "{}", summary.success_rate);
            }
        });
        recorders.into_iter().for_each(|recorder| recorder.join().unwrap());
        is_finished.store(true, SeqCst);
    });
    assert_eq!(stats.summary().active_requests, 0);
    stats.reset();
    assert_eq!(stats.summary().total_requests, 0);
}

#[test]
fn clients_cannot_exhaust_memory_with_names() {
    let (stats, clock) = stats();
    let error = EndStatus::ProtocolError { code: -32601, message: &"x".repeat(100_000) };
    for number in 0..3000 {
        let method = format!("method {number} {}", "y".repeat(1000));
        record_after(&stats, &clock, 0, &RequestEnd { method: &method, subject: None, status: error });
        let uri = format!("a://{number}");
        let subject = Some(Subject::Resource(&uri));
        record_after(
            &stats,
            &clock,
            0,
            &RequestEnd { method: "resources/read", subject, status: EndStatus::Ok },
        );
    }
    let detail = stats.detail();
    assert_eq!(detail.requests.by_method["resources/read"], 3000, "methods that exist keep their name");
    assert!(detail.requests.by_method.len() <= 102);
    assert!(detail.requests.by_method.keys().all(|name| name.len() <= 256));
    assert_eq!(detail.resources.by_uri.len(), 1001);
    assert_eq!(detail.resources.by_uri["(other)"], 2000);
    assert_eq!(detail.errors.last_error.unwrap().message.len(), 256);
}

#[test]
fn sizes_are_as_documented() {
    assert!(size_of::<Stats>() <= 128, "{}", size_of::<Stats>());
    assert!(size_of::<Counters>() <= 768, "{}", size_of::<Counters>());
    assert!(size_of::<CounterShard>() <= 768, "{}", size_of::<CounterShard>());
    assert_eq!(size_of::<Option<ActiveRequest>>(), 16);
}

proptest! {
    #[test]
    fn totals_are_consistent(calls in prop::collection::vec((0u64..50, 0u8..4, 0u8..6), 0..200)) {
        let (stats, clock) = stats();
        for (millis, subject, status) in &calls {
            let subject = match subject {
                0 => Some(Subject::Tool("t")),
                1 => Some(Subject::Resource("u://")),
                2 => Some(Subject::Prompt("p")),
                _ => None,
            };
            let status = match status {
                0 => EndStatus::Ok,
                1 => EndStatus::ToolError { message: "m" },
                2 => EndStatus::ProtocolError { code: -32603, message: "m" },
                3 => EndStatus::Cancelled,
                4 => EndStatus::TimedOut { code: ErrorCode::ToolError, message: "m" },
                _ => EndStatus::Panicked { code: ErrorCode::Number(-32603), message: "m" },
            };
            record_after(&stats, &clock, *millis, &RequestEnd { method: "m", subject, status });
        }
        let detail = stats.detail();
        let requests = &detail.requests;
        prop_assert_eq!(requests.total, calls.len() as u64);
        prop_assert_eq!(requests.successful + requests.failed + requests.cancelled, requests.total);
        prop_assert_eq!(requests.by_outcome.total(), requests.total);
        for calls in detail.tools.by_tool.values() {
            prop_assert_eq!(calls.by_outcome.total(), calls.count);
        }
        prop_assert_eq!(requests.by_method.values().sum::<u64>(), requests.total);
        prop_assert_eq!(requests.response_times.len() as u64, requests.total.min(1000));
        prop_assert_eq!(detail.errors.by_code.values().sum::<u64>(), requests.failed);
        // A tool counts however it ended, a resource or a prompt if it was read.
        let is_counted = |subject: u8, status: u8| subject == 0 || (subject < 3 && status == 0);
        let completed = calls.iter().filter(|(_, subject, status)| is_counted(*subject, *status)).count();
        let counted = detail.tools.total_invocations + detail.resources.total_reads
            + detail.prompts.total_generations;
        prop_assert_eq!(counted, completed as u64);
        prop_assert!(requests.min_response_time <= requests.avg_response_time);
        prop_assert!(requests.avg_response_time <= requests.max_response_time);
    }
}
