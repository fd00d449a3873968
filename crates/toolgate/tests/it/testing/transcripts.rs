//! Transcripts, as a user plays them.

use toolgate::testing::play;
use toolgate::testing::transcript::Transcript;
use toolgate::{Context, Server};

use super::panic_message_of;

fn server() -> Server {
    let who = |cx: Context| async move { cx.principal().id().unwrap_or("nobody").to_owned() };
    Server::new("who", "1").tool("who", who).build().unwrap()
}

async fn play_failure(text: &str) -> String {
    Transcript::new("t.txt", text).play(&server()).await.expect_err(text).to_string()
}

#[tokio::test]
async fn a_text_is_played_for_all_versions() {
    let text = r#"
@ stdio
@ each all
@ when 2026-07-28
> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who","_meta":{META}}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"nobody"}],"_meta":"<any>"}}
@ end
@ when 2024-11-05 2025-03-26 2025-06-18 2025-11-25
> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"{V}","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"{V}","capabilities":"<any>","serverInfo":{"name":"who","version":"1"}}}
> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who"}}
< {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"nobody"}]}}
@ end
"#;
    play(&server(), text).await;
    // The same, with an error in one version only.
    let wrong =
        text.replace(r#""protocolVersion":"{V}","capabilities":"<any>""#, r#""capabilities":"<any>""#);
    let description = play_failure(&wrong).await;
    let expected = "t.txt:10 (2024-11-05): $.result.protocolVersion\n    expected nothing\n    got      \"2024-11-05\"\n  in {";
    assert!(description.starts_with(expected), "{description}");
}

#[tokio::test]
async fn http_has_headers_principals_and_statuses() {
    let text = r#"
@ http
> POST /mcp +modern as ada
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who","_meta":{META}}}
< 200 application/json
-mcp-session-id
{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"ada"}],"_meta":"<any>"}}
> POST /mcp
origin: https://evil.example
{}
< 403 application/json
"#;
    assert!(play_failure(text).await.starts_with("t.txt:11: expected no body\n  got      {"));
    let whole =
        format!("{text}\n{}", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"<any>"}}"#);
    play(&server(), &whole).await;
}

#[tokio::test]
async fn failures_name_their_line() {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (text, wanted) in [
        ("> x", "t.txt:1: neither `@ stdio` nor `@ http`"),
        ("@ stdio page=1\n> eof", "t.txt:1: no such option: page=1"),
        ("@ stdio\n! jump high", "t.txt:2: no such action: jump high"),
        ("@ stdio\n! differ a a", "t.txt:2: both are a"),
        ("@ stdio\n> eof\n< {}", "t.txt:3: expected {}\n  got      the end"),
        (&format!("@ stdio\n> {call}\n< nothing"), "t.txt:3: expected nothing\n  got      {"),
        (&format!("@ stdio\n> {call}"), "t.txt:2: connection [] at the end, expected nothing"),
        (&format!("@ stdio\n> {call}\n<~ {{}}\n<~ []"), "t.txt:3: $.jsonrpc"),
        ("@ http\n< 200", "t.txt:2: no request was sent"),
        ("@ http\n> GET /mcp\n< 200", "t.txt:3: expected 200 \n  got      405"),
    ] {
        let description = play_failure(text).await;
        assert!(description.starts_with(wanted), "expected {wanted:?}, got {description:?}");
    }
}

#[tokio::test]
async fn files_and_directories_are_played_and_all_failures_reported() {
    let panic_text =
        panic_message_of(async { play(&server(), "tests/it/transcripts/no such file").await }).await;
    assert!(
        panic_text.contains("cannot read the transcript tests/it/transcripts/no such file"),
        "{panic_text}"
    );
    let directory = std::env::temp_dir().join(format!("toolgate-play-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("prelude.txt", "@ stdio\n@ let P = \"jsonrpc\":\"2.0\",\"id\":1\n");
    write("good.txt", "> {{P},\"method\":\"ping\"}\n< {{P},\"result\":{}}\n");
    let path = directory.display().to_string();
    play(&server(), &path).await;
    play(&server(), &format!("{path}/good.txt")).await;
    for bad in ["bad.txt", "worse.txt"] {
        write(bad, "> {{P},\"method\":\"ping\"}\n< {{P},\"result\":7}\n");
    }
    let panic_text = panic_message_of(async move { play(&server(), &path).await }).await;
    std::fs::remove_dir_all(&directory).unwrap();
    for part in ["bad.txt:2: $.result\n    expected 7\n    got      {}", "worse.txt:2: "] {
        assert!(panic_text.contains(part), "{part} is missing in {panic_text}");
    }
}
