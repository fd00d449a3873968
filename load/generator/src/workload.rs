//! The requests of each workload as bytes, and the text that a valid response contains.

use memchr::memmem;

use crate::server::Endpoint;
use crate::text;

/// The protocol version of a workload, and whether it has sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// 2025-11-25 without a session.
    Legacy,
    /// 2025-11-25 in a session that `initialize` opened.
    Session,
    /// 2026-07-28: no handshake; every request has its headers and `_meta`.
    Modern,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Echo,
    /// An echo of 64 KiB in which no character has to be escaped.
    Big,
    /// An echo of 64 KiB of Markdown.
    BigText,
    List,
    Ping,
    /// If the server opens a session, the request that deletes it is part of the measure, because no server can hold
    /// 100,000 sessions.
    Initialize,
    Discover,
}

/// One kind of request in one protocol version.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) protocol: Protocol,
}

impl Workload {
    pub(crate) const START: Self = Self { kind: Kind::Initialize, protocol: Protocol::Legacy };

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (kind, version) = name.split_once("-20")?;
        let kind = match kind {
            "echo" => Kind::Echo,
            "big" => Kind::Big,
            "big-text" => Kind::BigText,
            "list" => Kind::List,
            "ping" => Kind::Ping,
            "initialize" => Kind::Initialize,
            "discover" => Kind::Discover,
            _ => return None,
        };
        let protocol = match (version, kind) {
            ("25" | "25-session", Kind::Discover) | ("26", Kind::Ping | Kind::Initialize) => return None,
            ("25", _) => Protocol::Legacy,
            ("25-session", _) => Protocol::Session,
            ("26", _) => Protocol::Modern,
            _ => return None,
        };
        Some(Self { kind, protocol })
    }

    /// Prepares the request of one connection. Each connection sends a different message, so that swapped responses are
    /// noticed.
    pub(crate) fn prepare(
        self,
        endpoint: &Endpoint,
        session: Option<&str>,
        number: usize,
    ) -> PreparedRequest {
        let message = self.message(number);
        let (method, params) = match self.kind {
            Kind::Echo | Kind::Big | Kind::BigText => {
                ("tools/call", format!(r#""name":"echo","arguments":{{"message":"{message}"}}"#))
            }
            Kind::List => ("tools/list", String::new()),
            Kind::Ping => ("ping", String::new()),
            Kind::Initialize => ("initialize", CLIENT.to_owned()),
            Kind::Discover => ("server/discover", String::new()),
        };
        let name = matches!(self.kind, Kind::Echo | Kind::Big | Kind::BigText).then_some("echo");
        let body = request(self.protocol, method, &params, number + 1);
        let head = match self.kind {
            Kind::Initialize => post_head(endpoint, None, None, None),
            _ => post_head(endpoint, Some(self.protocol), session, Some((method, name))),
        };
        let n_tools = (self.kind == Kind::List).then_some(52);
        PreparedRequest {
            bytes: with_body(&head, &body),
            markers: self.markers(message, number + 1),
            n_tools,
        }
    }

    /// The message to echo, escaped for JSON.
    fn message(self, number: usize) -> String {
        match self.kind {
            Kind::BigText => text::escape(&text::markdown(number)),
            Kind::Big => {
                let unit = format!("connection {number} has sixty-four KiB to say, ");
                unit.repeat(65_536 / unit.len() + 1)[..65_536].to_owned()
            }
            _ => format!("hello from connection {number}!"),
        }
    }

    fn markers(self, message: String, id: usize) -> Vec<String> {
        match self.kind {
            Kind::Echo | Kind::Big | Kind::BigText => vec![message],
            Kind::List => ["\"echo\"", "\"add\"", "\"dummy_1\"", "\"dummy_50\""].map(str::to_owned).into(),
            Kind::Ping => vec!["\"result\"".to_owned(), id.to_string()],
            Kind::Initialize => vec!["serverInfo".to_owned()],
            Kind::Discover => vec!["supportedVersions".to_owned()],
        }
    }
}

const CLIENT: &str =
    r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1.0.0"}"#;
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The bytes of a request, and the text that its response must contain.
pub(crate) struct PreparedRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) markers: Vec<String>,
    /// The number of tools in the response, if it is a list.
    n_tools: Option<usize>,
}

