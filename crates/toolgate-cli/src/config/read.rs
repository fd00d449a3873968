//! A checked tree as values: names are looked up, paths found, and what belongs together put together.

use std::path::PathBuf;
use std::time::Duration;

use toolgate::Profile;
use toolgate::guard::Rate;
use toolgate::model::{Role, ToolHints};
use toolgate::uri_template::UriTemplate;

use super::arguments::{self, Arguments};
use super::check::{join_and, join_or};
use super::diagnostics::{ConfigFiles, Diagnostics, Span, suggest};
use super::file_stamp::{FileStamp, parent_folder};
use super::tree::{Node, NodeValue, TableEntry};
use super::{
    Audit, BackendConfig, Completion, CompletionKind, Config, Connection, ConnectionKind, Credential,
    EgressConfig, Http, HttpBody, HttpConnectionConfig, HttpFollowUp, HttpPart, Listen, OpenApi,
    OpenApiSource, OutputConfig, Price, Prompt, Resource, ResourceKind, ResourceTemplate, ResponseLimit,
    Server, ServerSettings, Sql, SqlConnectionConfig, SqlQuery, Storage, Task, Tool, UpstreamAuth, WordPress,
    storage,
};
use crate::source::command::{ArgvItem, CommandSpec, StdoutFormat};
use crate::source::files::FilesSpec;
use crate::source::prompt::MessageTemplate;

const MINUTE: Duration = Duration::from_secs(60);
/// How long tasks are kept where nobody says otherwise.
const DEFAULT_TASK_TTL: Duration = Duration::from_secs(60 * 60);

/// See the module.
pub(crate) fn read(tree: &Node, mut texts: ConfigFiles, troubles: &mut Diagnostics) -> Config {
    let mut reading = ConfigReader {
        tree,
        files: &texts,
        diagnostics: troubles,
        call_timeout: MINUTE,
        extra_files: Vec::new(),
        file_stamps: Vec::new(),
    };
    let listen = reading.listen();
    let (egress, egress_node) = reading.egress();
    let connections = reading.connections();
    let storage = storage::read(tree, reading.files, reading.diagnostics);
    let servers = reading.servers(&listen, &storage);
    let stats_path = tree.get("stats").and_then(|stats| stats.text("path"));
    if let Some(path) = &stats_path
        && !path.starts_with('/')
    {
        reading.diagnostics.report(tree.span_at("stats.path"), "a path begins with `/`");
    }
    let metrics_path = tree.get("stats").and_then(|stats| {
        let prometheus = stats.get("prometheus")?;
        Some(prometheus.text("path").unwrap_or_else(|| "/metrics".to_owned()))
    });
    if let Some(path) = &metrics_path {
        if !path.starts_with('/') {
            reading.diagnostics.report(tree.span_at("stats.prometheus.path"), "a path begins with `/`");
        }
        if stats_path.as_ref().is_some_and(|stats| stats.trim_end_matches('/') == path.trim_end_matches('/'))
        {
            reading
                .diagnostics
                .report(tree.span_at("stats.prometheus.path"), "this is where `stats.path` is");
        }
    }
    let beside = reading.file_stamps;
    for (path, text) in reading.extra_files {
        texts.add(path, text);
    }
    let settings = [
        ("public_url", "listen.public_url"),
        ("allow_host", "listen.hosts"),
        ("trust_proxies", "listen.trusted_proxies"),
        ("allow_ips", "security.ip_allow"),
        ("cors", "security.cors"),
    ];
    let settings = settings.map(|(name, path)| (name, tree.span_at(path))).into();
    let told = serde_json::Value::Null;
    Config {
        files: texts,
        file_stamps: beside,
        setting_spans: settings,
        listen,
        stats_path,
        metrics_path,
        redacted: told,
        egress,
        egress_node,
        storage,
        storage_span: tree.span_at("storage.default"),
        audit_span: tree.span_at("stats.audit.file"),
        connections,
        servers,
    }
}

struct ConfigReader<'a> {
    tree: &'a Node,
    files: &'a ConfigFiles,
    diagnostics: &'a mut Diagnostics,
    /// How long a call of the server that is being read may take.
    call_timeout: Duration,
    /// Files that were read beside the configuration itself.
    extra_files: Vec<(PathBuf, String)>,
    /// Files and folders that are named, as they were before anybody read them.
    file_stamps: Vec<FileStamp>,
}

