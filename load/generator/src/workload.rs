//! What is sent, as bytes, and what the answer must contain.

use memchr::memmem;

use crate::server::Endpoint;

/// How requests name their revision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25 without a session.
    Legacy,
    /// 2025-11-25 in a session that `initialize` opened.
    Session,
    /// 2026-07-28: no handshake, but headers and `_meta` in every request.
    Modern,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Echo,
    /// An echo of 64 KiB.
    Big,
    List,
    Ping,
    /// Where the server opens a session, the request that ends it belongs to the measure: no server keeps 100,000.
    Initialize,
    Discover,
}

/// One thing to ask, over and over.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) era: Era,
}

impl Workload {
    pub(crate) const START: Self = Self { kind: Kind::Initialize, era: Era::Legacy };

    pub(crate) fn named(name: &str) -> Option<Self> {
        let (kind, era) = name.split_once('-')?;
        let kind = match kind {
            "echo" => Kind::Echo,
            "big" => Kind::Big,
            "list" => Kind::List,
            "ping" => Kind::Ping,
            "initialize" => Kind::Initialize,
            "discover" => Kind::Discover,
            _ => return None,
        };
        let era = match (era, kind) {
            ("2025", Kind::Discover) | ("2026", Kind::Ping | Kind::Initialize) => return None,
            ("2025", _) => Era::Legacy,
            ("2025-session", Kind::Discover) => return None,
            ("2025-session", _) => Era::Session,
            ("2026", _) => Era::Modern,
            _ => return None,
        };
        Some(Self { kind, era })
    }

    /// The request of one of many connections: each asks for something of its own, so that crossed answers show.
    pub(crate) fn ask(self, endpoint: &Endpoint, session: Option<&str>, number: usize) -> Ask {
        let message = self.message(number);
        let (method, params) = match self.kind {
            Kind::Echo | Kind::Big => {
                ("tools/call", format!(r#""name":"echo","arguments":{{"message":"{message}"}}"#))
            }
            Kind::List => ("tools/list", String::new()),
            Kind::Ping => ("ping", String::new()),
            Kind::Initialize => ("initialize", CLIENT.to_owned()),
            Kind::Discover => ("server/discover", String::new()),
        };
        let name = matches!(self.kind, Kind::Echo | Kind::Big).then_some("echo");
        let body = request(self.era, method, &params, number + 1);
        let head = match self.kind {
            Kind::Initialize => post(endpoint, None, None, None),
            _ => post(endpoint, Some(self.era), session, Some((method, name))),
        };
        let n_tools = (self.kind == Kind::List).then_some(52);
        Ask { bytes: finish(&head, &body), markers: self.markers(message, number + 1), n_tools }
    }

    fn message(self, number: usize) -> String {
        match self.kind {
            Kind::Big => {
                let unit = format!("connection {number} has sixty-four KiB to say, ");
                unit.repeat(65_536 / unit.len() + 1)[..65_536].to_owned()
            }
            _ => format!("hello from connection {number}!"),
        }
    }

    fn markers(self, message: String, id: usize) -> Vec<String> {
        match self.kind {
            Kind::Echo | Kind::Big => vec![message],
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

/// The bytes of a request, and what its answer must contain.
pub(crate) struct Ask {
    pub(crate) bytes: Vec<u8>,
    pub(crate) markers: Vec<String>,
    /// How many tools the answer lists, if it is a list.
    n_tools: Option<usize>,
}

impl Ask {
    /// Whether everything is there that was asked for.
    pub(crate) fn is_answered_by(&self, body: &[u8]) -> bool {
        let has_all = self.markers.iter().all(|marker| holds(body, marker.as_bytes()));
        has_all
            && self.n_tools.is_none_or(|n_tools| memmem::find_iter(body, "inputSchema").count() == n_tools)
    }

    /// `subscriptions/listen`, whose answer is a stream.
    pub(crate) fn listen(endpoint: &Endpoint, id: usize) -> Vec<u8> {
        let method = "subscriptions/listen";
        let body = request(Era::Modern, method, r#""notifications":{"toolsListChanged":true}"#, id);
        finish(&post(endpoint, Some(Era::Modern), None, Some((method, None))), &body)
    }

    /// The notification that ends the handshake.
    pub(crate) fn initialized(endpoint: &Endpoint, session: Option<&str>) -> Vec<u8> {
        let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        finish(&post(endpoint, Some(Era::Session), session, None), body)
    }

    /// Ends a session.
    pub(crate) fn goodbye(endpoint: &Endpoint, session: &str) -> Vec<u8> {
        let Endpoint { address, path } = endpoint;
        format!(
            "DELETE {path} HTTP/1.1\r\nHost: {address}\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n"
        )
        .into_bytes()
    }

    /// Opens the stream of a session.
    pub(crate) fn stream(endpoint: &Endpoint, session: &str) -> Vec<u8> {
        let Endpoint { address, path } = endpoint;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n"
        )
        .into_bytes()
    }
}

/// The JSON of one request. `params` is what stands between the braces, without `_meta`.
pub(crate) fn request(era: Era, method: &str, params: &str, id: usize) -> String {
    let params = match (era, params) {
        (Era::Modern, "") => format!(r#","params":{{{META}}}"#),
        (Era::Modern, params) => format!(r#","params":{{{META},{params}}}"#),
        (_, "") => String::new(),
        (_, params) => format!(r#","params":{{{params}}}"#),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#)
}

/// The head of a POST, without its length. `named` is the method and the name that a modern request repeats.
fn post(
    endpoint: &Endpoint,
    era: Option<Era>,
    session: Option<&str>,
    named: Option<(&str, Option<&str>)>,
) -> String {
    let Endpoint { address, path } = endpoint;
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    );
    match (era, named) {
        (Some(Era::Modern), Some((method, name))) => {
            head += &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n");
            head += &name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        }
        (Some(_), _) => head += "MCP-Protocol-Version: 2025-11-25\r\n",
        (None, _) => {}
    }
    head + &session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default()
}

fn finish(head: &str, body: &str) -> Vec<u8> {
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Whether the marker is there. A long one is found by its beginning: preparing a search for 64 KiB would cost the
/// generator more than the server spends on the answer.
fn holds(body: &[u8], marker: &[u8]) -> bool {
    let beginning = &marker[..marker.len().min(48)];
    memmem::find(body, beginning).is_some_and(|start| body[start..].starts_with(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str) -> Ask {
        let endpoint = Endpoint { address: ([127, 0, 0, 1], 80).into(), path: "/mcp".to_owned() };
        Workload::named(name).unwrap().ask(&endpoint, None, 7)
    }

    #[test]
    fn answers_are_told_apart() {
        let echo = ask("echo-2026");
        assert!(echo.is_answered_by(br#"{"text":"hello from connection 7!"}"#));
        assert!(!echo.is_answered_by(br#"{"text":"hello from connection 8!"}"#));
        let tools = |n_tools| (1..=n_tools).map(|n| format!(r#"{{"name":"dummy_{n}","inputSchema":{{}}}}"#));
        let list = |n_tools| tools(n_tools).collect::<String>() + r#""echo" inputSchema "add" inputSchema"#;
        assert!(ask("list-2025").is_answered_by(list(50).as_bytes()));
        assert!(!ask("list-2025").is_answered_by(list(51).as_bytes()));
    }

    #[test]
    fn only_what_exists_has_a_name() {
        for name in ["ping-2026", "initialize-2026", "discover-2025", "discover-2025-session", "echo"] {
            assert!(Workload::named(name).is_none(), "{name}");
        }
    }
}
