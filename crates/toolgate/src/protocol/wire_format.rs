//! How an answer is put: in the words of an edition, or in those of a dialect where none was named.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use toolgate_wire::model::{Content, ContentKind, Notification, Outcome, ToolOutput};
use toolgate_wire::{Dialect, ProtocolError, ProtocolErrorKind, ProtocolVersion, RequestId, codec};

use super::{ClientState, Peer, Protocol, Reply, ReplyKind, ServerInfo};
use crate::headers::{PROTOCOL_VERSION, SESSION_ID, single_value};
use crate::request::ToolFailure;
use crate::util::segments::Segments;

/// What nobody speaks who says nothing else.
static OFFICIAL_DIALECT: Dialect = Dialect::official();

/// How an answer is put.
#[derive(Clone, Debug)]
pub(super) enum WireFormat {
    /// The client named this edition, now or in its handshake.
    Versioned(ProtocolVersion),
    /// It named none. None: the server has no dialect of its own.
    Unversioned(Option<Arc<Dialect>>),
}

impl From<ProtocolVersion> for WireFormat {
    fn from(edition: ProtocolVersion) -> WireFormat {
        WireFormat::Versioned(edition)
    }
}

impl Peer {
    /// How this server speaks to those who name no edition.
    pub(super) fn dialect(&self) -> &Dialect {
        self.dialect.as_deref().unwrap_or(&OFFICIAL_DIALECT)
    }
}

impl WireFormat {
    pub(super) fn unversioned(peer: &Peer) -> WireFormat {
        WireFormat::Unversioned(peer.dialect.clone())
    }

    /// The edition whose shapes these are.
    pub(super) fn version(&self) -> ProtocolVersion {
        match self {
            WireFormat::Versioned(edition) => *edition,
            WireFormat::Unversioned(_) => ProtocolVersion::FALLBACK,
        }
    }

    /// Writes a notice. False if these words have none for it.
    pub(super) fn write_notification(
        &self,
        out: &mut Vec<u8>,
        notice: &Notification,
        tag: Option<&RequestId>,
    ) -> bool {
        match self {
            WireFormat::Versioned(edition) => codec::write_notification(out, *edition, notice, tag),
            WireFormat::Unversioned(dialect) => codec::write_unversioned_notification(
                out,
                dialect.as_deref().unwrap_or(&OFFICIAL_DIALECT),
                notice,
            ),
        }
    }

    /// A message that says no.
    pub(super) fn error_reply(&self, id: Option<&RequestId>, fault: &ProtocolError) -> Reply {
        let mut out = Vec::with_capacity(256);
        let (status, code) = match self {
            WireFormat::Versioned(edition) => {
                codec::write_protocol_error(&mut out, *edition, id, fault);
                (fault.status(*edition), fault.code(*edition))
            }
            WireFormat::Unversioned(dialect) => {
                let dialect = dialect.as_deref().unwrap_or(&OFFICIAL_DIALECT);
                codec::write_unversioned_error(&mut out, dialect, id, fault);
                (dialect.status(fault), dialect.code(fault))
            }
        };
        let told = ReplyKind::ProtocolError { code, message: fault.message().into() };
        Reply::Body { status, body: out.into(), session_id: None, kind: told }
    }

    /// A tool's failure as an error, where these words have one for it.
    pub(super) fn tool_error(&self, failure: ToolFailure, said: &str) -> Option<ProtocolError> {
        let WireFormat::Unversioned(Some(dialect)) = self else { return None };
        match failure {
            ToolFailure::InvalidArguments => dialect.invalid_arguments_code?,
            ToolFailure::Unavailable if let Some((code, _)) = dialect.unavailable => code,
            ToolFailure::ReturnedError
            | ToolFailure::Unavailable
            | ToolFailure::TimedOut
            | ToolFailure::Internal => dialect.tool_error_code?,
        };
        let kind = match failure {
            ToolFailure::InvalidArguments => ProtocolErrorKind::InvalidArguments,
            ToolFailure::Unavailable if dialect.unavailable.is_some() => ProtocolErrorKind::Unavailable,
            ToolFailure::ReturnedError | ToolFailure::Unavailable => ProtocolErrorKind::ToolFailed,
            ToolFailure::TimedOut | ToolFailure::Internal => ProtocolErrorKind::Internal,
        };
        Some(ProtocolError::new(kind, said))
    }

