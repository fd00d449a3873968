//! What only clients that name no edition say and hear: calls of their own, and the shapes of dialects.

use super::base64::Base64;
use super::call::{read, read_create_task};
use super::greeting::Said;
use super::notice::{write_notice, write_short_notice};
use super::object::{Object, Open, Put};
use crate::json::{Raw, View, trusted, write_text};
use crate::meta::key;
use crate::model::{Call, Completion, Contents, ContentsBody, Notice};
use crate::{Dialect, Edition, Fault};

impl Said<'_> {
    /// The request that this is beside, of a client that names no edition and is spoken to in this dialect. Some of
    /// them no edition has: `roots/list` and its like, which are about the server's workspace, and `tasks/create`.
    ///
    /// # Errors
    /// As [`read_call`](super::read_call).
    pub fn bare_call(&self, dialect: &Dialect, method: &str) -> Result<Call, Fault> {
        match method {
            "roots/list" => Ok(Call::ListRoots),
            "roots/add" => self.add_root(),
            "roots/remove" => self.field("uri").text().map(|uri| Call::RemoveRoot { uri }),
            "tasks/create" if dialect.tasks_create => read_create_task(self),
            "tools/call" | "tasks/get" | "tasks/list" | "tasks/cancel" | "tasks/result"
                if dialect.tasks_create =>
            {
                read(Edition::E2025_11_25, method, self)
            }
            _ => read(Edition::UNNAMED, method, self),
        }
    }

    fn add_root(&self) -> Result<Call, Fault> {
        Ok(Call::AddRoot { uri: self.field("uri").text()?, name: self.field("name").maybe_text()? })
    }
}

/// Parameters as they were meant, where the token of progress stands beside
/// `_meta`. None if it does not, or if `_meta` has one.
#[must_use]
pub fn move_progress(params: &Raw) -> Option<Raw> {
    let token = params.view().get("_progressToken")?;
    let meta = params.view().get("_meta");
    if meta.is_some_and(|meta| !meta.is_object() || meta.get(key::PROGRESS).is_some()) {
        return None;
    }
    // Spliced, not parsed: numbers stay as they were written.
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
    write_member(&mut out, key::PROGRESS, token);
    out.extend_from_slice(b"}}");
    Some(trusted(out))
}

fn write_member(out: &mut Vec<u8>, name: &str, value: View<'_>) {
    write_text(out, name);
    out.push(b':');
    out.extend_from_slice(value.to_string().as_bytes());
}

/// Appends a whole notification for a client that names no edition. Writes
/// nothing and returns false if there is no such notice.
pub fn write_bare_notice(out: &mut Vec<u8>, dialect: &Dialect, notice: &Notice) -> bool {
    match dialect.short_notices && is_change(notice) {
        true => write_short_notice(out, notice),
        false => write_notice(out, Edition::UNNAMED, notice, None),
    }
}

/// Notices that some list or thing has changed; others keep their names.
fn is_change(notice: &Notice) -> bool {
    matches!(
        notice,
        Notice::ToolsChanged
            | Notice::PromptsChanged
            | Notice::ResourcesChanged
            | Notice::ResourceUpdated { .. }
            | Notice::RootsChanged
    )
}

/// Contents that say what they are.
pub(super) struct Typed<'a>(pub(super) &'a [Contents]);

impl Put for Typed<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        out.push(b'[');
        for (place, Contents { uri, mime, body, meta }) in self.0.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            let object = Object::open(out, edition).field("uri", uri).some("mimeType", mime);
            let object = match body {
                ContentsBody::Text(text) => object.field("type", "text").field("text", text),
                ContentsBody::Blob(bytes) => object.field("type", "blob").field("blob", &Base64(bytes)),
            };
            object.some("_meta", &Open(meta.as_ref())).close();
        }
        out.push(b']');
    }
}

/// A completion with what erlmcp calls its parts: the first value, and all of them as items.
pub(super) struct Itemized<'a>(pub(super) &'a Completion);

