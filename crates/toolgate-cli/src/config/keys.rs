//! Every key of a configuration: what it is called, what it takes, what it is for.
//!
//! The file is checked against these tables, its JSON Schema and its reference are written from them. A key that is not
//! here does not exist.

use serde_json::Value;

/// A table of the file.
#[derive(Debug)]
pub(crate) struct Table {
    /// Where it stands, for the reference: `[servers.NAME]`.
    pub(crate) path: &'static str,
    pub(crate) description: &'static str,
    pub(crate) keys: &'static [Key],
    /// Exactly one of these says what kind it is.
    pub(crate) one_of: &'static [&'static str],
    /// Several files may each say a part of it.
    pub(crate) is_mergeable: bool,
}

impl Table {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Returns an object with the default value of a key, or an empty object if the key has no default. `kind` is the
    /// key of `one_of` that is set.
    pub(crate) fn default_of(&self, name: &str, kind: Option<&str>) -> Value {
        let default = match self.key(name).map(|key| key.presence) {
            Some(Presence::WithDefault(default)) => Some(default),
            Some(Presence::DefaultByKind(defaults)) => defaults
                .iter()
                .find(|(kinds, _)| kind.is_some_and(|kind| kinds.contains(&kind)))
                .map(|(_, default)| *default),
            Some(Presence::Required | Presence::Optional) | None => None,
        };
        match default.and_then(|default| serde_json::from_str::<Value>(default).ok()) {
            Some(default) => Value::Object([(name.to_owned(), default)].into_iter().collect()),
            None => Value::Object(serde_json::Map::new()),
        }
    }
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    pub(crate) description: &'static str,
    /// Only beside one of these kinds; empty: beside all.
    pub(crate) only_with: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
    /// The default value, written as JSON.
    WithDefault(&'static str),
    /// Default values that depend on the kind of the table: for each key of `Table::one_of`, JSON.
    DefaultByKind(&'static [(&'static [&'static str], &'static str)]),
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
    OneOrMany(&'static Kind),
    /// A table whose keys are names that the author chooses.
    Map(&'static Kind),
    Table(&'static Table),
    /// By what it looks like.
    Either(&'static [Kind]),
    /// Passed on as it is.
    Any,
    /// A text that only packs say: in a file it is no key at all.
    PackOnly,
    /// Not there yet; what to do meanwhile.
    Planned(&'static str),
    /// Will never be there; what to do instead.
    Unsupported(&'static str),
}

impl Kind {
    /// Whether it can be said at all.
    pub(crate) fn is_supported(&self) -> bool {
        !matches!(self, Kind::PackOnly | Kind::Planned(_) | Kind::Unsupported(_))
    }
}

use Kind::{
    Any, Choice, Duration, Either, Flag, Integer, List, Map, OneOrMany, Path, Planned, Rate, Secret, Size,
    Text,
};
use Presence::{DefaultByKind, Optional, Required, WithDefault};

const fn key(name: &'static str, kind: Kind, need: Presence, about: &'static str) -> Key {
    Key { name, kind, presence: need, description: about, only_with: &[] }
}

const fn only_with(with: &'static [&'static str], key: Key) -> Key {
    Key { only_with: with, ..key }
}

const fn planned(name: &'static str, instead: &'static str) -> Key {
    Key { name, kind: Planned(instead), presence: Optional, description: "", only_with: &[] }
}

const TEXT_LIST: Kind = List(&Text);
const COUNT: Kind = Integer(1, 1_000_000);
const ARGUMENT: Kind = Either(&[Text, Any]);
const ARGUMENTS: Kind = Map(&ARGUMENT);
const SQL_OUTPUT: Kind = Choice(&["rows", "row", "value"]);
const SQL_KINDS: &[&str] = &["sqlite", "postgres", "mysql"];

pub(crate) static ROOT: Table = Table {
    path: "",
    description: "The file itself.",
    is_mergeable: true,
    one_of: &[],
    keys: &[
        key("version", Integer(1, 1), WithDefault("1"), "The format of the file."),
        key(
            "include",
            OneOrMany(&Text),
            Optional,
            "More files, by name or pattern (`conf.d/*.toml`), whose keys are added. A key that two files say is an error.",
        ),
        key("listen", Kind::Table(&LISTEN), Optional, "Where to serve."),
        key("security", Kind::Table(&SECURITY), Optional, "What is let in and out, for all servers."),
        key("limits", Kind::Table(&LIMITS), Optional, "How much, how long, how often, for all servers."),
        key("stats", Kind::Table(&STATS), Optional, "What is counted, and who sees it."),
        key(
            "profiles",
            Map(&Kind::Table(&PROFILE)),
            Optional,
            "Choices of tools, prompts and resources, by name. `admin` and `readonly` are there already.",
        ),
        key("auth", Map(&Kind::Table(&AUTH)), Optional, "Who may call, by name; servers refer to it."),
        key(
            "connections",
            Map(&Kind::Table(&CONNECTION)),
            Optional,
            "Databases and APIs, by name; tools refer to them.",
        ),
        key("servers", Map(&Kind::Table(&SERVER)), Optional, "What is served, by name."),
        key(
            "storage",
            Kind::Table(&STORAGE),
            Optional,
            "Where is kept what outlives a call: tasks, and sessions that several processes serve.",
        ),
        planned("events", "the library can listen to events; the program cannot yet"),
    ],
};

pub(super) static LISTEN: Table = Table {
    path: "[listen]",
    description: "Where the program listens. A change needs a restart.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("http", Text, WithDefault("\"127.0.0.1:8080\""), "Address and port. Port 0 picks a free one."),
        key(
            "public_url",
            Text,
            Optional,
            "The address that clients know it by, behind a proxy: requests for its host and from its pages are served.",
        ),
        key("hosts", TEXT_LIST, Optional, "Further hosts that requests may be for."),
        key(
            "trusted_proxies",
            TEXT_LIST,
            Optional,
            "Addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.",
        ),
        key(
            "shutdown_grace",
            Duration,
            WithDefault("\"30s\""),
            "How long calls under way may go on when it is asked to end.",
        ),
        key("max_connections", COUNT, WithDefault("10000"), "How many connections may be open at once."),
        planned("revisions", "all five protocol revisions are served"),
        key(
            "legacy_sse",
            Flag,
            WithDefault("true"),
            "The two-endpoint transport of the first revision, at `sse` and `messages` below each server.",
        ),
        planned(
            "tls",
            "put a proxy that speaks TLS in front, and name it in `public_url` and `trusted_proxies`",
        ),
    ],
};

pub(super) static SECURITY: Table = Table {
    path: "[security]",
    description: "What is let in and out, for all servers.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "headers",
            Choice(&["strict", "none"]),
            WithDefault("\"strict\""),
            "The headers that keep browsers from doing harm, on every answer.",
        ),
        key(
            "ip_allow",
            TEXT_LIST,
            Optional,
            "Only these addresses and networks are served; none said, all are.",
        ),
        key(
            "cors",
            Either(&[TEXT_LIST, Kind::Table(&CORS)]),
            Optional,
            "Pages of these origins may call and read: `https://app.example.com`, `*.example.com`, `*`.",
        ),
        key("egress", Kind::Table(&EGRESS), Optional, "Where tools that fetch may go."),
    ],
};

