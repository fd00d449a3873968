//! The five revisions of the protocol, and every way in which they behave differently, as one table.
//!
//! This is the only file in which a revision's date stands. Outside this crate nobody asks "which edition
//! is it"; they ask for a fact: `edition.facts().asking`. A new revision is one more variant and one more
//! row here, plus the `since` calls in the writers that the compiler or the schema tests ask for.

/// One revision of the protocol, named by its date. Later editions compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Edition {
    E2024_11_05,
    E2025_03_26,
    E2025_06_18,
    E2025_11_25,
    E2026_07_28,
}

/// How a client says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// Once, in `initialize`; the server remembers it.
    Handshake,
    /// In the `_meta` of every request; the server remembers nothing.
    Each,
}

/// How a cut SSE stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
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
pub enum Asking {
    /// By a request of its own on the open stream.
    Reverse,
    /// By ending the call with `input_required`; the client calls again with the answers.
    Retry,
}

/// How change notices reach a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeding {
    /// On the session's standing stream.
    Session,
    /// On `subscriptions/listen` streams that the client opens, filtered and tagged.
    Listen,
}

/// Which questions for the user the client can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elicitation {
    /// None.
    Never,
    /// Forms of single values, one choice per field.
    Form,
    /// Forms with titled and multiple choices, and links to open.
    FormAndUrl,
}

/// What may stand in `structuredContent` and, alike, at the root of an `outputSchema`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structured {
    /// The field does not exist.
    Never,
    /// An object.
    Object,
    /// Any JSON.
    Any,
}

/// How long-running work is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// Not at all.
    Never,
    /// Asked for by the client, part of the core.
    Core,
    /// Decided by the server, as an extension that the client declares.
    Extension,
}

/// Who chooses the level of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevels {
    /// `logging/setLevel`, for the session.
    Session,
    /// Each request for itself; silence without it.
    Request,
}

/// What one edition does, where editions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// How a client says who it is.
    pub greeting: Greeting,
    /// Whether a message may be an array of messages.
    pub batches: bool,
    /// Whether HTTP requests name the edition in `MCP-Protocol-Version`.
    pub version_header: bool,
    /// Whether HTTP requests mirror method, name and marked arguments in headers.
    pub mirror_headers: bool,
    /// Whether the client's leaving an HTTP call ends the call.
    pub leaving_cancels: bool,
    /// How a cut stream goes on.
    pub resume: Resume,
    /// How the server asks the client.
    pub asking: Asking,
    /// How change notices reach the client.
    pub feeding: Feeding,
    /// Which questions for the user exist.
    pub elicitation: Elicitation,
    /// What structured output may be.
    pub structured: Structured,
    /// How long work is handled.
    pub tasks: Tasks,
    /// Whether results carry `resultType`, and cacheable ones `ttlMs` and `cacheScope`.
    pub result_type: bool,
    /// Who chooses the log level.
    pub log_levels: LogLevels,
    /// Whether either side may `ping`.
    pub ping: bool,
    /// Whether an error's HTTP status follows its kind. Where not, an answered request is a 200.
    pub error_status: bool,
    /// Whether an error without a readable id may leave the id out.
    pub id_optional: bool,
}

const HANDSHAKE: Facts = Facts {
    greeting: Greeting::Handshake,
    batches: false,
    version_header: false,
    mirror_headers: false,
    leaving_cancels: false,
    resume: Resume::Never,
    asking: Asking::Reverse,
    feeding: Feeding::Session,
    elicitation: Elicitation::Never,
    structured: Structured::Never,
    tasks: Tasks::Never,
    result_type: false,
    log_levels: LogLevels::Session,
    ping: true,
    error_status: false,
    id_optional: false,
};

