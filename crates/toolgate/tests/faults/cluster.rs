//! Two processes with one Redis, behind a proxy that alternates between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http_client::{SessionClient, request_stateless, request_stateless_retrying};
use crate::proxy::Proxy;
use crate::redis::Redis;
use crate::serve::Node;

const N_TASKS: usize = 200;
const N_STREAMS: usize = 50;
/// The number of resources that each listener subscribes to.
const N_RESOURCES: usize = 20;

/// One process is killed under load, while 200 tasks run and 50 streams are open: every task ends, every event is received
/// exactly once, and no client receives events of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_killed_under_load() {
    let Some(redis) = Redis::start("killed", "everysec").await else { return };
    let log = std::env::temp_dir().join(format!("toolgate-diary-{}", std::process::id()));
    let _ = std::fs::remove_file(&log);
    let start = || Node::start(&redis.url(), &log.to_string_lossy());
    let (mut first, second) = (start(), start());
    let proxy = Proxy::open().await;
    proxy.set_servers(&[first.address, second.address]);
    let at = proxy.address;

    let listeners: Vec<_> = (0..N_STREAMS / 2).map(|number| tokio::spawn(run_listener(at, number))).collect();
    let counters: Vec<_> = (0..N_STREAMS / 2).map(|number| tokio::spawn(run_counter(at, number))).collect();
    let over = Arc::new(AtomicBool::new(false));
    let echoed = Arc::new(AtomicUsize::new(0));
    let load: Vec<_> = (0..4)
        .map(|number| tokio::spawn(run_echoes(at, number, Arc::clone(&over), Arc::clone(&echoed))))
        .collect();

    let mut tasks = BTreeMap::new();
    for number in 0..N_TASKS {
        // Every other task may run again; every other fourth was started by a client with a session.
        let tool = if number % 2 == 0 { "again" } else { "once" };
        let tag = format!("task-{number}");
        let arguments = json!({"tag": tag, "steps": 6, "ms": 700});
        let call = json!({"name": tool, "arguments": arguments});
        let started = request_stateless_retrying(at, "tools/call", tool, call).await;
        let id = started["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
        tasks.insert(id, (tool, tag));
    }
    assert_eq!(tasks.len(), N_TASKS, "no id twice");

    // Events that a process has not forwarded yet are lost with it, so its last change is given a moment.
    touch(first.address, 0..N_RESOURCES / 4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.kill();
    touch(second.address, N_RESOURCES / 4..N_RESOURCES / 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let third = start();
    proxy.set_servers(&[second.address, third.address]);
    touch(third.address, N_RESOURCES / 2..N_RESOURCES).await;

    let deadline = Instant::now() + Duration::from_secs(90);
    let (mut completed, mut failed) = (0, 0);
    for (id, (tool, tag)) in &tasks {
        let ended = loop {
            let got = request_stateless_retrying(at, "tasks/get", id, json!({"taskId": id})).await;
            let status =
                got["result"]["status"].as_str().unwrap_or_else(|| panic!("{tag}: {got}")).to_owned();
            if matches!(status.as_str(), "completed" | "failed") {
                break got;
            }
            assert!(Instant::now() < deadline, "{tag} of {tool} is stuck: {got}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        if ended["result"]["status"] == "completed" {
            let text = &ended["result"]["result"]["content"][0]["text"];
            assert_eq!(text, &json!(format!("done {tag}")), "a result of another task: {ended}");
            completed += 1;
        } else {
            assert_eq!(*tool, "once", "a task that may run again does: {ended}");
            let why = ended["result"]["error"]["message"].as_str().unwrap_or_default();
            assert!(why.contains("process"), "the failure says why: {ended}");
            failed += 1;
        }
    }
    assert!(failed > 0 && completed > failed, "completed {completed}, failed {failed}");
    check_step_log(&std::fs::read_to_string(&log).unwrap(), &tasks);

    for listener in listeners {
        listener.await.unwrap();
    }
    let mut cut = 0;
    for counted in counters {
        cut += usize::from(counted.await.unwrap());
    }
    over.store(true, Ordering::Relaxed);
    for load in load {
        load.await.unwrap();
    }
    let echoed = echoed.load(Ordering::Relaxed);
    assert!(echoed > 100, "only {echoed} calls of the load were answered");
    println!(
        "tasks: {completed} completed, {failed} failed; streams that lost their call: {cut}; echoes: {echoed}"
    );
    let _ = std::fs::remove_file(log);
}

/// A step runs once; only the one in progress when its process died may have been started twice.
fn check_step_log(log: &str, tasks: &BTreeMap<String, (&str, String)>) {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.lines() {
        *times.entry(line).or_default() += 1;
    }
    for (tool, tag) in tasks.values() {
        let done = (0..6).map(|step| times.get(format!("{tag} {step}").as_str()).copied().unwrap_or(0));
        let (most, repeated) =
            done.fold((0, 0), |(most, repeated), n| (most.max(n), repeated + usize::from(n > 1)));
        assert!(most <= 2 && repeated <= 1, "{tag} of {tool}: steps were repeated");
        assert!(*tool == "again" || repeated == 0, "{tag} of {tool} was run again");
    }
}

/// Subscribes to resources and receives that each has changed exactly once.
async fn run_listener(at: SocketAddr, number: usize) {
    let guest = SessionClient::initialize(at).await;
    for thing in 0..N_RESOURCES {
        let subscribed =
            guest.request(1 + thing as u64, "resources/subscribe", json!({"uri": uri(thing)})).await;
        assert_eq!(subscribed["result"], json!({}), "listener {number}");
    }
    let mut n_received: BTreeMap<String, usize> = BTreeMap::new();
    let mut last: Option<String> = None;
    let deadline = Instant::now() + Duration::from_secs(120);
    'connected: while Instant::now() < deadline {
        let Ok(mut stream) = guest.get(last.as_deref()).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        assert!(matches!(stream.status, 200 | 503), "listener {number}: {}", stream.status);
        loop {
            match tokio::time::timeout(Duration::from_secs(3), stream.next_event()).await {
                Ok(Ok(Some(event))) => {
                    last = event.id.or(last);
                    let Ok(message) = serde_json::from_str::<Value>(&event.data) else { continue };
                    if message["method"] == "notifications/resources/updated" {
                        let uri = message["params"]["uri"].as_str().unwrap().to_owned();
                        *n_received.entry(uri).or_default() += 1;
                    }
                }
                Ok(_) => continue 'connected,
                // The stream is quiet: wait a little for duplicates.
                Err(_) if n_received.len() == N_RESOURCES => break 'connected,
                Err(_) if Instant::now() > deadline => break 'connected,
                Err(_) => {}
            }
        }
    }
    let expected: BTreeMap<String, usize> = (0..N_RESOURCES).map(|thing| (uri(thing), 1)).collect();
    assert_eq!(n_received, expected, "listener {number} receives each once");
}

fn uri(thing: usize) -> String {
    format!("thing://{thing}")
}

/// Touches each of these once, through one process.
async fn touch(at: SocketAddr, things: std::ops::Range<usize>) {
    for thing in things {
        let call = json!({"name": "touch", "arguments": {"uri": uri(thing)}});
        let touched = request_stateless(at, "tools/call", "touch", call).await.unwrap();
        assert_eq!(touched["result"]["content"][0]["text"], "touched", "{touched}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Counts on a stream. Every number arrives once and in order, before the response; the response is the expected one, or
/// says that the process ended. Returns whether it did.
async fn run_counter(at: SocketAddr, number: usize) -> bool {
    let guest = SessionClient::initialize(at).await;
    let tag = format!("count-{number}");
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "count",
        "arguments": {"tag": tag, "steps": 40, "ms": 250}, "_meta": {"progressToken": tag}}});
    let answer = loop {
        match guest.post(&call).await {
            Ok(answer) if answer.status == 200 => break answer,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert!(answer.is_stream(), "{tag}");
    let received = guest.read_stream(answer, None).await;
    let (last, before) =
        received.iter().collect::<Vec<_>>().split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
    let numbers: Vec<u64> = before
        .iter()
        .map(|notice| {
            assert_eq!(notice["params"]["progressToken"], json!(tag), "meant for another");
            notice["params"]["progress"].as_f64().unwrap() as u64
        })
        .collect();
    let unique: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(unique.len(), numbers.len(), "{tag}: received twice: {numbers:?}");
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{tag}: lost or out of order: {numbers:?}"
    );
    assert_eq!(last["id"], 7, "{tag}: {last}");
    if let Some(error) = last["error"]["message"].as_str() {
        assert!(error.contains("process"), "{tag}: {error}");
        return true;
    }
    assert_eq!(last["result"]["content"][0]["text"], json!(tag), "a response of another call");
    assert_eq!(numbers.len(), 40, "{tag}");
    false
}

/// Calls that end at once, each with a text of its own.
async fn run_echoes(at: SocketAddr, number: usize, over: Arc<AtomicBool>, echoed: Arc<AtomicUsize>) {
    let guest = SessionClient::initialize(at).await;
    let mut id = 0;
    while !over.load(Ordering::Relaxed) {
        id += 1;
        let tag = format!("{number}-{id}");
        let answer =
            guest.request(id, "tools/call", json!({"name": "echo", "arguments": {"tag": tag}})).await;
        assert_eq!(answer["result"]["content"][0]["text"], json!(tag), "{answer}");
        assert_eq!(answer["id"], id);
        echoed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The store is unavailable for five seconds: requests that need it are rejected quickly with a clear message, others work, and
/// when it is back everything works, without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_is_unavailable_for_a_while() {
    let Some(mut redis) = Redis::start("away", "always").await else { return };
    let node = Node::start(&redis.url(), "/dev/null");
    let guest = SessionClient::initialize(node.address).await;
    let call = |tag: &str| json!({"name": "again", "arguments": {"tag": tag, "steps": 0}});
    let before = request_stateless_retrying(node.address, "tools/call", "again", call("before")).await;
    let id = before["result"]["taskId"].as_str().unwrap().to_owned();

    redis.kill();
    let gone = Instant::now();
    let mut refused = 0;
    while gone.elapsed() < Duration::from_secs(5) {
        let began = Instant::now();
        let initialize = crate::http_client::send(
            node.address,
            "POST",
            &[("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")],
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
                "capabilities": {}, "clientInfo": {"name": "late", "version": "1"}}})
            .to_string(),
        )
        .await
        .unwrap();
        assert_eq!(initialize.status, 503, "a session that cannot be stored is not opened");
        assert!(initialize.header("retry-after").is_some());
        let body = String::from_utf8(initialize.read_body().await.unwrap()).unwrap();
        assert!(body.contains("store is unavailable"), "the error names the missing store: {body}");
        assert!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
        let plain = request_stateless(
            node.address,
            "tools/call",
            "echo",
            json!({"name": "echo", "arguments": {"tag": "x"}}),
        )
        .await;
        assert_eq!(plain.unwrap()["result"]["content"][0]["text"], "x", "calls without the store work");
        refused += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(refused > 0);

    redis.restart().await;
    let back = Instant::now();
    let fresh = SessionClient::initialize(node.address).await;
    assert_ne!(fresh.session, guest.session);
    let after = request_stateless_retrying(node.address, "tools/call", "again", call("after")).await;
    assert!(after["result"]["taskId"].is_string(), "{after}");
    assert!(back.elapsed() < Duration::from_secs(10), "it took {:?} to recover", back.elapsed());
    // The task may have ended while its end could not be stored.
    let task = loop {
        let task = request_stateless_retrying(node.address, "tasks/get", &id, json!({"taskId": id})).await;
        if task["result"]["status"] != "working" || back.elapsed() > Duration::from_secs(60) {
            break task;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(task["result"]["status"], "completed", "{task}");
    let answer = guest.request(5, "tools/call", json!({"name": "echo", "arguments": {"tag": "still"}})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "still");
}