impl PreparedRequest {
    /// Whether `body` is a valid response to this request.
    pub(crate) fn accepts(&self, body: &[u8]) -> bool {
        let has_all = self.markers.iter().all(|marker| contains(body, marker.as_bytes()));
        has_all
            && self.n_tools.is_none_or(|n_tools| memmem::find_iter(body, "inputSchema").count() == n_tools)
    }

    /// The request `subscriptions/listen`, whose response is a stream.
    pub(crate) fn listen(endpoint: &Endpoint, id: usize) -> Vec<u8> {
        let method = "subscriptions/listen";
        let body = request(Protocol::Modern, method, r#""notifications":{"toolsListChanged":true}"#, id);
        with_body(&post_head(endpoint, Some(Protocol::Modern), None, Some((method, None))), &body)
    }

    /// The notification that ends the handshake.
    pub(crate) fn initialized(endpoint: &Endpoint, session: Option<&str>) -> Vec<u8> {
        let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        with_body(&post_head(endpoint, Some(Protocol::Session), session, None), body)
    }

    /// The request that deletes a session.
    pub(crate) fn delete_session(endpoint: &Endpoint, session: &str) -> Vec<u8> {
        let Endpoint { address, path } = endpoint;
        format!(
            "DELETE {path} HTTP/1.1\r\nHost: {address}\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n"
        )
        .into_bytes()
    }

    /// The request that opens the event stream of a session.
    pub(crate) fn open_stream(endpoint: &Endpoint, session: &str) -> Vec<u8> {
        let Endpoint { address, path } = endpoint;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n"
        )
        .into_bytes()
    }
}

/// The JSON of one request. `params` are its members without braces and without `_meta`.
pub(crate) fn request(protocol: Protocol, method: &str, params: &str, id: usize) -> String {
    let params = match (protocol, params) {
        (Protocol::Modern, "") => format!(r#","params":{{{META}}}"#),
        (Protocol::Modern, params) => format!(r#","params":{{{META},{params}}}"#),
        (_, "") => String::new(),
        (_, params) => format!(r#","params":{{{params}}}"#),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#)
}

/// The head of a POST without `Content-Length`. `named` is the method and the tool name, which a modern request repeats
/// in headers.
fn post_head(
    endpoint: &Endpoint,
    protocol: Option<Protocol>,
    session: Option<&str>,
    named: Option<(&str, Option<&str>)>,
) -> String {
    let Endpoint { address, path } = endpoint;
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    );
    match (protocol, named) {
        (Some(Protocol::Modern), Some((method, name))) => {
            head += &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n");
            head += &name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        }
        (Some(_), _) => head += "MCP-Protocol-Version: 2025-11-25\r\n",
        (None, _) => {}
    }
    head + &session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default()
}

fn with_body(head: &str, body: &str) -> Vec<u8> {
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Whether `body` contains the marker. A long marker is found by its beginning: preparing a search for 64 KiB would cost
/// the generator more than the server spends on the response.
fn contains(body: &[u8], marker: &[u8]) -> bool {
    let beginning = &marker[..marker.len().min(48)];
    memmem::find(body, beginning).is_some_and(|start| body[start..].starts_with(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(name: &str) -> PreparedRequest {
        let endpoint = Endpoint { address: ([127, 0, 0, 1], 80).into(), path: "/mcp".to_owned() };
        Workload::parse(name).unwrap().prepare(&endpoint, None, 7)
    }

    #[test]
    fn responses_are_distinguished() {
        let echo = prepare("echo-2026");
        assert!(echo.accepts(br#"{"text":"hello from connection 7!"}"#));
        assert!(!echo.accepts(br#"{"text":"hello from connection 8!"}"#));
        let tools = |n_tools| (1..=n_tools).map(|n| format!(r#"{{"name":"dummy_{n}","inputSchema":{{}}}}"#));
        let list = |n_tools| tools(n_tools).collect::<String>() + r#""echo" inputSchema "add" inputSchema"#;
        assert!(prepare("list-2025").accepts(list(50).as_bytes()));
        assert!(!prepare("list-2025").accepts(list(51).as_bytes()));
        let text = prepare("big-text-2026");
        assert!(text.bytes.len() > 64 * 1024 && text.accepts(&text.bytes));
        assert!(!text.accepts(&prepare("big-2026").bytes));
    }

    #[test]
    fn requests_that_a_version_does_not_have_are_unknown() {
        for name in
            ["ping-2026", "initialize-2026", "discover-2025", "discover-2025-session", "echo", "big-text"]
        {
            assert!(Workload::parse(name).is_none(), "{name}");
        }
    }
}
