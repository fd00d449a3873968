//! Tests of the writers; those of the reader are in `tests/it/limits.rs`.

use super::*;

fn check(write: impl FnOnce(&mut Vec<u8>), expect: &str) -> Frame {
    let mut out = b"kept ".to_vec();
    write(&mut out);
    let text = String::from_utf8(out).unwrap();
    let text = text.strip_prefix("kept ").unwrap();
    assert_eq!(text, expect);
    match read_message(&Bytes::copy_from_slice(text.as_bytes()), &Limits::default()) {
        Ok(Message::Single(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_calls() {
    let id = RequestId::from("a\"1");
    let frame = check(
        |out| write_request(out, &id, "tools/call", Some(b"{\"name\":\"x\"}")),
        r#"{"jsonrpc":"2.0","id":"a\"1","method":"tools/call","params":{"name":"x"}}"#,
    );
    let Frame::Request { id: read, method, params } = frame else {
        panic!("{frame:?}");
    };
    assert_eq!((read, &*method), (id, "tools/call"));
    assert_eq!(params.unwrap().as_str(), "{\"name\":\"x\"}");
    check(
        |out| write_request(out, &RequestId::Number(-7), "ping", None),
        r#"{"jsonrpc":"2.0","id":-7,"method":"ping"}"#,
    );
    check(
        |out| write_notification_frame(out, "a\nb", Some(b"{}")),
        r#"{"jsonrpc":"2.0","method":"a\nb","params":{}}"#,
    );
}

#[test]
fn writes_responses() {
    let id = RequestId::from(1);
    check(|out| write_result(out, &id, b"{\"a\":1}"), r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#);
    check(
        |out| write_error(out, Some(&id), -32601, "unknown method `x\"`", Some(b"[1]")),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown method `x\"`","data":[1]}}"#,
    );
    let error = check(
        |out| write_error(out, None, -32700, "no", None),
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}"#,
    );
    assert!(matches!(error, Frame::ErrorWithoutId { error } if error.to_string() == "no (code -32700)"));
}

/// JSON that was received on several lines is sent on one.
#[test]
fn writes_one_line() {
    let id = RequestId::from(1);
    check(
        |out| write_result(out, &id, b"{\r\n  \"a\":\n[1,\r2, \"\\n\"]\n}"),
        r#"{"jsonrpc":"2.0","id":1,"result":{    "a": [1, 2, "\n"] }}"#,
    );
}
