//! Annotated methods and functions.

use serde_json::{Value, json};
use toolgate::error::ErrorKind;
use toolgate::events::ErrorContext;
use toolgate::{Server, State};

use super::{EventLog, call_text, empty_server};

mod kit {
    use toolgate::prelude::*;

    pub(crate) struct Kit;

    #[server]
    impl Kit {
        /// Search for documents
        /// @query The search query
        #[tool]
        fn search(query: String, #[arg(default = 10)] limit: u32) -> String {
            format!("{limit} of {query}")
        }

        /// @query The query to search
        #[tool("Search for documents in the knowledge base")]
        fn search_docs(query: String) -> String {
            query
        }

        #[tool(name = "calculator", description = "Perform calculations", version = "2.0.0")]
        fn calculate(expression: String) -> usize {
            expression.len()
        }

        /// From the comment
        #[tool(version = "3.0.0")]
        fn partly(word: String) -> String {
            word
        }

        /// Returns the README file
        #[resource]
        fn readme() -> &'static str {
            "# Readme"
        }

        #[resource("API documentation for developers")]
        fn api_docs() -> &'static str {
            "docs"
        }

        #[resource(
            uri = "config://app",
            name = "App Config",
            description = "Application settings",
            mime = "application/json"
        )]
        fn get_config() -> &'static str {
            "{}"
        }

        /// Generate a greeting message
        /// @name The person's name
        #[prompt]
        fn greeting(name: String) -> String {
            format!("Say hello to {name}")
        }

        #[prompt("Generate code based on a description")]
        fn code_gen(description: String, #[arg(default = "java")] language: String) -> String {
            format!("{language}: {description}")
        }

        #[prompt(name = "reviewer", description = "Code review prompt", arguments = [code = "What to review"])]
        fn review_code(code: String) -> String {
            code
        }
    }
}

mod pack {
    use toolgate::prelude::*;

    #[tool]
    fn s1_one() -> &'static str {
        "one"
    }

    #[tool]
    fn s1_two() -> &'static str {
        "two"
    }

    pub(crate) mod inner {
        use toolgate::prelude::*;

        #[tool]
        fn s1_three() -> &'static str {
            "three"
        }
    }
}

fn scanned_server() -> Server {
    empty_server("annotated").add(kit::Kit).unwrap()
}

async fn find_item(list: Vec<Value>, key: &str, value: &str) -> Value {
    list.into_iter().find(|item| item[key] == value).unwrap_or_else(|| panic!("no {key} {value}"))
}

async fn find_tool(tool: &str) -> Value {
    find_item(scanned_server().list_tools().await, "name", tool).await
}

async fn find_resource(uri: &str) -> Value {
    find_item(scanned_server().list_resources().await, "uri", uri).await
}

async fn find_prompt(name: &str) -> Value {
    find_item(scanned_server().list_prompts().await, "name", name).await
}

#[test]
fn s1_151_a_value_is_scanned() {
    assert!(scanned_server().has_tool("search"));
}

/// Link-time collection replaces the directory of a compiled program. Directories of declarative files belong to the
/// program that reads files, which comes later.
#[test]
fn s1_152_a_module_is_scanned_with_those_inside_it() {
    let server = empty_server("s");
    let found = server.collect_from("it::seeds::scan::pack").unwrap();
    assert_eq!(found, ["s1_one", "s1_two", "s1_three"]);
    assert_eq!(server.tool_count(), 3);
}

#[test]
fn s1_153_or_without_those_inside_it() {
    let server = empty_server("s");
    server.collect_module("it::seeds::scan::pack").unwrap();
    assert_eq!(server.tool_count(), 2);
}

/// Here the path is a path of modules.
#[test]
fn s1_154_a_path_that_leads_nowhere_is_an_error() {
    let server = empty_server("s");
    let error = server.collect_from("no::such").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Scan);
    assert!(error.to_string().contains("no::such"));
    assert_eq!(server.tool_count(), 0);
}

#[tokio::test]
async fn s1_155_a_tool_takes_its_words_from_the_method() {
    assert_eq!(find_tool("search").await["description"], "Search for documents");
    assert_eq!(scanned_server().tool_version("search").as_deref(), Some("1.0.0"));
}

#[tokio::test]
async fn s1_156_a_tool_with_a_description() {
    let description = find_tool("search_docs").await["description"].clone();
    assert!(description.as_str().unwrap().starts_with("Search for documents in"), "{description}");
}

