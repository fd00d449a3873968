//! The `tracing` span of a call, so that log lines of its handler can be attributed to it.

use toolgate_wire::RequestId;
use toolgate_wire::model::Call;
use tracing::Span;

use super::Protocol;
use super::session::Session;
use crate::request::Caller;

/// How many characters of a session id are logged. The rest must stay secret: it authorizes requests.
const MAX_SESSION_CHARS: usize = 8;

impl Protocol {
    /// Creates the span of a call: `call` with the target `toolgate::call`, at level `DEBUG` as the spans of tower-http's
    /// `TraceLayer`. Without a subscriber for it, this is one atomic load.
    #[inline]
    pub(super) fn call_span(
        &self,
        id: &RequestId,
        call: &Call,
        caller: &Caller,
        session: Option<&Session>,
    ) -> Span {
        tracing::debug_span!(
            target: "toolgate::call",
            "call",
            server = self.server_info.load().implementation.name,
            method = call.method(),
            subject = call.mirrored_name(),
            principal = caller.principal.id(),
            protocol_version = caller.client.protocol_version.as_str(),
            id = %id,
            session = session.and_then(|session| session.id.get(..MAX_SESSION_CHARS)),
        )
    }
}
