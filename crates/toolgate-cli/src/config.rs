//! Configurations: text to values, and everything that is wrong with them at once.
//!
//! It knows no server and no protocol: it fills the plain descriptions that sources have, and leaves it to `compose` to
//! make servers of them.
//!
//! Nothing here can be printed with `{:?}`: passwords, tokens and keys are among what a configuration says.

mod arguments;
mod check;
mod diagnostics;
mod expand;
mod file_stamp;
mod keys;
mod packs;
mod read;
mod redact;
pub(crate) mod reference;
pub(crate) mod schema;
mod storage;
mod tree;
mod units;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use toolgate::Profile;
use toolgate::guard::Rate;

pub(crate) use arguments::{Argument, ArgumentOrigin, Arguments};
pub(crate) use diagnostics::{ConfigFiles, Diagnostics, Span};
pub(crate) use file_stamp::{FileStamp, parent_folder};
pub(crate) use redact::redact_url;
pub(crate) use storage::Storage;
pub(crate) use tree::Node;

use crate::source::command::CommandSpec;
use crate::source::files::FilesSpec;
use crate::source::prompt::MessageTemplate;
use check::{ConfigChecker, merge};
use keys::{Kind, ROOT};
use tree::NodeValue;

/// Everything that a configuration says.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) files: ConfigFiles,
    /// Files and folders that it names, as they were before they were read.
    pub(crate) file_stamps: Vec<FileStamp>,
    pub(crate) listen: Listen,
    pub(crate) stats_path: Option<String>,
    pub(crate) metrics_path: Option<String>,
    /// What was written, without secrets.
    pub(crate) redacted: Value,
    pub(crate) egress: EgressConfig,
    pub(crate) egress_node: Node,
    pub(crate) storage: Storage,
    pub(crate) storage_span: Span,
    pub(crate) audit_span: Span,
    /// Where settings for all servers were written, by the name that the library has for them.
    pub(crate) setting_spans: Vec<(&'static str, Span)>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) servers: Vec<Server>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct Listen {
    pub(crate) http: String,
    pub(crate) shutdown_grace: Duration,
    pub(crate) max_connections: usize,
}

#[derive(Clone, PartialEq)]
pub(crate) struct EgressConfig {
    pub(crate) deny_private: bool,
    pub(crate) allow: Vec<String>,
}

/// A database or an API.
#[derive(Clone, PartialEq)]
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) node: Node,
    pub(crate) kind: ConnectionKind,
}

#[derive(Clone, PartialEq)]
pub(crate) enum ConnectionKind {
    Sql(SqlConnectionConfig),
    Http(HttpConnectionConfig),
}

#[derive(Clone, PartialEq)]
pub(crate) struct SqlConnectionConfig {
    /// `sqlite`, `postgres` or `mysql`.
    pub(crate) engine: &'static str,
    pub(crate) url: String,
    pub(crate) pool_max: u32,
    pub(crate) pool_queue: usize,
    pub(crate) pool_wait: Duration,
    pub(crate) pool_idle: Duration,
    pub(crate) read_only: bool,
    pub(crate) timeout: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_bytes: usize,
    pub(crate) expose_errors: bool,
}

/// A site of WordPress that says who somebody is.
#[derive(Clone, PartialEq)]
pub(crate) struct WordPress {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) url: String,
    /// What a user must be allowed to do there.
    pub(crate) capability: Option<String>,
    pub(crate) cache_ttl: Duration,
    /// Whom `check --live` logs in as.
    pub(crate) probe_login: Option<(String, String)>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct HttpConnectionConfig {
    pub(crate) base: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) auth: Option<UpstreamAuth>,
    pub(crate) retry_max: u32,
    pub(crate) retry_on: Vec<u16>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_redirects: u8,
    pub(crate) max_response: usize,
    /// PEM text.
    pub(crate) ca_pem: Option<String>,
}

impl HttpConnectionConfig {
    /// As it is where nothing is said but where it is.
    pub(crate) fn new(base: String) -> HttpConnectionConfig {
        HttpConnectionConfig {
            base,
            headers: Vec::new(),
            query: Vec::new(),
            auth: None,
            retry_max: 2,
            retry_on: vec![429, 502, 503, 504],
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            max_redirects: 0,
            max_response: 1 << 20,
            ca_pem: None,
        }
    }
}

/// As whom requests are made.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum UpstreamAuth {
    Forward,
    /// With these headers of the call.
    Headers(Vec<String>),
    Attribute {
        attribute: String,
        header: String,
        prefix: String,
    },
}

