//! Reads the backends of tools, resources, templates and completions.

use std::time::Duration;

use toolgate_sources::source::command::{ArgvItem, CommandSpec, StdoutFormat};
use toolgate_sources::source::http::{ErrorExposure, Expect, OnExceed, Paging};

use super::ConfigReader;
use super::items::task;
use crate::config::backend::{BackendConfig, Http, HttpBody, HttpFollowUp, HttpPart, Sql, SqlQuery};
use crate::config::check::join_and;
use crate::config::connection::UpstreamAuth;
use crate::config::keys;
use crate::config::table_view::{TableView, size_in_bytes};
use crate::config::tree::{Node, NodeValue, TableEntry};

/// Keys of which a request may have one.
const BODY_KEYS: [&str; 5] = ["json", "form", "multipart", "body", "bytes"];

impl ConfigReader<'_> {
    /// Returns `None` after reporting why the backend cannot be read.
    pub(super) fn backend(&mut self, node: &Node) -> Option<BackendConfig> {
        let table = |key: &str| node.get(key).filter(|inner| matches!(inner.value, NodeValue::Table(_)));
        if let Some(command) = table("command") {
            // A task may run until its TTL ends.
            let timeout = node.duration("timeout").or_else(|| task(node).map(|task| task.ttl));
            return Some(BackendConfig::Command(Box::new(self.command_spec(command, timeout))));
        }
        if let Some(http) = table("http") {
            return self.http_backend(http);
        }
        if let Some(sql) = table("sql") {
            return self.sql_backend(sql);
        }
        if let Some(text) = node.text("template") {
            return Some(BackendConfig::Template(text));
        }
        if let Some(text) = node.text("text") {
            return Some(BackendConfig::Text(text));
        }
        node.text("builtin").map(BackendConfig::Builtin)
    }

    fn command_spec(&mut self, node: &Node, tool_timeout: Option<Duration>) -> CommandSpec {
        let argv = node.get("argv").map(Node::items).unwrap_or_default();
        let item = |item: &Node| match item.as_text() {
            Some(text) => ArgvItem::Single(text.to_owned()),
            None => {
                ArgvItem::Group(item.items().iter().filter_map(Node::as_text).map(str::to_owned).collect())
            }
        };
        let is_path = |program: &&Node| program.as_text().is_some_and(|name| name.contains('/'));
        if let Some(program) = argv.first().filter(is_path) {
            self.resolve_path(program);
        }
        let table = TableView::new(Some(node), &keys::COMMAND);
        CommandSpec {
            argv: argv.iter().map(item).collect(),
            env: node.text_pairs("env"),
            pass_env: node.texts("pass_env"),
            base_dir: self.files.resolve(node.span_at("argv.0").file, "."),
            cwd: match node.get("cwd") {
                Some(cwd) => self.resolve_path(cwd),
                None => self.files.resolve(node.span.file, "."),
            },
            stdin: node.text("stdin"),
            stdout: if table.text("stdout") == "json" { StdoutFormat::Json } else { StdoutFormat::Text },
            max_output: table.bytes("max_output"),
            timeout: node.duration("timeout").or(tool_timeout).unwrap_or(self.call_timeout),
            exit_codes: table.numbers("exit_codes"),
            progress: table.text("progress") == "stderr",
            allow_leading_dash: table.flag("allow_leading_dash"),
            concurrency: table.number("concurrency"),
            queue: table.number("queue"),
        }
    }

    fn http_backend(&mut self, node: &Node) -> Option<BackendConfig> {
        let body = self.http_body(node);
        let table = TableView::new(Some(node), &keys::HTTP);
        Some(BackendConfig::Http(Box::new(Http {
            connection: self.connection_name(node, &["http"])?,
            method: table.text("method"),
            path: node.text("path"),
            url: node.text("url"),
            query: node.text_pairs("query"),
            headers: node.text_pairs("headers"),
            cookies: node.text_pairs("cookies"),
            body,
            pick: node.text("pick"),
            paging: match table.text("paging").as_str() {
                "result" => Paging::Result,
                "off" => Paging::Off,
                _ => Paging::Meta,
            },
            expect: match table.text("expect").as_str() {
                "json" => Expect::Json,
                "text" => Expect::Text,
                _ => Expect::Auto,
            },
            errors: match table.text("errors").as_str() {
                "message" => ErrorExposure::Message,
                "status" => ErrorExposure::Status,
                _ => ErrorExposure::Auto,
            },
            on_exceed: match table.text("on_exceed").as_str() {
                "truncate" => OnExceed::Truncate,
                _ => OnExceed::Error,
            },
            unavailable_codes: node.texts("unavailable"),
            follow_up: node.get("then").map(follow_up),
            auth: UpstreamAuth::read(node.get("auth")),
            idempotent: node.flag("idempotent"),
            timeout: node.duration("timeout"),
            max_response: size_in_bytes(node, "max_response"),
            concurrency: table.number("concurrency"),
            queue: table.number("queue"),
        })))
    }

    fn http_body(&mut self, node: &Node) -> HttpBody {
        let bodies: Vec<&str> = BODY_KEYS.into_iter().filter(|key| node.get(key).is_some()).collect();
        if bodies.len() > 1 {
            self.diagnostics
                .report(node.span, format!("a request can have only one body, not {}", join_and(&bodies)));
        }
        let content_type = node.text("content_type");
        match bodies.first() {
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
        }
    }

    fn sql_backend(&mut self, node: &Node) -> Option<BackendConfig> {
        let query = node.text("query").map(SqlQuery::Text);
        Some(BackendConfig::Sql(Sql {
            connection: self.connection_name(node, &["sqlite", "postgres", "mysql"])?,
            query: query.or_else(|| node.text("query_from").map(SqlQuery::Argument))?,
            write: TableView::new(Some(node), &keys::SQL).flag("write"),
            max_rows: node.count("max_rows"),
            max_bytes: size_in_bytes(node, "max_bytes"),
            timeout: node.duration("timeout"),
            expose_errors: node.flag("expose_errors"),
        }))
    }
}

fn follow_up(node: &Node) -> Box<HttpFollowUp> {
    Box::new(HttpFollowUp {
        method: TableView::new(Some(node), &keys::FOLLOW_UP).text("method"),
        path: node.text("path").unwrap_or_default(),
        query: node.text_pairs("query"),
        json: node.get("json").map(Node::to_json),
        pick: node.text("pick"),
    })
}

fn multipart_part(entry: &TableEntry) -> (String, HttpPart) {
    let part = match entry.node.as_text() {
        Some(text) => HttpPart::Text(text.to_owned()),
        None => {
            let table = TableView::new(Some(&entry.node), &keys::MULTIPART_PART);
            HttpPart::File {
                argument: entry.node.text("file").unwrap_or_default(),
                filename: table.text("filename"),
                mime: table.text("mime"),
            }
        }
    };
    (entry.key.clone(), part)
}
