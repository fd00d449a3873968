//! Commands that exit after one operation.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{TempDir, parse_response, program, run, send, text};

#[test]
fn the_starter_file_works_as_it_is_written() {
    let folder = TempDir::new();
    let made = run(folder.path(), &["init"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert_eq!(run(folder.path(), &["init"]).status.code(), Some(1), "it does not overwrite a file");
    let checked = run(folder.path(), &["check", "toolgate.toml"]);
    assert_eq!(text(&checked.stdout), "hello: 2 tools, 1 resources, 0 templates, 1 prompts, at /mcp\n");
    // The command that it prints as the next step works.
    let called = run(folder.path(), &["call", "toolgate.toml", "greet", r#"{"name":"Ada"}"#]);
    assert_eq!((called.status.code(), text(&called.stdout).as_str()), (Some(0), "Hello, Ada!\n"));
    assert!(text(&made.stdout).contains(r#"call toolgate.toml greet '{"name":"Ada"}'"#));
}

#[test]
fn failures_have_distinct_exit_codes() {
    let folder = TempDir::new();
    folder.write(
        "t.toml",
        "[servers.s.tools.f]\ncommand = { argv = [\"false\"] }\n[servers.s.tools.t]\ntext = \"x\"\n",
    );
    for (arguments, code, expected) in [
        (&["call", "t.toml", "f"][..], 4, "exit code 1"),
        (&["call", "t.toml", "s.t"][..], 0, "x"),
        (&["call", "t.toml", "t", "[]"][..], 2, "a JSON object"),
        (&["call", "t.toml", "t", "{"][..], 2, "not valid JSON"),
        (&["call", "t.toml", "nothing"][..], 1, "nothing"),
        (&["call", "gone.toml", "t"][..], 3, "cannot read gone.toml: no such file"),
        (&["stdio", "t.toml", "--server", "x"][..], 2, "there is no server `x`; known servers: s"),
        (&["explain", "t.toml", "nothing"][..], 2, "there is no tool"),
        (&["bogus"][..], 2, "bogus"),
    ] {
        let output = run(folder.path(), arguments);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {all}");
        assert!(all.contains(expected), "{arguments:?}: {all}");
    }
    let json = run(folder.path(), &["call", "--json", "t.toml", "t"]);
    let result: Value = serde_json::from_str(&text(&json.stdout)).unwrap();
    assert_eq!(result["content"][0]["text"], "x");
}

#[test]
fn tools_are_listed_and_explained() {
    let folder = TempDir::new();
    folder.write(
        "t.toml",
        r#"
        [auth.people]
        bearer = ["secret-token"]
        [servers.shop]
        auth = "people"
        [servers.shop.tools.find]
        description = "Finds things."
        args = { q = "string", who = { from = "principal.sub", type = "string" } }
        template = "{{ q }} {{ who }}"
        [servers.shop.tools.run]
        description = "Runs."
        command = { argv = ["true"], timeout = "5s" }
        [servers.other.resources.r]
        uri = "r://r"
        text = "r"
        "#,
    );
    let listed = text(&run(folder.path(), &["tools", "t.toml"]).stdout);
    assert_eq!(
        listed,
        "tool      shop.find  Finds things.\ntool      shop.run  Runs.\nresource  other.r://r  \n"
    );
    let one: Value =
        serde_json::from_slice(&run(folder.path(), &["tools", "t.toml", "--json"]).stdout).unwrap();
    assert_eq!(one["shop"][0]["inputSchema"]["properties"], json!({ "q": { "type": "string" } }));
    let explained = text(&run(folder.path(), &["explain", "t.toml", "shop.find"]).stdout);
    for expected in ["t.toml:6:29", "template", "0 users, 1 tokens, 0 API keys", "who from Subject", "\"q\""]
    {
        assert!(explained.contains(expected), "{expected}: {explained}");
    }
    assert!(!explained.contains("secret-token"));
    let explained = text(&run(folder.path(), &["explain", "t.toml", "run"]).stdout);
    assert!(explained.contains("timeout      5s\n"), "{explained}");
}

#[test]
fn the_schema_is_json_and_shell_completions_are_generated() {
    let folder = TempDir::new();
    let schema: Value = serde_json::from_slice(&run(folder.path(), &["schema"]).stdout).unwrap();
    assert_eq!(schema["properties"]["servers"]["type"], "object");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = text(&run(folder.path(), &["completions", shell]).stdout);
        assert!(script.contains("hash-password"), "{shell}");
    }
    let help = text(&run(folder.path(), &["--help"]).stdout);
    assert!(help.contains("Exit codes:") && help.contains("toolgate init"), "{help}");
}

#[test]
fn a_hashed_password_authenticates_its_user() {
    let folder = TempDir::new();
    let mut child = program()
        .arg("hash-password")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"tiger\n").unwrap();
    let hash = text(&child.wait_with_output().unwrap().stdout);
    assert!(hash.starts_with("$argon2id$v=19$"), "{hash}");
    assert_eq!(
        run(folder.path(), &["hash-password"]).status.code(),
        Some(2),
        "an empty password is rejected"
    );
    let config = format!(
        "[auth.people]\nbasic = [{{ user = \"ada\", hash = '{}' }}]\n[servers.s]\nauth = [\"people\"]\n[servers.s.tools.t]\ntext = \"in\"\n",
        hash.trim()
    );
    let served = crate::harness::RunningServer::new(&folder, &config);
    let body = crate::harness::request(1, "tools/call", &json!({ "name": "t" }));
    let with =
        |value: &str| parse_response(&send(&served.address, "POST /mcp", &[("authorization", value)], &body));
    assert_eq!(with("Basic YWRhOnRpZ2Vy").1["result"]["content"][0]["text"], "in");
    assert_eq!(with("Basic YWRhOndyb25n").0, 401);
}

#[test]
fn clients_get_the_configuration_they_need() {
    let folder = TempDir::new();
    folder.write("t.toml", "[servers.shop.tools.t]\ntext = \"x\"\n");
    let all = text(&run(folder.path(), &["install", "--print", "t.toml"]).stdout);
    for name in ["Claude Desktop", "Claude Code", "Cursor", "VS Code"] {
        assert!(all.contains(&format!("# {name}: ")), "{all}");
    }
    let snippet = |arguments: &[&str]| -> Value {
        let printed = text(&run(folder.path(), arguments).stdout);
        serde_json::from_str(printed.split_once('\n').unwrap().1).unwrap()
    };
    let code = snippet(&["install", "--client", "vscode", "--http", "t.toml"]);
    assert_eq!(code["servers"]["shop"], json!({ "type": "http", "url": "http://127.0.0.1:8080/mcp" }));
    let cursor = snippet(&["install", "--client", "cursor", "t.toml"]);
    let args: Vec<&str> =
        cursor["mcpServers"]["shop"]["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(matches!(args[..], ["stdio", _, "--server", "shop"]), "{args:?}");
    assert!(std::path::Path::new(args[1]).is_absolute(), "{args:?}");
}

#[test]
fn install_keeps_other_settings_and_makes_backups() {
    let folder = TempDir::new();
    folder.write("t.toml", "[servers.shop.tools.t]\ntext = \"x\"\n");
    let before = "{ \"mcpServers\": { \"other\": { \"command\": \"x\" } }, \"theme\": \"dark\" }";
    folder.write(".mcp.json", before);
    for _ in 0..2 {
        let written = run(folder.path(), &["install", "--write", "--client", "claude-code", "t.toml"]);
        assert!(written.status.success(), "{}", text(&written.stderr));
    }
    let now: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join(".mcp.json")).unwrap()).unwrap();
    assert_eq!(now["theme"], "dark");
    assert_eq!(now["mcpServers"]["other"]["command"], "x");
    assert_eq!(now["mcpServers"]["shop"]["args"][0], "stdio");
    assert_eq!(std::fs::read_to_string(folder.path().join(".mcp.json.bak1")).unwrap(), before);
    assert!(folder.path().join(".mcp.json.bak2").exists(), "each write makes a backup");
    folder.write(".mcp.json", "// not JSON");
    let rejected = run(folder.path(), &["install", "--write", "--client", "claude-code", "t.toml"]);
    assert_eq!(rejected.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.path().join(".mcp.json")).unwrap(), "// not JSON");
}

/// Built-in tools see the configuration in `call` as they do in `serve`.
#[test]
fn a_call_sees_the_servers_of_the_file() {
    let folder = TempDir::new();
    folder.write(
        "t.toml",
        "[servers.a]\nversion = \"7.1\"\npacks = [\"runtime\"]\n[servers.b.tools.t]\ntext = \"x\"\n",
    );
    let call = |tool: &str| -> Value {
        let output = run(folder.path(), &["call", "t.toml", tool]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    let info = call("runtime_get_info");
    assert_eq!((&info["version"], &info["servers"]), (&json!("7.1"), &json!(["a", "b"])));
    assert_eq!(call("module_get_paths"), json!({ "configuration": "t.toml", "files": ["t.toml"] }));
    assert_eq!(call("runtime_get_config")["servers"]["a"]["version"], "7.1");
}

/// The examples of the repository are valid and return the documented results.
#[test]
fn the_examples_work_from_a_clean_checkout() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut n_examples = 0;
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let checked = run(&root, &["check", path.to_str().unwrap()]);
            assert!(checked.status.success(), "{}: {}", path.display(), text(&checked.stderr));
            assert!(!text(&checked.stdout).contains("no description"), "{}", text(&checked.stdout));
            n_examples += 1;
        }
    }
    assert!(n_examples > 0);
    for (tool, arguments, expected) in [
        ("hours", r#"{"day":"sunday"}"#, "closed\n"),
        (
            "search_docs",
            r#"{"words":"GLASS"}"#,
            "./delivery.md:five elsewhere in Europe. Tea is not sent with glass.\n",
        ),
        ("search_docs", r#"{"words":"--help"}"#, "\n"),
        ("stock", r#"{"sku":"CUP-1"}"#, "40\n"),
    ] {
        let called = run(&root, &["call", "examples/shop.toml", tool, arguments]);
        assert_eq!(text(&called.stdout), expected, "{tool} {arguments}: {}", text(&called.stderr));
    }
}
