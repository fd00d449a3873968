//! Reads tools, resources, templates and prompts.

use std::time::Duration;

use serde_json::json;
use toolgate::model::{Role, ToolHints};
use toolgate::uri_template::UriTemplate;
use toolgate_sources::source::files::FilesSpec;
use toolgate_sources::source::prompt::MessageTemplate;

use super::ConfigReader;
use crate::config::arguments::{self, Argument, Arguments};
use crate::config::diagnostics::suggest;
use crate::config::items::{
    Completion, CompletionKind, OutputConfig, Price, Prompt, Resource, ResourceKind, ResourceTemplate, Task,
    Tool,
};
use crate::config::keys;
use crate::config::table_view::TableView;
use crate::config::tree::{Node, NodeValue, TableEntry};

impl ConfigReader<'_> {
    pub(super) fn tool(&mut self, entry: &TableEntry) -> Option<Tool> {
        self.check_name(entry, "tool");
        let node = &entry.node;
        let arguments = self.arguments(node);
        let annotations = node.get("annotations").cloned().unwrap_or_else(Node::empty);
        let mut hints = ToolHints::default();
        hints.title = annotations.text("title");
        hints.read_only = annotations.flag("readOnlyHint");
        hints.destructive = annotations.flag("destructiveHint");
        hints.idempotent = annotations.flag("idempotentHint");
        hints.open_world = annotations.flag("openWorldHint");
        Some(Tool {
            name: entry.key.clone(),
            title: node.text("title"),
            description: node.text("description"),
            arguments,
            backend: self.backend(node)?,
            output: output(node),
            task: task(node),
            cache_ttl: self.cache_ttl(node),
            hints,
            scopes: node.texts("scopes"),
            timeout: node.duration("timeout"),
            meta: node.get("meta").map(Node::to_json),
            aliases: node.texts("aliases"),
            category: node.text("category"),
            price: self.price(node),
            clean: TableView::new(Some(node), &keys::TOOL).flag("clean"),
            node: node.clone(),
        })
    }

    fn arguments(&mut self, node: &Node) -> Arguments {
        arguments::read(node.entries_of("args"), self.diagnostics)
    }

    fn price(&mut self, node: &Node) -> Option<Price> {
        let price = node.get("price")?;
        let usd = price.get("usd").unwrap_or(price);
        let price = Price::parse(usd.as_text()?);
        if price.is_none() {
            let message =
                "a price must be a decimal such as \"0.05\", with at most six digits after the point";
            self.diagnostics.report(usd.span, message);
        }
        price
    }

    /// Reads how long results are cached, and reports tools whose results must not be.
    fn cache_ttl(&mut self, node: &Node) -> Option<Duration> {
        let cache = node.duration("cache")?;
        let span = node.span_at("cache");
        let annotations = node.get("annotations");
        let is_read_only = annotations.and_then(|annotations| annotations.flag("readOnlyHint")) == Some(true);
        let method = TableView::new(node.get("http"), &keys::HTTP).text("method");
        if TableView::new(node.get("sql"), &keys::SQL).flag("write") {
            self.diagnostics.report(span, "`cache` cannot be used with `write = true`");
        } else if !is_read_only && !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "QUERY") {
            let message = format!(
                "`cache` cannot be used with {method}, which may change data; if this request does not, set `annotations = {{ readOnlyHint = true }}`"
            );
            self.diagnostics.report(span, message);
        }
        if node.get("builtin").is_some() {
            self.diagnostics
                .report(span, "`cache` cannot be used with a built-in tool, whose result may depend on the caller and on the time");
        }
        if node.get("task").is_some() {
            self.diagnostics.report(span, "`cache` and `task` cannot be used together");
        }
        Some(cache)
    }

    pub(super) fn resource(&mut self, entry: &TableEntry) -> Option<Resource> {
        let node = &entry.node;
        let arguments = self.arguments(node);
        if let Some(argument) = arguments.list.iter().find(|argument| argument.origin.is_none()) {
            let message =
                format!("arguments of a resource must have `from`; for `{}` use a template", argument.name);
            self.diagnostics.report(node.span_at("args"), message);
        }
        let mut mime = node.text("mime");
        let mut uri = node.text("uri");
        let kind = if let Some(files) = node.get("files") {
            uri = files.text("uri");
            let table = TableView::new(Some(files), &keys::FILES);
            ResourceKind::Files {
                spec: Box::new(self.files_spec(&table, mime.clone())),
                watch: table.flag("watch"),
            }
        } else if let Some(file) = node.get("file") {
            let path = self.resolve_path(file);
            mime = mime.or_else(|| toolgate_sources::source::files::media_type(&path).map(str::to_owned));
            ResourceKind::Files {
                spec: Box::new(FilesSpec::single(&path, uri.clone().unwrap_or_default())),
                watch: true,
            }
        } else {
            ResourceKind::Backend(self.backend(node)?)
        };
        let Some(uri) = uri else {
            if node.get("files").is_none() {
                self.diagnostics.report(node.span, format!("`{}` requires `uri`", entry.key));
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
            kind,
            output: output(node),
            node: node.clone(),
        })
    }

    fn files_spec(&mut self, table: &TableView<'_>, mime: Option<String>) -> FilesSpec {
        FilesSpec {
            root: table.get("root").map(|root| self.resolve_path(root)).unwrap_or_default(),
            globs: table.texts("glob"),
            exclude: table.optional_texts("exclude"),
            uri: table.get("uri").and_then(Node::as_text).unwrap_or_default().to_owned(),
            hidden: table.flag("hidden"),
            max_size: table.size("max_size"),
            max_files: table.number("max_files"),
            mime,
            single_file: None,
        }
    }

    pub(super) fn template(&mut self, entry: &TableEntry) -> Option<ResourceTemplate> {
        let node = &entry.node;
        let mut arguments = self.arguments(node);
        let uri = node.text("uri")?;
        self.add_uri_variables(node, &uri, &mut arguments);
        let completions = self.completions(node, &arguments);
        Some(ResourceTemplate {
            name: entry.key.clone(),
            uri,
            title: node.text("title"),
            description: node.text("description"),
            mime: node.text("mime"),
            arguments,
            backend: self.backend(node)?,
            output: output(node),
            completions,
            node: node.clone(),
        })
    }

    /// Adds a text argument for each variable of a URI template that `args` does not describe.
    fn add_uri_variables(&mut self, node: &Node, uri: &str, arguments: &mut Arguments) {
        let names: Vec<String> = match UriTemplate::parse(uri) {
            Ok(pattern) => pattern.names().map(str::to_owned).collect(),
            Err(error) => return self.diagnostics.report(node.span_at("uri"), error.to_string()),
        };
        for argument in &arguments.list {
            if argument.origin.is_none() && !names.contains(&argument.name) {
                let message = format!("`{}` is not a variable of `{uri}`", argument.name);
                self.diagnostics.report(node.span_at(&format!("args.{}", argument.name)), message);
            }
        }
        for name in names {
            if !arguments.names().any(|known| known == name) {
                arguments.list.push(Argument {
                    name,
                    schema: json!({ "type": "string" }),
                    default: None,
                    is_required: true,
                    origin: None,
                    clean: None,
                });
            }
        }
    }

    fn completions(&mut self, node: &Node, arguments: &Arguments) -> Vec<Completion> {
        let mut completions = Vec::new();
        for entry in node.entries_of("complete") {
            if !arguments.names().any(|name| name == entry.key) {
                let hint = match suggest(&entry.key, arguments.names()) {
                    Some(similar) => format!("; did you mean `{similar}`?"),
                    None => String::new(),
                };
                self.diagnostics.report(entry.span, format!("`{}` is not an argument{hint}", entry.key));
                continue;
            }
            let kind = match entry.node.value {
                NodeValue::List(_) => CompletionKind::List(
                    node.get("complete").map_or_else(Vec::new, |complete| complete.texts(&entry.key)),
                ),
                _ => match self.backend(&entry.node) {
                    Some(backend) => CompletionKind::Backend(backend),
                    None => continue,
                },
            };
            completions.push(Completion { name: entry.key.clone(), node: entry.node.clone(), kind });
        }
        completions
    }

    pub(super) fn prompt(&mut self, entry: &TableEntry) -> Option<Prompt> {
        self.check_name(entry, "prompt");
        let node = &entry.node;
        let arguments = self.arguments(node);
        let completions = self.completions(node, &arguments);
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
            completions,
            node: node.clone(),
        })
    }

    fn prompt_message(&mut self, node: &Node) -> Option<MessageTemplate> {
        let role = match TableView::new(Some(node), &keys::MESSAGE).text("role").as_str() {
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => Role::User,
        };
        let text = match node.get("file") {
            None => node.text("text")?,
            Some(file) => {
                let (path, text) = self.read_text(file)?;
                self.extra_files.push((path, text.clone()));
                text
            }
        };
        Some(MessageTemplate { role, text })
    }
}

/// Reads `task`. Returns `None` if calls do not run as tasks.
pub(super) fn task(node: &Node) -> Option<Task> {
    let task = node.get("task")?;
    if task.value == NodeValue::Flag(false) {
        return None;
    }
    let table = TableView::new(Some(task), &keys::TASK);
    Some(Task {
        ttl: table.duration("ttl"),
        is_required: table.text("mode") == "required",
        is_resumable: table.flag("resumable"),
    })
}

fn output(node: &Node) -> OutputConfig {
    match node.get("output") {
        None => OutputConfig::Unspecified,
        Some(output) => match output.as_text() {
            Some(name) => OutputConfig::Named(name.to_owned()),
            None => OutputConfig::Schema(output.to_json()),
        },
    }
}