pub(super) static CORS: Table = Table {
    path: "security.cors",
    description: "Which pages may call and read.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("origins", TEXT_LIST, Required, "The origins."),
        key("max_age", Duration, WithDefault("\"1d\""), "How long browsers remember what pages may do."),
    ],
};

pub(super) static EGRESS: Table = Table {
    path: "security.egress",
    description: "Where tools that fetch may go.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "deny_private",
            Flag,
            WithDefault("true"),
            "Addresses that are private, of this machine or of its link are not reached.",
        ),
        key("allow", TEXT_LIST, Optional, "Exceptions: `host:port` or `host`."),
    ],
};

pub(super) static LIMITS: Table = Table {
    path: "[limits]",
    description: "How much, how long, how often. A server may say its own.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("body", Size, WithDefault("\"4MiB\""), "The largest request."),
        key(
            "timeout",
            Duration,
            WithDefault("\"60s\""),
            "How long a call may take, unless its tool says otherwise.",
        ),
        key("rate", List(&Kind::Table(&RATE)), Optional, "How often callers may call."),
        key(
            "response",
            Either(&[Integer(1, 1 << 40), Kind::Table(&RESPONSE), Size]),
            Optional,
            "The largest result of a tool: a size, or a table that also says what happens with a larger one. Not said, commands, files and connections have limits of their own.",
        ),
        key(
            "concurrency",
            Integer(1, 100_000),
            Optional,
            "How many calls of tools run at once, for each server. Four times as many wait (256 at most, five seconds each); others are told that it is busy. Tools with `task` are not counted.",
        ),
    ],
};

pub(super) static RESPONSE: Table = Table {
    path: "limits.response",
    description: "The largest result of a tool: its texts and media together, and its structured output.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("max", Size, Required, "So many bytes."),
        key(
            "on_exceed",
            Choice(&["error", "truncate"]),
            WithDefault("\"error\""),
            "The call fails; or its texts are cut and say so. Structured output is never cut: then the call fails and shows the beginning of its text.",
        ),
    ],
};

pub(super) static RATE: Table = Table {
    path: "limits.rate",
    description: "How often one caller may call.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "per",
            Choice(&["ip", "principal"]),
            Required,
            "What counts as one caller: an address, or a proven name.",
        ),
        key("quota", Rate, Required, "`600/min`, `10/s`, `100/h`, `1000/day`."),
        key(
            "burst",
            COUNT,
            Optional,
            "How many may come at once after a pause; the whole quota unless said.",
        ),
        key(
            "window",
            Flag,
            WithDefault("false"),
            "Counts in a window that slides: the first one beyond the quota is refused, however slowly they come. Otherwise room comes back one by one.",
        ),
    ],
};

pub(super) static STORAGE: Table = Table {
    path: "[storage]",
    description: "Where is kept what outlives a call: tasks, and sessions that several processes serve.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "default",
            Secret,
            WithDefault("\"memory:\""),
            "`memory:`, `redb:PATH` (a file that one process has, found again after a restart), or a Redis that several processes share: `redis://:${PASSWORD}@host:6379/0`, `redis+sentinel://…`, `redis-cluster://…`.",
        ),
        key("prefix", Text, WithDefault("\"toolgate:\""), "What all keys in Redis begin with."),
        planned("overrides", "everything is kept in one place"),
    ],
};

pub(super) static TASK: Table = Table {
    path: "servers.NAME.tools.NAME.task",
    description: "How calls run as tasks: the client goes on meanwhile, and comes back for the result.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "ttl",
            Duration,
            WithDefault("\"1h\""),
            "How long a task is kept, and may run, from its beginning.",
        ),
        key(
            "mode",
            Choice(&["optional", "required"]),
            WithDefault("\"optional\""),
            "Clients that know no tasks wait for the result, or are refused.",
        ),
        key(
            "resumable",
            Flag,
            WithDefault("false"),
            "A task whose process ended is run again from its beginning by the next one. Only where running twice does no harm.",
        ),
    ],
};

