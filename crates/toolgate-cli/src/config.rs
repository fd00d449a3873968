//! Configurations: text to values, and everything that is wrong with them at once.
//!
//! It knows no server and no protocol: it fills the plain descriptions that sources have, and leaves it to `compose` to
//! make servers of them.
//!
//! Nothing here can be printed with `{:?}`: passwords, tokens and keys are among what a configuration says.

mod arguments;
mod beside;
mod check;
mod expand;
mod human;
mod keys;
mod packs;
mod read;
pub(crate) mod reference;
pub(crate) mod schema;
mod storage;
mod text;
mod told;
mod tree;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use toolgate::{Profile, Rate};

pub(crate) use arguments::{Argument, Arguments, Origin};
pub(crate) use beside::{Beside, folder_of};
pub(crate) use storage::Storage;
pub(crate) use text::{Place, Texts, Troubles};
pub(crate) use told::address;
pub(crate) use tree::Node;

use crate::source::command::CommandSpec;
use crate::source::files::FilesSpec;
use crate::source::prompt::Said;
use check::{Check, merge};
use keys::{Kind, ROOT};
use tree::Worth;

/// Everything that a configuration says.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) texts: Texts,
    /// Files and folders that it names, as they were before they were read.
    pub(crate) beside: Vec<Beside>,
    pub(crate) listen: Listen,
    pub(crate) stats_path: Option<String>,
    pub(crate) metrics_path: Option<String>,
    /// What was written, without secrets.
    pub(crate) told: Value,
    pub(crate) egress: Egress,
    pub(crate) egress_node: Node,
    pub(crate) storage: Storage,
    pub(crate) storage_at: Place,
    pub(crate) audit_at: Place,
    /// Where settings for all servers were written, by the name that the library has for them.
    pub(crate) settings: Vec<(&'static str, Place)>,
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
pub(crate) struct Egress {
    pub(crate) deny_private: bool,
    pub(crate) allow: Vec<String>,
}

/// A database or an API.
#[derive(Clone, PartialEq)]
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) at: Place,
    pub(crate) node: Node,
    pub(crate) kind: ConnectionKind,
}

#[derive(Clone, PartialEq)]
pub(crate) enum ConnectionKind {
    Sql(SqlConnection),
    Http(HttpConnection),
}

#[derive(Clone, PartialEq)]
pub(crate) struct SqlConnection {
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
    pub(crate) cache: Duration,
    /// Whom `check --live` logs in as.
    pub(crate) probe: Option<(String, String)>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct HttpConnection {
    pub(crate) base: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) auth: Option<BackendAuth>,
    pub(crate) retry_max: u32,
    pub(crate) retry_on: Vec<u16>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) redirects: u8,
    pub(crate) max_response: usize,
    /// PEM text.
    pub(crate) ca: Option<String>,
}

impl HttpConnection {
    /// As it is where nothing is said but where it is.
    pub(crate) fn at(base: String) -> HttpConnection {
        HttpConnection {
            base,
            headers: Vec::new(),
            query: Vec::new(),
            auth: None,
            retry_max: 2,
            retry_on: vec![429, 502, 503, 504],
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            redirects: 0,
            max_response: 1 << 20,
            ca: None,
        }
    }
}

/// As whom requests are made.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum BackendAuth {
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
    pub(crate) at: Place,
    pub(crate) path: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    pub(crate) website: Option<String>,
    /// Where its catalogue is served.
    pub(crate) catalog: Option<String>,
    pub(crate) frame: Frame,
    /// Names of the packs that are among what it has.
    pub(crate) packs: Vec<String>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<Template>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) openapi: Vec<OpenApi>,
}

