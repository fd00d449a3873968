//! How an answer is put: in the words of an edition, or in those of a dialect where none was named.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use toolgate_wire::model::{Content, ContentKind, Notification, Outcome, ToolOutput};
use toolgate_wire::{Dialect, ProtocolVersion, ProtocolError, ProtocolErrorKind, RequestId, codec};

use super::{Answer, Era, Face, Peer, Speaker, Told};
use crate::letterhead::{SESSION, VERSION, single};
use crate::parcel::Parcel;
use crate::request::Failure;

/// What nobody speaks who says nothing else.
static OFFICIAL: Dialect = Dialect::official();

/// How an answer is put.
#[derive(Clone, Debug)]
pub(super) enum Speech {
    /// The client named this edition, now or in its handshake.
    Named(ProtocolVersion),
    /// It named none. None: the server has no dialect of its own.
    Bare(Option<Arc<Dialect>>),
}

impl From<ProtocolVersion> for Speech {
    fn from(edition: ProtocolVersion) -> Speech {
        Speech::Named(edition)
    }
}

impl Peer {
    /// How this server speaks to those who name no edition.
    pub(super) fn dialect(&self) -> &Dialect {
        self.dialect.as_deref().unwrap_or(&OFFICIAL)
    }
}

impl Speech {
    pub(super) fn bare(peer: &Peer) -> Speech {
        Speech::Bare(peer.dialect.clone())
    }

    /// The edition whose shapes these are.
    pub(super) fn edition(&self) -> ProtocolVersion {
        match self {
            Speech::Named(edition) => *edition,
            Speech::Bare(_) => ProtocolVersion::FALLBACK,
        }
    }

    /// Writes a notice. False if these words have none for it.
    pub(super) fn notice(&self, out: &mut Vec<u8>, notice: &Notification, tag: Option<&RequestId>) -> bool {
        match self {
            Speech::Named(edition) => codec::write_notification(out, *edition, notice, tag),
            Speech::Bare(dialect) => {
                codec::write_unversioned_notification(out, dialect.as_deref().unwrap_or(&OFFICIAL), notice)
            }
        }
    }

    /// A message that says no.
    pub(super) fn refusal(&self, id: Option<&RequestId>, fault: &ProtocolError) -> Answer {
        let mut out = Vec::with_capacity(256);
        let (status, code) = match self {
            Speech::Named(edition) => {
                codec::write_protocol_error(&mut out, *edition, id, fault);
                (fault.status(*edition), fault.code(*edition))
            }
            Speech::Bare(dialect) => {
                let dialect = dialect.as_deref().unwrap_or(&OFFICIAL);
                codec::write_unversioned_error(&mut out, dialect, id, fault);
                (dialect.status(fault), dialect.code(fault))
            }
        };
        let told = Told::Fault { code, message: fault.message().into() };
        Answer::Body { status, body: out.into(), session: None, told }
    }

    /// A tool's failure as an error, where these words have one for it.
    pub(super) fn tool_fault(&self, failure: Failure, said: &str) -> Option<ProtocolError> {
        let Speech::Bare(Some(dialect)) = self else { return None };
        match failure {
            Failure::Arguments => dialect.invalid_arguments_code?,
            Failure::Unavailable if let Some((code, _)) = dialect.unavailable => code,
            Failure::Returned | Failure::Unavailable | Failure::Late | Failure::Broken => {
                dialect.tool_error_code?
            }
        };
        let kind = match failure {
            Failure::Arguments => ProtocolErrorKind::InvalidArguments,
            Failure::Unavailable if dialect.unavailable.is_some() => ProtocolErrorKind::Unavailable,
            Failure::Returned | Failure::Unavailable => ProtocolErrorKind::ToolFailed,
            Failure::Late | Failure::Broken => ProtocolErrorKind::Internal,
        };
        Some(ProtocolError::new(kind, said))
    }

