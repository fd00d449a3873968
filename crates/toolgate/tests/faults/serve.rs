//! The server under test, in a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use toolgate::model::TaskSupport;
use toolgate::store::RedisStore;
use toolgate::{Context, HandlerError, Server};

/// The environment variable with the settings of the process.
const STORE_VARIABLE: &str = "TOOLGATE_FAULTS_STORE";
/// The file to which tools log their steps.
const STEP_LOG_VARIABLE: &str = "TOOLGATE_FAULTS_DIARY";

/// A server process.
pub(crate) struct Node {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Node {
    pub(crate) fn start(store: &str, diary: &str) -> Node {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["serve::the_server", "--exact", "--nocapture", "--test-threads=1"])
            .env(STORE_VARIABLE, store)
            .env(STEP_LOG_VARIABLE, diary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        // The process ends with this value.
        let mut node = Node { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let lines = BufReader::new(node.child.stdout.take().unwrap()).lines();
        let mut places = lines.map_while(Result::ok);
        let at = places.find_map(|line| line.split_once("serving at ").map(|(_, at)| at.parse().unwrap()));
        node.address = at.expect("the server process ended before it served");
        node
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Tagged {
    tag: String,
    /// The number of steps, and the duration of each.
    #[serde(default)]
    steps: u32,
    #[serde(default)]
    ms: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Touch {
    uri: String,
}

/// Runs its steps once each, however often it is started.
async fn work(args: Tagged, cx: Context) -> Result<String, HandlerError> {
    for step in 0..args.steps {
        cx.step(&format!("step {step}"), || async {
            log_step(&format!("{} {step}", args.tag));
            tokio::time::sleep(Duration::from_millis(args.ms)).await;
            Ok::<_, HandlerError>(step)
        })
        .await?;
    }
    Ok(format!("done {}", args.tag))
}

fn log_step(line: &str) {
    let Ok(path) = std::env::var(STEP_LOG_VARIABLE) else { return };
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

fn server(store: RedisStore) -> Result<Server, toolgate::Error> {
    Server::new("fleet", "1.0.0")
        .store(store)
        .max_tasks(1000)
        .stream_after(Duration::from_millis(200))
        .tool("echo", |args: Tagged| async move { args.tag })
        .tool("count", |args: Tagged, cx: Context| async move {
            for step in 1..=args.steps {
                cx.progress_of(f64::from(step), f64::from(args.steps), args.tag.as_str()).await;
                tokio::time::sleep(Duration::from_millis(args.ms)).await;
            }
            args.tag
        })
        .tool("touch", |args: Touch, cx: Context| async move {
            cx.notify().resource_updated(&args.uri);
            "touched"
        })
        .tool("again", work)
        .task(TaskSupport::Optional)
        .resumable()
        .tool("once", work)
        .task(TaskSupport::Optional)
        .template(
            "thing://{name}",
            |cx: Context| async move { json!({ "of": cx.principal().id() }).to_string() },
        )
        .build()
}

/// Not a test: the process that the tests start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server() {
    let Ok(store) = std::env::var(STORE_VARIABLE) else { return };
    let store = RedisStore::connect(&store).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("serving at {}", listener.local_addr().unwrap());
    server(store).unwrap().serve(listener).await.unwrap();
}
