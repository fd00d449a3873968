//! What can be typed.

use clap::{Args, Parser, Subcommand};

/// Serves tools, data and prompts to any MCP client, of any protocol revision.
///
/// Without a command it serves a small demo over HTTP and prints what to try next.
#[derive(Debug, Parser)]
#[command(name = "toolgate", version, disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve over HTTP (the default)
    Serve(Serve),
    /// Serve one client over standard input and output
    Stdio,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
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
        assert_eq!(plain.serve.listen, "127.0.0.1:1");
        let named = Cli::try_parse_from(["toolgate", "serve", "--listen", "127.0.0.1:2"]).unwrap();
        assert!(matches!(named.command, Some(Command::Serve(serve)) if serve.listen == "127.0.0.1:2"));
    }
}
