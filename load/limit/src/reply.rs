//! From the bytes of a request to the bytes of its reply, with as little work as serde_json allows.

use std::borrow::Cow;
use std::io::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

const SERVER_INFO_MEMBER: &str = r#""io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}"#;

/// How the bytes of a reply are sent.
#[derive(Clone, Copy)]
pub(crate) enum ReplyKind {
    Result,
    /// A result that opens a session.
    Session,
    Stream,
    NoContent,
    Rejected,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
}

/// The results that never change.
pub(crate) struct StaticReplies {
    legacy: Vec<u8>,
    modern: Vec<u8>,
    /// The kind of the reply to `initialize`.
    initialize_reply: ReplyKind,
}

impl StaticReplies {
    pub(crate) fn new() -> Self {
        let tools = tools();
        let server = format!(r#""_meta":{{{SERVER_INFO_MEMBER}}}"#);
        Self {
            legacy: format!(r#"{{"tools":[{tools}]}}"#).into_bytes(),
            modern: format!(
                r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"public",{server},"tools":[{tools}]}}"#
            )
            .into_bytes(),
            initialize_reply: ReplyKind::Session,
        }
    }

    /// Replies of a server without sessions.
    pub(crate) fn stateless() -> Self {
        Self { initialize_reply: ReplyKind::Result, ..Self::new() }
    }

    pub(crate) fn reply(&self, request: &[u8], out: &mut Vec<u8>) -> ReplyKind {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(request) else {
            return ReplyKind::Rejected;
        };
        let (Some(id), "2.0") = (envelope.id, &*envelope.jsonrpc) else {
            return ReplyKind::NoContent;
        };
        let modern = envelope.params.as_ref().and_then(|params| params.meta.as_ref());
        let modern = modern.is_some_and(|meta| meta.version.as_deref() == Some("2026-07-28"));
        match (&*envelope.method, modern) {
            ("tools/call", _) => return write_call(id, &envelope, modern, out),
            ("tools/list", false) => write_result(id, &self.legacy, out),
            ("tools/list", true) => write_result(id, &self.modern, out),
            ("ping", _) => write_result(id, b"{}", out),
            ("initialize", _) => {
                write_result(id, INITIALIZE_RESULT, out);
                return self.initialize_reply;
            }
            ("server/discover", _) => write_result(id, DISCOVER_RESULT, out),
            ("subscriptions/listen", _) => {
                write_listen(id, out);
                return ReplyKind::Stream;
            }
            _ => return ReplyKind::Rejected,
        }
        ReplyKind::Result
    }
}

const INITIALIZE_RESULT: &[u8] = br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"bench","version":"1.0.0"}}"#;
const DISCOVER_RESULT: &[u8] = br#"{"resultType":"complete","ttlMs":0,"cacheScope":"public","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{},"resources":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}}}"#;

fn write_call(id: &RawValue, envelope: &Envelope<'_>, modern: bool, out: &mut Vec<u8>) -> ReplyKind {
    let params = envelope.params.as_ref();
    let name = params.and_then(|params| params.name.as_deref());
    let arguments = params.and_then(|params| params.arguments.as_ref());
    let (Some("echo"), Some(arguments)) = (name, arguments) else {
        return ReplyKind::Rejected;
    };
    write_head(id, out);
    out.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
    if serde_json::to_writer(&mut *out, &arguments.message).is_err() {
        return ReplyKind::Rejected;
    }
    out.extend_from_slice(b"}]");
    if modern {
        out.extend_from_slice(br#","resultType":"complete","_meta":{"#);
        out.extend_from_slice(SERVER_INFO_MEMBER.as_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(b"}}");
    ReplyKind::Result
}

fn write_head(id: &RawValue, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.get().as_bytes());
    out.extend_from_slice(br#","result":"#);
}

fn write_result(id: &RawValue, body: &[u8], out: &mut Vec<u8>) {
    out.reserve(body.len() + 64);
    write_head(id, out);
    out.extend_from_slice(body);
    out.push(b'}');
}

fn write_listen(id: &RawValue, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        r#"data: {{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":"{}"}},"notifications":{{"toolsListChanged":true}}}}}}"#,
        id.get().trim_matches('"')
    );
    out.extend_from_slice(b"\n\n");
}

/// The 52 tools with the schemas that our server lists, so that both send the same number of bytes.
fn tools() -> String {
    let message = schema(r#""message":{"type":"string","description":"What to say"}"#, r#""message""#);
    let numbers = schema(
        r#""a":{"type":"integer","description":"The first number"},"b":{"type":"integer","description":"The second number"}"#,
        r#""a","b""#,
    );
    let mut tools = vec![tool("echo", "Says it again", &message), tool("add", "Adds two numbers", &numbers)];
    tools.extend((1..=50).map(|number| tool(&format!("dummy_{number}"), "One of many", &message)));
    tools.join(",")
}

fn tool(name: &str, description: &str, schema: &str) -> String {
    format!(r#"{{"name":"{name}","description":"{description}","inputSchema":{schema}}}"#)
}

fn schema(properties: &str, required: &str) -> String {
    format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#)
}