pub(super) static STATS: Table = Table {
    path: "[stats]",
    description: "What is counted, and who sees it.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("enabled", Flag, WithDefault("true"), "Whether anything is counted."),
        key(
            "path",
            Text,
            Optional,
            "Serves the numbers of each server as JSON below this path, to whoever may call that server.",
        ),
        planned("dashboard", "`path` serves the numbers as JSON"),
        key(
            "prometheus",
            Kind::Table(&PROMETHEUS),
            Optional,
            "Serves the numbers as Prometheus reads them, to whoever may call a server.",
        ),
        planned("otlp", "`path` serves the numbers as JSON"),
        planned("retain", "numbers are kept while the program runs"),
        key(
            "audit",
            Kind::Table(&AUDIT),
            Optional,
            "Writes a line of JSON for each call: who, what, and how it ended.",
        ),
    ],
};

pub(super) static AUDIT: Table = Table {
    path: "stats.audit",
    description: "A log of who called what, and how it ended. Headers and results are never in it.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "file",
            Path,
            Required,
            "The file that lines are added to; made if it is not there, for its owner alone.",
        ),
        key("args", Flag, WithDefault("false"), "Arguments too, without what looks like a secret."),
    ],
};

pub(super) static PROMETHEUS: Table = Table {
    path: "stats.prometheus",
    description: "Numbers as Prometheus reads them. A change needs a restart.",
    is_mergeable: false,
    one_of: &[],
    keys: &[key(
        "path",
        Text,
        WithDefault("\"/metrics\""),
        "Where: this path shows every server that the caller may call, and `NAME` below it one of them.",
    )],
};

pub(super) static PROFILE: Table = Table {
    path: "[profiles.NAME]",
    description: "What somebody sees and may call. A pattern is a name in which `*` stands for anything. Without `allow`, everything is allowed.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("allow", TEXT_LIST, Optional, "Only tools that match one of these."),
        key("deny", TEXT_LIST, Optional, "No tool that matches one of these."),
        key("allow_prompts", TEXT_LIST, Optional, "Only prompts that match one of these."),
        key("deny_prompts", TEXT_LIST, Optional, "No prompt that matches one of these."),
        key(
            "allow_resources",
            TEXT_LIST,
            Optional,
            "Only resources and templates whose URI matches one of these.",
        ),
        key("deny_resources", TEXT_LIST, Optional, "No resource or template whose URI matches one of these."),
    ],
};

pub(super) static AUTH: Table = Table {
    path: "[auth.NAME]",
    description: "One way to prove who one is.",
    is_mergeable: false,
    one_of: &["basic", "bearer", "api_keys", "wordpress", "oauth"],
    keys: &[
        key(
            "basic",
            List(&Kind::Table(&USER)),
            Optional,
            "Users with passwords (`Authorization: Basic`). The caller's name is `user:` and the user.",
        ),
        key(
            "bearer",
            List(&Either(&[Secret, Kind::Table(&TOKEN)])),
            Optional,
            "Tokens (`Authorization: Bearer`), each a text or a table.",
        ),
        key("api_keys", List(&Kind::Table(&API_KEY)), Optional, "Keys (`X-API-Key`, or as a bearer token)."),
        key(
            "wordpress",
            Kind::Table(&WORDPRESS),
            Optional,
            "Users of a WordPress site, with application passwords (`Authorization: Basic`). The site is asked who they are.",
        ),
        planned("oauth", "use tokens or API keys, or a proxy that authenticates"),
    ],
};

pub(super) static WORDPRESS: Table = Table {
    path: "auth.NAME.wordpress",
    description: "A site that says who its users are. The caller's name is `wordpress:` and the user's number; `principal.id`, `principal.user`, `principal.name`, `principal.roles` and `principal.capabilities` are known too.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("url", Text, Required, "The site's REST API: `https://example.com/wp-json`."),
        key(
            "capability",
            Text,
            Optional,
            "What a user must be allowed to do there to come in: `manage_options` lets in administrators.",
        ),
        key(
            "cache",
            Duration,
            WithDefault("\"60s\""),
            "How long somebody who was right is not asked about again.",
        ),
        key(
            "insecure",
            Flag,
            WithDefault("false"),
            "Passwords may be sent without TLS to another machine. To this one they always may.",
        ),
        key("user", Text, Optional, "Whom `check --live` logs in as."),
        key("password", Secret, Optional, "The application password of that user."),
    ],
};

