//! The keys of a configuration, with their types, defaults and descriptions.
//!
//! Files are checked against these tables, defaults are read from them, and the JSON Schema and the reference are generated
//! from them.

use serde_json::Value;

/// A table of the file.
#[derive(Debug)]
pub(crate) struct Table {
    /// The heading in the reference: `[servers.NAME]`.
    pub(crate) path: &'static str,
    pub(crate) description: &'static str,
    pub(crate) keys: &'static [Key],
    /// Keys of which exactly one has to be set; it is the kind of the table. Empty if the table has no kinds.
    pub(crate) one_of: &'static [&'static str],
    /// Whether several files may each set some of its keys.
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
    /// The kinds of the table with which the key can be used; empty for all.
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

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Flag,
    Integer(i64, i64),
    Text,
    /// A text that is never shown.
    Secret,
    Duration,
    Size,
    Rate,
    /// A file or a folder, relative to the configuration file.
    Path,
    Choice(&'static [&'static str]),
    List(&'static Kind),
    /// A value or a list of values.
    OneOrMany(&'static Kind),
    /// A table whose keys are names that the author chooses.
    Map(&'static Kind),
    Table(&'static Table),
    /// The first of these kinds that matches the shape of the value.
    Either(&'static [Kind]),
    /// Any value; it is not checked.
    Any,
    /// A text in packs; in a file the key is unknown.
    PackOnly,
    /// Not implemented yet; the text is an alternative.
    Planned(&'static str),
    /// Deliberately not implemented; the text is an alternative.
    Unsupported(&'static str),
}

impl Kind {
    /// Whether the key can be set in a file.
    pub(crate) fn is_supported(&self) -> bool {
        !matches!(self, Kind::PackOnly | Kind::Planned(_) | Kind::Unsupported(_))
    }
}

use Kind::{
    Any, Choice, Duration, Either, Flag, Integer, List, Map, OneOrMany, Path, Planned, Rate, Secret, Size,
    Text,
};
use Presence::{DefaultByKind, Optional, Required, WithDefault};

const fn key(name: &'static str, kind: Kind, presence: Presence, description: &'static str) -> Key {
    Key { name, kind, presence, description, only_with: &[] }
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
    description: "The top level of the file.",
    is_mergeable: true,
    one_of: &[],
    keys: &[
        key("version", Integer(1, 1), WithDefault("1"), "Version of the file format."),
        key(
            "include",
            OneOrMany(&Text),
            Optional,
            "Files to merge into this one, by name or pattern (`conf.d/*.toml`). A key that is set in two files is an error.",
        ),
        key("listen", Kind::Table(&LISTEN), Optional, "Address and limits of the listener."),
        key("security", Kind::Table(&SECURITY), Optional, "Security settings of all servers."),
        key("limits", Kind::Table(&LIMITS), Optional, "Limits of all servers."),
        key("stats", Kind::Table(&STATS), Optional, "Statistics, metrics and the audit log."),
        key(
            "profiles",
            Map(&Kind::Table(&PROFILE)),
            Optional,
            "Named selections of tools, prompts and resources. Built in are `admin` (everything) and `readonly` (only tools with `readOnlyHint = true`).",
        ),
        key("auth", Map(&Kind::Table(&AUTH)), Optional, "Named sets of credentials; servers refer to them."),
        key(
            "connections",
            Map(&Kind::Table(&CONNECTION)),
            Optional,
            "Named databases and APIs; tools refer to them.",
        ),
        key("servers", Map(&Kind::Table(&SERVER)), Optional, "Named servers."),
        key(
            "storage",
            Kind::Table(&STORAGE),
            Optional,
            "Storage of tasks, and of sessions that several processes share.",
        ),
        planned("events", "events are available in the library only"),
    ],
};

pub(super) static LISTEN: Table = Table {
    path: "[listen]",
    description: "Address and limits of the listener. Changes take effect after a restart.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("http", Text, WithDefault("\"127.0.0.1:8080\""), "Address and port. Port 0 selects a free port."),
        key(
            "public_url",
            Text,
            Optional,
            "The public URL behind a proxy. Requests for its host, and from pages of its origin, are accepted.",
        ),
        key("hosts", TEXT_LIST, Optional, "Additional host names to accept requests for."),
        key(
            "trusted_proxies",
            TEXT_LIST,
            Optional,
            "Addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are trusted.",
        ),
        key(
            "client_address_header",
            Text,
            WithDefault("\"X-Forwarded-For\""),
            "The one header in which trusted proxies send the address of the client. They must overwrite it.",
        ),
        key(
            "shutdown_grace",
            Duration,
            WithDefault("\"30s\""),
            "How long running calls may continue after a shutdown is requested.",
        ),
        key("max_connections", COUNT, WithDefault("10000"), "Maximum number of open connections."),
        planned("revisions", "all five protocol versions are always served"),
        key(
            "legacy_sse",
            Flag,
            WithDefault("true"),
            "Serves the HTTP+SSE transport of the first protocol version at `sse` and `messages` below each server's path.",
        ),
        planned("tls", "use a TLS proxy, and set `public_url` and `trusted_proxies`"),
    ],
};

pub(super) static SECURITY: Table = Table {
    path: "[security]",
    description: "Security settings of all servers.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "headers",
            Choice(&["strict", "none"]),
            WithDefault("\"strict\""),
            "Security headers in every response.",
        ),
        key("ip_allow", TEXT_LIST, Optional, "Addresses and networks that may connect; all if not set."),
        key(
            "cors",
            Either(&[TEXT_LIST, Kind::Table(&CORS)]),
            Optional,
            "Origins whose pages may call the servers: `https://app.example.com`, `*.example.com`, `*`.",
        ),
        key("egress", Kind::Table(&EGRESS), Optional, "Addresses that outgoing requests may reach."),
    ],
};

pub(super) static CORS: Table = Table {
    path: "security.cors",
    description: "Cross-origin requests of browsers.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("origins", TEXT_LIST, Required, "Origins whose pages may call."),
        key(
            "max_age",
            Duration,
            WithDefault("\"1d\""),
            "How long browsers cache the result of a preflight request.",
        ),
    ],
};

