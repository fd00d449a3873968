//! Errors that are sent to the peer in place of a result.
//!
//! A [`ProtocolError`] has a [`ProtocolErrorKind`] and a message that is safe to send. [`ProtocolError::code`] maps the
//! kind to the error code of a protocol version, so that no other code contains error codes.

use crate::json::{RawJson, raw_from_trusted, write_string};
use crate::model::ClientCapabilities;
use crate::{ProtocolVersion, RemoteError};

/// The maximum length of an error message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// An error response to the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolError(Box<Repr>);

#[derive(Clone, Debug, PartialEq)]
struct Repr {
    kind: ProtocolErrorKind,
    message: String,
    data: Option<RawJson>,
    /// The name or URI that the error is about; dialects build their own messages from it.
    subject: Option<Box<str>>,
    /// The HTTP status, if it does not follow from the kind.
    status: Option<u16>,
}

/// The kind of a [`ProtocolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolErrorKind {
    /// The bytes are not valid JSON.
    ParseError,
    /// The JSON is not an acceptable JSON-RPC message.
    InvalidRequest,
    /// The method does not exist, or is not available to this peer.
    MethodNotFound,
    /// The parameters do not fit the method.
    InvalidParams,
    /// `_meta` is missing client information that this protocol version requires.
    InvalidClientMeta,
    /// No resource has this URI.
    ResourceNotFound,
    /// An internal failure. Details go to the log, not to the peer.
    Internal,
    /// A header is missing, repeated or differs from the body.
    HeaderMismatch,
    /// The client did not declare a capability that the call needs.
    MissingCapability,
    /// The requested protocol version is not supported.
    UnsupportedVersion,
    /// The user must open a URL before the call can continue.
    UrlElicitationRequired,
    /// The session does not exist or has ended.
    SessionNotFound,
    /// A limit is reached; the client may try again later.
    Busy,
    /// No tool has this name.
    ToolNotFound,
    /// No prompt has this name.
    PromptNotFound,
    /// A required prompt argument is missing.
    MissingPromptArgument,
    /// The pagination cursor is invalid.
    InvalidCursor,
    /// No task has this id.
    TaskNotFound,
    /// The URI cannot be added as a root.
    InvalidRoot,
    /// The root already exists.
    DuplicateRoot,
    /// No root has this URI.
    RootNotFound,
    /// `initialize` is required first, and only once.
    NotInitialized,
    /// The tool arguments are invalid. Sent as a tool result, unless the dialect has an error code for it.
    InvalidArguments,
    /// The tool failed. Sent as a tool result, unless the dialect has an error code for it.
    ToolFailed,
    /// A dependency of the tool is unavailable. Sent as a tool result, unless the dialect has an error code for it.
    Unavailable,
    /// Credentials are missing, wrong or insufficient.
    Unauthorized,
    /// The request body exceeds the size limit.
    TooLarge,
    /// The rate limit is exceeded.
    RateLimited,
    /// The server is paused.
    Paused,
    /// A request listener rejected the request.
    Rejected,
    /// A code that was chosen by an upstream server or an application.
    Other(i64),
}

impl ProtocolError {
    /// Creates an error. The message is sent to the peer: lower case, no full stop, naming the offending value.
    pub fn new(kind: ProtocolErrorKind, message: impl Into<String>) -> ProtocolError {
        let mut message = message.into();
        // Messages quote parts of requests, so their length is limited.
        let end = truncate_to(&message, MAX_MESSAGE_BYTES).len();
        message.truncate(end);
        ProtocolError(Box::new(Repr { kind, message, data: None, subject: None, status: None }))
    }