/// The table. Each row says what it changes of the one before.
static FACTS: [Facts; 5] = {
    let e2024_11_05 = HANDSHAKE;
    let e2025_03_26 = Facts { batches: true, resume: Resume::Replay, ..e2024_11_05 };
    let e2025_06_18 = Facts {
        batches: false,
        version_header: true,
        elicitation: Elicitation::Form,
        structured: Structured::Object,
        ..e2025_03_26
    };
    let e2025_11_25 = Facts {
        resume: Resume::Polling,
        elicitation: Elicitation::FormAndUrl,
        tasks: Tasks::Core,
        id_optional: true,
        ..e2025_06_18
    };
    let e2026_07_28 = Facts {
        greeting: Greeting::Each,
        mirror_headers: true,
        leaving_cancels: true,
        resume: Resume::Never,
        asking: Asking::Retry,
        feeding: Feeding::Listen,
        structured: Structured::Any,
        tasks: Tasks::Extension,
        result_type: true,
        log_levels: LogLevels::Request,
        ping: false,
        error_status: true,
        ..e2025_11_25
    };
    [e2024_11_05, e2025_03_26, e2025_06_18, e2025_11_25, e2026_07_28]
};

impl Edition {
    /// Every edition, oldest first.
    pub const ALL: [Edition; 5] = [
        Edition::E2024_11_05,
        Edition::E2025_03_26,
        Edition::E2025_06_18,
        Edition::E2025_11_25,
        Edition::E2026_07_28,
    ];

    /// The newest edition.
    pub const NEWEST: Edition = Edition::E2026_07_28;

    /// The newest edition that a handshake can end in.
    pub const NEWEST_HANDSHAKE: Edition = Edition::E2025_11_25;

    /// What an HTTP client speaks that names no edition and has no session.
    pub const UNNAMED: Edition = Edition::E2025_03_26;

    /// The date that names this edition on the wire.
    #[must_use]
    pub const fn date(self) -> &'static str {
        match self {
            Edition::E2024_11_05 => "2024-11-05",
            Edition::E2025_03_26 => "2025-03-26",
            Edition::E2025_06_18 => "2025-06-18",
            Edition::E2025_11_25 => "2025-11-25",
            Edition::E2026_07_28 => "2026-07-28",
        }
    }

    /// The edition with this date. An unknown date, even a later one, is none of ours.
    #[must_use]
    pub fn of(date: &str) -> Option<Edition> {
        // The newest first: most say that one.
        Edition::ALL.into_iter().rev().find(|edition| edition.date() == date)
    }

    /// What this edition does.
    #[must_use]
    pub fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Whether clients of this edition shake hands first.
    #[must_use]
    pub fn shakes_hands(self) -> bool {
        self.facts().greeting == Greeting::Handshake
    }

    /// What a handshake ends in when the client asks for `asked`: the same if it can be had, else the
    /// newest we could speak.
    #[must_use]
    pub fn negotiate(asked: &str) -> Edition {
        Edition::of(asked).filter(|edition| edition.shakes_hands()).unwrap_or(Edition::NEWEST_HANDSHAKE)
    }

    /// The dates of all editions, newest first: what a refusal and a discovery list.
    pub fn dates() -> impl Iterator<Item = &'static str> {
        Edition::ALL.into_iter().rev().map(Edition::date)
    }
}

impl std::fmt::Display for Edition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.date())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_back_and_are_in_order() {
        for edition in Edition::ALL {
            assert_eq!(Edition::of(edition.date()), Some(edition));
        }
        assert!(Edition::ALL.is_sorted());
        assert_eq!(Edition::of("2031-01-01"), None);
    }

    #[test]
    fn a_handshake_never_ends_in_an_edition_without_one() {
        assert_eq!(Edition::negotiate("2025-03-26"), Edition::E2025_03_26);
        assert_eq!(Edition::negotiate("2026-07-28"), Edition::E2025_11_25);
        assert_eq!(Edition::negotiate("1999-01-01"), Edition::E2025_11_25);
    }

    #[test]
    fn only_one_edition_has_batches() {
        let with: Vec<_> = Edition::ALL.into_iter().filter(|edition| edition.facts().batches).collect();
        assert_eq!(with, [Edition::E2025_03_26]);
    }
}
