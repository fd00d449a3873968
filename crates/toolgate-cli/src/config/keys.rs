//! Every key of a configuration: what it is called, what it takes, what it is for.
//!
//! The file is checked against these tables, its JSON Schema and its reference are written from them. A key that is not
//! here does not exist.

/// A table of the file.
#[derive(Debug)]
pub(crate) struct Table {
    /// Where it stands, for the reference: `[servers.NAME]`.
    pub(crate) place: &'static str,
    pub(crate) about: &'static str,
    pub(crate) keys: &'static [Key],
    /// Exactly one of these says what kind it is.
    pub(crate) one_of: &'static [&'static str],
    /// Several files may each say a part of it.
    pub(crate) is_shared: bool,
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) need: Need,
    pub(crate) about: &'static str,
    /// Only beside one of these kinds; empty: beside all.
    pub(crate) with: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
    /// What is meant without it, as it would be written.
    Else(&'static str),
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Flag,
    Integer(i64, i64),
    Text,
    /// A text that nobody is shown.
    Secret,
    Duration,
    Size,
    Rate,
    /// A file or a folder, beginning where the configuration is.
    Path,
    Choice(&'static [&'static str]),
    List(&'static Kind),
    /// One, or a list.
    Many(&'static Kind),
    /// A table whose keys are names that the author chooses.
    Named(&'static Kind),
    Table(&'static Table),
    /// By what it looks like.
    Either(&'static [Kind]),
    /// Passed on as it is.
    Any,
    /// A text that only packs say: in a file it is no key at all.
    Inside,
    /// Not there yet; what to do meanwhile.
    Later(&'static str),
    /// Will never be there; what to do instead.
    Never(&'static str),
}

impl Kind {
    /// Whether it can be said at all.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self, Kind::Inside | Kind::Later(_) | Kind::Never(_))
    }
}

use Kind::{
    Any, Choice, Duration, Either, Flag, Integer, Later, List, Many, Named, Path, Rate, Secret, Size, Text,
};
use Need::{Else, May, Must};

const fn key(name: &'static str, kind: Kind, need: Need, about: &'static str) -> Key {
    Key { name, kind, need, about, with: &[] }
}

const fn with(with: &'static [&'static str], key: Key) -> Key {
    Key { with, ..key }
}

const fn later(name: &'static str, instead: &'static str) -> Key {
    Key { name, kind: Later(instead), need: May, about: "", with: &[] }
}

const TEXTS: Kind = List(&Text);
const COUNT: Kind = Integer(1, 1_000_000);
const ARGUMENT: Kind = Either(&[Text, Any]);
const ARGUMENTS: Kind = Named(&ARGUMENT);
const SHAPE: Kind = Choice(&["rows", "row", "value"]);
const SQL_KINDS: &[&str] = &["sqlite", "postgres", "mysql"];

pub(crate) static ROOT: Table = Table {
    place: "",
    about: "The file itself.",
    is_shared: true,
    one_of: &[],
    keys: &[
        key("version", Integer(1, 1), Else("1"), "The format of the file."),
        key(
            "include",
            Many(&Text),
            May,
            "More files, by name or pattern (`conf.d/*.toml`), whose keys are added. A key that two files say is an error.",
        ),
        key("listen", Kind::Table(&LISTEN), May, "Where to serve."),
        key("security", Kind::Table(&SECURITY), May, "What is let in and out, for all servers."),
        key("limits", Kind::Table(&LIMITS), May, "How much, how long, how often, for all servers."),
        key("stats", Kind::Table(&STATS), May, "What is counted, and who sees it."),
        key(
            "profiles",
            Named(&Kind::Table(&PROFILE)),
            May,
            "Choices of tools, prompts and resources, by name. `admin` and `readonly` are there already.",
        ),
        key("auth", Named(&Kind::Table(&AUTH)), May, "Who may call, by name; servers refer to it."),
        key(
            "connections",
            Named(&Kind::Table(&CONNECTION)),
            May,
            "Databases and APIs, by name; tools refer to them.",
        ),
        key("servers", Named(&Kind::Table(&SERVER)), May, "What is served, by name."),
        key(
            "storage",
            Kind::Table(&STORAGE),
            May,
            "Where is kept what outlives a call: tasks, and sessions that several processes serve.",
        ),
        later("events", "the library can listen to events; the program cannot yet"),
    ],
};

static LISTEN: Table = Table {
    place: "[listen]",
    about: "Where the program listens. A change needs a restart.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("http", Text, Else("\"127.0.0.1:8080\""), "Address and port. Port 0 picks a free one."),
        key(
            "public_url",
            Text,
            May,
            "The address that clients know it by, behind a proxy: requests for its host and from its pages are served.",
        ),
        key("hosts", TEXTS, May, "Further hosts that requests may be for."),
        key(
            "trusted_proxies",
            TEXTS,
            May,
            "Addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.",
        ),
        key(
            "shutdown_grace",
            Duration,
            Else("\"30s\""),
            "How long calls under way may go on when it is asked to end.",
        ),
        key("max_connections", COUNT, Else("10000"), "How many connections may be open at once."),
        later("revisions", "all five protocol revisions are served"),
        key(
            "legacy_sse",
            Flag,
            Else("true"),
            "The two-endpoint transport of the first revision, at `sse` and `messages` below each server.",
        ),
        later(
            "tls",
            "put a proxy that speaks TLS in front, and name it in `public_url` and `trusted_proxies`",
        ),
    ],
};

static SECURITY: Table = Table {
    place: "[security]",
    about: "What is let in and out, for all servers.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "headers",
            Choice(&["strict", "none"]),
            Else("\"strict\""),
            "The headers that keep browsers from doing harm, on every answer.",
        ),
        key("ip_allow", TEXTS, May, "Only these addresses and networks are served; none said, all are."),
        key(
            "cors",
            Either(&[TEXTS, Kind::Table(&CORS)]),
            May,
            "Pages of these origins may call and read: `https://app.example.com`, `*.example.com`, `*`.",
        ),
        key("egress", Kind::Table(&EGRESS), May, "Where tools that fetch may go."),
    ],
};