    /// Creates an [`InvalidParams`](ProtocolErrorKind::InvalidParams) error.
    pub fn invalid_params(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::InvalidParams, message)
    }

    /// Creates an [`InvalidRequest`](ProtocolErrorKind::InvalidRequest) error.
    pub fn invalid_request(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::InvalidRequest, message)
    }

    /// The method does not exist.
    #[must_use]
    pub fn method_not_found(name: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::MethodNotFound, format!("no such method: {}", truncate(name)))
            .with_subject(name)
    }

    /// No resource has this URI.
    #[must_use]
    pub fn resource_not_found(uri: &str) -> ProtocolError {
        let data = single_string_object("uri", truncate(uri));
        ProtocolError::new(
            ProtocolErrorKind::ResourceNotFound,
            format!("no such resource: {}", truncate(uri)),
        )
        .with_subject(uri)
        .with_data(data)
    }

    /// No tool has this name. `closest` is a similar name to suggest.
    #[must_use]
    pub fn tool_not_found(name: &str, closest: Option<&str>) -> ProtocolError {
        let suggestion = closest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        ProtocolError::new(
            ProtocolErrorKind::ToolNotFound,
            format!("unknown tool: {}{suggestion}", truncate(name)),
        )
        .with_subject(name)
    }

    /// No prompt has this name.
    #[must_use]
    pub fn prompt_not_found(name: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::PromptNotFound, format!("unknown prompt: {}", truncate(name)))
            .with_subject(name)
    }

    /// The prompt requires this argument.
    #[must_use]
    pub fn missing_prompt_argument(name: &str) -> ProtocolError {
        let message = format!("argument `{}` is required but missing", truncate(name));
        ProtocolError::new(ProtocolErrorKind::MissingPromptArgument, message).with_subject(name)
    }

    /// No task has this id. The message is the same for expired tasks and for tasks of other callers, so that it does
    /// not reveal which tasks exist.
    #[must_use]
    pub fn task_not_found(id: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::TaskNotFound, "task not found").with_subject(id)
    }

    /// The URI cannot be added as a root, for the reason given.
    #[must_use]
    pub fn invalid_root(uri: &str, reason: &str) -> ProtocolError {
        ProtocolError::new(
            ProtocolErrorKind::InvalidRoot,
            format!("{} cannot be a root: {reason}", truncate(uri)),
        )
        .with_subject(uri)
    }

    /// The root already exists.
    #[must_use]
    pub fn duplicate_root(uri: &str) -> ProtocolError {
        ProtocolError::new(
            ProtocolErrorKind::DuplicateRoot,
            format!("the root already exists: {}", truncate(uri)),
        )
        .with_subject(uri)
    }

    /// No root has this URI.
    #[must_use]
    pub fn root_not_found(uri: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::RootNotFound, format!("no such root: {}", truncate(uri)))
            .with_subject(uri)
    }

    /// The client must declare these capabilities.
    #[must_use]
    pub fn missing_capability(required: &ClientCapabilities, message: impl Into<String>) -> ProtocolError {
        let mut data = b"{\"requiredCapabilities\":".to_vec();
        crate::codec::write_client_capabilities(&mut data, ProtocolVersion::LATEST, required);
        data.push(b'}');
        ProtocolError::new(ProtocolErrorKind::MissingCapability, message).with_data(raw_from_trusted(data))
    }

    /// The protocol version `requested` is not supported.
    #[must_use]
    pub fn unsupported_version(requested: &str) -> ProtocolError {
        let mut data = b"{\"supported\":".to_vec();
        for (n, date) in ProtocolVersion::supported().enumerate() {
            data.push(if n == 0 { b'[' } else { b',' });
            write_string(&mut data, date);
        }
        data.extend_from_slice(b"],\"requested\":");
        write_string(&mut data, truncate(requested));
        data.push(b'}');
        let message = format!("protocol version {} is not supported", truncate(requested));
        ProtocolError::new(ProtocolErrorKind::UnsupportedVersion, message).with_data(raw_from_trusted(data))
    }

    /// An internal failure; the operator finds the details in the log by `reference`.
    #[must_use]
    pub fn internal(reference: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::Internal, format!("internal error, ref {reference}"))
    }

    /// Sets the `data` member.
    #[must_use]
    pub fn with_data(mut self, data: RawJson) -> ProtocolError {
        self.0.data = Some(data);
        self
    }

    /// Sets the name or URI that the error is about.
    fn with_subject(mut self, subject: &str) -> ProtocolError {
        self.0.subject = Some(truncate(subject).into());
        self
    }

    /// Overrides the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> ProtocolError {
        self.0.status = Some(status);
        self
    }

    /// Returns the name or URI that the error is about.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.0.subject.as_deref()
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ProtocolErrorKind {
        self.0.kind
    }

    /// Returns the message for the peer.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the `data` member.
    #[must_use]
    pub fn data(&self) -> Option<&RawJson> {
        self.0.data.as_ref()
    }

    /// Returns the JSON-RPC error code in `version`.
    #[must_use]
    pub fn code(&self, version: ProtocolVersion) -> i64 {
        match self.0.kind {
            ProtocolErrorKind::ParseError => -32700,
            ProtocolErrorKind::InvalidRequest | ProtocolErrorKind::SessionNotFound => -32600,
            ProtocolErrorKind::MethodNotFound => -32601,
            ProtocolErrorKind::InvalidParams
            | ProtocolErrorKind::InvalidClientMeta
            | ProtocolErrorKind::ToolNotFound
            | ProtocolErrorKind::PromptNotFound
            | ProtocolErrorKind::MissingPromptArgument
            | ProtocolErrorKind::InvalidCursor
            | ProtocolErrorKind::TaskNotFound
            | ProtocolErrorKind::InvalidRoot
            | ProtocolErrorKind::DuplicateRoot
            | ProtocolErrorKind::RootNotFound
            | ProtocolErrorKind::InvalidArguments => -32602,
            // Spec since 2026-07-28: an absent resource is a bad parameter; the old code must not be sent.
            ProtocolErrorKind::ResourceNotFound if version >= ProtocolVersion::V2026_07_28 => -32602,
            ProtocolErrorKind::ResourceNotFound => -32002,
            ProtocolErrorKind::Internal
            | ProtocolErrorKind::Busy
            | ProtocolErrorKind::ToolFailed
            | ProtocolErrorKind::Unavailable => -32603,
            // These three exist since 2026-07-28; an older peer would not know them.
            ProtocolErrorKind::HeaderMismatch if version >= ProtocolVersion::V2026_07_28 => -32020,
            ProtocolErrorKind::HeaderMismatch => -32600,
            ProtocolErrorKind::MissingCapability if version >= ProtocolVersion::V2026_07_28 => -32021,
            ProtocolErrorKind::MissingCapability => -32600,
            // Also sent to peers of unknown versions, because the error lists the supported versions.
            ProtocolErrorKind::UnsupportedVersion => -32022,
            ProtocolErrorKind::UrlElicitationRequired if version == ProtocolVersion::V2025_11_25 => -32042,
            ProtocolErrorKind::UrlElicitationRequired => -32600,
            // Since 2026-07-28 servers may not define codes in the reserved range. The HTTP status distinguishes these
            // errors.
            ProtocolErrorKind::Unauthorized
            | ProtocolErrorKind::TooLarge
            | ProtocolErrorKind::RateLimited
            | ProtocolErrorKind::Rejected
                if version >= ProtocolVersion::V2026_07_28 =>
            {
                -32600
            }
            ProtocolErrorKind::Paused if version >= ProtocolVersion::V2026_07_28 => -32603,
            ProtocolErrorKind::NotInitialized if version >= ProtocolVersion::V2026_07_28 => -32600,
            ProtocolErrorKind::Paused | ProtocolErrorKind::NotInitialized => -32005,
            ProtocolErrorKind::Unauthorized
            | ProtocolErrorKind::TooLarge
            | ProtocolErrorKind::RateLimited
            | ProtocolErrorKind::Rejected => -32000,
            ProtocolErrorKind::Other(code) => code,
        }
    }

    /// Returns the HTTP status of a response with this error in `version`.
    #[must_use]
    pub fn status(&self, version: ProtocolVersion) -> u16 {
        if let Some(status) = self.0.status {
            return status;
        }
        match self.0.kind {
            ProtocolErrorKind::Unauthorized => 401,
            ProtocolErrorKind::TooLarge => 413,
            ProtocolErrorKind::RateLimited => 429,
            ProtocolErrorKind::Paused => 503,
            ProtocolErrorKind::ParseError
            | ProtocolErrorKind::InvalidRequest
            | ProtocolErrorKind::UnsupportedVersion => 400,
            ProtocolErrorKind::SessionNotFound => 404,
            ProtocolErrorKind::Busy => 503,
            ProtocolErrorKind::InvalidClientMeta
            | ProtocolErrorKind::HeaderMismatch
            | ProtocolErrorKind::MissingCapability
                if version.behavior().error_status =>
            {
                400
            }
            ProtocolErrorKind::MethodNotFound if version.behavior().error_status => 404,
            // The rest are responses to well-formed requests. 2026-07-28 leaves their status open; a client that is still
            // detecting the protocol version of the server could misread a 400.
            _ => 200,
        }
    }

    /// Converts an error that was received from a peer.
    #[must_use]
    pub fn from_remote(error: RemoteError, version: ProtocolVersion) -> ProtocolError {
        let kind = match error.code {
            -32700 => ProtocolErrorKind::ParseError,
            -32600 => ProtocolErrorKind::InvalidRequest,
            -32601 => ProtocolErrorKind::MethodNotFound,
            -32602 => ProtocolErrorKind::InvalidParams,
            -32603 => ProtocolErrorKind::Internal,
            -32002 if version < ProtocolVersion::V2026_07_28 => ProtocolErrorKind::ResourceNotFound,
            -32020 if version >= ProtocolVersion::V2026_07_28 => ProtocolErrorKind::HeaderMismatch,
            -32021 if version >= ProtocolVersion::V2026_07_28 => ProtocolErrorKind::MissingCapability,
            -32022 => ProtocolErrorKind::UnsupportedVersion,
            -32042 if version == ProtocolVersion::V2025_11_25 => ProtocolErrorKind::UrlElicitationRequired,
            code => ProtocolErrorKind::Other(code),
        };
        let RemoteError { code: _, message, data } = error;
        match data {
            Some(data) => ProtocolError::new(kind, message).with_data(data),
            None => ProtocolError::new(kind, message),
        }
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ProtocolError {}

/// Creates an object with one string member. `name` must not need escaping.
pub(crate) fn single_string_object(name: &str, text: &str) -> RawJson {
    let mut out = format!("{{\"{name}\":").into_bytes();
    write_string(&mut out, text);
    out.push(b'}');
    raw_from_trusted(out)
}

/// Truncates peer-supplied text to 256 bytes, so that errors do not echo long input.
fn truncate(text: &str) -> &str {
    truncate_to(text, 256)
}

fn truncate_to(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let mut end = max_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