    /// A tool's failure as a result, in these words.
    pub(super) fn reworded(&self, failure: Failure, mut output: ToolOutput) -> ToolOutput {
        let Speech::Bare(Some(dialect)) = self else { return output };
        let [Content { kind: ContentKind::Text(text), .. }] = output.content.as_mut_slice() else {
            return output;
        };
        match failure {
            Failure::Arguments => {
                if let Some(words) = dialect.missing_argument_message {
                    *text = missing_named(text, words);
                }
            }
            Failure::Returned | Failure::Unavailable | Failure::Late => {
                text.insert_str(0, dialect.tool_error_prefix);
            }
            Failure::Broken => {
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

impl Era {
    /// How to speak to a peer of whom nothing but its headers and its connection are known.
    pub(super) fn speech(&self, peer: &Peer) -> Speech {
        match self.speaker(peer) {
            Ok(Speaker::Session(session)) => session.client.protocol_version.into(),
            Ok(Speaker::Stranger(edition)) => edition.into(),
            Ok(Speaker::Bare) => Speech::bare(peer),
            Err((speech, _)) => speech,
        }
    }

    /// Writes a whole answer.
    pub(super) fn write(
        &self,
        speech: &Speech,
        id: &RequestId,
        outcome: &Outcome,
        face: &Arc<Face>,
    ) -> Parcel {
        let mut out = SCRATCH.take();
        out.clear();
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        id.write(&mut out);
        out.extend_from_slice(b",\"result\":");
        match (speech, outcome) {
            (
                Speech::Bare(Some(dialect)),
                Outcome::Prompt(_) | Outcome::ReadResource { .. } | Outcome::Completion(_) | Outcome::TaskCreated(_),
            ) => {
                codec::write_unversioned_outcome(&mut out, dialect, outcome);
            }
            _ => match self.lists.recall(speech.edition(), outcome, face) {
                Some(tail) => return Parcel { head: taken(out), tail },
                None => {
                    let signature = &face.signatures[speech.edition() as usize];
                    codec::write_outcome_from(&mut out, outcome, signature);
                }
            },
        }
        out.push(b'}');
        taken(out).into()
    }
}

/// What is longer than this is not copied.
const COPIED: usize = 4096;

thread_local! {
    /// Where short answers are written. How long one is, is known behind it: then it gets a place of that size, and
    /// this one is for the next.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn taken(written: Vec<u8>) -> Bytes {
    if written.len() > COPIED {
        return written.into();
    }
    let bytes = Bytes::copy_from_slice(&written);
    SCRATCH.set(written);
    bytes
}

/// What the check says of arguments that are missing, in other words. The rest stays as it is.
fn missing_named(said: &str, words: &str) -> String {
    let each = said.split("; ").map(|fault| {
        let (before, rest) = match fault.strip_prefix("Validation error: ") {
            Some(rest) => ("Validation error: ", rest),
            None => ("", fault),
        };
        let name = rest.strip_prefix('`').and_then(|rest| rest.strip_suffix("` is required and missing"));
        name.map_or_else(|| fault.to_owned(), |name| format!("{before}{words}{name}"))
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A refusal as WordPress tells it.
fn wordpress(fault: &ProtocolError, status: u16) -> Bytes {
    let data = serde_json::json!({ "status": status });
    let told = serde_json::json!({ "code": "rest_forbidden", "message": fault.message(), "data": data });
    told.to_string().into()
}

/// The refusal of a request of which only the head was looked at: status and body.
pub(crate) fn refuse_head(
    headers: &HeaderMap,
    dialect: Option<&Arc<Dialect>>,
    fault: &ProtocolError,
) -> (u16, Bytes) {
    let newest = || Speech::from(ProtocolVersion::LATEST);
    let speech = match (single(headers, &VERSION), single(headers, &SESSION)) {
        (Ok(None), Ok(None)) => Speech::Bare(dialect.cloned()),
        (Ok(Some(version)), _) => match ProtocolVersion::parse(version) {
            Some(edition) if edition.has_handshake() => ProtocolVersion::LATEST_WITH_HANDSHAKE.into(),
            _ => newest(),
        },
        (Ok(None), Ok(Some(_))) => ProtocolVersion::LATEST_WITH_HANDSHAKE.into(),
        _ => newest(),
    };
    if let Speech::Bare(Some(dialect)) = &speech
        && dialect.wordpress_errors
        && fault.kind() == ProtocolErrorKind::Unauthorized
    {
        let status = dialect.status(fault);
        return (status, wordpress(fault, status));
    }
    match speech.refusal(None, fault) {
        Answer::Body { status, body, .. } => (status, body.whole()),
        Answer::Accepted | Answer::Silence => (500, Bytes::new()),
    }
}
