//! Ways of speaking that grew before there were revisions, or beside them, as one table.
//!
//! A dialect is spoken only where a client names no revision at all: no handshake, no version header, no `_meta`.
//! That is how every plain `curl` line in every manual speaks. It may change numbers, words and small extras;
//! clients that name a revision never hear any of it.

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
    /// A GET that does not ask for a stream is answered with what the server is.
    pub discovery: bool,
    /// The revision that `initialize` without a revision, and the answer to a GET, name.
    pub pinned: Option<Edition>,
    /// What is missing or misspelt is overlooked where it can be: `initialize` without parameters, blanks around
    /// a method, `args` for `arguments`.
    pub lenient: bool,
    /// The words before the name of an unknown method.
    pub method_unknown: &'static str,
    /// How an unknown tool is told: number, and words before its name.
    pub tool_unknown: (i64, &'static str),
    /// How an unknown resource is told.
    pub resource_unknown: (i64, &'static str),
    /// How an unknown prompt is told.
    pub prompt_unknown: (i64, &'static str),
    /// The number of the error that a failing tool is answered with. None: the result says that it failed.
    pub tool_failed: Option<i64>,
    /// The number of the error that unfit arguments are answered with. None: the result says so.
    pub arguments_unfit: Option<i64>,
    /// The number of missing or wrong credentials.
    pub unauthorized: i64,
    /// The number of too many requests.
    pub rate_limited: i64,
    /// The HTTP status of failures of the server's own.
    pub internal_status: u16,
    /// Prompts may speak as `system`.
    pub system_role: bool,
    /// Whether an array of messages is taken. None: as the revision does that is assumed.
    pub batches: Option<bool>,
    /// There are tasks, although no revision was named, and `tasks/create` begins one.
    pub tasks_create: bool,
    /// The number of an unknown task.
    pub task_unknown: i64,
}

const OFFICIAL: Dialect = Dialect {
    name: "official",
    discovery: false,
    pinned: None,
    lenient: false,
    method_unknown: "no such method: ",
    tool_unknown: (-32602, "unknown tool: "),
    resource_unknown: (-32002, "no such resource: "),
    prompt_unknown: (-32602, "unknown prompt: "),
    tool_failed: None,
    arguments_unfit: None,
    unauthorized: -32000,
    rate_limited: -32000,
    internal_status: 200,
    system_role: false,
    batches: None,
    tasks_create: false,
    task_unknown: -32602,
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
            discovery: true,
            pinned: Some(Edition::E2024_11_05),
            lenient: true,
            method_unknown: "Method not found: ",
            tool_unknown: (-32000, "Tool not found: "),
            resource_unknown: (-32000, "Resource not found: "),
            prompt_unknown: (-32000, "Prompt not found: "),
            rate_limited: -32002,
            internal_status: 500,
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

    /// Every preset.
    pub const ALL: [Dialect; 3] = [Dialect::official(), Dialect::boxlang(), Dialect::bxmcp()];

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
            FaultKind::Task => self.task_unknown,
            FaultKind::Unauthorized => self.unauthorized,
            FaultKind::RateLimited => self.rate_limited,
            FaultKind::Failed => self.tool_failed.unwrap_or(-32603),
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
            _ => return fault.message().to_owned(),
        };
        match fault.subject() {
            // Whoever speaks no dialect gets the whole message, with what may have been meant.
            Some(subject) if self.name != OFFICIAL.name => format!("{words}{subject}"),
            _ => fault.message().to_owned(),
        }
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
        ] {
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
    }
}
