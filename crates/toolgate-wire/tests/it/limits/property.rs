//! Properties of the message reader: no input makes it panic, and ids round-trip.

use bytes::Bytes;
use proptest::prelude::*;
use toolgate_wire::{Limits, Message, RawJson, RequestId, read_message};

const VALID_MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":"a\u00e9","method":"tools/call","params":{"name":"echo","arguments":{"n":[1,-2.5e3,true,null],"s":"\ud83d\ude00 \"x\""},"_meta":{"progressToken":7}}}"#;

/// Noise made of tokens of messages: more of it is nearly valid than of random bytes.
fn near_message() -> impl Strategy<Value = String> {
    let tokens = [
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"jsonrpc\":\"2.0\"",
        "\"id\":",
        "\"\\u0069d\":",
        "\"method\":\"ping\"",
        "\"params\":{",
        "\"_meta\":{",
        "\"result\":{}",
        "\"error\":",
        "\"code\":1",
        "\"message\":\"\"",
        "\"a\"",
        "null",
        "1",
        "1.5",
        " ",
    ];
    prop::collection::vec(prop::sample::select(tokens.to_vec()), 0..16)
        .prop_map(|tokens| format!("{{\"jsonrpc\":\"2.0\",{}}}", tokens.concat()))
}

/// Reads a message and visits all values in it.
fn read_and_walk(bytes: Vec<u8>) {
    let frames = match read_message(&Bytes::from(bytes), &Limits::default()) {
        Ok(Message::Single(frame)) => vec![Ok(frame)],
        Ok(Message::Batch(frames)) => frames,
        Err(broken) => vec![Err(broken)],
    };
    for frame in frames {
        use toolgate_wire::Frame::{ErrorWithoutId, Notification, Request, Response};
        match frame {
            Ok(Request { params, .. } | Notification { params, .. }) => {
                params.map(|params| params.to_value());
            }
            Ok(Response { outcome: Ok(result), .. }) => drop(result.to_value()),
            Ok(Response { .. } | ErrorWithoutId { .. }) => {}
            Err(broken) => assert!(broken.detail.len() <= 200),
        }
    }
}

proptest! {
    #[test]
    fn ids_round_trip(number in any::<i64>(), text in any::<String>()) {
        for id in [RequestId::from(number), RequestId::from(text)] {
            let mut out = Vec::new();
            id.write(&mut out);
            let raw = RawJson::parse(out.into()).unwrap();
            prop_assert_eq!(RequestId::read(raw.view()), Some(id));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    // B31.
    #[test]
    fn mutations_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..8),
    ) {
        let mut bytes = VALID_MESSAGE.to_vec();
        for (index, byte, edit) in edits {
            let at = index.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        read_and_walk(bytes);
    }

    #[test]
    fn nearly_messages_never_panic(text in near_message()) {
        read_and_walk(text.into_bytes());
    }
}
