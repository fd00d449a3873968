//! Writes `_meta` on requests, results and notifications.

use super::fields::ObjectReader;
use super::object::{ObjectOrAbsent, ObjectWriter, WriteJson, nest};
use crate::ProtocolVersion::{self, V2026_07_28};
use crate::RequestId;
use crate::json::RawJson;
use crate::meta::{Client, Meta, meta_key};
use crate::model::Implementation;
use crate::protocol_version::Lifecycle;

/// The `_meta` of a request that we send.
pub(super) struct RequestMeta<'a> {
    client: Option<&'a Client>,
    meta: &'a Meta,
    version: ProtocolVersion,
}

impl<'a> RequestMeta<'a> {
    /// None if there is nothing to say in `edition`.
    pub(super) fn for_version(
        version: ProtocolVersion,
        client: Option<&'a Client>,
        meta: &'a Meta,
    ) -> Option<RequestMeta<'a>> {
        let client = client.filter(|_| version.behavior().lifecycle == Lifecycle::Stateless);
        let request = RequestMeta { client, meta, version };
        let level = meta.log_level.is_some() && version >= V2026_07_28;
        let said = client.is_some() || meta.progress_token.is_some() || level;
        let kept = || {
            ObjectOrAbsent(meta.raw.as_ref())
                .object()?
                .view()
                .members()
                .find(|(name, _)| request.forwards(name))
        };
        (said || kept().is_some()).then_some(request)
    }

    /// Whether a key that came from elsewhere is passed on. What we say
    /// ourselves is not; and a greeting that was meant for us must not be, or
    /// an older server would take the request for one of a newer edition.
    fn forwards(&self, name: &str) -> bool {
        match name {
            meta_key::PROGRESS_TOKEN | meta_key::LOG_LEVEL => false,
            meta_key::PROTOCOL_VERSION | meta_key::CLIENT_CAPABILITIES | meta_key::CLIENT_INFO => {
                self.client.is_none() && self.version.behavior().lifecycle == Lifecycle::Stateless
            }
            _ => true,
        }
    }
}

impl WriteJson for RequestMeta<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let Meta { progress_token: progress, log_level, raw } = self.meta;
        let mut object = ObjectWriter::open(out, version);
        if let Some(client) = self.client {
            // The request is in this edition, whatever was spoken before.
            let Client { protocol_version: _, capabilities, info } = client;
            object = object
                .field(meta_key::PROTOCOL_VERSION, version.as_str())
                .field(meta_key::CLIENT_CAPABILITIES, capabilities)
                .optional(meta_key::CLIENT_INFO, info);
        }
        object
            .optional(meta_key::PROGRESS_TOKEN, progress)
            .since(V2026_07_28, meta_key::LOG_LEVEL, log_level)
            .copy_members(raw.as_ref(), |name| self.forwards(name))
            .close();
    }
}

/// Who answers.
#[derive(Clone, Copy)]
pub(super) enum ServerInfoRef<'a> {
    Value(&'a Implementation),
    /// An implementation that was written before, in this edition.
    Encoded(&'a RawJson),
}

impl WriteJson for ServerInfoRef<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self {
            ServerInfoRef::Value(server) => server.write_json(out, version),
            ServerInfoRef::Encoded(server) => out.extend_from_slice(server.as_bytes()),
        }
    }
}

/// The `_meta` of a result or notification that we send: what the value
/// brings, and what the protocol says beside it.
#[derive(Clone, Copy, Default)]
pub(super) struct ResultMeta<'a> {
    /// The value's own, an object.
    pub(super) custom: Option<&'a RawJson>,
    /// Who answers.
    pub(super) server_info: Option<ServerInfoRef<'a>>,
    /// Which listening this belongs to.
    pub(super) subscription_id: Option<&'a RequestId>,
    /// Which core task this belongs to.
    pub(super) task_id: Option<&'a str>,
}

impl WriteJson for ResultMeta<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ResultMeta { custom: own, server_info: server, subscription_id: subscription, task_id: task } =
            *self;
        if let (Some(own), None, None, None) = (ObjectOrAbsent(own).object(), server, subscription, task) {
            return own.write_json(out, version);
        }
        let related = task.map(|id| nest(move |object| object.field("taskId", id)));
        ObjectWriter::open(out, version)
            .optional(meta_key::SERVER_INFO, &server)
            .optional(meta_key::SUBSCRIPTION_ID, &subscription)
            .optional(meta_key::RELATED_TASK, &related)
            .copy_members(own, |name| match name {
                meta_key::SERVER_INFO => server.is_none(),
                meta_key::SUBSCRIPTION_ID => subscription.is_none(),
                meta_key::RELATED_TASK => task.is_none(),
                _ => true,
            })
            .close();
    }

    fn is_absent(&self) -> bool {
        let ResultMeta { custom: own, server_info: server, subscription_id: subscription, task_id: task } =
            *self;
        let own = own.is_some_and(|own| own.view().is_object());
        !own && server.is_none() && subscription.is_none() && task.is_none()
    }
}

/// Which listening a message belongs to.
pub(super) fn read_subscription_id(part: &ObjectReader<'_>) -> Option<RequestId> {
    let meta = part.field("_meta").value()?;
    RequestId::read(meta.get(meta_key::SUBSCRIPTION_ID)?)
}
