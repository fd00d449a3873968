//! The `toolgate` program: parses the command line, runs the command, and reports errors.

mod banner;
mod build;
mod catalog;
mod cli;
mod clock;
mod commands;
mod config;
mod demo;
mod file_watcher;
mod install;
mod log;
mod observe;
mod pack;
mod serve;
mod sync;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command, Serve};

/// Why a command failed. Each variant has its own exit code.
#[derive(Debug)]
pub(crate) enum CliError {
    /// An error while running.
    Run(String),
    /// An invalid command line.
    Usage(String),
    /// An invalid configuration; the text is the report of its problems.
    Config(String),
    /// The tool that was called failed; its output has been printed.
    Tool,
}

impl From<toolgate::Error> for CliError {
    fn from(error: toolgate::Error) -> CliError {
        CliError::Run(error.to_string())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // The first call sets the start time.
    let _ = clock::process_start();
    let cli = Cli::parse();
    log::init(cli.log_format, cli.log_level);
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::Run(message)) => print_error(&message, 1),
        Err(CliError::Usage(message)) => print_error(&message, 2),
        Err(CliError::Config(report)) => {
            eprint!("{report}");
            ExitCode::from(3)
        }
        Err(CliError::Tool) => ExitCode::from(4),
    }
}

fn print_error(message: &str, code: u8) -> ExitCode {
    eprintln!("toolgate: {message}");
    ExitCode::from(code)
}

async fn run(cli: Cli) -> Result<(), CliError> {
    let format = cli.log_format;
    match cli.command.unwrap_or(Command::Serve(Serve { file: None, listen: cli.listen })) {
        Command::Serve(Serve { file: Some(file), listen }) => serve::http(&file, listen, format).await,
        Command::Serve(Serve { file: None, listen }) => serve_demo(listen).await,
        Command::Stdio { file: Some(file), server } => serve::stdio(&file, server.as_deref()).await,
        Command::Stdio { file: None, .. } => Ok(demo::server()?.serve_stdio().await?),
        Command::Check { file, live } => commands::check(&file, live).await,
        Command::Init { file } => commands::init(&file),
        Command::Explain { file, name } => commands::explain(&file, &name).await,
        Command::Tools { file, json, server } => commands::tools(&file, json, server.as_deref()).await,
        Command::Call { file, name, arguments, json } => commands::call(&file, &name, &arguments, json).await,
        Command::Schema => commands::print(&config::schema::text()),
        Command::Reference => commands::print(&config::reference::text()),
        Command::Completions { shell } => commands::completions(shell),
        Command::Install(install) => install::install(&install).await,
        Command::HashPassword => commands::hash_password(),
    }
}

async fn serve_demo(listen: Option<String>) -> Result<(), CliError> {
    let server = demo::server()?;
    let listener = bind(listen.as_deref().unwrap_or(&config::Listen::default().http)).await?;
    let address = listener.local_addr().map_err(|error| CliError::Run(error.to_string()))?;
    tokio::select! {
        biased;
        served = server.serve(listener) => Ok(served?),
        // Polled after `serve`, because a reader of the banner may connect or stop the program at once.
        () = async { banner::print(address); std::future::pending().await } => Ok(()),
    }
}

pub(crate) async fn bind(address: &str) -> Result<tokio::net::TcpListener, CliError> {
    let bound = tokio::net::TcpListener::bind(address).await;
    bound.map_err(|error| CliError::Run(bind_error_message(address, &error)))
}

pub(crate) fn bind_error_message(address: &str, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => "; choose another address, for example `--listen 127.0.0.1:0`",
        std::io::ErrorKind::InvalidInput => "; use an address and a port, such as `127.0.0.1:8080`",
        _ => "",
    };
    format!("cannot listen on {address}: {error}{hint}")
}
