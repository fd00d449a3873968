//! D: headers and body of 2026-07-28 requests must agree.

use super::*;

fn echo() -> RawRequest {
    RawRequest::tool_call("echo", r#"{"message":"x"}"#)
}

#[tokio::test]
async fn d01_to_d07_and_d13_d14_mirrored_headers() {
    let server = TestServer::open().await;
    let rows: Vec<(&str, RawRequest)> = vec![
        ("D01", echo().set("Mcp-Method", "tools/list")),
        ("D01", echo().set("Mcp-Name", "tell")),
        ("D02", echo().set("Mcp-Method", "Tools/Call")),
        ("D02", echo().set("Mcp-Name", "Echo")),
        ("D03", echo().set("Mcp-Method", "")),
        ("D03", echo().set("Mcp-Name", "")),
        ("D04", echo().without("Mcp-Method")),
        ("D04", echo().without("Mcp-Name")),
        ("D06", echo().set("Mcp-Name", "=?base64?ZWNobw=?=")),
        ("D06", echo().set("Mcp-Name", "=?base64?ZWNobw==")),
        ("D06", echo().set("Mcp-Name", "=?base64?!!!!?=")),
        ("D06", echo().set("Mcp-Name", "=?BASE64?ZWNobw==?=")),
        ("D06", echo().set("Mcp-Name", "=?base64?dGVsbA==?=")),
        ("D06", echo().set("Mcp-Name", "=?base64?//8=?=")),
        ("D06", echo().set("Mcp-Name", "=?base64??=")),
        ("D07", echo().with("Mcp-Name", "echo")),
        ("D07", echo().with("Mcp-Name", "tell")),
        ("D07", echo().with("mcp-method", "tools/call")),
        ("D07", echo().with("MCP-PROTOCOL-VERSION", MODERN)),
        ("D08", echo().set("MCP-Protocol-Version", LEGACY)),
        ("D09", echo().without("MCP-Protocol-Version")),
        ("D13", echo().set("MCP-Protocol-Version", b"\xff\xfe")),
        ("D13", echo().set("MCP-Protocol-Version", "2".repeat(10 << 10))),
        ("D13", echo().set("MCP-Protocol-Version", format!("{MODERN}, {LEGACY}"))),
        ("D14", echo().set("Mcp-Name", "écho")),
    ];
    let n_rows = rows.len();
    for (row, post) in rows {
        server.check(row, &post, 400, -32020).await;
    }
    assert_eq!(server.n_calls(), n_rows, "only the good calls ran");
    server.check("D05", &echo().set("Mcp-Name", "=?base64?ZWNobw==?="), 200, 0).await;
    server.check("D05", &echo().set("Mcp-Name", "  echo \t "), 200, 0).await;
}

/// The same for tool arguments that are repeated in headers.
#[tokio::test]
async fn d01_to_d07_marked_arguments() {
    let server = TestServer::open().await;
    let region = || RawRequest::tool_call("region", r#"{"region":"eu"}"#);
    let reply = server.check("control", &region().with("Mcp-Param-Region", "eu"), 200, 0).await;
    assert_eq!(reply.text(), "eu");
    server.check("D05", &region().with("Mcp-Param-Region", "=?base64?ZXU=?="), 200, 0).await;
    for (row, post) in [
        ("D01", region().with("Mcp-Param-Region", "us")),
        ("D02", region().with("Mcp-Param-Region", "EU")),
        ("D03", region().with("Mcp-Param-Region", "")),
        ("D04", region()),
        ("D06", region().with("Mcp-Param-Region", "=?base64?ZX?=")),
        ("D07", region().with("Mcp-Param-Region", "eu").with("Mcp-Param-Region", "eu")),
        ("D14", region().with("Mcp-Param-Region", "eü")),
    ] {
        server.check(row, &post, 400, -32020).await;
    }
}

#[tokio::test]
async fn d10_to_d12_client_information() {
    let server = TestServer::open().await;
    let body = |meta: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"x"}}{meta}}}}}"#
        )
    };
    let sent = |version: &str, meta: &str| {
        RawRequest::modern_raw("tools/call", Some("echo"), body(meta)).set("MCP-Protocol-Version", version)
    };
    for unknown in ["2099-01-01", "2026-07-27", "latest", "DRAFT-2026-v1"] {
        let reply =
            server.check("D10", &sent(unknown, &format!(",{}", meta(unknown, "{}"))), 400, -32022).await;
        let data = &reply.json()["error"]["data"];
        assert!(
            data["supported"].as_array().is_some_and(|dates| dates.contains(&json!(MODERN))),
            "D10: {data}"
        );
        assert_eq!(data["requested"], json!(unknown), "D10");
    }
    let version = "\"io.modelcontextprotocol/protocolVersion\"";
    let capabilities = "\"io.modelcontextprotocol/clientCapabilities\"";
    for missing in [
        String::new(),
        r#","_meta":{}"#.to_owned(),
        format!(r#","_meta":{{{version}:"{MODERN}"}}"#),
        format!(r#","_meta":{{{capabilities}:{{}}}}"#),
    ] {
        server.check("D11", &sent(MODERN, &missing), 400, -32602).await;
    }
    server
        .check(
            "D11",
            &RawRequest::modern_raw("tools/list", None, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
            400,
            -32602,
        )
        .await;
    for wrong in [
        r#","_meta":[]"#.to_owned(),
        r#","_meta":"x""#.to_owned(),
        format!(r#","_meta":{{{version}:20260728,{capabilities}:{{}}}}"#),
        format!(r#","_meta":{{{version}:null,{capabilities}:{{}}}}"#),
        format!(r#","_meta":{{{version}:"{MODERN}",{capabilities}:[]}}"#),
        format!(r#","_meta":{{{version}:"{MODERN}",{capabilities}:"all"}}"#),
    ] {
        server.check("D12", &sent(MODERN, &wrong), 400, -32602).await;
    }
}

#[tokio::test]
async fn d15_to_d18_methods_and_headers_of_other_versions() {
    let server = TestServer::open().await;
    for (method, params) in [
        ("ping", ""),
        (
            "initialize",
            r#""protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"t","version":"1"}"#,
        ),
        ("resources/subscribe", r#""uri":"fx://readme""#),
        ("resources/unsubscribe", r#""uri":"fx://readme""#),
        ("logging/setLevel", r#""level":"debug""#),
        ("sampling/createMessage", r#""messages":[],"maxTokens":1"#),
        ("elicitation/create", r#""message":"x""#),
    ] {
        server.check("D15", &RawRequest::modern(method, None, params), 404, -32601).await;
    }
    for session in ["guess", "x y", "", "\u{7f}"] {
        let post = echo().with("Mcp-Session-Id", session).with("Last-Event-ID", "../../0-0");
        let reply = server.check("D16", &post, [200, 400], [0, 0]).await;
        assert!(reply.header("mcp-session-id").is_none(), "D16: {reply:?}");
        assert!(session == "\u{7f}" || reply.status == 200, "D16: {reply:?}");
    }
    // Protocol page, order of checks, 16: the state must be valid, whether or not the tool sends requests.
    for forged in [
        r#""requestState":"v1.x.forged""#,
        r#""requestState":"","inputResponses":{}"#,
        r#""requestState":"v1.x.forged","inputResponses":{"name":{"action":"accept","content":{"name":"x"}}}"#,
    ] {
        let post = RawRequest::modern(
            "tools/call",
            Some("echo"),
            &format!(r#""name":"echo","arguments":{{"message":"x"}},{forged}"#),
        );
        let ran = server.n_calls();
        server.check("D17", &post, [200, 400], -32602).await;
        assert_eq!(server.n_calls(), ran + 1, "D17: only the good call ran");
    }
    for more in [r#""inputResponses":{}"#, r#""inputResponses":{"\u0000":{}}"#] {
        let post = RawRequest::modern(
            "tools/call",
            Some("echo"),
            &format!(r#""name":"echo","arguments":{{"message":"x"}},{more}"#),
        );
        let reply = server.check("D17", &post, 200, 0).await;
        assert_eq!(reply.text(), "x", "D17: {}", clip(&reply.body));
    }
    for wrong in
        [r#""requestState":5"#, r#""requestState":{}"#, r#""inputResponses":[]"#, r#""inputResponses":"x""#]
    {
        let post = RawRequest::modern(
            "tools/call",
            Some("echo"),
            &format!(r#""name":"echo","arguments":{{"message":"x"}},{wrong}"#),
        );
        server.check("D17", &post, [200, 400], [0, -32602]).await;
    }
    let reply = server.check("D18", &echo(), 200, 0).await;
    assert!(reply.json()["result"]["resultType"].is_string(), "D18: {}", clip(&reply.body));
    let reply = server
        .check("D18", &RawRequest::tool_call_with_forms("ask", r#""arguments":{"message":"x"}"#), 200, 0)
        .await;
    assert_eq!(reply.json()["result"]["resultType"], json!("input_required"), "D18: {}", clip(&reply.body));
    assert!(!clip(&reply.body).contains("elicitation/create\",\"id\""), "D18: {}", clip(&reply.body));
}

#[tokio::test]
async fn d19_subscriptions() {
    let server = TestServer::open().await;
    let listen = |filter: &str| {
        RawRequest::modern("subscriptions/listen", None, &format!(r#""notifications":{filter}"#))
    };
    let many = format!(r#"{{"resourceSubscriptions":[{}"x"]}}"#, "\"fx://x\",".repeat(1000));
    for absurd in [
        "[]",
        "\"x\"",
        "null",
        r#"{"toolsListChanged":"yes"}"#,
        r#"{"resourceSubscriptions":"x"}"#,
        r#"{"resourceSubscriptions":[1]}"#,
        &many,
    ] {
        server.check("D19", &listen(absurd), [200, 400], -32602).await;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = descriptors();
    let mut streams = Vec::new();
    for _ in 0..60 {
        let mut stream = server.connect().await;
        stream
            .write_all(&listen(r#"{"toolsListChanged":true}"#).without("Connection").bytes())
            .await
            .unwrap();
        read_until(&mut stream, "notifications/subscriptions/acknowledged").await;
        streams.push(stream);
    }
    for stream in streams {
        stream.set_zero_linger().unwrap();
    }
    // Other tests open and close theirs meanwhile: only a leak of all of them would show.
    eventually("D19: descriptors come back", || descriptors() < before + 60).await;
    server.check_alive("D19").await;
}
