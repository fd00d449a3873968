//! B: invalid or excessive JSON.

use std::time::Instant;

use super::*;

fn raw(body: impl Into<Vec<u8>>) -> RawRequest {
    RawRequest::modern_raw("tools/call", Some("echo"), body)
}

/// A valid 2026-07-28 call with something in place of its message, quotes included.
fn echo_of(message: &[u8]) -> RawRequest {
    let good = RawRequest::tool_call("echo", r#"{"message":"@"}"#).body;
    let at = good.windows(3).position(|window| window == b"\"@\"").expect("it stands there");
    raw([&good[..at], message, &good[at + 3..]].concat())
}

#[tokio::test]
async fn b01_to_b11_and_b25_b26_not_json() {
    let server = TestServer::open().await;
    let good = String::from_utf8(RawRequest::tool_call("echo", r#"{"message":"x"}"#).body).unwrap();
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let rows: Vec<(&str, RawRequest)> = vec![
        ("B01", raw("not json")),
        ("B02", raw("")),
        ("B02", raw("   \r\n ")),
        ("B03", raw(&good[..good.len() - 1])),
        ("B04", raw(format!("{good} x"))),
        ("B05", raw(format!("{good}{good}"))),
        ("B06", echo_of(b"\"\xff\xfe\"")),
        ("B07", echo_of(b"\"\xc0\xaf\"")),
        ("B07", echo_of(b"\"\xed\xa0\x80\"")),
        ("B08", raw(utf16)),
        ("B09", echo_of(b"NaN")),
        ("B09", echo_of(b"Infinity")),
        ("B09", echo_of(b"-Infinity")),
        ("B10", echo_of(b"\"a\nb\"")),
        ("B10", echo_of(b"\"a\0b\"")),
        ("B11", echo_of(b"'x'")),
        ("B11", raw(good.replacen('{', "{/* */", 1))),
        ("B11", raw(good.replacen("\"id\":1", "id:1", 1))),
        ("B11", raw(good.replacen("\"id\":1,", "\"id\":1,,", 1))),
        ("B11", raw(good.replacen("\"id\":1", "\"id\":01", 1))),
        ("B11", raw(good.replacen("\"id\":1", "\"id\":0x1", 1))),
        ("B22", raw(good.replacen("\"id\":1", "\"id\":1,\"method\":\"ping\"", 1))),
        ("B22", raw(good.replacen("\"id\":1", "\"id\":1,\"\\u006dethod\":\"ping\"", 1))),
        ("B23", raw(good.replacen("\"name\":\"echo\"", "\"name\":\"echo\",\"name\":\"panic\"", 1))),
        ("B25", raw([b"\xef\xbb\xbf", good.as_bytes()].concat())),
        ("B26", echo_of(br#""\ud800""#)),
        ("B26", echo_of(br#""\udc00\ud800""#)),
        ("B26", echo_of(br#""\ud800x""#)),
    ];
    for (row, post) in rows {
        let before = server.n_calls();
        let reply = server.check(row, &post, 400, -32700).await;
        assert!(reply.json().get("id").is_none_or(Value::is_null), "{row}: {}", clip(&reply.body));
        assert_eq!(server.n_calls(), before + 1, "{row}: only the good call ran");
    }
}

#[tokio::test]
async fn b12_to_b19_deep_long_and_many() {
    let server = TestServer::open().await;
    let (begin, before) = (Instant::now(), resident_mib());
    let deep = 100_000;
    let nested = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    let digits = "9".repeat(1_000_000);
    let many = format!("[{}1]", "1,".repeat(999_999));
    let calls = format!("[{}]", vec![call("1", "echo", r#"{"message":"x"}"#); 1000].join(","));
    let id =
        |id: &str| {
            raw(String::from_utf8(RawRequest::tool_call("echo", r#"{"message":"x"}"#).body)
                .unwrap()
                .replacen("\"id\":1", &format!("\"id\":{id}"), 1))
        };
    let rows: Vec<(&str, RawRequest, [i64; 2])> = vec![
        ("B12", raw(nested.clone()), [-32700, -32700]),
        ("B13", raw("{\"a\":".repeat(deep)), [-32700, -32700]),
        ("B14", echo_of(nested.as_bytes()), [-32700, -32700]),
        ("B14", echo_of(format!("{}1{}", "{\"a\":".repeat(70), "}".repeat(70)).as_bytes()), [-32700, -32700]),
        ("B15", id(&digits), [-32700, -32600]),
        ("B15", id("9223372036854775808"), [-32700, -32600]),
        ("B16", id("1e400"), [-32700, -32600]),
        ("B17", raw(many.clone()), [-32600, -32600]),
        ("B18", raw("[]"), [-32600, -32600]),
        ("B19", raw(calls.clone()), [-32600, -32600]),
        ("B17 bare", RawRequest::new(many), [-32600, -32600]),
        ("B18 bare", RawRequest::new("[]"), [-32600, -32600]),
        ("B19 bare", RawRequest::new(calls), [-32600, -32600]),
    ];
    for (row, post, codes) in rows {
        let ran = server.n_calls();
        let reply = server.check(row, &post, 400, codes).await;
        assert!(reply.body.len() < 2000, "{row}: {} bytes", reply.body.len());
        assert_eq!(server.n_calls(), ran + 1, "{row}: only the good call ran");
    }
    assert!(begin.elapsed() < RESPONSE_TIMEOUT, "{:?}", begin.elapsed());
    assert!(resident_mib() < before + 160, "B12: {} MiB", resident_mib() - before);
}

#[tokio::test]
async fn b20_b21_b24_keys_and_scalars() {
    let server = TestServer::open().await;
    let good = String::from_utf8(RawRequest::tool_call("echo", r#"{"message":"x"}"#).body).unwrap();
    for (row, body) in [
        ("B20", good.replace("\"method\"", "\"Method\"").replace("\"params\"", "\"PARAMS\"")),
        ("B21", good.replace("\"method\"", "\"method\\u0000\"")),
        ("B24", "1".into()),
        ("B24", "\"x\"".into()),
        ("B24", "null".into()),
        ("B24", "true".into()),
    ] {
        server.check(row, &raw(body), 400, -32600).await;
    }
    // `ſ` equals `s` under case folding.
    server.check("B21", &raw(good.replace("\"params\"", "\"paramſ\"")), 400, [-32600, -32602]).await;
}

#[tokio::test]
async fn b27_b28_odd_characters_and_odd_keys() {
    let server = TestServer::open().await;
    for text in [
        "a\0b",
        "\u{2028}\u{2029}",
        "\u{feff}",
        "\u{ffff}",
        "👩‍👩‍👧‍👦",
        "\u{202e}live",
        "\u{7f}",
        "\u{1b}[31m",
        "\\u0041\\",
        "</script>",
    ] {
        let written = serde_json::to_string(text).unwrap();
        let reply = server.check("B27", &echo_of(written.as_bytes()), 200, 0).await;
        assert_eq!(reply.text(), text, "B27");
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        let reply = server.check("B27", &echo_of(format!("\"{escaped}\"").as_bytes()), 200, 0).await;
        assert_eq!(reply.text(), text, "B27 escaped");
    }
    for arguments in [
        r#"{"__proto__":{"message":"x"}}"#,
        r#"{"constructor":{"message":"x"}}"#,
        r#"{"prototype.message":"x"}"#,
    ] {
        let ran = server.n_calls();
        let reply = server.check("B28", &RawRequest::tool_call("echo", arguments), 200, 0).await;
        assert!(reply.is_error(), "B28: {}", clip(&reply.body));
        assert_eq!(server.n_calls(), ran + 1, "B28: only the good call ran");
    }
}

#[tokio::test]
async fn b29_b30_large_but_good() {
    let server = TestServer::open().await;
    let begin = Instant::now();
    let keys: String = (0..100_000).map(|n| format!(",\"k{n}\":{n}")).collect();
    let reply = server
        .check("B29", &RawRequest::tool_call("echo", &format!(r#"{{"message":"x"{keys}}}"#)), 200, 0)
        .await;
    assert!(reply.is_error() || reply.text() == "x", "B29: {}", clip(&reply.body));
    assert!(reply.body.len() < 64 << 10, "B29: {} bytes", reply.body.len());
    let escapes = "\\u0041".repeat((1 << 20) / 6);
    let reply =
        server.check("B30", &echo_of(format!("\"{escapes}\"").as_bytes()), [200, 413], [0, -32600]).await;
    assert!(reply.status == 413 || reply.text().len() == escapes.len() / 6, "B30");
    let blanks = " ".repeat(3 << 20);
    let good = String::from_utf8(RawRequest::tool_call("echo", r#"{"message":"x"}"#).body).unwrap();
    server
        .check(
            "B30",
            &raw(good.replacen("\"id\":1", &format!("\"id\":{blanks}1"), 1)),
            [200, 413],
            [0, -32600],
        )
        .await;
    assert!(begin.elapsed() < RESPONSE_TIMEOUT, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn b31_mutations_of_a_good_body() {
    let server = TestServer::open().await;
    let good = RawRequest::tool_call("echo", r#"{"message":"x\u00e9\n","n":[1.5e3,true,null,{}]}"#).body;
    let mut seed = 0x2026_0728_u64;
    let mut roll = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let spice = b"\0\"\\{}[],:eE+-.019ntu\xff\xc3\xed\n ";
    for n in 0..300 {
        let mut body = good.clone();
        for _ in 0..=roll(3) {
            let at = roll(body.len());
            match roll(5) {
                0 => body[at] = spice[roll(spice.len())],
                1 => body.insert(at, spice[roll(spice.len())]),
                2 => drop(body.remove(at)),
                3 => body[at] ^= 1 << roll(8),
                _ => body.truncate(at.max(1)),
            }
        }
        // Half of them as requests of the oldest version, which has other readers.
        let post = if n % 2 == 0 { raw(body) } else { RawRequest::new(body) };
        let reply = server.post(&post).await;
        let at = format!("B31 number {n}: {:?} answered by {reply:?}", clip(&post.body));
        assert!([200, 202, 400, 404].contains(&reply.status), "{at}");
        reply.check_common(&at);
    }
    server.check_alive("B31").await;
}
