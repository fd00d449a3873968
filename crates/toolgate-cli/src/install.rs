//! Prints or writes the settings with which clients use a configuration.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
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
///
/// Some of these files are in the working directory, which may be a repository of somebody else. So no link is followed,
/// no existing file but the configuration is replaced, and new files are readable by their owner only.
fn write_client_config(client: Client, path: &Path, servers: Map<String, Value>) -> Result<(), CliError> {
    let cannot = |what: &str, error: &dyn std::fmt::Display| {
        CliError::Run(format!("cannot {what} {}: {error}", path.display()))
    };
    if let Some(link) = find_link(path) {
        let reason = format!(
            "{} is a symbolic link. Without `--write`, the entry is printed; add it to the right file yourself",
            link.display()
        );
        return Err(cannot("write", &reason));
    }
    let old = match fs::read_to_string(path) {
        Ok(text) => Some((text, fs::metadata(path).map_err(|error| cannot("read", &error))?.permissions())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot("read", &error)),
    };
    let mut settings: Value = match old.as_ref().map(|(text, _)| text.trim()) {
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
    if let Some((old_text, _)) = &old {
        let backup = write_backup(path, old_text).map_err(|error| cannot("copy", &error))?;
        backup_note = format!("the previous version is {}\n", backup.display());
    } else if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| cannot("write", &error))?;
    }
    let permissions = old.map(|(_, permissions)| permissions);
    replace_file(path, &format!("{settings:#}\n"), permissions).map_err(|error| cannot("write", &error))?;
    print(&format!("Wrote {}\n{backup_note}", path.display()))
}

/// Returns the symbolic link that `path` would follow: itself, or a directory below the working directory. Links above
/// belong to the user.
fn find_link(path: &Path) -> Option<&Path> {
    let is_link = |path: &&Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let n_own = if path.is_relative() { usize::MAX } else { 1 };
    path.ancestors().take(n_own).find(is_link)
}

/// Writes a file of the next unused name beside `path`, and returns its path.
fn write_backup(path: &Path, text: &str) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut n = 1;
    loop {
        let backup = path.with_file_name(format!("{name}.bak{n}"));
        match create_private(&backup) {
            Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| backup),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Replaces a file in one step, so that a client never reads a partial one. The name of the temporary file cannot be
/// guessed.
fn replace_file(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let temporary = path.with_extension(format!("toolgate-{:016x}", u64::from_ne_bytes(random)));
    let mut file = create_private(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| {
        permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Creates a file that only its owner may read. Fails if anything has this name, a link too.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it exists").permissions().mode() & 0o777
    }

    fn servers() -> Map<String, Value> {
        Map::from_iter([("shop".into(), json!({ "type": "http", "url": "http://127.0.0.1:8080/mcp" }))])
    }

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("toolgate-install-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    #[test]
    fn links_are_not_followed() {
        let directory = directory("links");
        let profile = directory.join("profile");
        fs::write(&profile, "{}").unwrap();
        let path = directory.join("mcp.json");
        symlink(&profile, &path).unwrap();
        let error = write_client_config(Client::Vscode, &path, servers()).unwrap_err();
        assert!(matches!(&error, CliError::Run(message) if message.contains("symbolic link")), "{error:?}");
        assert_eq!(fs::read_to_string(&profile).unwrap(), "{}");
        assert!(path.is_symlink());

        // Names that could be guessed: of the temporary file and of the backup.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "{}").unwrap();
        for name in ["mcp.toolgate-new", "mcp.json.bak1"] {
            symlink(&profile, directory.join(name)).unwrap();
        }
        write_client_config(Client::Vscode, &path, servers()).unwrap();
        assert_eq!(fs::read_to_string(&profile).unwrap(), "{}");
        assert_eq!(fs::read_to_string(directory.join("mcp.json.bak2")).unwrap(), "{}");
    }

    #[test]
    fn modes_are_kept_and_new_files_are_private() {
        let directory = directory("modes");
        let new = directory.join("new.json");
        write_client_config(Client::Vscode, &new, servers()).unwrap();
        assert_eq!(mode(&new), 0o600);
        for kept in [0o600, 0o640, 0o644] {
            fs::set_permissions(&new, Permissions::from_mode(kept)).unwrap();
            write_client_config(Client::Vscode, &new, servers()).unwrap();
            assert_eq!(mode(&new), kept);
        }
        assert_eq!(mode(&directory.join("new.json.bak3")), 0o600);
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 4, "the file and three backups");
    }
}
