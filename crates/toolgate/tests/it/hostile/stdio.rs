//! J: one message per line.

use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, Lines};

use super::*;

/// A client of a server on a pair of pipes.
struct StdioClient {
    input: Option<DuplexStream>,
    output: Lines<BufReader<DuplexStream>>,
    server: Server,
    n_calls: Arc<AtomicUsize>,
    task: JoinHandle<Result<(), toolgate::Error>>,
}

impl StdioClient {
    fn open() -> StdioClient {
        let n_calls = Arc::default();
        let server = fixture(&n_calls);
        let (input, theirs) = tokio::io::duplex(64 << 10);
        let (ours, output) = tokio::io::duplex(64 << 10);
        let task = tokio::spawn({
            let server = server.clone();
            async move { server.serve_io(theirs, ours).await }
        });
        StdioClient { input: Some(input), output: BufReader::new(output).lines(), server, n_calls, task }
    }

    /// Opens a 2025-11-25 session.
    async fn open_session() -> StdioClient {
        let mut pipe = StdioClient::open();
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
        );
        pipe.send_line(initialize).await;
        assert_eq!(pipe.next_message().await["result"]["protocolVersion"], json!(LEGACY));
        pipe
    }

    async fn send_line(&mut self, line: impl AsRef<[u8]>) {
        self.write(line.as_ref()).await;
        self.write(b"\n").await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the input is open");
        tokio::time::timeout(RESPONSE_TIMEOUT, input.write_all(bytes))
            .await
            .expect("the server reads")
            .expect("the server reads");
    }

    /// Returns the next line, which is always a JSON-RPC message (J13).
    async fn next_message(&mut self) -> Value {
        let line = tokio::time::timeout(RESPONSE_TIMEOUT, self.output.next_line())
            .await
            .expect("a response in time")
            .expect("UTF-8");
        let line = line.expect("the output is open");
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("J13: {line:?} is not a message"));
        assert_eq!(message["jsonrpc"], json!("2.0"), "J13: {line}");
        message
    }

    async fn check_alive(&mut self, row: &str) {
        self.send_line(modern("\"good\"", "echo", r#"{"message":"still here"}"#)).await;
        let reply = self.next_message().await;
        assert_eq!(
            (&reply["id"], &reply["result"]["content"][0]["text"]),
            (&json!("good"), &json!("still here")),
            "after {row}: {reply}"
        );
    }

    async fn close(mut self, row: &str) -> Vec<Value> {
        drop(self.input.take());
        let mut rest = Vec::new();
        let reading = async {
            while let Ok(Some(line)) = self.output.next_line().await {
                rest.push(
                    serde_json::from_str(&line).unwrap_or_else(|_| panic!("J13: {line:?} is not a message")),
                );
            }
        };
        tokio::time::timeout(Duration::from_secs(3), reading).await.expect(row);
        let served = tokio::time::timeout(Duration::from_secs(3), self.task).await.expect(row);
        served.expect("no panic").unwrap_or_else(|error| panic!("{row}: {error}"));
        rest
    }
}

fn modern(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{}}}}}"#,
        meta(MODERN, "{}")
    )
}

