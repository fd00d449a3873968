//! What a request says beside its parameters: `_meta`, its keys, and the sender's greeting.

use crate::json::RawJson;
use crate::model::{ClientCapabilities, Implementation, LogLevel};
use crate::{ProgressToken, ProtocolVersion};

/// `_meta` keys of the protocol.
pub mod meta_key {
    /// The edition of this request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What the client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Who the client is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// From which level on the client wants log messages.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Who the server is: on results.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Which listening a notice belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Which task a message belongs to: core tasks.
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// The tasks extension.
    pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
    /// What progress notices refer to.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// What is known of a client while one of its requests is handled: said in that request, or remembered
/// from the handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// The edition it speaks.
    pub protocol_version: ProtocolVersion,
    /// What it can do.
    pub capabilities: ClientCapabilities,
    /// Who it says it is.
    pub info: Option<Implementation>,
}

/// What one request says in its `_meta`, besides the greeting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// What progress notices refer to.
    pub progress_token: Option<ProgressToken>,
    /// From which level on it wants log messages.
    pub log_level: Option<LogLevel>,
    /// All of it, as it came: trace context and the keys of others.
    pub raw: Option<RawJson>,
}
