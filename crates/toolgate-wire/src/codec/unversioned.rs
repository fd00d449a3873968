//! Requests and encodings that only exist for clients that send no protocol version: their own calls, and dialects.

use super::base64::Base64;
use super::call::{read_call_params, read_create_task};
use super::notification::{write_notification, write_short_notification};
use super::object::{ObjectOrAbsent, ObjectWriter, WriteJson};
use super::params_view::ParamsView;
use crate::json::{RawJson, View, raw_from_trusted, write_string};
use crate::meta::meta_key;
use crate::model::{Call, Completion, Notification, ResourceBody, ResourceContents};
use crate::{Dialect, ProtocolError, ProtocolVersion};

impl ParamsView<'_> {
    /// Reads the request of a client that sends no protocol version, in a dialect. It may be one that no version has:
    /// `roots/list`, `roots/add` and `roots/remove`, which manage roots of the server, and `tasks/create`.
    ///
    /// # Errors
    /// As [`read_call`](super::read_call).
    pub fn read_unversioned_call(&self, dialect: &Dialect, method: &str) -> Result<Call, ProtocolError> {
        match method {
            "roots/list" => Ok(Call::ListRoots),
            "roots/add" => self.read_add_root(),
            "roots/remove" => self.field("uri").string().map(|uri| Call::RemoveRoot { uri }),
            "tasks/create" if dialect.tasks_create => read_create_task(self),
            "tools/call" | "tasks/get" | "tasks/list" | "tasks/cancel" | "tasks/result"
                if dialect.tasks_create =>
            {
                read_call_params(ProtocolVersion::V2025_11_25, method, self)
            }
            _ => read_call_params(ProtocolVersion::FALLBACK, method, self),
        }
    }

    fn read_add_root(&self) -> Result<Call, ProtocolError> {
        Ok(Call::AddRoot { uri: self.field("uri").string()?, name: self.field("name").maybe_string()? })
    }
}

/// Moves a progress token that is next to `_meta` into `_meta`. Returns `None` if there is no such token, or if `_meta`
/// already has one.
#[must_use]
pub fn move_progress_token(params: &RawJson) -> Option<RawJson> {
    let token = params.view().get("_progressToken")?;
    let meta = params.view().get("_meta");
    if meta.is_some_and(|meta| !meta.is_object() || meta.get(meta_key::PROGRESS_TOKEN).is_some()) {
        return None;
    }
    // Copied, not parsed, so that numbers keep their notation.
    let mut out = Vec::with_capacity(params.as_bytes().len() + 32);
    out.push(b'{');
    for (name, value) in params.view().members() {
        if name != "_meta" && name != "_progressToken" {
            write_member(&mut out, &name, value);
            out.push(b',');
        }
    }
    out.extend_from_slice(b"\"_meta\":{");
    for (name, value) in meta.iter().flat_map(|meta| meta.members()) {
        write_member(&mut out, &name, value);
        out.push(b',');
    }
    write_member(&mut out, meta_key::PROGRESS_TOKEN, token);
    out.extend_from_slice(b"}}");
    Some(raw_from_trusted(out))
}

fn write_member(out: &mut Vec<u8>, name: &str, value: View<'_>) {
    write_string(out, name);
    out.push(b':');
    out.extend_from_slice(value.to_string().as_bytes());
}

/// Appends a notification for a client that sends no protocol version. Writes nothing and returns false if there is no such
/// notification.
pub fn write_unversioned_notification(
    out: &mut Vec<u8>,
    dialect: &Dialect,
    notification: &Notification,
) -> bool {
    match dialect.short_notification_names && is_change_notification(notification) {
        true => write_short_notification(out, notification),
        false => write_notification(out, ProtocolVersion::FALLBACK, notification, None),
    }
}

/// Whether a notification reports a change. Only these have short names.
fn is_change_notification(notification: &Notification) -> bool {
    matches!(
        notification,
        Notification::ToolsChanged
            | Notification::PromptsChanged
            | Notification::ResourcesChanged
            | Notification::ResourceUpdated { .. }
            | Notification::RootsChanged
    )
}

/// Resource contents with a `type`.
pub(super) struct TypedContents<'a>(pub(super) &'a [ResourceContents]);

impl WriteJson for TypedContents<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        out.push(b'[');
        for (index, ResourceContents { uri, mime, body, meta }) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let object = ObjectWriter::open(out, version).field("uri", uri).optional("mimeType", mime);
            let object = match body {
                ResourceBody::Text(text) => object.field("type", "text").field("text", text),
                ResourceBody::Blob(bytes) => object.field("type", "blob").field("blob", &Base64(bytes)),
            };
            object.optional("_meta", &ObjectOrAbsent(meta.as_ref())).close();
        }
        out.push(b']');
    }
}

