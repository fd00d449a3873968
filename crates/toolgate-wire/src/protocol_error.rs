//! What a peer is told when a request cannot be answered.
//!
//! A [`Fault`] names what went wrong ([`FaultKind`]) and carries a message that is safe to show. Numbers
//! come last: [`Fault::code`] resolves the kind for one edition, so no other code knows a number.

use crate::json::{RawJson, raw_from_trusted, write_string};
use crate::model::ClientCapabilities;
use crate::{ProtocolVersion, RemoteError};

/// The longest message of a refusal, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A refusal, ready to be told to the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolError(Box<Repr>);

#[derive(Clone, Debug, PartialEq)]
struct Repr {
    kind: ProtocolErrorKind,
    message: String,
    data: Option<RawJson>,
    /// The name or URI that is at fault: dialects have their own words for it.
    subject: Option<Box<str>>,
    /// The HTTP status, where it does not follow from the kind.
    status: Option<u16>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolErrorKind {
    /// The bytes are not one JSON text.
    ParseError,
    /// The JSON is not a JSON-RPC message we can take here.
    InvalidRequest,
    /// No such method, or none that is offered to this peer.
    MethodNotFound,
    /// The parameters do not fit the method: unknown tool, prompt, task or cursor among them.
    InvalidParams,
    /// `_meta` lacks what every request of this edition must say.
    InvalidClientMeta,
    /// No resource has that URI.
    ResourceNotFound,
    /// Our own failure. Its text stays with the operator.
    Internal,
    /// A header is missing, repeated or differs from the body.
    HeaderMismatch,
    /// The client did not declare a capability that the call needs.
    MissingCapability,
    /// The edition asked for is none that we serve.
    UnsupportedVersion,
    /// The user must open a link before this call can go on.
    UrlElicitationRequired,
    /// The session is unknown or over.
    SessionNotFound,
    /// There is no room for one more right now.
    Busy,
    /// No tool has that name.
    ToolNotFound,
    /// No prompt has that name.
    PromptNotFound,
    /// A prompt lacks an argument that it cannot do without.
    MissingPromptArgument,
    /// A list has no such place to go on from.
    InvalidCursor,
    /// No task has that id.
    TaskNotFound,
    /// What should become a root of the workspace is no directory that may be one.
    InvalidRoot,
    /// The workspace has this root already.
    DuplicateRoot,
    /// The workspace has no such root.
    RootNotFound,
    /// `initialize` has to come first, and once.
    NotInitialized,
    /// A tool was called with arguments that it does not take. Where nothing else is agreed on, this is told as
    /// the tool's result.
    InvalidArguments,
    /// A tool ran and failed. Where nothing else is agreed on, this is told as the tool's result.
    ToolFailed,
    /// Something that a tool needs is not there now. Where nothing else is agreed on, this is told as the tool's result.
    Unavailable,
    /// Credentials are missing or wrong, or not enough.
    Unauthorized,
    /// The body is longer than is read here.
    TooLarge,
    /// Too many requests from there.
    RateLimited,
    /// The server is paused.
    Paused,
    /// Somebody who listens to requests would not have this one.
    Rejected,
    /// A number chosen elsewhere: by an upstream server or an application.
    Other(i64),
}

impl ProtocolError {
    /// A fault with a message for the peer: lower case, no full stop, naming the value at fault.
    pub fn new(kind: ProtocolErrorKind, message: impl Into<String>) -> ProtocolError {
        let mut message = message.into();
        // A refusal is no echo chamber, whatever part of a request it is made of.
        let end = truncate_to(&message, MAX_MESSAGE_BYTES).len();
        message.truncate(end);
        ProtocolError(Box::new(Repr { kind, message, data: None, subject: None, status: None }))
    }

    /// The parameters do not fit.
    pub fn invalid_params(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::InvalidParams, message)
    }

