//! Reads a checked tree into settings: resolves names and paths, and checks rules that involve several keys.
//!
//! Each submodule adds the methods of [`ConfigReader`] for one part of the file. Values of the wrong kind are not
//! reported here, because the checker has reported them.

mod auth;
mod backends;
mod connections;
mod items;
mod openapi;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use super::check::{join_and, join_or};
use super::diagnostics::{ConfigFiles, Diagnostics, Span, io_error_message, suggest};
use super::file_stamp::{FileStamp, parent_folder};
use super::keys::{self, Table};
use super::table_view::TableView;
use super::tree::{Node, TableEntry};
use super::{Config, EgressConfig, Listen, storage};

/// Reads the settings of a configuration and reports their problems.
pub(super) fn read(tree: &Node, mut files: ConfigFiles, diagnostics: &mut Diagnostics) -> Config {
    let mut reader = ConfigReader {
        tree,
        files: &files,
        diagnostics,
        call_timeout: Duration::ZERO,
        extra_files: Vec::new(),
        file_stamps: Vec::new(),
    };
    let listen = reader.listen();
    let (egress, egress_node) = reader.egress();
    let connections = reader.connections();
    let storage = storage::read(tree, reader.files, reader.diagnostics);
    let servers = reader.servers(&listen, &storage);
    let (stats_path, metrics_path) = reader.stats_paths();
    let file_stamps = reader.file_stamps;
    for (path, text) in reader.extra_files {
        files.add(path, text);
    }
    let settings = [
        ("public_url", "listen.public_url"),
        ("allow_host", "listen.hosts"),
        ("trust_proxies", "listen.trusted_proxies"),
        ("allow_ips", "security.ip_allow"),
        ("cors", "security.cors"),
    ];
    Config {
        files,
        file_stamps,
        setting_spans: settings.map(|(name, path)| (name, tree.span_at(path))).into(),
        listen,
        stats_path,
        metrics_path,
        redacted: serde_json::Value::Null,
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
    /// The call timeout of the server that is being read.
    call_timeout: Duration,
    /// Texts of files that the configuration names.
    extra_files: Vec<(PathBuf, String)>,
    /// Files and folders that the configuration names, as they were before they were read.
    file_stamps: Vec<FileStamp>,
}

impl<'a> ConfigReader<'a> {
    /// A table of the file, by its key.
    fn section(&self, key: &str, table: &'static Table) -> TableView<'a> {
        TableView::new(self.tree.get(key), table)
    }

    /// A table of the file whose keys are names that the author chose.
    fn named(&self, key: &str) -> Node {
        self.tree.get(key).cloned().unwrap_or_else(Node::empty)
    }

    fn listen(&mut self) -> Listen {
        let listen = self.section("listen", &keys::LISTEN);
        if let Some(node) = listen.get("http")
            && let Some(text) = node.as_text()
        {
            if text.starts_with("unix:") {
                self.diagnostics
                    .report(node.span, "Unix sockets are not supported yet; use an address and a port, such as \"127.0.0.1:8080\"");
            } else if text.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                self.diagnostics
                    .report(node.span, "`http` must be an address and a port, such as \"127.0.0.1:8080\"");
            }
        }
        Listen::read(&listen)
    }

    fn egress(&self) -> (EgressConfig, Node) {
        let egress = self.section("security", &keys::SECURITY).table("egress", &keys::EGRESS);
        let node = self.tree.get("security").and_then(|security| security.get("egress"));
        let node = node.cloned().unwrap_or_else(Node::empty);
        (EgressConfig { deny_private: egress.flag("deny_private"), allow: node.texts("allow") }, node)
    }

    /// The paths of `stats` and of `stats.prometheus`.
    fn stats_paths(&mut self) -> (Option<String>, Option<String>) {
        let stats = self.section("stats", &keys::STATS);
        let stats_path = stats.get("path").and_then(Node::as_text).map(str::to_owned);
        if let Some(path) = &stats_path
            && !path.starts_with('/')
        {
            self.diagnostics.report(self.tree.span_at("stats.path"), "`path` must begin with `/`");
        }
        let Some(prometheus) = stats.get("prometheus") else { return (stats_path, None) };
        let path = TableView::new(Some(prometheus), &keys::PROMETHEUS).text("path");
        let span = self.tree.span_at("stats.prometheus.path");
        if !path.starts_with('/') {
            self.diagnostics.report(span, "`path` must begin with `/`");
        }
        if stats_path.as_ref().is_some_and(|stats| stats.trim_end_matches('/') == path.trim_end_matches('/'))
        {
            self.diagnostics.report(span, "`stats.path` has the same path; choose another one");
        }
        (stats_path, Some(path))
    }

    fn resolve_path(&mut self, node: &Node) -> PathBuf {
        let path = self.files.resolve(node.span.file, node.as_text().unwrap_or_default());
        self.file_stamps.extend(FileStamp::with_missing_ancestors(&path));
        path
    }

    /// Resolves a file that is created if it does not exist. Its folder has to exist.
    fn log_file(&mut self, node: &Node) -> PathBuf {
        let path = self.files.resolve(node.span.file, node.as_text().unwrap_or_default());
        let folder = parent_folder(&path);
        self.file_stamps.extend(FileStamp::with_missing_ancestors(&folder));
        if !folder.is_dir() {
            self.diagnostics.report(node.span, format!("the folder {} does not exist", folder.display()));
        }
        path
    }

    /// Reads a text file that the configuration names. Returns `None` after reporting that it cannot be read.
    fn read_text(&mut self, node: &Node) -> Option<(PathBuf, String)> {
        let path = self.resolve_path(node);
        match std::fs::read_to_string(&path) {
            Ok(text) => Some((path, text)),
            Err(error) => {
                let message = format!("cannot read this file: {}", io_error_message(&error));
                self.diagnostics.report(node.span, message);
                None
            }
        }
    }

    fn check_url_path(&mut self, path: &str, span: Span) {
        if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
            self.diagnostics
                .report(span, "a path must begin with `/` and must not contain `?`, `#` or spaces");
        }
    }

    fn check_name(&mut self, entry: &TableEntry, item: &str) {
        let name = &entry.key;
        let is_valid =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        if !is_valid || !(1..=128).contains(&name.len()) {
            let message = format!(
                "{name:?} is not a valid {item} name; use 1 to 128 letters, digits, `_`, `-` and `.`"
            );
            self.diagnostics.report(entry.span, message);
        }
    }

    fn report_unknown_name(&mut self, span: Span, name: &str, table: &str, known: &Node) {
        let mut names: Vec<&str> = known.entries().iter().map(|entry| entry.key.as_str()).collect();
        if table == "profiles" {
            names.extend(["admin", "readonly"]);
        }
        let hint = match (suggest(name, names.iter().copied()), names.as_slice()) {
            (Some(similar), _) => format!("; did you mean `{similar}`?"),
            (None, []) => String::new(),
            (None, names) => format!("; known names: {}", join_and(names)),
        };
        self.diagnostics.report(span, format!("there is no `[{table}.{name}]`{hint}"));
    }

    /// The connection that `on` names. Returns `None` if `on` is not set, or after reporting that there is no such
    /// connection or that it is of another kind.
    fn connection_name(&mut self, node: &Node, kinds: &[&str]) -> Option<String> {
        let on = node.get("on")?;
        let name = on.as_text()?;
        let known = self.named("connections");
        match known.get(name) {
            None => self.report_unknown_name(on.span, name, "connections", &known),
            Some(found) if !kinds.iter().any(|kind| found.get(kind).is_some()) => {
                self.diagnostics.report(
                    on.span,
                    format!("the connection `{name}` is not of the kind {}", join_or(kinds)),
                );
            }
            Some(_) => return Some(name.to_owned()),
        }
        None
    }

    /// Reads the enabled entries of a table of named tables.
    fn read_each<T>(
        &mut self,
        node: &Node,
        key: &str,
        table: &'static Table,
        read: fn(&mut Self, &TableEntry) -> Option<T>,
    ) -> Vec<T> {
        let is_enabled = |entry: &&TableEntry| {
            table.key("enabled").is_none() || TableView::new(Some(&entry.node), table).flag("enabled")
        };
        node.entries_of(key).iter().filter(is_enabled).filter_map(|entry| read(self, entry)).collect()
    }
}

/// Whether a `host:port` is reachable from this machine only.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
