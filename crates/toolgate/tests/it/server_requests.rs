//! Requests to the client: on the open stream, and by repeating the call.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolgate::Server;

use crate::fixture::{self, Options};
use crate::transcript_player::{self, HttpExchange};

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("ask").await;
}

fn server(keys: &[u8]) -> Server {
    fixture::serve(&Options { seal_keys: keys.to_vec(), ..Options::default() }).0
}

/// Calls a tool as the newest protocol version does; returns `result` or `error`.
async fn call(server: &Server, tool: &str, answers: Value, state: Option<&str>) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let mut params = json!({ "name": tool, "inputResponses": answers, "_meta": meta });
    if let Some(state) = state {
        params["requestState"] = state.into();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let request = transcript_player::build_request("POST", "/mcp", &headers, None, body.into()).unwrap();
    let mut exchange = HttpExchange::start(server.clone().into_service(), request);
    exchange.head().await.unwrap();
    let answer: Value = serde_json::from_str(&exchange.body().await.unwrap()).unwrap();
    answer.get("result").or(answer.get("error")).cloned().unwrap()
}

#[tokio::test]
async fn keys_rotate_without_losing_calls_in_flight() {
    let (old, both, new) = (server(&[1]), server(&[2, 1]), server(&[2]));
    let yes = json!({ "ok": { "action": "decline" } });
    let asked = call(&old, "confirm", json!({}), None).await;
    let old_state = asked["requestState"].as_str().unwrap().to_owned();

    // Any process with the key continues; one that has dropped the key rejects the state.
    assert_eq!(
        call(&server(&[1]), "confirm", yes.clone(), Some(&old_state)).await["content"][0]["text"],
        "declined"
    );
    assert_eq!(call(&both, "confirm", yes.clone(), Some(&old_state)).await["content"][0]["text"], "declined");
    let refused = call(&new, "confirm", yes.clone(), Some(&old_state)).await;
    assert_eq!(refused["code"], -32602);
    assert_eq!(refused["data"], json!({ "reason": "invalid" }));

    // The newest key seals.
    let asked = call(&both, "confirm", json!({}), None).await;
    let new_state = asked["requestState"].as_str().unwrap();
    assert_eq!(call(&new, "confirm", yes.clone(), Some(new_state)).await["content"][0]["text"], "declined");
    assert_eq!(
        call(&old, "confirm", yes.clone(), Some(new_state)).await["data"],
        json!({ "reason": "invalid" })
    );
    // Without shared keys every process has its own.
    assert_eq!(
        call(&server(&[]), "confirm", yes, Some(new_state)).await["data"],
        json!({ "reason": "invalid" })
    );
}

#[tokio::test]
async fn rounds_of_requests_are_limited() {
    let server = server(&[1]);
    let (mut answers, mut state) = (json!({}), None);
    for round in 0..16 {
        let asked = call(&server, "endless", answers, state.as_deref()).await;
        assert_eq!(asked["resultType"], "input_required", "round {round}: {asked}");
        let key = format!("q{round}");
        assert_eq!(asked["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), [&key], "{asked}");
        answers = json!({ key: { "action": "accept", "content": {} } });
        state = asked["requestState"].as_str().map(str::to_owned);
    }
    let given_up = call(&server, "endless", answers, state.as_deref()).await;
    assert_eq!(given_up["isError"], true, "{given_up}");
    assert_eq!(given_up["content"][0]["text"], "the call was abandoned after 16 requests for input");
}

/// The sealed state that a process with key 1 sends to a client that called `confirm` without arguments.
fn sealed_state(journal: &Value) -> String {
    let (secret, nonce) = ([1; 32], [7; 24]);
    let mut purpose = Sha256::new();
    for part in ["fixture", "", "tools/call", "confirm"] {
        purpose.update((part.len() as u64).to_le_bytes());
        purpose.update(part);
    }
    purpose.update([0]);
    let purpose: [u8; 32] = purpose.finalize().into();
    let id = Sha256::digest([b"toolgate key id".as_slice(), &secret].concat());
    let plain = journal.to_string();
    let payload = Payload { msg: plain.as_bytes(), aad: &purpose };
    let body = XChaCha20Poly1305::new(&secret.into()).encrypt(&XNonce::from(nonce), payload).unwrap();
    let body = URL_SAFE_NO_PAD.encode([&nonce, body.as_slice()].concat());
    format!("v1.{}.{body}", URL_SAFE_NO_PAD.encode(&id[..4]))
}

#[tokio::test]
async fn request_state_expires() {
    let server = server(&[1]);
    let journal = |expires: u64| json!({ "expires": expires, "round": 1, "answers": {}, "memory": {} });
    let yes = json!({ "ok": { "action": "decline" } });
    let fresh =
        call(&server, "confirm", yes.clone(), Some(&sealed_state(&journal(u64::from(u32::MAX))))).await;
    assert_eq!(fresh["content"][0]["text"], "declined", "the test seals as the server does: {fresh}");
    let late = call(&server, "confirm", yes, Some(&sealed_state(&journal(1_700_000_000)))).await;
    assert_eq!(late["code"], -32602, "{late}");
    assert_eq!(late["data"], json!({ "reason": "expired" }));
}
