//! The record of a session in the store, which all nodes share.

use bytes::Bytes;
use serde::Serialize;
use toolgate_wire::model::{Call, InitializeParams, LogLevel, SubscriptionFilter};
use toolgate_wire::{Client, Meta, ProtocolVersion, RawJson, codec};

use crate::protocol::session::SessionValues;
use crate::util::stored_json;

/// A session as the store has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SessionRecord {
    /// Incremented with each change, so that an outdated record is recognized.
    pub(super) revision: u64,
    /// The negotiated protocol version.
    protocol_version: String,
    /// The params of `initialize`, as the codec writes them.
    initialize_params: String,
    /// Whether the params of `initialize` had no `clientInfo`.
    is_nameless: bool,
    pub(super) principal: Option<String>,
    level: u8,
    /// Whether the session is notified of changes of tools, prompts and resources.
    lists: [bool; 3],
    pub(super) uris: Vec<String>,
    /// The last change that was sent on a standalone stream.
    pub(super) position: u64,
    /// When it was created, in seconds since 1970.
    created: u64,
    /// Values that handlers keep in the session.
    #[serde(skip_serializing_if = "SessionValues::is_empty")]
    pub(super) state: SessionValues,
}

impl SessionRecord {
    pub(super) fn new(params: &InitializeParams, principal: Option<&str>, lists: [bool; 3]) -> SessionRecord {
        let mut text = Vec::new();
        let call = Call::Initialize(params.clone());
        codec::write_call_params(
            &mut text,
            ProtocolVersion::LATEST_WITH_HANDSHAKE,
            &call,
            None,
            &Meta::default(),
        );
        SessionRecord {
            revision: 1,
            protocol_version: params.version.clone(),
            initialize_params: String::from_utf8_lossy(&text).into_owned(),
            is_nameless: params.client_info.is_none(),
            principal: principal.map(str::to_owned),
            level: LogLevel::Info as u8,
            lists,
            uris: Vec::new(),
            position: 0,
            created: 0,
            state: SessionValues::new(),
        }
    }

    pub(super) fn with_start(mut self, position: u64, created: u64) -> SessionRecord {
        (self.position, self.created) = (position, created);
        self
    }

    /// Returns the record without the values of handlers, for messages to other nodes, which read them from the store.
    pub(super) fn without_state(&self) -> SessionRecord {
        SessionRecord { state: SessionValues::new(), ..self.clone() }
    }

    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Returns `None` if the bytes are not a valid record, or one of an unknown release.
    pub(super) fn decode(bytes: &[u8]) -> Option<SessionRecord> {
        let record = SessionRecord::decode_fields(bytes);
        if record.is_none() {
            let is_json = stored_json::parse(Bytes::copy_from_slice(bytes)).is_some();
            tracing::error!(bytes = bytes.len(), is_json, "a session record in the store is invalid");
        }
        record
    }

    fn decode_fields(bytes: &[u8]) -> Option<SessionRecord> {
        let raw = stored_json::parse(Bytes::copy_from_slice(bytes))?;
        let whole = raw.view();
        let text = |name: &str| Some(whole.get(name)?.as_string()?.into_owned());
        let number = |name: &str| whole.get(name)?.as_u64();
        let principal = match whole.get("principal").filter(|principal| !principal.is_null()) {
            Some(principal) => Some(principal.as_string()?.into_owned()),
            None => None,
        };
        let mut lists = whole.get("lists")?.items().map_while(|list| list.as_bool());
        let mut uris = Vec::new();
        for uri in whole.get("uris")?.items() {
            uris.push(uri.as_string()?.into_owned());
        }
        Some(SessionRecord {
            revision: number("revision")?,
            protocol_version: text("protocol_version")?,
            initialize_params: text("initialize_params")?,
            is_nameless: whole.get("is_nameless")?.as_bool()?,
            principal,
            level: number("level")?.try_into().ok()?,
            lists: [lists.next()?, lists.next()?, lists.next()?],
            uris,
            position: number("position")?,
            created: number("created")?,
            state: stored_json::object_members(&raw, "state"),
        })
    }

    /// The client as `initialize` described it.
    pub(super) fn client(&self) -> Option<Client> {
        let params = RawJson::parse(self.initialize_params.clone().into()).ok()?;
        let call =
            codec::read_call(ProtocolVersion::LATEST_WITH_HANDSHAKE, "initialize", Some(&params)).ok()?;
        let Call::Initialize(InitializeParams { capabilities, client_info, .. }) = call else {
            return None;
        };
        let info = client_info.filter(|_| !self.is_nameless);
        Some(Client { protocol_version: ProtocolVersion::parse(&self.protocol_version)?, capabilities, info })
    }

    pub(super) fn level(&self) -> LogLevel {
        LogLevel::ALL.get(usize::from(self.level)).copied().unwrap_or(LogLevel::Info)
    }

    pub(super) fn set_level(&mut self, level: LogLevel) {
        self.level = level as u8;
    }

    pub(super) fn filter(&self) -> SubscriptionFilter {
        let [tools, prompts, resources] = self.lists;
        SubscriptionFilter {
            tools,
            prompts,
            resources,
            uris: self.uris.clone(),
            ..SubscriptionFilter::default()
        }
    }

    /// Adds a resource. Returns false if there are too many.
    pub(super) fn subscribe(&mut self, uri: &str, max: usize, max_bytes: usize) -> bool {
        if self.uris.iter().any(|known| known == uri) {
            return true;
        }
        let bytes: usize = self.uris.iter().map(String::len).sum();
        if self.uris.len() >= max || bytes + uri.len() > max_bytes {
            return false;
        }
        self.uris.push(uri.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use toolgate_wire::model::{ClientCapabilities, Implementation};

    use super::*;

    #[test]
    fn a_record_restores_the_client() {
        for client in [None, Some(Implementation::new("n", "1"))] {
            for version in ProtocolVersion::ALL.into_iter().filter(|version| version.has_handshake()) {
                let capabilities = ClientCapabilities::default();
                let params = InitializeParams {
                    version: version.as_str().into(),
                    capabilities,
                    client_info: client.clone(),
                };
                let mut record =
                    SessionRecord::new(&params, Some("ada"), [true, false, true]).with_start(7, 9);
                record.state.insert("cart \"1\"".into(), RawJson::from(serde_json::json!([1, "é"])));
                let read = SessionRecord::decode(&record.encode()).unwrap();
                assert_eq!(read, record);
                let found = read.client().unwrap();
                assert_eq!(
                    (found.protocol_version, found.capabilities, found.info),
                    (version, params.capabilities, client.clone())
                );
                assert_eq!(read.level(), LogLevel::Info);
            }
        }
        assert_eq!(SessionRecord::decode(b"{}"), None);
    }
}
