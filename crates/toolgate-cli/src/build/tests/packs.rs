//! Packs: their entries, overrides in the file, and errors.

use serde_json::{Value, json};

use super::{ServeMode, TempFolder, build_config, call, server};

fn rejection_message(text: &str) -> String {
    match build_config(&TempFolder::new(), text, ServeMode::Local) {
        Ok(_) => panic!("no error in {text}"),
        Err(report) => report,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_adds_its_tools() {
    let server = server(&TempFolder::new(), "[servers.a]\npacks = [\"runtime\"]\n");
    let (text, is_error) = call(&server, "runtime_get_info", json!({})).await;
    assert!(!is_error, "{text}");
    let info: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_the_file_replaces_that_of_a_pack() {
    let text = "[servers.a]\npacks = [\"runtime\"]\n[servers.a.tools.runtime_get_info]\ntext = \"mine\"\n";
    let server = server(&TempFolder::new(), text);
    assert_eq!(call(&server, "runtime_get_info", json!({})).await.0, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_tools_are_not_added() {
    let text = "[servers.a.packs.runtime]\nexclude = [\"runtime_*\"]\n[servers.a.tools.b]\ntext = \"b\"\n";
    let server = server(&TempFolder::new(), text);
    assert!(server.has_tool("b") && !server.has_tool("runtime_get_info"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_packs_have_positions() {
    let report = rejection_message("[servers.a]\npacks = [\"runtme\"]\n");
    assert!(
        report.contains("test.toml:2:10: there is no pack `runtme`; did you mean `runtime`?"),
        "{report}"
    );
    let report = rejection_message("[servers.a]\npacks = [\"hub\"]\n");
    assert!(report.contains("the pack `hub` requires a connection"), "{report}");
    let report = rejection_message("[servers.a.packs.hub]\non = \"nowhere\"\nphases = [\"best\"]\n");
    assert!(report.contains("the pack `hub` has no phases"), "{report}");
    // A typo in a pattern is an error.
    let report = rejection_message(
        "[servers.a.packs.runtime]\nexclude = [\"app_*\", \"app_stpo\"]\ninclude = \"nothing_*\"\n",
    );
    let typo = "test.toml:2:21: `exclude` pattern \"app_stpo\" matches nothing in the pack `runtime`; did you mean `app_stop`?";
    assert!(report.contains(typo), "{report}");
    let typo = "test.toml:3:11: `include` pattern \"nothing_*\" matches nothing in the pack `runtime`\n";
    assert!(report.contains(typo) && !report.contains("app_*\" matches"), "{report}");
    // `builtin` is a key of packs only.
    let report = rejection_message("[servers.a.tools.b]\nbuiltin = \"runtime_get_info\"\n");
    assert!(report.contains("unknown key `builtin`"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_excluded_tools_are_excluded() {
    let text =
        "[servers.a.packs.runtime]\nexclude = [\"process_get_environment_variables\", \"logging_*\"]\n";
    let server = server(&TempFolder::new(), text);
    assert!(server.has_tool("runtime_get_info") && !server.has_tool("logging_read_entries"));
    assert!(server.has_resource("runtime://info") && !server.has_resource("runtime://env"));
    let templates: Vec<String> = server.templates().iter().map(|known| known.uri_template.clone()).collect();
    assert!(!templates.is_empty() && !templates.iter().any(|uri| uri.contains("logs")), "{templates:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtime_pack_is_not_exposed_without_auth() {
    let open = "[listen]\nhttp = \"0.0.0.0:8080\"\n[servers.a]\npacks = [\"runtime\"]\n";
    let report = rejection_message(open);
    assert!(report.contains("set `auth`"), "{report}");
    let local = "[servers.a]\npacks = [\"runtime\"]\n";
    let servers = build_config(&TempFolder::new(), local, ServeMode::Http).unwrap();
    assert!(servers[0].warnings.iter().any(|warning| warning.message.contains("shows the internals")));
}

/// A8: a command that everyone on the network can run must be intended.
#[tokio::test(flavor = "multi_thread")]
async fn commands_are_not_exposed_without_auth() {
    let tool = "[servers.a.tools.now]\ncommand.argv = [\"date\"]\n";
    let exposed = "[listen]\nhttp = \"0.0.0.0:8080\"\n[servers.a]\n";
    let report = rejection_message(&format!("{exposed}{tool}"));
    assert!(report.contains("the command of `now`; set `auth`, or `open = true`"), "{report}");
    let template = "[servers.a.templates.log]\nuri = \"log://{name}\"\nargs = { name = \"string\" }\n\
                    command.argv = [\"cat\", \"{name}\"]\n";
    let report = rejection_message(&format!("{exposed}{template}"));
    assert!(report.contains("the command of `log`; set `auth`"), "{report}");
    for fine in [tool.to_owned(), format!("{exposed}open = true\n{tool}")] {
        let built = build_config(&TempFolder::new(), &fine, ServeMode::Http);
        assert!(built.is_ok(), "{fine}: {:?}", built.err());
    }
}

/// The result of a built-in depends on the caller, so it must not be returned to another one.
#[tokio::test(flavor = "multi_thread")]
async fn results_of_built_ins_are_not_cached() {
    let text = "[connections.c]\nhttp = \"https://x.example\"\n[servers.a.packs.hub]\non = \"c\"\n\
                [servers.a.tools.blue_registry]\ncache = \"1m\"\n";
    let report = rejection_message(text);
    assert!(report.contains("test.toml:6:9: `cache` cannot be used with a built-in tool"), "{report}");
    assert!(build_config(&TempFolder::new(), &text.replace("cache = \"1m\"", ""), ServeMode::Local).is_ok());
}