static CORS: Table = Table {
    place: "security.cors",
    about: "Which pages may call and read.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("origins", TEXTS, Must, "The origins."),
        key("max_age", Duration, Else("\"1d\""), "How long browsers remember what pages may do."),
    ],
};

static EGRESS: Table = Table {
    place: "security.egress",
    about: "Where tools that fetch may go.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "deny_private",
            Flag,
            Else("true"),
            "Addresses that are private, of this machine or of its link are not reached.",
        ),
        key("allow", TEXTS, May, "Exceptions: `host:port` or `host`."),
    ],
};

static LIMITS: Table = Table {
    place: "[limits]",
    about: "How much, how long, how often. A server may say its own.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("body", Size, Else("\"4MiB\""), "The largest request."),
        key(
            "timeout",
            Duration,
            Else("\"60s\""),
            "How long a call may take, unless its tool says otherwise.",
        ),
        key("rate", List(&Kind::Table(&RATE)), May, "How often callers may call."),
        key(
            "response",
            Either(&[Integer(1, 1 << 40), Kind::Table(&RESPONSE), Size]),
            May,
            "The largest result of a tool: a size, or a table that also says what happens with a larger one. Not said, commands, files and connections have limits of their own.",
        ),
        key(
            "concurrency",
            Integer(1, 100_000),
            May,
            "How many calls of tools run at once, for each server. Four times as many wait (256 at most, five seconds each); others are told that it is busy. Tools with `task` are not counted.",
        ),
    ],
};

static RESPONSE: Table = Table {
    place: "limits.response",
    about: "The largest result of a tool: its texts and media together, and its structured output.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("max", Size, Must, "So many bytes."),
        key(
            "on_exceed",
            Choice(&["error", "truncate"]),
            Else("\"error\""),
            "The call fails; or its texts are cut and say so. Structured output is never cut: then the call fails and shows the beginning of its text.",
        ),
    ],
};

static RATE: Table = Table {
    place: "limits.rate",
    about: "How often one caller may call.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "per",
            Choice(&["ip", "principal"]),
            Must,
            "What counts as one caller: an address, or a proven name.",
        ),
        key("quota", Rate, Must, "`600/min`, `10/s`, `100/h`, `1000/day`."),
        key("burst", COUNT, May, "How many may come at once after a pause; the whole quota unless said."),
        key(
            "window",
            Flag,
            Else("false"),
            "Counts in a window that slides: the first one beyond the quota is refused, however slowly they come. Otherwise room comes back one by one.",
        ),
    ],
};

static STORAGE: Table = Table {
    place: "[storage]",
    about: "Where is kept what outlives a call: tasks, and sessions that several processes serve.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "default",
            Secret,
            Else("\"memory:\""),
            "`memory:`, `redb:PATH` (a file that one process has, found again after a restart), or a Redis that several processes share: `redis://:${PASSWORD}@host:6379/0`, `redis+sentinel://…`, `redis-cluster://…`.",
        ),
        key("prefix", Text, Else("\"toolgate:\""), "What all keys in Redis begin with."),
        later("overrides", "everything is kept in one place"),
    ],
};

static TASK: Table = Table {
    place: "servers.NAME.tools.NAME.task",
    about: "How calls run as tasks: the client goes on meanwhile, and comes back for the result.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("ttl", Duration, Else("\"1h\""), "How long a task is kept, and may run, from its beginning."),
        key(
            "mode",
            Choice(&["optional", "required"]),
            Else("\"optional\""),
            "Clients that know no tasks wait for the result, or are refused.",
        ),
        key(
            "resumable",
            Flag,
            Else("false"),
            "A task whose process ended is run again from its beginning by the next one. Only where running twice does no harm.",
        ),
    ],
};

static STATS: Table = Table {
    place: "[stats]",
    about: "What is counted, and who sees it.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("enabled", Flag, Else("true"), "Whether anything is counted."),
        key(
            "path",
            Text,
            May,
            "Serves the numbers of each server as JSON below this path, to whoever may call that server.",
        ),
        later("dashboard", "`path` serves the numbers as JSON"),
        key(
            "prometheus",
            Kind::Table(&PROMETHEUS),
            May,
            "Serves the numbers as Prometheus reads them, to whoever may call a server.",
        ),
        later("otlp", "`path` serves the numbers as JSON"),
        later("retain", "numbers are kept while the program runs"),
        key(
            "audit",
            Kind::Table(&AUDIT),
            May,
            "Writes a line of JSON for each call: who, what, and how it ended.",
        ),
    ],
};