pub(super) static USER: Table = Table {
    path: "auth.NAME.basic",
    description: "A user with a password.",
    is_mergeable: false,
    one_of: &["hash", "password"],
    keys: &[
        key("user", Text, Required, "The name."),
        key("hash", Secret, Optional, "The Argon2 hash of the password: `toolgate hash-password` makes one."),
        key("password", Secret, Optional, "The password itself, from a variable or a file."),
        key("scopes", TEXT_LIST, Optional, "What the user may do; tools ask for scopes."),
        key("profile", Text, Optional, "What the user sees."),
        key(
            "attributes",
            Map(&Any),
            Optional,
            "What else is known of the user, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, Optional, QUOTA_DESCRIPTION),
    ],
};

pub(super) static TOKEN: Table = Table {
    path: "auth.NAME.bearer",
    description: "A token, and who has it.",
    is_mergeable: false,
    one_of: &["token", "sha256"],
    keys: &[
        key("token", Secret, Optional, "The token itself, from a variable or a file."),
        key("sha256", Text, Optional, "The SHA-256 digest of the token, 64 hex digits."),
        key("subject", Text, Optional, "Who its holder is."),
        key("scopes", TEXT_LIST, Optional, "What its holder may do; tools ask for scopes."),
        key("profile", Text, Optional, "What its holder sees."),
        key(
            "attributes",
            Map(&Any),
            Optional,
            "What else is known of its holder, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, Optional, QUOTA_DESCRIPTION),
    ],
};

const QUOTA_DESCRIPTION: &str =
    "How often its holder may call, instead of `limits.rate` with `per = \"principal\"`: `10000/day`.";

pub(super) static API_KEY: Table = Table {
    path: "auth.NAME.api_keys",
    description: "A key, and who has it.",
    is_mergeable: false,
    one_of: &["sha256", "key"],
    keys: &[
        key("id", Text, Required, "Who its holder is."),
        key("sha256", Text, Optional, "The SHA-256 digest of the key, 64 hex digits."),
        key("key", Secret, Optional, "The key itself, from a variable or a file."),
        key("scopes", TEXT_LIST, Optional, "What its holder may do; tools ask for scopes."),
        key("profile", Text, Optional, "What its holder sees."),
        key(
            "attributes",
            Map(&Any),
            Optional,
            "What else is known of its holder, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, Optional, QUOTA_DESCRIPTION),
    ],
};

pub(super) static CONNECTION: Table = Table {
    path: "[connections.NAME]",
    description: "A database or an API that tools use.",
    is_mergeable: false,
    one_of: &["sqlite", "postgres", "mysql", "http"],
    keys: &[
        key("sqlite", Text, Optional, "A SQLite file: a path, or `file:path?mode=ro`."),
        key("postgres", Secret, Optional, "`postgres://user:${PASSWORD}@host/database`."),
        key("mysql", Secret, Optional, "`mysql://user:${PASSWORD}@host/database`."),
        key("http", Text, Optional, "The base of an API: `https://api.example.com/v1`."),
        only_with(SQL_KINDS, key("pool", Kind::Table(&POOL), Optional, "How many connections are kept.")),
        only_with(
            SQL_KINDS,
            key(
                "read_only",
                Flag,
                WithDefault("true"),
                "Nothing can be written: the database itself refuses.",
            ),
        ),
        only_with(
            SQL_KINDS,
            key("max_rows", COUNT, WithDefault("1000"), "A result has at most so many rows."),
        ),
        only_with(
            SQL_KINDS,
            key("max_bytes", Size, WithDefault("\"1MiB\""), "A result has at most so many bytes."),
        ),
        only_with(
            SQL_KINDS,
            key(
                "expose_errors",
                Flag,
                WithDefault("false"),
                "Callers see what the database says when it refuses.",
            ),
        ),
        only_with(&["http"], key("headers", Map(&Secret), Optional, "Headers of every request.")),
        only_with(&["http"], key("query", Map(&Secret), Optional, "Query parameters of every request.")),
        only_with(
            &["http"],
            key(
                "auth",
                Kind::Table(&UPSTREAM_AUTH),
                Optional,
                "As whom requests are made, where that depends on the caller.",
            ),
        ),
        only_with(&["http"], key("retry", Kind::Table(&RETRY), Optional, "When a request is tried again.")),
        only_with(
            &["http"],
            key("redirects", Integer(0, 3), WithDefault("0"), "How many redirects are followed."),
        ),
        only_with(&["http"], key("max_response", Size, WithDefault("\"1MiB\""), "The largest answer.")),
        only_with(
            &["http"],
            key(
                "connect_timeout",
                Duration,
                WithDefault("\"5s\""),
                "How long it may take until somebody answers at all.",
            ),
        ),
        only_with(
            &["http"],
            key(
                "ca",
                Path,
                Optional,
                "A file of authorities (PEM) that are trusted beside those of this machine.",
            ),
        ),
        key(
            "timeout",
            Duration,
            DefaultByKind(&[(SQL_KINDS, "\"5s\""), (&["http"], "\"10s\"")]),
            "How long a statement, or a request with its repetitions, may take.",
        ),
    ],
};

pub(super) static UPSTREAM_AUTH: Table = Table {
    path: "auth",
    description: "As whom requests are made, where that depends on the caller.",
    is_mergeable: false,
    one_of: &["forward", "attribute"],
    keys: &[
        key(
            "forward",
            Flag,
            Optional,
            "`true`: with the caller's own `Authorization`. A call without one is refused.",
        ),
        key(
            "attribute",
            Text,
            Optional,
            "With something that is known of the caller. A caller of whom it is not known is refused.",
        ),
        only_with(
            &["attribute"],
            key("header", Text, WithDefault("\"Authorization\""), "The header that carries it."),
        ),
        only_with(&["attribute"], key("prefix", Text, WithDefault("\"Bearer \""), "What stands before it.")),
    ],
};

pub(super) static POOL: Table = Table {
    path: "connections.NAME.pool",
    description: "How many connections are kept.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("max", Integer(1, 1000), WithDefault("8"), "At most so many."),
        key(
            "queue",
            Integer(0, 10_000),
            WithDefault("64"),
            "How many calls wait for one; others are told that it is busy.",
        ),
        key("wait", Duration, WithDefault("\"2s\""), "How long a call waits for one."),
        key("idle", Duration, WithDefault("\"5m\""), "How long one is kept that nobody uses."),
    ],
};

pub(super) static RETRY: Table = Table {
    path: "connections.NAME.retry",
    description: "When a request that may be repeated is tried again.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("max", Integer(0, 10), WithDefault("2"), "How often at most."),
        key("on", List(&Integer(100, 599)), WithDefault("[429, 502, 503, 504]"), "After which status codes."),
    ],
};

pub(super) static SERVER: Table = Table {
    path: "[servers.NAME]",
    description: "A server: what clients connect to.",
    is_mergeable: true,
    one_of: &[],
    keys: &[
        key(
            "path",
            Text,
            Optional,
            "Where it is served; `/NAME/mcp` unless said, and `/mcp` where it is the only one.",
        ),
        key("title", Text, Optional, "Its name for people."),
        key("description", Text, Optional, "What it is, for people."),
        key("version", Text, WithDefault("\"1.0.0\""), "Its version."),
        key(
            "instructions",
            Text,
            Optional,
            "How to use it, for a model. `{tool_count}` is how many tools there are.",
        ),
        key("website", Text, Optional, "Where to read more."),
        key(
            "auth",
            OneOrMany(&Text),
            Optional,
            "Who may call: names of `[auth]`, any of which is enough. None said, everybody who reaches it.",
        ),
        key(
            "dialect",
            Choice(&["official", "boxlang", "bxmcp", "erlmcp", "bluehub", "buddyboss"]),
            WithDefault("\"official\""),
            "How it speaks to clients that name no protocol revision.",
        ),
        key(
            "profile",
            Either(&[Text, Kind::Table(&PROFILE)]),
            Optional,
            "What anybody sees: a name of `[profiles]`, or a table.",
        ),
        key("page_size", COUNT, WithDefault("1000"), "How many things one page of a list shows."),
        key(
            "catalog",
            Text,
            Optional,
            "Serves what can be called as JSON at this path, with categories and prices; `?query=` and `?category=` choose.",
        ),
        key("sessions", Flag, WithDefault("true"), "Whether clients are remembered between requests."),
        key(
            "strict_arguments",
            Flag,
            WithDefault("false"),
            "Refuses `\"5\"` where a number is wanted, instead of reading it as one.",
        ),
        key("limits", Kind::Table(&LIMITS), Optional, "Its own limits, instead of those for all."),
        key(
            "cors",
            Either(&[TEXT_LIST, Kind::Table(&CORS)]),
            Optional,
            "Pages that may call and read this server, instead of `security.cors`.",
        ),
        key("tools", Map(&Kind::Table(&TOOL)), Optional, "What can be called, by name."),
        key("resources", Map(&Kind::Table(&RESOURCE)), Optional, "What can be read, by name."),
        key(
            "templates",
            Map(&Kind::Table(&TEMPLATE)),
            Optional,
            "What can be read by URIs with holes, by name.",
        ),
        key(
            "prompts",
            Map(&Kind::Table(&PROMPT)),
            Optional,
            "Texts with holes that a person chooses, by name.",
        ),
        key("openapi", Map(&Kind::Table(&OPENAPI)), Optional, "Whole APIs, by name."),
        planned("upstreams", "other MCP servers cannot be put behind this one yet"),
        planned("policy", "use `profile`, and `scopes` of tools"),
        planned("search", "use `page_size`, and `profile` to hide what is not needed"),
        key(
            "packs",
            Either(&[TEXT_LIST, Map(&Kind::Table(&PACK))]),
            Optional,
            "What the program brings along: a list of `runtime`, `buddyboss` and `hub`, or a table of what is said of each.",
        ),
    ],
};

pub(super) static PACK: Table = Table {
    path: "[servers.NAME.packs.NAME]",
    description: "Tools, prompts and resources that the program brings along. What the file says under the same name takes the place of what the pack has: all of it, or, where it does not say what to do, those keys that it says.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "on",
            Text,
            Optional,
            "The connection that its requests go to, by its name; packs of requests need it.",
        ),
        key("phases", TEXT_LIST, Optional, "Only these parts of it."),
        key("include", TEXT_LIST, Optional, "Only what is called like this; `*` stands for anything."),
        key("exclude", TEXT_LIST, Optional, "Nothing that is called like this."),
    ],
};

