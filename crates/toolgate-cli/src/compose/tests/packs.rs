//! Packs: what they bring, what the file takes away or says better, and what is wrong with how they are named.

use serde_json::{Value, json};

use super::{Folder, Road, call, composed, server};

fn told(text: &str) -> String {
    match composed(&Folder::new(), text, Road::Local) {
        Ok(_) => panic!("nothing is wrong with {text}"),
        Err(told) => told,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_is_there_like_what_the_file_says() {
    let server = server(&Folder::new(), "[servers.a]\npacks = [\"runtime\"]\n");
    let (text, is_error) = call(&server, "runtime_get_info", json!({})).await;
    assert!(!is_error, "{text}");
    let info: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_file_says_takes_the_place_of_what_a_pack_has() {
    let text = "[servers.a]\npacks = [\"runtime\"]\n[servers.a.tools.runtime_get_info]\ntext = \"mine\"\n";
    let server = server(&Folder::new(), text);
    assert_eq!(call(&server, "runtime_get_info", json!({})).await.0, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_excluded_is_not_there() {
    let text = "[servers.a.packs.runtime]\nexclude = [\"runtime_*\"]\n[servers.a.tools.b]\ntext = \"b\"\n";
    let server = server(&Folder::new(), text);
    assert!(server.has_tool("b") && !server.has_tool("runtime_get_info"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_packs_are_told_with_their_place() {
    let said = told("[servers.a]\npacks = [\"runtme\"]\n");
    assert!(said.contains("test.toml:2:10: there is no pack `runtme`; did you mean `runtime`?"), "{said}");
    let said = told("[servers.a]\npacks = [\"hub\"]\n");
    assert!(said.contains("the pack `hub` needs a connection"), "{said}");
    let said = told("[servers.a.packs.hub]\non = \"nowhere\"\nphases = [\"best\"]\n");
    assert!(said.contains("the pack `hub` has no parts"), "{said}");
    // Only packs may name what is built in.
    let said = told("[servers.a.tools.b]\nbuiltin = \"runtime_get_info\"\n");
    assert!(said.contains("unknown key `builtin`"), "{said}");
}

/// What it finds is what its caller may see: another one must not get that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_built_in_is_not_kept() {
    let text = "[connections.c]\nhttp = \"https://x.example\"\n[servers.a.packs.hub]\non = \"c\"\n\
                [servers.a.tools.blue_registry]\ncache = \"1m\"\n";
    let said = told(text);
    assert!(said.contains("test.toml:6:9: what is built in may depend on who asks"), "{said}");
    assert!(composed(&Folder::new(), &text.replace("cache = \"1m\"", ""), Road::Local).is_ok());
}
