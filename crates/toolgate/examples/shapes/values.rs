//! One tool per value, without arguments.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use schemars::JsonSchema;
use serde::Serialize;
use toolgate::{Builder, Json, Server, ToolSpec};

/// Creates a server with one tool per value, which returns that value.
pub(crate) fn shapes() -> Builder {
    enums(collections(structs(Server::new("shapes", env!("CARGO_PKG_VERSION")))))
}

fn structs(server: Builder) -> Builder {
    let server = shape(server, "options_absent", Options::default());
    let options = Options {
        name: Some("ada".into()),
        count: Some(3),
        inner: Some(Inner { depth: Some(1) }),
        nested: Some(Some(2)),
    };
    let server = shape(server, "options_present", options);
    let server = shape(
        server,
        "options_nested",
        Options { inner: Some(Inner { depth: None }), nested: Some(None), ..Options::default() },
    );
    let server = shape(server, "defaulted", Defaulted::default());
    let server = shape(server, "renamed", Renamed { user_name: "ada".into(), mail_box: None });
    let server = shape(server, "skipped_absent", Skipped::default());
    let server = shape(
        server,
        "skipped_present",
        Skipped {
            note: Some("hi".into()),
            tags: vec!["a".into()],
            always: None,
            secret: "s".into(),
            cache: 7,
        },
    );
    let server =
        shape(server, "flattened", Flattened { id: 1, inner: Inner { depth: None }, rest: BTreeMap::new() });
    let rest = BTreeMap::from([("extra".to_owned(), 5)]);
    let server = shape(server, "flattened_map", Flattened { id: 1, inner: Inner { depth: Some(2) }, rest });
    let server = shape(server, "flattened_option", FlattenedOption { id: 1, inner: None });
    let server = shape(server, "closed", Closed { id: 1, label: None });
    let leaf = Tree { label: "leaf".into(), parent_id: None, left: None, children: vec![] };
    let tree = Tree {
        label: "root".into(),
        parent_id: Some(1),
        left: Some(Box::new(leaf.clone())),
        children: vec![leaf.clone(), Tree { children: vec![leaf.clone()], ..leaf.clone() }],
    };
    let server = shape(server, "recursive", tree.clone());
    let server = shape(server, "recursive_inside", Forest { trees: vec![tree, leaf], best: None });
    shape(server, "unit_members", UnitMembers { unit: (), empty: Empty {}, marker: Marker })
}

fn collections(server: Builder) -> Builder {
    let numbers = Numbers {
        byte: u8::MAX,
        signed: i64::MIN,
        large: u64::MAX,
        size: usize::MAX,
        real: 0.1,
        whole: 3.0,
        letter: 'ß',
    };
    let server = shape(server, "numbers", numbers);
    let server = shape(server, "bytes", Bytes { data: vec![0, 127, 255], fixed: [1, 2, 3, 4] });
    let maps = Maps {
        counts: HashMap::from([("a".to_owned(), 1), ("b".to_owned(), u64::MAX)]),
        by_id: BTreeMap::from([(1, "one".to_owned()), (20, "twenty".to_owned())]),
        optional: BTreeMap::from([("none".to_owned(), None), ("some".to_owned(), Some(1))]),
        by_kind: BTreeMap::from([(Kind::Small, Some(Kind::VeryLarge))]),
    };
    let server = shape(server, "maps", maps);
    let tuples = Tuples {
        pair: ("a".into(), Some(1)),
        empty: ("b".into(), None),
        list: vec![(0.5, 1.5)],
        wrapped: Pair(1, None),
    };
    let server = shape(server, "tuples", tuples);
    let dates = Dates {
        at: DateTime("2026-07-28T09:30:00.123456789Z".into()),
        local: DateTime("2024-02-29T23:59:59+05:30".into()),
        day: Date("2026-07-28".into()),
        ends: None,
    };
    let server = shape(server, "dates", dates);
    let server =
        shape(server, "addresses", Addresses { ip: Ipv4Addr::LOCALHOST.into(), v4: Ipv4Addr::LOCALHOST });
    // Not an object, so that only the newest protocol version announces their schemas.
    let server = shape(server, "root_list", vec![Some(1), None]);
    let server =
        shape(server, "root_map", BTreeMap::from([("a".to_owned(), None), ("b".to_owned(), Some(1_u32))]));
    let server = shape(server, "root_option_present", Some(Inner { depth: None }));
    let server = shape(server, "root_option_absent", None::<Inner>);
    shape(server, "root_text", "text".to_owned())
}