pub(super) static EGRESS: Table = Table {
    path: "security.egress",
    description: "Addresses that outgoing requests may reach.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("deny_private", Flag, WithDefault("true"), "Blocks private, loopback and link-local addresses."),
        key("allow", TEXT_LIST, Optional, "Exceptions: `host:port` or `host`."),
    ],
};

pub(super) static LIMITS: Table = Table {
    path: "[limits]",
    description: "Limits. A server can set its own.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("body", Size, WithDefault("\"4MiB\""), "Maximum size of a request body."),
        key("timeout", Duration, WithDefault("\"60s\""), "Timeout of a call, unless its tool sets one."),
        key("rate", List(&Kind::Table(&RATE)), Optional, "Rate limits."),
        key(
            "response",
            Either(&[Integer(1, 1 << 40), Kind::Table(&RESPONSE), Size]),
            Optional,
            "Maximum size of a tool result: a size, or a table that also sets what happens to larger ones. If not set, a response of more than 16 MiB is rejected, and the limits of commands, files and connections apply.",
        ),
        key(
            "concurrency",
            Integer(1, 100_000),
            Optional,
            "Maximum number of concurrent tool calls of each server. Four times as many calls may wait (256 at most) for up to five seconds; further calls fail as busy. Tools with `task` are not counted.",
        ),
    ],
};

pub(super) static RESPONSE: Table = Table {
    path: "limits.response",
    description: "Maximum size of a tool result. It applies to texts and media together, and to structured output.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("max", Size, Required, "Maximum size."),
        key(
            "on_exceed",
            Choice(&["error", "truncate"]),
            WithDefault("\"error\""),
            "`error`: the call fails. `truncate`: its texts are truncated, with a note. Structured output is never truncated; the call then fails with the beginning of its text.",
        ),
    ],
};

pub(super) static RATE: Table = Table {
    path: "limits.rate",
    description: "A rate limit.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "per",
            Choice(&["ip", "principal"]),
            Required,
            "What is counted as one caller: an IP address, or an authenticated principal.",
        ),
        key("quota", Rate, Required, "The rate: `600/min`, `10/s`, `100/h`, `1000/day`."),
        key(
            "burst",
            COUNT,
            Optional,
            "Maximum number of calls at once after a pause; the whole quota if not set.",
        ),
        key(
            "window",
            Flag,
            WithDefault("false"),
            "Counts in a sliding window instead of a token bucket: the first call beyond the quota is rejected until older ones leave the window.",
        ),
    ],
};

pub(super) static STORAGE: Table = Table {
    path: "[storage]",
    description: "Storage of tasks, and of sessions that several processes share.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "default",
            Secret,
            WithDefault("\"memory:\""),
            "`memory:`; `redb:PATH`, a file of one process that survives restarts; or a Redis that several processes share: `redis://:${PASSWORD}@host:6379/0`, `redis+sentinel://…`, `redis-cluster://…`.",
        ),
        key("prefix", Text, WithDefault("\"toolgate:\""), "Prefix of all keys in Redis."),
        planned("overrides", "there is one storage for everything"),
    ],
};

pub(super) static TASK: Table = Table {
    path: "servers.NAME.tools.NAME.task",
    description: "Runs calls as tasks: the client gets a task id at once and fetches the result later.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "ttl",
            Duration,
            WithDefault("\"1h\""),
            "How long a task may run and is kept, counted from its start.",
        ),
        key(
            "mode",
            Choice(&["optional", "required"]),
            WithDefault("\"optional\""),
            "Clients without task support wait for the result (`optional`) or are rejected (`required`).",
        ),
        key(
            "resumable",
            Flag,
            WithDefault("false"),
            "If the process ends, another process runs the task again from the start. Set it only if running twice is harmless.",
        ),
    ],
};

pub(super) static STATS: Table = Table {
    path: "[stats]",
    description: "Statistics, metrics and the audit log.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("enabled", Flag, WithDefault("true"), "Collects statistics."),
        key(
            "path",
            Text,
            Optional,
            "Serves the statistics of each server as JSON below this path, to callers of that server.",
        ),
        planned("dashboard", "`path` serves the statistics as JSON"),
        key("prometheus", Kind::Table(&PROMETHEUS), Optional, "Serves metrics in the Prometheus format."),
        planned("otlp", "`path` serves the statistics as JSON"),
        planned("retain", "statistics are kept until the program ends"),
        key("audit", Kind::Table(&AUDIT), Optional, "Writes an audit log."),
    ],
};

pub(super) static AUDIT: Table = Table {
    path: "stats.audit",
    description: "The audit log: one line of JSON for each call, with the caller, the tool and the outcome. It never contains headers or results.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("file", Path, Required, "The file to append to. It is created with access for its owner only."),
        key(
            "args",
            Flag,
            WithDefault("false"),
            "Includes the arguments; values that look like secrets are masked.",
        ),
    ],
};

