//! Hostile and invalid messages: which are accepted, which are rejected, and how.
//!
//! The rows B and C are those of the catalog of hostile inputs.

mod property;

use std::time::{Duration, Instant};

use bytes::Bytes;
use toolgate_wire::{
    Frame, FrameError, FrameErrorKind, Limits, Message, RemoteError, RequestId, read_message, write_result,
};

use FrameErrorKind::{InvalidParams, InvalidRequest, ParseError};

fn message(bytes: impl AsRef<[u8]>) -> Result<Message, FrameError> {
    read_message(&Bytes::copy_from_slice(bytes.as_ref()), &Limits::default())
}

fn frame(bytes: impl AsRef<[u8]>) -> Frame {
    match message(bytes) {
        Ok(Message::Single(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

/// Checks that a message is rejected, quickly, with this code and id, and with a short message.
fn check(row: &str, bytes: impl AsRef<[u8]>, kind: FrameErrorKind, id: Option<i64>) -> FrameError {
    let start = Instant::now();
    let error = message(bytes).expect_err(row);
    assert!(start.elapsed() < Duration::from_secs(2), "{row}");
    let id = id.map(RequestId::from);
    assert_eq!((error.kind, &error.id), (kind, &id), "{row}: {error}");
    assert!(error.detail.len() <= 200, "{row}");
    assert!(!error.detail.chars().any(char::is_control), "{row}");
    error
}

/// A valid call with `text` in place of `@`.
fn call(text: &str) -> String {
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":@}}"#
        .replace('@', text)
}

#[test]
fn b01_to_b11_not_json() {
    let good = call("{}");
    for (row, text) in [
        ("B01", "hello".to_owned()),
        ("B02", String::new()),
        ("B02", " \r\n".to_owned()),
        ("B03", good[..good.len() - 1].to_owned()),
        ("B03", good[..40].to_owned()),
        ("B04", format!("{good}x")),
        ("B04", format!("{good}\0")),
        ("B05", format!("{good}{good}")),
        ("B05", format!("{good}\n{good}")),
        ("B09", call("NaN")),
        ("B09", call("Infinity")),
        ("B09", call("-Infinity")),
        ("B10", call("\"\n\"")),
        ("B10", call("\"\u{1}\"")),
        ("B10", call("\"\0\"")),
        ("B11", call("{a:1}")),
        ("B11", call("{'a':1}")),
        ("B11", call("{\"a\":1,}")),
        ("B11", call("[1,/* */2]")),
        ("B11", call("0x1F")),
        ("B11", call("+1")),
    ] {
        check(row, text, ParseError, None);
    }
    for (row, bytes) in [("B06", &b"\xff\xfe"[..]), ("B07", b"\xc0\xaf"), ("B07", b"\xed\xa0\x80")] {
        let mut text = call("\"@@@").into_bytes();
        let at = text.iter().position(|&byte| byte == b'@').unwrap();
        text.splice(at..at + 3, [bytes, b"\""].concat());
        check(row, text, ParseError, None);
    }
    for utf16 in [u16::to_le_bytes, u16::to_be_bytes] {
        let text: Vec<u8> = good.encode_utf16().flat_map(utf16).collect();
        check("B08", text, ParseError, None);
    }
}

#[test]
fn b12_to_b14_depth() {
    check("B12", "[".repeat(100_000), ParseError, None);
    let closed = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    check("B12", &closed, ParseError, None);
    check("B13", r#"{"a":"#.repeat(100_000), ParseError, None);
    check("B14", call(&closed), ParseError, None);
    // The message and its params are two of the 64 levels.
    let nested = |n: usize| call(&format!("{}{}", "[".repeat(n), "]".repeat(n)));
    frame(nested(62));
    check("depth", nested(63), ParseError, None);
}

#[test]
fn b15_and_b16_numbers() {
    let id = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    check("B15", id(&"9".repeat(1_000_000)), ParseError, None);
    check("B15", id(&"9".repeat(100)), InvalidRequest, None);
    check("B15", id(&format!("0.{}", "9".repeat(1_000_000))), InvalidRequest, None);
    check("B16", id("1e400"), ParseError, None);
    check("B16", id("-1e400"), ParseError, None);
    check("B16", call("[1e999999999999]"), ParseError, None);
}

#[test]
fn b17_to_b19_batches() {
    let batch = |text: &str, n: usize| format!("[{}]", vec![text; n].join(","));
    let many = check("B17", batch("1", 1_000_000), InvalidRequest, None);
    assert_eq!(many.detail, "more than 100 messages in a batch");
    let empty = check("B18", "[]", InvalidRequest, None);
    assert_eq!(empty.detail, "empty batch");
    check("B18", " [ ] ", InvalidRequest, None);
    check("B19", batch(&call("{}"), 1000), InvalidRequest, None);
    check("B19", batch(&call("{}"), 101), InvalidRequest, None);
    // Invalid JSON is reported before an invalid message.
    check("B17", format!("{}x", batch("1", 1000)), ParseError, None);
    let Ok(Message::Batch(frames)) = message(batch(&call("{}"), 100)) else {
        panic!("100 are allowed");
    };
    assert_eq!(frames.len(), 100);
    assert!(frames.iter().all(Result::is_ok));
}

#[test]
fn messages_of_a_batch_are_parsed_separately() {
    let text = r#"[
        {"jsonrpc":"2.0","id":"a","method":"ping"},
        {"jsonrpc":"2.0","method":"notifications/initialized","params":{"x":[1]}},
        1, [], [{"jsonrpc":"2.0","id":1,"method":"ping"}],
        {"jsonrpc":"1.0","id":2,"method":"ping"},
        {"jsonrpc":"2.0","id":3,"method":"ping","params":[]},
        {"jsonrpc":"2.0","id":4,"result":{}}
    ]"#;
    let Ok(Message::Batch(frames)) = message(text) else {
        panic!("a batch");
    };
    let kinds: Vec<_> = frames
        .iter()
        .map(|frame| match frame {
            Ok(Frame::Request { .. }) => "request".to_owned(),
            Ok(Frame::Notification { .. }) => "notification".to_owned(),
            Ok(Frame::Response { .. }) => "response".to_owned(),
            Ok(Frame::ErrorWithoutId { .. }) => "lost".to_owned(),
            Err(error) => format!("{:?} {:?}", error.kind, error.id),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "request",
            "notification",
            "InvalidRequest None",
            "InvalidRequest None",
            "InvalidRequest None",
            "InvalidRequest Some(Number(2))",
            "InvalidParams Some(Number(3))",
            "response",
        ]
    );
}

#[test]
fn b20_to_b25_keys_and_forms() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"METHOD":"ping","PARAMS":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method\u0000":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method ":"ping"}"#,
    ] {
        check("B20/B21", text, InvalidRequest, Some(1));
    }
    check("B20", r#"{"JSONRPC":"2.0","id":1,"method":"ping"}"#, InvalidRequest, Some(1));
    // An unknown key is ignored, and so are similar spellings of known ones.
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"ping","PARAMS":[],"paramſ":1,"params\u0000":1,"x":{}}"#;
    assert!(matches!(frame(text), Frame::Request { params: None, .. }));

    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#;
    let error = check("B22", twice, ParseError, None);
    assert_eq!(error.detail, "duplicate key `method` at byte 37");
    check("B22", r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#, ParseError, None);
    check("B23", call(r#"{"name":1,"name":2}"#), ParseError, None);
    check("B23", call(r#"[{"a":[{"b":1,"\u0062":2}]}]"#), ParseError, None);

    for text in ["1", "\"x\"", "null", "true", " -1.5 "] {
        check("B24", text, InvalidRequest, None);
    }
    check("B25", format!("\u{feff}{}", call("{}")), ParseError, None);
}

#[test]
fn b26_surrogates() {
    for text in [r#""\ud800""#, r#""\udfff""#, r#""\udc00\ud800""#, r#""\ud800x""#, r#"{"\ud800":1}"#] {
        check("B26", call(text), ParseError, None);
    }
    frame(call(r#""\ud83d\ude00""#));
}

/// Text that is received as `arguments` is sent unchanged in a result.
#[test]
fn b27_and_b28_text_round_trips() {
    let odd = "\0\u{2028}\u{2029}\u{feff}\u{ffff}👩\u{200d}💻\u{202e}\u{7f}\u{1b}[31m\r\n\"\\/";
    let texts = [
        serde_json::json!({ "message": odd }).to_string(),
        r#"{"__proto__":{"a":1},"constructor":{"prototype":null}}"#.to_owned(),
    ];
    for text in texts {
        let Frame::Request { params: Some(params), id, .. } = frame(call(&text)) else {
            panic!("a request with params");
        };
        let arguments = params.view().get("arguments").unwrap();
        assert_eq!(arguments.as_bytes(), text.as_bytes());
        let mut out = Vec::new();
        write_result(&mut out, &id, arguments.as_bytes());
        let Frame::Response { outcome: Ok(result), .. } = frame(&out) else {
            panic!("a result");
        };
        assert_eq!(result.to_value(), serde_json::from_str::<serde_json::Value>(&text).unwrap());
        assert!(params.view().get("a").is_none());
    }
}

#[test]
fn b29_and_b30_size() {
    let start = Instant::now();
    let keys: Vec<_> = (0..100_000).map(|n| format!("\"key{n}\":{n}")).collect();
    let text = call(&format!("{{{}}}", keys.join(",")));
    frame(&text);
    check("B29", text.replace("key99999", "key0"), ParseError, None);
    frame(call(&format!("\"{}\"", r"\n".repeat(1 << 19))));
    frame(call(&format!("\"{}\"", r"\u00e9\ud83d\ude00".repeat(50_000))));
    frame(call(&format!("{}{{}}", " ".repeat(3 << 20))));
    // Objects that are expensive to check: an escaped key each.
    frame(call(&format!("[{}0]", r#"{"\n":0},"#.repeat(300_000))));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn too_large_messages_are_invalid_and_not_parsed() {
    let error = check("J04", " ".repeat(48 << 20), InvalidRequest, None);
    assert_eq!(error.detail, "longer than 4194304 bytes");
    let limits = Limits { max_bytes: 40, ..Limits::default() };
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert!(read_message(&Bytes::from_static(text.as_bytes()), &limits).is_ok());
    let error = read_message(&Bytes::from(format!("{text} ")), &limits).unwrap_err();
    assert_eq!(error.kind.code(), -32600);
}

#[test]
fn c01_version() {
    for version in ["\"1.0\"", "2.0", "2", "null", "\"2.00\"", "\"2.0 \"", "[\"2.0\"]", "\"\""] {
        let text = format!(r#"{{"jsonrpc":{version},"id":1,"method":"ping"}}"#);
        check("C01", text, InvalidRequest, Some(1));
    }
    check("C01", r#"{"id":1,"method":"ping"}"#, InvalidRequest, Some(1));
    check("C01", r#"{"id":null,"method":"ping"}"#, InvalidRequest, None);
    check("C01", "{}", InvalidRequest, None);
    frame(r#"{"jsonrpc":"2\u002e0","id":1,"method":"ping"}"#);
}

#[test]
fn c02_and_c03_ids() {
    for id in [
        "null",
        "1.5",
        "1.0",
        "1e2",
        "true",
        "false",
        "{}",
        "[]",
        "[1]",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999",
    ] {
        check("C02", format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#), InvalidRequest, None);
        check(
            "C02",
            format!(r#"{{"jsonrpc":"2.0","method":"ping","params":[],"id":{id}}}"#),
            InvalidRequest,
            None,
        );
        check("C02", format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), InvalidRequest, None);
    }
}

#[test]
fn c04_to_c06_method_params_result() {
    for method in ["1", "null", "\"\"", "[]", "{}", "true"] {
        check("C04", format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method}}}"#), InvalidRequest, Some(1));
        check("C04", format!(r#"{{"jsonrpc":"2.0","method":{method}}}"#), InvalidRequest, None);
    }
    check("C04", r#"{"jsonrpc":"2.0","id":1}"#, InvalidRequest, Some(1));
    check("C04", r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, InvalidRequest, Some(1));
    for params in ["[]", "[1]", "\"x\"", "1", "true", "false"] {
        check(
            "C05",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{params}}}"#),
            InvalidParams,
            Some(1),
        );
        check(
            "C05",
            format!(r#"{{"jsonrpc":"2.0","method":"ping","params":{params}}}"#),
            InvalidParams,
            None,
        );
    }
    for extra in
        [r#""result":{}"#, r#""result":null"#, r#""error":{"code":1,"message":""}"#, r#""error":null"#]
    {
        check(
            "C06",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping",{extra}}}"#),
            InvalidRequest,
            Some(1),
        );
        check("C06", format!(r#"{{"jsonrpc":"2.0",{extra},"method":"ping"}}"#), InvalidRequest, None);
    }
}

#[test]
fn c11_ids_round_trip() {
    let long = format!("\"{}\"", "x".repeat(300));
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "\"1\"",
        "\"\"",
        "\"é😀\u{2028}\"",
        r#""\n\"\\""#,
        &long,
    ] {
        let Frame::Request { id: read, .. } =
            frame(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#))
        else {
            panic!("a request");
        };
        assert_eq!(read.to_string(), id);
        let mut out = Vec::new();
        write_result(&mut out, &read, b"{}");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
    assert_ne!(RequestId::from(1), RequestId::from("1"));
}

#[test]
fn reads_calls_without_copying() {
    let text = r#" { "params" : {"a": [1]} , "method" : "a\/b" , "id" : "x" , "jsonrpc" : "2.0" } "#;
    let bytes = Bytes::from_static(text.as_bytes());
    let Ok(Message::Single(Frame::Request { id, method, params: Some(params) })) =
        read_message(&bytes, &Limits::default())
    else {
        panic!("a request");
    };
    assert_eq!((id, &*method), (RequestId::from("x"), "a/b"));
    assert_eq!(params.as_str(), r#"{"a": [1]}"#);
    assert!(bytes.as_ptr_range().contains(&params.as_bytes().as_ptr()));

    let text = r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":null}"#;
    assert!(
        matches!(frame(text), Frame::Notification { method, params: None } if &*method == "notifications/initialized")
    );
}

#[test]
fn reads_responses() {
    let text = r#"{"jsonrpc":"2.0","id":1,"result":{"a":null}}"#;
    assert!(
        matches!(frame(text), Frame::Response { outcome: Ok(result), .. } if result.as_str() == r#"{"a":null}"#)
    );
    let text = r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32601,"message":"n\u006f","data":[1],"x":0}}"#;
    let Frame::Response { id, outcome: Err(error) } = frame(text) else {
        panic!("an error");
    };
    assert_eq!(id, RequestId::from("1"));
    assert_eq!((error.code, error.message.as_str()), (-32601, "no"));
    assert_eq!(error.data.unwrap().as_str(), "[1]");
    for text in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}"#,
    ] {
        let expect = RemoteError { code: -32700, message: "no".to_owned(), data: None };
        assert_eq!(frame(text), Frame::ErrorWithoutId { error: expect });
    }
}

#[test]
fn rejects_invalid_responses() {
    for result in ["null", "1", "\"x\"", "[]", "true"] {
        check("result", format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#), InvalidRequest, Some(1));
    }
    check("no id", r#"{"jsonrpc":"2.0","result":{}}"#, InvalidRequest, None);
    check(
        "both",
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
        InvalidRequest,
        Some(1),
    );
    for error in [
        "null",
        "1",
        "\"x\"",
        "[]",
        "{}",
        r#"{"code":1}"#,
        r#"{"message":"x"}"#,
        r#"{"code":1.5,"message":"x"}"#,
        r#"{"code":"1","message":"x"}"#,
        r#"{"code":1,"message":null}"#,
        r#"{"Code":1,"message":"x"}"#,
    ] {
        check("error", format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#), InvalidRequest, Some(1));
        check("error", format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#), InvalidRequest, None);
    }
    for id in ["1.5", "true", "{}", "[]"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"x"}}}}"#);
        check("error id", text, InvalidRequest, None);
    }
}

#[test]
fn codes_are_those_of_json_rpc() {
    assert_eq!(
        [ParseError, InvalidRequest, InvalidParams].map(FrameErrorKind::code),
        [-32700, -32600, -32602]
    );
}
