//! The encoding of errors and notifications for one client: in the format of a protocol version, or of a dialect if the
//! client names no protocol version.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use toolgate_wire::model::{Content, ContentKind, Notification, ToolOutput};
use toolgate_wire::{Dialect, ProtocolError, ProtocolErrorKind, ProtocolVersion, RequestId, codec};

use super::{Peer, Reply, ReplyKind};
use crate::headers::{PROTOCOL_VERSION, SESSION_ID, single_value};
use crate::request::ToolFailure;

/// The dialect of servers that have none of their own.
static OFFICIAL_DIALECT: Dialect = Dialect::official();

/// How messages to a client are encoded.
#[derive(Clone, Debug)]
pub(super) enum WireFormat {
    /// For a client that named this protocol version, in this message or in `initialize`.
    Versioned(ProtocolVersion),
    /// For a client that names no protocol version. `None` if the server has no dialect of its own.
    Unversioned(Option<Arc<Dialect>>),
}

impl From<ProtocolVersion> for WireFormat {
    fn from(version: ProtocolVersion) -> WireFormat {
        WireFormat::Versioned(version)
    }
}

impl Peer {
    /// The dialect for clients that name no protocol version.
    pub(super) fn dialect(&self) -> &Dialect {
        self.dialect.as_deref().unwrap_or(&OFFICIAL_DIALECT)
    }
}

impl WireFormat {
    /// The format for a client that names no protocol version.
    pub(super) fn unversioned(peer: &Peer) -> WireFormat {
        WireFormat::Unversioned(peer.dialect.clone())
    }

    /// The protocol version whose JSON shapes are used.
    pub(super) fn version(&self) -> ProtocolVersion {
        match self {
            WireFormat::Versioned(version) => *version,
            WireFormat::Unversioned(_) => ProtocolVersion::FALLBACK,
        }
    }

    /// Writes a notification. Returns false, with nothing written, if the format does not have it.
    pub(super) fn write_notification(
        &self,
        out: &mut Vec<u8>,
        notification: &Notification,
        subscription_id: Option<&RequestId>,
    ) -> bool {
        match self {
            WireFormat::Versioned(version) => {
                codec::write_notification(out, *version, notification, subscription_id)
            }
            WireFormat::Unversioned(dialect) => {
                let dialect = dialect.as_deref().unwrap_or(&OFFICIAL_DIALECT);
                codec::write_unversioned_notification(out, dialect, notification)
            }
        }
    }

    /// Encodes an error response, with its HTTP status.
    pub(super) fn error_reply(&self, id: Option<&RequestId>, error: &ProtocolError) -> Reply {
        let mut out = Vec::with_capacity(256);
        let (status, code) = match self {
            WireFormat::Versioned(version) => {
                codec::write_protocol_error(&mut out, *version, id, error);
                (error.status(*version), error.code(*version))
            }
            WireFormat::Unversioned(dialect) => {
                let dialect = dialect.as_deref().unwrap_or(&OFFICIAL_DIALECT);
                codec::write_unversioned_error(&mut out, dialect, id, error);
                (dialect.status(error), dialect.code(error))
            }
        };
        let kind = ReplyKind::ProtocolError { code, message: error.message().into() };
        Reply::Body { status, body: out.into(), session_id: None, kind }
    }

    /// Converts a tool failure to a protocol error, in dialects that have an error code for it. `message` is the text of
    /// the failure.
    pub(super) fn tool_error(&self, failure: &ToolFailure, message: &str) -> Option<ProtocolError> {
        let WireFormat::Unversioned(Some(dialect)) = self else { return None };
        match failure {
            ToolFailure::InvalidArguments(_) => dialect.invalid_arguments_code?,
            ToolFailure::Unavailable => {
                dialect.unavailable.map_or(dialect.tool_error_code, |(code, _)| Some(code))?
            }
            ToolFailure::ReturnedError | ToolFailure::TimedOut | ToolFailure::Internal { .. } => {
                dialect.tool_error_code?
            }
        };
        let kind = match failure {
            ToolFailure::InvalidArguments(_) => ProtocolErrorKind::InvalidArguments,
            ToolFailure::Unavailable if dialect.unavailable.is_some() => ProtocolErrorKind::Unavailable,
            ToolFailure::ReturnedError | ToolFailure::Unavailable => ProtocolErrorKind::ToolFailed,
            ToolFailure::TimedOut | ToolFailure::Internal { .. } => ProtocolErrorKind::Internal,
        };
        Some(ProtocolError::new(kind, message))
    }

    /// Replaces the text of a tool failure by the one of the dialect, where it has one.
    pub(super) fn reword_failure(&self, failure: &ToolFailure, mut output: ToolOutput) -> ToolOutput {
        let WireFormat::Unversioned(Some(dialect)) = self else { return output };
        let [Content { kind: ContentKind::Text(text), .. }] = output.content.as_mut_slice() else {
            return output;
        };
        match failure {
            ToolFailure::InvalidArguments(errors) => {
                if let Some(prefix) = dialect.missing_argument_message {
                    *text = errors.message_with_missing_prefix(prefix);
                }
            }
            ToolFailure::ReturnedError | ToolFailure::Unavailable | ToolFailure::TimedOut => {
                text.insert_str(0, dialect.tool_error_prefix);
            }
            ToolFailure::Internal { reference } => {
                if let Some(message) = dialect.internal_error_message {
                    // The operator finds the details in the log by the reference.
                    *text = match reference {
                        Some(reference) => format!("{message} (ref {reference})"),
                        None => message.into(),
                    };
                }
            }
        }
        output
    }
}

/// An error in the format of the WordPress REST API.
fn wordpress_error(error: &ProtocolError, status: u16) -> Bytes {
    let data = serde_json::json!({ "status": status });
    let body = serde_json::json!({ "code": "rest_forbidden", "message": error.message(), "data": data });
    body.to_string().into()
}

/// Rejects an HTTP request of which only the head was read. Returns the status and the body.
pub(crate) fn reject_head(
    headers: &HeaderMap,
    dialect: Option<&Arc<Dialect>>,
    error: &ProtocolError,
) -> (u16, Bytes) {
    let latest = || WireFormat::from(ProtocolVersion::LATEST);
    let format = match (single_value(headers, &PROTOCOL_VERSION), single_value(headers, &SESSION_ID)) {
        (Ok(None), Ok(None)) => WireFormat::Unversioned(dialect.cloned()),
        (Ok(Some(version)), _) => match ProtocolVersion::parse(version) {
            Some(version) if version.has_handshake() => ProtocolVersion::LATEST_WITH_HANDSHAKE.into(),
            _ => latest(),
        },
        (Ok(None), Ok(Some(_))) => ProtocolVersion::LATEST_WITH_HANDSHAKE.into(),
        _ => latest(),
    };
    if let WireFormat::Unversioned(Some(dialect)) = &format
        && dialect.wordpress_errors
        && error.kind() == ProtocolErrorKind::Unauthorized
    {
        let status = dialect.status(error);
        return (status, wordpress_error(error, status));
    }
    match format.error_reply(None, error) {
        Reply::Body { status, body, .. } => (status, body.into_bytes()),
        Reply::Accepted | Reply::NoResponse => (500, Bytes::new()),
    }
}
