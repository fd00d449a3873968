//! Commands, including group O of the hostile inputs.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

fn grep(folder: &TempFolder) -> Server {
    folder.write("a.txt", "A\n");
    server(
        folder,
        r#"
        [servers.s.tools.find]
        args = { pattern = "string" }
        command = { argv = ["grep", "-c", "--", "{pattern}", "a.txt"], exit_codes = [0, 1], timeout = "2s" }
        [servers.s.tools.show]
        args = { word = { type = "string", pattern = "" } }
        command = { argv = ["echo", "{word}"] }
        "#,
    )
}

#[tokio::test]
async fn o01_no_shell_ever_sees_an_argument() {
    let folder = TempFolder::new();
    let server = grep(&folder);
    for pattern in [
        "; touch pwn #",
        "$(touch pwn)",
        "`touch pwn`",
        "| id",
        "&& id",
        "> pwn",
        "\n id",
        "${IFS}",
        "' ; id '",
        "*",
    ] {
        let (text, _) = call(&server, "find", json!({ "pattern": pattern })).await;
        assert!(text.trim() == "0" || text.trim() == "1" && pattern == "\n id", "{pattern:?}: {text}");
        assert!(!folder.path().join("pwn").exists());
    }
}

#[tokio::test]
async fn o02_nothing_becomes_an_option() {
    let folder = TempFolder::new();
    let server = grep(&folder);
    for pattern in ["-f/etc/passwd", "--file=/etc/passwd", "-", "--"] {
        assert_eq!(
            call(&server, "find", json!({ "pattern": pattern })).await,
            ("0".into(), false),
            "{pattern}"
        );
    }
    // If only a pattern excludes dashes, each value is checked.
    let (text, is_error) = call(&server, "show", json!({ "word": "-n" })).await;
    assert!(is_error && text.contains("begins with `-`"), "{text}");
}

#[tokio::test]
async fn o03_o04_impossible_arguments_are_rejected_before_the_start() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.t]
        args = { a = "string?", many = "string[]?" }
        command = { argv = ["touch", "--", "{a}", "{many}"] }
        "#,
    );
    for (arguments, wanted) in [
        (json!({ "a": "x\u{0}y" }), "NUL"),
        (json!({ "a": "x".repeat(3 << 20) }), "more than 131072 bytes"),
        (json!({ "many": vec!["f"; 100_000] }), "more than 256"),
    ] {
        let (text, is_error) = call(&server, "t", arguments).await;
        assert!(is_error && text.contains("invalid argument") && text.contains(wanted), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was started");
    assert!(!call(&server, "t", json!({ "many": ["one", "two"] })).await.1);
    assert!(
        folder.path().join("one").exists() && folder.path().join("two").exists(),
        "a list is several arguments"
    );
}

#[tokio::test]
async fn o05_the_environment_contains_only_named_variables() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.env]
        command = { argv = ["env"], env = { GREETING = "hello" }, pass_env = ["HOME", "NOT_THERE"] }
        "#,
    );
    let (text, _) = call(&server, "env", json!({})).await;
    let mut names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    let wanted: &[&str] = if std::env::var_os("HOME").is_some() {
        &["GREETING", "HOME", "LANG", "PATH"]
    } else {
        &["GREETING", "LANG", "PATH"]
    };
    assert_eq!(names, wanted, "{text}");
}

