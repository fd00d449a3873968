//! Canonical requests, independent of the protocol version: the caller, the call, and why a call may fail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use toolgate_wire::model::{Call, ToolOutput};
use toolgate_wire::{Client, Meta, ProtocolError};

use crate::headers::RequestHeaders;
use crate::profile::Profile;
use crate::util::cancel::Cancel;

/// A boxed future with an erased type.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The authenticated identity of a caller.
///
/// Without authentication everyone is [`Principal::anonymous`]. An authenticating layer in front of the
/// endpoint puts a `Principal` into the request's extensions; sessions and request state are bound to it. Two
/// principals are equal if their ids are, whatever their profiles and attributes.
///
/// ```
/// # use toolgate::{Principal, Profile};
/// let ada = Principal::new("https://id.example.com/ada")
///     .with_profile(Profile::readonly())
///     .with_attribute("tenant", 7);
/// assert_eq!(ada.id(), Some("https://id.example.com/ada"));
/// assert_eq!(ada.attribute("tenant"), Some(&serde_json::json!(7)));
/// assert_eq!(Principal::anonymous().id(), None);
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias("authentication", "identity", "user"))]
pub struct Principal(Option<Arc<Identity>>);

#[derive(Clone, Default)]
struct Identity {
    id: Option<Arc<str>>,
    profile: Option<Profile>,
    attributes: BTreeMap<String, Value>,
}

impl Principal {
    /// Creates a principal with this id, which must be unique among all principals of the server.
    pub fn new(id: impl Into<Arc<str>>) -> Principal {
        Principal(Some(Arc::new(Identity { id: Some(id.into()), ..Identity::default() })))
    }

    /// Creates the principal of callers that are not authenticated.
    #[must_use]
    pub fn anonymous() -> Principal {
        Principal(None)
    }

    /// Returns the id, or `None` if the caller is not authenticated.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.0.as_deref()?.id.as_deref()
    }

    /// Restricts the principal to the items of a profile.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Principal {
        self.identity_mut().profile = Some(profile);
        self
    }

    /// Adds an attribute, such as a tenant, a plan or a role.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, value: impl Into<Value>) -> Principal {
        self.identity_mut().attributes.insert(name.into(), value.into());
        self
    }

    /// Returns the profile that restricts the principal, or `None` if it may see everything.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        self.0.as_deref()?.profile.as_ref()
    }

    /// Returns an attribute by its name.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&Value> {
        self.0.as_deref()?.attributes.get(name)
    }

    /// All attributes.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().flat_map(|identity| identity.attributes.iter())
    }

    /// Merges two identities of the same caller: the first id wins, attributes are united, and profiles are intersected.
    pub(crate) fn merge(self, other: &Principal) -> Principal {
        let (Some(first), Some(second)) = (&self.0, &other.0) else {
            return if self.0.is_some() { self } else { other.clone() };
        };
        let mut merged = Identity::clone(first);
        merged.id = first.id.clone().or_else(|| second.id.clone());
        merged.profile = match (&first.profile, &second.profile) {
            (Some(one), Some(other)) => Some(one.intersect(other)),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        merged.attributes.extend(second.attributes.clone());
        Principal(Some(Arc::new(merged)))
    }

    fn identity_mut(&mut self) -> &mut Identity {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl std::fmt::Debug for Identity {
    // Without the values of attributes, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let attributes: Vec<&String> = self.attributes.keys().collect();
        let profile = self.profile.as_ref().map(Profile::name);
        f.debug_struct("Identity")
            .field("id", &self.id)
            .field("profile", &profile)
            .field("attributes", &attributes)
            .finish()
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Principal) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Principal {}

impl std::hash::Hash for Principal {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

/// The caller of a request, with its client info and metadata.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    /// From this request, or from `initialize`.
    pub(crate) client: Arc<Client>,
    /// Empty if the transport is not HTTP.
    pub(crate) headers: Arc<RequestHeaders>,
    /// Extensions of the HTTP request, from layers in front of the server. `None` if there are none.
    pub(crate) extensions: Option<Arc<http::Extensions>>,
    pub(crate) remote_addr: Option<SocketAddr>,
    pub(crate) meta: Meta,
    /// Whether arguments that the tool marks must be sent as headers too, with equal values.
    pub(crate) requires_header_params: bool,
    /// Whether the dialect is lenient: any JSON is accepted where a string is expected. Only for clients that name no protocol
    /// version.
    pub(crate) is_lenient: bool,
    /// Whether arguments that the called tool does not know are rejected. Set when the tool is known.
    pub(crate) rejects_unknown_arguments: bool,
    /// Whether the dialect returns an empty list for a capability that the server does not have. Only for clients that name no
    /// protocol version.
    pub(crate) allows_empty_lists: bool,
    /// The values of the other arguments, while one of them is completed.
    pub(crate) other_arguments: Option<BTreeMap<String, String>>,
    /// How the client supports tasks.
    pub(crate) task_support: ClientTaskSupport,
    /// The owner of the tasks that it may see (see [`task_owner`]). Set for calls that concern tasks.
    pub(crate) owner: Option<Arc<str>>,
}

/// How a client supports tasks: by its protocol version, and by the capabilities it declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientTaskSupport {
    /// Not at all.
    #[default]
    Unsupported,
    /// A call becomes a task if the client requests it.
    OnRequest,
    /// A call becomes a task if the server chooses so: the client declares the tasks extension.
    ServerChoice,
    /// The protocol version has the tasks extension, but the client does not declare it.
    Undeclared,
}

/// The name of the owner of tasks and subscriptions, which does not reveal its identity: a digest of the principal if there is
/// one, else of the session, else a constant, so that anyone who knows the id of a task may see it.
pub(crate) fn task_owner(principal: &Principal, session: Option<&str>) -> Arc<str> {
    let digest = |kind: char, text: &str| -> Arc<str> {
        let digest = Sha256::digest(text.as_bytes());
        format!("{kind}{}", URL_SAFE_NO_PAD.encode(&digest[..18])).into()
    };
    match (principal.id(), session) {
        (Some(id), _) => digest('p', id),
        (None, Some(session)) => digest('s', session),
        (None, None) => "anyone".into(),
    }
}

/// The owner for anonymous clients that name no protocol version and have no session: they see each other's tasks.
pub(crate) const UNVERSIONED_OWNER: &str = "bare";

/// One request for the dispatcher.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// Boxed from the beginning, because it is moved often.
    pub(crate) caller: Box<Caller>,
    /// Cancelled when the client cancels the request or disconnects.
    pub(crate) cancel: Cancel,
}

