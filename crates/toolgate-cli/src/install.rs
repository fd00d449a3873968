//! Prints or writes the settings with which clients use a configuration.

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

    /// The key of the servers in its configuration file.
    fn servers_key(self) -> &'static str {
        if self == Client::Vscode { "servers" } else { "mcpServers" }
    }

    /// Its configuration file, below the home or the working directory.
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

pub(crate) async fn install(options: &Install) -> Result<(), CliError> {
    let crate::serve::PreparedServers { loaded, servers: prepared, .. } =
        prepare(&options.file, ServeMode::Http).await?;
    let file = std::path::absolute(&options.file).map_err(|error| CliError::Run(error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| CliError::Run(error.to_string()))?;
    let selected: Vec<&crate::build::BuiltServer> = match &options.server {
        Some(name) => vec![select_server(&prepared, Some(name))?],
        None => prepared.iter().collect(),
    };
    let mut servers = Map::new();
    for built in selected {
        let config = &built.config;
        let base = match &config.settings.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", loaded.config.listen.http),
        };
        let entry = match (options.http, config.settings.has_auth()) {
            (true, false) => json!({ "type": "http", "url": format!("{base}{}", config.path) }),
            (true, true) => json!({
                "type": "http",
                "url": format!("{base}{}", config.path),
                "headers": { "Authorization": "Bearer YOUR-TOKEN" },
            }),
            (false, _) => json!({
                "type": "stdio",
                "command": program,
                "args": ["stdio", file, "--server", config.name],
            }),
        };
        servers.insert(config.name.clone(), entry);
    }
    let home = std::env::home_dir().unwrap_or_default();
    match (options.write, options.client) {
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

/// Adds servers to the configuration file of a client. Other settings stay, and the old file is kept as a backup.
fn write_client_config(client: Client, path: &Path, servers: Map<String, Value>) -> Result<(), CliError> {
    let cannot = |what: &str, error: &dyn std::fmt::Display| {
        CliError::Run(format!("cannot {what} {}: {error}", path.display()))
    };
    let old_text = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot("read", &error)),
    };
    let mut settings: Value = match old_text.as_deref().map(str::trim) {
        None | Some("") => json!({}),
        Some(text) => serde_json::from_str(text).map_err(|error| cannot("parse", &error))?,
    };
    let Some(root) = settings.as_object_mut() else {
        return Err(cannot("parse", &"it is not a JSON object"));
    };
    let client_servers = root.entry(client.servers_key()).or_insert_with(|| json!({}));
    let Some(client_servers) = client_servers.as_object_mut() else {
        return Err(cannot("parse", &format!("`{}` is not a JSON object", client.servers_key())));
    };
    client_servers.extend(servers);
    let mut backup_note = String::new();
    if let Some(old_text) = old_text {
        let backup = backup_path(path);
        std::fs::write(&backup, old_text).map_err(|error| cannot("copy", &error))?;
        backup_note = format!("the previous version is {}\n", backup.display());
    } else if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| cannot("write", &error))?;
    }
    // Written to a temporary file and renamed, so that a client never reads a partial file.
    let temporary = path.with_extension("toolgate-new");
    std::fs::write(&temporary, format!("{settings:#}\n")).map_err(|error| cannot("write", &error))?;
    std::fs::rename(&temporary, path).map_err(|error| cannot("write", &error))?;
    print(&format!("Wrote {}\n{backup_note}", path.display()))
}

/// The first unused path for a backup.
fn backup_path(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names = (1..).map(|n| path.with_file_name(format!("{name}.bak{n}")));
    { names }.find(|backup| !backup.exists()).unwrap_or_else(|| path.with_extension("bak"))
}