static AUDIT: Table = Table {
    place: "stats.audit",
    about: "A log of who called what, and how it ended. Headers and results are never in it.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "file",
            Path,
            Must,
            "The file that lines are added to; made if it is not there, for its owner alone.",
        ),
        key("args", Flag, Else("false"), "Arguments too, without what looks like a secret."),
    ],
};

static PROMETHEUS: Table = Table {
    place: "stats.prometheus",
    about: "Numbers as Prometheus reads them. A change needs a restart.",
    is_shared: false,
    one_of: &[],
    keys: &[key(
        "path",
        Text,
        Else("\"/metrics\""),
        "Where: this path shows every server that the caller may call, and `NAME` below it one of them.",
    )],
};

static PROFILE: Table = Table {
    place: "[profiles.NAME]",
    about: "What somebody sees and may call. A pattern is a name in which `*` stands for anything. Without `allow`, everything is allowed.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("allow", TEXTS, May, "Only tools that match one of these."),
        key("deny", TEXTS, May, "No tool that matches one of these."),
        key("allow_prompts", TEXTS, May, "Only prompts that match one of these."),
        key("deny_prompts", TEXTS, May, "No prompt that matches one of these."),
        key("allow_resources", TEXTS, May, "Only resources and templates whose URI matches one of these."),
        key("deny_resources", TEXTS, May, "No resource or template whose URI matches one of these."),
    ],
};

static AUTH: Table = Table {
    place: "[auth.NAME]",
    about: "One way to prove who one is.",
    is_shared: false,
    one_of: &["basic", "bearer", "api_keys", "wordpress", "oauth"],
    keys: &[
        key(
            "basic",
            List(&Kind::Table(&USER)),
            May,
            "Users with passwords (`Authorization: Basic`). The caller's name is `user:` and the user.",
        ),
        key(
            "bearer",
            List(&Either(&[Secret, Kind::Table(&TOKEN)])),
            May,
            "Tokens (`Authorization: Bearer`), each a text or a table.",
        ),
        key("api_keys", List(&Kind::Table(&API_KEY)), May, "Keys (`X-API-Key`, or as a bearer token)."),
        key(
            "wordpress",
            Kind::Table(&WORDPRESS),
            May,
            "Users of a WordPress site, with application passwords (`Authorization: Basic`). The site is asked who they are.",
        ),
        later("oauth", "use tokens or API keys, or a proxy that authenticates"),
    ],
};

static WORDPRESS: Table = Table {
    place: "auth.NAME.wordpress",
    about: "A site that says who its users are. The caller's name is `wordpress:` and the user's number; `principal.id`, `principal.user`, `principal.name`, `principal.roles` and `principal.capabilities` are known too.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("url", Text, Must, "The site's REST API: `https://example.com/wp-json`."),
        key(
            "capability",
            Text,
            May,
            "What a user must be allowed to do there to come in: `manage_options` lets in administrators.",
        ),
        key("cache", Duration, Else("\"60s\""), "How long somebody who was right is not asked about again."),
        key(
            "insecure",
            Flag,
            Else("false"),
            "Passwords may be sent without TLS to another machine. To this one they always may.",
        ),
        key("user", Text, May, "Whom `check --live` logs in as."),
        key("password", Secret, May, "The application password of that user."),
    ],
};

