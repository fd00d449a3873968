//! Tests of whole configurations, called in process, with ordinary and hostile input.

// Helpers of tests may panic, too.
#![allow(clippy::unwrap_used)]

mod callers;
mod command;
mod community;
mod files;
mod packs;
mod reload;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use toolgate::Server;

use super::{BuiltServer, ServeMode, Upstreams, build_servers};
use crate::config;

/// A temporary folder that is removed when it is dropped.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> TempFolder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("toolgate-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempFolder(path.canonicalize().unwrap())
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build_config(folder: &TempFolder, text: &str, mode: ServeMode) -> Result<Vec<BuiltServer>, String> {
    let mut loaded = config::load_with_variables(&folder.write("test.toml", text), &|_| None);
    let servers = build_servers(
        &loaded.config,
        mode,
        &Arc::default(),
        &mut Upstreams::default(),
        &mut loaded.diagnostics,
    );
    match loaded.error_report() {
        None => Ok(servers),
        Some(report) => Err(report),
    }
}

/// The only server of a configuration.
fn server(folder: &TempFolder, text: &str) -> Server {
    match build_config(folder, text, ServeMode::Local) {
        Ok(mut servers) => servers.remove(0).server,
        Err(report) => panic!("{report}"),
    }
}

/// The text of a tool result, and whether it is an error.
async fn call(server: &Server, name: &str, arguments: Value) -> (String, bool) {
    let result = server.call_tool(name, arguments).await.unwrap();
    let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    (text, result["isError"] == json!(true))
}
