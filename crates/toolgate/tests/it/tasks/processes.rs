//! One task, several processes: polled, answered and cancelled from elsewhere; taken over when its process is gone; never run
//! by two at once, and never left without an end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::model::TaskSupport;
use toolgate::store::{Expect, Key, Store as _, Visibility};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Context, Field, Form, HandlerError, Principal, Server, ToolSpec};

use super::storage::SharedStore;
use super::{ask, ask_as, exchange, get_task, start_task, wait_for_status};

/// Counters that the handlers of all processes share.
#[derive(Clone, Debug, Default)]
struct Counts {
    runs: Arc<AtomicUsize>,
    steps: Arc<AtomicUsize>,
}

impl Counts {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }
}

fn confirm_form() -> Form {
    Form::new("Sure?").field("ok", Field::flag())
}

/// A process: `is_first` tells handlers where they run. Those of the first never end by themselves.
fn server_process(store: &SharedStore, counts: &Counts, is_first: bool) -> Server {
    let build = {
        let counts = counts.clone();
        move |cx: Context| {
            let counts = counts.clone();
            async move {
                counts.runs.fetch_add(1, Ordering::SeqCst);
                let steps = Arc::clone(&counts.steps);
                let built: u32 = cx
                    .step("compile", || async move {
                        steps.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, HandlerError>(42)
                    })
                    .await?;
                let sure = cx.elicit("sure", confirm_form()).await?.accepted();
                if is_first {
                    cx.progress(1.0, "answered").await;
                    std::future::pending::<()>().await;
                }
                Ok::<_, HandlerError>(format!("built {built}, sure: {}", sure.unwrap_or_default()["ok"]))
            }
        }
    };
    let hang = move |cx: Context| async move {
        cx.progress(1.0, "hanging").await;
        std::future::pending::<String>().await
    };
    Server::new("shared", "1.0.0")
        .store(store.clone())
        .shutdown_timeout(Duration::from_millis(600))
        .add_tool(ToolSpec::new("build", build).task(TaskSupport::Optional).resumable())
        .add_tool(ToolSpec::new("hang", hang).task(TaskSupport::Optional))
        .tool("confirm", |cx: Context| async move {
            Ok::<_, HandlerError>(format!("{:?}", cx.elicit("sure", confirm_form()).await?.accepted()))
        })
        .task(TaskSupport::Optional)
        .tool("plain", || async { "fine" })
        .tool("large", || async { "x".repeat(9 << 20) })
        .task(TaskSupport::Optional)
        .tool("chatter", |cx: Context| async move {
            for n in 1..=2000_u32 {
                cx.progress(f64::from(n), "on and on").await;
            }
        })
        .task(TaskSupport::Optional)
        .build()
        .unwrap()
}

/// A simulated process: a thread with a runtime, which can be killed so that nothing of it continues.
struct Process {
    runtime: Option<tokio::runtime::Runtime>,
    server: Server,
}

impl Process {
    fn start(store: &SharedStore, counts: &Counts) -> Process {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Process { runtime: Some(runtime), server: server_process(store, counts, true) }
    }

    /// Runs a future in it.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, receiver) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().unwrap();
        runtime.spawn(async move { sender.send(work.await) });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Kills it without an orderly shutdown.
    fn kill(mut self) {
        let runtime = self.runtime.take().unwrap();
        let killing = std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(5)));
        killing.join().unwrap();
    }
}

fn input_response(id: &str) -> Value {
    json!({ "taskId": id, "inputResponses": { "sure": { "action": "accept", "content": { "ok": true } } } })
}

