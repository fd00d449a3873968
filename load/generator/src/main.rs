//! The load generator of the benchmarks: starts a server on one core, drives it from another, prints one JSON object.
//!
//! Every mode starts the program after `--` with `--listen 127.0.0.1:0` (or `--stdio`) added, checks every response,
//! prints its figures, and stops the server. All traffic stays on this machine, and every run ends by itself.

mod client;
mod cpu;
mod files;
mod histogram;
mod instructions;
mod load;
mod memory;
mod options;
mod response;
mod server;
mod soak;
mod start;
mod stdio;
mod text;
mod workload;

use std::borrow::Cow;
use std::process::ExitCode;

use crate::options::{Mode, Options};

/// The figures of a mode, by name.
pub(crate) type Figures = Vec<(Cow<'static, str>, f64)>;

/// Any error, to be printed.
pub(crate) type BoxError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(figures) => {
            println!("{}", json(&figures));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Figures, BoxError> {
    // A start is measured on any core, as users start a server.
    if !matches!(options.mode, Mode::Start) {
        server::pin_self(&options.own_cores);
    }
    files::raise_file_limit(options.max_open_connections())?;
    match &options.mode {
        Mode::Http(workload) => load::measure(options, *workload),
        Mode::Soak => soak::measure(options),
        Mode::Stdio(message) => stdio::measure(options, *message),
        Mode::Sessions => memory::sessions(options),
        Mode::Streams(protocol) => memory::streams(options, *protocol),
        Mode::Connections => memory::connections(options),
        Mode::Start => start::measure(options),
        Mode::Instructions(workload) => instructions::measure(options, *workload),
    }
}

fn json(figures: &Figures) -> String {
    let fields: Vec<String> = figures.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}