pub(super) static PROMETHEUS: Table = Table {
    path: "stats.prometheus",
    description: "Metrics in the Prometheus format. Changes take effect after a restart.",
    is_mergeable: false,
    one_of: &[],
    keys: &[key(
        "path",
        Text,
        WithDefault("\"/metrics\""),
        "Path of the metrics of all servers that the caller may call. `NAME` below it shows one server.",
    )],
};

pub(super) static PROFILE: Table = Table {
    path: "[profiles.NAME]",
    description: "A selection of tools, prompts and resources that a caller can see and use. In patterns, `*` matches anything. Without `allow`, everything is allowed.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("allow", TEXT_LIST, Optional, "Patterns of tools to include."),
        key("deny", TEXT_LIST, Optional, "Patterns of tools to exclude."),
        key("allow_prompts", TEXT_LIST, Optional, "Patterns of prompts to include."),
        key("deny_prompts", TEXT_LIST, Optional, "Patterns of prompts to exclude."),
        key("allow_resources", TEXT_LIST, Optional, "URI patterns of resources and templates to include."),
        key("deny_resources", TEXT_LIST, Optional, "URI patterns of resources and templates to exclude."),
    ],
};

pub(super) static AUTH: Table = Table {
    path: "[auth.NAME]",
    description: "A set of credentials of one kind.",
    is_mergeable: false,
    one_of: &["basic", "bearer", "api_keys", "wordpress", "oauth"],
    keys: &[
        key(
            "basic",
            List(&Kind::Table(&USER)),
            Optional,
            "Users with passwords (`Authorization: Basic`). The principal is `user:NAME`.",
        ),
        key(
            "bearer",
            List(&Either(&[Secret, Kind::Table(&TOKEN)])),
            Optional,
            "Tokens (`Authorization: Bearer`), each a string or a table.",
        ),
        key(
            "api_keys",
            List(&Kind::Table(&API_KEY)),
            Optional,
            "API keys (`X-API-Key`, or as a bearer token).",
        ),
        key(
            "wordpress",
            Kind::Table(&WORDPRESS),
            Optional,
            "Users of a WordPress site with application passwords (`Authorization: Basic`), which the site verifies.",
        ),
        planned("oauth", "use `bearer` or `api_keys`, or an authenticating proxy"),
    ],
};

pub(super) static WORDPRESS: Table = Table {
    path: "auth.NAME.wordpress",
    description: "A WordPress site that authenticates its users. The principal is `wordpress:ID`, with the attributes `principal.id`, `principal.user`, `principal.name`, `principal.roles` and `principal.capabilities`.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("url", Text, Required, "URL of the site's REST API: `https://example.com/wp-json`."),
        key(
            "capability",
            Text,
            Optional,
            "WordPress capability that users must have: `manage_options` admits administrators only.",
        ),
        key("cache", Duration, WithDefault("\"60s\""), "How long a successful login is cached."),
        key(
            "insecure",
            Flag,
            WithDefault("false"),
            "Allows sending passwords to other machines without TLS. Loopback addresses never need TLS.",
        ),
        key("user", Text, Optional, "User with which `check --live` logs in."),
        key("password", Secret, Optional, "Application password of that user."),
    ],
};

