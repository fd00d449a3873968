//! Reads servers and their settings.

use toolgate::Profile;
use toolgate::guard::Rate;
use toolgate_sources::source::http::OnExceed;

use super::{ConfigReader, is_loopback};
use crate::config::Listen;
use crate::config::diagnostics::Span;
use crate::config::items::{Resource, ResourceTemplate, Tool};
use crate::config::keys;
use crate::config::server::{Audit, ResponseLimit, Server, ServerSettings};
use crate::config::storage::Storage;
use crate::config::table_view::TableView;
use crate::config::tree::{Node, NodeValue, TableEntry};

/// Paths that the program serves itself.
const HEALTH_PATHS: [&str; 2] = ["/health", "/ready"];

impl ConfigReader<'_> {
    pub(super) fn servers(&mut self, listen: &Listen, storage: &Storage) -> Vec<Server> {
        let named = self.named("servers");
        if named.entries().is_empty() && self.diagnostics.is_empty() {
            self.diagnostics.report(Span::default(), "there is no server; add a table `[servers.NAME]`");
        }
        let mut servers: Vec<Server> = Vec::new();
        for entry in named.entries() {
            let default_path = match named.entries() {
                [_] => "/mcp".to_owned(),
                _ => format!("/{}/mcp", entry.key),
            };
            let server = self.server(entry, default_path, listen, storage);
            let same_path = servers
                .iter()
                .find(|known| known.path.trim_end_matches('/') == server.path.trim_end_matches('/'));
            if let Some(other) = same_path {
                let message =
                    format!("`{}` and `{}` are both served at {}", other.name, server.name, server.path);
                self.diagnostics.report_with_related(
                    server.span,
                    message,
                    other.span,
                    "the other server is here",
                );
            }
            if let Some(message) = server.exposure(&listen.http).filter(|_| !is_loopback(&listen.http)) {
                self.diagnostics.report(entry.span, message);
            }
            servers.push(server);
        }
        self.check_unique_catalogs(&servers);
        servers
    }

    fn server(
        &mut self,
        entry: &TableEntry,
        default_path: String,
        listen: &Listen,
        storage: &Storage,
    ) -> Server {
        let node = &entry.node;
        self.check_name(entry, "server");
        let path = node.text("path").unwrap_or(default_path);
        self.check_url_path(&path, node.span_at("path"));
        if HEALTH_PATHS.contains(&path.trim_end_matches('/')) {
            self.diagnostics
                .report(node.span_at("path"), "this path is reserved for health checks; choose another one");
        }
        let own_timeout = node.get("limits").and_then(|limits| limits.duration("timeout"));
        self.call_timeout =
            own_timeout.unwrap_or_else(|| self.section("limits", &keys::LIMITS).duration("timeout"));
        let tools = self.read_each(node, "tools", &keys::TOOL, ConfigReader::tool);
        let resources = self.read_each(node, "resources", &keys::RESOURCE, ConfigReader::resource);
        let templates = self.read_each(node, "templates", &keys::TEMPLATE, ConfigReader::template);
        let prompts = self.read_each(node, "prompts", &keys::PROMPT, ConfigReader::prompt);
        let openapi = self.read_each(node, "openapi", &keys::OPENAPI, ConfigReader::openapi);
        self.check_unique_uris(&resources, &templates);
        let settings = self.server_settings(node, listen, storage, &tools);
        Server {
            settings,
            packs: pack_names(node),
            open: TableView::new(Some(node), &keys::SERVER).flag("open"),
            name: entry.key.clone(),
            span: entry.span,
            path,
            title: node.text("title"),
            description: node.text("description"),
            version: TableView::new(Some(node), &keys::SERVER).text("version"),
            instructions: node.text("instructions"),
            website: node.text("website"),
            catalog_path: self.catalog_path(node),
            tools,
            resources,
            templates,
            prompts,
            openapi,
        }
    }

    fn catalog_path(&mut self, node: &Node) -> Option<String> {
        let path = node.text("catalog")?;
        self.check_url_path(&path, node.span_at("catalog"));
        let path = path.trim_end_matches('/');
        if path.is_empty() || HEALTH_PATHS.contains(&path) {
            self.diagnostics.report(node.span_at("catalog"), "this path is reserved; choose another one");
        }
        Some(path.to_owned())
    }

    fn check_unique_catalogs(&mut self, servers: &[Server]) {
        let mut taken: Vec<&str> = servers.iter().map(|server| server.path.trim_end_matches('/')).collect();
        for server in servers {
            let Some(catalog) = server.catalog_path.as_deref() else { continue };
            if taken.contains(&catalog) {
                self.diagnostics.report(
                    server.span,
                    format!("the catalog path {catalog} is already in use; choose another one"),
                );
            }
            taken.push(catalog);
        }
    }

    /// Reports resources and templates with the same URI: the second one would never be read.
    fn check_unique_uris(&mut self, resources: &[Resource], templates: &[ResourceTemplate]) {
        let mut known: Vec<(&str, Span)> = Vec::new();
        let resources = resources.iter().map(|item| (item.uri.as_str(), item.node.span_at("uri")));
        let templates = templates.iter().map(|item| (item.uri.as_str(), item.node.span_at("uri")));
        for (uri, span) in resources.chain(templates) {
            match known.iter().find(|(other, _)| !uri.is_empty() && *other == uri) {
                Some((_, first)) => {
                    self.diagnostics.report_with_related(
                        span,
                        format!("`{uri}` is used twice"),
                        *first,
                        "first used here",
                    );
                }
                None => known.push((uri, span)),
            }
        }
    }

    fn server_settings(
        &mut self,
        node: &Node,
        listen: &Listen,
        storage: &Storage,
        tools: &[Tool],
    ) -> ServerSettings {
        let table = TableView::new(Some(node), &keys::SERVER);
        let listen_table = self.section("listen", &keys::LISTEN);
        let listen_node = self.named("listen");
        let security = self.named("security");
        let (cors_origins, cors_max_age) = cors(if node.get("cors").is_some() { node } else { &security });
        let stats = self.section("stats", &keys::STATS);
        let audit = self.audit(&stats);
        let limits = self.section("limits", &keys::LIMITS);
        let global_limits = self.named("limits");
        let own_limits = node.get("limits").cloned().unwrap_or_else(Node::empty);
        let rates = own_limits.get("rate").or_else(|| global_limits.get("rate"));
        let mut settings = ServerSettings {
            public_url: listen_node.text("public_url"),
            hosts: listen_node.texts("hosts"),
            trusted_proxies: listen_node.texts("trusted_proxies"),
            client_address_header: listen_table.text("client_address_header"),
            security_headers: self.section("security", &keys::SECURITY).text("headers") != "none",
            ip_allow: security.texts("ip_allow"),
            cors_origins,
            cors_max_age,
            legacy_sse: listen_table.flag("legacy_sse"),
            concurrency: own_limits.count("concurrency").or_else(|| global_limits.count("concurrency")),
            response_limit: response_limit(&own_limits).or_else(|| response_limit(&global_limits)),
            audit,
            max_body_bytes: own_limits.size("body").unwrap_or_else(|| limits.size("body")),
            timeout: self.call_timeout,
            rate_per_ip: rates.and_then(|rates| rate_per(rates, "ip")),
            rate_per_principal: rates.and_then(|rates| rate_per(rates, "principal")),
            users: Vec::new(),
            wordpress: None,
            egress: None,
            tokens: Vec::new(),
            api_keys: Vec::new(),
            dialect: self.dialect(node),
            profile: node.get("profile").and_then(|profile| self.resolve_profile(profile)),
            page_size: table.number("page_size"),
            sessions: table.flag("sessions"),
            strict_arguments: table.flag("strict_arguments"),
            stats: stats.flag("enabled"),
            shutdown_timeout: listen.shutdown_grace,
            storage: storage.clone(),
            tool_scopes: tools
                .iter()
                .filter(|tool| !tool.scopes.is_empty())
                .map(|tool| (tool.name.clone(), tool.scopes.clone()))
                .collect(),
        };
        self.add_auth(node, &mut settings);
        if settings.wordpress.is_some() {
            settings.egress = Some(self.egress().0);
        }
        self.check_auth(node, &settings, tools);
        settings
    }

    fn audit(&mut self, stats: &TableView<'_>) -> Option<Audit> {
        let table = stats.table("audit", &keys::AUDIT);
        let file = table.get("file")?;
        Some(Audit { file: self.log_file(file), has_arguments: table.flag("args") })
    }

    fn dialect(&mut self, node: &Node) -> String {
        let table = TableView::new(Some(node), &keys::SERVER);
        let name = table.text("dialect");
        let is_known = toolgate::compat::Dialect::from_name(&name).is_some();
        if matches!(name.as_str(), "erlmcp" | "bluehub" | "buddyboss") && !is_known {
            self.diagnostics
                .report(node.span_at("dialect"), format!("the dialect `{name}` is not supported yet"));
        }
        if is_known { name } else { TableView::new(None, &keys::SERVER).text("dialect") }
    }

    /// Looks up a profile by name, or reads one that is written in place.
    pub(super) fn resolve_profile(&mut self, node: &Node) -> Option<Profile> {
        let Some(name) = node.as_text() else {
            return matches!(node.value, NodeValue::Table(_)).then(|| parse_profile("server", node));
        };
        let known = self.named("profiles");
        match (known.get(name), name) {
            (Some(found), _) => Some(parse_profile(name, found)),
            (None, "admin") => Some(Profile::admin()),
            (None, "readonly") => Some(Profile::readonly()),
            _ => {
                self.report_unknown_name(node.span, name, "profiles", &known);
                None
            }
        }
    }
}