fn enums(server: Builder) -> Builder {
    let server =
        shape(server, "kinds", Kinds { kind: Kind::VeryLarge, other: None, many: vec![Kind::Small] });
    let server = shape(server, "external_unit", Held { event: External::Stopped });
    let server = shape(server, "external_newtype", Held { event: External::Moved(Inner { depth: None }) });
    let server = shape(server, "external_tuple", Held { event: External::Scaled(1, None) });
    let server = shape(
        server,
        "external_struct",
        Held { event: External::Renamed { old_name: None, new_name: "b".into() } },
    );
    let server = shape(
        server,
        "external_root",
        External::Renamed { old_name: Some("a".into()), new_name: "b".into() },
    );
    let server = shape(server, "internal_unit", Held { event: Internal::Stopped });
    let server = shape(server, "internal_newtype", Held { event: Internal::Moved(Inner { depth: None }) });
    let server = shape(server, "internal_struct", Held { event: Internal::Renamed { from: None } });
    let server = shape(server, "internal_root", Internal::Renamed { from: Some("a".into()) });
    let server = shape(server, "adjacent_unit", Held { event: Adjacent::Stopped });
    let server = shape(server, "adjacent_newtype", Held { event: Adjacent::Moved(None) });
    let server = shape(server, "adjacent_struct", Held { event: Adjacent::Renamed { from: None } });
    let server = shape(server, "adjacent_root", Adjacent::Moved(Some(1)));
    let server = shape(server, "untagged_unit", Held { event: Untagged::Nothing });
    let server = shape(server, "untagged_number", Held { event: Untagged::Number(1) });
    let server = shape(server, "untagged_text", Held { event: Untagged::Text("1".into()) });
    let server = shape(server, "untagged_struct", Held { event: Untagged::Fields { depth: None } });
    let server = shape(
        server,
        "flattened_enum",
        FlattenedEnum { id: 1, event: Internal::Moved(Inner { depth: None }) },
    );
    shape(server, "result_shape", Held { event: Some(Ok::<u8, String>(1)) })
}

fn shape<T>(server: Builder, name: &str, value: T) -> Builder
where
    T: Serialize + JsonSchema + Clone + Send + Sync + 'static,
{
    server.add_tool(ToolSpec::new(name, move || std::future::ready(Json(value.clone()))).read_only()).done()
}

#[derive(Clone, Default, Serialize, JsonSchema)]
struct Options {
    name: Option<String>,
    count: Option<u64>,
    inner: Option<Inner>,
    nested: Option<Option<u8>>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Inner {
    depth: Option<u32>,
}

#[derive(Clone, Default, Serialize, JsonSchema)]
#[serde(default)]
struct Defaulted {
    name: Option<String>,
    count: u64,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase", deserialize = "SCREAMING_SNAKE_CASE"))]
struct Renamed {
    user_name: String,
    mail_box: Option<String>,
}

#[derive(Clone, Default, Serialize, JsonSchema)]
struct Skipped {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_deserializing)]
    always: Option<u8>,
    #[serde(skip_serializing)]
    #[allow(dead_code)]
    secret: String,
    #[serde(skip)]
    #[allow(dead_code)]
    cache: u64,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Flattened {
    id: u32,
    #[serde(flatten)]
    inner: Inner,
    #[serde(flatten)]
    rest: BTreeMap<String, u32>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct FlattenedOption {
    id: u32,
    #[serde(flatten)]
    inner: Option<Inner>,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Closed {
    id: u32,
    label: Option<String>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Tree {
    label: String,
    parent_id: Option<u64>,
    left: Option<Box<Tree>>,
    children: Vec<Tree>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Forest {
    trees: Vec<Tree>,
    best: Option<Tree>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct UnitMembers {
    unit: (),
    empty: Empty,
    marker: Marker,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Empty {}

#[derive(Clone, Serialize, JsonSchema)]
struct Marker;

#[derive(Clone, Serialize, JsonSchema)]
struct Numbers {
    byte: u8,
    signed: i64,
    large: u64,
    size: usize,
    real: f64,
    whole: f32,
    letter: char,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Bytes {
    data: Vec<u8>,
    fixed: [u8; 4],
}

#[derive(Clone, Serialize, JsonSchema)]
struct Maps {
    counts: HashMap<String, u64>,
    by_id: BTreeMap<u32, String>,
    optional: BTreeMap<String, Option<u8>>,
    by_kind: BTreeMap<Kind, Option<Kind>>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Tuples {
    pair: (String, Option<u8>),
    empty: (String, Option<u8>),
    list: Vec<(f64, f64)>,
    wrapped: Pair,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Pair(u8, Option<u8>);

/// A date and a time, with the format that `chrono` and `jiff` announce.
#[derive(Clone, Serialize, JsonSchema)]
struct DateTime(#[schemars(extend("format" = "date-time"))] String);

/// A date.
#[derive(Clone, Serialize, JsonSchema)]
struct Date(#[schemars(extend("format" = "date"))] String);

#[derive(Clone, Serialize, JsonSchema)]
struct Dates {
    at: DateTime,
    local: DateTime,
    day: Date,
    ends: Option<DateTime>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Addresses {
    ip: IpAddr,
    v4: Ipv4Addr,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all(serialize = "kebab-case"))]
enum Kind {
    Small,
    VeryLarge,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Kinds {
    kind: Kind,
    other: Option<Kind>,
    many: Vec<Kind>,
}

/// An object with an enum, because only objects are announced in every protocol version.
#[derive(Clone, Serialize, JsonSchema)]
struct Held<T> {
    event: T,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename_all_fields(serialize = "camelCase"))]
enum External {
    Stopped,
    Moved(Inner),
    Scaled(u8, Option<u8>),
    Renamed { old_name: Option<String>, new_name: String },
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all(serialize = "snake_case"))]
enum Internal {
    Stopped,
    Moved(Inner),
    Renamed { from: Option<String> },
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Adjacent {
    Stopped,
    Moved(Option<u8>),
    Renamed { from: Option<String> },
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Nothing,
    Number(u64),
    Text(String),
    Fields { depth: Option<u8> },
}

#[derive(Clone, Serialize, JsonSchema)]
struct FlattenedEnum {
    id: u32,
    #[serde(flatten)]
    event: Internal,
}
