//! The `toolgate` program: parse, run, say what went wrong.

mod cli;
mod demo;
mod log;
#[allow(dead_code, reason = "wired by compose")]
mod source;
mod welcome;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start();
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toolgate: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<(), Box<dyn std::error::Error>> {
    let server = demo::server()?;
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Stdio => server.serve_stdio().await?,
        Command::Serve(serve) => {
            let listener = bind(&serve.listen).await?;
            hear_signals();
            welcome::print(listener.local_addr()?);
            server.serve(listener).await?;
        }
    }
    Ok(())
}

/// Whoever reads that we serve may ask us to end at once: from here on that is heard, and the server drains.
#[cfg(unix)]
fn hear_signals() {
    use tokio::signal::unix::{SignalKind, signal};
    // What cannot be heard ends the process as it always did.
    let _ = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
}

#[cfg(not(unix))]
fn hear_signals() {}

async fn bind(address: &str) -> Result<tokio::net::TcpListener, String> {
    tokio::net::TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; choose another one, for example `--listen 127.0.0.1:0`",
            std::io::ErrorKind::InvalidInput => "; an address looks like `127.0.0.1:8080`",
            _ => "",
        };
        format!("cannot listen on {address}: {error}{hint}")
    })
}
