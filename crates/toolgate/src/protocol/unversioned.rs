//! Serves a client that names no protocol version: it gets the JSON shapes of [`ProtocolVersion::FALLBACK`], or those of the
//! server's dialect, which also decides which mistakes are overlooked and how the server describes itself.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use toolgate_wire::model::{Implementation, InitializeResult, Notification, Outcome, ServerCapabilities};
use toolgate_wire::{
    GetDiscovery, Kind, Leniency, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, RequestId,
    codec,
};

use super::exchange::{ClientState, Exchange, FormattedError};
use super::wire_format::WireFormat;
use super::{Channel, Peer, Protocol, Reply, ServerInfo};
use crate::observe::Transport;

/// Corrects a message as far as the dialect allows: trims the method, renames `args` to `arguments`, moves the progress token
/// to `_meta`. Returns `None` if nothing changes.
pub(super) fn normalize<'a>(
    peer: &Peer,
    method: &'a str,
    params: Option<&RawJson>,
) -> Option<(&'a str, Option<RawJson>)> {
    let dialect = peer.dialect();
    let trimmed = if dialect.lenient { method.trim() } else { method };
    let renames_args = dialect.lenient && trimmed == "tools/call";
    let mut normalized = params.filter(|_| renames_args).and_then(rename_arguments);
    if dialect.top_level_progress_token {
        let moved = normalized.as_ref().or(params).and_then(codec::move_progress_token);
        normalized = moved.or(normalized);
    }
    if trimmed.len() == method.len() && normalized.is_none() {
        return None;
    }
    Some((trimmed, normalized.or_else(|| params.cloned())))
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

/// Removes the capabilities that need a session: change notifications, subscriptions and the log level.
pub(super) fn without_notifications(mut capabilities: ServerCapabilities) -> ServerCapabilities {
    capabilities.tools = capabilities.tools.map(|_| false);
    capabilities.resources = capabilities.resources.map(|_| false);
    capabilities.prompts = capabilities.prompts.map(|_| false);
    capabilities.resource_updates = false;
    capabilities.logging = false;
    capabilities
}

/// The notification that some dialects send right after the result of `initialize`.
pub(super) fn initialized_notification(peer: &Peer) -> Option<Bytes> {
    let mut out = Vec::new();
    let is_sent = peer.dialect().sends_initialized
        && WireFormat::unversioned(peer).write_notification(&mut out, &Notification::Initialized, None);
    is_sent.then(|| out.into())
}

/// A JSON page for people: a description of the server, and how to configure clients for it.
fn discovery_catalog(server_info: &ServerInfo, url: &str, tools: &[String]) -> Bytes {
    let Implementation { name, version, description, .. } = &server_info.implementation;
    let at = |entry: serde_json::Value| serde_json::json!({ name: entry });
    let catalog = serde_json::json!({
        "name": name,
        "version": version,
        "description": description.as_deref().or(server_info.instructions.as_deref()).unwrap_or_default(),
        "endpoint": url,
        "transport": "streamable-http",
        "tools": tools.len(),
        "tool_names": tools,
        "config": {
            "claude_desktop": {
                "mcpServers": at(serde_json::json!({ "command": "npx", "args": ["-y", "mcp-remote", url] })),
            },
            "claude_code": { "mcpServers": at(serde_json::json!({ "type": "http", "url": url })) },
            "cursor": { "mcpServers": at(serde_json::json!({ "url": url })) },
            "vscode": { "servers": at(serde_json::json!({ "type": "http", "url": url })) },
        },
    });
    catalog.to_string().into()
}

impl Protocol {
    /// The mistakes that are overlooked in messages of this sender. Returns `None` if there are none.
    pub(crate) fn leniency(&self, exchange: &mut Exchange<'_>) -> Option<Leniency> {
        let dialect = exchange.peer.dialect();
        let leniency = Leniency {
            ignore_array_params: dialect.ignore_array_params,
            ignore_null_ids: dialect.null_id_is_notification,
        };
        (leniency != Leniency::default() && exchange.is_unversioned(self)).then_some(leniency)
    }

    /// Whether `initialize` has to come before this request. Calls from within the program are exempt.
    pub(super) fn requires_initialize(&self, method: &str, peer: &Peer) -> bool {
        self.sessions.requires_initialize() && method != "ping" && peer.transport != Transport::Memory
    }

    /// Checks `initialize` strictly, on servers that require it: sent once, with a supported version and client info.
    pub(super) fn check_initialize(
        &self,
        exchange: &mut Exchange<'_>,
        params: Option<&RawJson>,
    ) -> Result<(), FormattedError> {
        if !self.sessions.requires_initialize() {
            return Ok(());
        }
        let peer = exchange.peer;
        let initialized_version = match &peer.via {
            Channel::Duplex(connection) => {
                connection.session().map(|session| session.client.protocol_version)
            }
            Channel::Post { .. } => match exchange.client(self) {
                Ok(ClientState::Session(session)) => Some(session.client.protocol_version),
                _ => None,
            },
        };
        if let Some(version) = initialized_version {
            let message = "this session is already initialized";
            let error = ProtocolError::new(ProtocolErrorKind::NotInitialized, message);
            return Err(FormattedError::new(version, error));
        }
        let params = params.map(RawJson::view).filter(|params| params.kind() == Kind::Object);
        let version = params.and_then(|params| params.get("protocolVersion")?.as_string());
        let error = match version {
            Some(version)
                if !ProtocolVersion::parse(&version).is_some_and(ProtocolVersion::has_handshake) =>
            {
                let supported: Vec<&str> = ProtocolVersion::ALL
                    .into_iter()
                    .filter(|version| version.has_handshake())
                    .map(ProtocolVersion::as_str)
                    .collect();
                let data =
                    serde_json::json!({ "supported_versions": supported, "requested_version": version });
                ProtocolError::unsupported_version(&version).with_data(RawJson::from(data))
            }
            _ if params.and_then(|params| params.get("clientInfo")).is_none() => {
                ProtocolError::invalid_params("params.clientInfo is missing")
            }
            _ => return Ok(()),
        };
        Err(FormattedError::new(WireFormat::unversioned(peer), error))
    }

    /// Replies to an `initialize` that names no protocol version, where the dialect allows it. No session is created.
    pub(super) fn lenient_initialize(
        &self,
        exchange: &mut Exchange<'_>,
        id: &RequestId,
        params: Option<&RawJson>,
    ) -> Option<Reply> {
        let peer = exchange.peer;
        let version = peer.dialect().default_version.filter(|_| peer.dialect().lenient)?;
        let names_version = params.is_some_and(|params| params.view().get("protocolVersion").is_some());
        if names_version || !exchange.is_unversioned(self) {
            return None;
        }
        let server_info = self.server_info.load();
        let result = self.initialize_result(version, &server_info, server_info.instructions.clone());
        Some(self.reply(&WireFormat::unversioned(peer), id, &result))
    }

    /// The body for a GET that does not accept a stream. Returns `None` if the dialect has no such document. `url` is the
    /// address of the endpoint, `tools` returns the names of the tools that the caller sees.
    pub(crate) fn discovery_document(
        &self,
        peer: &Peer,
        id: Option<&str>,
        url: &str,
        tools: impl FnOnce() -> Vec<String>,
    ) -> Option<Bytes> {
        let dialect = peer.dialect();
        if !self.is_unversioned(peer) {
            return None;
        }
        let server_info = self.server_info.load();
        match dialect.discovery {
            GetDiscovery::Initialize => {}
            GetDiscovery::Status => return Some(self.status_document(&server_info)),
            GetDiscovery::Catalog => return Some(discovery_catalog(&server_info, url, &tools())),
            _ => return None,
        }
        let version = dialect.default_version.unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE);
        let outcome = self.initialize_result(version, &server_info, None);
        let mut out = b"{\"jsonrpc\":\"2.0\",\"result\":".to_vec();
        codec::write_outcome(&mut out, version, &outcome, Some(&server_info.implementation));
        if let Some(id) = id {
            out.extend_from_slice(b",\"id\":");
            let id = id.parse().map_or_else(|_| RequestId::from(id), |id: i64| RequestId::from(id));
            id.write(&mut out);
        }
        out.push(b'}');
        Some(out.into())
    }

    /// A JSON status of the server.
    fn status_document(&self, server_info: &ServerInfo) -> Bytes {
        let state = if self.is_paused.load(Ordering::Relaxed) { "paused" } else { "active" };
        let Implementation { name, version, .. } = &server_info.implementation;
        serde_json::json!({ "name": name, "version": version, "status": state }).to_string().into()
    }

    fn initialize_result(
        &self,
        version: ProtocolVersion,
        server_info: &ServerInfo,
        instructions: Option<String>,
    ) -> Outcome {
        let offered = without_notifications((self.capabilities)());
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = offered.tools;
        capabilities.resources = offered.resources;
        capabilities.prompts = offered.prompts;
        Outcome::Initialize(Box::new(InitializeResult {
            version: version.as_str().to_owned(),
            capabilities,
            server_info: Implementation::new(
                &server_info.implementation.name,
                &server_info.implementation.version,
            ),
            instructions,
        }))
    }
}
