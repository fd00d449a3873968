//! Where is kept what outlives a call.

use std::path::PathBuf;

use toolgate::store::{RedisStore, StoreError};

use super::diagnostics::{ConfigFiles, Diagnostics};
use super::tree::Node;

/// A place to keep things.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    File(PathBuf),
    Redis { url: String, prefix: String },
}

pub(super) fn read(tree: &Node, texts: &ConfigFiles, troubles: &mut Diagnostics) -> Storage {
    let Some(table) = tree.get("storage") else { return Storage::Memory };
    let (prefix, default) = (table.get("prefix"), table.get("default"));
    let url = match default.map(Node::as_text) {
        Some(Some(url)) => url,
        // It could not be read, and that was told.
        Some(None) => return Storage::Memory,
        None => "memory:",
    };
    let at = table.span_at("default");
    let is_redis = ["redis", "valkey", "unix"].iter().any(|scheme| url.starts_with(scheme));
    if let (Some(prefix), false) = (prefix, is_redis) {
        troubles.report(prefix.span, "`prefix` is for Redis: nobody else keeps things in this place");
    }
    let path = url.strip_prefix("redb:").or_else(|| url.strip_prefix("file:"));
    match path {
        _ if is_redis => {
            let prefix = prefix.and_then(Node::as_text).unwrap_or("toolgate:").to_owned();
            if let Err(error) = RedisStore::connect(url).check() {
                troubles.report(at, store_error_message(&error));
            }
            Storage::Redis { url: url.to_owned(), prefix }
        }
        Some(path) => {
            let path = texts.resolve(at.file, path.strip_prefix("//").unwrap_or(path));
            match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                    troubles.report(at, format!("there is no folder {}", folder.display()));
                }
                _ if path.is_dir() => troubles.report(at, "this is a folder; a file is needed"),
                _ => {}
            }
            Storage::File(path)
        }
        None => {
            if url != "memory:" {
                let said = "`default` must be `memory:`, `redb:PATH` or `redis://host:port`";
                troubles.report(at, said);
            }
            Storage::Memory
        }
    }
}

/// Returns the reason alone where the headline ("the store cannot be reached") adds nothing.
pub(crate) fn store_error_message(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(reason) | StoreError::InUse(reason) => reason.clone(),
        other => other.to_string(),
    }
}
