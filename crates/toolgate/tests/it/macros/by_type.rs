//! Parameters are arguments or extractors by their types, not by the names of the types.

use serde_json::json;
use toolgate::{Server, items};

use super::{call_text, complete, get_prompt, list_items, read_resource, server_of};
use crate::handlers::call;

/// Types of the program that are called like extractors.
mod own_names {
    use toolgate::prelude::{Deserialize, JsonSchema, prompt, template, tool};

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum State {
        Open,
        Closed,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub(crate) struct Headers {
        pub(crate) subject: String,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub(crate) struct Context(pub(crate) String);

    /// Changes the state
    /// @headers Of the mail
    #[tool]
    pub(crate) fn change(
        /// The new one
        state: State,
        headers: Headers,
        context: Option<Context>,
        principal: toolgate::Principal,
    ) -> String {
        format!("{state:?} {} {:?} {:?}", headers.subject, context.map(|context| context.0), principal.id())
    }

    #[prompt]
    pub(crate) fn ask(state: State, cx: toolgate::Context) -> String {
        format!("{state:?} {}", cx.is_cancelled())
    }

    #[template("x://{state}")]
    pub(crate) fn read(state: State, cx: toolgate::Context) -> String {
        format!("{state:?} {}", cx.is_cancelled())
    }

    #[toolgate::complete(read.state)]
    pub(crate) fn states(prefix: Context, cx: toolgate::Context) -> Vec<String> {
        vec![format!("{}-{}", prefix.0, cx.is_cancelled())]
    }
}

/// Extractors under other names.
mod aliases {
    use toolgate::prelude::*;

    pub(crate) struct Tenant(String);

    impl toolgate::Extract for Tenant {
        fn from_call(cx: &Context) -> Result<Tenant, HandlerError> {
            cx.headers().get("x-tenant").map(|_| Tenant("known".into())).ok_or(HandlerError::new("no tenant"))
        }
    }

    pub(crate) type Db = State<&'static str>;

    #[tool]
    pub(crate) fn query(db: Db, caller: Option<Principal>, text: String) -> String {
        format!("{} {:?} {text}", *db, caller.as_ref().and_then(Principal::id))
    }

    #[tool]
    pub(crate) fn tenant(tenant: Tenant, #[arg(range = 1..=3)] n: u8) -> String {
        format!("{} {n}", tenant.0)
    }
}

#[tokio::test]
async fn a_type_called_like_an_extractor_is_an_argument() {
    let server = server_of(items![own_names::change, own_names::ask, own_names::read, own_names::states]);
    let tool = list_items(&server, "tools/list", "tools").await.remove(0);
    assert_eq!(
        tool["inputSchema"],
        json!({
            "type": "object",
            "properties": {
                "state": { "type": "string", "enum": ["open", "closed"], "description": "The new one" },
                "headers": {
                    "type": "object",
                    "description": "Of the mail",
                    "properties": { "subject": { "type": "string" } },
                    "required": ["subject"],
                },
                "context": { "type": "string" },
            },
            "required": ["state", "headers"],
            "additionalProperties": false,
        })
    );
    let arguments = json!({ "state": "open", "headers": { "subject": "s" }, "context": "c" });
    assert_eq!(call_text(&server, "change", arguments).await, "Open s Some(\"c\") None");
    let missing = call_text(&server, "change", json!({ "state": "open" })).await;
    assert!(missing.contains("`headers` is required"), "{missing}");

    let prompts = list_items(&server, "prompts/list", "prompts").await;
    assert_eq!(prompts[0]["arguments"], json!([{ "name": "state", "required": true }]));
    let prompt = get_prompt(&server, "ask", json!({ "state": "closed" })).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "Closed false");
    assert_eq!(read_resource(&server, "x://open").await["contents"][0]["text"], "Open false");
    let reference = json!({ "type": "ref/resource", "uri": "x://{state}" });
    assert_eq!(complete(&server, reference, "state", "op").await, json!(["op-false"]));
}

#[tokio::test]
async fn an_extractor_under_another_name_is_no_argument() {
    let items = items![aliases::query, aliases::tenant];
    let server = Server::new("aliases", "1").state("db").add(items).build().unwrap();
    let tools = list_items(&server, "tools/list", "tools").await;
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string" } },
        "required": ["text"],
        "additionalProperties": false,
    });
    assert_eq!(tools[0]["inputSchema"], schema);
    assert_eq!(call_text(&server, "query", json!({ "text": "x" })).await, "db None x");
    let named_like_extractor = call_text(&server, "query", json!({ "text": "x", "db": "y" })).await;
    assert!(named_like_extractor.contains("unknown parameter `db`"), "{named_like_extractor}");
    // Arguments are checked before anything is extracted.
    assert!(call_text(&server, "tenant", json!({ "n": 4 })).await.contains("`n` must be at most 3"));
    let failed = call(&server, "tenant", json!({ "n": 3 })).await;
    assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("no tenant")));
}

#[test]
fn the_state_of_an_alias_is_required() {
    let error = Server::new("aliases", "1").add(items![aliases::query]).build().unwrap_err().to_string();
    assert!(error.contains("tool `query`: its handler takes `State<&str>`"), "{error}");
}

#[tokio::test]
async fn an_optional_principal_is_the_authenticated_caller() {
    use toolgate::testing::TestClient;
    use toolgate::{HandlerError, Principal};

    async fn who(who: Option<Principal>) -> Result<String, HandlerError> {
        Ok(who.as_ref().and_then(Principal::id).unwrap_or("nobody").to_owned())
    }

    let server =
        Server::new("who", "1").state("db").tool("who", who).add(items![aliases::query]).build().unwrap();
    let arguments = json!({ "text": "x" });
    let anonymous = TestClient::http(&server);
    assert_eq!(anonymous.call("who", json!({})).await.text(), "nobody");
    assert_eq!(anonymous.call("query", arguments.clone()).await.text(), "db None x");
    let ada = TestClient::http(&server).with_principal(Principal::new("ada"));
    assert_eq!(ada.call("who", json!({})).await.text(), "ada");
    assert_eq!(ada.call("query", arguments).await.text(), "db Some(\"ada\") x");
}