impl ConfigReader<'_> {
    fn section(&self, name: &str) -> Node {
        self.tree.get(name).cloned().unwrap_or_else(Node::empty)
    }

    fn resolve_path(&mut self, node: &Node) -> PathBuf {
        let path = self.files.resolve(node.span.file, node.as_text().unwrap_or_default());
        self.file_stamps.extend(FileStamp::with_missing_ancestors(&path));
        path
    }

    /// A file that is made if it is not there. Its folder is not.
    fn log_file(&mut self, node: &Node) -> PathBuf {
        let path = self.files.resolve(node.span.file, node.as_text().unwrap_or_default());
        let folder = parent_folder(&path);
        self.file_stamps.extend(FileStamp::with_missing_ancestors(&folder));
        if !folder.is_dir() {
            self.diagnostics.report(node.span, format!("there is no folder {}", folder.display()));
        }
        path
    }

    fn listen(&mut self) -> Listen {
        let listen = self.section("listen");
        if let Some(node) = listen.get("http")
            && let Some(text) = node.as_text()
        {
            if text.starts_with("unix:") {
                self.diagnostics
                    .report(node.span, "sockets of Unix are not available yet: listen on `127.0.0.1:8080`");
            } else if text.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                self.diagnostics
                    .report(node.span, "`http` must be an address and a port, such as \"127.0.0.1:8080\"");
            }
        }
        Listen {
            http: listen.text("http").unwrap_or_else(|| "127.0.0.1:8080".into()),
            shutdown_grace: listen.duration("shutdown_grace").unwrap_or(MINUTE / 2),
            max_connections: listen.count("max_connections").unwrap_or(10_000),
        }
    }

    fn egress(&mut self) -> (EgressConfig, Node) {
        let security = self.section("security");
        let node = security.get("egress").cloned().unwrap_or_else(Node::empty);
        let deny_private = node.flag("deny_private").unwrap_or(true);
        (EgressConfig { deny_private, allow: node.texts("allow") }, node)
    }

    fn connections(&mut self) -> Vec<Connection> {
        let named = self.section("connections");
        named.entries().iter().filter_map(|entry| self.connection(entry)).collect()
    }

    fn connection(&mut self, entry: &TableEntry) -> Option<Connection> {
        let node = &entry.node;
        let kind = if let Some(base) = node.text("http") {
            ConnectionKind::Http(self.http_connection(node, base))
        } else {
            ConnectionKind::Sql(self.sql_connection(node)?)
        };
        Some(Connection { name: entry.key.clone(), span: entry.span, node: node.clone(), kind })
    }

    fn http_connection(&mut self, node: &Node, base: String) -> HttpConnectionConfig {
        let retry = node.get("retry").cloned().unwrap_or_else(Node::empty);
        let codes = retry.get("on").map(|on| on.items().iter().filter_map(status_code).collect());
        let ca = node.get("ca").and_then(|file| match std::fs::read_to_string(self.resolve_path(file)) {
            Ok(text) => Some(text),
            Err(error) => {
                let said = format!("cannot read this file: {}", super::diagnostics::io_error_message(&error));
                self.diagnostics.report(file.span, said);
                None
            }
        });
        let mut connection = HttpConnectionConfig::new(base);
        connection.headers = node.text_pairs("headers");
        connection.query = node.text_pairs("query");
        connection.auth = upstream_auth(node);
        connection.ca_pem = ca;
        if let Some(max) = retry.integer("max").and_then(|max| u32::try_from(max).ok()) {
            connection.retry_max = max;
        }
        if let Some(codes) = codes {
            connection.retry_on = codes;
        }
        if let Some(timeout) = node.duration("timeout") {
            connection.timeout = timeout;
        }
        if let Some(timeout) = node.duration("connect_timeout") {
            connection.connect_timeout = timeout;
        }
        if let Some(redirects) = node.integer("redirects").and_then(|n| u8::try_from(n).ok()) {
            connection.max_redirects = redirects;
        }
        if let Some(limit) = size_in_bytes(node, "max_response") {
            connection.max_response = limit;
        }
        connection
    }

    fn sql_connection(&mut self, node: &Node) -> Option<SqlConnectionConfig> {
        let (engine, url) = ["sqlite", "postgres", "mysql"]
            .into_iter()
            .find_map(|engine| Some((engine, node.get(engine)?.as_text()?.to_owned())))?;
        let url = if engine == "sqlite" { self.sqlite_url(node, &url) } else { url };
        let pool = node.get("pool").cloned().unwrap_or_else(Node::empty);
        Some(SqlConnectionConfig {
            engine,
            url,
            pool_max: pool.integer("max").and_then(|max| u32::try_from(max).ok()).unwrap_or(8),
            pool_queue: pool.count("queue").unwrap_or(64),
            pool_wait: pool.duration("wait").unwrap_or(Duration::from_secs(2)),
            pool_idle: pool.duration("idle").unwrap_or(5 * MINUTE),
            read_only: node.flag("read_only").unwrap_or(true),
            timeout: node.duration("timeout").unwrap_or(Duration::from_secs(5)),
            max_rows: node.count("max_rows").unwrap_or(1000),
            max_bytes: size_in_bytes(node, "max_bytes").unwrap_or(1 << 20),
            expose_errors: node.flag("expose_errors").unwrap_or(false),
        })
    }

    /// Paths of SQLite begin where the configuration is.
    fn sqlite_url(&self, node: &Node, url: &str) -> String {
        let at = node.span_at("sqlite");
        let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
        let plain = path.strip_prefix("sqlite:").or_else(|| path.strip_prefix("file:")).unwrap_or(path);
        let plain = plain.strip_prefix("//").unwrap_or(plain);
        if plain.starts_with(":memory:") || plain.is_empty() {
            return url.to_owned();
        }
        let path = self.files.resolve(at.file, plain);
        match query {
            Some(query) => format!("{}?{query}", path.display()),
            None => path.display().to_string(),
        }
    }

    fn servers(&mut self, listen: &Listen, storage: &Storage) -> Vec<Server> {
        let named = self.section("servers");
        let is_alone = named.entries().len() == 1;
        if named.entries().is_empty() && self.diagnostics.is_empty() {
            self.diagnostics
                .report(Span::default(), "there is nothing to serve: add a table `[servers.NAME]`");
        }
        let mut servers: Vec<Server> = Vec::new();
        for entry in named.entries() {
            let server = self.server(entry, is_alone, listen, storage);
            let taken = servers
                .iter()
                .find(|known| known.path.trim_end_matches('/') == server.path.trim_end_matches('/'));
            if let Some(other) = taken {
                let said =
                    format!("`{}` and `{}` are both served at {}", other.name, server.name, server.path);
                self.diagnostics.report_with_related(server.span, said, other.span, "the other one is here");
            }
            if server.is_runtime_exposed() && !is_loopback(&listen.http) {
                let said = format!(
                    "the pack `runtime` shows the inside of this program to whoever reaches {}: give the server an `auth`",
                    listen.http
                );
                self.diagnostics.report(entry.node.span_at("packs"), said);
            }
            servers.push(server);
        }
        let taken: Vec<&str> = servers.iter().map(|server| server.path.trim_end_matches('/')).collect();
        let mut catalogs: Vec<&str> = Vec::new();
        for server in &servers {
            let Some(catalog) = server.catalog_path.as_deref() else { continue };
            if taken.contains(&catalog) || catalogs.contains(&catalog) {
                self.diagnostics.report(
                    server.span,
                    format!("its catalogue is at {catalog}, where something is already"),
                );
            }
            catalogs.push(catalog);
        }
        servers
    }

    fn server(&mut self, entry: &TableEntry, is_alone: bool, listen: &Listen, storage: &Storage) -> Server {
        let (name, node) = (entry.key.clone(), &entry.node);
        self.check_name(entry, "server");
        let path = node.text("path").unwrap_or_else(|| match is_alone {
            true => "/mcp".to_owned(),
            false => format!("/{name}/mcp"),
        });
        if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
            self.diagnostics
                .report(node.span_at("path"), "a path begins with `/`, and has no `?` and no `#`");
        }
        if matches!(path.trim_end_matches('/'), "/health" | "/ready") {
            self.diagnostics
                .report(node.span_at("path"), "this path tells how the program is; choose another one");
        }
        let limits = self.section("limits");
        let own = node.get("limits").and_then(|own| own.duration("timeout"));
        self.call_timeout = own.or_else(|| limits.duration("timeout")).unwrap_or(MINUTE);
        let tools = self.read_each(node, "tools", ConfigReader::tool);
        let resources = self.read_each(node, "resources", ConfigReader::resource);
        let templates = self.read_each(node, "templates", ConfigReader::template);
        let prompts = self.read_each(node, "prompts", ConfigReader::prompt);
        let openapi = self.read_each(node, "openapi", ConfigReader::openapi);
        self.check_unique_uris(&resources, &templates);
        Server {
            settings: ServerSettings {
                storage: storage.clone(),
                ..self.server_settings(node, listen, &tools)
            },
            packs: pack_names(node),
            name,
            span: entry.span,
            path,
            title: node.text("title"),
            description: node.text("description"),
            version: node.text("version").unwrap_or_else(|| "1.0.0".into()),
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

    /// Where a catalogue is served, which is nobody else's place.
    fn catalog_path(&mut self, node: &Node) -> Option<String> {
        let path = node.text("catalog")?;
        if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
            self.diagnostics
                .report(node.span_at("catalog"), "a path begins with `/`, and has no `?` and no `#`");
        }
        let clean = path.trim_end_matches('/');
        if matches!(clean, "" | "/health" | "/ready") {
            self.diagnostics.report(node.span_at("catalog"), "this path is taken; choose another one");
        }
        Some(clean.to_owned())
    }

    fn price(&mut self, node: &Node) -> Option<Price> {
        let price = node.get("price")?;
        let usd = price.get("usd").unwrap_or(price);
        let read = Price::parse(usd.as_text()?);
        if read.is_none() {
            let said = "a price is a decimal such as \"0.05\", with at most six digits behind the point";
            self.diagnostics.report(usd.span, said);
        }
        read
    }

    fn read_each<T>(
        &mut self,
        node: &Node,
        key: &str,
        read: fn(&mut Self, &TableEntry) -> Option<T>,
    ) -> Vec<T> {
        let is_on = |entry: &&TableEntry| entry.node.flag("enabled") != Some(false);
        node.entries_of(key).iter().filter(is_on).filter_map(|entry| read(self, entry)).collect()
    }

    /// Two resources at one address: the second would never be read.
    fn check_unique_uris(&mut self, resources: &[Resource], templates: &[ResourceTemplate]) {
        let mut known: Vec<(&str, Span)> = Vec::new();
        let all = resources.iter().map(|resource| (resource.uri.as_str(), resource.node.span_at("uri")));
        for (uri, at) in all.chain(templates.iter().map(|t| (t.uri.as_str(), t.node.span_at("uri")))) {
            match known.iter().find(|(other, _)| !uri.is_empty() && *other == uri) {
                Some((_, other)) => {
                    self.diagnostics.report_with_related(
                        at,
                        format!("`{uri}` is there twice"),
                        *other,
                        "it is here already",
                    );
                }
                None => known.push((uri, at)),
            }
        }
    }

    fn check_name(&mut self, entry: &TableEntry, what: &str) {
        let name = &entry.key;
        let fits =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        if !fits || !(1..=128).contains(&name.len()) {
            let said = format!("the name of a {what} is 1 to 128 letters, digits, `_`, `-` and `.`");
            self.diagnostics.report(entry.span, said);
        }
    }

    fn server_settings(&mut self, node: &Node, listen: &Listen, tools: &[Tool]) -> ServerSettings {
        let (listening, security, limits, stats) =
            (self.section("listen"), self.section("security"), self.section("limits"), self.section("stats"));
        let own = node.get("limits").cloned().unwrap_or_else(Node::empty);
        let saying = if node.get("cors").is_some() { node } else { &security };
        let (cors, cors_max_age) = match saying.get("cors") {
            Some(cors) if matches!(cors.value, NodeValue::Table(_)) => {
                (cors.texts("origins"), cors.duration("max_age"))
            }
            _ => (saying.texts("cors"), None),
        };
        let audit = stats.get("audit").and_then(|audit| {
            Some(Audit {
                file: self.log_file(audit.get("file")?),
                has_arguments: audit.flag("args").unwrap_or(false),
            })
        });
        let rates = own.get("rate").or_else(|| limits.get("rate"));
        let rate = |per: &str| {
            let items = rates.map(Node::items).unwrap_or_default();
            let found = items.iter().find(|item| item.text("per").as_deref() == Some(per))?;
            let rate: Rate = found.text("quota")?.parse().ok()?;
            let rate = if found.flag("window") == Some(true) { rate.window() } else { rate };
            Some(match found.integer("burst").and_then(|burst| u32::try_from(burst).ok()) {
                Some(burst) => rate.burst(burst),
                None => rate,
            })
        };
        let mut frame = ServerSettings {
            public_url: listening.text("public_url"),
            hosts: listening.texts("hosts"),
            trusted_proxies: listening.texts("trusted_proxies"),
            security_headers: security.text("headers").as_deref() != Some("none"),
            ip_allow: security.texts("ip_allow"),
            cors_origins: cors,
            cors_max_age,
            legacy_sse: listening.flag("legacy_sse").unwrap_or(true),
            concurrency: own.count("concurrency").or_else(|| limits.count("concurrency")),
            response_limit: response_limit(&own).or_else(|| response_limit(&limits)),
            audit,
            max_body_bytes: own.size("body").or_else(|| limits.size("body")).unwrap_or(4 << 20),
            timeout: self.call_timeout,
            rate_per_ip: rate("ip"),
            rate_per_principal: rate("principal"),
            users: Vec::new(),
            wordpress: None,
            egress: None,
            tokens: Vec::new(),
            api_keys: Vec::new(),
            dialect: self.dialect(node),
            profile: node.get("profile").and_then(|profile| self.resolve_profile(profile)),
            page_size: node.count("page_size").unwrap_or(1000),
            sessions: node.flag("sessions").unwrap_or(true),
            strict_arguments: node.flag("strict_arguments").unwrap_or(false),
            stats: stats.flag("enabled").unwrap_or(true),
            shutdown_timeout: listen.shutdown_grace,
            storage: Storage::Memory,
            tool_scopes: tools
                .iter()
                .filter(|tool| !tool.scopes.is_empty())
                .map(|tool| (tool.name.clone(), tool.scopes.clone()))
                .collect(),
        };
        self.add_auth(node, &mut frame);
        if frame.wordpress.is_some() {
            frame.egress = Some(self.egress().0);
        }
        if frame.wordpress.is_some() && !frame.users.is_empty() {
            let said = "passwords are known here (`basic`) or by the site (`wordpress`), not both";
            self.diagnostics.report(node.span_at("auth"), said);
        }
        if let (Some(tool), true, true) = (
            tools.iter().find(|tool| !tool.scopes.is_empty()),
            frame.users.is_empty(),
            frame.tokens.is_empty() && frame.api_keys.is_empty(),
        ) {
            let said = "this tool needs scopes, which only callers have who prove who they are: give the server an `auth`";
            self.diagnostics.report(tool.node.span_at("scopes"), said);
        }
        frame
    }

    fn dialect(&mut self, node: &Node) -> String {
        let name = node.text("dialect").unwrap_or_default();
        let is_known = toolgate::compat::Dialect::from_name(&name).is_some();
        if matches!(name.as_str(), "erlmcp" | "bluehub" | "buddyboss") && !is_known {
            self.diagnostics
                .report(node.span_at("dialect"), format!("the dialect `{name}` is not available yet"));
        }
        if is_known { name } else { "official".into() }
    }

    fn add_auth(&mut self, node: &Node, frame: &mut ServerSettings) {
        let Some(wanted) = node.get("auth") else { return };
        let known = self.section("auth");
        let names = if wanted.as_text().is_some() { std::slice::from_ref(wanted) } else { wanted.items() };
        for item in names {
            let Some(name) = item.as_text() else { continue };
            let Some(auth) = known.get(name) else {
                self.report_unknown_name(item.span, name, "auth", &known);
                continue;
            };
            for user in auth.get("basic").map(Node::items).unwrap_or_default() {
                frame.users.extend(self.user_credential(user));
            }
            if let Some(site) = auth.get("wordpress") {
                self.add_wordpress(name, site, item.span, frame);
            }
            for token in auth.get("bearer").map(Node::items).unwrap_or_default() {
                frame.tokens.extend(self.credential(token, "token", "subject"));
            }
            for key in auth.get("api_keys").map(Node::items).unwrap_or_default() {
                frame.api_keys.extend(self.credential(key, "key", "id"));
            }
        }
    }

    fn add_wordpress(&mut self, name: &str, node: &Node, at: Span, frame: &mut ServerSettings) {
        let Some(url) = node.text("url") else { return };
        let host =
            url.strip_prefix("http://").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        let is_here = host.is_none_or(|host| {
            let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        });
        if !is_here && node.flag("insecure") != Some(true) {
            let said = "passwords would travel unprotected: use `https://`, or say `insecure = true`";
            self.diagnostics.report(node.span_at("url"), said);
        }
        if frame.wordpress.is_some() {
            self.diagnostics.report(at, "a server asks one site only who somebody is");
        }
        if let (Some(_), None) | (None, Some(_)) = (node.get("user"), node.get("password")) {
            self.diagnostics.report(node.span, "`user` and `password` belong together");
        }
        frame.wordpress = Some(WordPress {
            name: name.to_owned(),
            url: url.trim_end_matches('/').to_owned(),
            capability: node.text("capability"),
            cache_ttl: node.duration("cache").unwrap_or(MINUTE),
            probe_login: node.text("user").zip(node.text("password")),
            node: node.clone(),
        });
    }

    fn user_credential(&mut self, node: &Node) -> Option<Credential> {
        let user = node.text("user")?;
        if user.is_empty() || user.contains(':') {
            self.diagnostics.report(node.span_at("user"), "the name of a user is not empty and has no `:`");
            return None;
        }
        if let Some(hash) = node.get("hash")
            && !hash.as_text().is_none_or(is_argon2_hash)
        {
            let said = "`hash` must be an Argon2 hash, as `toolgate hash-password` makes them";
            self.diagnostics.report(hash.span, said);
            return None;
        }
        let secret = node.text("hash").or_else(|| node.text("password"))?;
        Some(self.build_credential(node, secret, Some(user)))
    }

    fn credential(&mut self, node: &Node, secret: &str, subject: &str) -> Option<Credential> {
        if let Some(text) = node.as_text() {
            return Some(Credential {
                secret: text.to_owned(),
                subject: None,
                scopes: Vec::new(),
                profile: None,
                attributes: Vec::new(),
                quota: None,
            });
        }
        let digest = node.text("sha256");
        if let Some(digest) = &digest
            && (digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            self.diagnostics.report(
                node.span_at("sha256"),
                "`sha256` must be 64 hex digits: `printf %s KEY | sha256sum`",
            );
            return None;
        }
        let secret = digest.map(|digest| format!("sha256:{digest}")).or_else(|| node.text(secret))?;
        if let (Some(quota), None) = (node.get("quota"), node.get(subject)) {
            self.diagnostics
                .report(quota.span, format!("`quota` is of somebody: give them a name with `{subject}`"));
        }
        Some(self.build_credential(node, secret, node.text(subject)))
    }

    /// Who has a secret.
    fn build_credential(&mut self, node: &Node, secret: String, subject: Option<String>) -> Credential {
        Credential {
            secret,
            subject,
            scopes: node.texts("scopes"),
            profile: node.get("profile").and_then(|profile| self.resolve_profile(profile)),
            attributes: node
                .entries_of("attributes")
                .iter()
                .map(|e| (e.key.clone(), e.node.to_json()))
                .collect(),
            quota: node.text("quota").and_then(|quota| quota.parse().ok()),
        }
    }

    fn resolve_profile(&mut self, node: &Node) -> Option<Profile> {
        let Some(name) = node.as_text() else {
            return matches!(node.value, NodeValue::Table(_)).then(|| parse_profile("server", node));
        };
        let known = self.section("profiles");
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

    fn report_unknown_name(&mut self, at: Span, name: &str, table: &str, known: &Node) {
        let mut names: Vec<&str> = known.entries().iter().map(|entry| entry.key.as_str()).collect();
        if table == "profiles" {
            names.extend(["admin", "readonly"]);
        }
        let hint = match (suggest(name, names.iter().copied()), names.as_slice()) {
            (Some(meant), _) => format!("; did you mean `{meant}`?"),
            (None, []) => String::new(),
            (None, names) => format!("; there are {}", join_and(names)),
        };
        self.diagnostics.report(at, format!("there is no `[{table}.{name}]`{hint}"));
    }

    fn arguments(&mut self, node: &Node) -> Arguments {
        arguments::read(node.entries_of("args"), self.diagnostics)
    }

    fn tool(&mut self, entry: &TableEntry) -> Option<Tool> {
        self.check_name(entry, "tool");
        let node = &entry.node;
        let arguments = self.arguments(node);
        let notes = node.get("annotations").cloned().unwrap_or_else(Node::empty);
        Some(Tool {
            name: entry.key.clone(),
            title: node.text("title"),
            description: node.text("description"),
            arguments,
            backend: self.backend(node)?,
            output: output(node),
            task: task(node),
            cache_ttl: self.cache_ttl(node),
            hints: ToolHints {
                title: notes.text("title"),
                read_only: notes.flag("readOnlyHint"),
                destructive: notes.flag("destructiveHint"),
                idempotent: notes.flag("idempotentHint"),
                open_world: notes.flag("openWorldHint"),
            },
            scopes: node.texts("scopes"),
            timeout: node.duration("timeout"),
            meta: node.get("meta").map(Node::to_json),
            aliases: node.texts("aliases"),
            category: node.text("category"),
            price: self.price(node),
            clean: node.flag("clean").unwrap_or(false),
            node: node.clone(),
        })
    }

    /// How long results are kept. What changes something is done each time.
    fn cache_ttl(&mut self, node: &Node) -> Option<Duration> {
        let cache = node.duration("cache")?;
        let at = node.span_at("cache");
        let is_read = node.get("annotations").and_then(|notes| notes.flag("readOnlyHint")) == Some(true);
        let method = node.get("http").and_then(|http| http.text("method")).unwrap_or_else(|| "GET".into());
        if node.get("sql").and_then(|sql| sql.flag("write")) == Some(true) {
            self.diagnostics
                .report(at, "a statement that changes something is run each time: nothing can be kept");
        } else if !is_read && !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "QUERY") {
            let said = format!(
                "a {method} may change something; if this one does not, say `annotations = {{ readOnlyHint = true }}`"
            );
            self.diagnostics.report(at, said);
        }
        if node.get("builtin").is_some() {
            self.diagnostics
                .report(at, "what is built in may depend on who asks and on when: nothing can be kept");
        }
        if node.get("task").is_some() {
            self.diagnostics.report(at, "a tool is run as a task or its results are kept, not both");
        }
        Some(cache)
    }

    /// What a thing is made of. None if that could not be read, which was told.
    fn backend(&mut self, node: &Node) -> Option<BackendConfig> {
        let table = |key: &str| node.get(key).filter(|inner| matches!(inner.value, NodeValue::Table(_)));
        if let Some(inner) = table("command") {
            // A task may run as long as it is kept.
            let kept = task(node).map(|task| task.ttl.unwrap_or(DEFAULT_TASK_TTL));
            let patience = node.duration("timeout").or(kept);
            return Some(BackendConfig::Command(Box::new(self.command_spec(inner, patience))));
        }
        if let Some(inner) = table("http") {
            return self.http_backend(inner);
        }
        if let Some(inner) = table("sql") {
            return self.sql_backend(inner);
        }
        if let Some(text) = node.text("template") {
            return Some(BackendConfig::Template(text));
        }
        if let Some(text) = node.text("text") {
            return Some(BackendConfig::Text(text));
        }
        node.text("builtin").map(BackendConfig::Builtin)
    }

    fn command_spec(&mut self, node: &Node, patience: Option<Duration>) -> CommandSpec {
        let piece = |item: &Node| match item.as_text() {
            Some(text) => ArgvItem::Single(text.to_owned()),
            None => {
                ArgvItem::Group(item.items().iter().filter_map(Node::as_text).map(str::to_owned).collect())
            }
        };
        let usual = CommandSpec::default();
        let program = node.get("argv").and_then(|argv| argv.items().first());
        if let Some(program) =
            program.filter(|program| program.as_text().is_some_and(|name| name.contains('/')))
        {
            self.resolve_path(program);
        }
        let codes = node.get("exit_codes").map(|codes| codes.items().iter().filter_map(exit_code).collect());
        CommandSpec {
            argv: node.get("argv").map(|argv| argv.items().iter().map(piece).collect()).unwrap_or_default(),
            env: node.text_pairs("env"),
            pass_env: node.texts("pass_env"),
            base_dir: self.files.resolve(node.span_at("argv.0").file, "."),
            cwd: match node.get("cwd") {
                Some(cwd) => self.resolve_path(cwd),
                None => self.files.resolve(node.span.file, "."),
            },
            stdin: node.text("stdin"),
            stdout: if node.text("stdout").as_deref() == Some("json") {
                StdoutFormat::Json
            } else {
                StdoutFormat::Text
            },
            max_output: node
                .size("max_output")
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(usual.max_output),
            timeout: node.duration("timeout").or(patience).unwrap_or(self.call_timeout),
            exit_codes: codes.unwrap_or(usual.exit_codes),
            progress: node.text("progress").as_deref() == Some("stderr"),
            allow_leading_dash: node.flag("allow_leading_dash").unwrap_or(false),
            concurrency: node.count("concurrency").unwrap_or(usual.concurrency),
            queue: node.count("queue").unwrap_or(usual.queue),
        }
    }

    fn connection_name(&mut self, node: &Node, kinds: &[&str]) -> Option<String> {
        let on = node.get("on")?;
        let name = on.as_text()?;
        let known = self.section("connections");
        match known.get(name) {
            None => self.report_unknown_name(on.span, name, "connections", &known),
            Some(found) if !kinds.iter().any(|kind| found.get(kind).is_some()) => {
                self.diagnostics
                    .report(on.span, format!("the connection `{name}` is not {}", join_or(kinds)));
            }
            Some(_) => return Some(name.to_owned()),
        }
        None
    }

    fn http_backend(&mut self, node: &Node) -> Option<BackendConfig> {
        const BODIES: [&str; 5] = ["json", "form", "multipart", "body", "bytes"];
        let bodies: Vec<&str> = BODIES.into_iter().filter(|key| node.get(key).is_some()).collect();
        if bodies.len() > 1 {
            self.diagnostics.report(node.span, format!("there is only one body, not {}", join_and(&bodies)));
        }
        let content_type = node.text("content_type");
        let body = match bodies.first() {
            Some(&"json") => HttpBody::Json(node.get("json").map(Node::to_json).unwrap_or_default()),
            Some(&"form") => HttpBody::Form(node.text_pairs("form")),
            Some(&"multipart") => {
                HttpBody::Multipart(node.entries_of("multipart").iter().map(multipart_part).collect())
            }
            Some(&"bytes") => {
                HttpBody::Bytes { argument: node.text("bytes").unwrap_or_default(), content_type }
            }
            Some(_) => HttpBody::Text { text: node.text("body").unwrap_or_default(), content_type },
            None => HttpBody::None,
        };
        let word = |key: &str, usual: &str| node.text(key).unwrap_or_else(|| usual.to_owned());
        Some(BackendConfig::Http(Box::new(Http {
            connection: self.connection_name(node, &["http"])?,
            method: word("method", "GET"),
            path: node.text("path"),
            url: node.text("url"),
            query: node.text_pairs("query"),
            headers: node.text_pairs("headers"),
            cookies: node.text_pairs("cookies"),
            body,
            pick: node.text("pick"),
            paging: word("paging", "meta"),
            expect: word("expect", "auto"),
            errors: word("errors", "auto"),
            on_exceed: word("on_exceed", "error"),
            unavailable_codes: node.texts("unavailable"),
            follow_up: node.get("then").map(follow_up),
            auth: upstream_auth(node),
            idempotent: node.flag("idempotent"),
            timeout: node.duration("timeout"),
            max_response: size_in_bytes(node, "max_response"),
            concurrency: node.count("concurrency").unwrap_or(64),
            queue: node.count("queue").unwrap_or(256),
        })))
    }

    fn sql_backend(&mut self, node: &Node) -> Option<BackendConfig> {
        let written = node.text("query").map(SqlQuery::Text);
        Some(BackendConfig::Sql(Sql {
            connection: self.connection_name(node, &["sqlite", "postgres", "mysql"])?,
            query: written.or_else(|| node.text("query_from").map(SqlQuery::Argument))?,
            write: node.flag("write").unwrap_or(false),
            max_rows: node.count("max_rows"),
            max_bytes: size_in_bytes(node, "max_bytes"),
            timeout: node.duration("timeout"),
            expose_errors: node.flag("expose_errors"),
        }))
    }

    fn resource(&mut self, entry: &TableEntry) -> Option<Resource> {
        let node = &entry.node;
        let arguments = self.arguments(node);
        if let Some(argument) = arguments.list.iter().find(|argument| argument.origin.is_none()) {
            let said = format!(
                "a resource has no arguments but those with `from`; `{}` needs a template",
                argument.name
            );
            self.diagnostics.report(node.span_at("args"), said);
        }
        let mut mime = node.text("mime");
        let mut uri = node.text("uri");
        let is = if let Some(files) = node.get("files") {
            uri = files.text("uri");
            ResourceKind::Files {
                spec: Box::new(self.files_spec(files, mime.clone())),
                watch: files.flag("watch").unwrap_or(true),
            }
        } else if let Some(file) = node.get("file") {
            let path = self.resolve_path(file);
            mime = mime.or_else(|| crate::source::files::media_type(&path).map(str::to_owned));
            ResourceKind::Files {
                spec: Box::new(FilesSpec::single(&path, uri.clone().unwrap_or_default())),
                watch: true,
            }
        } else {
            ResourceKind::Backend(self.backend(node)?)
        };
        let Some(uri) = uri else {
            if node.get("files").is_none() {
                self.diagnostics.report(node.span, format!("`{}` needs `uri`", entry.key));
            }
            return None;
        };
        Some(Resource {
            name: entry.key.clone(),
            uri,
            title: node.text("title"),
            description: node.text("description"),
            mime,
            arguments,
            kind: is,
            output: output(node),
            node: node.clone(),
        })
    }

    fn files_spec(&mut self, node: &Node, mime: Option<String>) -> FilesSpec {
        let usual = FilesSpec::default();
        let mut globs = node.texts("glob");
        if globs.is_empty() {
            globs.push("**/*".into());
        }
        FilesSpec {
            root: node.get("root").map(|root| self.resolve_path(root)).unwrap_or_default(),
            globs,
            exclude: node.texts("exclude"),
            uri: node.text("uri").unwrap_or_default(),
            hidden: node.flag("hidden").unwrap_or(false),
            max_size: node.size("max_size").unwrap_or(usual.max_size),
            max_files: node.count("max_files").unwrap_or(usual.max_files),
            mime,
            single_file: None,
        }
    }

    fn template(&mut self, entry: &TableEntry) -> Option<ResourceTemplate> {
        let node = &entry.node;
        let mut arguments = self.arguments(node);
        let uri = node.text("uri")?;
        match UriTemplate::parse(&uri) {
            Err(error) => self.diagnostics.report(node.span_at("uri"), error.to_string()),
            Ok(pattern) => {
                let names: Vec<String> = pattern.names().map(str::to_owned).collect();
                for argument in &arguments.list {
                    if argument.origin.is_none() && !names.contains(&argument.name) {
                        let said = format!("`{}` is no variable of `{uri}`", argument.name);
                        self.diagnostics.report(node.span_at(&format!("args.{}", argument.name)), said);
                    }
                }
                for name in names {
                    if !arguments.names().any(|known| known == name) {
                        arguments.list.push(super::Argument {
                            name,
                            schema: serde_json::json!({ "type": "string" }),
                            default: None,
                            is_required: true,
                            origin: None,
                            clean: None,
                        });
                    }
                }
            }
        }
        let complete = self.completions(node, &arguments);
        Some(ResourceTemplate {
            name: entry.key.clone(),
            uri,
            title: node.text("title"),
            description: node.text("description"),
            mime: node.text("mime"),
            arguments,
            backend: self.backend(node)?,
            output: output(node),
            completions: complete,
            node: node.clone(),
        })
    }

    fn completions(&mut self, node: &Node, arguments: &Arguments) -> Vec<Completion> {
        let mut completions = Vec::new();
        for entry in node.entries_of("complete") {
            if !arguments.names().any(|name| name == entry.key) {
                let names: Vec<&str> = arguments.names().collect();
                let hint = match suggest(&entry.key, names) {
                    Some(meant) => format!("; did you mean `{meant}`?"),
                    None => String::new(),
                };
                self.diagnostics.report(
                    entry.span,
                    format!("`{}` is no argument, so nothing can complete it{hint}", entry.key),
                );
                continue;
            }
            let by = match entry.node.value {
                NodeValue::List(_) => CompletionKind::List(
                    node.get("complete").map_or_else(Vec::new, |all| all.texts(&entry.key)),
                ),
                _ => match self.backend(&entry.node) {
                    Some(does) => CompletionKind::Backend(does),
                    None => continue,
                },
            };
            completions.push(Completion { name: entry.key.clone(), node: entry.node.clone(), kind: by });
        }
        completions
    }

    fn prompt(&mut self, entry: &TableEntry) -> Option<Prompt> {
        self.check_name(entry, "prompt");
        let node = &entry.node;
        let arguments = self.arguments(node);
        let complete = self.completions(node, &arguments);
        let messages: Vec<MessageTemplate> = match node.get("messages") {
            Some(messages) => {
                messages.items().iter().filter_map(|message| self.prompt_message(message)).collect()
            }
            None => vec![self.prompt_message(node)?],
        };
        Some(Prompt {
            name: entry.key.clone(),
            title: node.text("title"),
            description: node.text("description"),
            arguments,
            messages,
            completions: complete,
            node: node.clone(),
        })
    }

    fn prompt_message(&mut self, node: &Node) -> Option<MessageTemplate> {
        let role = match node.text("role").as_deref() {
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            _ => Role::User,
        };
        let text = match node.get("file") {
            None => node.text("text")?,
            Some(file) => {
                let path = self.resolve_path(file);
                match std::fs::read_to_string(&path) {
                    Ok(text) => {
                        self.extra_files.push((path, text.clone()));
                        text
                    }
                    Err(error) => {
                        let said = format!(
                            "cannot read this file: {}",
                            super::diagnostics::io_error_message(&error)
                        );
                        self.diagnostics.report(file.span, said);
                        return None;
                    }
                }
            }
        };
        Some(MessageTemplate { role, text })
    }

    fn openapi(&mut self, entry: &TableEntry) -> Option<OpenApi> {
        let node = &entry.node;
        let spec = node.get("spec").and_then(|spec| self.openapi_source(spec));
        let on = self.connection_name(node, &["http"]);
        if on.is_none() && node.get("on").is_some() {
            return None;
        }
        let (spec, base) = (spec?, node.text("base"));
        if let (Some(_), Some(_)) = (&on, &base) {
            self.diagnostics
                .report(node.span_at("base"), "there is a connection (`on`), which has a base already");
        }
        if let (OpenApiSource::File { .. }, Some(refresh)) = (&spec, node.get("refresh")) {
            self.diagnostics
                .report(refresh.span, "`refresh` is for URLs; a file is read anew when it changes");
        }
        let auth = node.get("auth").cloned().unwrap_or_else(Node::empty);
        let forward = auth.texts("forward");
        Some(OpenApi {
            name: entry.key.clone(),
            spec,
            connection: on,
            base,
            refresh: node.duration("refresh"),
            prefix: node.text("prefix").unwrap_or_default(),
            include: node.texts("include"),
            exclude: node.texts("exclude"),
            kinds: node.text_pairs("as"),
            rename: node.text_pairs("rename"),
            auth: match forward.as_slice() {
                [] => None,
                [word] if word == "principal" => Some(UpstreamAuth::Forward),
                _ => Some(UpstreamAuth::Headers(forward)),
            },
            headers: auth.text_pairs("headers"),
            node: node.clone(),
        })
    }

    fn openapi_source(&mut self, node: &Node) -> Option<OpenApiSource> {
        let spec = node.as_text()?;
        if spec.starts_with("http://") || spec.starts_with("https://") {
            return Some(OpenApiSource::Url(spec.to_owned()));
        }
        let path = self.resolve_path(node);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                self.extra_files.push((path.clone(), text.clone()));
                Some(OpenApiSource::File { path, text })
            }
            Err(error) => {
                let said = format!("cannot read this file: {}", super::diagnostics::io_error_message(&error));
                self.diagnostics.report(node.span, said);
                None
            }
        }
    }
}