#[tokio::test]
async fn tasks_are_accessible_from_other_processes() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let (first, second) = (server_process(&store, &counts, false), server_process(&store, &counts, false));

    let id = start_task(&first, "confirm", json!({})).await;
    let asked = wait_for_status(&second, &id, "input_required").await;
    assert_eq!(asked["inputRequests"]["sure"]["method"], "elicitation/create");
    assert_eq!(ask(&second, "tasks/update", input_response(&id)).await["result"]["resultType"], "complete");
    let done = wait_for_status(&second, &id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Some(Object {\"ok\": Bool(true)})");

    let id = start_task(&first, "hang", json!({})).await;
    wait_for_status(&second, &id, "working").await;
    ask(&second, "tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(get_task(&first, &id).await["status"], "cancelled");
    // Its slot is free, so its handler is gone.
    for _ in 0..1000 {
        if stored_names(&store, "lease").await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((stored_names(&store, "run").await, stored_names(&store, "lease").await), (vec![], vec![]));
}

/// Returns the names in a key space of the server `shared`.
async fn stored_names(store: &SharedStore, space: &str) -> Vec<Box<str>> {
    let found = store.memory().list(&format!("shared/{space}"), None, 1000).await.unwrap();
    found.into_iter().map(|(name, _)| name).collect()
}

/// Time is paused in the second process, and advances when it waits: a lease expires at once.
#[tokio::test(start_paused = true)]
async fn a_task_whose_process_is_killed_is_run_again_without_repeating_its_steps() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let first = Process::start(&store, &counts);
    let server = first.server.clone();
    let id = first.run(async move {
        let id = start_task(&server, "build", json!({})).await;
        wait_for_status(&server, &id, "input_required").await;
        ask(&server, "tasks/update", input_response(&id)).await;
        while get_task(&server, &id).await["statusMessage"] != "answered" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        id
    });
    first.kill();

    let second = server_process(&store, &counts, false);
    assert_eq!(get_task(&second, &id).await["status"], "working", "its lease holds for a while");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let done = wait_for_status(&second, &id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "built 42, sure: true");
    assert_eq!((counts.runs(), counts.steps()), (2, 1), "started twice, but the step ran once");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_run_again_has_failed_and_says_why() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let first = Process::start(&store, &counts);
    let server = first.server.clone();
    let id = first.run(async move { start_task(&server, "hang", json!({})).await });
    first.kill();

    let second = server_process(&store, &counts, false);
    assert_eq!(get_task(&second, &id).await["status"], "working");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let failed = wait_for_status(&second, &id, "failed").await;
    let message = "interrupted: the process that ran the task ended before it was done";
    assert_eq!((&failed["statusMessage"], &failed["error"]["message"]), (&json!(message), &json!(message)));
    assert_eq!((stored_names(&store, "run").await, stored_names(&store, "lease").await), (vec![], vec![]));
}

/// Only one process at a time uses such a store: a lease of another means that the other is gone.
#[tokio::test]
async fn after_a_restart_leases_are_taken_over_at_once() {
    let (store, counts) = (SharedStore::with_visibility(Visibility::Durable), Counts::default());
    let first = Process::start(&store, &counts);
    let server = first.server.clone();
    let id = first.run(async move { start_task(&server, "hang", json!({})).await });
    first.kill();
    // The simulated process is not known to the system: its name belongs to another one now.
    let lease = Key::new("shared/lease", id.as_str());
    store.put(&lease, "another.one".into(), Some(Duration::from_secs(15)), Expect::Anything).await.unwrap();
    let second = server_process(&store, &counts, false);
    let started = std::time::Instant::now();
    wait_for_status(&second, &id, "failed").await;
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// A second server of the same name, in the same process: it came later, and the first one still exists.
#[tokio::test(start_paused = true)]
async fn a_second_server_in_the_same_process_takes_nothing_over() {
    let (store, counts) = (SharedStore::with_visibility(Visibility::Durable), Counts::default());
    let first = server_process(&store, &counts, false);
    let id = start_task(&first, "hang", json!({})).await;
    let second = server_process(&store, &counts, false);
    for _ in 0..30 {
        assert_eq!(get_task(&second, &id).await["status"], "working");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// All leases expire while nobody can renew them. The first process to return gives the others time to do so.
#[tokio::test(start_paused = true)]
async fn a_long_store_outage_costs_no_task() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let (here, there) = (store.new_connection(), store.new_connection());
    let (first, second) = (server_process(&here, &counts, false), server_process(&there, &counts, false));
    let hang = start_task(&first, "hang", json!({})).await;
    let build = start_task(&first, "build", json!({})).await;
    wait_for_status(&second, &build, "input_required").await;
    here.set_disconnected(true);
    there.set_disconnected(true);
    tokio::time::sleep(Duration::from_secs(40)).await;
    there.set_disconnected(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    here.set_disconnected(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(get_task(&second, &hang).await["status"], "working");
    ask(&second, "tasks/update", input_response(&build)).await;
    wait_for_status(&second, &build, "completed").await;
    assert_eq!(counts.runs(), 1);
}

/// A store may lose confirmed writes, as in a failover. The process that runs a task restores them.
#[tokio::test(start_paused = true)]
async fn lost_records_of_running_tasks_are_restored() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let (first, second) = (server_process(&store, &counts, false), server_process(&store, &counts, false));
    let build = start_task(&first, "build", json!({})).await;
    wait_for_status(&second, &build, "input_required").await;
    let (run, lease) = (format!("anyone.{build}"), build.clone());
    let lost = [("run", &run), ("lease", &lease), ("task/anyone", &build)];
    for round in 0..24_u64 {
        let (space, name) = lost[usize::try_from(round % 3).unwrap()];
        let key = Key::new(format!("shared/{space}"), name.as_str());
        assert!(store.memory().delete(&key, Expect::Anything).await.unwrap(), "{space} was put back");
        // At another moment between two reads each time.
        tokio::time::sleep(Duration::from_millis(5600 + 130 * round)).await;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    ask(&second, "tasks/update", input_response(&build)).await;
    let done = wait_for_status(&second, &build, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "built 42, sure: true");
    assert_eq!(counts.runs(), 1);
}

/// The response is stored, and reading it fails: it is read again.
#[tokio::test(start_paused = true)]
async fn a_response_that_could_not_be_read_is_read_later() {
    let (store, counts) = (SharedStore::with_visibility(Visibility::Process), Counts::default());
    let server = server_process(&store, &counts, false);
    let id = start_task(&server, "confirm", json!({})).await;
    wait_for_status(&server, &id, "input_required").await;
    // The first read is that of the responding process.
    store.fail_nth_read(2);
    ask(&server, "tasks/update", input_response(&id)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(store.has_failed());
    wait_for_status(&server, &id, "completed").await;
}

/// Unfetched results do not fill the store: the oldest finished task is removed.
#[tokio::test]
async fn finished_tasks_are_bounded() {
    let store = SharedStore::new();
    let server = Server::new("shared", "1.0.0").store(store.clone()).max_retained_tasks(3);
    let server = server.tool("quick", || async { "done" }).task(TaskSupport::Optional).build().unwrap();
    let mut ids = Vec::new();
    for _ in 0..6 {
        let id = start_task(&server, "quick", json!({})).await;
        wait_for_status(&server, &id, "completed").await;
        // Finished tasks are counted a moment later.
        while !stored_names(&store, "lease").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ids.push(id);
    }
    for _ in 0..1000 {
        if stored_names(&store, "task/anyone").await.len() <= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kept: std::collections::BTreeSet<_> = stored_names(&store, "task/anyone").await.into_iter().collect();
    assert_eq!(kept, ids[3..].iter().map(|id| id.as_str().into()).collect());
}

/// Each task in a subscription is looked up once, however often it is named.
#[tokio::test]
async fn duplicate_task_ids_in_a_subscription_count_once() {
    let server = server_process(&SharedStore::new(), &Counts::default(), false);
    let id = start_task(&server, "hang", json!({})).await;
    let named = json!({ "notifications": { "taskIds": vec![id.clone(); 300] } });
    let mut listening = exchange(&server, None, "subscriptions/listen", named);
    let reply = listening.raw_event(Duration::from_secs(10)).await.unwrap();
    let reply = format!("{reply:?}");
    assert_eq!((reply.contains("acknowledged"), reply.matches(&id).count()), (true, 1), "{reply}");
}

/// The size of a page is limited, however large the results are.
#[tokio::test]
async fn a_list_of_large_results_comes_in_smaller_pages() {
    let server = Server::new("shared", "1.0.0").store(SharedStore::new());
    let server =
        server.tool("big", || async { "x".repeat(3 << 20) }).task(TaskSupport::Optional).build().unwrap();
    for _ in 0..3 {
        let begun = ask_as(&server, Some("ada"), "tools/call", json!({ "name": "big" })).await;
        let id = json!({ "taskId": begun["result"]["taskId"] });
        while ask_as(&server, Some("ada"), "tasks/get", id.clone()).await["result"]["status"] != "completed" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let client = TestClient::new(&server, TestVersion::known("2025-11-25"))
        .over_http()
        .with_principal(Principal::new("ada"));
    let page = client.request("tasks/list", json!({})).await["result"].take();
    assert_eq!(page["tasks"].as_array().unwrap().len(), 2);
    let rest = client.request("tasks/list", json!({ "cursor": page["nextCursor"] })).await["result"].take();
    assert_eq!((rest["tasks"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
}

/// However long the server's retention is.
#[tokio::test]
async fn unlimited_retention_is_capped_at_a_year() {
    let store = SharedStore::new();
    let server = Server::new("shared", "1.0.0").store(store).default_task_ttl(Duration::MAX);
    let server = server.tool("quick", || async { "done" }).task(TaskSupport::Optional).build().unwrap();
    let id = start_task(&server, "quick", json!({})).await;
    assert_eq!(wait_for_status(&server, &id, "completed").await["ttlMs"], 366 * 24 * 60 * 60 * 1000_u64);
}

/// The first process is stopped for longer than its lease, and then continues as if nothing had happened.
#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_lease_changes_nothing() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let (go, wait) = mpsc::sync_channel::<()>(1);
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let blocking = ToolSpec::new("block", move || {
        let wait = Arc::clone(&wait);
        async move {
            wait.lock().unwrap().recv().unwrap();
            "the first one"
        }
    });
    let first = Process::start(&store, &counts);
    first.server.add_tool(blocking.task(TaskSupport::Optional).resumable()).unwrap();
    let server = first.server.clone();
    let id = first.run(async move { start_task(&server, "block", json!({})).await });

    let second = server_process(&store, &counts, false);
    second
        .add_tool(
            ToolSpec::new("block", || async { "the second one" }).task(TaskSupport::Optional).resumable(),
        )
        .unwrap();
    assert_eq!(get_task(&second, &id).await["status"], "working");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(
        wait_for_status(&second, &id, "completed").await["result"]["content"][0]["text"],
        "the second one"
    );
    go.send(()).unwrap();
    let server = first.server.clone();
    let (again, seen) = (id.clone(), Duration::from_millis(200));
    first.run(async move {
        tokio::time::sleep(seen).await;
        assert_eq!(get_task(&server, &again).await["status"], "completed");
    });
    assert_eq!(get_task(&second, &id).await["result"]["content"][0]["text"], "the second one");
    first.kill();
}

/// A process that shuts down hands its tasks to others at once.
#[tokio::test]
async fn a_process_that_ends_hands_its_tasks_over() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let (first, second) = (server_process(&store, &counts, true), server_process(&store, &counts, false));
    let build = start_task(&first, "build", json!({})).await;
    let hang = start_task(&first, "hang", json!({})).await;
    wait_for_status(&first, &build, "input_required").await;
    // The second one is subscribed by now.
    assert_eq!(get_task(&second, &build).await["status"], "input_required");
    first.shutdown();
    let failed = wait_for_status(&second, &hang, "failed").await;
    assert_eq!(failed["statusMessage"], "the server was stopped before the task was done");
    // Requested by the first, answered on the second, which runs the task now or soon.
    ask(&second, "tasks/update", input_response(&build)).await;
    let done = wait_for_status(&second, &build, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "built 42, sure: true");
    assert_eq!((counts.runs(), counts.steps()), (2, 1));
}

#[tokio::test]
async fn an_unavailable_store_costs_tasks_and_nothing_else() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let id = start_task(&server, "confirm", json!({})).await;
    wait_for_status(&server, &id, "input_required").await;

    store.set_unavailable(true);
    let refused = ask(&server, "tools/call", json!({ "name": "hang" })).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_eq!(refused["result"]["content"][0]["text"], "storage unavailable, try again");
    let away = ask(&server, "tasks/get", json!({ "taskId": id })).await;
    assert_eq!(away["error"], json!({ "code": -32603, "message": "storage unavailable, try again" }));
    for (method, params) in [("tasks/update", input_response(&id)), ("tasks/cancel", json!({ "taskId": id }))]
    {
        let reply = exchange(&server, None, method, params).fetch().await.unwrap();
        assert_eq!((reply.status, &reply.headers["retry-after"]), (503, &"5".parse().unwrap()), "{method}");
    }
    let plain = ask(&server, "tools/call", json!({ "name": "plain" })).await;
    assert_eq!(plain["result"]["content"][0]["text"], "fine");

    store.set_unavailable(false);
    ask(&server, "tasks/update", input_response(&id)).await;
    wait_for_status(&server, &id, "completed").await;
}

/// The result of a handler that ends while the store is unavailable is not lost.
#[tokio::test(start_paused = true)]
async fn a_result_is_stored_when_the_store_is_back() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let (go, wait) = tokio::sync::watch::channel(false);
    let slow = move || {
        let mut wait = wait.clone();
        async move {
            let _ = wait.wait_for(|go| *go).await;
            "done"
        }
    };
    server.add_tool(ToolSpec::new("slow", slow).task(TaskSupport::Optional)).unwrap();
    let id = start_task(&server, "slow", json!({})).await;
    store.set_unavailable(true);
    go.send(true).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    store.set_unavailable(false);
    assert_eq!(wait_for_status(&server, &id, "completed").await["result"]["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn an_expired_task_is_removed_and_its_handler_ends() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let id = start_task(&server, "hang", json!({})).await;
    tokio::time::sleep(Duration::from_secs(60 * 60 - 10)).await;
    assert_eq!(get_task(&server, &id).await["status"], "working");
    tokio::time::sleep(Duration::from_secs(11)).await;
    let gone = ask(&server, "tasks/get", json!({ "taskId": id })).await;
    assert_eq!(gone["error"], json!({ "code": -32602, "message": "task not found" }));
    assert!(stored_names(&store, "lease").await.is_empty());
}

#[tokio::test]
async fn a_result_that_is_too_large_is_not_stored() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let id = start_task(&server, "large", json!({})).await;
    let failed = wait_for_status(&server, &id, "failed").await;
    assert_eq!(failed["error"]["message"], "result too large");
    assert!(store.memory().used_bytes() < 1 << 20);
}

/// A thousand updates of a handler cause few writes.
#[tokio::test]
async fn updates_of_a_handler_are_coalesced() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let id = start_task(&server, "chatter", json!({})).await;
    wait_for_status(&server, &id, "completed").await;
    assert!(store.n_writes() < 40, "{} times", store.n_writes());
}

/// Stored values may not be valid records.
#[tokio::test]
async fn invalid_records_are_ignored() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let id = start_task(&server, "hang", json!({})).await;
    let key = Key::new("shared/task/anyone", id.as_str());
    store.put(&key, "garbage".into(), None, Expect::Anything).await.unwrap();
    let gone = ask(&server, "tasks/get", json!({ "taskId": id })).await;
    assert_eq!(gone["error"]["message"], "task not found");
}

/// Pages contain every task once, and none of other owners.
#[tokio::test]
async fn a_long_list_comes_in_pages() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let server = server_process(&store, &counts, false);
    let mut begun = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let answer = ask_as(&server, Some("ada"), "tools/call", json!({ "name": "chatter" })).await;
        begun.insert(answer["result"]["taskId"].as_str().unwrap().to_owned());
        start_task(&server, "chatter", json!({})).await;
    }
    let client = TestClient::new(&server, TestVersion::known("2025-11-25"))
        .over_http()
        .with_principal(Principal::new("ada"));
    let (mut seen, mut cursor, mut n_pages) = (Vec::new(), Value::Null, 0);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let mut page = client.request("tasks/list", params).await["result"].take();
        let tasks = page["tasks"].as_array().unwrap().iter();
        seen.extend(tasks.map(|task| task["taskId"].as_str().unwrap().to_owned()));
        (n_pages, cursor) = (n_pages + 1, page["nextCursor"].take());
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((n_pages, seen.len()), (2, 60));
    assert_eq!(seen.into_iter().collect::<std::collections::BTreeSet<_>>(), begun);
}

/// A client of the version with core tasks fetches the result from another process than the one that runs the task.
#[tokio::test]
async fn a_result_is_fetched_from_another_process() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let (first, second) = (server_process(&store, &counts, false), server_process(&store, &counts, false));
    let client = |server: &Server| {
        let client = TestClient::new(server, TestVersion::known("2025-11-25"))
            .over_http()
            .with_principal(Principal::new("ada"));
        client.on_elicit(|_| json!({ "ok": true }))
    };
    let (here, there) = (client(&first), client(&second));
    let begun = here.request("tools/call", json!({ "name": "build", "task": {} })).await["result"].take();
    let result =
        there.request("tasks/result", json!({ "taskId": begun["task"]["taskId"] })).await["result"].take();
    assert_eq!(result["content"][0]["text"], "built 42, sure: true");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/related-task"],
        json!({ "taskId": begun["task"]["taskId"] })
    );
}

/// Every accepted task ends, whichever process runs it: many at once, of several callers, and with a lost process.
#[tokio::test(start_paused = true)]
async fn every_task_ends() {
    let (store, counts) = (SharedStore::new(), Counts::default());
    let first = Process::start(&store, &counts);
    let server = first.server.clone();
    let ids = first.run(async move {
        let mut ids = Vec::new();
        for n in 0..60 {
            let (who, tool) = (format!("caller {}", n % 3), if n % 2 == 0 { "build" } else { "hang" });
            let begun = ask_as(&server, Some(&who), "tools/call", json!({ "name": tool })).await;
            ids.push((who, begun["result"]["taskId"].as_str().unwrap().to_owned()));
        }
        ids
    });
    first.kill();
    let second = server_process(&store, &counts, false);
    second.add_tool(ToolSpec::new("wake", || async {}).task(TaskSupport::Optional)).unwrap();
    start_task(&second, "wake", json!({})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    for (n, (who, id)) in ids.iter().enumerate() {
        if n % 2 == 0 {
            let answered = ask_as(&second, Some(who), "tasks/update", input_response(id)).await;
            assert_eq!(answered["result"]["resultType"], "complete", "{answered}");
        }
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for (n, (who, id)) in ids.iter().enumerate() {
        let task = ask_as(&second, Some(who), "tasks/get", json!({ "taskId": id })).await;
        let expected = if n % 2 == 0 { "completed" } else { "failed" };
        assert_eq!(task["result"]["status"], expected, "{n}: {task}");
    }
    assert_eq!((stored_names(&store, "run").await, stored_names(&store, "lease").await), (vec![], vec![]));
}
