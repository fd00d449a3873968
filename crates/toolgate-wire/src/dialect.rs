//! Dialects: variations of the protocol for clients that send no protocol version, as one table.
//!
//! A dialect only applies if a client sends no protocol version: no handshake, no version header, no `_meta`, as in a
//! plain `curl` command. It changes error codes, messages and small details, so that a server can replace an existing one.
//! Clients that send a protocol version never see any of it.

mod erlmcp;

pub use erlmcp::ErlmcpError;

use crate::json::RawJson;
use crate::protocol_error::single_string_object;
use crate::{ProtocolError, ProtocolErrorKind, ProtocolVersion};

/// How a server responds to clients that send no protocol version.
///
/// Start from a preset and change what differs:
///
/// ```
/// # use toolgate_wire::Dialect;
/// let mut dialect = Dialect::boxlang();
/// dialect.tool_error_code = Some(-32000);
/// assert_eq!(dialect.name, "boxlang");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Dialect {
    /// The name of the dialect.
    pub name: &'static str,
    /// The response to a GET that does not request a stream.
    pub discovery: GetDiscovery,
    /// The protocol version for `initialize` without a version, and in the response to a GET.
    pub default_version: Option<ProtocolVersion>,
    /// Whether incomplete requests are accepted where possible: `initialize` without parameters, spaces around a method,
    /// `args` for `arguments`.
    pub lenient: bool,
    /// The message prefix before the name of an unknown method.
    pub unknown_method_message: &'static str,
    /// Error code and message for an unknown tool. The name is appended to a message that ends in `: `.
    pub unknown_tool: (i64, &'static str),
    /// Error code and message for an unknown resource.
    pub unknown_resource: (i64, &'static str),
    /// Error code and message for an unknown prompt.
    pub unknown_prompt: (i64, &'static str),
    /// The error code for a failed tool. `None`: the failure is sent as a result with `isError`.
    pub tool_error_code: Option<i64>,
    /// The prefix before the message of a failed tool.
    pub tool_error_prefix: &'static str,
    /// The message for an internal failure of a tool, before the reference. `None`: the default message.
    pub internal_error_message: Option<&'static str>,
    /// Error code and message if a dependency of a tool is unavailable. `None`: like other failures.
    pub unavailable: Option<(i64, &'static str)>,
    /// The prefix before the name of a missing argument. `None`: the validation error as it is.
    pub missing_argument_message: Option<&'static str>,
    /// The error code for invalid tool arguments. `None`: they are reported as a result with `isError`.
    pub invalid_arguments_code: Option<i64>,
    /// The error code for a missing prompt argument.
    pub missing_prompt_argument_code: i64,
    /// The error code for an invalid cursor.
    pub invalid_cursor_code: i64,
    /// The error code for an unknown task.
    pub unknown_task_code: i64,
    /// The error codes for an invalid, a duplicate and an unknown root.
    pub root_error_codes: [i64; 3],
    /// The error code for an unsupported protocol version, where the version is not negotiated.
    pub unsupported_version_code: i64,
    /// The error code for a message that is too large.
    pub too_large_code: i64,
    /// The error code for missing or wrong credentials.
    pub unauthorized_code: i64,
    /// Whether authentication errors have the form of WordPress REST errors: `code`, `message` and `data.status`, without
    /// a JSON-RPC envelope.
    pub wordpress_errors: bool,
    /// The error code for an exceeded rate limit.
    pub rate_limited_code: i64,
    /// The HTTP status of internal errors.
    pub internal_status: u16,
    /// Whether lists of features that the server does not have are empty, instead of an unknown method.
    pub empty_lists: bool,
    /// Whether prompt messages may have the role `system`.
    pub system_role: bool,
    /// Whether batches are accepted. `None`: as the assumed protocol version does.
    pub batches: Option<bool>,
    /// Whether errors name the tool, prompt, resource or task they are about in `data`.
    pub error_data: bool,
    /// Whether resource contents have a `type` of `text` or `blob`.
    pub typed_contents: bool,
    /// Whether completions also carry `text` and `items`.
    pub completion_items: bool,
    /// Whether the progress token may be sent next to `_meta`, as `_progressToken`.
    pub top_level_progress_token: bool,
    /// Whether change notifications omit the `notifications/` prefix, as in `tools/list_changed`.
    pub short_notification_names: bool,
    /// Whether streams work without a session: a GET opens a stream for change notifications, `resources/subscribe` applies
    /// to it, and a call that is answered by a stream sends its log messages there.
    pub sessionless_streams: bool,
    /// Whether the server also sends `notifications/initialized` after its response to `initialize`: on stdio, and to
    /// clients that accept only streams. Unlike the other settings, this one also applies to clients that send a
    /// protocol version, which ignore the notification.
    pub sends_initialized: bool,
    /// Whether `params` that are an array are treated as absent.
    pub ignore_array_params: bool,
    /// Whether a request whose id is `null` is treated as a notification.
    pub null_id_is_notification: bool,
    /// Whether a response that matches no request is accepted and dropped.
    pub ignore_unmatched_responses: bool,
    /// Whether responses are never streams.
    pub json_only: bool,
    /// Whether nothing is sent before the response. A client that accepts only streams gets a stream with the response
    /// alone.
    pub no_interim_messages: bool,
    /// Whether CORS for all origins is announced with a literal `*`.
    pub cors_literal_wildcard: bool,
    /// Whether tasks exist without a protocol version, and are created by `tasks/create`. All unauthenticated callers are
    /// one owner: they see each other's tasks in `tasks/list` and may cancel them.
    pub tasks_create: bool,
}

/// The response to a GET that does not request a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetDiscovery {
    /// No discovery: such a GET is rejected.
    Off,
    /// Server information and capabilities, as in the result of `initialize`.
    Initialize,
    /// Name, version and status of the server.
    Status,
    /// Name, version and description of the server, the number and names of its tools, and connection instructions.
    Catalog,
}

const OFFICIAL: Dialect = Dialect {
    name: "official",
    discovery: GetDiscovery::Off,
    default_version: None,
    lenient: false,
    unknown_method_message: "no such method: ",
    unknown_tool: (-32602, "unknown tool: "),
    unknown_resource: (-32002, "no such resource: "),
    unknown_prompt: (-32602, "unknown prompt: "),
    tool_error_code: None,
    tool_error_prefix: "",
    internal_error_message: None,
    unavailable: None,
    missing_argument_message: None,
    invalid_arguments_code: None,
    unauthorized_code: -32000,
    wordpress_errors: false,
    rate_limited_code: -32000,
    internal_status: 200,
    empty_lists: false,
    system_role: false,
    batches: None,
    missing_prompt_argument_code: -32602,
    invalid_cursor_code: -32602,
    unknown_task_code: -32602,
    root_error_codes: [-32602; 3],
    unsupported_version_code: -32022,
    too_large_code: -32000,
    error_data: false,
    typed_contents: false,
    completion_items: false,
    top_level_progress_token: false,
    short_notification_names: false,
    sessionless_streams: false,
    sends_initialized: false,
    ignore_array_params: false,
    null_id_is_notification: false,
    ignore_unmatched_responses: false,
    json_only: false,
    no_interim_messages: false,
    cors_literal_wildcard: false,
    tasks_create: false,
};

impl Dialect {
    /// No dialect: the rules of the protocol for clients that send no version.
    #[must_use]
    pub const fn official() -> Dialect {
        OFFICIAL
    }

    /// BoxLang AI's MCP server.
    #[must_use]
    pub const fn boxlang() -> Dialect {
        Dialect {
            name: "boxlang",
            discovery: GetDiscovery::Initialize,
            default_version: Some(ProtocolVersion::V2024_11_05),
            lenient: true,
            unknown_method_message: "Method not found: ",
            unknown_tool: (-32000, "Tool not found: "),
            unknown_resource: (-32000, "Resource not found: "),
            unknown_prompt: (-32000, "Prompt not found: "),
            rate_limited_code: -32002,
            internal_status: 500,
            empty_lists: true,
            system_role: true,
            batches: Some(false),
            ..OFFICIAL
        }
    }

    /// bx-mcp, the introspection server of the BoxLang runtime.
    #[must_use]
    pub const fn bxmcp() -> Dialect {
        Dialect {
            name: "bxmcp",
            unknown_tool: (-32001, "Tool not found: "),
            unknown_resource: (-32002, "Resource not found: "),
            unknown_prompt: (-32602, "Prompt not found: "),
            tool_error_code: Some(-32000),
            invalid_arguments_code: Some(-32602),
            unauthorized_code: -32002,
            rate_limited_code: -32000,
            internal_status: 200,
            ..Dialect::boxlang()
        }
    }

    /// erlmcp, a server in Erlang. Its further error codes are in [`ErlmcpError`].
    #[must_use]
    pub const fn erlmcp() -> Dialect {
        use ErlmcpError as E;
        Dialect {
            name: "erlmcp",
            unknown_method_message: "Method not found",
            unknown_tool: (E::ToolNotFound.code(), "Tool not found"),
            unknown_resource: (E::ResourceNotFound.code(), "Resource not found"),
            unknown_prompt: (E::PromptNotFound.code(), "Prompt not found"),
            missing_prompt_argument_code: E::PromptArgumentMissing.code(),
            invalid_cursor_code: E::InvalidCursor.code(),
            unknown_task_code: E::TaskNotFound.code(),
            root_error_codes: [E::InvalidUri.code(), E::DuplicateRoot.code(), E::ResourceNotFound.code()],
            unsupported_version_code: E::UnsupportedProtocolVersion.code(),
            too_large_code: E::MessageTooLarge.code(),
            unauthorized_code: E::AuthenticationFailed.code(),
            rate_limited_code: E::RateLimited.code(),
            batches: Some(true),
            error_data: true,
            typed_contents: true,
            completion_items: true,
            top_level_progress_token: true,
            short_notification_names: true,
            sessionless_streams: true,
            sends_initialized: true,
            ignore_array_params: true,
            ignore_unmatched_responses: true,
            tasks_create: true,
            ..OFFICIAL
        }
    }

    /// Blue Hub, a hosted marketplace of tools.
    #[must_use]
    pub const fn bluehub() -> Dialect {
        Dialect {
            name: "bluehub",
            discovery: GetDiscovery::Catalog,
            default_version: Some(ProtocolVersion::V2024_11_05),
            lenient: true,
            unknown_tool: (-32602, "Unknown tool: "),
            invalid_arguments_code: Some(-32602),
            empty_lists: true,
            batches: Some(false),
            no_interim_messages: true,
            cors_literal_wildcard: true,
            ..OFFICIAL
        }
    }

    /// The MCP server of the BuddyBoss platform for WordPress.
    #[must_use]
    pub const fn buddyboss() -> Dialect {
        Dialect {
            name: "buddyboss",
            discovery: GetDiscovery::Status,
            default_version: Some(ProtocolVersion::V2025_11_25),
            lenient: true,
            unknown_method_message: "Method not found: ",
            unknown_tool: (-32602, "Tool not found: "),
            tool_error_prefix: "Error: ",
            internal_error_message: Some("An unexpected error occurred"),
            unavailable: Some((-32002, "BuddyBoss not available")),
            missing_argument_message: Some("Missing required parameter: "),
            wordpress_errors: true,
            batches: Some(false),
            null_id_is_notification: true,
            json_only: true,
            ..OFFICIAL
        }
    }

    /// All presets.
    pub const ALL: [Dialect; 6] = [
        Dialect::official(),
        Dialect::boxlang(),
        Dialect::bxmcp(),
        Dialect::erlmcp(),
        Dialect::bluehub(),
        Dialect::buddyboss(),
    ];

    /// Returns the preset with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name == name)
    }

    /// Returns the JSON-RPC error code of an error.
    #[must_use]
    pub fn code(&self, error: &ProtocolError) -> i64 {
        match error.kind() {
            ProtocolErrorKind::ToolNotFound => self.unknown_tool.0,
            ProtocolErrorKind::ResourceNotFound => self.unknown_resource.0,
            ProtocolErrorKind::PromptNotFound => self.unknown_prompt.0,
            ProtocolErrorKind::MissingPromptArgument => self.missing_prompt_argument_code,
            ProtocolErrorKind::InvalidCursor => self.invalid_cursor_code,
            ProtocolErrorKind::TaskNotFound => self.unknown_task_code,
            ProtocolErrorKind::InvalidRoot => self.root_error_codes[0],
            ProtocolErrorKind::DuplicateRoot => self.root_error_codes[1],
            ProtocolErrorKind::RootNotFound => self.root_error_codes[2],
            ProtocolErrorKind::UnsupportedVersion => self.unsupported_version_code,
            ProtocolErrorKind::TooLarge => self.too_large_code,
            ProtocolErrorKind::Unauthorized => self.unauthorized_code,
            ProtocolErrorKind::RateLimited => self.rate_limited_code,
            ProtocolErrorKind::ToolFailed => self.tool_error_code.unwrap_or(-32603),
            ProtocolErrorKind::Unavailable => self.unavailable.map_or(-32603, |(code, _)| code),
            ProtocolErrorKind::InvalidArguments => self.invalid_arguments_code.unwrap_or(-32602),
            _ => error.code(ProtocolVersion::FALLBACK),
        }
    }

    /// Returns the HTTP status of a response with this error.
    #[must_use]
    pub fn status(&self, error: &ProtocolError) -> u16 {
        match (error.kind(), error.status(ProtocolVersion::FALLBACK)) {
            (ProtocolErrorKind::Internal, 200) => self.internal_status,
            (_, status) => status,
        }
    }

    /// Returns the message of an error.
    pub(crate) fn message(&self, error: &ProtocolError) -> String {
        let message = match error.kind() {
            ProtocolErrorKind::MethodNotFound => self.unknown_method_message,
            ProtocolErrorKind::ToolNotFound => self.unknown_tool.1,
            ProtocolErrorKind::ResourceNotFound => self.unknown_resource.1,
            ProtocolErrorKind::PromptNotFound => self.unknown_prompt.1,
            ProtocolErrorKind::Unavailable => {
                return self.unavailable.map_or_else(|| error.message(), |(_, message)| message).to_owned();
            }
            _ => return error.message().to_owned(),
        };
        match error.subject() {
            // The official dialect sends the whole message, including a suggestion.
            _ if self.name == OFFICIAL.name => error.message().to_owned(),
            _ if !message.ends_with(": ") => message.to_owned(),
            Some(subject) => format!("{message}{subject}"),
            None => error.message().to_owned(),
        }
    }

    /// Returns the `data` member of an error.
    pub(crate) fn data(&self, error: &ProtocolError) -> Option<RawJson> {
        if let Some(data) = error.data() {
            return Some(data.clone());
        }
        let key = match error.kind() {
            _ if !self.error_data => return None,
            ProtocolErrorKind::MethodNotFound => "method",
            ProtocolErrorKind::ToolNotFound => "tool",
            ProtocolErrorKind::PromptNotFound => "prompt",
            ProtocolErrorKind::MissingPromptArgument => "argument",
            ProtocolErrorKind::TaskNotFound => "taskId",
            ProtocolErrorKind::InvalidRoot
            | ProtocolErrorKind::DuplicateRoot
            | ProtocolErrorKind::RootNotFound => "uri",
            _ => return None,
        };
        Some(single_string_object(key, error.subject()?))
    }
}

impl Default for Dialect {
    fn default() -> Dialect {
        OFFICIAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_by_its_name() {
        for preset in Dialect::ALL {
            assert_eq!(Dialect::from_name(preset.name).as_ref(), Some(&preset));
        }
        assert_eq!(Dialect::from_name("klingon"), None);
    }

    #[test]
    fn the_official_dialect_matches_the_fallback_version() {
        let official = Dialect::official();
        for error in [
            ProtocolError::tool_not_found("x", Some("y")),
            ProtocolError::prompt_not_found("x"),
            ProtocolError::resource_not_found("x://y"),
            ProtocolError::method_not_found("x"),
            ProtocolError::invalid_params("x"),
            ProtocolError::internal("x"),
            ProtocolError::new(ProtocolErrorKind::Unauthorized, "x"),
            ProtocolError::new(ProtocolErrorKind::RateLimited, "x"),
            ProtocolError::new(ProtocolErrorKind::TooLarge, "x"),
            ProtocolError::new(ProtocolErrorKind::InvalidCursor, "x"),
            ProtocolError::missing_prompt_argument("x"),
            ProtocolError::task_not_found("x"),
            ProtocolError::invalid_root("x", "y"),
            ProtocolError::unsupported_version("x"),
            ProtocolError::new(ProtocolErrorKind::NotInitialized, "x"),
            ProtocolError::new(ProtocolErrorKind::Unavailable, "x"),
        ] {
            assert_eq!(official.data(&error).as_ref(), error.data(), "{error}");
            assert_eq!(official.code(&error), error.code(ProtocolVersion::FALLBACK), "{error}");
            assert_eq!(official.status(&error), error.status(ProtocolVersion::FALLBACK), "{error}");
            assert_eq!(official.message(&error), error.message());
        }
    }

    /// The error tables of the manuals.
    #[test]
    fn presets_match_their_manuals() {
        let unknown_tool = ProtocolError::tool_not_found("nope", Some("note"));
        let code_and_message =
            |dialect: &Dialect| (dialect.code(&unknown_tool), dialect.message(&unknown_tool));
        assert_eq!(code_and_message(&Dialect::boxlang()), (-32000, "Tool not found: nope".to_owned()));
        assert_eq!(code_and_message(&Dialect::bxmcp()), (-32001, "Tool not found: nope".to_owned()));
        let unauthorized = ProtocolError::new(ProtocolErrorKind::Unauthorized, "Unauthorized");
        assert_eq!(Dialect::boxlang().code(&unauthorized), -32000);
        assert_eq!(Dialect::bxmcp().code(&unauthorized), -32002);
        assert_eq!(Dialect::bxmcp().code(&ProtocolError::new(ProtocolErrorKind::ToolFailed, "x")), -32000);
        assert_eq!(Dialect::boxlang().status(&ProtocolError::internal("x")), 500);
        assert_eq!(code_and_message(&Dialect::erlmcp()), (-32002, "Tool not found".to_owned()));
        assert_eq!(code_and_message(&Dialect::bluehub()), (-32602, "Unknown tool: nope".to_owned()));
        assert_eq!(code_and_message(&Dialect::buddyboss()), (-32602, "Tool not found: nope".to_owned()));
        let unavailable = ProtocolError::new(ProtocolErrorKind::Unavailable, "x");
        let buddyboss = Dialect::buddyboss();
        assert_eq!(
            (buddyboss.code(&unavailable), &*buddyboss.message(&unavailable)),
            (-32002, "BuddyBoss not available")
        );
    }

    #[test]
    fn erlmcp_errors_have_its_codes_and_data() {
        let erlmcp = Dialect::erlmcp();
        for (error, code, data) in [
            (ProtocolError::tool_not_found("x", Some("y")), -32002, Some(r#"{"tool":"x"}"#)),
            (ProtocolError::resource_not_found("x://y"), -32001, Some(r#"{"uri":"x://y"}"#)),
            (ProtocolError::prompt_not_found("x"), -32003, Some(r#"{"prompt":"x"}"#)),
            (ProtocolError::missing_prompt_argument("x"), -32043, Some(r#"{"argument":"x"}"#)),
            (ProtocolError::method_not_found("x"), -32601, Some(r#"{"method":"x"}"#)),
            (ProtocolError::task_not_found("x"), -32081, Some(r#"{"taskId":"x"}"#)),
            (ProtocolError::invalid_root("x", "no"), -32022, Some(r#"{"uri":"x"}"#)),
            (ProtocolError::duplicate_root("x"), -32026, Some(r#"{"uri":"x"}"#)),
            (ProtocolError::root_not_found("x"), -32001, Some(r#"{"uri":"x"}"#)),
            (ProtocolError::new(ProtocolErrorKind::InvalidCursor, "x"), -32071, None),
            (ProtocolError::new(ProtocolErrorKind::Unauthorized, "x"), -32051, None),
            (ProtocolError::new(ProtocolErrorKind::RateLimited, "x"), -32010, None),
            (ProtocolError::new(ProtocolErrorKind::TooLarge, "x"), -32012, None),
            (ProtocolError::new(ProtocolErrorKind::NotInitialized, "x"), -32005, None),
            (ProtocolError::invalid_params("x"), -32602, None),
        ] {
            assert_eq!(erlmcp.code(&error), code, "{error}");
            assert_eq!(erlmcp.data(&error).as_ref().map(RawJson::as_str), data, "{error}");
            if !matches!(error.kind(), ProtocolErrorKind::ResourceNotFound) {
                assert_eq!(Dialect::boxlang().data(&error), None, "{error}");
            }
        }
        // Failed tools are reported in results: the examples in the manual take precedence over its table.
        assert_eq!((erlmcp.tool_error_code, erlmcp.invalid_arguments_code), (None, None));
    }
}
