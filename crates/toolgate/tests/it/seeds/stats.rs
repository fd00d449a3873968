//! Statistics.

use serde_json::{Value, json};
use toolgate::{HandlerError, PromptSpec, ResourceSpec, Server, Servers, ToolSpec};

use super::{PING, ask, call, echo_server, empty_server, post};

fn stats_server() -> Server {
    let boom = || async { Err::<String, _>(HandlerError::new("boom")) };
    echo_server("s")
        .add_tool(ToolSpec::new("boom", boom))
        .unwrap()
        .add_resource(ResourceSpec::new("x://y", || async { "y" }))
        .unwrap()
        .add_prompt(PromptSpec::new("p", || async { "p" }))
        .unwrap()
}

fn detailed_stats(server: &Server) -> Value {
    json!(server.stats())
}

#[test]
fn s1_217_on_unless_said_otherwise() {
    assert!(empty_server("x").is_stats_enabled());
    assert!(!Servers::new().server_with("x", |server| server.statistics(false)).is_stats_enabled());
}

#[test]
fn s1_219_before_the_first_request() {
    assert_eq!(json!(empty_server("x").stats_summary())["lastRequestAt"], "");
}

#[tokio::test]
async fn s1_220_the_summary_knows_more() {
    let server = echo_server("x").add_basic_auth("u", "p");
    post(&server, &[], PING).await;
    ask(&server, "ping", json!({})).await;
    let summary = json!(server.stats_summary());
    assert_eq!((&summary["activeRequests"], &summary["requestsPerMinute"]), (&json!(0), &json!(1)));
    for counter in ["authFailures", "apiKeyFailures", "bodySizeViolations", "ipFilterFailures"] {
        assert_eq!(summary["security"][counter], u64::from(counter == "authFailures"), "{counter}");
    }
    assert_ne!(summary["lastRequestAt"], "");
}

#[tokio::test]
async fn s1_221_no_request_is_no_success() {
    let server = empty_server("x");
    assert_eq!(json!(server.stats_summary())["successRate"].as_f64(), Some(0.0));
    ask(&server, "ping", json!({})).await;
    assert_eq!(json!(server.stats_summary())["successRate"].as_f64(), Some(100.0));
}

#[tokio::test]
async fn s1_222_requests() {
    let server = stats_server();
    ask(&server, "ping", json!({})).await;
    ask(&server, "nope", json!({})).await;
    let requests = detailed_stats(&server)["requests"].clone();
    assert_eq!(
        (&requests["total"], &requests["successful"], &requests["failed"]),
        (&json!(2), &json!(1), &json!(1))
    );
}

#[tokio::test]
async fn s1_223_requests_by_method() {
    let server = stats_server();
    ask(&server, "tools/list", json!({})).await;
    assert_eq!(detailed_stats(&server)["requests"]["byMethod"]["tools/list"], 1);
}

#[tokio::test]
async fn s1_224_times_of_requests() {
    let server = stats_server();
    for _ in 0..3 {
        ask(&server, "tools/list", json!({})).await;
    }
    let requests = detailed_stats(&server)["requests"].clone();
    assert_eq!(requests["responseTimes"].as_array().unwrap().len(), 3);
    let time = |key: &str| requests[key].as_f64().unwrap();
    assert!(time("minResponseTime") > 0.0);
    assert!(
        time("minResponseTime") <= time("avgResponseTime")
            && time("avgResponseTime") <= time("maxResponseTime")
    );
}

#[tokio::test]
async fn s1_225_when_the_last_request_was() {
    let server = stats_server();
    assert_eq!(detailed_stats(&server)["requests"]["lastRequestAt"], "");
    ask(&server, "ping", json!({})).await;
    assert!(detailed_stats(&server)["requests"]["lastRequestAt"].as_str().unwrap().starts_with("20"));
}

#[tokio::test]
async fn s1_226_calls_of_tools() {
    let server = stats_server();
    call(&server, "echo", json!({})).await;
    call(&server, "boom", json!({})).await;
    assert_eq!(detailed_stats(&server)["tools"]["totalInvocations"], 2);
    assert_eq!(json!(server.stats_summary())["totalToolInvocations"], 2);
}

#[tokio::test]
async fn s1_227_calls_by_tool() {
    let server = stats_server();
    call(&server, "echo", json!({})).await;
    call(&server, "boom", json!({})).await;
    let tools = detailed_stats(&server)["tools"]["byTool"].clone();
    assert_eq!((&tools["echo"]["count"], &tools["echo"]["errors"]), (&json!(1), &json!(0)));
    assert_eq!(tools["boom"]["errors"], 1);
    let time = |key: &str| tools["echo"][key].as_f64().unwrap();
    assert!(time("totalTime") > 0.0 && (time("totalTime") - time("avgTime")).abs() < 1e-9);
}

