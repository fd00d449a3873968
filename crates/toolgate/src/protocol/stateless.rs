//! Stateless protocol versions: every request carries the client info and mirrors its method and name in HTTP headers.

use std::sync::Arc;

use http::HeaderName;
use toolgate_wire::codec::ParamsView;
use toolgate_wire::model::{Call, DiscoverResult};
use toolgate_wire::{Client, Lifecycle, Meta, ProtocolError, ProtocolErrorKind, ProtocolVersion};

use super::exchange::{Exchange, parse_version_header};
use super::{Peer, Protocol};
use crate::headers::{HeaderField, MCP_METHOD, MCP_NAME, McpHeaders, PROTOCOL_VERSION, single_value};
use crate::registry::decode_header_value;

/// A request that carries the client info.
pub(super) struct StatelessRequest {
    pub(super) version: ProtocolVersion,
    pub(super) call: Call,
    pub(super) client: Arc<Client>,
    pub(super) meta: Meta,
    /// Whether arguments that the tool marks must be sent as headers too.
    pub(super) requires_header_params: bool,
}

impl Protocol {
    /// Whether a message follows the rules of the stateless protocol versions.
    pub(super) fn is_stateless(&self, method: &str, params: &ParamsView<'_>, headers: &McpHeaders) -> bool {
        if method == "server/discover" {
            return true;
        }
        if let Some(version) = params.protocol_version() {
            // The error for an unknown version lists the supported ones, which only these versions can express.
            return ProtocolVersion::parse(&version).is_none_or(|version| !version.has_handshake());
        }
        if method == "initialize" {
            return false;
        }
        let version = parse_version_header(&headers.version);
        version.is_some_and(|version| version.behavior().lifecycle == Lifecycle::Stateless)
    }

    /// Checks the client info and the headers of a request, in the order that clients rely on, and reads its call.
    pub(super) fn decode_stateless(
        &self,
        exchange: &Exchange<'_>,
        method: &str,
        params: &ParamsView<'_>,
    ) -> Result<StatelessRequest, ProtocolError> {
        let (named_version, client) = self.client_cache.resolve(params)?;
        let (headers, is_post) = (exchange.peer.headers.mcp(), exchange.is_post());
        if is_post
            && !headers.version.equals(&named_version)
            && required_header(&headers.version, &PROTOCOL_VERSION)? != named_version
            && !exchange.is_rewritten
        {
            return Err(header_mismatch(&PROTOCOL_VERSION, "the `_meta` of the body"));
        }
        let version = match ProtocolVersion::parse(&named_version) {
            Some(version) if !version.has_handshake() => version,
            // `server/discover` works with every version that a client may start with.
            Some(_) if method == "server/discover" => ProtocolVersion::LATEST,
            _ => return Err(ProtocolError::unsupported_version(&named_version)),
        };
        if is_post
            && !headers.method.equals(method)
            && required_header(&headers.method, &MCP_METHOD)? != method
            && !exchange.is_rewritten
        {
            return Err(header_mismatch(&MCP_METHOD, "the method of the body"));
        }
        let call = params.read_call(version, method)?;
        let requires_header_params = is_post && version.behavior().mirror_headers && !exchange.is_rewritten;
        if let (true, Some(name)) = (requires_header_params, call.mirrored_name()) {
            // Most names are sent without encoding.
            let is_equal = headers.name.equals(name) && !name.starts_with("=?");
            if !is_equal
                && decode_header_value(required_header(&headers.name, &MCP_NAME)?.as_bytes()).as_deref()
                    != Some(name)
            {
                return Err(header_mismatch(&MCP_NAME, "the body"));
            }
        }
        Ok(StatelessRequest { version, call, client, meta: params.meta()?, requires_header_params })
    }

    /// The result of `server/discover`.
    pub(super) fn discovery(&self) -> DiscoverResult {
        let server_info = self.server_info.load();
        DiscoverResult {
            versions: ProtocolVersion::supported().map(str::to_owned).collect(),
            capabilities: (self.capabilities)(),
            instructions: server_info.instructions.clone(),
            server_info: Some(server_info.implementation.clone()),
            cache: server_info.cache_hint,
        }
    }
}

/// Checks the `Mcp-Method` header of a notification. It is optional, but must not contradict the body.
pub(super) fn check_method_header(method: &str, peer: &Peer) -> Result<(), ProtocolError> {
    match single_value(&peer.headers, &MCP_METHOD) {
        Ok(None) => Ok(()),
        Ok(Some(sent)) if sent == method => Ok(()),
        _ => Err(header_mismatch(&MCP_METHOD, "the method of the body")),
    }
}

fn required_header<'a>(header: &'a HeaderField, name: &HeaderName) -> Result<&'a str, ProtocolError> {
    match header.text() {
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