static USER: Table = Table {
    place: "auth.NAME.basic",
    about: "A user with a password.",
    is_shared: false,
    one_of: &["hash", "password"],
    keys: &[
        key("user", Text, Must, "The name."),
        key("hash", Secret, May, "The Argon2 hash of the password: `toolgate hash-password` makes one."),
        key("password", Secret, May, "The password itself, from a variable or a file."),
        key("scopes", TEXTS, May, "What the user may do; tools ask for scopes."),
        key("profile", Text, May, "What the user sees."),
        key(
            "attributes",
            Named(&Any),
            May,
            "What else is known of the user, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, May, QUOTA),
    ],
};

static TOKEN: Table = Table {
    place: "auth.NAME.bearer",
    about: "A token, and who has it.",
    is_shared: false,
    one_of: &["token", "sha256"],
    keys: &[
        key("token", Secret, May, "The token itself, from a variable or a file."),
        key("sha256", Text, May, "The SHA-256 digest of the token, 64 hex digits."),
        key("subject", Text, May, "Who its holder is."),
        key("scopes", TEXTS, May, "What its holder may do; tools ask for scopes."),
        key("profile", Text, May, "What its holder sees."),
        key(
            "attributes",
            Named(&Any),
            May,
            "What else is known of its holder, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, May, QUOTA),
    ],
};

const QUOTA: &str =
    "How often its holder may call, instead of `limits.rate` with `per = \"principal\"`: `10000/day`.";

static API_KEY: Table = Table {
    place: "auth.NAME.api_keys",
    about: "A key, and who has it.",
    is_shared: false,
    one_of: &["sha256", "key"],
    keys: &[
        key("id", Text, Must, "Who its holder is."),
        key("sha256", Text, May, "The SHA-256 digest of the key, 64 hex digits."),
        key("key", Secret, May, "The key itself, from a variable or a file."),
        key("scopes", TEXTS, May, "What its holder may do; tools ask for scopes."),
        key("profile", Text, May, "What its holder sees."),
        key(
            "attributes",
            Named(&Any),
            May,
            "What else is known of its holder, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, May, QUOTA),
    ],
};

static CONNECTION: Table = Table {
    place: "[connections.NAME]",
    about: "A database or an API that tools use.",
    is_shared: false,
    one_of: &["sqlite", "postgres", "mysql", "http"],
    keys: &[
        key("sqlite", Text, May, "A SQLite file: a path, or `file:path?mode=ro`."),
        key("postgres", Secret, May, "`postgres://user:${PASSWORD}@host/database`."),
        key("mysql", Secret, May, "`mysql://user:${PASSWORD}@host/database`."),
        key("http", Text, May, "The base of an API: `https://api.example.com/v1`."),
        with(SQL_KINDS, key("pool", Kind::Table(&POOL), May, "How many connections are kept.")),
        with(
            SQL_KINDS,
            key("read_only", Flag, Else("true"), "Nothing can be written: the database itself refuses."),
        ),
        with(SQL_KINDS, key("max_rows", COUNT, Else("1000"), "A result has at most so many rows.")),
        with(SQL_KINDS, key("max_bytes", Size, Else("\"1MiB\""), "A result has at most so many bytes.")),
        with(
            SQL_KINDS,
            key("expose_errors", Flag, Else("false"), "Callers see what the database says when it refuses."),
        ),
        with(&["http"], key("headers", Named(&Secret), May, "Headers of every request.")),
        with(&["http"], key("query", Named(&Secret), May, "Query parameters of every request.")),
        with(
            &["http"],
            key(
                "auth",
                Kind::Table(&BACKEND_AUTH),
                May,
                "As whom requests are made, where that depends on the caller.",
            ),
        ),
        with(&["http"], key("retry", Kind::Table(&RETRY), May, "When a request is tried again.")),
        with(&["http"], key("redirects", Integer(0, 3), Else("0"), "How many redirects are followed.")),
        with(&["http"], key("max_response", Size, Else("\"1MiB\""), "The largest answer.")),
        with(
            &["http"],
            key(
                "connect_timeout",
                Duration,
                Else("\"5s\""),
                "How long it may take until somebody answers at all.",
            ),
        ),
        with(
            &["http"],
            key(
                "ca",
                Path,
                May,
                "A file of authorities (PEM) that are trusted beside those of this machine.",
            ),
        ),
        key(
            "timeout",
            Duration,
            May,
            "How long a statement (5 s unless said) or a request with its repetitions (10 s) may take.",
        ),
    ],
};

static BACKEND_AUTH: Table = Table {
    place: "auth",
    about: "As whom requests are made, where that depends on the caller.",
    is_shared: false,
    one_of: &["forward", "attribute"],
    keys: &[
        key(
            "forward",
            Flag,
            May,
            "`true`: with the caller's own `Authorization`. A call without one is refused.",
        ),
        key(
            "attribute",
            Text,
            May,
            "With something that is known of the caller. A caller of whom it is not known is refused.",
        ),
        with(&["attribute"], key("header", Text, Else("\"Authorization\""), "The header that carries it.")),
        with(&["attribute"], key("prefix", Text, Else("\"Bearer \""), "What stands before it.")),
    ],
};

static POOL: Table = Table {
    place: "connections.NAME.pool",
    about: "How many connections are kept.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("max", Integer(1, 1000), Else("8"), "At most so many."),
        key(
            "queue",
            Integer(0, 10_000),
            Else("64"),
            "How many calls wait for one; others are told that it is busy.",
        ),
        key("wait", Duration, Else("\"2s\""), "How long a call waits for one."),
        key("idle", Duration, Else("\"5m\""), "How long one is kept that nobody uses."),
    ],
};

static RETRY: Table = Table {
    place: "connections.NAME.retry",
    about: "When a request that may be repeated is tried again.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("max", Integer(0, 10), Else("2"), "How often at most."),
        key("on", List(&Integer(100, 599)), Else("[429, 502, 503, 504]"), "After which status codes."),
    ],
};

static SERVER: Table = Table {
    place: "[servers.NAME]",
    about: "A server: what clients connect to.",
    is_shared: true,
    one_of: &[],
    keys: &[
        key(
            "path",
            Text,
            May,
            "Where it is served; `/NAME/mcp` unless said, and `/mcp` where it is the only one.",
        ),
        key("title", Text, May, "Its name for people."),
        key("description", Text, May, "What it is, for people."),
        key("version", Text, Else("\"1.0.0\""), "Its version."),
        key(
            "instructions",
            Text,
            May,
            "How to use it, for a model. `{tool_count}` is how many tools there are.",
        ),
        key("website", Text, May, "Where to read more."),
        key(
            "auth",
            Many(&Text),
            May,
            "Who may call: names of `[auth]`, any of which is enough. None said, everybody who reaches it.",
        ),
        key(
            "dialect",
            Choice(&["official", "boxlang", "bxmcp", "erlmcp", "bluehub", "buddyboss"]),
            Else("\"official\""),
            "How it speaks to clients that name no protocol revision.",
        ),
        key(
            "profile",
            Either(&[Text, Kind::Table(&PROFILE)]),
            May,
            "What anybody sees: a name of `[profiles]`, or a table.",
        ),
        key("page_size", COUNT, Else("1000"), "How many things one page of a list shows."),
        key(
            "catalog",
            Text,
            May,
            "Serves what can be called as JSON at this path, with categories and prices; `?query=` and `?category=` choose.",
        ),
        key("sessions", Flag, Else("true"), "Whether clients are remembered between requests."),
        key(
            "strict_arguments",
            Flag,
            Else("false"),
            "Refuses `\"5\"` where a number is wanted, instead of reading it as one.",
        ),
        key("limits", Kind::Table(&LIMITS), May, "Its own limits, instead of those for all."),
        key(
            "cors",
            Either(&[TEXTS, Kind::Table(&CORS)]),
            May,
            "Pages that may call and read this server, instead of `security.cors`.",
        ),
        key("tools", Named(&Kind::Table(&TOOL)), May, "What can be called, by name."),
        key("resources", Named(&Kind::Table(&RESOURCE)), May, "What can be read, by name."),
        key(
            "templates",
            Named(&Kind::Table(&TEMPLATE)),
            May,
            "What can be read by URIs with holes, by name.",
        ),
        key("prompts", Named(&Kind::Table(&PROMPT)), May, "Texts with holes that a person chooses, by name."),
        key("openapi", Named(&Kind::Table(&OPENAPI)), May, "Whole APIs, by name."),
        later("upstreams", "other MCP servers cannot be put behind this one yet"),
        later("policy", "use `profile`, and `scopes` of tools"),
        later("search", "use `page_size`, and `profile` to hide what is not needed"),
        key(
            "packs",
            Either(&[TEXTS, Named(&Kind::Table(&PACK))]),
            May,
            "What the program brings along: a list of `runtime`, `buddyboss` and `hub`, or a table of what is said of each.",
        ),
    ],
};

static PACK: Table = Table {
    place: "[servers.NAME.packs.NAME]",
    about: "Tools, prompts and resources that the program brings along. What the file says under the same name takes the place of what the pack has: all of it, or, where it does not say what to do, those keys that it says.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "on",
            Text,
            May,
            "The connection that its requests go to, by its name; packs of requests need it.",
        ),
        key("phases", TEXTS, May, "Only these parts of it."),
        key("include", TEXTS, May, "Only what is called like this; `*` stands for anything."),
        key("exclude", TEXTS, May, "Nothing that is called like this."),
    ],
};

