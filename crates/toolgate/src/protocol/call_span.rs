//! The `tracing` span of a call, so that log lines of its handler can be attributed to it.

use std::borrow::Cow;

use toolgate_wire::RequestId;
use toolgate_wire::model::Call;
use tracing::Span;

use super::Protocol;
use super::session::Session;
use crate::observe::mask_uri;
use crate::request::{Caller, truncate_chars};

/// How many characters of the id of a session or a task are logged. The rest must stay secret: it authorizes requests.
const MAX_SECRET_CHARS: usize = 8;
/// Maximum length of a text that the client chose.
const MAX_CLIENT_TEXT_CHARS: usize = 120;

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
            subject = subject(call).as_deref(),
            principal = caller.principal.id(),
            protocol_version = caller.client.protocol_version.as_str(),
            id = truncate_chars(&id.to_string(), MAX_CLIENT_TEXT_CHARS),
            session = session.and_then(|session| session.id.get(..MAX_SECRET_CHARS)),
        )
    }
}

/// The name of the tool or prompt, the URI without secrets, or the beginning of the task id.
fn subject(call: &Call) -> Option<Cow<'_, str>> {
    let name = call.mirrored_name()?;
    Some(match call {
        Call::ReadResource { .. } => {
            Cow::Owned(truncate_chars(&mask_uri(name), MAX_CLIENT_TEXT_CHARS).to_owned())
        }
        Call::GetTask { .. } | Call::UpdateTask { .. } | Call::CancelTask { .. } => {
            Cow::Borrowed(truncate_chars(name, MAX_SECRET_CHARS))
        }
        _ => Cow::Borrowed(truncate_chars(name, MAX_CLIENT_TEXT_CHARS)),
    })
}