/// Why a call has no outcome.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The response is this error.
    Protocol(ProtocolError),
    /// A tool failed. The response is a tool result, unless the dialect of the client has an error code for it.
    Tool(ToolFailure, Box<ToolOutput>),
    /// The client must answer requests first; the channel of the call knows which.
    InputRequired,
    /// The handler deferred the call to a task.
    Deferred,
    /// The request was cancelled, so there is no response.
    Cancelled,
}

/// How a tool failed.
#[derive(Debug)]
pub(crate) enum ToolFailure {
    /// The arguments violate the schema of the tool or the type of its handler.
    InvalidArguments(ArgumentErrors),
    /// The handler returned an error.
    ReturnedError,
    /// The handler reported that something it depends on is unavailable.
    Unavailable,
    /// The handler exceeded its time limit.
    TimedOut,
    /// The handler panicked, or its output violates its schema. `reference` leads to the details in the log, if there are
    /// any.
    Internal { reference: Option<Box<str>> },
}

/// The violations that were found in the arguments of a tool call.
#[derive(Debug, Default)]
pub(crate) struct ArgumentErrors(pub(crate) Vec<ArgumentError>);

/// One violation in the arguments of a tool call.
#[derive(Debug)]
pub(crate) struct ArgumentError {
    /// The message, for the model that made the call.
    pub(crate) message: String,
    /// The name of a required top-level argument that is missing, if that is the violation.
    pub(crate) missing: Option<String>,
}

impl From<String> for ArgumentErrors {
    fn from(message: String) -> ArgumentErrors {
        ArgumentErrors(vec![ArgumentError { message, missing: None }])
    }
}

impl ArgumentErrors {
    const PREFIX: &str = "Validation error: ";
    const SEPARATOR: &str = "; ";
    /// Maximum length of the messages together.
    const MAX_CHARS: usize = 2000;

    /// All messages in one line, without prefix and limit.
    pub(crate) fn joined(&self) -> String {
        self.0.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join(Self::SEPARATOR)
    }

    /// The text of the tool result.
    pub(crate) fn message(&self) -> String {
        let joined = self.joined();
        format!("{}{}", Self::PREFIX, truncate_chars(&joined, Self::MAX_CHARS))
    }

    /// Like [`ArgumentErrors::message`], with another text for missing arguments: this prefix and the name. The length limit
    /// applies to the original text.
    pub(crate) fn message_with_missing_prefix(&self, missing_prefix: &str) -> String {
        let (mut text, mut chars_left) = (Self::PREFIX.to_owned(), Self::MAX_CHARS);
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { Self::SEPARATOR };
            text.push_str(truncate_chars(separator, chars_left));
            chars_left = chars_left.saturating_sub(separator.len());
            let chars = error.message.chars().count();
            match &error.missing {
                Some(name) if chars <= chars_left => text.extend([missing_prefix, name]),
                _ => text.push_str(truncate_chars(&error.message, chars_left)),
            }
            chars_left = chars_left.saturating_sub(chars);
        }
        text
    }
}

/// Truncates a text to at most `max` characters.
pub(crate) fn truncate_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

impl From<ProtocolError> for CallError {
    fn from(error: ProtocolError) -> CallError {
        CallError::Protocol(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_arguments_are_reworded_and_the_limit_applies_to_the_original_text() {
        let missing = |name: &str| ArgumentError {
            message: format!("`{name}` is required but missing"),
            missing: Some(name.to_owned()),
        };
        let other = |message: &str| ArgumentError { message: message.to_owned(), missing: None };
        let errors = ArgumentErrors(vec![missing("a"), other("`b` must be integer"), missing("c")]);
        assert_eq!(
            errors.message(),
            "Validation error: `a` is required but missing; `b` must be integer; `c` is required but missing"
        );
        assert_eq!(
            errors.message_with_missing_prefix("Missing: "),
            "Validation error: Missing: a; `b` must be integer; Missing: c"
        );
        let long = "é".repeat(1990);
        let errors = ArgumentErrors(vec![other(&long), missing("a")]);
        assert_eq!(errors.message_with_missing_prefix("Missing: "), errors.message());
        assert_eq!(errors.message(), format!("Validation error: {long}; `a` is r"));
    }
}