#[tokio::test]
async fn j01_to_j10_and_j18_invalid_lines() {
    for mut pipe in [StdioClient::open(), StdioClient::open_session().await] {
        pipe.check_alive("J01").await;
        let good = modern("1", "echo", r#"{"message":"x"}"#);
        let deep = "[".repeat(100_000);
        let ran = pipe.n_calls.load(Ordering::SeqCst);
        let rows: Vec<(&str, Vec<u8>, i64)> = vec![
            ("J02", b"not json".to_vec(), -32700),
            ("J02", b"Content-Length: 20".to_vec(), -32700),
            (
                "J05",
                good.replace("\"x\"", "\"@\"")
                    .into_bytes()
                    .iter()
                    .map(|byte| if *byte == b'@' { 0xff } else { *byte })
                    .collect(),
                -32700,
            ),
            ("J06", [good.as_bytes(), b"\0"].concat(), -32700),
            ("J06", b"\0\0\0".to_vec(), -32700),
            ("J07", [b"\xef\xbb\xbf", good.as_bytes()].concat(), -32700),
            ("J08", format!("{deep}{}", deep.replace('[', "]")).into_bytes(), -32700),
            ("J08", deep.into_bytes(), -32700),
            ("J09", format!("[{good}]").into_bytes(), -32600),
            ("J09", b"[]".to_vec(), -32600),
            ("J10", format!("{good}{good}").into_bytes(), -32700),
            ("J10", format!("{good} {good}").into_bytes(), -32700),
            ("J18", good.replace("\"id\":1", "\"id\":null").into_bytes(), -32600),
            ("J18", b"1".to_vec(), -32600),
        ];
        let n_rows = rows.len();
        for (row, line, code) in rows {
            pipe.send_line(&line).await;
            let reply = pipe.next_message().await;
            assert_eq!(reply["error"]["code"], json!(code), "{row}: {reply}");
            pipe.check_alive(row).await;
        }
        pipe.write(b"\n\r\n   \n\t\r\n").await;
        pipe.write(format!("{}\r\n", modern("2", "echo", r#"{"message":"after blanks"}"#)).as_bytes()).await;
        assert_eq!(pipe.next_message().await["result"]["content"][0]["text"], json!("after blanks"), "J03");
        assert_eq!(pipe.n_calls.load(Ordering::SeqCst), ran + n_rows + 1, "only the good calls ran");
        assert!(pipe.close("J12").await.is_empty());
    }
}

#[tokio::test]
async fn j04_a_line_of_48_mib() {
    let mut pipe = StdioClient::open();
    let before = resident_mib();
    pipe.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"").await;
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..48 {
        pipe.write(&chunk).await;
    }
    pipe.send_line(b"\"}").await;
    let reply = pipe.next_message().await;
    assert_eq!(reply["error"]["code"], json!(-32600), "J04: {reply}");
    assert!(reply.to_string().len() < 1000, "J04: {reply}");
    assert!(resident_mib() < before + 160, "J04: {} MiB", resident_mib() - before);
    pipe.check_alive("J04").await;
    assert!(pipe.close("J04").await.is_empty());
}

#[tokio::test]
async fn j11_j12_the_end_of_input() {
    let mut pipe = StdioClient::open();
    pipe.check_alive("J11").await;
    pipe.write(modern("1", "echo", r#"{"message":"half"}"#).as_bytes()).await;
    let ran = Arc::clone(&pipe.n_calls);
    assert!(pipe.close("J11").await.is_empty(), "J11: an incomplete line gets a response");
    assert_eq!(ran.load(Ordering::SeqCst), 1, "J11: half a line was run");

    // Calls in flight at the end are answered; subscriptions are not waited for.
    let mut pipe = StdioClient::open();
    pipe.send_line(format!(r#"{{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{}}}}}"#, meta(MODERN, "{}"))).await;
    assert_eq!(pipe.next_message().await["method"], json!("notifications/subscriptions/acknowledged"), "J12");
    pipe.send_line(modern("1", "slow", r#"{"n":100}"#)).await;
    let rest = pipe.close("J12").await;
    assert!(rest.iter().any(|reply| reply["id"] == json!(1)), "J12: {rest:?}");
}

#[tokio::test]
async fn j14_shutdown() {
    let mut pipe = StdioClient::open_session().await;
    pipe.send_line(call("1", "slow", r#"{"n":100}"#)).await;
    eventually("J14: the call is under way", || pipe.n_calls.load(Ordering::SeqCst) == 1).await;
    pipe.server.shutdown();
    let input = pipe.input.take();
    let rest = pipe.close("J14").await;
    assert_eq!(rest[0]["result"]["content"][0]["text"], json!("slept 100"), "J14: {rest:?}");
    drop(input);
}

#[tokio::test]
async fn j15_a_client_that_does_not_read() {
    let mut pipe = StdioClient::open();
    let before = resident_mib();
    let mut n_asked = 0;
    let input = pipe.input.as_mut().unwrap();
    loop {
        let line = format!("{}\n", modern(&n_asked.to_string(), "big", r#"{"n":16384}"#));
        // Full pipes: the server has stopped reading.
        let Ok(written) = tokio::time::timeout(ms(150), input.write_all(line.as_bytes())).await else {
            break;
        };
        written.unwrap();
        n_asked += 1;
        assert!(n_asked < 10_000, "J15: the server reads on and on");
    }
    assert!(resident_mib() < before + 240, "J15: {} MiB", resident_mib() - before);
    // The rest of the truncated line is sent, and all responses arrive.
    drop(pipe.input.take());
    for id in 0..n_asked {
        let reply = pipe.next_message().await;
        assert_eq!(reply["id"], json!(id), "J15");
        assert_eq!(reply["result"]["content"][0]["text"].as_str().map(str::len), Some(16_384), "J15");
    }
    assert!(pipe.close("J15").await.is_empty());
}

#[tokio::test]
async fn j16_j17_unexpected_responses_and_ids() {
    for mut pipe in [StdioClient::open(), StdioClient::open_session().await] {
        let ran = pipe.n_calls.load(Ordering::SeqCst);
        let strays = [
            r#"{"jsonrpc":"2.0","method":"notifications/none"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}"#,
        ];
        for stray in strays {
            pipe.send_line(stray).await;
            // None of them gets a response: the next line is the response to the valid call.
            pipe.check_alive("J16").await;
        }
        assert_eq!(pipe.n_calls.load(Ordering::SeqCst), ran + strays.len(), "J16: only the good calls ran");
        for id in ["0", "-1", "9007199254740993", "9223372036854775807", "\"1\"", "\"\"", "\"é\\n\""] {
            pipe.send_line(modern(id, "echo", r#"{"message":"x"}"#)).await;
            let expected: Value = serde_json::from_str(id).unwrap();
            assert_eq!(pipe.next_message().await["id"], expected, "J17");
        }
        pipe.close("J16").await;
    }
}

/// The same id twice at once: the second is rejected, the first gets a response.
#[tokio::test]
async fn j17_an_id_in_flight() {
    let mut pipe = StdioClient::open();
    pipe.send_line(modern("1", "slow", r#"{"n":100}"#)).await;
    pipe.send_line(modern("1", "slow", r#"{"n":100}"#)).await;
    assert_eq!(pipe.next_message().await["error"]["code"], json!(-32600));
    assert_eq!(pipe.next_message().await["result"]["content"][0]["text"], json!("slept 100"));
    pipe.check_alive("J17").await;
}

/// Calls that wait for their client do not block its responses, cancellations and pings.
#[tokio::test]
async fn j15_many_waiting_calls_do_not_block_reading() {
    let mut pipe = StdioClient::open();
    for id in 0..1100 {
        pipe.send_line(modern(&id.to_string(), "slow", r#"{"n":30000}"#)).await;
    }
    for id in 1024..1100 {
        let reply = pipe.next_message().await;
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(id), &json!(-32603)), "{reply}");
    }
    for id in 0..1100 {
        pipe.send_line(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        ))
        .await;
    }
    // The valid call may overtake the last of the cancelled ones.
    tokio::time::sleep(ms(50)).await;
    pipe.check_alive("calls that were taken back").await;
    assert!(pipe.close("J15").await.is_empty());
}
