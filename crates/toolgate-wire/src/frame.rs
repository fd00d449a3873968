//! Reads and writes the JSON-RPC 2.0 envelope.
//!
//! Reading is strict. It determines whether the bytes are valid JSON, and whether a message is a request, a notification or
//! a response. It does not interpret the method: `params` and results stay raw, as slices of the message. Writing appends
//! one line of compact JSON.
//!
//! A message with an unreadable id is invalid, never a notification: a request must not run if it cannot be answered.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::codec::ClientCache;
use crate::id::RequestId;
use crate::json::{
    JsonError, JsonErrorKind, Key, Kind, Limits, MemberVisitor, RawJson, View, scan, slice_raw, write_i64,
    write_single_line, write_string,
};
use crate::params_index::{ParamsIndex, ParamsVisitor};

/// The maximum number of messages in a batch. Batches exist in one protocol version only, and clients send small ones.
const MAX_BATCH_MESSAGES: usize = 100;

/// Common methods, which are not copied.
const COMMON_METHODS: [&str; 12] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "prompts/get",
    "prompts/list",
    "completion/complete",
    "ping",
    "server/discover",
    "initialize",
    "notifications/initialized",
];

/// The content of one JSON text on the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A single message.
    Single(Frame),
    /// A batch of 1 to 100 messages. Each is parsed on its own.
    Batch(Vec<Result<Frame, FrameError>>),
}

/// A JSON-RPC message.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A request.
    Request {
        /// The id to return with the response.
        id: RequestId,
        /// The method name; not empty.
        method: Cow<'static, str>,
        /// The parameters, an object.
        params: Option<RawJson>,
    },
    /// A notification.
    Notification {
        /// The method name; not empty.
        method: Cow<'static, str>,
        /// The parameters, an object.
        params: Option<RawJson>,
    },
    /// A response to a request that we sent.
    Response {
        /// The id of our request.
        id: RequestId,
        /// The result, an object, or the error of the peer.
        outcome: Result<RawJson, RemoteError>,
    },
    /// An error response whose id is null or absent.
    ErrorWithoutId {
        /// The error of the peer.
        error: RemoteError,
    },
}

/// An error that was received from a peer.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteError {
    /// The JSON-RPC error code.
    pub code: i64,
    /// The message of the peer; untrusted text.
    pub message: String,
    /// The `data` member.
    pub data: Option<RawJson>,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for RemoteError {}

/// An invalid message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The kind, which determines the error code.
    pub kind: FrameErrorKind,
    /// The id of the message, if it was readable.
    pub id: Option<RequestId>,
    /// A message for the peer. It is short and quotes almost nothing of the input.
    pub detail: String,
}

/// The kind of a [`FrameError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameErrorKind {
    /// The bytes are not strict JSON.
    ParseError,
    /// The JSON is not a JSON-RPC message, or the text is too long.
    InvalidRequest,
    /// The `params` are not an object.
    InvalidParams,
}

impl FrameErrorKind {
    /// Returns the JSON-RPC error code.
    pub fn code(self) -> i64 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::InvalidParams => -32602,
        }
    }
}

impl FrameError {
    fn new(kind: FrameErrorKind, id: Option<RequestId>, detail: &str) -> Self {
        let detail = detail.to_owned();
        Self { kind, id, detail }
    }