const BUILTIN: Key = key("builtin", Kind::Inside, May, "");

static TOOL: Table = Table {
    place: "[servers.NAME.tools.NAME]",
    about: "Something that can be called. One of `http`, `sql`, `command`, `text` and `template` says what it does.",
    is_shared: false,
    one_of: &["http", "sql", "command", "text", "template", "builtin"],
    keys: &[
        BUILTIN,
        key("description", Text, May, "What it does, for a model. Say when to use it."),
        key("title", Text, May, "Its name for people."),
        key("args", ARGUMENTS, May, "Its arguments, by name; see below."),
        key(
            "clean",
            Flag,
            Else("false"),
            "Arguments are put right before they are checked: numbers lose their sign and are brought into their range, texts lose tags and what surrounds them and are cut after 1000 letters, lists may be written with commas, and what is not among the values of an `enum` is left out. An argument says `clean = false` to stay as it is.",
        ),
        key("http", Kind::Table(&HTTP), May, "Sends a request to an API."),
        key("sql", Kind::Table(&SQL), May, "Runs a statement of SQL."),
        key("command", Kind::Table(&COMMAND), May, "Runs a program."),
        key("text", Text, May, "Says this."),
        key("template", Text, May, "Says this, with its arguments put in (MiniJinja)."),
        key(
            "output",
            Either(&[Text, Any]),
            May,
            "What structured output looks like: `rows`, `row` or `value` for SQL, or a JSON Schema.",
        ),
        key("annotations", Kind::Table(&ANNOTATIONS), May, "What to expect of a call."),
        key(
            "scopes",
            TEXTS,
            May,
            "Scopes that a caller needs, all of them. Who lacks one does not see the tool. Over stdio nobody is asked.",
        ),
        key("timeout", Duration, May, "How long a call may take."),
        key("enabled", Flag, Else("true"), "Whether it is there at all."),
        key("meta", Any, May, "`_meta`, for clients that know what to do with it."),
        key("aliases", TEXTS, May, "Other names under which it can be called. Lists do not show them."),
        key("category", Text, May, "What kind of tool it is, for the catalogue."),
        key(
            "price",
            Either(&[Text, Kind::Table(&PRICE)]),
            May,
            "What a call costs: `\"0.05\"`, or `{ usd = \"0.05\" }`. As nobody can pay yet, a call of a tool that costs something is refused.",
        ),
        key(
            "cache",
            Duration,
            May,
            "Keeps what went well for so long, for calls with the same arguments; where the result depends on the caller, for the same caller.",
        ),
        key(
            "task",
            Either(&[Flag, Kind::Table(&TASK)]),
            May,
            "`true`: calls run as tasks where the client knows them. A table says more.",
        ),
    ],
};

