//! Annotated impl blocks, and collecting the items of a module or of the whole program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use toolgate::error::ErrorKind;
use toolgate::{Item, Server, ToolSpec, items};

use super::{call_text, complete, get_prompt, list_items, read_resource, shop};
use crate::handlers::ask;

struct Counter<T> {
    n: AtomicU32,
    name: T,
}

#[toolgate::server(instructions = "Counts")]
impl<T: std::fmt::Display + Send + Sync + 'static> Counter<T> {
    /// Count on
    #[toolgate::tool]
    async fn count(
        &self,
        /// How far
        #[arg(default = 1, range = 1..=9)]
        by: u32,
    ) -> String {
        tokio::task::yield_now().await;
        format!("{} {}", self.name, self.n.fetch_add(by, Ordering::Relaxed) + by)
    }

    #[toolgate::resource("count://now")]
    fn now(&self) -> u32 {
        self.n.load(Ordering::Relaxed)
    }

    #[toolgate::template("count://{name}/{?part}")]
    fn named(&self, name: String, part: Option<String>) -> Option<String> {
        (name == self.name.to_string()).then(|| part.unwrap_or(name))
    }

    #[toolgate::complete(named.name, ask.name)]
    fn names(&self, prefix: String) -> Result<Vec<String>, String> {
        let name = self.name.to_string();
        if name.starts_with(&prefix) { Ok(vec![name]) } else { Err("nobody".into()) }
    }

    #[toolgate::prompt]
    async fn ask(&self, name: String) -> String {
        format!("{name}? {}", self.n.load(Ordering::Relaxed))
    }

    /// Needs no value
    #[toolgate::tool]
    fn free(word: String) -> String {
        word
    }

    #[toolgate::tool]
    async fn lent(&self) -> &str {
        "lent"
    }

    #[cfg(any())]
    #[toolgate::tool]
    fn not_there(&self) -> NoSuchType {}

    fn unmarked(&self) -> u32 {
        self.now()
    }
}

fn counter() -> Counter<&'static str> {
    Counter { n: 0.into(), name: "c" }
}

#[tokio::test]
async fn an_impl_block_shares_its_value() {
    let shared = Arc::new(counter());
    let server = Server::new("counter", "1").add(Arc::clone(&shared)).build().unwrap();
    assert_eq!(call_text(&server, "count", json!({})).await, "c 1");
    assert_eq!(call_text(&server, "count", json!({ "by": 2 })).await, "c 3");
    assert!(call_text(&server, "count", json!({ "by": 10 })).await.contains("`by` must be at most 9"));
    assert_eq!(call_text(&server, "free", json!({ "word": "w" })).await, "w");
    assert_eq!(call_text(&server, "lent", json!({})).await, "lent");
    assert_eq!(shared.unmarked(), 3);
    assert_eq!(read_resource(&server, "count://now").await["contents"][0]["text"], "3");
    assert_eq!(read_resource(&server, "count://c/?part=x").await["contents"][0]["text"], "x");
    assert_eq!(
        get_prompt(&server, "ask", json!({ "name": "n" })).await["messages"][0]["content"]["text"],
        "n? 3"
    );
    let prompt = json!({ "type": "ref/prompt", "name": "ask" });
    assert_eq!(complete(&server, prompt.clone(), "name", "").await, json!(["c"]));
    assert_eq!(complete(&server, prompt, "name", "x").await, json!([]));
    let tools = list_items(&server, "tools/list", "tools").await;
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["count", "free", "lent"]);
    assert_eq!(tools[0]["inputSchema"]["properties"]["by"]["description"], "How far");
}

#[tokio::test]
async fn instructions_are_appended() {
    let instructions =
        async |server: Server| ask(&server, "server/discover", json!({})).await["instructions"].clone();
    let alone = Server::new("a", "1").add(counter()).build().unwrap();
    assert_eq!(instructions(alone).await, "Counts");
    let appended = Server::new("a", "1").instructions("First").add(counter()).build().unwrap();
    assert_eq!(instructions(appended).await, "First\n\nCounts");
}

#[tokio::test]
async fn items_are_added_to_a_running_server_atomically() {
    let server = Server::new("late", "1").announce_changes().build().unwrap();
    let again = server.add(counter()).unwrap();
    assert_eq!(call_text(&again, "count", json!({})).await, "c 1");
    assert_eq!(call_text(&server, "count", json!({})).await, "c 2");

    let bad: Vec<Item> = vec![
        ToolSpec::new("good", || async { "x" }).into(),
        ToolSpec::new("bad name", || async { "x" }).into(),
    ];
    let error = server.add(bad).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("tool `bad name`"));
    assert_eq!(list_items(&server, "tools/list", "tools").await.len(), 3, "`good` was not added either");
    let error = server.add(items![shop::search]).unwrap_err().to_string();
    assert!(error.contains("Currency>`"), "{error}");
}

mod forest {
    use toolgate::prelude::*;

    #[tool]
    pub(crate) fn oak() -> &'static str {
        "oak"
    }

    #[tool]
    pub(crate) fn ash() -> &'static str {
        "ash"
    }

    pub(crate) mod deep {
        use toolgate::prelude::*;

        #[tool]
        pub(crate) fn moss() -> &'static str {
            "moss"
        }
    }
}

mod foresters {
    use toolgate::prelude::*;

    #[tool]
    pub(crate) fn axe() -> &'static str {
        "axe"
    }
}

#[tokio::test]
async fn a_module_is_collected_with_or_without_those_inside_it() {
    let names = async |server: &Server| {
        let tools = list_items(server, "tools/list", "tools").await;
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = Server::new("forest", "1").collect_from("it::macros::collect::forest").build().unwrap();
    assert_eq!(names(&all).await, ["oak", "ash", "moss"]);
    let flat = Server::new("forest", "1").collect_module("it::macros::collect::forest").build().unwrap();
    assert_eq!(names(&flat).await, ["oak", "ash"]);
    let listed = Server::new("forest", "1").add(items![foresters::axe, forest::deep::moss]).build().unwrap();
    assert_eq!(names(&listed).await, ["axe", "moss"]);

    let server = Server::new("forest", "1").announce_changes().build().unwrap();
    assert_eq!(server.collect_module("it::macros::collect::forest::deep").unwrap(), ["moss"]);
    assert_eq!(server.collect_from("it::macros::collect::forest").unwrap(), ["oak", "ash", "moss"]);
    let error = server.collect_from("it::macros::collect::fores").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Scan);
    assert!(error.to_string().contains("`it::macros::collect::fores`"));
    assert_eq!(names(&server).await, ["moss", "oak", "ash"]);
    let error = Server::new("forest", "1").collect_from("no::such").build().unwrap_err().to_string();
    assert!(error.contains("`no::such`"), "{error}");
}

#[test]
fn all_linked_items_are_found() {
    let error = Server::new("all", "1").collect().build().unwrap_err().to_string();
    // Two modules of this test program each have an item `one`, and the states are missing.
    assert!(error.contains("Currency>`"), "{error}");
}