    fn invalid_request(id: Option<RequestId>, detail: &str) -> Self {
        Self::new(FrameErrorKind::InvalidRequest, id, detail)
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for FrameError {}

impl From<JsonError> for FrameError {
    fn from(error: JsonError) -> Self {
        let kind = match error.kind() {
            // The text was not parsed, so it may be valid JSON.
            JsonErrorKind::TooLong(_) => FrameErrorKind::InvalidRequest,
            _ => FrameErrorKind::ParseError,
        };
        Self::new(kind, None, &error.to_string())
    }
}

/// Reads a message or a batch.
pub fn read_message(bytes: &Bytes, limits: &Limits) -> Result<Message, FrameError> {
    read_message_indexed(bytes, limits, &mut ParamsIndex::default())
}

/// Reads a message, and records the positions of its parameters in `index` for
/// [`ParamsView::with_index`](crate::codec::ParamsView::with_index). For a batch nothing is recorded.
///
/// ```
/// # use toolgate_wire::{Frame, Limits, Message, ParamsIndex, codec::ParamsView, read_message_indexed};
/// let bytes = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#.into();
/// let mut index = ParamsIndex::default();
/// let message = read_message_indexed(&bytes, &Limits::default(), &mut index).unwrap();
/// let Message::Single(Frame::Request { params, .. }) = message else { panic!() };
/// let view = ParamsView::with_index(params.as_ref(), &index).unwrap();
/// assert_eq!(view.protocol_version(), None);
/// ```
pub fn read_message_indexed<'a>(
    bytes: &'a Bytes,
    limits: &Limits,
    index: &mut ParamsIndex<'a>,
) -> Result<Message, FrameError> {
    read_with_visitor(bytes, limits, ParamsVisitor { index, client_cache: None })
}

/// Like [`read_message_indexed`], for a server whose clients describe themselves in each request: a `_meta` that
/// [`ClientCache::resolve`] has seen before is recognized and not parsed again.
pub fn read_message_cached<'a>(
    bytes: &'a Bytes,
    limits: &Limits,
    index: &mut ParamsIndex<'a>,
    client_cache: &ClientCache,
) -> Result<Message, FrameError> {
    read_with_visitor(bytes, limits, ParamsVisitor { index, client_cache: Some(client_cache) })
}

/// Deviations that are accepted from clients that send no protocol version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// Treat `params` that are an array as absent.
    pub ignore_array_params: bool,
    /// Treat an id that is `null` as absent.
    pub ignore_null_ids: bool,
}

/// Reads a message that [`read_message`] rejected, with the given deviations accepted.
///
/// ```
/// # use toolgate_wire::{Frame, Leniency, Limits, read_message, read_message_lenient};
/// let bytes = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#.into();
/// assert!(read_message(&bytes, &Limits::default()).is_err());
/// let leniency = Leniency { ignore_array_params: true, ignore_null_ids: false };
/// let frame = read_message_lenient(&bytes, &Limits::default(), leniency).unwrap();
/// assert!(matches!(frame, Frame::Request { params: None, .. }));
/// ```
pub fn read_message_lenient(bytes: &Bytes, limits: &Limits, leniency: Leniency) -> Result<Frame, FrameError> {
    let mut index = ParamsIndex::default();
    let params = ParamsVisitor { index: &mut index, client_cache: None };
    let mut visitor = MessageVisitor { envelope: Envelope::default(), params };
    let value = scan(bytes, limits, &mut visitor)?;
    if !value.is_object() {
        return Err(FrameError::invalid_request(None, "a message must be an object"));
    }
    let mut envelope = visitor.envelope;
    envelope.params =
        envelope.params.filter(|params| !leniency.ignore_array_params || params.kind() != Kind::Array);
    envelope.id = envelope.id.filter(|id| !leniency.ignore_null_ids || !id.is_null());
    envelope.to_frame(bytes)
}

fn read_with_visitor<'a>(
    bytes: &'a Bytes,
    limits: &Limits,
    params: ParamsVisitor<'a, '_>,
) -> Result<Message, FrameError> {
    *params.index = ParamsIndex::default();
    let mut visitor = MessageVisitor { envelope: Envelope::default(), params };
    let value = scan(bytes, limits, &mut visitor)?;
    match value.kind() {
        Kind::Object => visitor.envelope.to_frame(bytes).map(Message::Single),
        Kind::Array => read_batch(bytes, value),
        _ => Err(FrameError::invalid_request(None, "a message must be an object")),
    }
}

