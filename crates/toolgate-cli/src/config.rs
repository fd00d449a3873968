//! Configuration files: parsing, checking, and reading into plain settings. All problems are collected, each with its
//! position, instead of stopping at the first one.
//!
//! This module depends neither on servers nor on the protocol. It produces the settings that the modules below `source`
//! take; `build` builds servers from them.
//!
//! Settings do not implement `Debug`, because they contain passwords, tokens and keys.

mod arguments;
mod backend;
mod check;
mod connection;
mod diagnostics;
mod expand;
mod file_stamp;
mod include;
mod items;
mod keys;
mod packs;
mod read;
mod redact;
pub(crate) mod reference;
pub(crate) mod schema;
mod server;
mod storage;
mod table_view;
mod tree;
mod units;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub(crate) use arguments::{Argument, ArgumentOrigin, Arguments};
pub(crate) use backend::{BackendConfig, Http, HttpBody, HttpFollowUp, HttpPart, Sql, SqlQuery};
pub(crate) use connection::{
    Connection, ConnectionKind, HttpConnectionConfig, SqlConnectionConfig, UpstreamAuth,
};
pub(crate) use diagnostics::{ConfigFiles, Diagnostics, Span};
pub(crate) use file_stamp::{FileStamp, parent_folder};
pub(crate) use items::{
    Completion, CompletionKind, OpenApi, OpenApiSource, OutputConfig, Prompt, Resource, ResourceKind,
    ResourceTemplate, Task, Tool,
};
pub(crate) use redact::redact_url;
pub(crate) use server::{Audit, Credential, ResponseLimit, Server, ServerSettings, WordPress};
pub(crate) use storage::{Storage, store_error_message};
pub(crate) use tree::Node;

use check::ConfigChecker;
use keys::ROOT;
use table_view::TableView;

/// A configuration.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) files: ConfigFiles,
    /// The files and folders that it names, as they were before they were read.
    pub(crate) file_stamps: Vec<FileStamp>,
    pub(crate) listen: Listen,
    pub(crate) stats_path: Option<String>,
    pub(crate) metrics_path: Option<String>,
    /// The configuration as written, without secrets.
    pub(crate) redacted: Value,
    pub(crate) egress: EgressConfig,
    pub(crate) egress_node: Node,
    pub(crate) storage: Storage,
    pub(crate) storage_span: Span,
    pub(crate) audit_span: Span,
    /// Positions of the settings of all servers, by the name of the builder method.
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

impl Default for Listen {
    fn default() -> Listen {
        Listen::read(&TableView::new(None, &keys::LISTEN))
    }
}

impl Listen {
    fn read(table: &TableView<'_>) -> Listen {
        Listen {
            http: table.text("http"),
            shutdown_grace: table.duration("shutdown_grace"),
            max_connections: table.number("max_connections"),
        }
    }
}

/// The addresses that outgoing requests may reach.
#[derive(Clone, PartialEq)]
pub(crate) struct EgressConfig {
    pub(crate) deny_private: bool,
    pub(crate) allow: Vec<String>,
}

/// A configuration that was read, and the problems that were found. It must not be used if there are any.
pub(crate) struct LoadedConfig {
    pub(crate) config: Config,
    pub(crate) diagnostics: Diagnostics,
}

impl LoadedConfig {
    /// Returns all problems with the lines that they are about, or `None` if there are none.
    pub(crate) fn error_report(&self) -> Option<String> {
        (!self.diagnostics.is_empty()).then(|| self.config.files.render(&self.diagnostics))
    }

    /// Returns all problems with their positions only, for logs: the lines may contain secrets.
    pub(crate) fn error_summary(&self) -> Option<String> {
        (!self.diagnostics.is_empty()).then(|| self.config.files.render_brief(&self.diagnostics))
    }
}

/// Reads a configuration and the files that it includes.
pub(crate) fn load(path: &Path) -> LoadedConfig {
    load_with_variables(path, &|name| std::env::var(name).ok())
}

pub(crate) fn load_with_variables(path: &Path, variables: expand::VariableLookup<'_>) -> LoadedConfig {
    let mut files = ConfigFiles::default();
    let mut diagnostics = Diagnostics::default();
    let mut tree = match include::read_file(path, &mut files) {
        Ok(file) => tree::parse(&files, file, &mut diagnostics),
        Err(message) => {
            diagnostics.report_without_span(message);
            Node::empty()
        }
    };
    include::merge_includes(&mut tree, &mut files, &mut diagnostics);
    let redacted = redact::redact_config(&tree);
    packs::expand_packs(&mut tree, &mut files, &mut diagnostics);
    let mut secret_files = Vec::new();
    // After a syntax error any key may be missing; reports of missing keys would be noise.
    if diagnostics.is_empty() {
        ConfigChecker {
            files: &files,
            variables,
            diagnostics: &mut diagnostics,
            secret_files: &mut secret_files,
        }
        .check_table(&mut tree, &ROOT, "");
    } else {
        tree = Node::empty();
    }
    let mut config = read::read(&tree, files, &mut diagnostics);
    config.redacted = redacted;
    config.file_stamps.extend(secret_files);
    LoadedConfig { config, diagnostics }
}