/// Names of packs, however they are written.
fn pack_names(node: &Node) -> Vec<String> {
    let listed = node.texts("packs");
    let named = node.entries_of("packs").iter().map(|entry| entry.key.clone());
    listed.into_iter().chain(named).collect()
}

/// Whether only this machine reaches an address.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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

fn response_limit(limits: &Node) -> Option<ResponseLimit> {
    let said = limits.get("response")?;
    let (max, is_cut) = match &said.value {
        NodeValue::Table(_) => (said.size("max")?, said.text("on_exceed").as_deref() == Some("truncate")),
        _ => (limits.size("response")?, false),
    };
    Some(ResponseLimit { max_bytes: usize::try_from(max).unwrap_or(usize::MAX), is_truncated: is_cut })
}

/// None: calls are no tasks.
fn task(node: &Node) -> Option<Task> {
    let task = node.get("task")?;
    match task.value {
        NodeValue::Flag(false) => None,
        _ => Some(Task {
            ttl: task.duration("ttl"),
            is_required: task.text("mode").as_deref() == Some("required"),
            is_resumable: task.flag("resumable").unwrap_or(false),
        }),
    }
}

fn output(node: &Node) -> OutputConfig {
    match node.get("output") {
        None => OutputConfig::Unspecified,
        Some(output) => match output.as_text() {
            Some(word) => OutputConfig::Named(word.to_owned()),
            None => OutputConfig::Schema(output.to_json()),
        },
    }
}