fn read_batch(bytes: &Bytes, batch: View<'_>) -> Result<Message, FrameError> {
    match batch.items().take(MAX_BATCH_MESSAGES + 1).count() {
        0 => return Err(FrameError::invalid_request(None, "empty batch")),
        1..=MAX_BATCH_MESSAGES => {}
        _ => {
            let detail = format!("more than {MAX_BATCH_MESSAGES} messages in a batch");
            return Err(FrameError::invalid_request(None, &detail));
        }
    }
    let frames = batch.items().map(|item| read_batch_item(bytes, item));
    Ok(Message::Batch(frames.collect()))
}

fn read_batch_item(bytes: &Bytes, item: View<'_>) -> Result<Frame, FrameError> {
    if !item.is_object() {
        return Err(FrameError::invalid_request(None, "a message must be an object"));
    }
    let mut envelope = Envelope::default();
    for (key, value) in item.pairs() {
        if let Some(slot) = Key::from_view(key).find_slot(Envelope::slot_of) {
            envelope.set(slot, value);
        }
    }
    envelope.to_frame(bytes)
}

/// Collects the members of a message while its text is scanned.
struct MessageVisitor<'a, 'i> {
    envelope: Envelope<'a>,
    params: ParamsVisitor<'a, 'i>,
}

impl<'a, 'i> MemberVisitor<'a> for MessageVisitor<'a, 'i> {
    type Nested = ParamsVisitor<'a, 'i>;

    #[inline(always)]
    fn slot(&self, key: Key<'a>) -> Option<usize> {
        key.find_slot(Envelope::slot_of)
    }

    #[inline(always)]
    fn nested(&mut self, slot: usize) -> Option<&mut ParamsVisitor<'a, 'i>> {
        (slot == PARAMS_SLOT).then_some(&mut self.params)
    }

    #[inline(always)]
    fn visit(&mut self, slot: usize, value: View<'a>) {
        if slot == PARAMS_SLOT {
            self.params.index.set_object(value);
        }
        self.envelope.set(slot, value);
    }
}

/// The known members of a message; others are ignored.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<View<'a>>,
    id: Option<View<'a>>,
    method: Option<View<'a>>,
    params: Option<View<'a>>,
    result: Option<View<'a>>,
    error: Option<View<'a>>,
}

const PARAMS_SLOT: usize = 3;

impl<'a> Envelope<'a> {
    #[inline(always)]
    fn slot_of(key: &[u8]) -> Option<usize> {
        Some(match key {
            b"jsonrpc" => 0,
            b"id" => 1,
            b"method" => 2,
            b"params" => PARAMS_SLOT,
            b"result" => 4,
            b"error" => 5,
            _ => return None,
        })
    }

    #[inline(always)]
    fn set(&mut self, slot: usize, value: View<'a>) {
        let member = match slot {
            0 => &mut self.jsonrpc,
            1 => &mut self.id,
            2 => &mut self.method,
            PARAMS_SLOT => &mut self.params,
            4 => &mut self.result,
            _ => &mut self.error,
        };
        *member = Some(value);
    }

    /// Builds the frame. `source` is the text that the members are views of.
    fn to_frame(&self, source: &Bytes) -> Result<Frame, FrameError> {
        let id = self.id.and_then(RequestId::read);
        let is_version_2 = |version: View<'_>| version.eq_raw_str("2.0") || version.eq_str("2.0");
        if !self.jsonrpc.is_some_and(is_version_2) {
            return Err(FrameError::invalid_request(id, "`jsonrpc` must be \"2.0\""));
        }
        // JSON-RPC 2.0, section 5: the response to a request with an unreadable id has a null id. A null id is valid
        // nowhere else.
        let is_error_without_id = self.error.is_some() && self.id.is_some_and(|id| id.is_null());
        if self.id.is_some() && id.is_none() && !is_error_without_id {
            return Err(FrameError::invalid_request(None, "`id` must be a string or an integer"));
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => self.to_call_frame(source, id, method),
            (None, Some(result), None) => to_result_frame(source, id, result),
            (None, None, Some(error)) => to_error_frame(source, id, error),
            (Some(_), _, _) => {
                Err(FrameError::invalid_request(id, "`method` cannot be combined with `result` or `error`"))
            }
            (None, Some(_), Some(_)) => {
                Err(FrameError::invalid_request(id, "`result` cannot be combined with `error`"))
            }
            (None, None, None) => Err(FrameError::invalid_request(id, "`method` is missing")),
        }
    }