/// A completion in the form of erlmcp, which adds the first value as `text` and all values as `items`.
pub(super) struct CompletionWithItems<'a>(pub(super) &'a Completion);

impl WriteJson for CompletionWithItems<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Completion { values, total, has_more } = self.0;
        let shown = values.get(..Completion::MAX_VALUES).unwrap_or(values);
        let items: Vec<CompletionItem<'_>> = shown.iter().map(|value| CompletionItem(value)).collect();
        ObjectWriter::open(out, version)
            .optional("text", &shown.first())
            .field("items", &items[..])
            .field("values", shown)
            .optional("total", total)
            .optional("hasMore", has_more)
            .close();
    }
}

struct CompletionItem<'a>(&'a str);

impl WriteJson for CompletionItem<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        ObjectWriter::open(out, version).field("text", self.0).close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::write_unversioned_outcome;
    use crate::model::{Outcome, Root};

    fn encode(outcome: &Outcome) -> String {
        let mut out = Vec::new();
        write_unversioned_outcome(&mut out, &Dialect::erlmcp(), outcome);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reads_calls_about_roots() {
        let call = |method: &str, params: &str| {
            let params = RawJson::from(serde_json::from_str::<serde_json::Value>(params).unwrap());
            ParamsView::new(Some(&params)).unwrap().read_unversioned_call(&Dialect::official(), method)
        };
        assert_eq!(call("roots/list", "{}"), Ok(Call::ListRoots));
        let add = Call::AddRoot { uri: "file:///a".into(), name: Some("b".into()) };
        assert_eq!(call("roots/add", r#"{"uri":"file:///a","name":"b"}"#), Ok(add));
        assert!(call("roots/remove", "{}").is_err());
        assert!(call("tasks/create", "{}").is_err(), "not in every dialect");
    }

    #[test]
    fn moves_the_progress_token_into_meta() {
        let move_token = |params: &str| {
            let params = RawJson::parse(params.to_owned().into()).unwrap();
            move_progress_token(&params).map(|raw| raw.as_str().to_owned())
        };
        assert_eq!(
            move_token(r#"{"name":"x","_progressToken":"p\"q","n":123456789012345678901234567890.50}"#)
                .as_deref(),
            Some(r#"{"name":"x","n":123456789012345678901234567890.50,"_meta":{"progressToken":"p\"q"}}"#)
        );
        assert_eq!(
            move_token(r#"{"_meta":{"a":1},"_progressToken":7}"#).as_deref(),
            Some(r#"{"_meta":{"a":1,"progressToken":7}}"#)
        );
        assert_eq!(
            move_token(r#"{"_meta":{"progressToken":1},"_progressToken":7}"#),
            None,
            "`_meta` goes first"
        );
        assert_eq!(move_token(r#"{"_meta":7,"_progressToken":7}"#), None);
        assert_eq!(move_token(r#"{"name":"x"}"#), None);
    }

    #[test]
    fn erlmcp_encodings_are_supersets() {
        let completion = Completion { values: vec!["tools".into()], total: Some(1), has_more: Some(false) };
        assert_eq!(
            encode(&Outcome::Completion(completion)),
            r#"{"completion":{"text":"tools","items":[{"text":"tools"}],"values":["tools"],"total":1,"hasMore":false}}"#
        );
        let root = Root { uri: "file:///a".into(), name: Some("a".into()), meta: None };
        assert_eq!(encode(&Outcome::Roots(vec![root])), r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#);
    }

    #[test]
    fn only_change_notifications_have_short_names() {
        let encode_notification = |dialect: &Dialect, notification: &Notification| {
            let mut out = Vec::new();
            assert!(write_unversioned_notification(&mut out, dialect, notification));
            String::from_utf8(out).unwrap()
        };
        let erlmcp = Dialect::erlmcp();
        assert_eq!(
            encode_notification(&erlmcp, &Notification::ToolsChanged),
            r#"{"jsonrpc":"2.0","method":"tools/list_changed","params":{}}"#
        );
        assert_eq!(
            encode_notification(&erlmcp, &Notification::ResourceUpdated { uri: "a://b".into() }),
            r#"{"jsonrpc":"2.0","method":"resources/updated","params":{"uri":"a://b"}}"#
        );
        assert_eq!(
            encode_notification(&erlmcp, &Notification::Initialized),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
        );
        assert_eq!(
            encode_notification(&Dialect::official(), &Notification::RootsChanged),
            r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#
        );
    }
}