pub(super) static USER: Table = Table {
    path: "auth.NAME.basic",
    description: "A user with a password.",
    is_mergeable: false,
    one_of: &["hash", "password"],
    keys: &[
        key("user", Text, Required, "User name."),
        key(
            "hash",
            Secret,
            Optional,
            "Argon2 hash of the password; create one with `toolgate hash-password`.",
        ),
        key("password", Secret, Optional, "The password, usually `${NAME}` or `${file:PATH}`."),
        key("scopes", TEXT_LIST, Optional, "Scopes of the user, which tools can require."),
        key("profile", Text, Optional, "Profile of the user."),
        key(
            "attributes",
            Map(&Any),
            Optional,
            "Attributes of the user, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, Optional, QUOTA_DESCRIPTION),
    ],
};

pub(super) static TOKEN: Table = Table {
    path: "auth.NAME.bearer",
    description: "A bearer token.",
    is_mergeable: false,
    one_of: &["token", "sha256"],
    keys: &[
        key("token", Secret, Optional, "The token, usually `${NAME}` or `${file:PATH}`."),
        key("sha256", Text, Optional, "SHA-256 digest of the token, as 64 hex digits."),
        key("subject", Text, Optional, "Principal of the holder."),
        key("scopes", TEXT_LIST, Optional, "Scopes of the holder, which tools can require."),
        key("profile", Text, Optional, "Profile of the holder."),
        key(
            "attributes",
            Map(&Any),
            Optional,
            "Attributes of the holder, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, Optional, QUOTA_DESCRIPTION),
    ],
};

const QUOTA_DESCRIPTION: &str =
    "Rate limit of the holder, instead of `limits.rate` with `per = \"principal\"`: `10000/day`.";

pub(super) static API_KEY: Table = Table {
    path: "auth.NAME.api_keys",
    description: "An API key.",
    is_mergeable: false,
    one_of: &["sha256", "key"],
    keys: &[
        key("id", Text, Required, "Principal of the holder."),
        key("sha256", Text, Optional, "SHA-256 digest of the key, as 64 hex digits."),
        key("key", Secret, Optional, "The key, usually `${NAME}` or `${file:PATH}`."),
        key("scopes", TEXT_LIST, Optional, "Scopes of the holder, which tools can require."),
        key("profile", Text, Optional, "Profile of the holder."),
        key(
            "attributes",
            Map(&Any),
            Optional,
            "Attributes of the holder, for arguments with `from = \"principal.NAME\"`.",
        ),
        key("quota", Rate, Optional, QUOTA_DESCRIPTION),
    ],
};

pub(super) static CONNECTION: Table = Table {
    path: "[connections.NAME]",
    description: "A database or an API.",
    is_mergeable: false,
    one_of: &["sqlite", "postgres", "mysql", "http"],
    keys: &[
        key("sqlite", Text, Optional, "SQLite file: a path, or `file:path?mode=ro`."),
        key("postgres", Secret, Optional, "`postgres://user:${PASSWORD}@host/database`."),
        key("mysql", Secret, Optional, "`mysql://user:${PASSWORD}@host/database`."),
        key("http", Text, Optional, "Base URL of an API: `https://api.example.com/v1`."),
        only_with(SQL_KINDS, key("pool", Kind::Table(&POOL), Optional, "The connection pool.")),
        only_with(
            SQL_KINDS,
            key(
                "read_only",
                Flag,
                WithDefault("true"),
                "Opens the database read-only; the database rejects writes.",
            ),
        ),
        only_with(
            SQL_KINDS,
            key("max_rows", COUNT, WithDefault("1000"), "Maximum number of rows in a result."),
        ),
        only_with(SQL_KINDS, key("max_bytes", Size, WithDefault("\"1MiB\""), "Maximum size of a result.")),
        only_with(
            SQL_KINDS,
            key(
                "expose_errors",
                Flag,
                WithDefault("false"),
                "Returns error messages of the database to callers.",
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
                "Credentials of the caller to send with requests.",
            ),
        ),
        only_with(&["http"], key("retry", Kind::Table(&RETRY), Optional, "When requests are retried.")),
        only_with(
            &["http"],
            key("redirects", Integer(0, 3), WithDefault("0"), "Maximum number of redirects to follow."),
        ),
        only_with(
            &["http"],
            key("max_response", Size, WithDefault("\"1MiB\""), "Maximum size of a response."),
        ),
        only_with(
            &["http"],
            key("connect_timeout", Duration, WithDefault("\"5s\""), "Timeout for connecting."),
        ),
        only_with(
            &["http"],
            key(
                "ca",
                Path,
                Optional,
                "File with certificate authorities (PEM) to trust in addition to those of the system.",
            ),
        ),
        key(
            "timeout",
            Duration,
            DefaultByKind(&[(SQL_KINDS, "\"5s\""), (&["http"], "\"10s\"")]),
            "Timeout of a statement, or of a request including its retries.",
        ),
    ],
};

pub(super) static UPSTREAM_AUTH: Table = Table {
    path: "auth",
    description: "Credentials of the caller to send with requests.",
    is_mergeable: false,
    one_of: &["forward", "attribute"],
    keys: &[
        key(
            "forward",
            Flag,
            Optional,
            "`true` forwards the caller's `Authorization` header. Calls without one are rejected.",
        ),
        key(
            "attribute",
            Text,
            Optional,
            "Sends this attribute of the caller. Callers without it are rejected.",
        ),
        only_with(
            &["attribute"],
            key("header", Text, WithDefault("\"Authorization\""), "Header for the attribute."),
        ),
        only_with(
            &["attribute"],
            key("prefix", Text, WithDefault("\"Bearer \""), "Text before the attribute."),
        ),
    ],
};

pub(super) static POOL: Table = Table {
    path: "connections.NAME.pool",
    description: "The connection pool.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("max", Integer(1, 1000), WithDefault("8"), "Maximum number of connections."),
        key(
            "queue",
            Integer(0, 10_000),
            WithDefault("64"),
            "Maximum number of calls that wait for a connection; further calls fail as busy.",
        ),
        key("wait", Duration, WithDefault("\"2s\""), "How long a call waits for a connection."),
        key("idle", Duration, WithDefault("\"5m\""), "How long an idle connection is kept open."),
    ],
};

pub(super) static RETRY: Table = Table {
    path: "connections.NAME.retry",
    description: "When idempotent requests are retried.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("max", Integer(0, 10), WithDefault("2"), "Maximum number of retries."),
        key("on", List(&Integer(100, 599)), WithDefault("[429, 502, 503, 504]"), "Status codes to retry on."),
    ],
};

