//! Checked text is deserialized as `serde_json` does it, errors included.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use bytes::Bytes;
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_json::RawJson;

#[derive(Debug, PartialEq, Deserialize)]
struct Plain {
    message: String,
    count: i64,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Strict {
    a_text: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    ratio: Option<f32>,
    letter: Option<char>,
    unit: Option<()>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Wide {
    small: Option<u8>,
    signed: Option<i8>,
    large: Option<u64>,
    huge: Option<i128>,
    double: Option<f64>,
    flag: Option<bool>,
    pair: Option<(i32, String)>,
    nested: Option<Box<Plain>>,
    kind: Option<Kind>,
    one_of: Option<Either>,
    tagged: Option<Tagged>,
    numbers: Option<BTreeMap<i32, bool>>,
    kinds: Option<BTreeMap<Simple, u8>>,
    flags: Option<BTreeMap<bool, u8>>,
    names: Option<HashMap<String, Name>>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Name(String);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Simple {
    A,
    B,
}

#[derive(Debug, PartialEq, Deserialize)]
enum Kind {
    Unit,
    New(String),
    Pair(i32, i32),
    Fields { a: i32 },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(i64),
    Text(String),
    Plain(Plain),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    A { x: u16 },
    B { y: String },
}

/// A float as a key.
#[derive(Debug, Deserialize)]
struct Double(f64);

impl PartialEq for Double {
    fn eq(&self, other: &Double) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Double {}

impl PartialOrd for Double {
    fn partial_cmp(&self, other: &Double) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Double {
    fn cmp(&self, other: &Double) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Removes the position, which only one of them reports.
fn without_position<T>(read: Result<T, serde_json::Error>) -> Result<T, String> {
    read.map_err(|error| {
        let text = error.to_string();
        text.rfind(" at line ").map_or(text.clone(), |end| text[..end].to_owned())
    })
}

fn assert_same<T: DeserializeOwned + Debug + PartialEq>(raw: &RawJson) {
    assert_eq!(without_position(raw.parse_as_fast::<T>()), without_position(raw.parse_as::<T>()), "{raw}");
}

fn assert_same_for_all_types(text: &str) {
    let Ok(raw) = RawJson::parse(Bytes::copy_from_slice(text.as_bytes())) else {
        panic!("not JSON: {text}");
    };
    assert_same::<Value>(&raw);
    assert_same::<Plain>(&raw);
    assert_same::<Strict>(&raw);
    assert_same::<Wide>(&raw);
    assert_same::<String>(&raw);
    assert_same::<i64>(&raw);
    assert_same::<u64>(&raw);
    assert_same::<f64>(&raw);
    assert_same::<f32>(&raw);
    assert_same::<bool>(&raw);
    assert_same::<()>(&raw);
    assert_same::<char>(&raw);
    assert_same::<Vec<Value>>(&raw);
    assert_same::<(Value, Value)>(&raw);
    assert_same::<Option<Vec<i32>>>(&raw);
    assert_same::<BTreeMap<String, Value>>(&raw);
    assert_same::<BTreeMap<i32, Value>>(&raw);
    assert_same::<BTreeMap<u8, Value>>(&raw);
    assert_same::<BTreeMap<u64, Value>>(&raw);
    assert_same::<BTreeMap<i128, Value>>(&raw);
    assert_same::<BTreeMap<u128, Value>>(&raw);
    assert_same::<BTreeMap<Double, Value>>(&raw);
    // Boolean keys are left out: the error of `serde_json` for other keys begins in the middle of their first character.
    assert_same::<Kind>(&raw);
    assert_same::<Either>(&raw);
    assert_same::<Tagged>(&raw);
    assert_same::<Box<str>>(&raw);
}

#[test]
fn agrees_with_serde_json() {
    for text in [
        r#"{"message":"hello","count":3}"#,
        "{ \"message\" : \"a\\u00e9\\n\\ud83d\\ude00\" ,\n\t\"count\" : -7 }",
        r#"{"count":3}"#,
        r#"{"message":7,"count":"3"}"#,
        r#"{"message":"x","count":1.5}"#,
        r#"{"message":null,"count":true}"#,
        r#"{"message":"x","count":3,"more":{"a":[1,2,{"b":null}]}}"#,
        r#"["x",3]"#,
        r#"["x",3,4]"#,
        r#"["x"]"#,
        "[]",
        "{}",
        "[1,2]",
        "[ 1 , 2 , 3 ]",
        r#"{"aText":"x","tags":["a","b\\"],"ratio":0.1,"letter":"\u00e9","unit":null}"#,
        r#"{"aText":"x","unknown":1}"#,
        r#"{"letter":"ab"}"#,
        r#"{"tags":[1]}"#,
        r#"{"small":256}"#,
        r#"{"small":255,"signed":-128,"large":18446744073709551615,"huge":170141183460469231731687303715884105727}"#,
        r#"{"signed":-129,"large":-1}"#,
        r#"{"large":18446744073709551616}"#,
        r#"{"double":-0,"flag":true,"pair":[1,"x"]}"#,
        r#"{"double":1e300,"pair":[1]}"#,
        r#"{"double":0.1234567890123456789,"pair":[1,"x",2]}"#,
        r#"{"kind":"Unit","one_of":5,"tagged":{"type":"A","x":1}}"#,
        r#"{"kind":{"New":"x\t"},"one_of":"a","tagged":{"y":"b","type":"B"}}"#,
        r#"{"kind":{"Pair":[1,2]},"one_of":{"message":"m","count":0}}"#,
        r#"{"kind":{"Fields":{"a":1}}}"#,
        r#"{"kind":"Nothing"}"#,
        r#"{"kind":{"Unit":1,"New":2}}"#,
        r#"{"tagged":{"type":"C"}}"#,
        r#"{"numbers":{"1":true,"-2":false},"kinds":{"A":1,"B":2},"flags":{"true":1}}"#,
        r#"{"numbers":{"x":true}}"#,
        r#"{"kinds":{"C":1}}"#,
        r#"{"007":0}"#,
        r#"{"1 ":0}"#,
        r#"{" 1":0}"#,
        r#"{"1x":0}"#,
        r#"{"-":0}"#,
        r#"{"1.":0}"#,
        r#"{"1e":0}"#,
        r#"{"1.5":0}"#,
        r#"{"1e400":0}"#,
        r#"{"-0":0}"#,
        r#"{"\u0031":0}"#,
        r#"{"1\u0031":0}"#,
        r#"{"":0}"#,
        r#"{"18446744073709551616":0}"#,
        r#"{"340282366920938463463374607431768211455":0}"#,
        r#"{"340282366920938463463374607431768211456":0}"#,
        r#"{"-170141183460469231731687303715884105728":0}"#,
        r#"{"x\u0031":0}"#,
        r#"{"names":{"a":"b","\u0061b":"c\u0022"}}"#,
        r#"{"mess\u0061ge":"hello","count":3}"#,
        r#"{"nested":{"message":"x","count":123456789012345678}}"#,
        r#"{"nested":{"message":"x","count":1234567890123456789}}"#,
        r#"{"nested":{"message":"x","count":-1234567890123456789}}"#,
        "\"\"",
        r#""plain""#,
        r#""a \"quoted\" \\ one""#,
        "0",
        "-0",
        "-1",
        "1e2",
        "1.0",
        "true",
        "false",
        "null",
    ] {
        assert_same_for_all_types(text);
    }
}

/// Consumes nothing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IgnoresInput;

impl<'de> Deserialize<'de> for IgnoresInput {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<IgnoresInput, D::Error> {
        Ok(IgnoresInput)
    }
}

/// A type that consumes nothing is rejected at once, instead of looping.
#[test]
fn unread_input_is_rejected() {
    for text in ["1", "[1,2,3]", "[[1],[2]]", "[]", r#"{"a":1,"b":2}"#, r#"{"a":[1]}"#, "{}", "\"x\"", "null"]
    {
        let raw = RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        assert_same::<IgnoresInput>(&raw);
        assert_same::<Vec<IgnoresInput>>(&raw);
        assert_same::<Vec<Vec<IgnoresInput>>>(&raw);
        assert_same::<BTreeMap<IgnoresInput, u8>>(&raw);
        assert_same::<BTreeMap<String, IgnoresInput>>(&raw);
        assert_same::<Option<IgnoresInput>>(&raw);
    }
}

fn value() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("message".to_owned()),
        Just("count".to_owned()),
        Just("aText".to_owned()),
        Just("tags".to_owned()),
        Just("kind".to_owned()),
        Just("one_of".to_owned()),
        Just("nested".to_owned()),
        Just("numbers".to_owned()),
        ".{0,6}",
        "[-0-9 ]{1,4}",
        "[-+.eE0-9]{1,6}",
        "-?[0-9]{17,40}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
        "[\\\\\"\n\u{e9}a]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_on_any_value(value in value(), is_pretty in any::<bool>()) {
        let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
        assert_same_for_all_types(&text);
    }
}
