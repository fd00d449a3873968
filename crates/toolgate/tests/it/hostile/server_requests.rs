//! R: requests to the client, and unexpected responses of clients.

use super::session::send_as;
use super::*;

const ADA_RESPONSE: &str = r#""inputResponses":{"name":{"action":"accept","content":{"name":"Ada"}}}"#;

/// Returns the state that a first call of `ask` sends to its client.
async fn request_state(server: &TestServer, arguments: &str) -> String {
    let reply =
        server.post(&RawRequest::tool_call_with_forms("ask", &format!(r#""arguments":{arguments}"#))).await;
    reply.json()["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned()
}

#[tokio::test]
async fn r01_a_client_without_the_capability() {
    let server = TestServer::open().await;
    let reply = server.check("R01", &RawRequest::tool_call("ask", r#"{"message":"x"}"#), 400, -32021).await;
    let needed = &reply.json()["error"]["data"]["requiredCapabilities"];
    assert!(needed["elicitation"].is_object(), "R01: {}", clip(&reply.body));
}

#[tokio::test]
async fn r02_modified_or_foreign_state() {
    let server = TestServer::open().await;
    let x = r#"{"message":"x"}"#;
    let state = request_state(&server, x).await;
    let retry = |tool: &str, arguments: &str, state: &str| {
        RawRequest::tool_call_with_forms(
            tool,
            &format!(r#""arguments":{arguments},{ADA_RESPONSE},"requestState":"{state}""#),
        )
    };
    let reply = server.check("R02 control", &retry("ask", x, &state), 200, 0).await;
    assert_eq!(reply.text(), "x, Ada", "R02 control");
    server
        .check("R02 control, other spelling", &retry("ask", r#"{ "message" : "\u0078" }"#, &state), 200, 0)
        .await;

    let mut flipped = state.clone().into_bytes();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let foreign = request_state(&TestServer::open().await, x).await;
    let long = "A".repeat(1 << 20);
    for forged in [&flipped, &state[..state.len() - 4], &foreign, &format!("{state}A"), "v1.", "{}", &long] {
        let reply = server.check("R02", &retry("ask", x, forged), [200, 400], -32602).await;
        assert!(reply.body.len() < 1000, "R02: {} bytes", reply.body.len());
    }
    server
        .check("R02 other arguments", &retry("ask", r#"{"message":"y"}"#, &state), [200, 400], -32602)
        .await;
    server.check("R02 other tool", &retry("ask_on", "{}", &state), [200, 400], -32602).await;
}

#[tokio::test]
async fn r02_state_of_another_principal() {
    let server = fixture(&Arc::default());
    let first = RawRequest::tool_call_with_forms("ask", r#""arguments":{"message":"x"}"#);
    let (_, _, body) = send_as(&server, "ada", "POST", &first).await;
    let state = serde_json::from_slice::<Value>(&body).unwrap()["result"]["requestState"].clone();
    let retry = RawRequest::tool_call_with_forms(
        "ask",
        &format!(r#""arguments":{{"message":"x"}},{ADA_RESPONSE},"requestState":{state}"#),
    );
    let (_, _, stolen) = send_as(&server, "eve", "POST", &retry).await;
    assert_eq!(serde_json::from_slice::<Value>(&stolen).unwrap()["error"]["code"], json!(-32602), "R02");
    let (_, _, own) = send_as(&server, "ada", "POST", &retry).await;
    assert!(clip(&own).contains("x, Ada"), "R02: {}", clip(&own));
}

#[tokio::test]
async fn r03_invalid_responses() {
    let server = TestServer::open().await;
    let x = r#"{"message":"x"}"#;
    let state = request_state(&server, x).await;
    for (responses, expected) in [
        (r#"{"other":{"action":"accept","content":{"name":"Eve"}}}"#, None),
        (r#"{"name":5}"#, None),
        (r#"{"name":{}}"#, None),
        (r#"{"name":{"action":"explode"}}"#, None),
        (r#"{"name":{"action":"accept","content":{"name":5}}}"#, None),
        (r#"{"name":{"action":"accept","content":{}}}"#, None),
        (r#"{"name":{"action":"accept"}}"#, None),
        (r#"{"name":{"action":"decline"}}"#, Some("no name")),
        (r#"{"name":{"action":"accept","content":{"name":"Ada"}},"other":[[1]]}"#, Some("x, Ada")),
    ] {
        let post = RawRequest::tool_call_with_forms(
            "ask",
            &format!(r#""arguments":{x},"inputResponses":{responses},"requestState":"{state}""#),
        );
        let reply = server.check("R03", &post, [200, 400], [0, -32602]).await;
        match expected {
            Some(text) => assert_eq!(reply.text(), text, "R03 {responses}"),
            None => assert!(
                reply.json()["error"].is_object()
                    || reply.json()["result"]["resultType"] == json!("input_required"),
                "R03 {responses}: {}",
                clip(&reply.body)
            ),
        }
    }
    // A response that is too long is an error of the client, and reported as such.
    let long = format!(r#"{{"first":{{"action":"accept","content":{{"name":"{}"}}}}}}"#, "x".repeat(1 << 19));
    let reply = server
        .check(
            "R03",
            &RawRequest::tool_call_with_forms(
                "ask_twice",
                &format!(r#""arguments":{{}},"inputResponses":{long}"#),
            ),
            [200, 400],
            [0, -32602],
        )
        .await;
    assert!(reply.body.len() < 128 << 10, "R03: {} bytes", reply.body.len());
}

#[tokio::test]
async fn r04_rounds_are_limited() {
    let server = TestServer::open().await;
    let mut params = r#""arguments":{}"#.to_owned();
    let mut n_rounds = 0;
    let last = loop {
        let reply = server.post(&RawRequest::tool_call_with_forms("ask_on", &params)).await;
        let message = reply.json();
        if message["result"]["resultType"] != json!("input_required") {
            break reply;
        }
        n_rounds += 1;
        assert!(n_rounds < 50, "R04: it asks on and on");
        let key = message["result"]["inputRequests"]
            .as_object()
            .and_then(|asked| asked.keys().next().cloned())
            .expect("it asks for something");
        params = format!(
            r#""arguments":{{}},"inputResponses":{{"{key}":{{"action":"accept","content":{{"name":"x"}}}}}},"requestState":{}"#,
            message["result"]["requestState"]
        );
    };
    assert_eq!(n_rounds, 16, "R04");
    assert!(last.status == 200 && last.is_error(), "R04: {last:?}");
    server.check_alive("R04").await;
}

#[tokio::test]
async fn r05_foreign_and_repeated_responses() {
    let server = TestServer::open().await;
    let ours = server.initialize_with(r#"{"elicitation":{}}"#).await;
    let theirs = server.initialize_with(r#"{"elicitation":{}}"#).await;
    let mut asking = server.connect().await;
    asking
        .write_all(&RawRequest::in_session(&ours, call("1", "ask", r#"{"message":"x"}"#)).bytes())
        .await
        .unwrap();
    let mut asked = read_until(&mut asking, "elicitation/create").await;
    while !asked.trim_end().ends_with('}') {
        asked.push_str(&read_until(&mut asking, "\n").await);
    }
    let line = asked
        .lines()
        .rfind(|line| line.contains("elicitation/create"))
        .and_then(|line| line.strip_prefix("data: "))
        .unwrap();
    let id = serde_json::from_str::<Value>(line).unwrap()["id"].clone();
    assert!(id.as_str().is_some_and(|id| id.len() >= 22), "R05: an id that cannot be guessed: {id}");
    let answer = |name: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"name":"{name}"}}}}}}"#
        )
    };

    server.check("R05 another session", &RawRequest::in_session(&theirs, answer("Eve")), 202, 0).await;
    server.check("R05 no session", &RawRequest::new(answer("Eve")), [202, 400], [0, -32600]).await;
    server
        .check(
            "R05 another id",
            &RawRequest::in_session(&ours, answer("Eve").replacen(id.as_str().unwrap(), "1", 1)),
            202,
            0,
        )
        .await;
    server.check("R05", &RawRequest::in_session(&ours, answer("Ada")), 202, 0).await;
    server.check("R05 twice", &RawRequest::in_session(&ours, answer("Eve")), 202, 0).await;
    let message = String::from_utf8_lossy(&read_to_end(&mut asking).await).into_owned();
    assert!(message.contains("x, Ada") && !message.contains("Eve"), "R05: {message}");
    server.check("R05 too late", &RawRequest::in_session(&ours, answer("Eve")), 202, 0).await;
    server.check_alive("R05").await;
}
