//! Storage settings.

use std::path::PathBuf;

use toolgate::store::{RedisStore, StoreError};

use super::diagnostics::{ConfigFiles, Diagnostics};
use super::file_stamp::parent_folder;
use super::keys;
use super::table_view::TableView;
use super::tree::Node;

/// Where tasks and shared sessions are stored.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    File(PathBuf),
    Redis { url: String, prefix: String },
}

pub(super) fn read(tree: &Node, files: &ConfigFiles, diagnostics: &mut Diagnostics) -> Storage {
    let Some(node) = tree.get("storage") else { return Storage::Memory };
    if node.get("default").is_some_and(|default| default.as_text().is_none()) {
        // The value could not be read, which has been reported.
        return Storage::Memory;
    }
    let table = TableView::new(Some(node), &keys::STORAGE);
    let url = table.text("default");
    let span = node.span_at("default");
    let is_redis = ["redis", "valkey", "unix"].iter().any(|scheme| url.starts_with(scheme));
    if let (Some(prefix), false) = (node.get("prefix"), is_redis) {
        diagnostics.report(prefix.span, "`prefix` can only be used with Redis");
    }
    if is_redis {
        if let Err(error) = RedisStore::connect(&url).check() {
            diagnostics.report(span, store_error_message(&error));
        }
        return Storage::Redis { url, prefix: table.text("prefix") };
    }
    if let Some(path) = url.strip_prefix("redb:").or_else(|| url.strip_prefix("file:")) {
        let path = files.resolve(span.file, path.strip_prefix("//").unwrap_or(path));
        let folder = parent_folder(&path);
        if !folder.is_dir() {
            diagnostics.report(span, format!("the folder {} does not exist", folder.display()));
        } else if path.is_dir() {
            diagnostics.report(span, "`default` must name a file; this is a folder");
        }
        return Storage::File(path);
    }
    if url != "memory:" {
        diagnostics.report(span, "`default` must be `memory:`, `redb:PATH` or `redis://host:port`");
    }
    Storage::Memory
}

/// Returns the reason alone where the headline ("the store cannot be reached") adds nothing.
pub(crate) fn store_error_message(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(reason) | StoreError::InUse(reason) => reason.clone(),
        other => other.to_string(),
    }
}