const BUILTIN: Key = key("builtin", Kind::PackOnly, Optional, "");

pub(super) static TOOL: Table = Table {
    path: "[servers.NAME.tools.NAME]",
    description: "Something that can be called. One of `http`, `sql`, `command`, `text` and `template` says what it does.",
    is_mergeable: false,
    one_of: &["http", "sql", "command", "text", "template", "builtin"],
    keys: &[
        BUILTIN,
        key("description", Text, Optional, "What it does, for a model. Say when to use it."),
        key("title", Text, Optional, "Its name for people."),
        key("args", ARGUMENTS, Optional, "Its arguments, by name; see below."),
        key(
            "clean",
            Flag,
            WithDefault("false"),
            "Arguments are put right before they are checked: numbers lose their sign and are brought into their range, texts lose tags and what surrounds them and are cut after 1000 letters, lists may be written with commas, and what is not among the values of an `enum` is left out. An argument says `clean = false` to stay as it is.",
        ),
        key("http", Kind::Table(&HTTP), Optional, "Sends a request to an API."),
        key("sql", Kind::Table(&SQL), Optional, "Runs a statement of SQL."),
        key("command", Kind::Table(&COMMAND), Optional, "Runs a program."),
        key("text", Text, Optional, "Says this."),
        key("template", Text, Optional, "Says this, with its arguments put in (MiniJinja)."),
        key(
            "output",
            Either(&[Text, Any]),
            Optional,
            "What structured output looks like: `rows`, `row` or `value` for SQL, or a JSON Schema.",
        ),
        key("annotations", Kind::Table(&ANNOTATIONS), Optional, "What to expect of a call."),
        key(
            "scopes",
            TEXT_LIST,
            Optional,
            "Scopes that a caller needs, all of them. Who lacks one does not see the tool. Over stdio nobody is asked.",
        ),
        key("timeout", Duration, Optional, "How long a call may take."),
        key("enabled", Flag, WithDefault("true"), "Whether it is there at all."),
        key("meta", Any, Optional, "`_meta`, for clients that know what to do with it."),
        key(
            "aliases",
            TEXT_LIST,
            Optional,
            "Other names under which it can be called. Lists do not show them.",
        ),
        key("category", Text, Optional, "What kind of tool it is, for the catalogue."),
        key(
            "price",
            Either(&[Text, Kind::Table(&PRICE)]),
            Optional,
            "What a call costs: `\"0.05\"`, or `{ usd = \"0.05\" }`. As nobody can pay yet, a call of a tool that costs something is refused.",
        ),
        key(
            "cache",
            Duration,
            Optional,
            "Keeps what went well for so long, for calls with the same arguments; where the result depends on the caller, for the same caller.",
        ),
        key(
            "task",
            Either(&[Flag, Kind::Table(&TASK)]),
            Optional,
            "`true`: calls run as tasks where the client knows them. A table says more.",
        ),
    ],
};

