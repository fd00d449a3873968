//! Editions in which every request says who sends it, and mirrors itself in HTTP headers.

use std::sync::Arc;

use http::HeaderName;
use toolgate_wire::codec::ParamsView;
use toolgate_wire::model::{Call, DiscoverResult};
use toolgate_wire::{Client, Lifecycle, Meta, ProtocolError, ProtocolErrorKind, ProtocolVersion};

use super::version_header;
use super::{Channel, Peer, Protocol};
use crate::headers::{HeaderField, MCP_METHOD, MCP_NAME, McpHeaders, PROTOCOL_VERSION, single_value};
use crate::registry::decode_header_value;

/// A request that says who sends it.
pub(super) struct StatelessRequest {
    pub(super) version: ProtocolVersion,
    pub(super) call: Call,
    pub(super) client: Arc<Client>,
    pub(super) meta: Meta,
    /// Marked arguments must stand in headers too.
    pub(super) requires_header_params: bool,
}

impl Protocol {
    /// Whether a message is to be read by the rules of these editions.
    pub(super) fn is_stateless(&self, method: &str, said: &ParamsView<'_>, labels: &McpHeaders) -> bool {
        if method == "server/discover" {
            return true;
        }
        if let Some(version) = said.protocol_version() {
            // A date we do not know is answered with those we do, which only these editions can say.
            return ProtocolVersion::parse(&version).is_none_or(|edition| !edition.has_handshake());
        }
        if method == "initialize" {
            return false;
        }
        let named = version_header::parse_version(&labels.version);
        named.is_some_and(|edition| edition.behavior().lifecycle == Lifecycle::Stateless)
    }

    /// Checks what a request says of itself, in the order that clients rely on, and reads what it wants.
    pub(super) fn decode_stateless(
        &self,
        method: &str,
        said: &ParamsView<'_>,
        peer: &Peer,
        labels: &McpHeaders,
    ) -> Result<StatelessRequest, ProtocolError> {
        let (version, client) = self.client_cache.resolve(said)?;
        let posted = matches!(peer.via, Channel::Post { .. });
        if posted
            && !labels.version.equals(&version)
            && required_header(&labels.version, &PROTOCOL_VERSION)? != version
            && !peer.is_rewritten
        {
            return Err(header_mismatch(&PROTOCOL_VERSION, "the `_meta` of the body"));
        }
        let edition = match ProtocolVersion::parse(&version) {
            Some(edition) if !edition.has_handshake() => edition,
            // Finding out what is served works from whatever edition the client starts with.
            Some(_) if method == "server/discover" => ProtocolVersion::LATEST,
            _ => return Err(ProtocolError::unsupported_version(&version)),
        };
        if posted
            && !labels.method.equals(method)
            && required_header(&labels.method, &MCP_METHOD)? != method
            && !peer.is_rewritten
        {
            return Err(header_mismatch(&MCP_METHOD, "the method of the body"));
        }
        let call = said.read_call(edition, method)?;
        let mirrors = posted && edition.behavior().mirror_headers && !peer.is_rewritten;
        if let (true, Some(subject)) = (mirrors, call.mirrored_name()) {
            // Most names stand there as they are.
            let is_plain = labels.name.equals(subject) && !subject.starts_with("=?");
            if !is_plain
                && decode_header_value(required_header(&labels.name, &MCP_NAME)?.as_bytes()).as_deref()
                    != Some(subject)
            {
                return Err(header_mismatch(&MCP_NAME, "the body"));
            }
        }
        Ok(StatelessRequest {
            version: edition,
            call,
            client,
            meta: said.meta()?,
            requires_header_params: mirrors,
        })
    }

    /// What `server/discover` tells.
    pub(super) fn discovery(&self) -> DiscoverResult {
        let face = self.server_info.load();
        DiscoverResult {
            versions: ProtocolVersion::supported().map(str::to_owned).collect(),
            capabilities: (self.capabilities)(),
            instructions: face.instructions.clone(),
            server_info: Some(face.implementation.clone()),
            cache: face.cache_hint,
        }
    }
}

/// Notifications need not mirror themselves; one that does must tell the truth.
pub(super) fn check_method_header(method: &str, peer: &Peer) -> Result<(), ProtocolError> {
    match single_value(&peer.headers, &MCP_METHOD) {
        Ok(None) => Ok(()),
        Ok(Some(sent)) if sent == method => Ok(()),
        _ => Err(header_mismatch(&MCP_METHOD, "the method of the body")),
    }
}

fn required_header<'a>(label: &'a HeaderField, name: &HeaderName) -> Result<&'a str, ProtocolError> {
    match label.text() {
        Ok(Some(value)) => Ok(value),
        Ok(None) => {
            Err(ProtocolError::new(ProtocolErrorKind::HeaderMismatch, format!("header {name} is missing")))
        }
        Err(_) => Err(ProtocolError::new(
            ProtocolErrorKind::HeaderMismatch,
            format!("header {name} must be sent once, as text"),
        )),
    }
}

fn header_mismatch(name: &HeaderName, other: &str) -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::HeaderMismatch, format!("header {name} differs from {other}"))
}