#[tokio::test]
async fn o06_a_program_that_prints_too_much_is_stopped() {
    let folder = TempFolder::new();
    let server =
        server(&folder, r#"servers.s.tools.flood.command = { argv = ["yes"], max_output = "64KiB" }"#);
    let started = Instant::now();
    let (text, is_error) = call(&server, "flood", json!({})).await;
    assert!(is_error && text.starts_with("output limit"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Whether a process group has a living member.
fn is_group_alive(folder: &TempFolder) -> bool {
    let text = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(text.trim().parse().unwrap()).unwrap();
    rustix::process::test_kill_process_group(pid).is_ok()
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..300 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not so after 3 s: {what}");
}

const FORK: &str = r#"
    [servers.s.tools.fork]
    command = { argv = ["sh", "-c", "echo $$ > new; mv new pid; sleep 300 & sleep 300"], timeout = "TIME" }
"#;

#[tokio::test]
async fn o07_o08_a_timeout_stops_the_program_and_its_children() {
    let folder = TempFolder::new();
    let server = server(&folder, &FORK.replace("TIME", "300ms"));
    let (text, is_error) = call(&server, "fork", json!({})).await;
    assert!(is_error && text.starts_with("timeout"), "{text}");
    wait_until("the whole group is gone", || !is_group_alive(&folder)).await;
}

#[tokio::test]
async fn o07_a_program_that_ignores_term_is_killed() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.deaf]
        command = { argv = ["sh", "-c", "trap '' TERM; echo $$ > pid; sleep 300"], timeout = "300ms" }
        "#,
    );
    let started = Instant::now();
    let (text, _) = call(&server, "deaf", json!({})).await;
    assert!(text.starts_with("timeout"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(4), "TERM, a second, KILL: {:?}", started.elapsed());
    wait_until("the whole group is gone", || !is_group_alive(&folder)).await;
}

#[tokio::test]
async fn o10_a_cancelled_call_stops_the_program() {
    let folder = TempFolder::new();
    let server = server(&folder, &FORK.replace("TIME", "60s"));
    let calling = tokio::spawn({
        let server = server.clone();
        async move { server.call_tool("fork", json!({})).await }
    });
    wait_until("it runs", || folder.path().join("pid").exists()).await;
    assert!(is_group_alive(&folder));
    calling.abort();
    wait_until("the whole group is gone", || !is_group_alive(&folder)).await;
}

#[tokio::test]
async fn a_background_child_does_not_delay_the_result() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"servers.s.tools.t.command = { argv = ["sh", "-c", "echo $$ > pid; sleep 300 & echo done"] }"#,
    );
    assert_eq!(call(&server, "t", json!({})).await, ("done".into(), false));
    wait_until("the whole group is gone", || !is_group_alive(&folder)).await;
}

#[tokio::test]
async fn o09_concurrency_and_queue_are_limited() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.nap]
        command = { argv = ["sleep", "0.2"], concurrency = 4, queue = 8 }
        [servers.s.tools.echo]
        text = "here"
        "#,
    );
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { call(&server, "nap", json!({})).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(call(&server, "echo", json!({})).await.0, "here", "other tools are not delayed");
    let mut n_busy = 0;
    for call in calls {
        let (text, is_error) = call.await.unwrap();
        n_busy += usize::from(is_error && text.starts_with("busy"));
    }
    assert_eq!(n_busy, 60 - 4 - 8);
    assert!(!call(&server, "nap", json!({})).await.1, "permits are released");
}