/// What of a server cannot change under those who are connected: a server with another frame is another server.
#[derive(Clone, PartialEq)]
pub(crate) struct Frame {
    pub(crate) public_url: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) headers: bool,
    pub(crate) ip_allow: Vec<String>,
    pub(crate) cors: Vec<String>,
    pub(crate) cors_max_age: Option<Duration>,
    pub(crate) legacy_sse: bool,
    pub(crate) body: u64,
    pub(crate) timeout: Duration,
    pub(crate) rate_per_ip: Option<Rate>,
    pub(crate) rate_per_principal: Option<Rate>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) response: Option<Response>,
    pub(crate) audit: Option<Audit>,
    pub(crate) users: Vec<Credential>,
    /// The site whose users may call.
    pub(crate) wordpress: Option<WordPress>,
    /// Where that site may be: who is asked who somebody is must not be older than the rules for asking.
    pub(crate) egress: Option<Egress>,
    pub(crate) tokens: Vec<Credential>,
    pub(crate) keys: Vec<Credential>,
    pub(crate) dialect: String,
    pub(crate) profile: Option<Profile>,
    pub(crate) page_size: usize,
    pub(crate) sessions: bool,
    pub(crate) strict_arguments: bool,
    pub(crate) stats: bool,
    pub(crate) drain: Duration,
    pub(crate) storage: Storage,
    /// Which tools need which scopes: who sees them is said with the credentials.
    pub(crate) scoped: Vec<(String, Vec<String>)>,
}

/// How large a result may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) max: usize,
    /// It is cut, instead of being refused.
    pub(crate) is_cut: bool,
}

/// Where calls are written down.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) file: PathBuf,
    pub(crate) has_arguments: bool,
}

impl Server {
    /// The inside of the program is shown to whoever reaches this server.
    pub(crate) fn is_open_inside(&self) -> bool {
        let Frame { users, tokens, keys, wordpress, .. } = &self.frame;
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
pub(crate) enum Does {
    Text(String),
    Template(String),
    Command(Box<CommandSpec>),
    Http(Box<Http>),
    Sql(Sql),
    /// Something of ours, that a pack names.
    Builtin(String),
}

impl Does {
    /// The key that says so.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Does::Text(_) => "text",
            Does::Template(_) => "template",
            Does::Command(_) => "command",
            Does::Http(_) => "http",
            Does::Sql(_) => "sql",
            Does::Builtin(_) => "builtin",
        }
    }
}

#[derive(Clone, PartialEq)]
pub(crate) struct Http {
    pub(crate) on: String,
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
    pub(crate) auth: Option<BackendAuth>,
    /// Codes of errors that mean that there is nobody to answer.
    pub(crate) unavailable: Vec<String>,
    pub(crate) then: Option<Box<HttpThen>>,
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
pub(crate) struct HttpThen {
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
    pub(crate) on: String,
    pub(crate) query: SqlQuery,
    pub(crate) write: bool,
    pub(crate) max_rows: Option<usize>,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) expose_errors: Option<bool>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SqlQuery {
    Written(String),
    /// The argument that is the statement.
    From(String),
}

#[derive(Clone)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) does: Does,
    pub(crate) output: Output,
    pub(crate) hints: toolgate::model::ToolHints,
    pub(crate) scopes: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) meta: Option<Value>,
    pub(crate) aliases: Vec<String>,
    pub(crate) category: Option<String>,
    pub(crate) price: Option<Price>,
    pub(crate) task: Option<Task>,
    pub(crate) cache: Option<Duration>,
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
    pub(crate) fn read(text: &str) -> Option<Price> {
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
pub(crate) enum Output {
    /// As the source says, if it does.
    Unsaid,
    /// A word that the source knows.
    Word(String),
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
    pub(crate) is: ResourceKind,
    pub(crate) output: Output,
}

#[derive(Clone)]
pub(crate) enum ResourceKind {
    Does(Does),
    Files { spec: Box<FilesSpec>, watch: bool },
}

#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) uri: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) does: Does,
    pub(crate) output: Output,
    pub(crate) complete: Vec<Completion>,
}

#[derive(Clone)]
pub(crate) struct Completion {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) by: CompletionKind,
}

#[derive(Clone)]
pub(crate) enum CompletionKind {
    List(Vec<String>),
    Does(Does),
}

#[derive(Clone)]
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) messages: Vec<Said>,
    pub(crate) complete: Vec<Completion>,
}