pub(super) static PRICE: Table = Table {
    path: "servers.NAME.tools.NAME.price",
    description: "What a call costs.",
    is_mergeable: false,
    one_of: &[],
    keys: &[key(
        "usd",
        Text,
        Required,
        "US dollars, with at most six digits behind the point: `0.05`. `0` is free.",
    )],
};

pub(super) static ANNOTATIONS: Table = Table {
    path: "servers.NAME.tools.NAME.annotations",
    description: "What to expect of a call. Not said is not the same as no.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("title", Text, Optional, "A name for people."),
        key("readOnlyHint", Flag, Optional, "Changes nothing."),
        key("destructiveHint", Flag, Optional, "May destroy something."),
        key("idempotentHint", Flag, Optional, "Twice is the same as once."),
        key("openWorldHint", Flag, Optional, "Reaches beyond this server."),
    ],
};

pub(super) static HTTP: Table = Table {
    path: "http",
    description: "A request to an API. `{name}` in a path, a query, a form and a header, and `{{ name }}` in a body, are arguments, each encoded as its place needs.",
    is_mergeable: false,
    one_of: &["path", "url"],
    keys: &[
        key("on", Text, Required, "The connection, by its name."),
        key(
            "method",
            Choice(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]),
            WithDefault("\"GET\""),
            "The method.",
        ),
        key("path", Text, Optional, "The path below the connection's base: `/items/{id}`."),
        key("url", Text, Optional, "Instead of `path`: the one argument that is a whole address, `{url}`."),
        key("query", Map(&Text), Optional, "Query parameters; one whose argument was not given is left out."),
        key("headers", Map(&Text), Optional, "Headers."),
        key("cookies", Map(&Text), Optional, "Cookies."),
        key(
            "json",
            Any,
            Optional,
            "A body of JSON. A text that is nothing but `{{ name }}` becomes the argument with its type.",
        ),
        key("form", Map(&Text), Optional, "A body as a form sends it."),
        key(
            "multipart",
            Map(&Either(&[Text, Kind::Table(&MULTIPART_PART)])),
            Optional,
            "A body of several parts: texts, and files.",
        ),
        key("body", Text, Optional, "A body as it is."),
        key("bytes", Text, Optional, "A body of bytes: the argument of this name, which is base64."),
        key("content_type", Text, Optional, "What kind of body it is, with `body` and `bytes`."),
        key(
            "pick",
            Text,
            Optional,
            "What of the answer is the result, in the language of jq: `{number, url: .html_url}`.",
        ),
        key(
            "paging",
            Choice(&["meta", "result", "off"]),
            WithDefault("\"meta\""),
            "Where totals and links of an answer are told.",
        ),
        key(
            "expect",
            Choice(&["auto", "json", "text"]),
            WithDefault("\"auto\""),
            "What an answer must be: JSON, text or media, but no web page; JSON; or anything, as text.",
        ),
        key(
            "errors",
            Choice(&["auto", "message", "status"]),
            WithDefault("\"auto\""),
            "What a caller is told of failures: the message where the request was wrong and the status alone where the API is; the message; the status.",
        ),
        key(
            "on_exceed",
            Choice(&["error", "truncate"]),
            WithDefault("\"error\""),
            "What happens with an answer that is too large.",
        ),
        key(
            "unavailable",
            TEXT_LIST,
            Optional,
            "Codes of errors (`rest_no_route`) that mean that what the tool needs is not there; some dialects have a number for that.",
        ),
        key(
            "then",
            Kind::Table(&FOLLOW_UP),
            Optional,
            "A second request, if the first went well: its result is the result. What `pick` took of the first answer is its argument `first`.",
        ),
        key(
            "auth",
            Kind::Table(&UPSTREAM_AUTH),
            Optional,
            "As whom the request is made, instead of what the connection says.",
        ),
        key("idempotent", Flag, Optional, "Whether it may be repeated, whatever its method says."),
        key(
            "timeout",
            Duration,
            Optional,
            "How long the request may take, if that is less than the connection's.",
        ),
        key("max_response", Size, Optional, "The largest answer, if that is less than the connection's."),
        key("concurrency", COUNT, WithDefault("64"), "How many calls run at once."),
        key(
            "queue",
            Integer(0, 10_000),
            WithDefault("256"),
            "How many calls wait for their turn; others are told that it is busy.",
        ),
    ],
};

pub(super) static FOLLOW_UP: Table = Table {
    path: "http.then",
    description: "A request that follows another one, on the same connection.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "method",
            Choice(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            WithDefault("\"POST\""),
            "The method.",
        ),
        key("path", Text, Required, "The path below the connection's base: `/items/{first}`."),
        key("query", Map(&Text), Optional, "Query parameters; one whose argument was not given is left out."),
        key("json", Any, Optional, "A body of JSON: `{ id = \"{{ first }}\" }`."),
        key("pick", Text, Optional, "What of the answer is the result, in the language of jq."),
    ],
};

