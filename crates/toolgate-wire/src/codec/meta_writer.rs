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
    /// Returns `None` if `_meta` would be empty in `version`.
    pub(super) fn for_version(
        version: ProtocolVersion,
        client: Option<&'a Client>,
        meta: &'a Meta,
    ) -> Option<RequestMeta<'a>> {
        let client = client.filter(|_| version.behavior().lifecycle == Lifecycle::Stateless);
        let request = RequestMeta { client, meta, version };
        let has_log_level = meta.log_level.is_some() && version >= V2026_07_28;
        let has_own_keys = client.is_some() || meta.progress_token.is_some() || has_log_level;
        let forwarded = || {
            ObjectOrAbsent(meta.raw.as_ref())
                .object()?
                .view()
                .members()
                .find(|(name, _)| request.forwards(name))
        };
        (has_own_keys || forwarded().is_some()).then_some(request)
    }

    /// Whether a key of the original request is forwarded. Keys that we write ourselves are not. Client information
    /// that was meant for us must not be forwarded either, or an older server would treat the request as one of a newer
    /// version.
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
        let Meta { progress_token, log_level, raw } = self.meta;
        let mut object = ObjectWriter::open(out, version);
        if let Some(client) = self.client {
            // The request uses this version, whatever the client used before.
            let Client { protocol_version: _, capabilities, info } = client;
            object = object
                .field(meta_key::PROTOCOL_VERSION, version.as_str())
                .field(meta_key::CLIENT_CAPABILITIES, capabilities)
                .optional(meta_key::CLIENT_INFO, info);
        }
        object
            .optional(meta_key::PROGRESS_TOKEN, progress_token)
            .since(V2026_07_28, meta_key::LOG_LEVEL, log_level)
            .copy_members(raw.as_ref(), |name| self.forwards(name))
            .close();
    }
}

/// The server information on a result.
#[derive(Clone, Copy)]
pub(super) enum ServerInfoRef<'a> {
    Value(&'a Implementation),
    /// Server information that was encoded earlier, for this version.
    Encoded(&'a RawJson),
}

impl WriteJson for ServerInfoRef<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match self {
            ServerInfoRef::Value(server_info) => server_info.write_json(out, version),
            ServerInfoRef::Encoded(server_info) => out.extend_from_slice(server_info.as_bytes()),
        }
    }
}

/// The `_meta` of a result or notification that we send: the value's own keys, and those of the protocol.
#[derive(Clone, Copy, Default)]
pub(super) struct ResultMeta<'a> {
    /// The value's own `_meta`, an object.
    pub(super) custom: Option<&'a RawJson>,
    /// The server that responds.
    pub(super) server_info: Option<ServerInfoRef<'a>>,
    /// The subscription that the message belongs to.
    pub(super) subscription_id: Option<&'a RequestId>,
    /// The core task that the message belongs to.
    pub(super) task_id: Option<&'a str>,
}

impl WriteJson for ResultMeta<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let ResultMeta { custom, server_info, subscription_id, task_id } = *self;
        if let (Some(custom), None, None, None) =
            (ObjectOrAbsent(custom).object(), server_info, subscription_id, task_id)
        {
            return custom.write_json(out, version);
        }
        let related = task_id.map(|id| nest(move |object| object.field("taskId", id)));
        ObjectWriter::open(out, version)
            .optional(meta_key::SERVER_INFO, &server_info)
            .optional(meta_key::SUBSCRIPTION_ID, &subscription_id)
            .optional(meta_key::RELATED_TASK, &related)
            .copy_members(custom, |name| match name {
                meta_key::SERVER_INFO => server_info.is_none(),
                meta_key::SUBSCRIPTION_ID => subscription_id.is_none(),
                meta_key::RELATED_TASK => task_id.is_none(),
                _ => true,
            })
            .close();
    }

    fn is_absent(&self) -> bool {
        let ResultMeta { custom, server_info, subscription_id, task_id } = *self;
        let custom = custom.is_some_and(|custom| custom.view().is_object());
        !custom && server_info.is_none() && subscription_id.is_none() && task_id.is_none()
    }
}

/// Reads the subscription that a message belongs to.
pub(super) fn read_subscription_id(reader: &ObjectReader<'_>) -> Option<RequestId> {
    let meta = reader.field("_meta").value()?;
    RequestId::read(meta.get(meta_key::SUBSCRIPTION_ID)?)
}
