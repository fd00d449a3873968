//! Ways of speaking that grew before there were revisions, or beside them, as one table.
//!
//! A dialect is spoken only where a client names no revision at all: no handshake, no version header, no `_meta`.
//! That is how every plain `curl` line in every manual speaks. It may change numbers, words and small extras;
//! clients that name a revision never hear any of it.

mod erlmcp;

pub use erlmcp::ErlmcpError;

use crate::json::RawJson;
use crate::protocol_error::single_string_object;
use crate::{ProtocolError, ProtocolErrorKind, ProtocolVersion};

/// How a server speaks to those who name no revision.
///
/// Start from a preset and change what differs:
///
/// ```
/// # use toolgate_wire::Dialect;
/// let ours = Dialect { tool_failed: Some(-32000), ..Dialect::boxlang() };
/// assert_eq!(ours.name, "boxlang");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dialect {
    /// What it is called.
    pub name: &'static str,
    /// What a GET is answered with that does not ask for a stream.
    pub discovery: GetDiscovery,
    /// The revision that `initialize` without a revision, and the answer to a GET, name.
    pub default_version: Option<ProtocolVersion>,
    /// What is missing or misspelt is overlooked where it can be: `initialize` without parameters, blanks around
    /// a method, `args` for `arguments`.
    pub lenient: bool,
    /// The words before the name of an unknown method.
    pub unknown_method_message: &'static str,
    /// How an unknown tool is told: number, and words. The name is put behind words that end in `: `.
    pub unknown_tool: (i64, &'static str),
    /// How an unknown resource is told.
    pub unknown_resource: (i64, &'static str),
    /// How an unknown prompt is told.
    pub unknown_prompt: (i64, &'static str),
    /// The number of the error that a failing tool is answered with. None: the result says that it failed.
    pub tool_error_code: Option<i64>,
    /// What is put before the words of a tool that failed.
    pub tool_error_prefix: &'static str,
    /// What is said of a tool that broke, before the reference. None: what went wrong, without details.
    pub internal_error_message: Option<&'static str>,
    /// How it is told that something a tool needs is not there now: number, and words. None: as other failures.
    pub unavailable: Option<(i64, &'static str)>,
    /// The words before the name of an argument that is missing. None: as the check says it.
    pub missing_argument_message: Option<&'static str>,
    /// The number of the error that unfit arguments are answered with. None: the result says so.
    pub invalid_arguments_code: Option<i64>,
    /// The number of an argument that a prompt lacks.
    pub missing_prompt_argument_code: i64,
    /// The number of a cursor that leads nowhere.
    pub invalid_cursor_code: i64,
    /// The number of an unknown task.
    pub unknown_task_code: i64,
    /// The numbers of a root that cannot be one, that is there already, and that is not there.
    pub root_error_codes: [i64; 3],
    /// The number of a revision that is not served, where that is no reason to agree on another.
    pub unsupported_version_code: i64,
    /// The number of a message that is too long.
    pub too_large_code: i64,
    /// The number of missing or wrong credentials.
    pub unauthorized_code: i64,
    /// Missing, wrong and insufficient credentials are told as WordPress tells errors: `code`, `message` and
    /// `data.status`, in no envelope.
    pub wordpress_errors: bool,
    /// The number of too many requests.
    pub rate_limited_code: i64,
    /// The HTTP status of failures of the server's own.
    pub internal_status: u16,
    /// What is not offered at all is an empty list, instead of an unknown method.
    pub empty_lists: bool,
    /// Prompts may speak as `system`.
    pub system_role: bool,
    /// Whether an array of messages is taken. None: as the revision does that is assumed.
    pub batches: Option<bool>,
    /// An error says in its `data` which name or URI it is about.
    pub error_data: bool,
    /// Contents of resources say whether they are `text` or `blob`, in `type`.
    pub typed_contents: bool,
    /// Completions are told as `text` and `items` too.
    pub completion_items: bool,
    /// The token of progress may stand beside `_meta`, as `_progressToken`.
    pub top_level_progress_token: bool,
    /// Changes are told as `tools/list_changed`, without `notifications/` before it.
    pub short_notification_names: bool,
    /// Streams need no session: a GET opens one on which changes are told, `resources/subscribe` is about those, and
    /// a call that is answered by a stream tells its log lines there.
    pub sessionless_streams: bool,
    /// The server says `notifications/initialized` too, after its answer to `initialize`: on a line, and to clients
    /// that take nothing but streams. This alone is also heard by clients that name a revision; they ignore it.
    pub sends_initialized: bool,
    /// `params` that are an array are taken for none.
    pub ignore_array_params: bool,
    /// A request whose id is `null` is a notification.
    pub null_id_is_notification: bool,
    /// An answer to nothing that was asked is taken, and dropped.
    pub ignore_unmatched_responses: bool,
    /// Answers are never streams.
    pub json_only: bool,
    /// Nothing is said before an answer. Who takes nothing but a stream gets one with the answer alone in it.
    pub no_interim_messages: bool,
    /// Where pages of every origin may read answers, they are told so with a literal `*`.
    pub cors_literal_wildcard: bool,
    /// There are tasks, although no revision was named, and `tasks/create` begins one. Callers that are not
    /// authenticated are one owner together: they see each other's tasks in `tasks/list` and may cancel them.
    pub tasks_create: bool,
}

/// What a GET is answered with that does not ask for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetDiscovery {
    /// Nothing: it is no question.
    Off,
    /// What the server is and offers, as an answer to `initialize` would say it.
    Initialize,
    /// Its name, its version, and that it is there.
    Status,
    /// Its name, version and description, how many tools there are and what they are called, and what clients are to
    /// be told to find it.
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
    /// None: what the protocol says of clients that name no revision.
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

    /// erlmcp, a server in Erlang. Its other numbers are in [`ErlmcpError`].
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

    /// Every preset.
    pub const ALL: [Dialect; 6] = [
        Dialect::official(),
        Dialect::boxlang(),
        Dialect::bxmcp(),
        Dialect::erlmcp(),
        Dialect::bluehub(),
        Dialect::buddyboss(),
    ];

    /// The preset of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name == name)
    }

    /// The number that says this fault.
    #[must_use]
    pub fn code(&self, fault: &ProtocolError) -> i64 {
        match fault.kind() {
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
            _ => fault.code(ProtocolVersion::FALLBACK),
        }
    }

    /// The HTTP status of an answer that is this fault.
    #[must_use]
    pub fn status(&self, fault: &ProtocolError) -> u16 {
        match (fault.kind(), fault.status(ProtocolVersion::FALLBACK)) {
            (ProtocolErrorKind::Internal, 200) => self.internal_status,
            (_, status) => status,
        }
    }

    /// The words that say this fault.
    pub(crate) fn message(&self, fault: &ProtocolError) -> String {
        let words = match fault.kind() {
            ProtocolErrorKind::MethodNotFound => self.unknown_method_message,
            ProtocolErrorKind::ToolNotFound => self.unknown_tool.1,
            ProtocolErrorKind::ResourceNotFound => self.unknown_resource.1,
            ProtocolErrorKind::PromptNotFound => self.unknown_prompt.1,
            ProtocolErrorKind::Unavailable if let Some((_, words)) = self.unavailable => {
                return words.to_owned();
            }
            _ => return fault.message().to_owned(),
        };
        match fault.subject() {
            // Whoever speaks no dialect gets the whole message, with what may have been meant.
            _ if self.name == OFFICIAL.name => fault.message().to_owned(),
            _ if !words.ends_with(": ") => words.to_owned(),
            Some(subject) => format!("{words}{subject}"),
            None => fault.message().to_owned(),
        }
    }

    /// What is said beside the words.
    pub(crate) fn data(&self, fault: &ProtocolError) -> Option<RawJson> {
        if let Some(data) = fault.data() {
            return Some(data.clone());
        }
        let key = match fault.kind() {
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
        Some(single_string_object(key, fault.subject()?))
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
    fn the_official_one_says_what_the_fallback_version_says() {
        let official = Dialect::official();
        for fault in [
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
            assert_eq!(official.data(&fault).as_ref(), fault.data(), "{fault}");
            assert_eq!(official.code(&fault), fault.code(ProtocolVersion::FALLBACK), "{fault}");
            assert_eq!(official.status(&fault), fault.status(ProtocolVersion::FALLBACK), "{fault}");
            assert_eq!(official.message(&fault), fault.message());
        }
    }

    /// The tables of the manuals.
    #[test]
    fn each_speaks_as_its_manual_says() {
        let unknown = ProtocolError::tool_not_found("nope", Some("note"));
        let told = |dialect: &Dialect| (dialect.code(&unknown), dialect.message(&unknown));
        assert_eq!(told(&Dialect::boxlang()), (-32000, "Tool not found: nope".to_owned()));
        assert_eq!(told(&Dialect::bxmcp()), (-32001, "Tool not found: nope".to_owned()));
        let nobody = ProtocolError::new(ProtocolErrorKind::Unauthorized, "Unauthorized");
        assert_eq!(Dialect::boxlang().code(&nobody), -32000);
        assert_eq!(Dialect::bxmcp().code(&nobody), -32002);
        assert_eq!(Dialect::bxmcp().code(&ProtocolError::new(ProtocolErrorKind::ToolFailed, "x")), -32000);
        assert_eq!(Dialect::boxlang().status(&ProtocolError::internal("x")), 500);
        assert_eq!(told(&Dialect::erlmcp()), (-32002, "Tool not found".to_owned()));
        assert_eq!(told(&Dialect::bluehub()), (-32602, "Unknown tool: nope".to_owned()));
        assert_eq!(told(&Dialect::buddyboss()), (-32602, "Tool not found: nope".to_owned()));
        let away = ProtocolError::new(ProtocolErrorKind::Unavailable, "x");
        let buddyboss = Dialect::buddyboss();
        assert_eq!((buddyboss.code(&away), &*buddyboss.message(&away)), (-32002, "BuddyBoss not available"));
    }

    #[test]
    fn erlmcp_numbers_its_errors_and_says_what_they_are_about() {
        let erlmcp = Dialect::erlmcp();
        for (fault, code, data) in [
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
            assert_eq!(erlmcp.code(&fault), code, "{fault}");
            assert_eq!(erlmcp.data(&fault).as_ref().map(RawJson::as_str), data, "{fault}");
            if !matches!(fault.kind(), ProtocolErrorKind::ResourceNotFound) {
                assert_eq!(Dialect::boxlang().data(&fault), None, "{fault}");
            }
        }
        // Tools that fail say so in their results: what the manual prints goes before its table.
        assert_eq!((erlmcp.tool_error_code, erlmcp.invalid_arguments_code), (None, None));
    }
}