    /// Not a message we can take here.
    pub fn invalid_request(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::InvalidRequest, message)
    }

    /// No such method.
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

    /// No tool has this name. `closest` is one that the caller may have meant.
    #[must_use]
    pub fn tool_not_found(name: &str, closest: Option<&str>) -> ProtocolError {
        let meant = closest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        ProtocolError::new(
            ProtocolErrorKind::ToolNotFound,
            format!("unknown tool: {}{meant}", truncate(name)),
        )
        .with_subject(name)
    }

    /// No prompt has this name.
    #[must_use]
    pub fn prompt_not_found(name: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::PromptNotFound, format!("unknown prompt: {}", truncate(name)))
            .with_subject(name)
    }

    /// A prompt lacks this argument.
    #[must_use]
    pub fn missing_prompt_argument(name: &str) -> ProtocolError {
        let said = format!("argument `{}` is required but missing", truncate(name));
        ProtocolError::new(ProtocolErrorKind::MissingPromptArgument, said).with_subject(name)
    }

    /// No task has this id. It may be somebody else's, or over for long: these are told apart by nobody.
    #[must_use]
    pub fn task_not_found(id: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::TaskNotFound, "task not found").with_subject(id)
    }

    /// This cannot be a root of the workspace, and why.
    #[must_use]
    pub fn invalid_root(uri: &str, why: &str) -> ProtocolError {
        ProtocolError::new(
            ProtocolErrorKind::InvalidRoot,
            format!("{} cannot be a root: {why}", truncate(uri)),
        )
        .with_subject(uri)
    }

    /// The workspace has this root already.
    #[must_use]
    pub fn duplicate_root(uri: &str) -> ProtocolError {
        ProtocolError::new(
            ProtocolErrorKind::DuplicateRoot,
            format!("the root already exists: {}", truncate(uri)),
        )
        .with_subject(uri)
    }

    /// The workspace has no such root.
    #[must_use]
    pub fn root_not_found(uri: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::RootNotFound, format!("no such root: {}", truncate(uri)))
            .with_subject(uri)
    }

    /// The client must declare these capabilities first.
    #[must_use]
    pub fn missing_capability(required: &ClientCapabilities, message: impl Into<String>) -> ProtocolError {
        let mut data = b"{\"requiredCapabilities\":".to_vec();
        crate::codec::write_client_capabilities(&mut data, ProtocolVersion::LATEST, required);
        data.push(b'}');
        ProtocolError::new(ProtocolErrorKind::MissingCapability, message).with_data(raw_from_trusted(data))
    }

    /// The edition `requested` is none of ours.
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

    /// Our own failure; `reference` leads an operator to the details in the log.
    #[must_use]
    pub fn internal(reference: &str) -> ProtocolError {
        ProtocolError::new(ProtocolErrorKind::Internal, format!("internal error, ref {reference}"))
    }

    /// The same fault with a `data` member.
    #[must_use]
    pub fn with_data(mut self, data: RawJson) -> ProtocolError {
        self.0.data = Some(data);
        self
    }

    /// The same fault, which is about this name or URI.
    fn with_subject(mut self, subject: &str) -> ProtocolError {
        self.0.subject = Some(truncate(subject).into());
        self
    }

    /// The same fault with an HTTP status of its own.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> ProtocolError {
        self.0.status = Some(status);
        self
    }

    /// The name or URI that is at fault.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.0.subject.as_deref()
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ProtocolErrorKind {
        self.0.kind
    }

    /// The words for the peer.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The `data` member.
    #[must_use]
    pub fn data(&self) -> Option<&RawJson> {
        self.0.data.as_ref()
    }

    /// The number that says this in `edition`.
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
            // Spec since 2026-07-28: an absent resource is a bad parameter; the old number must not be sent.
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
            // Told to peers of no known edition as well: it is how they learn what is served.
            ProtocolErrorKind::UnsupportedVersion => -32022,
            ProtocolErrorKind::UrlElicitationRequired if version == ProtocolVersion::V2025_11_25 => -32042,
            ProtocolErrorKind::UrlElicitationRequired => -32600,
            // Since 2026-07-28 nobody may make up numbers in the reserved range. The HTTP status tells these apart.
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

    /// The HTTP status of an answer that is this fault, in `edition`.
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
            // The rest are answers to well-formed requests. For 2026-07-28 the status of these is free; a
            // 400 could be misread by a client that is still finding out which era it talks to.
            _ => 200,
        }
    }

    /// What a peer told us, as a fault of ours.
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
        let fault = ProtocolError::new(kind, error.message);
        match error.data {
            Some(data) => fault.with_data(data),
            None => fault,
        }
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ProtocolError {}

/// An object with one member, a text. `name` is ours.
pub(crate) fn single_string_object(name: &str, text: &str) -> RawJson {
    let mut out = format!("{{\"{name}\":").into_bytes();
    write_string(&mut out, text);
    out.push(b'}');
    raw_from_trusted(out)
}

/// At most 256 bytes of a foreign text, so that no refusal is an echo chamber.
fn truncate(text: &str) -> &str {
    truncate_to(text, 256)
}

fn truncate_to(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
