//! Clients that name no edition, where the server has a dialect for them: what it overlooks, and what it tells
//! them of itself.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use toolgate_wire::model::{Implementation, InitializeResult, Notification, Outcome, ServerCapabilities};
use toolgate_wire::{
    GetDiscovery, Kind, Leniency, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RequestId,
    codec,
};

use super::wire_format::WireFormat;
use super::{Channel, ClientState, Peer, Protocol, Reply, ServerInfo};
use crate::observe::Transport;

/// A message as it was meant: without blanks around its method, with `arguments` where `args` stands, with the token of
/// progress where it belongs. None if it needs no mending, or nobody here does any.
pub(super) fn normalize<'a>(
    peer: &Peer,
    method: &'a str,
    params: Option<&RawJson>,
) -> Option<(&'a str, Option<RawJson>)> {
    let dialect = peer.dialect();
    let trimmed = if dialect.lenient { method.trim() } else { method };
    let renames = dialect.lenient && trimmed == "tools/call";
    let mut mended = params.filter(|_| renames).and_then(rename_arguments);
    if dialect.top_level_progress_token {
        let moved = mended.as_ref().or(params).and_then(codec::move_progress_token);
        mended = moved.or(mended);
    }
    if trimmed.len() == method.len() && mended.is_none() {
        return None;
    }
    Some((trimmed, mended.or_else(|| params.cloned())))
}

fn rename_arguments(params: &RawJson) -> Option<RawJson> {
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
    Some(RawJson::from(serde_json::Value::Object(members)))
}

/// What is offered to somebody who is not remembered, and so can set nothing and be told of no change.
pub(super) fn without_notifications(offered: ServerCapabilities) -> ServerCapabilities {
    ServerCapabilities {
        tools: offered.tools.map(|_| false),
        resources: offered.resources.map(|_| false),
        prompts: offered.prompts.map(|_| false),
        resource_updates: false,
        // The level that somebody sets is remembered, or it is nothing.
        logging: false,
        ..offered
    }
}

/// What is said right after the answer to a greeting, where the server speaks then too.
pub(super) fn initialized_notification(peer: &Peer) -> Option<Bytes> {
    let mut out = Vec::new();
    let is_said = peer.dialect().sends_initialized
        && WireFormat::unversioned(peer).write_notification(&mut out, &Notification::Initialized, None);
    is_said.then(|| out.into())
}

/// What a server is and how clients find it, for people.
fn discovery_catalog(face: &ServerInfo, here: &str, tools: &[String]) -> Bytes {
    let Implementation { name, version, description, .. } = &face.implementation;
    let at = |entry: serde_json::Value| serde_json::json!({ name: entry });
    let told = serde_json::json!({
        "name": name,
        "version": version,
        "description": description.as_deref().or(face.instructions.as_deref()).unwrap_or_default(),
        "endpoint": here,
        "transport": "streamable-http",
        "tools": tools.len(),
        "tool_names": tools,
        "config": {
            "claude_desktop": {
                "mcpServers": at(serde_json::json!({ "command": "npx", "args": ["-y", "mcp-remote", here] })),
            },
            "claude_code": { "mcpServers": at(serde_json::json!({ "type": "http", "url": here })) },
            "cursor": { "mcpServers": at(serde_json::json!({ "url": here })) },
            "vscode": { "servers": at(serde_json::json!({ "type": "http", "url": here })) },
        },
    });
    told.to_string().into()
}

impl Protocol {
    /// What is overlooked in messages of this peer; none if nothing is.
    pub(crate) fn leniency(&self, peer: &Peer) -> Option<Leniency> {
        let dialect = peer.dialect();
        let forgiving = Leniency {
            ignore_array_params: dialect.ignore_array_params,
            ignore_null_ids: dialect.null_id_is_notification,
        };
        let is_bare = forgiving != Leniency::default()
            && matches!(self.client_state(peer), Ok(ClientState::Unversioned));
        is_bare.then_some(forgiving)
    }

    /// Whether `initialize` has to come before this. Whoever calls from within the program needs no introduction.
    pub(super) fn requires_initialize(&self, method: &str, peer: &Peer) -> bool {
        self.sessions.requires_initialize() && method != "ping" && peer.transport != Transport::Memory
    }

