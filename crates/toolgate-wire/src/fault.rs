//! What a peer is told when a request cannot be answered.
//!
//! A [`Fault`] names what went wrong ([`FaultKind`]) and carries a message that is safe to show. Numbers
//! come last: [`Fault::code`] resolves the kind for one edition, so no other code knows a number.

use crate::json::{Raw, trusted, write_text};
use crate::model::ClientCapabilities;
use crate::{Edition, RemoteError};

/// The longest message of a refusal, in bytes.
const LONGEST: usize = 1024;

/// A refusal, ready to be told to the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault(Box<Repr>);

#[derive(Clone, Debug, PartialEq)]
struct Repr {
    kind: FaultKind,
    message: String,
    data: Option<Raw>,
    /// The name or URI that is at fault: dialects have their own words for it.
    subject: Option<Box<str>>,
    /// The HTTP status, where it does not follow from the kind.
    status: Option<u16>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The bytes are not one JSON text.
    Parse,
    /// The JSON is not a JSON-RPC message we can take here.
    Invalid,
    /// No such method, or none that is offered to this peer.
    Method,
    /// The parameters do not fit the method: unknown tool, prompt, task or cursor among them.
    Params,
    /// `_meta` lacks what every request of this edition must say.
    Greeting,
    /// No resource has that URI.
    Resource,
    /// Our own failure. Its text stays with the operator.
    Internal,
    /// A header is missing, repeated or differs from the body.
    Header,
    /// The client did not declare a capability that the call needs.
    Capability,
    /// The edition asked for is none that we serve.
    Version,
    /// The user must open a link before this call can go on.
    UrlFirst,
    /// The session is unknown or over.
    Session,
    /// There is no room for one more right now.
    Busy,
    /// No tool has that name.
    Tool,
    /// No prompt has that name.
    Prompt,
    /// A prompt lacks an argument that it cannot do without.
    PromptArgument,
    /// A list has no such place to go on from.
    Cursor,
    /// No task has that id.
    Task,
    /// What should become a root of the workspace is no directory that may be one.
    RootUnfit,
    /// The workspace has this root already.
    RootTwice,
    /// The workspace has no such root.
    RootUnknown,
    /// `initialize` has to come first, and once.
    Uninitialized,
    /// A tool was called with arguments that it does not take. Where nothing else is agreed on, this is told as
    /// the tool's result.
    Arguments,
    /// A tool ran and failed. Where nothing else is agreed on, this is told as the tool's result.
    Failed,
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

impl Fault {
    /// A fault with a message for the peer: lower case, no full stop, naming the value at fault.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Fault {
        let mut message = message.into();
        // A refusal is no echo chamber, whatever part of a request it is made of.
        let end = clip_to(&message, LONGEST).len();
        message.truncate(end);
        Fault(Box::new(Repr { kind, message, data: None, subject: None, status: None }))
    }

    /// The parameters do not fit.
    pub fn params(message: impl Into<String>) -> Fault {
        Fault::new(FaultKind::Params, message)
    }