#[tokio::test]
async fn s1_157_a_tool_with_everything() {
    assert_eq!(find_tool("calculator").await["description"], "Perform calculations");
    assert_eq!(scanned_server().tool_version("calculator").as_deref(), Some("2.0.0"));
    assert_eq!(scanned_server().tool_version("calculate"), None);
}

#[tokio::test]
async fn s1_158_what_is_not_given_comes_from_the_method() {
    assert_eq!(find_tool("partly").await["description"], "From the comment");
    assert_eq!(scanned_server().tool_version("partly").as_deref(), Some("3.0.0"));
}

/// An argument without a description has none: its name is enough.
#[tokio::test]
async fn s1_159_tags_describe_arguments() {
    let schema = find_tool("search").await["inputSchema"].clone();
    assert_eq!(schema["properties"]["query"]["description"], "The search query");
    let schema = find_tool("search_docs").await["inputSchema"].clone();
    assert_eq!(schema["properties"]["query"]["description"], "The query to search");
}

#[tokio::test]
async fn s1_160_what_is_required_follows_the_signature() {
    assert_eq!(find_tool("search").await["inputSchema"]["required"], json!(["query"]));
}

#[tokio::test]
async fn s1_161_a_resource_takes_its_words_from_the_method() {
    assert!(scanned_server().has_resource("resource://readme"));
    let readme = find_resource("resource://readme").await;
    assert_eq!(
        (&readme["name"], &readme["description"], &readme["mimeType"]),
        (&json!("readme"), &json!("Returns the README file"), &json!("text/plain"))
    );
}

#[tokio::test]
async fn s1_162_a_resource_with_a_description() {
    assert_eq!(find_resource("resource://api_docs").await["description"], "API documentation for developers");
}

#[tokio::test]
async fn s1_163_a_resource_with_everything() {
    let config = find_resource("config://app").await;
    assert_eq!(
        (&config["name"], &config["description"], &config["mimeType"]),
        (&json!("App Config"), &json!("Application settings"), &json!("application/json"))
    );
}

#[tokio::test]
async fn s1_164_a_prompt_takes_its_words_from_the_method() {
    let greeting = find_prompt("greeting").await;
    assert_eq!(greeting["description"], "Generate a greeting message");
    let expected = json!([{ "name": "name", "description": "The person's name", "required": true }]);
    assert_eq!(greeting["arguments"], expected);
}

/// On the wire, `required` is omitted if it is false, which is the default for clients.
#[tokio::test]
async fn s1_165_a_prompt_with_a_description_and_a_default() {
    let code_gen = find_prompt("code_gen").await;
    assert_eq!(code_gen["description"], "Generate code based on a description");
    assert_eq!(code_gen["arguments"][0]["required"], true);
    assert_eq!(code_gen["arguments"][1]["name"], "language");
    assert_ne!(code_gen["arguments"][1]["required"], true);
    let filled = scanned_server().get_prompt("code_gen", json!({ "description": "x" })).await.unwrap();
    assert_eq!(filled["messages"][0]["content"]["text"], "java: x");
}

#[tokio::test]
async fn s1_166_a_prompt_with_everything() {
    let reviewer = find_prompt("reviewer").await;
    assert_eq!(reviewer["description"], "Code review prompt");
    assert_eq!(
        reviewer["arguments"],
        json!([{ "name": "code", "description": "What to review", "required": true }])
    );
}

#[tokio::test]
async fn s1_167_one_scan_takes_all_three() {
    let server = scanned_server();
    assert_eq!((server.tool_count(), server.resource_count(), server.prompt_count()), (4, 3, 3));
    assert_eq!(call_text(&server, "search", json!({ "query": "x" })).await, "10 of x");
}

mod wanting {
    use toolgate::prelude::*;

    pub(crate) struct Wanting;

    #[server]
    impl Wanting {
        #[tool]
        fn needs(state: super::State<u8>) -> u8 {
            *state
        }
    }
}

#[test]
fn s1_169_a_failed_scan_is_reported() {
    let events = EventLog::default();
    let server = empty_server("s");
    server.events().on_error({
        let events = events.clone();
        move |error| {
            assert_eq!(error.context(), ErrorContext::ScanClass);
            events.push(error.data());
        }
    });
    assert!(server.add(wanting::Wanting).is_err());
    assert!(server.collect_from("no::such").is_err());
    assert_eq!(events.len(), 2);
    assert_eq!(events.all()[1]["context"], "scanClass");
    assert_eq!(server.tool_count(), 0);
}