fn upstream_auth(node: &Node) -> Option<UpstreamAuth> {
    let auth = node.get("auth")?;
    match auth.text("attribute") {
        None => auth.flag("forward").filter(|forward| *forward).map(|_| UpstreamAuth::Forward),
        Some(attribute) => Some(UpstreamAuth::Attribute {
            attribute,
            header: auth.text("header").unwrap_or_else(|| "Authorization".into()),
            prefix: auth.text("prefix").unwrap_or_else(|| "Bearer ".into()),
        }),
    }
}

/// The request that follows: what it does not say itself is as in the first.
fn follow_up(node: &Node) -> Box<HttpFollowUp> {
    Box::new(HttpFollowUp {
        method: node.text("method").unwrap_or_else(|| "POST".into()),
        path: node.text("path").unwrap_or_default(),
        query: node.text_pairs("query"),
        json: node.get("json").map(Node::to_json),
        pick: node.text("pick"),
    })
}

fn multipart_part(entry: &TableEntry) -> (String, HttpPart) {
    let part = match entry.node.as_text() {
        Some(text) => HttpPart::Text(text.to_owned()),
        None => HttpPart::File {
            argument: entry.node.text("file").unwrap_or_default(),
            filename: entry.node.text("filename").unwrap_or_else(|| "file".into()),
            mime: entry.node.text("mime").unwrap_or_else(|| "application/octet-stream".into()),
        },
    };
    (entry.key.clone(), part)
}

fn size_in_bytes(node: &Node, key: &str) -> Option<usize> {
    node.size(key).and_then(|bytes| usize::try_from(bytes).ok())
}

fn is_argon2_hash(text: &str) -> bool {
    text.starts_with("$argon2id$") && argon2::password_hash::phc::PasswordHash::new(text).is_ok()
}

fn status_code(node: &Node) -> Option<u16> {
    match node.value {
        NodeValue::Integer(code) => u16::try_from(code).ok(),
        _ => None,
    }
}

fn exit_code(node: &Node) -> Option<i32> {
    match node.value {
        NodeValue::Integer(code) => i32::try_from(code).ok(),
        _ => None,
    }
}
