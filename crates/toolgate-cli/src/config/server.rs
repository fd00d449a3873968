//! Settings of servers, and the credentials of their callers.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use toolgate::Profile;
use toolgate::guard::Rate;
use toolgate_sources::source::http::OnExceed;

use super::EgressConfig;
use super::backend::BackendConfig;
use super::diagnostics::Span;
use super::items::{CompletionKind, OpenApi, Prompt, Resource, ResourceKind, ResourceTemplate, Tool};
use super::storage::Storage;
use super::tree::Node;

/// A server: its settings and its items.
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
    /// Path at which the catalog is served.
    pub(crate) catalog_path: Option<String>,
    pub(crate) settings: ServerSettings,
    /// Names of the packs whose items were added.
    pub(crate) packs: Vec<String>,
    /// Whether tools that run commands or change a database may be called without credentials.
    pub(crate) open: bool,
    pub(crate) tools: Vec<Tool>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) openapi: Vec<OpenApi>,
}

impl Server {
    /// Whether callers without credentials can use the pack `runtime`, which shows the internals of the program.
    pub(crate) fn is_runtime_exposed(&self) -> bool {
        !self.settings.has_auth() && self.packs.iter().any(|pack| pack == "runtime")
    }

    /// Returns why everyone who can reach `address` must not be able to call this server, unless `address` is of this
    /// machine only.
    pub(crate) fn exposure(&self, address: &str) -> Option<String> {
        if self.is_runtime_exposed() {
            return Some(format!(
                "the pack `runtime` shows the internals of the program to everyone who can reach {address}; set `auth`"
            ));
        }
        if self.settings.has_auth() || self.open {
            return None;
        }
        let (act, name) = self.backends().find_map(|(name, backend)| match backend {
            BackendConfig::Command(_) => Some(("run the command", name)),
            BackendConfig::Sql(sql) if sql.write => Some(("change the database with the statement", name)),
            _ => None,
        })?;
        Some(format!(
            "everyone who can reach {address} can {act} of `{name}`; set `auth`, or `open = true` if that is intended"
        ))
    }

    /// The backends of all items and completions, with the names of the items.
    fn backends(&self) -> impl Iterator<Item = (&str, &BackendConfig)> {
        let tools = self.tools.iter().map(|tool| (&*tool.name, &tool.backend));
        let templates = self.templates.iter().map(|template| (&*template.name, &template.backend));
        let resources = self.resources.iter().filter_map(|resource| match &resource.kind {
            ResourceKind::Backend(backend) => Some((&*resource.name, backend)),
            ResourceKind::Files { .. } => None,
        });
        let of_templates = self.templates.iter().map(|template| (&*template.name, &template.completions));
        let of_prompts = self.prompts.iter().map(|prompt| (&*prompt.name, &prompt.completions));
        let completions = of_templates.chain(of_prompts).flat_map(|(name, completions)| {
            completions.iter().filter_map(move |completion| match &completion.kind {
                CompletionKind::Backend(backend) => Some((name, backend)),
                CompletionKind::List(_) => None,
            })
        });
        tools.chain(templates).chain(resources).chain(completions)
    }
}

/// Settings that cannot change while clients are connected: after a change the server is replaced by a new one.
#[derive(Clone, PartialEq)]
pub(crate) struct ServerSettings {
    pub(crate) public_url: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) trusted_proxies: Vec<String>,
    /// The header in which they send the client's address.
    pub(crate) client_address_header: String,
    pub(crate) security_headers: bool,
    pub(crate) ip_allow: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) cors_max_age: Duration,
    pub(crate) legacy_sse: bool,
    pub(crate) max_body_bytes: u64,
    pub(crate) timeout: Duration,
    pub(crate) rate_per_ip: Option<Rate>,
    pub(crate) rate_per_principal: Option<Rate>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) response_limit: Option<ResponseLimit>,
    pub(crate) audit: Option<Audit>,
    pub(crate) users: Vec<Credential>,
    /// The WordPress site whose users may call.
    pub(crate) wordpress: Option<WordPress>,
    /// Egress rules for requests to that site: logins that were checked under old rules must not stay valid.
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
    /// The scopes that tools require: the visible tools are part of each credential.
    pub(crate) tool_scopes: Vec<(String, Vec<String>)>,
}

impl ServerSettings {
    /// Whether callers have to authenticate.
    pub(crate) fn has_auth(&self) -> bool {
        let ServerSettings { users, tokens, api_keys, wordpress, .. } = self;
        !users.is_empty() || !tokens.is_empty() || !api_keys.is_empty() || wordpress.is_some()
    }
}

/// Limits the size of a tool result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseLimit {
    pub(crate) max_bytes: usize,
    pub(crate) on_exceed: OnExceed,
}

/// Settings of the audit log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) file: PathBuf,
    pub(crate) has_arguments: bool,
}

/// A token, a key or a password, and its holder.
#[derive(Clone, PartialEq)]
pub(crate) struct Credential {
    /// The secret itself, or `sha256:` and its digest; for a password, also its hash.
    pub(crate) secret: String,
    pub(crate) subject: Option<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) profile: Option<Profile>,
    pub(crate) attributes: Vec<(String, Value)>,
    pub(crate) quota: Option<Rate>,
}

/// A WordPress site that authenticates its users.
#[derive(Clone, PartialEq)]
pub(crate) struct WordPress {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) url: String,
    /// The WordPress capability that a user needs.
    pub(crate) capability: Option<String>,
    pub(crate) cache_ttl: Duration,
    /// User and password with which `check --live` logs in.
    pub(crate) probe_login: Option<(String, String)>,
}
