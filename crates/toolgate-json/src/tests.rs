//! The scan, the views and the writers, case by case.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::json;

use super::*;

fn parse(text: impl AsRef<[u8]>) -> Result<RawJson, JsonError> {
    RawJson::parse(Bytes::copy_from_slice(text.as_ref()))
}

fn raw(text: &str) -> RawJson {
    parse(text).unwrap()
}

/// Returns the error kind without its data.
fn error_text(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    match parse(text) {
        Ok(_) => panic!("{:?} was accepted", String::from_utf8_lossy(text)),
        Err(error) => error.to_string(),
    }
}

#[test]
fn accepts_every_form_of_value() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1",
        "10",
        "0.5",
        "-0.0e-0",
        "1E+2",
        "1e308",
        "1e-999",
        r#""""#,
        r#""\"\\\/\b\f\n\r\t\u0041\ud83d\uDE00""#,
        "\"\u{7f}\u{2028}\u{feff}\u{ffff}😀\"",
        "[]",
        "[ ]",
        "[1,2]",
        "[ 1 , [ ] , { } ]",
        "{}",
        "{ }",
        r#"{"a":1}"#,
        r#"{ "a" : { "a" : 1 } , "b" : [ ] }"#,
        r#"{"":0,"\u0000":1}"#,
    ] {
        assert_eq!(raw(text).as_str(), text);
        assert_eq!(raw(&format!(" \t\r\n{text} \t\r\n")).as_str(), text);
        assert_eq!(raw(text).to_value(), serde_json::from_str::<serde_json::Value>(text).unwrap());
    }
}

