//! Properties of the scan: it agrees with `serde_json` except where it is stricter on purpose, and no input makes it panic.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value};
use toolgate_json::{JsonError, JsonErrorKind, Kind, RawJson, View};

const VALID_MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":"a\u00e9","method":"tools/call","params":{"name":"echo","arguments":{"n":[1,-2.5e3,true,null],"s":"\ud83d\ude00 \"x\""},"_meta":{"progressToken":7}}}"#;

fn parse(bytes: &[u8]) -> Result<RawJson, JsonError> {
    RawJson::parse(Bytes::copy_from_slice(bytes))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Halves are exact: `serde_json` may get the last bit of others wrong.
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 2.0)),
        any::<String>().prop_map(Value::from),
        "[ -~]{0,100}".prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 128, 24, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..24)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// JSON-like noise: more of it is nearly valid than of random bytes.
fn near_json() -> impl Strategy<Value = String> {
    let tokens = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\"a\"",
        "\"a\":",
        "\"\\u0061\":",
        "\"b\":1",
        "{}",
        "[]",
        "null",
        "true",
        "fals",
        "0",
        "1",
        "-",
        "01",
        "1.5",
        ".",
        "e",
        "E+1",
        "1e400",
        "\\u",
        "\\n",
        "\\ud800",
        "\\udc00",
        " ",
        "\n",
        "\t",
        "\u{1}",
        "é",
        "😀",
        "\u{feff}",
        "/",
        "NaN",
        "[[[",
        "]]]",
    ];
    prop::collection::vec(prop::sample::select(tokens.to_vec()), 0..24).prop_map(|tokens| tokens.concat())
}

/// Rebuilds the tree from views only.
fn rebuild_value(view: View<'_>) -> Value {
    match view.kind() {
        Kind::Null => Value::Null,
        Kind::Bool => view.as_bool().expect("a boolean").into(),
        Kind::Number => match (view.as_i64(), view.as_u64()) {
            (Some(number), _) => number.into(),
            (_, Some(number)) => number.into(),
            _ => view.as_f64().expect("a number").into(),
        },
        Kind::String => view.as_string().expect("a text").into(),
        Kind::Array => view.items().map(rebuild_value).collect(),
        Kind::Object => {
            let members = view.members().map(|(key, value)| {
                assert_eq!(view.get(&key), Some(value));
                (key.into_owned(), rebuild_value(value))
            });
            members.collect()
        }
    }
}

/// A part of a JSON string: a plain run, or an escape that is mostly valid.
fn string_piece() -> impl Strategy<Value = String> {
    const ESCAPES: &[&str] = &[
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\t",
        "\\r",
        "\\b",
        "\\f",
        "\\u00e9",
        "\\u0000",
        "\\ud83d\\ude00",
        "é",
        "😀",
    ];
    prop_oneof![
        10 => "[ -!#-\\[\\]-~]{0,90}",
        20 => prop::sample::select(ESCAPES).prop_map(str::to_owned),
        1 => prop::sample::select(&["\\x", "\\ud83d", "\\u12", "\n", "\"", "\\"][..]).prop_map(str::to_owned),
    ]
}

fn agrees_with_serde_json(bytes: &[u8]) {
    let theirs = serde_json::from_slice::<Value>(bytes);
    match (parse(bytes), theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours.to_value(), theirs);
            assert_eq!(ours.as_str(), ours.as_str().trim());
        }
        (Ok(ours), Err(error)) => panic!("only we take {ours}: {error}"),
        (Err(error), Ok(_)) => assert!(
            matches!(error.kind(), JsonErrorKind::DuplicateKey(_) | JsonErrorKind::TooDeep),
            "only we refuse {bytes:?}: {error}"
        ),
        (Err(_), Err(_)) => {}
    }
}

proptest! {
    #[test]
    fn accepts_the_output_of_serde_json(value in value()) {
        for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let raw = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(raw.to_value(), value.clone());
            prop_assert_eq!(rebuild_value(raw.view()), value.clone());
            prop_assert_eq!(serde_json::to_value(&raw).unwrap(), value.clone());
            prop_assert_eq!(raw.parse_as::<Value>().unwrap(), value.clone());
        }
        prop_assert_eq!(RawJson::from(&value).to_value(), value);
    }

    #[test]
    fn agrees_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        agrees_with_serde_json(&bytes);
    }

    #[test]
    fn agrees_on_numbers(text in "-?[0-9]{0,3}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,2})?") {
        agrees_with_serde_json(text.as_bytes());
    }

    #[test]
    fn text_round_trips(text in any::<String>()) {
        let raw = RawJson::string(&text);
        prop_assert_eq!(&serde_json::from_slice::<String>(raw.as_bytes()).unwrap(), &text);
        prop_assert_eq!(&raw.view().as_string().unwrap(), &text);
        prop_assert!(raw.view().eq_str(&text));
        prop_assert_eq!(parse(raw.as_bytes()).unwrap(), raw);
    }

    #[test]
    fn ascii_text_round_trips(bytes in prop::collection::vec(0..0x80_u8, 0..300)) {
        let text = String::from_utf8(bytes).unwrap();
        let raw = RawJson::string(&text);
        prop_assert_eq!(serde_json::from_slice::<String>(raw.as_bytes()).unwrap(), text.clone());
        let again = parse(raw.as_bytes()).unwrap();
        prop_assert_eq!(again.view().as_string().unwrap(), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn agrees_on_mutations(
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
        agrees_with_serde_json(&bytes);
    }

    #[test]
    fn agrees_on_long_strings(pieces in prop::collection::vec(string_piece(), 0..40)) {
        let text = format!("[\"{}\",1]", pieces.concat());
        agrees_with_serde_json(text.as_bytes());
        if let Ok(raw) = parse(text.as_bytes()) {
            let ours = raw.view().items().next().unwrap().as_string().unwrap();
            let (theirs, _): (String, u8) = raw.parse_as().unwrap();
            prop_assert_eq!(RawJson::string(&ours).to_string(), serde_json::to_string(&theirs).unwrap());
            prop_assert_eq!(ours, theirs);
        }
    }

    /// Around the bounds of each byte of a character, behind any number of plain bytes.
    #[test]
    fn agrees_on_utf8(
        n_plain in 0..70_usize,
        bytes in prop::collection::vec(
            prop::sample::select(&b"a\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"[..]),
            1..6,
        ),
    ) {
        let text = ["\"".as_bytes(), "a".repeat(n_plain).as_bytes(), &bytes, b"\""].concat();
        prop_assert_eq!(parse(&text).is_ok(), std::str::from_utf8(&bytes).is_ok());
    }

    #[test]
    fn agrees_on_nearly_json(text in near_json()) {
        agrees_with_serde_json(text.as_bytes());
    }
}