pub(super) static MULTIPART_PART: Table = Table {
    path: "http.multipart.NAME",
    description: "A file in a body of several parts.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("file", Text, Required, "The argument that has its bytes, as base64 or as a `data:` link."),
        key("filename", Text, WithDefault("\"file\""), "What it is called."),
        key("mime", Text, WithDefault("\"application/octet-stream\""), "Its media type."),
    ],
};

pub(super) static SQL: Table = Table {
    path: "sql",
    description: "A statement of SQL. `:name` and `$name` are arguments, always bound, never pasted.",
    is_mergeable: false,
    one_of: &["query", "query_from"],
    keys: &[
        key("on", Text, Required, "The connection, by its name."),
        key("query", Text, Optional, "The statement."),
        key(
            "query_from",
            Text,
            Optional,
            "The argument that is the statement, for reading only: the caller writes SQL.",
        ),
        key(
            "write",
            Flag,
            WithDefault("false"),
            "It changes the database, whose connection says `read_only = false`.",
        ),
        key("max_rows", COUNT, Optional, "A result has at most so many rows, instead of the connection's."),
        key("max_bytes", Size, Optional, "A result has at most so many bytes, instead of the connection's."),
        key("timeout", Duration, Optional, "How long the statement may take, instead of the connection's."),
        key(
            "expose_errors",
            Flag,
            Optional,
            "Callers see what the database says when it refuses, instead of what the connection says of that.",
        ),
    ],
};

pub(super) static COMMAND: Table = Table {
    path: "command",
    description: "A program, run without a shell. Its environment is empty but for `PATH`, `LANG` and what is named here.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "argv",
            List(&Either(&[Text, TEXT_LIST])),
            Required,
            "The program and its arguments. A program with a `/` in it is a path, which begins where the configuration is, whatever `cwd` is; others are looked for in `PATH`. `{name}` inside one is an argument of the tool, and stays inside. A list in the list is left out if an argument in it was not given.",
        ),
        key("env", Map(&Secret), Optional, "Variables of its environment."),
        key("pass_env", TEXT_LIST, Optional, "Variables that it gets from ours."),
        key("cwd", Path, Optional, "Where it runs; where the configuration is, unless said."),
        key("stdin", Text, Optional, "What it reads, with `{name}` for arguments; nothing unless said."),
        key("stdout", Choice(&["text", "json"]), WithDefault("\"text\""), "What it prints."),
        key("max_output", Size, WithDefault("\"64KiB\""), "It is stopped when it prints more."),
        key(
            "timeout",
            Duration,
            Optional,
            "It is stopped, with everything it started, after this time; the `timeout` of the tool or of `limits` unless said, and the `ttl` of a task.",
        ),
        key("exit_codes", List(&Integer(0, 255)), WithDefault("[0]"), "Exit codes that are no failure."),
        key(
            "progress",
            Choice(&["none", "stderr"]),
            WithDefault("\"none\""),
            "Lines that tell the client how far it is; `3/10` or `30%` at the beginning of one is the measure.",
        ),
        key(
            "allow_leading_dash",
            Flag,
            WithDefault("false"),
            "Arguments may begin with `-` where the program would take them for options.",
        ),
        key("concurrency", Integer(1, 1000), WithDefault("8"), "How many run at once."),
        key(
            "queue",
            Integer(0, 10_000),
            WithDefault("64"),
            "How many calls wait for their turn; others are told that it is busy.",
        ),
        planned("sandbox", "run the program under a user that may do little"),
        key(
            "shell",
            Kind::Unsupported("there is no shell; put the pipeline into a script and call that"),
            Optional,
            "",
        ),
    ],
};

pub(super) static RESOURCE: Table = Table {
    path: "[servers.NAME.resources.NAME]",
    description: "Something that can be read. One of `text`, `file`, `files`, `template`, `command`, `http` and `sql` says what.",
    is_mergeable: false,
    one_of: &["text", "file", "files", "template", "command", "http", "sql", "builtin"],
    keys: &[
        BUILTIN,
        key("uri", Text, Optional, "Where it is: `shop://sizing`. Needed, but for `files`."),
        key("title", Text, Optional, "Its name for people."),
        key("description", Text, Optional, "What it is, for a model."),
        key("mime", Text, Optional, "Its media type; found out from the name of a file unless said."),
        key("text", Text, Optional, "This text."),
        key("file", Path, Optional, "One file."),
        key("files", Kind::Table(&FILES), Optional, "A folder: each file is a resource."),
        key("template", Text, Optional, "This text, with arguments from the caller put in (MiniJinja)."),
        key("command", Kind::Table(&COMMAND), Optional, "What a program prints."),
        key("http", Kind::Table(&HTTP), Optional, "What an API answers."),
        key("sql", Kind::Table(&SQL), Optional, "What a statement gives, as JSON."),
        only_with(
            &["sql"],
            key(
                "output",
                SQL_OUTPUT,
                WithDefault("\"rows\""),
                "What of the rows: all, the first one, or its first column.",
            ),
        ),
        key("args", ARGUMENTS, Optional, "Arguments from the caller (`from`): a resource has no others."),
        key("enabled", Flag, WithDefault("true"), "Whether it is there at all."),
    ],
};

pub(super) static FILES: Table = Table {
    path: "servers.NAME.resources.NAME.files",
    description: "A folder whose files can be read. Nothing outside of it can, whatever links say.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("root", Path, Required, "The folder."),
        key("glob", OneOrMany(&Text), WithDefault("\"**/*\""), "Which files: `**/*.md`."),
        key("exclude", OneOrMany(&Text), Optional, "Which files not."),
        key("uri", Text, Required, "Their URIs: `docs:///{path}`."),
        key("hidden", Flag, WithDefault("false"), "Files and folders whose names begin with a dot, too."),
        key("watch", Flag, WithDefault("true"), "Clients are told when files change."),
        key("max_size", Size, WithDefault("\"8MiB\""), "Larger files are not read."),
        key(
            "max_files",
            Integer(0, 100_000),
            WithDefault("10000"),
            "So many are listed; others can be read if one knows their URI.",
        ),
    ],
};

