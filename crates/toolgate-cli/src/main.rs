//! The `toolgate` program: parse, run, say what went wrong.

mod catalog;
mod cli;
mod clock;
mod commands;
mod compose;
mod config;
mod demo;
mod install;
mod log;
mod observe;
mod pack;
mod serve;
mod source;
mod watch;
mod welcome;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command, Serve};

/// Why the program did not do what it was asked to. Each has an exit code of its own.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something failed while it ran.
    Run(String),
    /// The command line makes no sense.
    Usage(String),
    /// The configuration is wrong.
    Config(String),
    /// The tool that was called failed. It has said so already.
    Tool,
}

impl From<toolgate::Error> for Failure {
    fn from(error: toolgate::Error) -> Failure {
        Failure::Run(error.to_string())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // The first to ask is when it began.
    let _ = clock::birth();
    let cli = Cli::parse();
    log::start(cli.log_format, cli.log_level);
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Run(said)) => complain(&said, 1),
        Err(Failure::Usage(said)) => complain(&said, 2),
        Err(Failure::Config(said)) => {
            eprint!("{said}");
            ExitCode::from(3)
        }
        Err(Failure::Tool) => ExitCode::from(4),
    }
}

fn complain(said: &str, code: u8) -> ExitCode {
    eprintln!("toolgate: {said}");
    ExitCode::from(code)
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let format = cli.log_format;
    match cli.command.unwrap_or(Command::Serve(Serve { file: None, listen: cli.listen })) {
        Command::Serve(Serve { file: Some(file), listen }) => serve::http(&file, listen, format).await,
        Command::Serve(Serve { file: None, listen }) => demo(listen).await,
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

async fn demo(listen: Option<String>) -> Result<(), Failure> {
    let server = demo::server()?;
    let listener = bind(listen.as_deref().unwrap_or("127.0.0.1:8080")).await.map_err(Failure::Run)?;
    let address = listener.local_addr().map_err(|error| Failure::Run(error.to_string()))?;
    tokio::select! {
        biased;
        served = server.serve(listener) => Ok(served?),
        // Polled after the serving: whoever reads that we serve may ask us to end at once.
        () = async { welcome::print(address); std::future::pending().await } => Ok(()),
    }
}

pub(crate) async fn bind(address: &str) -> Result<tokio::net::TcpListener, String> {
    listen(address).await.map_err(|error| not_bound(address, &error))
}

pub(crate) async fn listen(address: &str) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await
}

pub(crate) fn not_bound(address: &str, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => "; choose another one, for example `--listen 127.0.0.1:0`",
        std::io::ErrorKind::InvalidInput => "; an address looks like `127.0.0.1:8080`",
        _ => "",
    };
    format!("cannot listen on {address}: {error}{hint}")
}