    /// Where a greeting is required, it has to be right: once, with a version that is served, and a name.
    pub(super) fn check_initialize(
        &self,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Result<(), (WireFormat, ProtocolError)> {
        if !self.sessions.requires_initialize() {
            return Ok(());
        }
        let greeted = match (&peer.via, self.client_state(peer)) {
            (Channel::Duplex(line), _) => line.session(),
            (Channel::Post { .. }, Ok(ClientState::Session(session))) => Some(session),
            (Channel::Post { .. }, _) => None,
        };
        if let Some(session) = greeted {
            let fault =
                ProtocolError::new(ProtocolErrorKind::NotInitialized, "this session is already initialized");
            return Err((session.client.protocol_version.into(), fault));
        }
        let params = params.map(RawJson::view).filter(|params| params.kind() == Kind::Object);
        let version = params.and_then(|params| params.get("protocolVersion")?.as_string());
        match version {
            Some(version)
                if !ProtocolVersion::parse(&version).is_some_and(ProtocolVersion::has_handshake) =>
            {
                let served: Vec<&str> = ProtocolVersion::ALL
                    .into_iter()
                    .filter(|edition| edition.has_handshake())
                    .map(ProtocolVersion::as_str)
                    .collect();
                let data = serde_json::json!({ "supported_versions": served, "requested_version": version });
                Err((
                    WireFormat::unversioned(peer),
                    ProtocolError::unsupported_version(&version).with_data(RawJson::from(data)),
                ))
            }
            _ if params.and_then(|params| params.get("clientInfo")).is_none() => Err((
                WireFormat::unversioned(peer),
                ProtocolError::invalid_params("params.clientInfo is missing"),
            )),
            _ => Ok(()),
        }
    }

    /// Answers an `initialize` that names no edition, where that is overlooked. Nobody is remembered for it.
    pub(super) fn lenient_initialize(
        &self,
        id: &RequestId,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Option<Reply> {
        let pinned = peer.dialect().default_version.filter(|_| peer.dialect().lenient)?;
        let names_one = params.is_some_and(|params| params.view().get("protocolVersion").is_some());
        if names_one || !matches!(self.wire_format(peer), WireFormat::Unversioned(_)) {
            return None;
        }
        let face = self.server_info.load();
        let welcome = self.initialize_result(pinned, &face, face.instructions.clone());
        Some(self.reply(&WireFormat::unversioned(peer), id, &welcome))
    }

    /// What a GET is answered with that asks for no stream. None where a GET is no question.
    /// `here` is the address that was asked, `tools` are the names of those that the caller sees.
    pub(crate) fn discovery_document(
        &self,
        peer: &Peer,
        id: Option<&str>,
        here: &str,
        tools: impl FnOnce() -> Vec<String>,
    ) -> Option<Bytes> {
        let dialect = peer.dialect();
        if !matches!(self.wire_format(peer), WireFormat::Unversioned(_)) {
            return None;
        }
        let face = self.server_info.load();
        match dialect.discovery {
            GetDiscovery::Initialize => {}
            GetDiscovery::Status => return Some(self.status_document(&face)),
            GetDiscovery::Catalog => return Some(discovery_catalog(&face, here, &tools())),
            _ => return None,
        }
        let pinned = dialect.default_version.unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE);
        let outcome = self.initialize_result(pinned, &face, None);
        let mut out = b"{\"jsonrpc\":\"2.0\",\"result\":".to_vec();
        codec::write_outcome(&mut out, pinned, &outcome, Some(&face.implementation));
        if let Some(id) = id {
            out.extend_from_slice(b",\"id\":");
            let id = id.parse().map_or_else(|_| RequestId::from(id), |id: i64| RequestId::from(id));
            id.write(&mut out);
        }
        out.push(b'}');
        Some(out.into())
    }

    /// That the server is there.
    fn status_document(&self, face: &ServerInfo) -> Bytes {
        let state = if self.is_paused.load(Ordering::Relaxed) { "paused" } else { "active" };
        let told = serde_json::json!({ "name": face.implementation.name, "version": face.implementation.version, "status": state });
        told.to_string().into()
    }

    fn initialize_result(
        &self,
        edition: ProtocolVersion,
        face: &ServerInfo,
        instructions: Option<String>,
    ) -> Outcome {
        let offered = without_notifications((self.capabilities)());
        Outcome::Initialize(Box::new(InitializeResult {
            version: edition.as_str().to_owned(),
            capabilities: ServerCapabilities {
                tools: offered.tools,
                resources: offered.resources,
                prompts: offered.prompts,
                ..ServerCapabilities::default()
            },
            server_info: Implementation {
                name: face.implementation.name.clone(),
                version: face.implementation.version.clone(),
                ..Implementation::default()
            },
            instructions,
        }))
    }
}