/// A server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) path: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    pub(crate) website: Option<String>,
    /// Where its catalogue is served.
    pub(crate) catalog_path: Option<String>,
    pub(crate) settings: ServerSettings,
    /// Names of the packs that are among what it has.
    pub(crate) packs: Vec<String>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) openapi: Vec<OpenApi>,
}

/// What of a server cannot change under those who are connected: a server with another frame is another server.
#[derive(Clone, PartialEq)]
pub(crate) struct ServerSettings {
    pub(crate) public_url: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) security_headers: bool,
    pub(crate) ip_allow: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) cors_max_age: Option<Duration>,
    pub(crate) legacy_sse: bool,
    pub(crate) max_body_bytes: u64,
    pub(crate) timeout: Duration,
    pub(crate) rate_per_ip: Option<Rate>,
    pub(crate) rate_per_principal: Option<Rate>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) response_limit: Option<ResponseLimit>,
    pub(crate) audit: Option<Audit>,
    pub(crate) users: Vec<Credential>,
    /// The site whose users may call.
    pub(crate) wordpress: Option<WordPress>,
    /// Where that site may be: who is asked who somebody is must not be older than the rules for asking.
    pub(crate) egress: Option<EgressConfig>,
    pub(crate) tokens: Vec<Credential>,
    pub(crate) api_keys: Vec<Credential>,
    pub(crate) dialect: String,
    pub(crate) profile: Option<Profile>,
    pub(crate) page_size: usize,
    pub(crate) sessions: bool,
    pub(crate) strict_arguments: bool,
    pub(crate) stats: bool,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) storage: Storage,
    /// Which tools need which scopes: who sees them is said with the credentials.
    pub(crate) tool_scopes: Vec<(String, Vec<String>)>,
}

/// How large a result may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseLimit {
    pub(crate) max_bytes: usize,
    /// It is cut, instead of being refused.
    pub(crate) is_truncated: bool,
}

/// Where calls are written down.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) file: PathBuf,
    pub(crate) has_arguments: bool,
}

impl Server {
    /// The inside of the program is shown to whoever reaches this server.
    pub(crate) fn is_runtime_exposed(&self) -> bool {
        let ServerSettings { users, tokens, api_keys: keys, wordpress, .. } = &self.settings;
        let asks = !users.is_empty() || !tokens.is_empty() || !keys.is_empty() || wordpress.is_some();
        !asks && self.packs.iter().any(|pack| pack == "runtime")
    }
}

/// A token, a key or a password, and who has it.
#[derive(Clone, PartialEq)]
pub(crate) struct Credential {
    /// As it is, or `sha256:` and its digest; of a password, its hash.
    pub(crate) secret: String,
    pub(crate) subject: Option<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) profile: Option<Profile>,
    pub(crate) attributes: Vec<(String, Value)>,
    pub(crate) quota: Option<Rate>,
}

/// What something that acts is made of.
#[derive(Clone, PartialEq)]
pub(crate) enum BackendConfig {
    Text(String),
    Template(String),
    Command(Box<CommandSpec>),
    Http(Box<Http>),
    Sql(Sql),
    /// Something of ours, that a pack names.
    Builtin(String),
}

impl BackendConfig {
    /// The key that says so.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            BackendConfig::Text(_) => "text",
            BackendConfig::Template(_) => "template",
            BackendConfig::Command(_) => "command",
            BackendConfig::Http(_) => "http",
            BackendConfig::Sql(_) => "sql",
            BackendConfig::Builtin(_) => "builtin",
        }
    }
}

#[derive(Clone, PartialEq)]
pub(crate) struct Http {
    pub(crate) connection: String,
    pub(crate) method: String,
    pub(crate) path: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) cookies: Vec<(String, String)>,
    pub(crate) body: HttpBody,
    pub(crate) pick: Option<String>,
    /// `meta`, `result` or `off`.
    pub(crate) paging: String,
    /// `auto`, `json` or `text`.
    pub(crate) expect: String,
    /// `auto`, `message` or `status`.
    pub(crate) errors: String,
    /// `error` or `truncate`.
    pub(crate) on_exceed: String,
    pub(crate) auth: Option<UpstreamAuth>,
    /// Codes of errors that mean that there is nobody to answer.
    pub(crate) unavailable_codes: Vec<String>,
    pub(crate) follow_up: Option<Box<HttpFollowUp>>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_response: Option<usize>,
    pub(crate) concurrency: usize,
    pub(crate) queue: usize,
}

