//! Functions that are not `async`: they run on the blocking pool and do not stop the runtime.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Builder as RuntimeBuilder;
use toolgate::model::CompletionReference;
use toolgate::testing::{HttpExchange, http_request};
use toolgate::{App, Server, Servers, items};

/// Blocks threads until it is opened, for at most ten seconds.
#[derive(Clone, Default)]
struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    /// Blocks the thread. Returns whether the gate was opened.
    fn wait(&self) -> bool {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let is_open = self.0.is_open.lock().unwrap();
        let limit = Duration::from_secs(10);
        *self.0.opened.wait_timeout_while(is_open, limit, |is_open| !*is_open).unwrap().0
    }

    fn open(&self) {
        *self.0.is_open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }

    /// Waits until this many threads have called [`Gate::wait`].
    async fn wait_for_threads(&self, count: usize) {
        while self.0.waiting.load(Ordering::Relaxed) < count {
            tokio::task::yield_now().await;
        }
    }
}

fn thread_id() -> String {
    format!("{:?}", thread::current().id())
}

mod marked {
    use toolgate::prelude::*;

    use super::{Gate, thread_id};

    #[tool]
    pub(super) fn block(gate: State<Gate>) -> bool {
        gate.wait()
    }

    #[tool]
    pub(super) fn pooled() -> String {
        thread_id()
    }

    #[tool(inline)]
    pub(super) fn inlined() -> String {
        thread_id()
    }

    #[resource("thread://pooled", mime = "text/x-thread")]
    pub(super) fn read_pooled() -> String {
        thread_id()
    }

    #[resource("thread://inlined", inline)]
    pub(super) fn read_inlined() -> String {
        thread_id()
    }

    #[template("thread://pooled/{name}")]
    pub(super) fn read_named(name: String) -> Option<String> {
        (name == "me").then(thread_id)
    }

    #[template("thread://inlined/{name}", inline)]
    pub(super) fn read_named_inlined(name: String) -> Option<String> {
        (name == "me").then(thread_id)
    }

    #[prompt]
    pub(super) fn say_pooled(name: String) -> String {
        format!("{name}{}", thread_id())
    }

    #[prompt(inline)]
    pub(super) fn say_inlined(name: String) -> String {
        format!("{name}{}", thread_id())
    }

    #[complete(say_pooled.name)]
    pub(super) fn names_pooled(prefix: String) -> Vec<String> {
        vec![prefix + &thread_id()]
    }

    #[complete(say_inlined.name, inline)]
    pub(super) fn names_inlined(prefix: String) -> Vec<String> {
        vec![prefix + &thread_id()]
    }

    /// Its error is not `Send`.
    #[tool]
    pub(super) fn parse(text: String) -> Result<u32, Box<dyn std::error::Error>> {
        Ok(text.parse()?)
    }

    #[tool]
    pub(super) fn panics() -> String {
        panic!("on purpose")
    }
}

struct Owner(String);

#[toolgate::server]
impl Owner {
    #[tool]
    fn borrow(&self) -> &str {
        &self.0
    }

    #[tool]
    fn own_thread(&self) -> String {
        thread_id()
    }

    #[tool(inline)]
    fn inline_thread(&self) -> String {
        thread_id()
    }
}

fn server(gate: &Gate) -> Server {
    let items = items![
        marked::block,
        marked::pooled,
        marked::inlined,
        marked::read_pooled,
        marked::read_inlined,
        marked::read_named,
        marked::read_named_inlined,
        marked::say_pooled,
        marked::say_inlined,
        marked::names_pooled,
        marked::names_inlined,
        marked::parse,
        marked::panics,
    ];
    Server::new("blocking", "1.0.0").state(gate.clone()).add(items).add(Owner("ada".into())).build().unwrap()
}

/// On a runtime with one thread, a health check is answered while two functions block.
#[tokio::test]
async fn plain_functions_that_block_do_not_delay_a_health_check() {
    let gate = Gate::default();
    let (server, servers) = (server(&gate), Servers::new());
    let app = App::new(&servers).health().into_service().unwrap();
    let calls = [(); 2].map(|()| {
        let server = server.clone();
        tokio::spawn(async move { server.call_tool("block", json!({})).await.unwrap() })
    });
    gate.wait_for_threads(2).await;
    let request = http_request("GET", "/health", [("host", "localhost")], "");
    let health = HttpExchange::start(app, request).body().await.unwrap();
    assert!(health.contains("ok"), "{health}");
    gate.open();
    for call in calls {
        let text = call.await.unwrap()["content"][0]["text"].take();
        assert_eq!(text, "true", "the function ended after the health check");
    }
}

#[tokio::test]
async fn plain_functions_of_every_kind_leave_the_thread_unless_they_are_inline() {
    let here = thread_id();
    let client = server(&Gate::default()).test();
    let is_here = |text: String| text == here;
    for (tool, is_inline) in
        [("pooled", false), ("inlined", true), ("own_thread", false), ("inline_thread", true)]
    {
        assert_eq!(is_here(client.call(tool, json!({})).await.text()), is_inline, "{tool}");
    }
    for (kind, is_inline) in [("pooled", false), ("inlined", true)] {
        for uri in [format!("thread://{kind}"), format!("thread://{kind}/me")] {
            let contents = client.read(&uri).await;
            assert_eq!(contents.contents()[0].uri, uri);
            assert_eq!(is_here(contents.text()), is_inline, "{uri}");
        }
        client.read(format!("thread://{kind}/you")).await.error();
        let prompt = client.prompt(format!("say_{kind}"), json!({ "name": "" })).await.text();
        assert_eq!(is_here(prompt), is_inline, "{kind}");
        let prompt = CompletionReference::Prompt(format!("say_{kind}"));
        let value = client.complete(prompt, "name", "").await.values()[0].clone();
        assert_eq!(is_here(value), is_inline, "{kind}");
    }
    assert_eq!(client.read("thread://pooled").await.contents()[0].mime.as_deref(), Some("text/x-thread"));
    assert_eq!(client.call("borrow", json!({})).await.text(), "ada");
    assert_eq!(client.call("parse", json!({ "text": "7" })).await.text(), "7");
    let failed = client.call("parse", json!({ "text": "x" })).await;
    assert!(failed.is_error() && failed.text().contains("invalid digit"), "{}", failed.text());
    let panicked = client.call("panics", json!({})).await;
    assert!(panicked.is_error() && panicked.text().starts_with("the tool failed unexpectedly, ref "));
}

/// With one thread for blocking work, a call that waits for it and is cancelled does not run.
#[test]
fn a_cancelled_call_that_has_not_started_does_not_run() {
    let runtime = RuntimeBuilder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let gate = Gate::default();
        let server = server(&gate);
        let call = |server: Server| async move { server.call_tool("block", json!({})).await };
        let running = tokio::spawn(call(server.clone()));
        gate.wait_for_threads(1).await;
        let waiting = tokio::spawn(call(server.clone()));
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        gate.open();
        running.await.unwrap().unwrap();
        // The only thread is free again, so everything that was queued before has run.
        server.call_tool("pooled", json!({})).await.unwrap();
        assert_eq!(gate.0.waiting.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn without_a_runtime_plain_functions_run_in_place() {
    let server = server(&Gate::default());
    let request =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "pooled" } });
    let mut handled = pin!(server.handle(request));
    match handled.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(Some(response)) => assert_eq!(response["result"]["content"][0]["text"], thread_id()),
        other => panic!("{other:?}"),
    }
}