    /// Not a message we can take here.
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault::new(FaultKind::Invalid, message)
    }

    /// No such method.
    #[must_use]
    pub fn method(name: &str) -> Fault {
        Fault::new(FaultKind::Method, format!("no such method: {}", clip(name))).about(name)
    }

    /// No resource has this URI.
    #[must_use]
    pub fn resource(uri: &str) -> Fault {
        let data = one_text("uri", clip(uri));
        Fault::new(FaultKind::Resource, format!("no such resource: {}", clip(uri))).about(uri).with_data(data)
    }

    /// No tool has this name. `closest` is one that the caller may have meant.
    #[must_use]
    pub fn tool(name: &str, closest: Option<&str>) -> Fault {
        let meant = closest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        Fault::new(FaultKind::Tool, format!("unknown tool: {}{meant}", clip(name))).about(name)
    }

    /// No prompt has this name.
    #[must_use]
    pub fn prompt(name: &str) -> Fault {
        Fault::new(FaultKind::Prompt, format!("unknown prompt: {}", clip(name))).about(name)
    }

    /// A prompt lacks this argument.
    #[must_use]
    pub fn prompt_argument(name: &str) -> Fault {
        let said = format!("argument `{}` is required and missing", clip(name));
        Fault::new(FaultKind::PromptArgument, said).about(name)
    }

    /// No task has this id. It may be somebody else's, or over for long: these are told apart by nobody.
    #[must_use]
    pub fn task(id: &str) -> Fault {
        Fault::new(FaultKind::Task, "task not found").about(id)
    }

    /// This cannot be a root of the workspace, and why.
    #[must_use]
    pub fn root(uri: &str, why: &str) -> Fault {
        Fault::new(FaultKind::RootUnfit, format!("{} cannot be a root: {why}", clip(uri))).about(uri)
    }

    /// The workspace has this root already.
    #[must_use]
    pub fn root_twice(uri: &str) -> Fault {
        Fault::new(FaultKind::RootTwice, format!("the root is there already: {}", clip(uri))).about(uri)
    }

    /// The workspace has no such root.
    #[must_use]
    pub fn root_unknown(uri: &str) -> Fault {
        Fault::new(FaultKind::RootUnknown, format!("no such root: {}", clip(uri))).about(uri)
    }

    /// The client must declare these capabilities first.
    #[must_use]
    pub fn capability(required: &ClientCapabilities, message: impl Into<String>) -> Fault {
        let mut data = b"{\"requiredCapabilities\":".to_vec();
        crate::codec::write_client_capabilities(&mut data, Edition::NEWEST, required);
        data.push(b'}');
        Fault::new(FaultKind::Capability, message).with_data(trusted(data))
    }

    /// The edition `requested` is none of ours.
    #[must_use]
    pub fn version(requested: &str) -> Fault {
        let mut data = b"{\"supported\":".to_vec();
        for (n, date) in Edition::dates().enumerate() {
            data.push(if n == 0 { b'[' } else { b',' });
            write_text(&mut data, date);
        }
        data.extend_from_slice(b"],\"requested\":");
        write_text(&mut data, clip(requested));
        data.push(b'}');
        let message = format!("protocol version {} is not served", clip(requested));
        Fault::new(FaultKind::Version, message).with_data(trusted(data))
    }

    /// Our own failure; `reference` leads an operator to the details in the log.
    #[must_use]
    pub fn internal(reference: &str) -> Fault {
        Fault::new(FaultKind::Internal, format!("internal error, ref {reference}"))
    }

    /// The same fault with a `data` member.
    #[must_use]
    pub fn with_data(mut self, data: Raw) -> Fault {
        self.0.data = Some(data);
        self
    }

    /// The same fault, which is about this name or URI.
    fn about(mut self, subject: &str) -> Fault {
        self.0.subject = Some(clip(subject).into());
        self
    }

    /// The same fault with an HTTP status of its own.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Fault {
        self.0.status = Some(status);
        self
    }

    /// The name or URI that is at fault.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.0.subject.as_deref()
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.0.kind
    }

    /// The words for the peer.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The `data` member.
    #[must_use]
    pub fn data(&self) -> Option<&Raw> {
        self.0.data.as_ref()
    }

    /// The number that says this in `edition`.
    #[must_use]
    pub fn code(&self, edition: Edition) -> i64 {
        match self.0.kind {
            FaultKind::Parse => -32700,
            FaultKind::Invalid | FaultKind::Session => -32600,
            FaultKind::Method => -32601,
            FaultKind::Params
            | FaultKind::Greeting
            | FaultKind::Tool
            | FaultKind::Prompt
            | FaultKind::PromptArgument
            | FaultKind::Cursor
            | FaultKind::Task
            | FaultKind::RootUnfit
            | FaultKind::RootTwice
            | FaultKind::RootUnknown
            | FaultKind::Arguments => -32602,
            // Spec since 2026-07-28: an absent resource is a bad parameter; the old number must not be sent.
            FaultKind::Resource if edition >= Edition::E2026_07_28 => -32602,
            FaultKind::Resource => -32002,
            FaultKind::Internal | FaultKind::Busy | FaultKind::Failed | FaultKind::Unavailable => -32603,
            // These three exist since 2026-07-28; an older peer would not know them.
            FaultKind::Header if edition >= Edition::E2026_07_28 => -32020,
            FaultKind::Header => -32600,
            FaultKind::Capability if edition >= Edition::E2026_07_28 => -32021,
            FaultKind::Capability => -32600,
            // Told to peers of no known edition as well: it is how they learn what is served.
            FaultKind::Version => -32022,
            FaultKind::UrlFirst if edition == Edition::E2025_11_25 => -32042,
            FaultKind::UrlFirst => -32600,
            // Since 2026-07-28 nobody may make up numbers in the reserved range. The HTTP status tells these apart.
            FaultKind::Unauthorized | FaultKind::TooLarge | FaultKind::RateLimited | FaultKind::Rejected
                if edition >= Edition::E2026_07_28 =>
            {
                -32600
            }
            FaultKind::Paused if edition >= Edition::E2026_07_28 => -32603,
            FaultKind::Uninitialized if edition >= Edition::E2026_07_28 => -32600,
            FaultKind::Paused | FaultKind::Uninitialized => -32005,
            FaultKind::Unauthorized | FaultKind::TooLarge | FaultKind::RateLimited | FaultKind::Rejected => {
                -32000
            }
            FaultKind::Other(code) => code,
        }
    }

    /// The HTTP status of an answer that is this fault, in `edition`.
    #[must_use]
    pub fn status(&self, edition: Edition) -> u16 {
        if let Some(status) = self.0.status {
            return status;
        }
        match self.0.kind {
            FaultKind::Unauthorized => 401,
            FaultKind::TooLarge => 413,
            FaultKind::RateLimited => 429,
            FaultKind::Paused => 503,
            FaultKind::Parse | FaultKind::Invalid | FaultKind::Version => 400,
            FaultKind::Session => 404,
            FaultKind::Busy => 503,
            FaultKind::Greeting | FaultKind::Header | FaultKind::Capability
                if edition.facts().error_status =>
            {
                400
            }
            FaultKind::Method if edition.facts().error_status => 404,
            // The rest are answers to well-formed requests. For 2026-07-28 the status of these is free; a
            // 400 could be misread by a client that is still finding out which era it talks to.
            _ => 200,
        }
    }

    /// What a peer told us, as a fault of ours.
    #[must_use]
    pub fn from_remote(error: RemoteError, edition: Edition) -> Fault {
        let kind = match error.code {
            -32700 => FaultKind::Parse,
            -32600 => FaultKind::Invalid,
            -32601 => FaultKind::Method,
            -32602 => FaultKind::Params,
            -32603 => FaultKind::Internal,
            -32002 if edition < Edition::E2026_07_28 => FaultKind::Resource,
            -32020 if edition >= Edition::E2026_07_28 => FaultKind::Header,
            -32021 if edition >= Edition::E2026_07_28 => FaultKind::Capability,
            -32022 => FaultKind::Version,
            -32042 if edition == Edition::E2025_11_25 => FaultKind::UrlFirst,
            code => FaultKind::Other(code),
        };
        let fault = Fault::new(kind, error.message);
        match error.data {
            Some(data) => fault.with_data(data),
            None => fault,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Fault {}

/// An object with one member, a text. `name` is ours.
pub(crate) fn one_text(name: &str, text: &str) -> Raw {
    let mut out = format!("{{\"{name}\":").into_bytes();
    write_text(&mut out, text);
    out.push(b'}');
    trusted(out)
}

/// At most 256 bytes of a foreign text, so that no refusal is an echo chamber.
fn clip(text: &str) -> &str {
    clip_to(text, 256)
}

fn clip_to(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