pub(super) static SERVER: Table = Table {
    path: "[servers.NAME]",
    description: "An MCP server.",
    is_mergeable: true,
    one_of: &[],
    keys: &[
        key(
            "path",
            Text,
            Optional,
            "URL path. The default is `/mcp` for a single server, otherwise `/NAME/mcp`.",
        ),
        key("title", Text, Optional, "Display name."),
        key("description", Text, Optional, "Description for users."),
        key("version", Text, WithDefault("\"1.0.0\""), "Version of the server."),
        key(
            "instructions",
            Text,
            Optional,
            "Instructions for models. `{tool_count}` is replaced by the number of tools.",
        ),
        key("website", Text, Optional, "URL of a website."),
        key(
            "auth",
            OneOrMany(&Text),
            Optional,
            "Names of tables in `[auth]`; any of their credentials is accepted. Without it, callers do not authenticate.",
        ),
        key(
            "open",
            Flag,
            WithDefault("false"),
            "Allows tools that run commands or change a database without `auth`, on an address that other machines can reach.",
        ),
        key(
            "dialect",
            Choice(&["official", "boxlang", "bxmcp", "erlmcp", "bluehub", "buddyboss"]),
            WithDefault("\"official\""),
            "Dialect for clients that send no protocol version.",
        ),
        key(
            "profile",
            Either(&[Text, Kind::Table(&PROFILE)]),
            Optional,
            "Profile of all callers: a name in `[profiles]`, or a table.",
        ),
        key("page_size", COUNT, WithDefault("1000"), "Number of items in one page of a list."),
        key(
            "catalog",
            Text,
            Optional,
            "Path of a JSON catalog of the tools, with categories and prices. `?query=` and `?category=` filter it.",
        ),
        key("sessions", Flag, WithDefault("true"), "Keeps sessions between requests."),
        key(
            "strict_arguments",
            Flag,
            WithDefault("false"),
            "Rejects arguments such as `\"5\"` for a number instead of converting them.",
        ),
        key("limits", Kind::Table(&LIMITS), Optional, "Limits of this server, instead of `[limits]`."),
        key(
            "cors",
            Either(&[TEXT_LIST, Kind::Table(&CORS)]),
            Optional,
            "Origins whose pages may call this server, instead of `security.cors`.",
        ),
        key("tools", Map(&Kind::Table(&TOOL)), Optional, "Named tools."),
        key("resources", Map(&Kind::Table(&RESOURCE)), Optional, "Named resources."),
        key("templates", Map(&Kind::Table(&TEMPLATE)), Optional, "Named resource templates."),
        key("prompts", Map(&Kind::Table(&PROMPT)), Optional, "Named prompts."),
        key("openapi", Map(&Kind::Table(&OPENAPI)), Optional, "Named APIs to import from OpenAPI documents."),
        planned("upstreams", "proxying other MCP servers is not implemented"),
        planned("policy", "use `profile`, and `scopes` of tools"),
        planned("search", "use `page_size`, and `profile` to hide unneeded tools"),
        key(
            "packs",
            Either(&[TEXT_LIST, Map(&Kind::Table(&PACK))]),
            Optional,
            "Built-in packs: a list of names (`runtime`, `buddyboss`, `hub`), or a table with settings for each.",
        ),
    ],
};

pub(super) static PACK: Table = Table {
    path: "[servers.NAME.packs.NAME]",
    description: "A built-in pack of tools, prompts and resources. An entry of the file with the same name replaces the entry of the pack, or, if it has no backend, overrides single keys of it.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "on",
            Text,
            Optional,
            "Name of the connection for requests; required by packs that send requests.",
        ),
        key("phases", TEXT_LIST, Optional, "Phases of the pack to add."),
        key("include", TEXT_LIST, Optional, "Name patterns of entries to include; `*` matches anything."),
        key("exclude", TEXT_LIST, Optional, "Name patterns of entries to exclude."),
    ],
};

const BUILTIN: Key = key("builtin", Kind::PackOnly, Optional, "");

pub(super) static TOOL: Table = Table {
    path: "[servers.NAME.tools.NAME]",
    description: "A tool. One of `http`, `sql`, `command`, `text` and `template` is its backend.",
    is_mergeable: false,
    one_of: &["http", "sql", "command", "text", "template", "builtin"],
    keys: &[
        BUILTIN,
        key("description", Text, Optional, "Description for models: what the tool does and when to use it."),
        key("title", Text, Optional, "Display name."),
        key("args", ARGUMENTS, Optional, "Arguments by name; see [Arguments](#arguments)."),
        key(
            "clean",
            Flag,
            WithDefault("false"),
            "Sanitizes arguments before validation: numbers become absolute and are clamped to their range, strings are trimmed, lose HTML tags and are cut after 1000 characters, lists may be comma-separated strings, and values outside of an `enum` are dropped. `clean = false` on an argument excludes it.",
        ),
        key("http", Kind::Table(&HTTP), Optional, "Sends a request to an API."),
        key("sql", Kind::Table(&SQL), Optional, "Runs an SQL statement."),
        key("command", Kind::Table(&COMMAND), Optional, "Runs a program."),
        key("text", Text, Optional, "Returns this text."),
        key("template", Text, Optional, "Returns this text, rendered with the arguments (MiniJinja)."),
        key(
            "output",
            Either(&[Text, Any]),
            Optional,
            "Structured output: `rows`, `row` or `value` for SQL, or a JSON Schema.",
        ),
        key("annotations", Kind::Table(&ANNOTATIONS), Optional, "Hints about the behavior of the tool."),
        key(
            "scopes",
            TEXT_LIST,
            Optional,
            "Scopes that a caller must have to see and call the tool. They are not checked over stdio.",
        ),
        key("timeout", Duration, Optional, "Timeout of a call."),
        key("enabled", Flag, WithDefault("true"), "`false` removes the entry."),
        key("meta", Any, Optional, "Contents of `_meta`."),
        key(
            "aliases",
            TEXT_LIST,
            Optional,
            "Other names under which the tool can be called; they are not listed.",
        ),
        key("category", Text, Optional, "Category in the catalog."),
        key(
            "price",
            Either(&[Text, Kind::Table(&PRICE)]),
            Optional,
            "Price of a call: `\"0.05\"`, or `{ usd = \"0.05\" }`. Payment is not implemented, so calls of tools with a price are rejected.",
        ),
        key(
            "cache",
            Duration,
            Optional,
            "Caches successful results for this time, by arguments, and by caller if the result depends on the caller.",
        ),
        key(
            "task",
            Either(&[Flag, Kind::Table(&TASK)]),
            Optional,
            "`true` runs calls as tasks if the client supports them; a table has more settings.",
        ),
    ],
};

pub(super) static PRICE: Table = Table {
    path: "servers.NAME.tools.NAME.price",
    description: "The price of a call.",
    is_mergeable: false,
    one_of: &[],
    keys: &[key(
        "usd",
        Text,
        Required,
        "US dollars, with at most six digits after the point: `0.05`. `0` is free.",
    )],
};