    fn to_call_frame(
        &self,
        source: &Bytes,
        id: Option<RequestId>,
        method: View<'_>,
    ) -> Result<Frame, FrameError> {
        let method = match COMMON_METHODS.iter().find(|common| method.eq_raw_str(common)) {
            Some(common) => Cow::Borrowed(*common),
            None => match method.as_string() {
                Some(method) if !method.is_empty() => Cow::Owned(method.into_owned()),
                _ => return Err(FrameError::invalid_request(id, "`method` must be a non-empty string")),
            },
        };
        let params = match self.params.map(|params| (params.kind(), params)) {
            None | Some((Kind::Null, _)) => None,
            Some((Kind::Object, params)) => Some(slice_raw(source, params)),
            Some(_) => {
                let detail = "`params` must be an object";
                return Err(FrameError::new(FrameErrorKind::InvalidParams, id, detail));
            }
        };
        Ok(match id {
            Some(id) => Frame::Request { id, method, params },
            None => Frame::Notification { method, params },
        })
    }
}

fn to_result_frame(source: &Bytes, id: Option<RequestId>, result: View<'_>) -> Result<Frame, FrameError> {
    let Some(id) = id else {
        return Err(FrameError::invalid_request(None, "`result` without an `id`"));
    };
    if !result.is_object() {
        return Err(FrameError::invalid_request(Some(id), "`result` must be an object"));
    }
    let outcome = Ok(slice_raw(source, result));
    Ok(Frame::Response { id, outcome })
}

fn to_error_frame(source: &Bytes, id: Option<RequestId>, error: View<'_>) -> Result<Frame, FrameError> {
    let code = error.get("code").and_then(|code| code.as_i64());
    let message = error.get("message").and_then(|message| message.as_string());
    let (Some(code), Some(message)) = (code, message) else {
        let detail = "`error` must have an integer `code` and a string `message`";
        return Err(FrameError::invalid_request(id, detail));
    };
    let error = RemoteError {
        code,
        message: message.into_owned(),
        data: error.get("data").map(|data| slice_raw(source, data)),
    };
    Ok(match id {
        Some(id) => Frame::Response { id, outcome: Err(error) },
        None => Frame::ErrorWithoutId { error },
    })
}

/// Appends a request. `params` is one JSON object.
pub fn write_request(out: &mut Vec<u8>, id: &RequestId, method: &str, params: Option<&[u8]>) {
    write_head(out, Some(id));
    write_method(out, method, params);
}

/// Appends a notification. `params` is one JSON object.
pub fn write_notification_frame(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    write_head(out, None);
    write_method(out, method, params);
}

/// Appends a response. `result` is one JSON object. It may contain line breaks, which are removed: on stdio and in event
/// streams a message is one line.
pub fn write_result(out: &mut Vec<u8>, id: &RequestId, result: &[u8]) {
    out.reserve(result.len() + 64);
    write_head(out, Some(id));
    out.extend_from_slice(b",\"result\":");
    write_single_line(out, result);
    out.push(b'}');
}

/// Appends an error response. Without an id the member is omitted, since the protocol's schemas do not allow a null id.
/// `data` is one JSON value.
pub fn write_error(out: &mut Vec<u8>, id: Option<&RequestId>, code: i64, message: &str, data: Option<&[u8]>) {
    write_head(out, id);
    out.extend_from_slice(b",\"error\":{\"code\":");
    write_i64(out, code);
    out.extend_from_slice(b",\"message\":");
    write_string(out, message);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        write_single_line(out, data);
    }
    out.extend_from_slice(b"}}");
}

fn write_head(out: &mut Vec<u8>, id: Option<&RequestId>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        id.write(out);
    }
}

fn write_method(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(b",\"method\":");
    write_string(out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        write_single_line(out, params);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
