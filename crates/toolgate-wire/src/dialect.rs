//! Ways of speaking that grew before there were revisions, or beside them, as one table.
//!
//! A dialect is spoken only where a client names no revision at all: no handshake, no version header, no `_meta`.
//! That is how every plain `curl` line in every manual speaks. It may change numbers, words and small extras;
//! clients that name a revision never hear any of it.

mod erlmcp;

pub use erlmcp::ErlmcpError;

use crate::fault::one_text;
use crate::json::Raw;
use crate::{Edition, Fault, FaultKind};

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
    pub discovery: OnGet,
    /// The revision that `initialize` without a revision, and the answer to a GET, name.
    pub pinned: Option<Edition>,
    /// What is missing or misspelt is overlooked where it can be: `initialize` without parameters, blanks around
    /// a method, `args` for `arguments`.
    pub lenient: bool,
    /// The words before the name of an unknown method.
    pub method_unknown: &'static str,
    /// How an unknown tool is told: number, and words. The name is put behind words that end in `: `.
    pub tool_unknown: (i64, &'static str),
    /// How an unknown resource is told.
    pub resource_unknown: (i64, &'static str),
    /// How an unknown prompt is told.
    pub prompt_unknown: (i64, &'static str),
    /// The number of the error that a failing tool is answered with. None: the result says that it failed.
    pub tool_failed: Option<i64>,
    /// What is put before the words of a tool that failed.
    pub failure_prefix: &'static str,
    /// What is said of a tool that broke, before the reference. None: what went wrong, without details.
    pub broken: Option<&'static str>,
    /// How it is told that something a tool needs is not there now: number, and words. None: as other failures.
    pub unavailable: Option<(i64, &'static str)>,
    /// The words before the name of an argument that is missing. None: as the check says it.
    pub argument_missing: Option<&'static str>,
    /// The number of the error that unfit arguments are answered with. None: the result says so.
    pub arguments_unfit: Option<i64>,
    /// The number of an argument that a prompt lacks.
    pub prompt_argument: i64,
    /// The number of a cursor that leads nowhere.
    pub cursor_unknown: i64,
    /// The number of an unknown task.
    pub task_unknown: i64,
    /// The numbers of a root that cannot be one, that is there already, and that is not there.
    pub roots: [i64; 3],
    /// The number of a revision that is not served, where that is no reason to agree on another.
    pub version_unknown: i64,
    /// The number of a message that is too long.
    pub too_large: i64,
    /// The number of missing or wrong credentials.
    pub unauthorized: i64,
    /// Missing, wrong and insufficient credentials are told as WordPress tells errors: `code`, `message` and
    /// `data.status`, in no envelope.
    pub wordpress_refusals: bool,
    /// The number of too many requests.
    pub rate_limited: i64,
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
    pub progress_beside: bool,
    /// Changes are told as `tools/list_changed`, without `notifications/` before it.
    pub short_notices: bool,
    /// Streams need no session: a GET opens one on which changes are told, `resources/subscribe` is about those, and
    /// a call that is answered by a stream tells its log lines there.
    pub open_streams: bool,
    /// The server says `notifications/initialized` too, after its answer to `initialize`: on a line, and to clients
    /// that take nothing but streams. This alone is also heard by clients that name a revision; they ignore it.
    pub announces: bool,
    /// `params` that are an array are taken for none.
    pub array_params: bool,
    /// A request whose id is `null` is a notification.
    pub null_ids: bool,
    /// An answer to nothing that was asked is taken, and dropped.
    pub stray_answers: bool,
    /// Answers are never streams.
    pub json_only: bool,
    /// Nothing is said before an answer. Who takes nothing but a stream gets one with the answer alone in it.
    pub answers_alone: bool,
    /// Where pages of every origin may read answers, they are told so with a literal `*`.
    pub literal_wildcard: bool,
    /// There are tasks, although no revision was named, and `tasks/create` begins one. Callers that are not
    /// authenticated are one owner together: they see each other's tasks in `tasks/list` and may cancel them.
    pub tasks_create: bool,
}

/// What a GET is answered with that does not ask for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnGet {
    /// Nothing: it is no question.
    Off,
    /// What the server is and offers, as an answer to `initialize` would say it.
    Introduction,
    /// Its name, its version, and that it is there.
    Status,
    /// Its name, version and description, how many tools there are and what they are called, and what clients are to
    /// be told to find it.
    Catalog,
}

const OFFICIAL: Dialect = Dialect {
    name: "official",
    discovery: OnGet::Off,
    pinned: None,
    lenient: false,
    method_unknown: "no such method: ",
    tool_unknown: (-32602, "unknown tool: "),
    resource_unknown: (-32002, "no such resource: "),
    prompt_unknown: (-32602, "unknown prompt: "),
    tool_failed: None,
    failure_prefix: "",
    broken: None,
    unavailable: None,
    argument_missing: None,
    arguments_unfit: None,
    unauthorized: -32000,
    wordpress_refusals: false,
    rate_limited: -32000,
    internal_status: 200,
    empty_lists: false,
    system_role: false,
    batches: None,
    prompt_argument: -32602,
    cursor_unknown: -32602,
    task_unknown: -32602,
    roots: [-32602; 3],
    version_unknown: -32022,
    too_large: -32000,
    error_data: false,
    typed_contents: false,
    completion_items: false,
    progress_beside: false,
    short_notices: false,
    open_streams: false,
    announces: false,
    array_params: false,
    null_ids: false,
    stray_answers: false,
    json_only: false,
    answers_alone: false,
    literal_wildcard: false,
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
            discovery: OnGet::Introduction,
            pinned: Some(Edition::E2024_11_05),
            lenient: true,
            method_unknown: "Method not found: ",
            tool_unknown: (-32000, "Tool not found: "),
            resource_unknown: (-32000, "Resource not found: "),
            prompt_unknown: (-32000, "Prompt not found: "),
            rate_limited: -32002,
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
            tool_unknown: (-32001, "Tool not found: "),
            resource_unknown: (-32002, "Resource not found: "),
            prompt_unknown: (-32602, "Prompt not found: "),
            tool_failed: Some(-32000),
            arguments_unfit: Some(-32602),
            unauthorized: -32002,
            rate_limited: -32000,
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
            method_unknown: "Method not found",
            tool_unknown: (E::ToolNotFound.code(), "Tool not found"),
            resource_unknown: (E::ResourceNotFound.code(), "Resource not found"),
            prompt_unknown: (E::PromptNotFound.code(), "Prompt not found"),
            prompt_argument: E::PromptArgumentMissing.code(),
            cursor_unknown: E::InvalidCursor.code(),
            task_unknown: E::TaskNotFound.code(),
            roots: [E::InvalidUri.code(), E::DuplicateRoot.code(), E::ResourceNotFound.code()],
            version_unknown: E::UnsupportedProtocolVersion.code(),
            too_large: E::MessageTooLarge.code(),
            unauthorized: E::AuthenticationFailed.code(),
            rate_limited: E::RateLimited.code(),
            batches: Some(true),
            error_data: true,
            typed_contents: true,
            completion_items: true,
            progress_beside: true,
            short_notices: true,
            open_streams: true,
            announces: true,
            array_params: true,
            stray_answers: true,
            tasks_create: true,
            ..OFFICIAL
        }
    }

    /// Blue Hub, a hosted marketplace of tools.
    #[must_use]
    pub const fn bluehub() -> Dialect {
        Dialect {
            name: "bluehub",
            discovery: OnGet::Catalog,
            pinned: Some(Edition::E2024_11_05),
            lenient: true,
            tool_unknown: (-32602, "Unknown tool: "),
            arguments_unfit: Some(-32602),
            empty_lists: true,
            batches: Some(false),
            answers_alone: true,
            literal_wildcard: true,
            ..OFFICIAL
        }
    }

    /// The MCP server of the BuddyBoss platform for WordPress.
    #[must_use]
    pub const fn buddyboss() -> Dialect {
        Dialect {
            name: "buddyboss",
            discovery: OnGet::Status,
            pinned: Some(Edition::E2025_11_25),
            lenient: true,
            method_unknown: "Method not found: ",
            tool_unknown: (-32602, "Tool not found: "),
            failure_prefix: "Error: ",
            broken: Some("An unexpected error occurred"),
            unavailable: Some((-32002, "BuddyBoss not available")),
            argument_missing: Some("Missing required parameter: "),
            wordpress_refusals: true,
            batches: Some(false),
            null_ids: true,
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
    pub fn named(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name == name)
    }

    /// The number that says this fault.
    #[must_use]
    pub fn code(&self, fault: &Fault) -> i64 {
        match fault.kind() {
            FaultKind::Tool => self.tool_unknown.0,
            FaultKind::Resource => self.resource_unknown.0,
            FaultKind::Prompt => self.prompt_unknown.0,
            FaultKind::PromptArgument => self.prompt_argument,
            FaultKind::Cursor => self.cursor_unknown,
            FaultKind::Task => self.task_unknown,
            FaultKind::RootUnfit => self.roots[0],
            FaultKind::RootTwice => self.roots[1],
            FaultKind::RootUnknown => self.roots[2],
            FaultKind::Version => self.version_unknown,
            FaultKind::TooLarge => self.too_large,
            FaultKind::Unauthorized => self.unauthorized,
            FaultKind::RateLimited => self.rate_limited,
            FaultKind::Failed => self.tool_failed.unwrap_or(-32603),
            FaultKind::Unavailable => self.unavailable.map_or(-32603, |(code, _)| code),
            FaultKind::Arguments => self.arguments_unfit.unwrap_or(-32602),
            _ => fault.code(Edition::UNNAMED),
        }
    }

    /// The HTTP status of an answer that is this fault.
    #[must_use]
    pub fn status(&self, fault: &Fault) -> u16 {
        match (fault.kind(), fault.status(Edition::UNNAMED)) {
            (FaultKind::Internal, 200) => self.internal_status,
            (_, status) => status,
        }
    }

    /// The words that say this fault.
    pub(crate) fn message(&self, fault: &Fault) -> String {
        let words = match fault.kind() {
            FaultKind::Method => self.method_unknown,
            FaultKind::Tool => self.tool_unknown.1,
            FaultKind::Resource => self.resource_unknown.1,
            FaultKind::Prompt => self.prompt_unknown.1,
            FaultKind::Unavailable if let Some((_, words)) = self.unavailable => return words.to_owned(),
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
    pub(crate) fn data(&self, fault: &Fault) -> Option<Raw> {
        if let Some(data) = fault.data() {
            return Some(data.clone());
        }
        let key = match fault.kind() {
            _ if !self.error_data => return None,
            FaultKind::Method => "method",
            FaultKind::Tool => "tool",
            FaultKind::Prompt => "prompt",
            FaultKind::PromptArgument => "argument",
            FaultKind::Task => "taskId",
            FaultKind::RootUnfit | FaultKind::RootTwice | FaultKind::RootUnknown => "uri",
            _ => return None,
        };
        Some(one_text(key, fault.subject()?))
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
            assert_eq!(Dialect::named(preset.name).as_ref(), Some(&preset));
        }
        assert_eq!(Dialect::named("klingon"), None);
    }

    #[test]
    fn the_official_one_says_what_the_assumed_revision_says() {
        let official = Dialect::official();
        for fault in [
            Fault::tool("x", Some("y")),
            Fault::prompt("x"),
            Fault::resource("x://y"),
            Fault::method("x"),
            Fault::params("x"),
            Fault::internal("x"),
            Fault::new(FaultKind::Unauthorized, "x"),
            Fault::new(FaultKind::RateLimited, "x"),
            Fault::new(FaultKind::TooLarge, "x"),
            Fault::new(FaultKind::Cursor, "x"),
            Fault::prompt_argument("x"),
            Fault::task("x"),
            Fault::root("x", "y"),
            Fault::version("x"),
            Fault::new(FaultKind::Uninitialized, "x"),
            Fault::new(FaultKind::Unavailable, "x"),
        ] {
            assert_eq!(official.data(&fault).as_ref(), fault.data(), "{fault}");
            assert_eq!(official.code(&fault), fault.code(Edition::UNNAMED), "{fault}");
            assert_eq!(official.status(&fault), fault.status(Edition::UNNAMED), "{fault}");
            assert_eq!(official.message(&fault), fault.message());
        }
    }

    /// The tables of the manuals.
    #[test]
    fn each_speaks_as_its_manual_says() {
        let unknown = Fault::tool("nope", Some("note"));
        let told = |dialect: &Dialect| (dialect.code(&unknown), dialect.message(&unknown));
        assert_eq!(told(&Dialect::boxlang()), (-32000, "Tool not found: nope".to_owned()));
        assert_eq!(told(&Dialect::bxmcp()), (-32001, "Tool not found: nope".to_owned()));
        let nobody = Fault::new(FaultKind::Unauthorized, "Unauthorized");
        assert_eq!(Dialect::boxlang().code(&nobody), -32000);
        assert_eq!(Dialect::bxmcp().code(&nobody), -32002);
        assert_eq!(Dialect::bxmcp().code(&Fault::new(FaultKind::Failed, "x")), -32000);
        assert_eq!(Dialect::boxlang().status(&Fault::internal("x")), 500);
        assert_eq!(told(&Dialect::erlmcp()), (-32002, "Tool not found".to_owned()));
        assert_eq!(told(&Dialect::bluehub()), (-32602, "Unknown tool: nope".to_owned()));
        assert_eq!(told(&Dialect::buddyboss()), (-32602, "Tool not found: nope".to_owned()));
        let away = Fault::new(FaultKind::Unavailable, "x");
        let buddyboss = Dialect::buddyboss();
        assert_eq!((buddyboss.code(&away), &*buddyboss.message(&away)), (-32002, "BuddyBoss not available"));
    }

    #[test]
    fn erlmcp_numbers_its_errors_and_says_what_they_are_about() {
        let erlmcp = Dialect::erlmcp();
        for (fault, code, data) in [
            (Fault::tool("x", Some("y")), -32002, Some(r#"{"tool":"x"}"#)),
            (Fault::resource("x://y"), -32001, Some(r#"{"uri":"x://y"}"#)),
            (Fault::prompt("x"), -32003, Some(r#"{"prompt":"x"}"#)),
            (Fault::prompt_argument("x"), -32043, Some(r#"{"argument":"x"}"#)),
            (Fault::method("x"), -32601, Some(r#"{"method":"x"}"#)),
            (Fault::task("x"), -32081, Some(r#"{"taskId":"x"}"#)),
            (Fault::root("x", "no"), -32022, Some(r#"{"uri":"x"}"#)),
            (Fault::root_twice("x"), -32026, Some(r#"{"uri":"x"}"#)),
            (Fault::root_unknown("x"), -32001, Some(r#"{"uri":"x"}"#)),
            (Fault::new(FaultKind::Cursor, "x"), -32071, None),
            (Fault::new(FaultKind::Unauthorized, "x"), -32051, None),
            (Fault::new(FaultKind::RateLimited, "x"), -32010, None),
            (Fault::new(FaultKind::TooLarge, "x"), -32012, None),
            (Fault::new(FaultKind::Uninitialized, "x"), -32005, None),
            (Fault::params("x"), -32602, None),
        ] {
            assert_eq!(erlmcp.code(&fault), code, "{fault}");
            assert_eq!(erlmcp.data(&fault).as_ref().map(Raw::as_str), data, "{fault}");
            if !matches!(fault.kind(), FaultKind::Resource) {
                assert_eq!(Dialect::boxlang().data(&fault), None, "{fault}");
            }
        }
        // Tools that fail say so in their results: what the manual prints goes before its table.
        assert_eq!((erlmcp.tool_failed, erlmcp.arguments_unfit), (None, None));
    }
}