#[tokio::test]
async fn s1_228_times_of_tools() {
    let server = stats_server();
    for _ in 0..3 {
        call(&server, "echo", json!({})).await;
    }
    let tools = detailed_stats(&server)["tools"].clone();
    assert_eq!(tools["executionTimes"].as_array().unwrap().len(), 3);
    let time = |key: &str| tools[key].as_f64().unwrap();
    assert!(
        time("minExecutionTime") <= time("avgExecutionTime")
            && time("avgExecutionTime") <= time("maxExecutionTime")
    );
}

#[tokio::test]
async fn s1_229_reads_by_uri() {
    let server = stats_server();
    server.read_resource("x://y").await.unwrap();
    let resources = detailed_stats(&server)["resources"].clone();
    assert_eq!((&resources["totalReads"], &resources["byUri"]["x://y"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn s1_230_prompts_by_name() {
    let server = stats_server();
    server.get_prompt("p", json!({})).await.unwrap();
    let prompts = detailed_stats(&server)["prompts"].clone();
    assert_eq!((&prompts["totalGenerations"], &prompts["byName"]["p"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn s1_231_errors_by_code() {
    let server = stats_server();
    ask(&server, "unknown/method", json!({})).await;
    call(&server, "boom", json!({})).await;
    let errors = detailed_stats(&server)["errors"].clone();
    assert_eq!((&errors["total"], &errors["byCode"]["-32601"]), (&json!(2), &json!(1)));
    assert_eq!(errors["byTool"]["boom"], 1);
}

#[tokio::test]
async fn s1_232_the_last_error() {
    let server = stats_server();
    assert_eq!(detailed_stats(&server)["errors"]["lastError"], json!({}));
    ask(&server, "unknown/method", json!({})).await;
    let last = detailed_stats(&server)["errors"]["lastError"].clone();
    assert_eq!(last["code"], -32601);
    assert!(last["message"].as_str().unwrap().contains("unknown/method"));
    assert!(last["timestamp"].as_str().unwrap().starts_with("20"));
}

#[test]
fn s1_233_what_stands_above_it_all() {
    let stats = detailed_stats(&stats_server());
    assert_eq!((&stats["enabled"], &stats["activeRequests"]), (&json!(true), &json!(0)));
    assert!(stats["createdAt"].as_str().unwrap().starts_with("20"));
    assert!(stats["uptime"].is_u64() && stats["security"].is_object());
}

#[test]
fn s1_234_whether_it_counts() {
    assert!(empty_server("s").is_stats_enabled() && !empty_server("s").disable_stats().is_stats_enabled());
}

#[tokio::test]
async fn s1_235_counting_stops_and_goes_on() {
    let server = stats_server();
    let total = async |server: &Server| {
        ask(server, "ping", json!({})).await;
        server.stats().requests.total
    };
    assert_eq!(total(&server).await, 1);
    assert_eq!(total(&server.disable_stats()).await, 1);
    assert_eq!(total(&server.enable_stats()).await, 2);
}

#[tokio::test]
async fn s1_236_everything_is_forgotten() {
    let server = stats_server();
    ask(&server, "nope", json!({})).await;
    call(&server, "echo", json!({})).await;
    let created = server.stats().created_at;
    let stats = server.reset_stats().enable_stats().stats();
    assert_eq!((stats.requests.total, stats.errors.total, stats.tools.total_invocations), (0, 0, 0));
    assert!(stats.requests.by_method.is_empty() && stats.tools.by_tool.is_empty());
    assert!(stats.requests.response_times.is_empty() && stats.errors.last_error.is_none());
    assert_eq!(stats.created_at, created);
}

#[tokio::test]
async fn s1_237_the_newest_thousand_times() {
    let server = stats_server();
    for _ in 0..1500 {
        ask(&server, "ping", json!({})).await;
    }
    let stats = server.stats();
    assert_eq!((stats.requests.response_times.len(), stats.requests.total), (1000, 1500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s1_238_counting_is_right_however_many_call() {
    let server = stats_server();
    let calls = (0..64).map(|_| {
        let server = server.clone();
        tokio::spawn(async move {
            for _ in 0..1000 {
                server.handle_str(PING).await.unwrap();
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let stats = server.stats();
    assert_eq!((stats.requests.total, stats.requests.successful), (64_000, 64_000));
    assert_eq!(stats.requests.by_method["ping"], 64_000);
    assert_eq!(stats.active_requests, 0);
}

#[tokio::test]
async fn s1_240_a_request_is_counted_before_its_answer_is_sent() {
    let server = stats_server();
    let events = super::EventLog::default();
    server.on_response({
        let events = events.clone();
        move |event| events.push(event.stats().total_requests)
    });
    ask(&server, "ping", json!({})).await;
    assert_eq!(events.only(), 1);
}