fn cors(node: &Node) -> (Vec<String>, std::time::Duration) {
    match node.get("cors") {
        Some(cors) if matches!(cors.value, NodeValue::Table(_)) => {
            (cors.texts("origins"), TableView::new(Some(cors), &keys::CORS).duration("max_age"))
        }
        _ => (node.texts("cors"), TableView::new(None, &keys::CORS).duration("max_age")),
    }
}

fn rate_per(rates: &Node, per: &str) -> Option<Rate> {
    let node = rates.items().iter().find(|item| item.text("per").as_deref() == Some(per))?;
    let rate: Rate = node.text("quota")?.parse().ok()?;
    let is_window = TableView::new(Some(node), &keys::RATE).flag("window");
    let rate = if is_window { rate.window() } else { rate };
    Some(match node.integer("burst").and_then(|burst| u32::try_from(burst).ok()) {
        Some(burst) => rate.burst(burst),
        None => rate,
    })
}

fn response_limit(limits: &Node) -> Option<ResponseLimit> {
    let response = limits.get("response")?;
    let is_table = matches!(response.value, NodeValue::Table(_));
    let max = if is_table { response.size("max")? } else { limits.size("response")? };
    let table = TableView::new(is_table.then_some(response), &keys::RESPONSE);
    let on_exceed = if table.text("on_exceed") == "truncate" { OnExceed::Truncate } else { OnExceed::Error };
    Some(ResponseLimit { max_bytes: usize::try_from(max).unwrap_or(usize::MAX), on_exceed })
}

/// The names of packs, which are a list or the keys of a table.
fn pack_names(node: &Node) -> Vec<String> {
    let listed = node.texts("packs");
    let named = node.entries_of("packs").iter().map(|entry| entry.key.clone());
    listed.into_iter().chain(named).collect()
}

fn parse_profile(name: &str, node: &Node) -> Profile {
    Profile::new(name)
        .include_tools(node.texts("allow"))
        .exclude_tools(node.texts("deny"))
        .include_prompts(node.texts("allow_prompts"))
        .exclude_prompts(node.texts("deny_prompts"))
        .include_resources(node.texts("allow_resources"))
        .exclude_resources(node.texts("deny_resources"))
}