#[tokio::test]
async fn o11_o12_odd_output_and_input() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.bytes]
        command = { argv = ["printf", "a\\377b"] }
        [servers.s.tools.cat]
        command = { argv = ["cat"] }
        [servers.s.tools.say]
        args = { text = "string" }
        command = { argv = ["cat"], stdin = "<{text}>" }
        [servers.s.tools.closes]
        command = { argv = ["sh", "-c", "exec >&- 2>&-; sleep 300"], timeout = "300ms" }
        "#,
    );
    let (text, is_error) = call(&server, "bytes", json!({})).await;
    assert!(!is_error && text.starts_with("a\u{fffd}b\n[invalid UTF-8"), "{text:?}");
    assert_eq!(call(&server, "cat", json!({})).await, (String::new(), false), "there is nothing to read");
    assert_eq!(call(&server, "say", json!({ "text": "{text}" })).await.0, "<{text}>");
    assert!(call(&server, "closes", json!({})).await.0.starts_with("timeout"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn o13_file_descriptors_are_not_inherited() {
    let folder = TempFolder::new();
    let server = server(&folder, r#"servers.s.tools.t.command = { argv = ["ls", "-l", "/proc/self/fd"] }"#);
    let open = std::fs::File::create(folder.path().join("open-here")).unwrap();
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (text, _) = call(&server, "t", json!({})).await;
    assert!(text.contains("pipe:") && text.contains("/dev/null"), "the standard streams exist: {text}");
    // Descriptors that the test process inherited are not closed.
    assert!(!text.contains("open-here") && !text.contains("socket:"), "{text}");
    drop((open, listening));
}

#[tokio::test]
async fn exit_codes_and_stderr_are_in_the_result() {
    let folder = TempFolder::new();
    let server = server(
        &folder,
        r#"
        [servers.s.tools.fails]
        command = { argv = ["sh", "-c", "echo out; echo why >&2; exit 3"] }
        [servers.s.tools.json]
        command = { argv = ["echo", '{{"a": [1, 2]}}'], stdout = "json" }
        [servers.s.tools.no_json]
        command = { argv = ["echo", "hello"], stdout = "json" }
        [servers.s.tools.much]
        command = { argv = ["sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x"], stdout = "json" }
        [servers.s.tools.silent]
        command = { argv = ["true"], stdout = "json" }
        [servers.s.tools.dies]
        command = { argv = ["sh", "-c", "kill -9 $$"] }
        [servers.s.tools.group]
        args = { n = { type = "integer", minimum = 0, required = false }, word = { enum = ["a"] } }
        command = { argv = ["echo", ["-n", "{n}"], "{word}", "x={word}"] }
        "#,
    );
    assert_eq!(call(&server, "fails", json!({})).await, ("exit code 3\nwhy\nout".into(), true));
    assert_eq!(call(&server, "json", json!({})).await.0, r#"{"a":[1,2]}"#);
    let no_json = |output: &str| (format!("the program did not print JSON: {output}"), true);
    assert_eq!(call(&server, "no_json", json!({})).await, no_json("hello"));
    let begin = "x".repeat(200);
    assert_eq!(call(&server, "much", json!({})).await, no_json(&format!("{begin}…")));
    assert_eq!(
        call(&server, "silent", json!({})).await,
        ("the program printed nothing instead of JSON".into(), true)
    );
    assert_eq!(call(&server, "dies", json!({})).await, ("ended by a signal".into(), true));
    assert_eq!(call(&server, "group", json!({ "word": "a" })).await.0, "a x=a");
    assert_eq!(call(&server, "group", json!({ "word": "a", "n": 5 })).await.0, "5 a x=a");
}

#[tokio::test]
async fn a_program_path_is_relative_to_the_configuration() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempFolder::new();
    let script = folder.write("scripts/where", "#!/bin/sh\npwd\n");
    folder.write("work/scripts/where", "");
    let text = "[servers.s.tools.t]\ncommand = { argv = [\"./scripts/where\"], cwd = \"work\" }\n";
    let report = build_config(&folder, text, ServeMode::Local).err().unwrap();
    let shown = script.display();
    assert!(report.contains(&format!("`{shown}` is not executable: `chmod +x {shown}`")), "{report}");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let here = folder.path().join("work").display().to_string();
    assert_eq!(call(&server(&folder, text), "t", json!({})).await, (here, false));
}

#[tokio::test]
async fn o14_the_program_is_found_at_load_and_runs_with_no_more_rights() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempFolder::new();
    // A name is searched in `PATH` only, not next to the configuration.
    let bait = folder.write("ls", "#!/bin/sh\necho bait\n");
    std::fs::set_permissions(&bait, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder.write("work/here", "");
    let server = server(
        &folder,
        r#"
        [servers.s.tools.list]
        command = { argv = ["ls"], cwd = "work", env = { PATH = ".:/nowhere" } }
        [servers.s.tools.limits]
        command = { argv = ["/bin/sh", "-c", "sleep 0.3; ulimit -c; ulimit -t; grep NoNewPrivs /proc/self/status"], timeout = "7s" }
        "#,
    );
    assert_eq!(call(&server, "list", json!({})).await, ("here".into(), false));
    if cfg!(target_os = "linux") {
        let (text, _) = call(&server, "limits", json!({})).await;
        let lines: Vec<&str> = text.lines().collect();
        let threads = std::thread::available_parallelism().unwrap().get();
        assert_eq!(lines, ["0", (8 * threads).to_string().as_str(), "NoNewPrivs:\t1"], "{text}");
    }
    let nowhere = build_config(
        &folder,
        "[servers.s.tools.t]\ncommand = { argv = [\"bait-bait\"] }\n",
        ServeMode::Local,
    );
    assert!(nowhere.is_err());
}

#[tokio::test]
async fn o15_no_argument_becomes_part_of_a_program() {
    let folder = TempFolder::new();
    for argv in [
        r#"["sh", "-c", "echo {word}"]"#,
        r#"["/bin/sh", "-ec", "echo '{word}'"]"#,
        r#"["python3.11", "-c", "print('{word}')"]"#,
    ] {
        if argv.contains("python") && !std::path::Path::new("/usr/bin/python3.11").exists() {
            continue;
        }
        let text =
            format!("[servers.s.tools.t]\ncommand = {{ argv = {argv} }}\nargs = {{ word = \"string\" }}\n");
        let report = build_config(&folder, &text, ServeMode::Local).map(|_| ()).unwrap_err();
        assert!(
            report.contains("would become part of a script") && report.contains("test.toml:2:"),
            "{report}"
        );
    }
    let shell = "[servers.s.tools.t]\ncommand = { argv = [\"echo\"], shell = true }\n";
    assert!(
        build_config(&folder, shell, ServeMode::Local).map(|_| ()).unwrap_err().contains("without a shell")
    );
    let server = server(
        &folder,
        r#"
        [servers.s.tools.t]
        command = { argv = ["sh", "-c", "echo \"<$1>\"", "sh", "{word}"], allow_leading_dash = true }
        args = { word = "string" }
        "#,
    );
    for word in ["$(id)", "`id`", "\"; id; \"", "-c", "$1"] {
        assert_eq!(call(&server, "t", json!({ "word": word })).await, (format!("<{word}>"), false));
    }
}
