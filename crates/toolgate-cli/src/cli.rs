//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Serves tools, resources and prompts to MCP clients of any protocol version.
///
/// Without a command it serves a small demo over HTTP and prints what to try next. `toolgate init` writes a starter
/// configuration, and `toolgate serve` serves it.
#[derive(Debug, Parser)]
#[command(
    name = "toolgate",
    version,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    after_help = "Getting started:\n  toolgate init                     write a commented toolgate.toml\n  toolgate check toolgate.toml      report all errors in it\n  toolgate serve toolgate.toml      serve it over HTTP, and reload it when it changes\n  toolgate install toolgate.toml    print the settings for clients\n\nExit codes:\n  0  success\n  1  error while running\n  2  invalid command line\n  3  invalid configuration\n  4  the called tool failed"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Format of the log on standard error
    #[arg(long, value_enum, global = true, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Level of the log
    #[arg(long, value_enum, global = true, value_name = "LEVEL", default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve over HTTP (the default)
    ///
    /// With FILE it serves that configuration, and reloads it when the file changes or the process receives SIGHUP. If the
    /// changed file is invalid, the errors are logged and the old configuration stays in use.
    Serve(Serve),
    /// Serve one client over standard input and output
    ///
    /// Clients start this command themselves. Callers do not authenticate: the user who starts the program is the caller.
    Stdio {
        /// Configuration file; the demo if not given
        file: Option<PathBuf>,
        /// Server to serve, if there are several
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
    /// Report all errors in a configuration
    Check {
        /// Configuration file
        file: PathBuf,
        /// Also check that the address, the storage and all connections are available
        #[arg(long)]
        live: bool,
    },
    /// Write a starter configuration
    Init {
        /// File to write; it must not exist
        #[arg(default_value = "toolgate.toml")]
        file: PathBuf,
    },
    /// Show the definition of a tool, resource or prompt
    Explain {
        /// Configuration file
        file: PathBuf,
        /// Name or URI, or a server and a name: `shop.find_product`
        name: String,
    },
    /// List the tools, resources and prompts of a configuration
    Tools {
        /// Configuration file
        file: PathBuf,
        /// Print the tools as JSON, as in `tools/list`
        #[arg(long)]
        json: bool,
        /// Server to list; all if not given
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
    /// Call a tool once and print its result
    Call {
        /// Configuration file
        file: PathBuf,
        /// Name of the tool, or a server and a name: `shop.find_product`
        name: String,
        /// Arguments, as a JSON object
        #[arg(default_value = "{}")]
        arguments: String,
        /// Print the whole result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of configurations, for editors
    Schema,
    /// Print the configuration reference as Markdown
    Reference,
    /// Print a completion script for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print or write the settings with which clients use a configuration
    Install(Install),
    /// Read a password from standard input and print its Argon2 hash, for `[auth]`
    HashPassword,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Configuration file; the demo if not given
    pub(crate) file: Option<PathBuf>,
    /// Address to listen on, instead of `listen.http`; port 0 selects a free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// Configuration file
    pub(crate) file: PathBuf,
    /// Client; all if not given
    #[arg(long, value_enum)]
    pub(crate) client: Option<Client>,
    /// Server; all if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Connect over HTTP instead of starting the program
    #[arg(long)]
    pub(crate) http: bool,
    /// Print the settings (the default)
    #[arg(long, conflicts_with = "write")]
    pub(crate) print: bool,
    /// Write the settings into the client's configuration file, and keep a backup of it
    #[arg(long, requires = "client")]
    pub(crate) write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_address_can_stand_before_or_behind_the_command() {
        let plain = Cli::try_parse_from(["toolgate", "--listen", "127.0.0.1:1"]).unwrap();
        assert_eq!(plain.listen.as_deref(), Some("127.0.0.1:1"));
        let named = Cli::try_parse_from(["toolgate", "serve", "--listen", "127.0.0.1:2"]).unwrap();
        assert!(
            matches!(named.command, Some(Command::Serve(s)) if s.listen.as_deref() == Some("127.0.0.1:2"))
        );
    }
}
