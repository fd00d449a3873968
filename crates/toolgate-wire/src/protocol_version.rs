//! The five revisions of the protocol, and every way in which they behave differently, as one table.
//!
//! This is the only file in which a revision's date stands. Outside this crate nobody asks "which edition
//! is it"; they ask for a fact: `edition.facts().asking`. A new revision is one more variant and one more
//! row here, plus the `since` calls in the writers that the compiler or the schema tests ask for.

/// One revision of the protocol, named by its date. Later editions compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// How a client says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Once, in `initialize`; the server remembers it.
    Handshake,
    /// In the `_meta` of every request; the server remembers nothing.
    Stateless,
}

/// How a cut SSE stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumability {
    /// It does not: the client asks again.
    Never,
    /// By a GET with `Last-Event-ID`.
    Replay,
    /// As `Replay`; the server may also end the connection on purpose, after a first event that carries
    /// only an id and a reconnection time.
    Polling,
}

/// How a server asks its client something in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequestMode {
    /// By a request of its own on the open stream.
    Reverse,
    /// By ending the call with `input_required`; the client calls again with the answers.
    Retry,
}

/// How change notices reach a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDelivery {
    /// On the session's standing stream.
    Session,
    /// On `subscriptions/listen` streams that the client opens, filtered and tagged.
    Listen,
}

/// Which questions for the user the client can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElicitationSupport {
    /// None.
    Never,
    /// Forms of single values, one choice per field.
    Form,
    /// Forms with titled and multiple choices, and links to open.
    FormAndUrl,
}

/// What may stand in `structuredContent` and, alike, at the root of an `outputSchema`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StructuredContent {
    /// The field does not exist.
    Never,
    /// An object.
    Object,
    /// Any JSON.
    Any,
}

/// How long-running work is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TasksMode {
    /// Not at all.
    Never,
    /// Asked for by the client, part of the core.
    Core,
    /// Decided by the server, as an extension that the client declares.
    Extension,
}

/// Who chooses the level of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevelScope {
    /// `logging/setLevel`, for the session.
    Session,
    /// Each request for itself; silence without it.
    Request,
}

/// What one edition does, where editions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behavior {
    /// How a client says who it is.
    pub lifecycle: Lifecycle,
    /// Whether a message may be an array of messages.
    pub batches: bool,
    /// Whether HTTP requests name the edition in `MCP-Protocol-Version`.
    pub version_header: bool,
    /// Whether HTTP requests mirror method, name and marked arguments in headers.
    pub mirror_headers: bool,
    /// Whether the client's leaving an HTTP call ends the call.
    pub disconnect_cancels: bool,
    /// How a cut stream goes on.
    pub resumability: Resumability,
    /// How the server asks the client.
    pub server_requests: ServerRequestMode,
    /// How change notices reach the client.
    pub change_delivery: ChangeDelivery,
    /// Which questions for the user exist.
    pub elicitation: ElicitationSupport,
    /// What structured output may be.
    pub structured_content: StructuredContent,
    /// How long work is handled.
    pub tasks: TasksMode,
    /// Whether results carry `resultType`, and cacheable ones `ttlMs` and `cacheScope`.
    pub result_type: bool,
    /// Who chooses the log level.
    pub log_level_scope: LogLevelScope,
    /// Whether either side may `ping`.
    pub ping: bool,
    /// Whether an error's HTTP status follows its kind. Where not, an answered request is a 200.
    pub error_status: bool,
    /// Whether an error without a readable id may leave the id out.
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

/// The table. Each row says what it changes of the one before.
static BEHAVIORS: [Behavior; 5] = {
    let e2024_11_05 = FIRST_BEHAVIOR;
    let e2025_03_26 = Behavior { batches: true, resumability: Resumability::Replay, ..e2024_11_05 };
    let e2025_06_18 = Behavior {
        batches: false,
        version_header: true,
        elicitation: ElicitationSupport::Form,
        structured_content: StructuredContent::Object,
        ..e2025_03_26
    };
    let e2025_11_25 = Behavior {
        resumability: Resumability::Polling,
        elicitation: ElicitationSupport::FormAndUrl,
        tasks: TasksMode::Core,
        error_id_optional: true,
        ..e2025_06_18
    };
    let e2026_07_28 = Behavior {
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
        ..e2025_11_25
    };
    [e2024_11_05, e2025_03_26, e2025_06_18, e2025_11_25, e2026_07_28]
};

impl ProtocolVersion {
    /// Every edition, oldest first.
    pub const ALL: [ProtocolVersion; 5] = [
        ProtocolVersion::V2024_11_05,
        ProtocolVersion::V2025_03_26,
        ProtocolVersion::V2025_06_18,
        ProtocolVersion::V2025_11_25,
        ProtocolVersion::V2026_07_28,
    ];

    /// The newest edition.
    pub const LATEST: ProtocolVersion = ProtocolVersion::V2026_07_28;

    /// The newest edition that a handshake can end in.
    pub const LATEST_WITH_HANDSHAKE: ProtocolVersion = ProtocolVersion::V2025_11_25;

    /// What an HTTP client speaks that names no edition and has no session.
    pub const FALLBACK: ProtocolVersion = ProtocolVersion::V2025_03_26;

    /// The date that names this edition on the wire.
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

    /// The edition with this date. An unknown date, even a later one, is none of ours.
    #[must_use]
    pub fn parse(date: &str) -> Option<ProtocolVersion> {
        // The newest first: most say that one.
        ProtocolVersion::ALL.into_iter().rev().find(|version| version.as_str() == date)
    }

    /// What this edition does.
    #[must_use]
    pub fn behavior(self) -> &'static Behavior {
        &BEHAVIORS[self as usize]
    }

    /// Whether clients of this edition shake hands first.
    #[must_use]
    pub fn has_handshake(self) -> bool {
        self.behavior().lifecycle == Lifecycle::Handshake
    }

    /// What a handshake ends in when the client asks for `asked`: the same if it can be had, else the
    /// newest we could speak.
    #[must_use]
    pub fn negotiate(asked: &str) -> ProtocolVersion {
        ProtocolVersion::parse(asked)
            .filter(|version| version.has_handshake())
            .unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE)
    }

    /// The dates of all editions, newest first: what a refusal and a discovery list.
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
