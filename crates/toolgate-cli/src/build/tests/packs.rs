//! Packs: what they bring, what the file takes away or says better, and what is wrong with how they are named.

use serde_json::{Value, json};

use super::{ServeMode, TempFolder, build_config, call, server};

fn rejection_message(text: &str) -> String {
    match build_config(&TempFolder::new(), text, ServeMode::Local) {
        Ok(_) => panic!("nothing is wrong with {text}"),
        Err(told) => told,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_is_there_like_what_the_file_says() {
    let server = server(&TempFolder::new(), "[servers.a]\npacks = [\"runtime\"]\n");
    let (text, is_error) = call(&server, "runtime_get_info", json!({})).await;
    assert!(!is_error, "{text}");
    let info: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_file_says_takes_the_place_of_what_a_pack_has() {
    let text = "[servers.a]\npacks = [\"runtime\"]\n[servers.a.tools.runtime_get_info]\ntext = \"mine\"\n";
    let server = server(&TempFolder::new(), text);
    assert_eq!(call(&server, "runtime_get_info", json!({})).await.0, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_excluded_is_not_there() {
    let text = "[servers.a.packs.runtime]\nexclude = [\"runtime_*\"]\n[servers.a.tools.b]\ntext = \"b\"\n";
    let server = server(&TempFolder::new(), text);
    assert!(server.has_tool("b") && !server.has_tool("runtime_get_info"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_packs_are_told_with_their_place() {
    let said = rejection_message("[servers.a]\npacks = [\"runtme\"]\n");
    assert!(said.contains("test.toml:2:10: there is no pack `runtme`; did you mean `runtime`?"), "{said}");
    let said = rejection_message("[servers.a]\npacks = [\"hub\"]\n");
    assert!(said.contains("the pack `hub` requires a connection"), "{said}");
    let said = rejection_message("[servers.a.packs.hub]\non = \"nowhere\"\nphases = [\"best\"]\n");
    assert!(said.contains("the pack `hub` has no phases"), "{said}");
    // What was to be kept out is not there by a slip of the pen.
    let said = rejection_message(
        "[servers.a.packs.runtime]\nexclude = [\"app_*\", \"app_stpo\"]\ninclude = \"nothing_*\"\n",
    );
    let slip = "test.toml:2:21: `exclude` pattern \"app_stpo\" matches nothing in the pack `runtime`; did you mean `app_stop`?";
    assert!(said.contains(slip), "{said}");
    let slip = "test.toml:3:11: `include` pattern \"nothing_*\" matches nothing in the pack `runtime`\n";
    assert!(said.contains(slip) && !said.contains("app_*\" matches"), "{said}");
    // Only packs may name what is built in.
    let said = rejection_message("[servers.a.tools.b]\nbuiltin = \"runtime_get_info\"\n");
    assert!(said.contains("unknown key `builtin`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_shows_the_same_as_an_excluded_tool_is_excluded_too() {
    let text =
        "[servers.a.packs.runtime]\nexclude = [\"process_get_environment_variables\", \"logging_*\"]\n";
    let server = server(&TempFolder::new(), text);
    assert!(server.has_tool("runtime_get_info") && !server.has_tool("logging_read_entries"));
    assert!(server.has_resource("runtime://info") && !server.has_resource("runtime://env"));
    let templates: Vec<String> = server.templates().iter().map(|known| known.uri_template.clone()).collect();
    assert!(!templates.is_empty() && !templates.iter().any(|uri| uri.contains("logs")), "{templates:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inside_of_the_program_is_not_shown_to_a_network() {
    let open = "[listen]\nhttp = \"0.0.0.0:8080\"\n[servers.a]\npacks = [\"runtime\"]\n";
    let said = rejection_message(open);
    assert!(said.contains("set `auth`"), "{said}");
    let local = "[servers.a]\npacks = [\"runtime\"]\n";
    let made = build_config(&TempFolder::new(), local, ServeMode::Http).unwrap();
    assert!(made[0].warnings.iter().any(|note| note.message.contains("shows the internals")));
}

/// What it finds is what its caller may see: another one must not get that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_built_in_is_not_kept() {
    let text = "[connections.c]\nhttp = \"https://x.example\"\n[servers.a.packs.hub]\non = \"c\"\n\
                [servers.a.tools.blue_registry]\ncache = \"1m\"\n";
    let said = rejection_message(text);
    assert!(said.contains("test.toml:6:9: `cache` cannot be used with a built-in tool"), "{said}");
    assert!(build_config(&TempFolder::new(), &text.replace("cache = \"1m\"", ""), ServeMode::Local).is_ok());
}
