//! Tools, resources, templates, prompts and imported APIs of a server.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use toolgate::model::ToolHints;
use toolgate_sources::source::files::FilesSpec;
use toolgate_sources::source::prompt::MessageTemplate;

use super::arguments::Arguments;
use super::backend::BackendConfig;
use super::connection::UpstreamAuth;
use super::tree::Node;

#[derive(Clone)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) backend: BackendConfig,
    pub(crate) output: OutputConfig,
    pub(crate) hints: ToolHints,
    pub(crate) scopes: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) meta: Option<Value>,
    pub(crate) aliases: Vec<String>,
    pub(crate) category: Option<String>,
    pub(crate) price: Option<Price>,
    pub(crate) task: Option<Task>,
    pub(crate) cache_ttl: Option<Duration>,
    /// Whether arguments are sanitized before they are validated.
    pub(crate) clean: bool,
}

/// How calls of a tool run as tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) ttl: Duration,
    pub(crate) is_required: bool,
    pub(crate) is_resumable: bool,
}

/// The price of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Price {
    /// US dollars, as a decimal without needless zeros.
    pub(crate) usd: String,
}

impl Price {
    /// Parses a decimal with at most six digits after the point: the smallest unit is a millionth of a dollar.
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

/// The shape of structured output.
#[derive(Clone, PartialEq)]
pub(crate) enum OutputConfig {
    /// The backend decides.
    Unspecified,
    /// A form that the backend supports: `rows`, `row`, `value`, `json` or `text`.
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

/// Completes the values of one argument.
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

/// An API that is imported from its OpenAPI document.
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

/// Where an OpenAPI document comes from.
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