#[derive(Clone)]
pub(crate) struct OpenApi {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) spec: Document,
    pub(crate) on: Option<String>,
    pub(crate) base: Option<String>,
    pub(crate) refresh: Option<Duration>,
    pub(crate) prefix: String,
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) becomes: Vec<(String, String)>,
    pub(crate) rename: Vec<(String, String)>,
    pub(crate) auth: Option<BackendAuth>,
    pub(crate) headers: Vec<(String, String)>,
}

/// A description of an API.
#[derive(Clone)]
pub(crate) enum Document {
    File { path: PathBuf, text: String },
    Url(String),
}

impl Document {
    pub(crate) fn url(&self) -> Option<&str> {
        match self {
            Document::File { .. } => None,
            Document::Url(url) => Some(url),
        }
    }
}

/// What reading gave: a configuration, or everything that is wrong with it.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) troubles: Troubles,
}

impl Loaded {
    /// Everything that is wrong, in words; none if nothing is.
    pub(crate) fn told(&self) -> Option<String> {
        (!self.troubles.is_empty()).then(|| self.config.texts.tell(&self.troubles))
    }

    /// The same for a log: where it is and what, and nothing of what is written there.
    pub(crate) fn told_briefly(&self) -> Option<String> {
        (!self.troubles.is_empty()).then(|| self.config.texts.tell_briefly(&self.troubles))
    }
}

/// Reads a configuration and everything it includes.
pub(crate) fn load(path: &Path) -> Loaded {
    load_with(path, &|name| std::env::var(name).ok())
}

pub(crate) fn load_with(path: &Path, variables: expand::Variables<'_>) -> Loaded {
    let mut texts = Texts::default();
    let mut troubles = Troubles::default();
    let mut tree = match open(path, &mut texts) {
        Ok(file) => tree::read(&texts, file, &mut troubles),
        Err(said) => {
            troubles.say_nowhere(said);
            Node::empty()
        }
    };
    include(&mut tree, &mut texts, &mut troubles);
    let told = told::told(&tree);
    packs::unfold(&mut tree, &mut texts, &mut troubles);
    let mut secrets = Vec::new();
    // Where the grammar is wrong, anything may be missing: complaints about that would be noise.
    if troubles.is_empty() {
        let (texts, troubles, secrets) = (&texts, &mut troubles, &mut secrets);
        Check { texts, variables, troubles, secrets }.table(&mut tree, &ROOT, "");
    } else {
        tree = Node::empty();
    }
    let mut config = read::read(&tree, texts, &mut troubles);
    config.told = told;
    config.beside.extend(secrets);
    Loaded { config, troubles }
}

fn open(path: &Path, texts: &mut Texts) -> Result<usize, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {}", path.display(), text::why(&error)))?;
    Ok(texts.add(path.to_owned(), text))
}

/// Adds what included files say. They include nothing themselves.
fn include(tree: &mut Node, texts: &mut Texts, troubles: &mut Troubles) {
    let Some(wanted) = tree.get("include").cloned() else {
        return;
    };
    let items = match &wanted.worth {
        Worth::Text(_) => vec![wanted],
        Worth::List(items) => items.clone(),
        _ => return,
    };
    for item in items {
        let Some(pattern) = item.as_text() else { continue };
        let whole = texts.resolve(item.at.file, pattern);
        if let Some(parent) = whole.parent().filter(|parent| parent.is_dir()) {
            texts.add_folder(parent.to_owned());
        }
        let found = match files(&whole) {
            Ok(found) => found,
            Err(said) => {
                troubles.say(item.at, said);
                continue;
            }
        };
        for path in found {
            if texts.has(&path) {
                continue;
            }
            match open(&path, texts) {
                Ok(file) => {
                    let mut more = tree::read(texts, file, troubles);
                    if let Some(entry) = more.take("include") {
                        troubles.say(entry.at, "an included file includes no others");
                    }
                    merge(tree, more, &Kind::Table(&ROOT), "", troubles);
                }
                Err(said) => troubles.say(item.at, said),
            }
        }
    }
}

/// The files that a name or a pattern means, in order. A pattern may mean none, a name is there.
fn files(whole: &Path) -> Result<Vec<PathBuf>, String> {
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
