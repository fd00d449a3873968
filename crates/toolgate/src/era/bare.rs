//! Clients that name no edition, where the server has a dialect for them: what it overlooks, and what it tells
//! them of itself.

use std::borrow::Cow;

use bytes::Bytes;
use toolgate_wire::model::{Implementation, Outcome, ServerCapabilities, Welcome};
use toolgate_wire::{Edition, Kind, Raw, RequestId, codec};

use super::speech::Speech;
use super::{Answer, Era, Face, Peer};

/// A message as it was meant: without blanks around its method, with `arguments` where `args` stands. None if it
/// needs no mending, or nobody here does any.
pub(super) fn mend<'a>(peer: &Peer, method: &'a str, params: Option<&Raw>) -> Option<(&'a str, Option<Raw>)> {
    if !peer.dialect().lenient {
        return None;
    }
    let trimmed = method.trim();
    let renamed = params.filter(|_| trimmed == "tools/call").and_then(rename_arguments);
    if trimmed.len() == method.len() && renamed.is_none() {
        return None;
    }
    Some((trimmed, renamed.or_else(|| params.cloned())))
}

fn rename_arguments(params: &Raw) -> Option<Raw> {
    let view = params.view();
    if view.kind() != Kind::Object || view.get("arguments").is_some() {
        return None;
    }
    let arguments = view.get("args")?;
    let mut members: serde_json::Map<String, serde_json::Value> = view
        .members()
        .filter(|(name, _)| name != "args")
        .map(|(name, value)| (Cow::into_owned(name), value.to_value()))
        .collect();
    members.insert("arguments".into(), arguments.to_value());
    Some(Raw::from(serde_json::Value::Object(members)))
}

/// What is offered to somebody who is not remembered, and so can be told of no change.
pub(super) fn unheard(offered: ServerCapabilities) -> ServerCapabilities {
    ServerCapabilities {
        tools: offered.tools.map(|_| false),
        resources: offered.resources.map(|_| false),
        prompts: offered.prompts.map(|_| false),
        resource_updates: false,
        ..offered
    }
}

impl Era {
    /// Answers an `initialize` that names no edition, where that is overlooked. Nobody is remembered for it.
    pub(super) fn nod(&self, id: &RequestId, params: Option<&Raw>, peer: &Peer) -> Option<Answer> {
        let pinned = peer.dialect().pinned.filter(|_| peer.dialect().lenient)?;
        let names_one = params.is_some_and(|params| params.view().get("protocolVersion").is_some());
        if names_one || !matches!(self.speech(peer), Speech::Bare(_)) {
            return None;
        }
        let face = self.face.load();
        let welcome = self.introduction(pinned, &face, face.instructions.clone());
        Some(self.answer(&Speech::bare(peer), id, &welcome))
    }

    /// What a GET is answered with that asks for no stream. None where a GET is no question.
    pub(crate) fn introduce(&self, peer: &Peer, id: Option<&str>) -> Option<Bytes> {
        let dialect = peer.dialect();
        if !dialect.discovery || !matches!(self.speech(peer), Speech::Bare(_)) {
            return None;
        }
        let face = self.face.load();
        let pinned = dialect.pinned.unwrap_or(Edition::NEWEST_HANDSHAKE);
        let outcome = self.introduction(pinned, &face, None);
        let mut out = b"{\"jsonrpc\":\"2.0\",\"result\":".to_vec();
        codec::write_outcome(&mut out, pinned, &outcome, Some(&face.info));
        if let Some(id) = id {
            out.extend_from_slice(b",\"id\":");
            let id = id.parse().map_or_else(|_| RequestId::from(id), |id: i64| RequestId::from(id));
            id.write(&mut out);
        }
        out.push(b'}');
        Some(out.into())
    }

    fn introduction(&self, edition: Edition, face: &Face, instructions: Option<String>) -> Outcome {
        let offered = unheard((self.offering)());
        Outcome::Welcome(Box::new(Welcome {
            version: edition.date().to_owned(),
            capabilities: ServerCapabilities {
                tools: offered.tools,
                resources: offered.resources,
                prompts: offered.prompts,
                ..ServerCapabilities::default()
            },
            server: Implementation {
                name: face.info.name.clone(),
                version: face.info.version.clone(),
                ..Implementation::default()
            },
            instructions,
        }))
    }
}
