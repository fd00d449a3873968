//! Protocol versions, and every way in which their behavior differs, as one table.
//!
//! This is the only file that contains a version's date. Code outside this crate does not compare versions; it asks for a
//! behavior, such as `version.behavior().server_requests`. A new protocol version is one more variant and one more row
//! here, plus the `since` calls in the writers that the compiler or the schema tests ask for.

/// A version of the protocol, named by its date. Later versions compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// How a client states its version, capabilities and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Once, in `initialize`; the server keeps them for the session.
    Handshake,
    /// In the `_meta` of every request; the server keeps nothing.
    Stateless,
}

/// How an interrupted SSE stream is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumability {
    /// Not at all: the client repeats the request.
    Never,
    /// By a GET with `Last-Event-ID`.
    Replay,
    /// Like `Replay`. The server may also close the connection deliberately, after a first event that carries only an
    /// id and a reconnection time.
    Polling,
}

/// How a server sends a request to its client during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequestMode {
    /// As a JSON-RPC request on the open stream.
    Reverse,
    /// By ending the call with `input_required`; the client repeats the call with the responses.
    Retry,
}

/// How change notifications reach a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDelivery {
    /// On the GET stream of the session.
    Session,
    /// On `subscriptions/listen` streams that the client opens, filtered and tagged with the subscription id.
    Listen,
}

/// Which elicitation modes exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElicitationSupport {
    /// No elicitation.
    Never,
    /// Forms of primitive values, with single-choice fields.
    Form,
    /// Forms with titled and multiple choices, and URLs.
    FormAndUrl,
}

/// Which values `structuredContent`, and the root of an `outputSchema`, may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StructuredContent {
    /// The field does not exist.
    Never,
    /// Objects only.
    Object,
    /// Any JSON value.
    Any,
}

/// How long-running calls are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TasksMode {
    /// There are no tasks.
    Never,
    /// The client requests a task; tasks are part of the core protocol.
    Core,
    /// The server decides to create a task; tasks are an extension that the client declares.
    Extension,
}

/// Where the level of log messages is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevelScope {
    /// By `logging/setLevel`, for the session.
    Session,
    /// In each request; without it no log messages are sent.
    Request,
}

/// The behavior of a protocol version, where versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behavior {
    /// How a client states its version, capabilities and name.
    pub lifecycle: Lifecycle,
    /// Whether a message may be a batch.
    pub batches: bool,
    /// Whether HTTP requests carry the `MCP-Protocol-Version` header.
    pub version_header: bool,
    /// Whether HTTP requests repeat the method, the name and marked arguments in headers.
    pub mirror_headers: bool,
    /// Whether closing the HTTP connection cancels the call.
    pub disconnect_cancels: bool,
    /// How an interrupted stream is resumed.
    pub resumability: Resumability,
    /// How the server sends requests to the client.
    pub server_requests: ServerRequestMode,
    /// How change notifications reach the client.
    pub change_delivery: ChangeDelivery,
    /// Which elicitation modes exist.
    pub elicitation: ElicitationSupport,
    /// Which values structured content may have.
    pub structured_content: StructuredContent,
    /// How long-running calls are handled.
    pub tasks: TasksMode,
    /// Whether results carry `resultType`, and cacheable ones `ttlMs` and `cacheScope`.
    pub result_type: bool,
    /// Where the log level is set.
    pub log_level_scope: LogLevelScope,
    /// Whether either side may `ping`.
    pub ping: bool,
    /// Whether the HTTP status of an error follows its kind. If not, a response to a request has status 200.
    pub error_status: bool,
    /// Whether an error response to an unreadable id may omit the id.
    pub error_id_optional: bool,
}

const FIRST_BEHAVIOR: Behavior = Behavior {
    lifecycle: Lifecycle::Handshake,
    batches: false,
    version_header: false,
    mirror_headers: false,
    disconnect_cancels: false,
    resumability: Resumability::Never,
    server_requests: ServerRequestMode::Reverse,
    change_delivery: ChangeDelivery::Session,
    elicitation: ElicitationSupport::Never,
    structured_content: StructuredContent::Never,
    tasks: TasksMode::Never,
    result_type: false,
    log_level_scope: LogLevelScope::Session,
    ping: true,
    error_status: false,
    error_id_optional: false,
};

