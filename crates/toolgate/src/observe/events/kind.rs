//! The kinds of events, and sets of them.

/// A kind of event that listeners can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    ServerCreated,
    ServerRemoved,
    ServerPaused,
    ServerResumed,
    Request,
    Response,
    Error,
    ToolStart,
    ToolEnd,
}

impl EventKind {
    pub(crate) const ALL: [EventKind; 9] = [
        EventKind::ServerCreated,
        EventKind::ServerRemoved,
        EventKind::ServerPaused,
        EventKind::ServerResumed,
        EventKind::Request,
        EventKind::Response,
        EventKind::Error,
        EventKind::ToolStart,
        EventKind::ToolEnd,
    ];

    /// Returns the bit that stands for this kind in [`EventKinds`].
    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns the words for this kind in logs.
    pub(crate) fn label(self) -> &'static str {
        match self {
            EventKind::ServerCreated => "server created",
            EventKind::ServerRemoved => "server removed",
            EventKind::ServerPaused => "server paused",
            EventKind::ServerResumed => "server resumed",
            EventKind::Request => "request",
            EventKind::Response => "response",
            EventKind::Error => "error",
            EventKind::ToolStart => "tool start",
            EventKind::ToolEnd => "tool end",
        }
    }

    /// Returns the name that [`Events::on`](super::super::Events::on) accepts for this kind: BoxLang's.
    #[cfg(feature = "compat")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            EventKind::ServerCreated => "onMCPServerCreate",
            EventKind::ServerRemoved => "onMCPServerRemove",
            EventKind::ServerPaused => "onMCPServerPause",
            EventKind::ServerResumed => "onMCPServerResume",
            EventKind::Request => "onMCPRequest",
            EventKind::Response => "onMCPResponse",
            EventKind::Error => "onMCPError",
            EventKind::ToolStart => "beforeAIToolExecute",
            EventKind::ToolEnd => "afterAIToolExecute",
        }
    }
}

/// A set of event kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventKinds(u32);

impl EventKinds {
    pub(crate) const EMPTY: EventKinds = EventKinds(0);

    pub(crate) fn is_empty(self) -> bool {
        self == EventKinds::EMPTY
    }

    pub(crate) fn contains(self, kind: EventKind) -> bool {
        self.0 & kind.bit() != 0
    }

    pub(crate) fn union(self, other: EventKinds) -> EventKinds {
        EventKinds(self.0 | other.0)
    }

    /// Returns the set as bits, for storage in an atomic; see [`EventKinds::from_bits`].
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> EventKinds {
        EventKinds(bits)
    }
}

impl FromIterator<EventKind> for EventKinds {
    fn from_iter<I: IntoIterator<Item = EventKind>>(kinds: I) -> EventKinds {
        EventKinds(kinds.into_iter().fold(0, |bits, kind| bits | kind.bit()))
    }
}