#[derive(Clone, PartialEq)]
pub(crate) enum HttpBody {
    None,
    Json(Value),
    Form(Vec<(String, String)>),
    Multipart(Vec<(String, HttpPart)>),
    Text { text: String, content_type: Option<String> },
    Bytes { argument: String, content_type: Option<String> },
}

/// A request that follows another one, and knows its answer.
#[derive(Clone, PartialEq)]
pub(crate) struct HttpFollowUp {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) json: Option<Value>,
    pub(crate) pick: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum HttpPart {
    Text(String),
    File { argument: String, filename: String, mime: String },
}

#[derive(Clone, PartialEq)]
pub(crate) struct Sql {
    pub(crate) connection: String,
    pub(crate) query: SqlQuery,
    pub(crate) write: bool,
    pub(crate) max_rows: Option<usize>,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) expose_errors: Option<bool>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SqlQuery {
    Text(String),
    /// The argument that is the statement.
    Argument(String),
}

#[derive(Clone)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) backend: BackendConfig,
    pub(crate) output: OutputConfig,
    pub(crate) hints: toolgate::model::ToolHints,
    pub(crate) scopes: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) meta: Option<Value>,
    pub(crate) aliases: Vec<String>,
    pub(crate) category: Option<String>,
    pub(crate) price: Option<Price>,
    pub(crate) task: Option<Task>,
    pub(crate) cache_ttl: Option<Duration>,
    /// Arguments are put right before they are checked.
    pub(crate) clean: bool,
}

/// How calls of a tool run as tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) ttl: Option<Duration>,
    pub(crate) is_required: bool,
    pub(crate) is_resumable: bool,
}

/// What a call costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Price {
    /// US dollars, as a decimal without needless zeros.
    pub(crate) usd: String,
}

impl Price {
    /// Reads digits with perhaps a point among them, and at most six behind it: the smallest coin there is.
    pub(crate) fn parse(text: &str) -> Option<Price> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(part) || whole.len() > 9 || part.len() > 6 {
            return None;
        }
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let part = part.trim_end_matches('0');
        let usd = match part.len() {
            0 => whole.to_owned(),
            // Prices are written with cents.
            1 => format!("{whole}.{part}0"),
            _ => format!("{whole}.{part}"),
        };
        Some(Price { usd })
    }

    pub(crate) fn is_free(&self) -> bool {
        self.usd == "0"
    }
}

/// What structured output looks like.
#[derive(Clone, PartialEq)]
pub(crate) enum OutputConfig {
    /// As the source says, if it does.
    Unspecified,
    /// A word that the source knows.
    Named(String),
    Schema(Value),
}

#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) uri: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) kind: ResourceKind,
    pub(crate) output: OutputConfig,
}

#[derive(Clone)]
pub(crate) enum ResourceKind {
    Backend(BackendConfig),
    Files { spec: Box<FilesSpec>, watch: bool },
}

#[derive(Clone)]
pub(crate) struct ResourceTemplate {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) uri: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) backend: BackendConfig,
    pub(crate) output: OutputConfig,
    pub(crate) completions: Vec<Completion>,
}

#[derive(Clone)]
pub(crate) struct Completion {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) kind: CompletionKind,
}

#[derive(Clone)]
pub(crate) enum CompletionKind {
    List(Vec<String>),
    Backend(BackendConfig),
}

#[derive(Clone)]
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) messages: Vec<MessageTemplate>,
    pub(crate) completions: Vec<Completion>,
}

#[derive(Clone)]
pub(crate) struct OpenApi {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) spec: OpenApiSource,
    pub(crate) connection: Option<String>,
    pub(crate) base: Option<String>,
    pub(crate) refresh: Option<Duration>,
    pub(crate) prefix: String,
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) kinds: Vec<(String, String)>,
    pub(crate) rename: Vec<(String, String)>,
    pub(crate) auth: Option<UpstreamAuth>,
    pub(crate) headers: Vec<(String, String)>,
}

/// A description of an API.
#[derive(Clone)]
pub(crate) enum OpenApiSource {
    File { path: PathBuf, text: String },
    Url(String),
}

impl OpenApiSource {
    pub(crate) fn url(&self) -> Option<&str> {
        match self {
            OpenApiSource::File { .. } => None,
            OpenApiSource::Url(url) => Some(url),
        }
    }
}