static PRICE: Table = Table {
    place: "servers.NAME.tools.NAME.price",
    about: "What a call costs.",
    is_shared: false,
    one_of: &[],
    keys: &[key(
        "usd",
        Text,
        Must,
        "US dollars, with at most six digits behind the point: `0.05`. `0` is free.",
    )],
};

static ANNOTATIONS: Table = Table {
    place: "servers.NAME.tools.NAME.annotations",
    about: "What to expect of a call. Not said is not the same as no.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("title", Text, May, "A name for people."),
        key("readOnlyHint", Flag, May, "Changes nothing."),
        key("destructiveHint", Flag, May, "May destroy something."),
        key("idempotentHint", Flag, May, "Twice is the same as once."),
        key("openWorldHint", Flag, May, "Reaches beyond this server."),
    ],
};

static HTTP: Table = Table {
    place: "http",
    about: "A request to an API. `{name}` in a path, a query, a form and a header, and `{{ name }}` in a body, are arguments, each encoded as its place needs.",
    is_shared: false,
    one_of: &["path", "url"],
    keys: &[
        key("on", Text, Must, "The connection, by its name."),
        key(
            "method",
            Choice(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]),
            Else("\"GET\""),
            "The method.",
        ),
        key("path", Text, May, "The path below the connection's base: `/items/{id}`."),
        key("url", Text, May, "Instead of `path`: the one argument that is a whole address, `{url}`."),
        key("query", Named(&Text), May, "Query parameters; one whose argument was not given is left out."),
        key("headers", Named(&Text), May, "Headers."),
        key("cookies", Named(&Text), May, "Cookies."),
        key(
            "json",
            Any,
            May,
            "A body of JSON. A text that is nothing but `{{ name }}` becomes the argument with its type.",
        ),
        key("form", Named(&Text), May, "A body as a form sends it."),
        key(
            "multipart",
            Named(&Either(&[Text, Kind::Table(&PART)])),
            May,
            "A body of several parts: texts, and files.",
        ),
        key("body", Text, May, "A body as it is."),
        key("bytes", Text, May, "A body of bytes: the argument of this name, which is base64."),
        key("content_type", Text, May, "What kind of body it is, with `body` and `bytes`."),
        key(
            "pick",
            Text,
            May,
            "What of the answer is the result, in the language of jq: `{number, url: .html_url}`.",
        ),
        key(
            "paging",
            Choice(&["meta", "result", "off"]),
            Else("\"meta\""),
            "Where totals and links of an answer are told.",
        ),
        key(
            "expect",
            Choice(&["auto", "json", "text"]),
            Else("\"auto\""),
            "What an answer must be: JSON, text or media, but no web page; JSON; or anything, as text.",
        ),
        key(
            "errors",
            Choice(&["auto", "message", "status"]),
            Else("\"auto\""),
            "What a caller is told of failures: the message where the request was wrong and the status alone where the API is; the message; the status.",
        ),
        key(
            "on_exceed",
            Choice(&["error", "truncate"]),
            Else("\"error\""),
            "What happens with an answer that is too large.",
        ),
        key(
            "unavailable",
            TEXTS,
            May,
            "Codes of errors (`rest_no_route`) that mean that what the tool needs is not there; some dialects have a number for that.",
        ),
        key(
            "then",
            Kind::Table(&THEN),
            May,
            "A second request, if the first went well: its result is the result. What `pick` took of the first answer is its argument `first`.",
        ),
        key(
            "auth",
            Kind::Table(&BACKEND_AUTH),
            May,
            "As whom the request is made, instead of what the connection says.",
        ),
        key("idempotent", Flag, May, "Whether it may be repeated, whatever its method says."),
        key(
            "timeout",
            Duration,
            May,
            "How long the request may take, if that is less than the connection's.",
        ),
        key("max_response", Size, May, "The largest answer, if that is less than the connection's."),
        key("concurrency", COUNT, Else("64"), "How many calls run at once."),
        key(
            "queue",
            Integer(0, 10_000),
            Else("256"),
            "How many calls wait for their turn; others are told that it is busy.",
        ),
    ],
};

static THEN: Table = Table {
    place: "http.then",
    about: "A request that follows another one, on the same connection.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("method", Choice(&["GET", "POST", "PUT", "PATCH", "DELETE"]), Else("\"POST\""), "The method."),
        key("path", Text, Must, "The path below the connection's base: `/items/{first}`."),
        key("query", Named(&Text), May, "Query parameters; one whose argument was not given is left out."),
        key("json", Any, May, "A body of JSON: `{ id = \"{{ first }}\" }`."),
        key("pick", Text, May, "What of the answer is the result, in the language of jq."),
    ],
};

static PART: Table = Table {
    place: "http.multipart.NAME",
    about: "A file in a body of several parts.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("file", Text, Must, "The argument that has its bytes, as base64 or as a `data:` link."),
        key("filename", Text, Else("\"file\""), "What it is called."),
        key("mime", Text, Else("\"application/octet-stream\""), "Its media type."),
    ],
};

