//! Ways to write a server: conditions, loops, helper functions, and the version.

use serde_json::json;
use toolgate::prelude::server;
use toolgate::testing::TestClient;
use toolgate::{Builder, Item, ResourceSpec, Server, Servers, ToolSpec, items};

async fn hello() -> &'static str {
    "Hello!"
}

fn add_admin(builder: Builder) -> Builder {
    builder.tool("reset", hello).describe("Starts over").destructive()
}

fn add_all(mut builder: Builder, names: &[&str]) -> Builder {
    for name in names {
        builder = builder.tool(*name, hello).title(name.to_uppercase());
    }
    builder
}

fn conditional(is_admin: bool) -> Builder {
    let mut builder = Server::new("conditional", "1.0.0");
    if is_admin {
        builder = builder.tool("users", hello).describe("Lists users").read_only();
    }
    builder = match is_admin {
        true => builder.resource("x://readme", hello).mime("text/markdown"),
        false => builder,
    };
    if is_admin { add_admin(builder) } else { builder }
}

#[tokio::test]
async fn a_builder_can_be_extended_under_a_condition() {
    let admin = conditional(true).build().unwrap();
    assert_eq!((admin.tool_count(), admin.resource_count()), (2, 1));
    let guest = conditional(false).build().unwrap();
    assert_eq!((guest.tool_count(), guest.resource_count()), (0, 0));
    // The methods applied to the item added last, and reached the client.
    let tools = TestClient::connect(&admin).await.tools().await;
    assert_eq!(tools[0].description.as_deref(), Some("Lists users"));
    assert_eq!(tools[1].description.as_deref(), Some("Starts over"));
}

#[test]
fn a_builder_passes_through_functions_after_any_call() {
    let fold =
        ["a", "b"].into_iter().fold(Server::new("fold", "1"), |builder, name| builder.tool(name, hello));
    assert_eq!(fold.build().unwrap().tool_count(), 2);
    let chain =
        add_all(add_admin(Server::new("chain", "1").tool("first", hello)), &["x", "y"]).describe("The last");
    assert_eq!(chain.build().unwrap().tool_count(), 4);
    let boxed: Vec<Box<dyn Fn(Builder) -> Builder>> = vec![
        Box::new(add_admin),
        Box::new(|builder| builder.add_tool(ToolSpec::new("t", hello)).alias("u")),
        Box::new(|builder| builder.add_resource(ResourceSpec::new("x://y", hello)).size(6)),
        Box::new(|builder| {
            builder.template("x://{id}", hello).complete("id", |prefix, _| async { [prefix] })
        }),
        Box::new(|builder| builder.prompt("p", hello).describe("A prompt").state(7_u8)),
        Box::new(|builder| builder.add(Vec::<Item>::new())),
    ];
    let built =
        boxed.iter().fold(Server::new("boxed", "1"), |builder, extend| extend(builder)).build().unwrap();
    assert_eq!((built.tool_count(), built.resource_count(), built.prompt_count()), (2, 1, 1));
}

#[test]
fn settings_between_keep_the_item() {
    let server =
        Server::new("between", "1").tool("a", hello).state(7_u8).instructions("Be brief").describe("A");
    assert_eq!(server.build().unwrap().tool_count(), 1);
}

#[test]
fn a_method_of_another_item_is_a_configuration_error() {
    let check = |builder: Builder, expected: &str| {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let new = || Server::new("wrong", "1");
    check(
        new().tool("a", hello).mime("text/plain"),
        "mime: it configures a resource or template, and the item added last is the tool `a`",
    );
    check(
        new().resource("x://y", hello).read_only(),
        "read_only: it configures a tool, and the item added last is the resource `x://y`",
    );
    check(
        new().prompt("p", hello).size(3),
        "size: it configures a resource, and the item added last is the prompt `p`",
    );
    check(
        new().describe("A server"),
        "describe: it configures a tool, resource, template or prompt, and must follow the call that adds one; \
         `server_description` describes the server",
    );
    check(
        new().version("2"),
        "version: it configures a tool, and must follow the call that adds one; `server_version`",
    );
    check(
        new().tool("a", hello).add(Vec::<Item>::new()).complete("id", |prefix, _| async { [prefix] }),
        "complete: it configures a resource, template or prompt, and must follow the call that adds one",
    );
}

struct Notes;

#[server(version = "3.1.4", instructions = "Notes")]
impl Notes {
    /// Reads
    #[tool]
    fn read(&self) -> &'static str {
        "read"
    }
}

#[tokio::test]
async fn the_version_of_a_server_can_be_said_in_every_way_of_building() {
    let version = |builder: Builder| builder.build().unwrap().version();
    assert_eq!(version(Server::new("a", "2.0.0")), "2.0.0");
    assert_eq!(version(Server::new("a", "2.0.0").add(items![])), "2.0.0");
    assert_eq!(version(Server::new("a", "1").tool("t", hello).version("7").server_version("2.0.0")), "2.0.0");
    assert_eq!(version(Server::new("a", "1").add(Notes)), "3.1.4");
    assert_eq!(version(Server::new("a", "1").add(Notes).server_version("4.0.0")), "4.0.0");

    let servers = Servers::new();
    assert_eq!(servers.server_with("b", |server| server.server_version("2.0.0")).version(), "2.0.0");
    assert_eq!(servers.replace_with("b", |server| server.add(Notes)).version(), "3.1.4");
    assert_eq!(servers.server("c").set_version("5.0.0").version(), "5.0.0");

    let server = Server::new("a", "1").add(Notes).build().unwrap();
    let info = TestClient::connect(&server).await.server_details().await.server.unwrap();
    assert_eq!((info.name.as_str(), info.version.as_str()), ("a", "3.1.4"));
    assert_eq!(server.server_info(), json!({ "name": "a", "version": "3.1.4" }));
}