pub(super) static ANNOTATIONS: Table = Table {
    path: "servers.NAME.tools.NAME.annotations",
    description: "Hints about the behavior of the tool. A hint that is not set is unknown, not false.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("title", Text, Optional, "Display name."),
        key("readOnlyHint", Flag, Optional, "The tool does not modify anything."),
        key("destructiveHint", Flag, Optional, "The tool may delete or overwrite data."),
        key("idempotentHint", Flag, Optional, "Repeating a call has no additional effect."),
        key("openWorldHint", Flag, Optional, "The tool interacts with external systems."),
    ],
};

pub(super) static HTTP: Table = Table {
    path: "http",
    description: "A request to an API. `{name}` in the path, query, form and headers, and `{{ name }}` in the body, are replaced by arguments, encoded for their place.",
    is_mergeable: false,
    one_of: &["path", "url"],
    keys: &[
        key("on", Text, Required, "Name of the connection."),
        key(
            "method",
            Choice(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]),
            WithDefault("\"GET\""),
            "HTTP method.",
        ),
        key("path", Text, Optional, "Path below the base URL of the connection: `/items/{id}`."),
        key("url", Text, Optional, "Instead of `path`: an argument that contains the whole URL, `{url}`."),
        key(
            "query",
            Map(&Text),
            Optional,
            "Query parameters. A parameter whose argument is not given is omitted.",
        ),
        key("headers", Map(&Text), Optional, "Headers."),
        key("cookies", Map(&Text), Optional, "Cookies."),
        key(
            "json",
            Any,
            Optional,
            "JSON body. A string that consists of `{{ name }}` only is replaced by the argument with its type.",
        ),
        key("form", Map(&Text), Optional, "URL-encoded form body."),
        key(
            "multipart",
            Map(&Either(&[Text, Kind::Table(&MULTIPART_PART)])),
            Optional,
            "Multipart body with texts and files.",
        ),
        key("body", Text, Optional, "Text body."),
        key("bytes", Text, Optional, "Binary body: the name of an argument that contains base64."),
        key("content_type", Text, Optional, "Content type of `body` or `bytes`."),
        key(
            "pick",
            Text,
            Optional,
            "jq expression that selects the result from the response: `{number, url: .html_url}`.",
        ),
        key(
            "paging",
            Choice(&["meta", "result", "off"]),
            WithDefault("\"meta\""),
            "Where to return totals and links of a paged response: in `_meta`, in the result, or not at all.",
        ),
        key(
            "expect",
            Choice(&["auto", "json", "text"]),
            WithDefault("\"auto\""),
            "Accepted responses. `auto`: JSON, text or media, but no HTML page; `json`: JSON only; `text`: anything, as text.",
        ),
        key(
            "errors",
            Choice(&["auto", "message", "status"]),
            WithDefault("\"auto\""),
            "What callers see of failures. `auto`: the message of 4xx responses and the status of 5xx responses; `message`: the message; `status`: the status only.",
        ),
        key(
            "on_exceed",
            Choice(&["error", "truncate"]),
            WithDefault("\"error\""),
            "What happens to a response that is too large.",
        ),
        key(
            "unavailable",
            TEXT_LIST,
            Optional,
            "Error codes of the API (`rest_no_route`) that mean that a required feature is not available. Some dialects have an error code for this.",
        ),
        key(
            "then",
            Kind::Table(&FOLLOW_UP),
            Optional,
            "A second request after the first one succeeded; its result is returned. Its argument `first` is the result of the first request.",
        ),
        key(
            "auth",
            Kind::Table(&UPSTREAM_AUTH),
            Optional,
            "Credentials of the caller to send, instead of those of the connection.",
        ),
        key("idempotent", Flag, Optional, "Whether the request may be retried, regardless of its method."),
        key("timeout", Duration, Optional, "Timeout of the request, if shorter than that of the connection."),
        key(
            "max_response",
            Size,
            Optional,
            "Maximum size of the response, if smaller than that of the connection.",
        ),
        key("concurrency", COUNT, WithDefault("64"), "Maximum number of concurrent calls."),
        key(
            "queue",
            Integer(0, 10_000),
            WithDefault("256"),
            "Maximum number of waiting calls; further calls fail as busy.",
        ),
    ],
};

pub(super) static FOLLOW_UP: Table = Table {
    path: "http.then",
    description: "A second request on the same connection.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "method",
            Choice(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            WithDefault("\"POST\""),
            "HTTP method.",
        ),
        key("path", Text, Required, "Path below the base URL of the connection: `/items/{first}`."),
        key(
            "query",
            Map(&Text),
            Optional,
            "Query parameters. A parameter whose argument is not given is omitted.",
        ),
        key("json", Any, Optional, "JSON body: `{ id = \"{{ first }}\" }`."),
        key("pick", Text, Optional, "jq expression that selects the result from the response."),
    ],
};

pub(super) static MULTIPART_PART: Table = Table {
    path: "http.multipart.NAME",
    description: "A file in a multipart body.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "file",
            Text,
            Required,
            "Name of the argument that contains the file, as base64 or as a `data:` URL.",
        ),
        key("filename", Text, WithDefault("\"file\""), "File name."),
        key("mime", Text, WithDefault("\"application/octet-stream\""), "Media type."),
    ],
};

