//! What clients need to know: the lines for their own files, printed or written.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::CliError;
use crate::build::ServeMode;
use crate::cli::{Client, Install};
use crate::commands::print;
use crate::serve::{prepare, select_server};

impl Client {
    const ALL: [Client; 4] = [Client::ClaudeDesktop, Client::ClaudeCode, Client::Cursor, Client::Vscode];

    fn display_name(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "Claude Desktop",
            Client::ClaudeCode => "Claude Code",
            Client::Cursor => "Cursor",
            Client::Vscode => "VS Code",
        }
    }

    /// The key below which it keeps servers.
    fn servers_key(self) -> &'static str {
        if self == Client::Vscode { "servers" } else { "mcpServers" }
    }

    /// Its file, below the home or where the program is called.
    fn config_path(self, home: &Path) -> PathBuf {
        match self {
            Client::ClaudeDesktop if cfg!(target_os = "macos") => {
                home.join("Library/Application Support/Claude/claude_desktop_config.json")
            }
            Client::ClaudeDesktop if cfg!(windows) => {
                home.join("AppData/Roaming/Claude/claude_desktop_config.json")
            }
            Client::ClaudeDesktop => home.join(".config/Claude/claude_desktop_config.json"),
            Client::ClaudeCode => PathBuf::from(".mcp.json"),
            Client::Cursor => home.join(".cursor/mcp.json"),
            Client::Vscode => PathBuf::from(".vscode/mcp.json"),
        }
    }
}

pub(crate) async fn install(wish: &Install) -> Result<(), CliError> {
    let crate::serve::PreparedServers { loaded, servers: composed, .. } =
        prepare(&wish.file, ServeMode::Http).await?;
    let file = std::path::absolute(&wish.file).map_err(|error| CliError::Run(error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| CliError::Run(error.to_string()))?;
    let chosen: Vec<&crate::build::BuiltServer> = match &wish.server {
        Some(name) => vec![select_server(&composed, Some(name))?],
        None => composed.iter().collect(),
    };
    let mut servers = Map::new();
    for made in chosen {
        let about = &made.config;
        let base = match &about.settings.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", loaded.config.listen.http),
        };
        let entry = match (wish.http, about.settings.has_auth()) {
            (true, false) => json!({ "type": "http", "url": format!("{base}{}", about.path) }),
            (true, true) => json!({
                "type": "http",
                "url": format!("{base}{}", about.path),
                "headers": { "Authorization": "Bearer YOUR-TOKEN" },
            }),
            (false, _) => json!({
                "type": "stdio",
                "command": program,
                "args": ["stdio", file, "--server", about.name],
            }),
        };
        servers.insert(about.name.clone(), entry);
    }
    let home = std::env::home_dir().unwrap_or_default();
    match (wish.write, wish.client) {
        (true, Some(client)) => write_client_config(client, &client.config_path(&home), servers),
        (_, Some(client)) => print(&render_snippet(client, &home, &servers)),
        (_, None) => {
            let all: Vec<String> = Client::ALL.map(|client| render_snippet(client, &home, &servers)).into();
            print(&all.join("\n"))
        }
    }
}

fn render_snippet(client: Client, home: &Path, servers: &Map<String, Value>) -> String {
    let snippet = json!({ (client.servers_key()): servers });
    format!("# {}: {}\n{snippet:#}\n", client.display_name(), client.config_path(home).display())
}

/// Puts servers into a client's file. What else is in it stays, and so does a copy of how it was.
fn write_client_config(client: Client, path: &Path, servers: Map<String, Value>) -> Result<(), CliError> {
    let cannot = |what: &str, error: &dyn std::fmt::Display| {
        CliError::Run(format!("cannot {what} {}: {error}", path.display()))
    };
    let before = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot("read", &error)),
    };
    let mut whole: Value = match before.as_deref().map(str::trim) {
        None | Some("") => json!({}),
        Some(text) => serde_json::from_str(text).map_err(|error| cannot("parse", &error))?,
    };
    let Some(root) = whole.as_object_mut() else {
        return Err(cannot("parse", &"it is not a JSON object"));
    };
    let known = root.entry(client.servers_key()).or_insert_with(|| json!({}));
    let Some(known) = known.as_object_mut() else {
        return Err(cannot("parse", &format!("`{}` is not a JSON object", client.servers_key())));
    };
    known.extend(servers);
    let mut said = String::new();
    if let Some(before) = before {
        let copy = backup_path(path);
        std::fs::write(&copy, before).map_err(|error| cannot("copy", &error))?;
        said = format!("the previous version is {}\n", copy.display());
    } else if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| cannot("write", &error))?;
    }
    // Written beside it and then put in its place: a client that reads meanwhile finds one or the other.
    let beside = path.with_extension("toolgate-new");
    std::fs::write(&beside, format!("{whole:#}\n")).map_err(|error| cannot("write", &error))?;
    std::fs::rename(&beside, path).map_err(|error| cannot("write", &error))?;
    print(&format!("Wrote {}\n{said}", path.display()))
}

/// A name for a copy that nothing has yet.
fn backup_path(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names = (1..).map(|n| path.with_file_name(format!("{name}.bak{n}")));
    { names }.find(|copy| !copy.exists()).unwrap_or_else(|| path.with_extension("bak"))
}
