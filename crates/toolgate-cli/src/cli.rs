//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Serves tools, data and prompts to any MCP client, of any protocol revision.
///
/// Without a command it serves a small demo over HTTP and prints what to try next. With a configuration it serves what
/// that says: `toolgate init` writes one to begin with.
#[derive(Debug, Parser)]
#[command(
    name = "toolgate",
    version,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    after_help = "Begin here:\n  toolgate init                     writes toolgate.toml, with comments\n  toolgate check toolgate.toml      says everything that is wrong with it\n  toolgate serve toolgate.toml      serves it over HTTP, and again whenever it changes\n  toolgate install toolgate.toml    prints what a client needs to know\n\nExit codes:\n  0  all went well\n  1  something failed while it ran\n  2  the command line makes no sense\n  3  the configuration is wrong\n  4  the tool that was called failed"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// How the log on standard error looks
    #[arg(long, value_enum, global = true, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// How much is logged
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
    /// With FILE it serves that configuration, and serves it anew whenever the file changes or the process gets SIGHUP.
    /// What is wrong with a changed file is logged, and the old one stays.
    Serve(Serve),
    /// Serve one client over standard input and output
    ///
    /// This is what a client starts by itself. Nobody is asked who they are: whoever starts the program is the caller.
    Stdio {
        /// The configuration; without one, the demo
        file: Option<PathBuf>,
        /// Which of its servers, if there are several
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
    /// Say everything that is wrong with a configuration
    Check {
        /// The configuration
        file: PathBuf,
        /// Also look whether what it needs is there: the address, folders, connections
        #[arg(long)]
        live: bool,
    },
    /// Write a configuration to begin with
    Init {
        /// Where to; it must not be there yet
        #[arg(default_value = "toolgate.toml")]
        file: PathBuf,
    },
    /// Say what a tool, resource or prompt is, and where it comes from
    Explain {
        /// The configuration
        file: PathBuf,
        /// A name, a URI, or a server and a name: `shop.find_product`
        name: String,
    },
    /// List what a configuration offers
    Tools {
        /// The configuration
        file: PathBuf,
        /// As `tools/list` shows it
        #[arg(long)]
        json: bool,
        /// Only this server
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
    /// Call a tool once and print what it says
    Call {
        /// The configuration
        file: PathBuf,
        /// The tool; `shop.find_product` names the server too
        name: String,
        /// Its arguments, as JSON
        #[arg(default_value = "{}")]
        arguments: String,
        /// The whole result, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of configurations, for editors
    Schema,
    /// Print the reference of every key, as Markdown
    Reference,
    /// Print what a shell needs to complete this command line
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print, or write, what clients need to know to use a configuration
    Install(Install),
    /// Read a password from standard input and print its Argon2 hash, for `[auth]`
    HashPassword,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The configuration; without one, the demo
    pub(crate) file: Option<PathBuf>,
    /// Where to listen, instead of where the configuration says; port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// The configuration
    pub(crate) file: PathBuf,
    /// For which client
    #[arg(long, value_enum)]
    pub(crate) client: Option<Client>,
    /// Which of its servers; all of them unless said
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Clients connect over HTTP, instead of starting the program themselves
    #[arg(long)]
    pub(crate) http: bool,
    /// Print it (the default)
    #[arg(long, conflicts_with = "write")]
    pub(crate) print: bool,
    /// Write it into the client's own file, and keep a copy of that
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