/// Behavior by version. Each row lists its changes to the previous one.
static BEHAVIORS: [Behavior; 5] = {
    let v2024_11_05 = FIRST_BEHAVIOR;
    let v2025_03_26 = Behavior { batches: true, resumability: Resumability::Replay, ..v2024_11_05 };
    let v2025_06_18 = Behavior {
        batches: false,
        version_header: true,
        elicitation: ElicitationSupport::Form,
        structured_content: StructuredContent::Object,
        ..v2025_03_26
    };
    let v2025_11_25 = Behavior {
        resumability: Resumability::Polling,
        elicitation: ElicitationSupport::FormAndUrl,
        tasks: TasksMode::Core,
        error_id_optional: true,
        ..v2025_06_18
    };
    let v2026_07_28 = Behavior {
        lifecycle: Lifecycle::Stateless,
        mirror_headers: true,
        disconnect_cancels: true,
        resumability: Resumability::Never,
        server_requests: ServerRequestMode::Retry,
        change_delivery: ChangeDelivery::Listen,
        structured_content: StructuredContent::Any,
        tasks: TasksMode::Extension,
        result_type: true,
        log_level_scope: LogLevelScope::Request,
        ping: false,
        error_status: true,
        ..v2025_11_25
    };
    [v2024_11_05, v2025_03_26, v2025_06_18, v2025_11_25, v2026_07_28]
};

impl ProtocolVersion {
    /// All versions, oldest first.
    pub const ALL: [ProtocolVersion; 5] = [
        ProtocolVersion::V2024_11_05,
        ProtocolVersion::V2025_03_26,
        ProtocolVersion::V2025_06_18,
        ProtocolVersion::V2025_11_25,
        ProtocolVersion::V2026_07_28,
    ];

    /// The newest version.
    pub const LATEST: ProtocolVersion = ProtocolVersion::V2026_07_28;

    /// The newest version with a handshake.
    pub const LATEST_WITH_HANDSHAKE: ProtocolVersion = ProtocolVersion::V2025_11_25;

    /// The version of an HTTP client that sends neither a version nor a session id.
    pub const FALLBACK: ProtocolVersion = ProtocolVersion::V2025_03_26;

    /// Returns the date that names this version on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ProtocolVersion::V2024_11_05 => "2024-11-05",
            ProtocolVersion::V2025_03_26 => "2025-03-26",
            ProtocolVersion::V2025_06_18 => "2025-06-18",
            ProtocolVersion::V2025_11_25 => "2025-11-25",
            ProtocolVersion::V2026_07_28 => "2026-07-28",
        }
    }

    /// Parses a version's date. Returns `None` for an unknown date, even a later one.
    #[must_use]
    pub fn parse(date: &str) -> Option<ProtocolVersion> {
        // Newest first, since most clients use it.
        ProtocolVersion::ALL.into_iter().rev().find(|version| version.as_str() == date)
    }

    /// Returns the behavior of this version.
    #[must_use]
    pub fn behavior(self) -> &'static Behavior {
        &BEHAVIORS[self as usize]
    }

    /// Returns whether clients of this version send `initialize` first.
    #[must_use]
    pub fn has_handshake(self) -> bool {
        self.behavior().lifecycle == Lifecycle::Handshake
    }

    /// Returns the version to answer `initialize` with: the requested one if it is supported and has a handshake, else
    /// the newest that has one.
    #[must_use]
    pub fn negotiate(requested: &str) -> ProtocolVersion {
        ProtocolVersion::parse(requested)
            .filter(|version| version.has_handshake())
            .unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE)
    }

    /// Returns the dates of all versions, newest first, as errors and discovery list them.
    pub fn supported() -> impl Iterator<Item = &'static str> {
        ProtocolVersion::ALL.into_iter().rev().map(ProtocolVersion::as_str)
    }
}

impl std::fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_back_and_are_in_order() {
        for version in ProtocolVersion::ALL {
            assert_eq!(ProtocolVersion::parse(version.as_str()), Some(version));
        }
        assert!(ProtocolVersion::ALL.is_sorted());
        assert_eq!(ProtocolVersion::parse("2031-01-01"), None);
    }

    #[test]
    fn a_handshake_never_ends_in_a_version_without_one() {
        assert_eq!(ProtocolVersion::negotiate("2025-03-26"), ProtocolVersion::V2025_03_26);
        assert_eq!(ProtocolVersion::negotiate("2026-07-28"), ProtocolVersion::V2025_11_25);
        assert_eq!(ProtocolVersion::negotiate("1999-01-01"), ProtocolVersion::V2025_11_25);
    }

    #[test]
    fn only_one_version_has_batches() {
        let with: Vec<_> =
            ProtocolVersion::ALL.into_iter().filter(|version| version.behavior().batches).collect();
        assert_eq!(with, [ProtocolVersion::V2025_03_26]);
    }
}