static SQL: Table = Table {
    place: "sql",
    about: "A statement of SQL. `:name` and `$name` are arguments, always bound, never pasted.",
    is_shared: false,
    one_of: &["query", "query_from"],
    keys: &[
        key("on", Text, Must, "The connection, by its name."),
        key("query", Text, May, "The statement."),
        key(
            "query_from",
            Text,
            May,
            "The argument that is the statement, for reading only: the caller writes SQL.",
        ),
        key(
            "write",
            Flag,
            Else("false"),
            "It changes the database, whose connection says `read_only = false`.",
        ),
        key("max_rows", COUNT, May, "A result has at most so many rows, instead of the connection's."),
        key("max_bytes", Size, May, "A result has at most so many bytes, instead of the connection's."),
        key("timeout", Duration, May, "How long the statement may take, instead of the connection's."),
        key(
            "expose_errors",
            Flag,
            May,
            "Callers see what the database says when it refuses, instead of what the connection says of that.",
        ),
    ],
};

static COMMAND: Table = Table {
    place: "command",
    about: "A program, run without a shell. Its environment is empty but for `PATH`, `LANG` and what is named here.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key(
            "argv",
            List(&Either(&[Text, TEXTS])),
            Must,
            "The program and its arguments. A program with a `/` in it is a path, which begins where the configuration is, whatever `cwd` is; others are looked for in `PATH`. `{name}` inside one is an argument of the tool, and stays inside. A list in the list is left out if an argument in it was not given.",
        ),
        key("env", Named(&Secret), May, "Variables of its environment."),
        key("pass_env", TEXTS, May, "Variables that it gets from ours."),
        key("cwd", Path, May, "Where it runs; where the configuration is, unless said."),
        key("stdin", Text, May, "What it reads, with `{name}` for arguments; nothing unless said."),
        key("stdout", Choice(&["text", "json"]), Else("\"text\""), "What it prints."),
        key("max_output", Size, Else("\"64KiB\""), "It is stopped when it prints more."),
        key(
            "timeout",
            Duration,
            Else("\"60s\""),
            "It is stopped, with everything it started, after this time.",
        ),
        key("exit_codes", List(&Integer(0, 255)), Else("[0]"), "Exit codes that are no failure."),
        key(
            "progress",
            Choice(&["none", "stderr"]),
            Else("\"none\""),
            "Lines that tell the client how far it is; `3/10` or `30%` at the beginning of one is the measure.",
        ),
        key(
            "allow_leading_dash",
            Flag,
            Else("false"),
            "Arguments may begin with `-` where the program would take them for options.",
        ),
        key("concurrency", Integer(1, 1000), Else("8"), "How many run at once."),
        key(
            "queue",
            Integer(0, 10_000),
            Else("64"),
            "How many calls wait for their turn; others are told that it is busy.",
        ),
        later("sandbox", "run the program under a user that may do little"),
        key("shell", Kind::Never("there is no shell; put the pipeline into a script and call that"), May, ""),
    ],
};

static RESOURCE: Table = Table {
    place: "[servers.NAME.resources.NAME]",
    about: "Something that can be read. One of `text`, `file`, `files`, `template`, `command`, `http` and `sql` says what.",
    is_shared: false,
    one_of: &["text", "file", "files", "template", "command", "http", "sql", "builtin"],
    keys: &[
        BUILTIN,
        key("uri", Text, May, "Where it is: `shop://sizing`. Needed, but for `files`."),
        key("title", Text, May, "Its name for people."),
        key("description", Text, May, "What it is, for a model."),
        key("mime", Text, May, "Its media type; found out from the name of a file unless said."),
        key("text", Text, May, "This text."),
        key("file", Path, May, "One file."),
        key("files", Kind::Table(&FILES), May, "A folder: each file is a resource."),
        key("template", Text, May, "This text, with arguments from the caller put in (MiniJinja)."),
        key("command", Kind::Table(&COMMAND), May, "What a program prints."),
        key("http", Kind::Table(&HTTP), May, "What an API answers."),
        key("sql", Kind::Table(&SQL), May, "What a statement gives, as JSON."),
        with(
            &["sql"],
            key(
                "output",
                SHAPE,
                Else("\"rows\""),
                "What of the rows: all, the first one, or its first column.",
            ),
        ),
        key("args", ARGUMENTS, May, "Arguments from the caller (`from`): a resource has no others."),
        key("enabled", Flag, Else("true"), "Whether it is there at all."),
    ],
};

static FILES: Table = Table {
    place: "servers.NAME.resources.NAME.files",
    about: "A folder whose files can be read. Nothing outside of it can, whatever links say.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("root", Path, Must, "The folder."),
        key("glob", Many(&Text), Else("\"**/*\""), "Which files: `**/*.md`."),
        key("exclude", Many(&Text), May, "Which files not."),
        key("uri", Text, Must, "Their URIs: `docs:///{path}`."),
        key("hidden", Flag, Else("false"), "Files and folders whose names begin with a dot, too."),
        key("watch", Flag, Else("true"), "Clients are told when files change."),
        key("max_size", Size, Else("\"8MiB\""), "Larger files are not read."),
        key(
            "max_files",
            Integer(0, 100_000),
            Else("10000"),
            "So many are listed; others can be read if one knows their URI.",
        ),
    ],
};

