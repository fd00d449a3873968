//! `_meta` of requests: its keys, and the client information in it.

use crate::json::RawJson;
use crate::model::{ClientCapabilities, Implementation, LogLevel};
use crate::{ProgressToken, ProtocolVersion};

/// `_meta` keys of the protocol.
pub mod meta_key {
    /// The protocol version of the request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The capabilities of the client.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The minimum level of log messages that the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Name and version of the server, on results.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The subscription that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// The task that a message belongs to (core tasks).
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// The id of the tasks extension.
    pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
    /// The token that progress notifications for this request carry.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// The client of a request, as described by the request itself or by the handshake of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// The protocol version of the client.
    pub protocol_version: ProtocolVersion,
    /// The capabilities that the client declared.
    pub capabilities: ClientCapabilities,
    /// Name and version of the client, as the client states them.
    pub info: Option<Implementation>,
}

/// The `_meta` of a request, except the client information.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// The token that progress notifications for this request carry.
    pub progress_token: Option<ProgressToken>,
    /// The minimum level of log messages that the client wants.
    pub log_level: Option<LogLevel>,
    /// The whole object as received, including trace context and foreign keys.
    pub raw: Option<RawJson>,
}