/// What reading gave: a configuration, or everything that is wrong with it.
pub(crate) struct LoadedConfig {
    pub(crate) config: Config,
    pub(crate) diagnostics: Diagnostics,
}

impl LoadedConfig {
    /// Everything that is wrong, in words; none if nothing is.
    pub(crate) fn error_report(&self) -> Option<String> {
        (!self.diagnostics.is_empty()).then(|| self.config.files.render(&self.diagnostics))
    }

    /// The same for a log: where it is and what, and nothing of what is written there.
    pub(crate) fn error_summary(&self) -> Option<String> {
        (!self.diagnostics.is_empty()).then(|| self.config.files.render_brief(&self.diagnostics))
    }
}

/// Reads a configuration and everything it includes.
pub(crate) fn load(path: &Path) -> LoadedConfig {
    load_with_variables(path, &|name| std::env::var(name).ok())
}

pub(crate) fn load_with_variables(path: &Path, variables: expand::VariableLookup<'_>) -> LoadedConfig {
    let mut texts = ConfigFiles::default();
    let mut troubles = Diagnostics::default();
    let mut tree = match read_file(path, &mut texts) {
        Ok(file) => tree::parse(&texts, file, &mut troubles),
        Err(said) => {
            troubles.report_without_span(said);
            Node::empty()
        }
    };
    merge_includes(&mut tree, &mut texts, &mut troubles);
    let told = redact::redact_config(&tree);
    packs::expand_packs(&mut tree, &mut texts, &mut troubles);
    let mut secrets = Vec::new();
    // Where the grammar is wrong, anything may be missing: complaints about that would be noise.
    if troubles.is_empty() {
        let (texts, troubles, secrets) = (&texts, &mut troubles, &mut secrets);
        ConfigChecker { files: texts, variables, diagnostics: troubles, secret_files: secrets }
            .check_table(&mut tree, &ROOT, "");
    } else {
        tree = Node::empty();
    }
    let mut config = read::read(&tree, texts, &mut troubles);
    config.redacted = told;
    config.file_stamps.extend(secrets);
    LoadedConfig { config, diagnostics: troubles }
}

fn read_file(path: &Path, texts: &mut ConfigFiles) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("cannot read {}: {}", path.display(), diagnostics::io_error_message(&error))
    })?;
    Ok(texts.add(path.to_owned(), text))
}

/// Adds what included files say. They include nothing themselves.
fn merge_includes(tree: &mut Node, texts: &mut ConfigFiles, troubles: &mut Diagnostics) {
    let Some(wanted) = tree.get("include").cloned() else {
        return;
    };
    let items = match &wanted.value {
        NodeValue::Text(_) => vec![wanted],
        NodeValue::List(items) => items.clone(),
        _ => return,
    };
    for item in items {
        let Some(pattern) = item.as_text() else { continue };
        let whole = texts.resolve(item.span.file, pattern);
        if let Some(parent) = whole.parent().filter(|parent| parent.is_dir()) {
            texts.add_folder(parent.to_owned());
        }
        let found = match expand_pattern(&whole) {
            Ok(found) => found,
            Err(said) => {
                troubles.report(item.span, said);
                continue;
            }
        };
        for path in found {
            if texts.contains(&path) {
                continue;
            }
            match read_file(&path, texts) {
                Ok(file) => {
                    let mut more = tree::parse(texts, file, troubles);
                    if let Some(entry) = more.remove("include") {
                        troubles.report(entry.span, "an included file includes no others");
                    }
                    merge(tree, more, &Kind::Table(&ROOT), "", troubles);
                }
                Err(said) => troubles.report(item.span, said),
            }
        }
    }
}

/// The files that a name or a pattern means, in order. A pattern may mean none, a name is there.
fn expand_pattern(whole: &Path) -> Result<Vec<PathBuf>, String> {
    let is_pattern = |part: &str| part.contains(['*', '?', '[', '{']);
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let below = whole.parent().unwrap_or(Path::new(""));
    if is_pattern(&below.to_string_lossy()) {
        return Err("only the last part of a path may be a pattern".into());
    }
    if !is_pattern(&name) {
        return Ok(vec![whole.to_owned()]);
    }
    let glob = globset::Glob::new(&name).map_err(|error| error.to_string())?.compile_matcher();
    let folder = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| glob.is_match(entry.file_name()))
        .map(|entry| below.join(entry.file_name()))
        .collect();
    found.sort();
    Ok(found)
}