#[test]
fn rejects_invalid_json() {
    for (text, message) in [
        ("", "unexpected end at byte 0"),
        ("  ", "unexpected end at byte 2"),
        ("\u{feff}1", r"unexpected character `\u{feff}` at byte 0"),
        ("nul", "unexpected end at byte 3"),
        ("nulL", "unexpected character `L` at byte 3"),
        ("NaN", "unexpected character `N` at byte 0"),
        ("Infinity", "unexpected character `I` at byte 0"),
        ("-Infinity", "invalid number at byte 1"),
        ("1 2", "trailing text at byte 2"),
        ("{}{}", "trailing text at byte 2"),
        ("nullx", "trailing text at byte 4"),
        ("1\0", "trailing text at byte 1"),
        ("1\u{a0}", "trailing text at byte 1"),
        ("é", "unexpected character `é` at byte 0"),
        ("\x1b", r"unexpected character `\u{1b}` at byte 0"),
        ("'a'", r"unexpected character `\'` at byte 0"),
        ("[", "unexpected end at byte 1"),
        ("[1", "unexpected end at byte 2"),
        ("[1,", "unexpected end at byte 3"),
        ("[1,]", "unexpected character `]` at byte 3"),
        ("[,1]", "unexpected character `,` at byte 1"),
        ("[1 2]", "unexpected character `2` at byte 3"),
        ("[1}", "unexpected character `}` at byte 2"),
        ("]", "unexpected character `]` at byte 0"),
        ("{", "unexpected end at byte 1"),
        ("{1:1}", "unexpected character `1` at byte 1"),
        ("{a:1}", "unexpected character `a` at byte 1"),
        (r#"{"a"}"#, "unexpected character `}` at byte 4"),
        (r#"{"a":}"#, "unexpected character `}` at byte 5"),
        (r#"{"a":1,}"#, "unexpected character `}` at byte 7"),
        (r#"{"a":1 "b":2}"#, "unexpected character `\"` at byte 7"),
        ("/* */1", "unexpected character `/` at byte 0"),
        ("1// no", "trailing text at byte 1"),
    ] {
        // `escape_debug` also escapes quotes, which is harmless.
        assert_eq!(error_text(text).replace("\\\"", "\""), message, "{text:?}");
    }
}

#[test]
fn rejects_bad_numbers() {
    for text in [
        "01", "-01", "00", "-", "+1", ".5", "1.", "1.e1", "1e", "1e+", "1E-", "- 1", "0x1", "1_000", "--1",
        "1.5.5", "1e5e5",
    ] {
        assert!(parse(text).is_err(), "{text}");
        assert!(parse(format!("[{text}]")).is_err(), "{text}");
    }
    for text in
        ["1e400", "-1e400", "1e309", "123456789e999999999999", &"9".repeat(310), &"9".repeat(1_000_000)]
    {
        assert_eq!(parse(text).unwrap_err().kind(), &JsonErrorKind::NumberOutOfRange);
    }
    // Neither many digits nor an exponent alone make a number too large.
    for text in [
        "0e999999999999",
        "1.7976931348623157e308",
        "17976931348623157e292",
        &format!("0.{}", "9".repeat(1000)),
        &"9".repeat(308),
    ] {
        assert!(raw(text).view().as_f64().unwrap().is_finite(), "{text}");
        assert!(raw(text).to_value().as_f64().unwrap().is_finite(), "{text}");
    }
}

#[test]
fn rejects_bad_strings() {
    for (text, message) in [
        (r#"""#, "unexpected end at byte 1"),
        (r#""abc"#, "unexpected end at byte 4"),
        (r#""abc\"#, "unexpected end at byte 5"),
        ("\"a\nb\"", "control character in a string at byte 2"),
        ("\"\0\"", "control character in a string at byte 1"),
        ("\"\x1f\"", "control character in a string at byte 1"),
        (r#""\x41""#, "invalid escape at byte 1"),
        (r#""\'""#, "invalid escape at byte 1"),
        (r#""\U0041""#, "invalid escape at byte 1"),
        (r#""\u004""#, "invalid escape at byte 1"),
        (r#""\u00g0""#, "invalid escape at byte 1"),
        (r#""\u+041""#, "invalid escape at byte 1"),
        (r#""\u00"#, "invalid escape at byte 1"),
        (r#""\ud800""#, "lone surrogate at byte 1"),
        (r#""\udc00""#, "lone surrogate at byte 1"),
        (r#""\ud83d\n""#, "lone surrogate at byte 1"),
        (r#""\ud83d\u0041""#, "lone surrogate at byte 1"),
        (r#""\ud83d\ud83d""#, "lone surrogate at byte 1"),
        (r#""\ude00\ud83d""#, "lone surrogate at byte 1"),
        (r#""\ud83d\u""#, "invalid escape at byte 1"),
        (r#""\ud83d"#, "lone surrogate at byte 1"),
    ] {
        assert_eq!(error_text(text), message, "{text:?}");
    }
    for bytes in [
        &b"\"\xff\xfe\""[..],
        b"\"\xc0\xaf\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xe2\x82\"",
        b"\"\x80\"",
    ] {
        assert_eq!(parse(bytes).unwrap_err().kind(), &JsonErrorKind::NotUtf8);
    }
}

/// The end of a string is found in three ways, depending on its distance.
#[test]
fn finds_special_bytes_at_every_distance() {
    let tails = ["y".to_owned(), "y".repeat(600), " ".repeat(600), "\u{ff}".repeat(300)];
    for (n, tail) in (0..200).chain(570..580).flat_map(|n| tails.iter().map(move |tail| (n, tail))) {
        let plain = tail.chars().next().unwrap().to_string().repeat(n);
        let n = plain.len();
        assert!(parse(format!("\"{plain}\"")).is_ok());
        for byte in 0..0x20_u8 {
            let text = format!("\"{plain}{}{tail}\"", char::from(byte));
            let error = parse(&text).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (&JsonErrorKind::ControlCharacter, n + 1));
        }
        for other in ["!", " ", "#", "[", "]", "\u{7f}", "\u{80}", "é", "\u{a2}", "\u{dc}", "😀"] {
            assert!(parse(format!("\"{plain}{other}{tail}\"")).is_ok(), "{other}");
        }
        let text = format!("{plain}\"\\\n\u{1}é{tail}");
        assert_eq!(RawJson::string(&text).view().as_string().unwrap(), text);
        let raw = parse(RawJson::string(&text).as_bytes()).unwrap();
        assert_eq!(raw.parse_as::<String>().unwrap(), text);
        assert_eq!(raw.view().as_string().unwrap(), text);
    }
}

#[test]
fn rejects_duplicate_keys() {
    assert_eq!(error_text(r#"{"method":1,"a":{},"method":2}"#), "duplicate key `method` at byte 19");
    assert_eq!(error_text(r#"[{"a":{"b":1,"b":1}}]"#), "duplicate key `b` at byte 13");
    assert_eq!(error_text(r#"{"":1,"":1}"#), "duplicate key `` at byte 6");
    // Compared after unescaping.
    assert_eq!(error_text(r#"{"a":1,"\u0061":2}"#), "duplicate key `a` at byte 7");
    assert_eq!(error_text(r#"{"\u0061":1,"a":2}"#), "duplicate key `a` at byte 12");
    assert_eq!(error_text(r#"{"\u0061":1,"\u0061":2}"#), "duplicate key `a` at byte 12");
    assert_eq!(error_text(r#"{"x":0,"\ud83d\ude00":1,"😀":2}"#), "duplicate key `😀` at byte 24");
    // Equal keys of different objects are not duplicates.
    raw(r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#);
    raw(r#"{"a":1,"A":1,"a ":1,"\u0061\u0000":1}"#);
    for n in [1, 15, 16, 17, 18, 40] {
        for twice in 0..n {
            let keys: Vec<_> = (0..n).map(|key| format!("\"key{key}\":{key},")).collect();
            raw(&format!("{{{}\"last\":0}}", keys.concat()));
            error_text(format!("{{{}\"key{twice}\":0}}", keys.concat()));
        }
    }
}

#[test]
fn quotes_little_and_safely() {
    let long = "k".repeat(1000);
    let message = error_text(format!(r#"{{"{long}":1,"{long}":1}}"#));
    assert_eq!(message, format!("duplicate key `{}...` at byte 1006", "k".repeat(61)));
    let message = error_text(r#"{"\u001b[31m\u202e":1,"\u001b[31m\u202e":1}"#);
    assert_eq!(message, r"duplicate key `\u{1b}[31m\u{202e}` at byte 22");
    let wide = "\u{202e}".repeat(1000);
    assert!(error_text(format!(r#"{{"{wide}":1,"{wide}":1}}"#)).len() < 110);
}

#[test]
fn stops_at_the_depth_limit() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    raw(&nested(64));
    assert_eq!(error_text(nested(65)), "nested too deep at byte 64");
    assert_eq!(error_text("[".repeat(100_000)), "nested too deep at byte 64");
    assert_eq!(error_text(r#"{"a":"#.repeat(100_000)), "nested too deep at byte 320");
    let limits = |max_depth| Limits { max_depth, ..Limits::default() };
    let with = |text: &str, max| RawJson::parse_with(Bytes::copy_from_slice(text.as_bytes()), &limits(max));
    assert!(with("1", 0).is_ok());
    assert!(with("[]", 0).is_err());
    assert!(with(r#"{"a":[]}"#, 1).is_err());
    assert!(with(r#"{"a":[],"b":{}}"#, 2).is_ok());
    let deepest = with(&nested(127), usize::MAX).unwrap();
    assert!(deepest.parse_as::<serde_json::Value>().is_ok());
    assert!(with(&nested(128), usize::MAX).is_err());
}

#[test]
fn stops_at_the_size_limit() {
    let limits = Limits { max_bytes: 4, ..Limits::default() };
    assert!(RawJson::parse_with(Bytes::from_static(b"1234"), &limits).is_ok());
    let error = RawJson::parse_with(Bytes::from_static(b"123  "), &limits).unwrap_err();
    assert_eq!(error.to_string(), "longer than 4 bytes");
}

#[test]
fn views_know_their_kind() {
    use Kind::*;
    let all = raw(r#"[null, true, -1.5, "x", [], {}]"#);
    let kinds: Vec<_> = all.view().items().map(|item| item.kind()).collect();
    assert_eq!(kinds, [Null, Bool, Number, String, Array, Object]);
    for (n, item) in all.view().items().enumerate() {
        assert_eq!(item.is_null(), n == 0);
        assert_eq!(item.as_bool(), (n == 1).then_some(true));
        assert_eq!(item.as_f64(), (n == 2).then_some(-1.5));
        assert_eq!(item.as_string().as_deref(), (n == 3).then_some("x"));
        assert_eq!((item.as_i64(), item.as_u64()), (None, None));
        assert_eq!(item.items().count() + item.members().count(), 0);
        assert!(item.get("x").is_none());
    }
}

#[test]
fn views_read_integers_only_as_written() {
    for (text, signed, unsigned) in [
        ("0", Some(0), Some(0)),
        ("-0", Some(0), None),
        ("-1", Some(-1), None),
        ("9007199254740993", Some(9_007_199_254_740_993), Some(9_007_199_254_740_993)),
        ("9223372036854775807", Some(i64::MAX), Some(i64::MAX as u64)),
        ("9223372036854775808", None, Some(1 << 63)),
        ("-9223372036854775808", Some(i64::MIN), None),
        ("-9223372036854775809", None, None),
        ("18446744073709551615", None, Some(u64::MAX)),
        ("18446744073709551616", None, None),
        ("1.0", None, None),
        ("1e2", None, None),
        ("\"1\"", None, None),
    ] {
        let text = raw(text);
        assert_eq!(text.view().as_i64(), signed, "{text}");
        assert_eq!(text.view().as_u64(), unsigned, "{text}");
    }
}

#[test]
fn views_borrow_text_without_escapes() {
    let both = raw(r#"["plain é", "a\n\"\\\/\u00e9\ud83d\ude00z"]"#);
    let texts: Vec<_> = both.view().items().filter_map(|item| item.as_string()).collect();
    assert!(matches!(texts[0], Cow::Borrowed("plain é")));
    assert_eq!(texts[1], "a\n\"\\/é😀z");
}

#[test]
fn views_walk_objects() {
    let object = raw(
        " { \"a\" : [ \"]\" , {\"b\":\"}\\\"\"} ] ,\n\"m\\u0065\":{\"x\":-1e2} , \"\\\\\" :null,\"t\":true}",
    );
    let members: Vec<_> = object.view().members().map(|(key, value)| (key, value.to_string())).collect();
    let expect =
        [("a", "[ \"]\" , {\"b\":\"}\\\"\"} ]"), ("me", "{\"x\":-1e2}"), ("\\", "null"), ("t", "true")];
    assert_eq!(members.len(), expect.len());
    for ((key, value), (expect_key, expect_value)) in members.iter().zip(expect) {
        assert_eq!((key.as_ref(), value.as_str()), (expect_key, expect_value));
        assert_eq!(object.view().get(expect_key).unwrap().to_string(), expect_value);
    }
    for absent in ["", "A", "m", "m\\u0065", "x", "b", "\\\\", "a "] {
        assert!(object.view().get(absent).is_none(), "{absent}");
    }
    // A key that looks like an escape and a key that is one.
    let tricky = raw(r#"{"\n":1,"\\n":2}"#);
    assert_eq!(tricky.view().get("\n").unwrap().as_i64(), Some(1));
    assert_eq!(tricky.view().get("\\n").unwrap().as_i64(), Some(2));
}

#[test]
fn slices_share_and_foreign_views_are_copied() {
    let whole = raw(r#"{"a":[1,2],"b":"x"}"#);
    let part = whole.view().get("a").unwrap();
    let shared = whole.slice(part);
    assert_eq!(shared.as_str(), "[1,2]");
    assert_eq!(shared.as_bytes().as_ptr(), part.as_bytes().as_ptr());
    let other = raw(r#"{"a":[1,2]}"#);
    let copied = other.slice(part);
    assert_eq!(copied, shared);
    assert_ne!(copied.as_bytes().as_ptr(), part.as_bytes().as_ptr());
    assert_eq!(part.to_raw(), shared);
}

#[test]
fn converts_values_to_json() {
    let value = json!({"a": [1, -2, 1.5, null, true, "é\n"], "b": {}});
    assert_eq!(RawJson::from(&value).to_value(), value);
    assert_eq!(RawJson::from_serializable(&value).unwrap(), RawJson::from(value.clone()));
    assert_eq!(RawJson::from_serializable("a\"b").unwrap(), RawJson::string("a\"b"));
    assert_eq!(RawJson::empty_object().to_value(), json!({}));
    assert!(RawJson::null().view().is_null());
    assert_eq!(format!("{0} {0:?}", RawJson::string("x")), r#""x" "x""#);
    // Serialized as JSON, not as a string or an array of bytes.
    let text = r#"{"big":18446744073709551615,"e":[1.5,-0.0,"\n"],"t":true,"z":{"n":null}}"#;
    assert_eq!(serde_json::to_string(&[raw(text)]).unwrap(), format!("[{text}]"));
}

#[test]
fn writes_numbers() {
    for (number, text) in [
        (50.0, "50"),
        (-3.0, "-3"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (0.1, "0.1"),
        (1e300, "1e300"),
        (9_007_199_254_740_991.0, "9007199254740991"),
        (f64::NAN, "null"),
        (f64::INFINITY, "null"),
    ] {
        assert_eq!(RawJson::number(number).as_str().replace('+', ""), text);
    }
    for number in [0, 1, -1, 9, 10, -10, 99, 100, i64::MAX, i64::MIN] {
        let mut out = Vec::new();
        write_i64(&mut out, number);
        assert_eq!(out, number.to_string().into_bytes());
    }
}

#[test]
fn writes_only_the_escapes_it_must() {
    let mut out = b"x".to_vec();
    write_string(&mut out, "\0\u{8}\t\n\u{b}\u{c}\r\u{1f} \"/\\\u{7f}\u{2028}é");
    let expect = "x\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f \\\"/\\\\\u{7f}\u{2028}é\"";
    assert_eq!(String::from_utf8(out).unwrap(), expect);
}