impl Put for Itemized<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Completion { values, total, has_more } = self.0;
        let shown = values.get(..Completion::MAX).unwrap_or(values);
        let items: Vec<Item<'_>> = shown.iter().map(|value| Item(value)).collect();
        Object::open(out, edition)
            .some("text", &shown.first())
            .field("items", &items[..])
            .field("values", shown)
            .some("total", total)
            .some("hasMore", has_more)
            .close();
    }
}

struct Item<'a>(&'a str);

impl Put for Item<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        Object::open(out, edition).field("text", self.0).close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::write_bare_outcome;
    use crate::model::{Outcome, Root};

    fn said(outcome: &Outcome) -> String {
        let mut out = Vec::new();
        write_bare_outcome(&mut out, &Dialect::erlmcp(), outcome);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn roots_are_asked_for_by_name() {
        let call = |method: &str, params: &str| {
            let params = Raw::from(serde_json::from_str::<serde_json::Value>(params).unwrap());
            Said::of(Some(&params)).unwrap().bare_call(&Dialect::official(), method)
        };
        assert_eq!(call("roots/list", "{}"), Ok(Call::ListRoots));
        let add = Call::AddRoot { uri: "file:///a".into(), name: Some("b".into()) };
        assert_eq!(call("roots/add", r#"{"uri":"file:///a","name":"b"}"#), Ok(add));
        assert!(call("roots/remove", "{}").is_err());
        assert!(call("tasks/create", "{}").is_err(), "not in every dialect");
    }

    #[test]
    fn progress_is_found_beside_meta() {
        let moved = |params: &str| {
            let params = Raw::parse(params.to_owned().into()).unwrap();
            move_progress(&params).map(|raw| raw.as_str().to_owned())
        };
        assert_eq!(
            moved(r#"{"name":"x","_progressToken":"p\"q","n":123456789012345678901234567890.50}"#).as_deref(),
            Some(r#"{"name":"x","n":123456789012345678901234567890.50,"_meta":{"progressToken":"p\"q"}}"#)
        );
        assert_eq!(
            moved(r#"{"_meta":{"a":1},"_progressToken":7}"#).as_deref(),
            Some(r#"{"_meta":{"a":1,"progressToken":7}}"#)
        );
        assert_eq!(moved(r#"{"_meta":{"progressToken":1},"_progressToken":7}"#), None, "`_meta` goes first");
        assert_eq!(moved(r#"{"_meta":7,"_progressToken":7}"#), None);
        assert_eq!(moved(r#"{"name":"x"}"#), None);
    }

    #[test]
    fn shapes_are_supersets() {
        let completion = Completion { values: vec!["tools".into()], total: Some(1), has_more: Some(false) };
        assert_eq!(
            said(&Outcome::Completion(completion)),
            r#"{"completion":{"text":"tools","items":[{"text":"tools"}],"values":["tools"],"total":1,"hasMore":false}}"#
        );
        let root = Root { uri: "file:///a".into(), name: Some("a".into()), meta: None };
        assert_eq!(said(&Outcome::Roots(vec![root])), r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#);
    }

    #[test]
    fn changes_have_short_names_and_nothing_else_has() {
        let told = |dialect: &Dialect, notice: &Notice| {
            let mut out = Vec::new();
            assert!(write_bare_notice(&mut out, dialect, notice));
            String::from_utf8(out).unwrap()
        };
        let erlmcp = Dialect::erlmcp();
        assert_eq!(
            told(&erlmcp, &Notice::ToolsChanged),
            r#"{"jsonrpc":"2.0","method":"tools/list_changed","params":{}}"#
        );
        assert_eq!(
            told(&erlmcp, &Notice::ResourceUpdated { uri: "a://b".into() }),
            r#"{"jsonrpc":"2.0","method":"resources/updated","params":{"uri":"a://b"}}"#
        );
        assert_eq!(
            told(&erlmcp, &Notice::Initialized),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
        );
        assert_eq!(
            told(&Dialect::official(), &Notice::RootsChanged),
            r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#
        );
    }
}