pub(super) static SQL: Table = Table {
    path: "sql",
    description: "An SQL statement. `:name` and `$name` are arguments; they are bound as parameters, never inserted into the text.",
    is_mergeable: false,
    one_of: &["query", "query_from"],
    keys: &[
        key("on", Text, Required, "Name of the connection."),
        key("query", Text, Optional, "The statement."),
        key(
            "query_from",
            Text,
            Optional,
            "Name of the argument that contains the statement. The caller writes SQL, so the statement is read-only.",
        ),
        key(
            "write",
            Flag,
            WithDefault("false"),
            "The statement modifies the database. The connection must have `read_only = false`.",
        ),
        key("max_rows", COUNT, Optional, "Maximum number of rows, instead of that of the connection."),
        key("max_bytes", Size, Optional, "Maximum size of the result, instead of that of the connection."),
        key("timeout", Duration, Optional, "Timeout of the statement, instead of that of the connection."),
        key(
            "expose_errors",
            Flag,
            Optional,
            "Returns error messages of the database to callers, instead of the setting of the connection.",
        ),
    ],
};

pub(super) static COMMAND: Table = Table {
    path: "command",
    description: "A program, run without a shell. Its environment contains `PATH`, `LANG` and the variables set here.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key(
            "argv",
            List(&Either(&[Text, TEXT_LIST])),
            Required,
            "The program and its arguments. A program with a `/` is a path relative to the configuration file; others are searched in `PATH`. `{name}` is replaced by an argument of the tool and never splits an element. A nested list is omitted if an argument in it is not given.",
        ),
        key("env", Map(&Secret), Optional, "Environment variables."),
        key("pass_env", TEXT_LIST, Optional, "Environment variables to pass on from this program."),
        key("cwd", Path, Optional, "Working directory; the folder of the configuration file if not set."),
        key("stdin", Text, Optional, "Standard input, with `{name}` for arguments; empty if not set."),
        key("stdout", Choice(&["text", "json"]), WithDefault("\"text\""), "Format of the output."),
        key(
            "max_output",
            Size,
            WithDefault("\"64KiB\""),
            "Maximum size of the output. A program that prints more is stopped.",
        ),
        key(
            "timeout",
            Duration,
            Optional,
            "The program and its children are stopped after this time. The default is the `timeout` of the tool, the `ttl` of its task, or `limits.timeout`.",
        ),
        key("exit_codes", List(&Integer(0, 255)), WithDefault("[0]"), "Exit codes that mean success."),
        key(
            "progress",
            Choice(&["none", "stderr"]),
            WithDefault("\"none\""),
            "`stderr` reports lines of standard error as progress; `3/10` or `30%` at the beginning of a line is the amount.",
        ),
        key(
            "allow_leading_dash",
            Flag,
            WithDefault("false"),
            "Allows arguments that begin with `-` where the program would read them as options.",
        ),
        key("concurrency", Integer(1, 1000), WithDefault("8"), "Maximum number of concurrent runs."),
        key(
            "queue",
            Integer(0, 10_000),
            WithDefault("64"),
            "Maximum number of waiting calls; further calls fail as busy.",
        ),
        planned("sandbox", "run the program as a user with few rights"),
        key(
            "shell",
            Kind::Unsupported("programs run without a shell; put the pipeline into a script"),
            Optional,
            "",
        ),
    ],
};

pub(super) static RESOURCE: Table = Table {
    path: "[servers.NAME.resources.NAME]",
    description: "A resource. One of `text`, `file`, `files`, `template`, `command`, `http` and `sql` is its content.",
    is_mergeable: false,
    one_of: &["text", "file", "files", "template", "command", "http", "sql", "builtin"],
    keys: &[
        BUILTIN,
        key("uri", Text, Optional, "URI of the resource: `shop://sizing`. Required unless `files` is set."),
        key("title", Text, Optional, "Display name."),
        key("description", Text, Optional, "Description for models."),
        key("mime", Text, Optional, "Media type; for files, derived from the name if not set."),
        key("text", Text, Optional, "A fixed text."),
        key("file", Path, Optional, "A file."),
        key("files", Kind::Table(&FILES), Optional, "A folder; each file is a resource."),
        key("template", Text, Optional, "A text, rendered with arguments of the caller (MiniJinja)."),
        key("command", Kind::Table(&COMMAND), Optional, "The output of a program."),
        key("http", Kind::Table(&HTTP), Optional, "The response of an API."),
        key("sql", Kind::Table(&SQL), Optional, "The result of an SQL statement, as JSON."),
        only_with(
            &["sql"],
            key(
                "output",
                SQL_OUTPUT,
                WithDefault("\"rows\""),
                "All rows, the first row, or the first column of the first row.",
            ),
        ),
        key("args", ARGUMENTS, Optional, "Arguments from the caller (`from`); others are not allowed."),
        key("enabled", Flag, WithDefault("true"), "`false` removes the entry."),
    ],
};

pub(super) static FILES: Table = Table {
    path: "servers.NAME.resources.NAME.files",
    description: "A folder whose files are resources. Files outside of it cannot be read, even through links.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("root", Path, Required, "The folder."),
        key("glob", OneOrMany(&Text), WithDefault("\"**/*\""), "Patterns of files to include: `**/*.md`."),
        key("exclude", OneOrMany(&Text), Optional, "Patterns of files to exclude."),
        key("uri", Text, Required, "URI of the files: `docs:///{path}`."),
        key("hidden", Flag, WithDefault("false"), "Includes files and folders whose names begin with a dot."),
        key("watch", Flag, WithDefault("true"), "Notifies clients when files change."),
        key(
            "max_size",
            Size,
            WithDefault("\"8MiB\""),
            "Maximum size of a file; larger files cannot be read.",
        ),
        key(
            "max_files",
            Integer(0, 100_000),
            WithDefault("10000"),
            "Maximum number of listed files; others can be read by their URI.",
        ),
    ],
};