static TEMPLATE: Table = Table {
    place: "[servers.NAME.templates.NAME]",
    about: "Many things that can be read, by URIs with holes. One of `template`, `command`, `http` and `sql` says what.",
    is_shared: false,
    one_of: &["template", "command", "http", "sql", "builtin"],
    keys: &[
        BUILTIN,
        key("uri", Text, Must, "The URIs, as RFC 6570 writes them: `shop://product/{sku}`."),
        key("title", Text, May, "Its name for people."),
        key("description", Text, May, "What these are, for a model."),
        key("mime", Text, May, "Their media type."),
        key("template", Text, May, "A text with the variables put in (MiniJinja)."),
        key("command", Kind::Table(&COMMAND), May, "What a program prints."),
        key("http", Kind::Table(&HTTP), May, "What an API answers."),
        key("sql", Kind::Table(&SQL), May, "What a statement gives, as JSON."),
        with(
            &["sql"],
            key(
                "output",
                SHAPE,
                Else("\"rows\""),
                "What of the rows: all, the first one, or its first column.",
            ),
        ),
        key("args", ARGUMENTS, May, "What the variables look like, and arguments from the caller (`from`)."),
        key(
            "complete",
            Named(&COMPLETE),
            May,
            "How variables can go on: a list of values, or a source of them.",
        ),
        key("enabled", Flag, Else("true"), "Whether it is there at all."),
    ],
};

const COMPLETE: Kind = Either(&[TEXTS, Kind::Table(&COMPLETION)]);

static COMPLETION: Table = Table {
    place: "complete.NAME",
    about: "Where values come from. What is written so far is the argument `prefix`; each line or row is a value.",
    is_shared: false,
    one_of: &["command", "http", "sql"],
    keys: &[
        key("command", Kind::Table(&COMMAND), May, "What a program prints, line by line."),
        key("http", Kind::Table(&HTTP), May, "A list that an API answers."),
        key("sql", Kind::Table(&SQL), May, "The first column of what a statement gives."),
    ],
};

static PROMPT: Table = Table {
    place: "[servers.NAME.prompts.NAME]",
    about: "A text with holes that a person chooses. One of `messages`, `text` and `file` says it, in the language of MiniJinja; `{{ resource('uri') }}` puts a resource there.",
    is_shared: false,
    one_of: &["messages", "text", "file"],
    keys: &[
        key("title", Text, May, "Its name for people."),
        key("description", Text, May, "What it is for."),
        key("args", ARGUMENTS, May, "What fills its holes."),
        key(
            "complete",
            Named(&COMPLETE),
            May,
            "How arguments can go on: a list of values, or a source of them.",
        ),
        key("messages", List(&Kind::Table(&MESSAGE)), May, "What is said, in order."),
        key("text", Text, May, "What the user says."),
        key("file", Path, May, "A file with what the user says."),
        key("enabled", Flag, Else("true"), "Whether it is there at all."),
    ],
};

static MESSAGE: Table = Table {
    place: "servers.NAME.prompts.NAME.messages",
    about: "One thing that is said.",
    is_shared: false,
    one_of: &["text", "file"],
    keys: &[
        key("role", Choice(&["user", "assistant", "system"]), Else("\"user\""), "By whom."),
        key("text", Text, May, "What."),
        key("file", Path, May, "A file with what."),
    ],
};

static OPENAPI: Table = Table {
    place: "[servers.NAME.openapi.NAME]",
    about: "A whole API, by its OpenAPI 3.0, 3.1 or Swagger 2.0 description: each operation becomes a tool.",
    is_shared: false,
    one_of: &[],
    keys: &[
        key("spec", Text, Must, "The description: a file, or a URL."),
        key("on", Text, May, "The connection that requests go to, by its name."),
        key(
            "base",
            Text,
            May,
            "The base of the API, where there is no connection. What the description says of servers is not believed.",
        ),
        key("refresh", Duration, May, "How often a description behind a URL is read anew."),
        key("prefix", Text, May, "What names of tools begin with."),
        key("include", TEXTS, May, "Only these operations: `GET /v2/**`, `tag:stock`, or an operation's id."),
        key("exclude", TEXTS, May, "None of these operations; also `deprecated`."),
        key(
            "as",
            Named(&Choice(&["tool", "resource", "template"])),
            May,
            "What an operation becomes, by `GET /path` or its id.",
        ),
        key("rename", Named(&Text), May, "Other names for tools, by operation id."),
        key("auth", Kind::Table(&OPENAPI_AUTH), May, "What requests carry to prove who sends them."),
    ],
};

static OPENAPI_AUTH: Table = Table {
    place: "servers.NAME.openapi.NAME.auth",
    about: "What requests carry to prove who sends them.",
    is_shared: false,
    one_of: &["forward", "headers"],
    keys: &[
        key(
            "forward",
            Many(&Text),
            May,
            "`principal`: the caller's own `Authorization`; or names of headers that are passed on.",
        ),
        key("headers", Named(&Secret), May, "These headers."),
    ],
};
