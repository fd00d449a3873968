//! C: JSON that is not a valid message, and messages with invalid parameters.

use std::time::Instant;

use super::*;

/// A 2026-07-28 request with this envelope: members without braces.
fn envelope(members: &str) -> RawRequest {
    RawRequest::modern_raw("tools/call", Some("echo"), format!("{{{members}}}"))
}

fn params() -> String {
    format!(r#""params":{{"name":"echo","arguments":{{"message":"x"}},{}}}"#, meta(MODERN, "{}"))
}

#[tokio::test]
async fn c01_to_c06_envelopes() {
    let server = TestServer::open().await;
    let params = params();
    let rows = [
        ("C01", format!(r#""id":1,"method":"tools/call",{params}"#)),
        ("C01", format!(r#""jsonrpc":"1.0","id":1,"method":"tools/call",{params}"#)),
        ("C01", format!(r#""jsonrpc":2.0,"id":1,"method":"tools/call",{params}"#)),
        ("C01", format!(r#""jsonrpc":null,"id":1,"method":"tools/call",{params}"#)),
        ("C02", format!(r#""jsonrpc":"2.0","id":null,"method":"tools/call",{params}"#)),
        ("C03", format!(r#""jsonrpc":"2.0","id":1.5,"method":"tools/call",{params}"#)),
        ("C03", format!(r#""jsonrpc":"2.0","id":1.0,"method":"tools/call",{params}"#)),
        ("C03", format!(r#""jsonrpc":"2.0","id":true,"method":"tools/call",{params}"#)),
        ("C03", format!(r#""jsonrpc":"2.0","id":{{}},"method":"tools/call",{params}"#)),
        ("C03", format!(r#""jsonrpc":"2.0","id":[1],"method":"tools/call",{params}"#)),
        ("C04", format!(r#""jsonrpc":"2.0","id":1,{params}"#)),
        ("C04", format!(r#""jsonrpc":"2.0","id":1,"method":1,{params}"#)),
        ("C04", format!(r#""jsonrpc":"2.0","id":1,"method":null,{params}"#)),
        ("C04", format!(r#""jsonrpc":"2.0","id":1,"method":"",{params}"#)),
        ("C06", format!(r#""jsonrpc":"2.0","id":1,"method":"tools/call","result":{{}},{params}"#)),
        (
            "C06",
            format!(
                r#""jsonrpc":"2.0","id":1,"method":"tools/call","error":{{"code":1,"message":""}},{params}"#
            ),
        ),
    ];
    for (row, members) in &rows {
        server.check(row, &envelope(members), 400, -32600).await;
        server.check(row, &RawRequest::new(format!("{{{members}}}")), 400, -32600).await;
    }
    for wrong in ["[]", "\"x\"", "1", "true"] {
        let members = format!(r#""jsonrpc":"2.0","id":1,"method":"tools/call","params":{wrong}"#);
        server.check("C05", &envelope(&members), [200, 400], [-32600, -32602]).await;
    }
    assert_eq!(server.n_calls(), rows.len() * 2 + 4, "only the good calls ran");
}

#[tokio::test]
async fn c07_to_c10_names_and_arguments() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let odd = |params: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#);
        let modern = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params},{}}}}}"#,
            meta(MODERN, "{}")
        );
        (RawRequest::modern_raw("tools/call", None, modern), RawRequest::in_session(&session, body))
    };
    for params in [
        r#""name":null,"arguments":{"message":"x"}"#,
        r#""name":1,"arguments":{"message":"x"}"#,
        r#""name":[],"arguments":{"message":"x"}"#,
        r#""name":{},"arguments":{"message":"x"}"#,
        r#""arguments":{"message":"x"}"#,
    ] {
        let (modern, legacy) = odd(params);
        server.check("C07", &modern, [200, 400], -32602).await;
        server.check("C07", &legacy, 200, -32602).await;
    }
    for arguments in ["[]", "\"x\"", "5"] {
        let (modern, legacy) = odd(&format!(r#""name":"echo","arguments":{arguments}"#));
        server.check("C08", &modern.with("Mcp-Name", "echo"), 200, -32602).await;
        server.check("C08", &legacy, 200, -32602).await;
    }
    for (name, sentinel) in [
        ("еcho", "0LVjaG8="),
        ("echo ", "ZWNobyA="),
        ("echo\\u0000", "ZWNobwA="),
        ("echo\\n", "ZWNobwo="),
        ("ECHO", "RUNITw=="),
    ] {
        let (modern, legacy) = odd(&format!(r#""name":"{name}","arguments":{{"message":"x"}}"#));
        server.check("C09", &modern.with("Mcp-Name", format!("=?base64?{sentinel}?=")), 200, -32602).await;
        server.check("C09", &legacy, 200, -32602).await;
    }
    for arguments in
        [r#"{"message":1}"#, r#"{"message":null}"#, "{}", r#"{"massage":"x"}"#, r#"{"message":["x"]}"#]
    {
        let reply = server.check("C10", &RawRequest::tool_call("echo", arguments), 200, 0).await;
        assert!(reply.is_error(), "C10: {}", clip(&reply.body));
        let reply = server
            .check("C10", &RawRequest::in_session(&session, call("1", "echo", arguments)), 200, 0)
            .await;
        assert!(reply.is_error(), "C10: {}", clip(&reply.body));
    }
    assert_eq!(server.n_calls(), 2 * (5 + 3 + 5 + 5), "only the good calls ran");
}

#[tokio::test]
async fn c11_ids_are_returned_unchanged() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let long = format!("\"{}\"", "x".repeat(300));
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "\"1\"",
        "\"\"",
        "\"é👩‍👧\\n\"",
        &long,
    ] {
        let expected: Value = serde_json::from_str(id).unwrap();
        let body = String::from_utf8(RawRequest::tool_call("echo", r#"{"message":"x"}"#).body).unwrap();
        let modern = RawRequest::modern_raw(
            "tools/call",
            Some("echo"),
            body.replacen("\"id\":1", &format!("\"id\":{id}"), 1),
        );
        for post in [modern, RawRequest::in_session(&session, call(id, "echo", r#"{"message":"x"}"#))] {
            let reply = server.check("C11", &post, 200, 0).await;
            assert_eq!(reply.json()["id"], expected, "C11: {}", clip(&reply.body));
        }
    }
}

#[tokio::test]
async fn c12_c19_unknown_methods() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let long = "m".repeat(64 << 10);
    let request = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
    for method in
        ["tools/calls", "tools", "TOOLS/CALL", "rpc.discover", "__proto__", "completion/complete", &long]
    {
        let row = format!("C12 {}", &method[..method.len().min(30)]);
        let header = if method.len() > 100 { None } else { Some(method) };
        if let Some(method) = header {
            let reply = server
                .check(&row, &RawRequest::modern(method, None, ""), [404, 400, 200], [-32601, -32602])
                .await;
            assert!(reply.body.len() < 16 << 10, "{row}");
        }
        let reply = server
            .check(&row, &RawRequest::in_session(&session, request(method)), 200, [-32601, -32602])
            .await;
        assert!(reply.body.len() < 16 << 10, "{row}: {} bytes", reply.body.len());
        let reply = server.check(&row, &RawRequest::new(request(method)), 200, [-32601, -32602]).await;
        assert!(reply.body.len() < 16 << 10, "{row}: {} bytes", reply.body.len());
    }
    for method in ["tools/calls", "no/such", "resources/subscribe", "logging/setLevel", "tasks/list"] {
        server.check("C12", &RawRequest::modern(method, None, ""), 404, -32601).await;
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let guess = r#""taskId":"1""#;
        server
            .check("C19", &RawRequest::modern(method, Some("1"), guess), [404, 200, 400], [-32601, -32602])
            .await;
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{guess}}}}}"#);
        server.check("C19", &RawRequest::in_session(&session, body), 200, [-32601, -32602]).await;
    }
    let reply = server
        .check("C19", &RawRequest::modern("prompts/get", Some("{{7*7}}"), r#""name":"{{7*7}}""#), 200, -32602)
        .await;
    assert!(!clip(&reply.body).contains("49"), "C19: {}", clip(&reply.body));
    let post = RawRequest::modern(
        "prompts/get",
        Some("greet"),
        r#""name":"greet","arguments":{"name":"{{7*7}} ${7*7} {name}"}"#,
    );
    let reply = server.check("C19", &post, 200, 0).await;
    assert!(clip(&reply.body).contains("{{7*7}} ${7*7} {name}"), "C19: {}", clip(&reply.body));
}

#[tokio::test]
async fn c13_c14_unexpected_responses_and_notifications() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    for stray in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"guess","result":{"action":"accept","content":{"name":"x"}}}"#,
        r#"{"jsonrpc":"2.0","id":99,"error":{"code":-1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}"#,
    ] {
        server.check("C13", &RawRequest::new(stray).with("MCP-Protocol-Version", MODERN), 400, -32600).await;
        let reply = server.check("C13", &RawRequest::in_session(&session, stray), 202, 0).await;
        assert!(reply.body.is_empty(), "C13: {reply:?}");
    }
    let ran = server.n_calls();
    for notice in [
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/none"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"progress":"x"}}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","method":"initialize","params":{}}"#.to_owned(),
        format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, "n".repeat(64 << 10)),
    ] {
        let modern = RawRequest::new(notice.clone()).with("MCP-Protocol-Version", MODERN);
        for post in [modern, RawRequest::in_session(&session, notice.clone()), RawRequest::new(notice)] {
            let reply = server.check("C14", &post, [202, 400], [0, -32600, -32602]).await;
            assert!(reply.json().get("result").is_none(), "C14: {reply:?}");
        }
    }
    assert_eq!(server.n_calls(), ran + 24, "only the good calls ran");
}

#[tokio::test]
async fn c15_meta() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let key = "k".repeat(100 << 10);
    for more in [
        r#""progressToken":{}"#.to_owned(),
        r#""progressToken":1.5"#.to_owned(),
        r#""progressToken":null"#.to_owned(),
        format!(r#""{key}":1"#),
        r#""traceparent":"00-x\r\nX-Evil: 1""#.to_owned(),
        r#""traceparent":{}"#.to_owned(),
        r#""io.modelcontextprotocol/logLevel":"loud""#.to_owned(),
        r#""io.modelcontextprotocol/clientInfo":[]"#.to_owned(),
    ] {
        let good = RawRequest::tool_call("tell", r#"{"message":"x"}"#);
        let body = String::from_utf8(good.body.clone()).unwrap().replacen(
            "\"_meta\":{",
            &format!("\"_meta\":{{{more},"),
            1,
        );
        let reply =
            server.check("C15", &RawRequest { body: body.into(), ..good }, [200, 400], [0, -32602]).await;
        assert!(!reply.head.to_ascii_lowercase().contains("x-evil"), "C15: {reply:?}");
        let body = call("1", "tell", r#"{"message":"x"}"#).replacen(
            "\"name\"",
            &format!("\"_meta\":{{{more}}},\"name\""),
            1,
        );
        server.check("C15", &RawRequest::in_session(&session, body), [200, 400], [0, -32602]).await;
    }
    for wrong in ["[]", "\"x\"", "1"] {
        let body = call("1", "echo", r#"{"message":"x"}"#).replacen(
            "\"name\"",
            &format!("\"_meta\":{wrong},\"name\""),
            1,
        );
        server.check("C15", &RawRequest::in_session(&session, body), [200, 400], [0, -32602]).await;
    }
}

#[tokio::test]
async fn c16_forged_cursors() {
    let server = TestServer::open().await;
    let first = server.post(&RawRequest::modern("tools/list", None, "")).await.json();
    let cursor = first["result"]["nextCursor"].as_str().expect("there is a second page").to_owned();
    let next = server
        .check(
            "C16 control",
            &RawRequest::modern("tools/list", None, &format!(r#""cursor":"{cursor}""#)),
            200,
            0,
        )
        .await;
    assert_ne!(next.json()["result"]["tools"], first["result"]["tools"]);
    let flipped = cursor.replace(cursor.chars().last().unwrap(), "_");
    let half = &cursor[..cursor.len() / 2];
    let long = "x".repeat(64 << 10);
    for forged in ["", "0", "-1", "2", "MTA=", "../../etc/passwd", "' OR 1=1", half, &flipped, &long] {
        let post = RawRequest::modern("tools/list", None, &format!(r#""cursor":"{forged}""#));
        let reply = server.check("C16", &post, 200, -32602).await;
        assert!(reply.body.len() < 2000, "C16: {} bytes", reply.body.len());
    }
    server
        .check(
            "C16 of another list",
            &RawRequest::modern("prompts/list", None, &format!(r#""cursor":"{cursor}""#)),
            200,
            -32602,
        )
        .await;
    for wrong in ["1", "{}", "[]"] {
        server
            .check(
                "C16",
                &RawRequest::modern("tools/list", None, &format!(r#""cursor":{wrong}"#)),
                [200, 400],
                -32602,
            )
            .await;
    }
}

#[tokio::test]
async fn c17_c18_uris() {
    let server = TestServer::open().await;
    let session = server.initialize().await;
    let long = format!("fx://nowhere/{}", "x".repeat(70_000));
    let evil = [
        format!("fx://users{}/", "/a,".repeat(20_000)),
        format!("fx://users/{}!", "a/".repeat(20_000)),
        format!("fx://users/{}", "%2f".repeat(20_000)),
        format!("fx://users{}/end/end/enx", ",".repeat(60_000)),
    ];
    let plain = [
        "file:///etc/passwd",
        "/etc/passwd",
        "fx://readme/../../etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "javascript:alert(1)",
        r"\\\\evil\\share",
        "",
        "fx://",
        &long,
    ];
    for (row, uri) in
        plain.iter().map(|uri| ("C17", *uri)).chain(evil.iter().map(|uri| ("C18", uri.as_str())))
    {
        let begin = Instant::now();
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":"{uri}"}}}}"#);
        let reply = server.check(row, &RawRequest::in_session(&session, body), 200, [-32002, -32602]).await;
        assert!(reply.body.len() < 2000, "{row}: {} bytes", reply.body.len());
        assert!(!clip(&reply.body).contains("root:"), "{row}: {}", clip(&reply.body));
        if uri.len() < 1000 {
            let name = uri.replace(r"\\", r"\");
            server
                .check(
                    row,
                    &RawRequest::modern("resources/read", Some(&name), &format!(r#""uri":"{uri}""#)),
                    200,
                    -32602,
                )
                .await;
        }
        assert!(begin.elapsed() < SHORT_TIMEOUT, "{row}: {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn c20_initialize() {
    let server = TestServer::open().await;
    let name = "n".repeat(100 << 10);
    let initialize = |version: &str, capabilities: &str, info: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":{version},"capabilities":{capabilities},"clientInfo":{info}}}}}"#
        )
    };
    let good = r#"{"name":"t","version":"1"}"#;
    for (body, codes) in [
        (initialize("\"1999-01-01\"", "{}", good), [0, 0]),
        (initialize("\"\"", "{}", good), [0, -32602]),
        (initialize("\"9999-99-99\"", "{}", good), [0, 0]),
        (initialize("\"2025-06-18\\u0000\"", "{}", good), [0, 0]),
        (initialize(&format!("\"{name}\""), "{}", good), [0, -32602]),
        (initialize("20250618", "{}", good), [-32602, -32602]),
        (initialize("null", "{}", good), [-32602, -32602]),
        (initialize("\"2025-06-18\"", "[]", good), [-32602, -32602]),
        (initialize("\"2025-06-18\"", r#"{"sampling":5,"roots":"x"}"#, good), [0, -32602]),
        (initialize("\"2025-06-18\"", "{}", "[]"), [-32602, -32602]),
        (initialize("\"2025-06-18\"", "{}", "{}"), [0, -32602]),
        (initialize("\"2025-06-18\"", "{}", &format!(r#"{{"name":"{name}","version":"1"}}"#)), [0, -32602]),
        (
            initialize(
                "\"2025-06-18\"",
                "{}",
                r#"{"name":"\u001b[31m","version":"<script>alert(1)</script>"}"#,
            ),
            [0, 0],
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_owned(), [-32602, -32602]),
    ] {
        let reply = server.check("C20", &RawRequest::new(body.clone()), 200, codes).await;
        let body = reply.json();
        assert!(reply.body.len() < 16 << 10, "C20: {} bytes", reply.body.len());
        if body["error"].is_null() {
            let served = ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY];
            let version = body["result"]["protocolVersion"].as_str().unwrap_or_default().to_owned();
            assert!(served.contains(&version.as_str()), "C20: {}", clip(&reply.body));
            assert!(!clip(&reply.body).contains("<script>"), "C20: {}", clip(&reply.body));
        }
    }
}