pub(super) static TEMPLATE: Table = Table {
    path: "[servers.NAME.templates.NAME]",
    description: "A resource template. One of `template`, `command`, `http` and `sql` is its content.",
    is_mergeable: false,
    one_of: &["template", "command", "http", "sql", "builtin"],
    keys: &[
        BUILTIN,
        key("uri", Text, Required, "URI template (RFC 6570): `shop://product/{sku}`."),
        key("title", Text, Optional, "Display name."),
        key("description", Text, Optional, "Description for models."),
        key("mime", Text, Optional, "Media type."),
        key("template", Text, Optional, "A text, rendered with the variables (MiniJinja)."),
        key("command", Kind::Table(&COMMAND), Optional, "The output of a program."),
        key("http", Kind::Table(&HTTP), Optional, "The response of an API."),
        key("sql", Kind::Table(&SQL), Optional, "The result of an SQL statement, as JSON."),
        only_with(
            &["sql"],
            key(
                "output",
                SQL_OUTPUT,
                WithDefault("\"rows\""),
                "All rows, the first row, or the first column of the first row.",
            ),
        ),
        key(
            "args",
            ARGUMENTS,
            Optional,
            "Descriptions of the variables, and arguments from the caller (`from`).",
        ),
        key(
            "complete",
            Map(&COMPLETE),
            Optional,
            "Completions of variables: a list of values, or a backend.",
        ),
        key("enabled", Flag, WithDefault("true"), "`false` removes the entry."),
    ],
};

const COMPLETE: Kind = Either(&[TEXT_LIST, Kind::Table(&COMPLETION)]);

pub(super) static COMPLETION: Table = Table {
    path: "complete.NAME",
    description: "A backend for completions. The argument `prefix` is the text typed so far; each line or row of the result is a value.",
    is_mergeable: false,
    one_of: &["command", "http", "sql"],
    keys: &[
        key("command", Kind::Table(&COMMAND), Optional, "The lines that a program prints."),
        key("http", Kind::Table(&HTTP), Optional, "A list from an API."),
        key("sql", Kind::Table(&SQL), Optional, "The first column of an SQL result."),
    ],
};

pub(super) static PROMPT: Table = Table {
    path: "[servers.NAME.prompts.NAME]",
    description: "A prompt. One of `messages`, `text` and `file` is its content, a MiniJinja template; `{{ resource('uri') }}` embeds a resource.",
    is_mergeable: false,
    one_of: &["messages", "text", "file"],
    keys: &[
        key("title", Text, Optional, "Display name."),
        key("description", Text, Optional, "Description for users."),
        key("args", ARGUMENTS, Optional, "Arguments of the prompt."),
        key(
            "complete",
            Map(&COMPLETE),
            Optional,
            "Completions of arguments: a list of values, or a backend.",
        ),
        key("messages", List(&Kind::Table(&MESSAGE)), Optional, "The messages, in order."),
        key("text", Text, Optional, "Text of a single user message."),
        key("file", Path, Optional, "File with the text of a single user message."),
        key("enabled", Flag, WithDefault("true"), "`false` removes the entry."),
    ],
};

pub(super) static MESSAGE: Table = Table {
    path: "servers.NAME.prompts.NAME.messages",
    description: "A message of a prompt.",
    is_mergeable: false,
    one_of: &["text", "file"],
    keys: &[
        key(
            "role",
            Choice(&["user", "assistant", "system"]),
            WithDefault("\"user\""),
            "Role of the message.",
        ),
        key("text", Text, Optional, "Text of the message."),
        key("file", Path, Optional, "File with the text."),
    ],
};

pub(super) static OPENAPI: Table = Table {
    path: "[servers.NAME.openapi.NAME]",
    description: "An API that is imported from its OpenAPI 3.0, 3.1 or Swagger 2.0 document: each operation becomes a tool.",
    is_mergeable: false,
    one_of: &[],
    keys: &[
        key("spec", Text, Required, "The document: a file or a URL."),
        key("on", Text, Optional, "Name of the connection for requests."),
        key(
            "base",
            Text,
            Optional,
            "Base URL of the API, if `on` is not set. Server URLs in the document are not used.",
        ),
        key("refresh", Duration, Optional, "How often a document at a URL is fetched again."),
        key("prefix", Text, Optional, "Prefix of the tool names."),
        key(
            "include",
            TEXT_LIST,
            Optional,
            "Operations to include: `GET /v2/**`, `tag:stock`, or an operation id.",
        ),
        key("exclude", TEXT_LIST, Optional, "Operations to exclude; also `deprecated`."),
        key(
            "as",
            Map(&Choice(&["tool", "resource", "template"])),
            Optional,
            "What an operation becomes, by `GET /path` or operation id.",
        ),
        key("rename", Map(&Text), Optional, "Tool names by operation id."),
        key("auth", Kind::Table(&OPENAPI_AUTH), Optional, "Credentials to send with requests."),
    ],
};

pub(super) static OPENAPI_AUTH: Table = Table {
    path: "servers.NAME.openapi.NAME.auth",
    description: "Credentials to send with requests.",
    is_mergeable: false,
    one_of: &["forward", "headers"],
    keys: &[
        key(
            "forward",
            OneOrMany(&Text),
            Optional,
            "`principal` forwards the caller's `Authorization` header; otherwise, names of headers to forward.",
        ),
        key("headers", Map(&Secret), Optional, "Headers to send."),
    ],
};