    /// A tool's failure as a result, in these words.
    pub(super) fn reword_failure(&self, failure: ToolFailure, mut output: ToolOutput) -> ToolOutput {
        let WireFormat::Unversioned(Some(dialect)) = self else { return output };
        let [Content { kind: ContentKind::Text(text), .. }] = output.content.as_mut_slice() else {
            return output;
        };
        match failure {
            ToolFailure::InvalidArguments => {
                if let Some(words) = dialect.missing_argument_message {
                    *text = reword_missing_arguments(text, words);
                }
            }
            ToolFailure::ReturnedError | ToolFailure::Unavailable | ToolFailure::TimedOut => {
                text.insert_str(0, dialect.tool_error_prefix);
            }
            ToolFailure::Internal => {
                if let Some(words) = dialect.internal_error_message {
                    // Whoever runs the server finds the rest by the reference.
                    let reference = text.rsplit_once(", ref ").map(|(_, reference)| reference);
                    *text = reference.map_or(words.into(), |reference| format!("{words} (ref {reference})"));
                }
            }
        }
        output
    }
}

impl Protocol {
    /// How to speak to a peer of whom nothing but its headers and its connection are known.
    pub(super) fn wire_format(&self, peer: &Peer) -> WireFormat {
        match self.client_state(peer) {
            Ok(ClientState::Session(session)) => session.client.protocol_version.into(),
            Ok(ClientState::Sessionless(edition)) => edition.into(),
            Ok(ClientState::Unversioned) => WireFormat::unversioned(peer),
            Err((speech, _)) => speech,
        }
    }

    /// Writes a whole answer.
    pub(super) fn encode_response(
        &self,
        speech: &WireFormat,
        id: &RequestId,
        outcome: &Outcome,
        face: &Arc<ServerInfo>,
    ) -> Segments {
        let mut out = SCRATCH.take();
        out.clear();
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        id.write(&mut out);
        out.extend_from_slice(b",\"result\":");
        match (speech, outcome) {
            (
                WireFormat::Unversioned(Some(dialect)),
                Outcome::Prompt(_)
                | Outcome::ReadResource { .. }
                | Outcome::Completion(_)
                | Outcome::TaskCreated(_),
            ) => {
                codec::write_unversioned_outcome(&mut out, dialect, outcome);
            }
            _ => match self.list_cache.get_or_encode(speech.version(), outcome, face) {
                Some(tail) => return Segments { head: copy_scratch(out), tail },
                None => {
                    let signature = &face.encoded_info[speech.version() as usize];
                    codec::write_outcome_from(&mut out, outcome, signature);
                }
            },
        }
        out.push(b'}');
        copy_scratch(out).into()
    }
}

/// What is longer than this is not copied.
const MAX_COPIED_BYTES: usize = 4096;

thread_local! {
    /// Where short answers are written. How long one is, is known behind it: then it gets a place of that size, and
    /// this one is for the next.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn copy_scratch(written: Vec<u8>) -> Bytes {
    if written.len() > MAX_COPIED_BYTES {
        return written.into();
    }
    let bytes = Bytes::copy_from_slice(&written);
    SCRATCH.set(written);
    bytes
}

/// What the check says of arguments that are missing, in other words. The rest stays as it is.
fn reword_missing_arguments(said: &str, words: &str) -> String {
    let each = said.split("; ").map(|fault| {
        let (before, rest) = match fault.strip_prefix("Validation error: ") {
            Some(rest) => ("Validation error: ", rest),
            None => ("", fault),
        };
        let name = rest.strip_prefix('`').and_then(|rest| rest.strip_suffix("` is required but missing"));
        name.map_or_else(|| fault.to_owned(), |name| format!("{before}{words}{name}"))
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A refusal as WordPress tells it.
fn wordpress_error(fault: &ProtocolError, status: u16) -> Bytes {
    let data = serde_json::json!({ "status": status });
    let told = serde_json::json!({ "code": "rest_forbidden", "message": fault.message(), "data": data });
    told.to_string().into()
}

/// The refusal of a request of which only the head was looked at: status and body.
pub(crate) fn reject_head(
    headers: &HeaderMap,
    dialect: Option<&Arc<Dialect>>,
    fault: &ProtocolError,
) -> (u16, Bytes) {
    let newest = || WireFormat::from(ProtocolVersion::LATEST);
    let speech = match (single_value(headers, &PROTOCOL_VERSION), single_value(headers, &SESSION_ID)) {
        (Ok(None), Ok(None)) => WireFormat::Unversioned(dialect.cloned()),
        (Ok(Some(version)), _) => match ProtocolVersion::parse(version) {
            Some(edition) if edition.has_handshake() => ProtocolVersion::LATEST_WITH_HANDSHAKE.into(),
            _ => newest(),
        },
        (Ok(None), Ok(Some(_))) => ProtocolVersion::LATEST_WITH_HANDSHAKE.into(),
        _ => newest(),
    };
    if let WireFormat::Unversioned(Some(dialect)) = &speech
        && dialect.wordpress_errors
        && fault.kind() == ProtocolErrorKind::Unauthorized
    {
        let status = dialect.status(fault);
        return (status, wordpress_error(fault, status));
    }
    match speech.error_reply(None, fault) {
        Reply::Body { status, body, .. } => (status, body.into_bytes()),
        Reply::Accepted | Reply::NoResponse => (500, Bytes::new()),
    }
}