pub(super) static TEMPLATE: Table = Table {
    path: "[servers.NAME.templates.NAME]",
    description: "Many things that can be read, by URIs with holes. One of `template`, `command`, `http` and `sql` says what.",
    is_mergeable: false,
    one_of: &["template", "command", "http", "sql", "builtin"],
    keys: &[
        BUILTIN,
        key("uri", Text, Required, "The URIs, as RFC 6570 writes them: `shop://product/{sku}`."),
        key("title", Text, Optional, "Its name for people."),
        key("description", Text, Optional, "What these are, for a model."),
        key("mime", Text, Optional, "Their media type."),
        key("template", Text, Optional, "A text with the variables put in (MiniJinja)."),
        key("command", Kind::Table(&COMMAND), Optional, "What a program prints."),
        key("http", Kind::Table(&HTTP), Optional, "What an API answers."),
        key("sql", Kind::Table(&SQL), Optional, "What a statement gives, as JSON."),
        only_with(
            &["sql"],
            key(
                "output",
                SQL_OUTPUT,
                WithDefault("\"rows\""),
                "What of the rows: all, the first one, or its first column.",
            ),
        ),
        key(
            "args",
            ARGUMENTS,
            Optional,
            "What the variables look like, and arguments from the caller (`from`).",
        ),
        key(
            "complete",
            Map(&COMPLETE),
            Optional,
            "How variables can go on: a list of values, or a source of them.",
        ),
        key("enabled", Flag, WithDefault("true"), "Whether it is there at all."),
    ],
};

const COMPLETE: Kind = Either(&[TEXT_LIST, Kind::Table(&COMPLETION)]);

pub(super) static COMPLETION: Table = Table {
    path: "complete.NAME",
    description: "Where values come from. What is written so far is the argument `prefix`; each line or row is a value.",
    is_mergeable: false,
    one_of: &["command", "http", "sql"],
    keys: &[
        key("command", Kind::Table(&COMMAND), Optional, "What a program prints, line by line."),
        key("http", Kind::Table(&HTTP), Optional, "A list that an API answers."),
        key("sql", Kind::Table(&SQL), Optional, "The first column of what a statement gives."),
    ],
};

pub(super) static PROMPT: Table = Table {
    path: "[servers.NAME.prompts.NAME]",
    description: "A text with holes that a person chooses. One of `messages`, `text` and `file` says it, in the language of MiniJinja; `{{ resource('uri') }}` puts a resource there.",
    is_mergeable: false,
    one_of: &["messages", "text", "file"],
    keys: &[
        key("title", Text, Optional, "Its name for people."),
        key("description", Text, Optional, "What it is for."),
        key("args", ARGUMENTS, Optional, "What fills its holes."),
        key(
            "complete",
            Map(&COMPLETE),
            Optional,
            "How arguments can go on: a list of values, or a source of them.",
        ),
        key("messages", List(&Kind::Table(&MESSAGE)), Optional, "What is said, in order."),
        key("text", Text, Optional, "What the user says."),
        key("file", Path, Optional, "A file with what the user says."),
        key("enabled", Flag, WithDefault("true"), "Whether it is there at all."),
    ],
};

pub(super) static MESSAGE: Table = Table {
    path: "servers.NAME.prompts.NAME.messages",
    description: "One thing that is said.",
    is_mergeable: false,
    one_of: &["text", "file"],
    keys: &[
        key("role", Choice(&["user", "assistant", "system"]), WithDefault("\"user\""), "By whom."),
        key("text", Text, Optional, "What."),
        key("file", Path, Optional, "A file with what."),
    ],
};

pub(super) static OPENAPI: Table = Table {
    path: "[servers.NAME.openapi.NAME]",
    description: "A whole API, by its OpenAPI 3.0, 3.1 or Swagger 2.0 description: each operation becomes a tool.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("spec", Text, Required, "The description: a file, or a URL."),
        key("on", Text, Optional, "The connection that requests go to, by its name."),
        key(
            "base",
            Text,
            Optional,
            "The base of the API, where there is no connection. What the description says of servers is not believed.",
        ),
        key("refresh", Duration, Optional, "How often a description behind a URL is read anew."),
        key("prefix", Text, Optional, "What names of tools begin with."),
        key(
            "include",
            TEXT_LIST,
            Optional,
            "Only these operations: `GET /v2/**`, `tag:stock`, or an operation's id.",
        ),
        key("exclude", TEXT_LIST, Optional, "None of these operations; also `deprecated`."),
        key(
            "as",
            Map(&Choice(&["tool", "resource", "template"])),
            Optional,
            "What an operation becomes, by `GET /path` or its id.",
        ),
        key("rename", Map(&Text), Optional, "Other names for tools, by operation id."),
        key("auth", Kind::Table(&OPENAPI_AUTH), Optional, "What requests carry to prove who sends them."),
    ],
};

pub(super) static OPENAPI_AUTH: Table = Table {
    path: "servers.NAME.openapi.NAME.auth",
    description: "What requests carry to prove who sends them.",
    is_mergeable: false,
    one_of: &["forward", "headers"],
    keys: &[
        key(
            "forward",
            OneOrMany(&Text),
            Optional,
            "`principal`: the caller's own `Authorization`; or names of headers that are passed on.",
        ),
        key("headers", Map(&Secret), Optional, "These headers."),
    ],
};
