//! The load generator of the benchmarks: starts a server on its own core, drives it from another, reports one line.
//!
//! Every mode starts the program after `--` with `--listen 127.0.0.1:0` (or `--stdio`) added, checks every answer,
//! prints one JSON object with numbers, and ends the server. Nothing leaves the machine, and every run has an end.

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

/// What a mode found: names and numbers.
pub(crate) type Figures = Vec<(Cow<'static, str>, f64)>;

/// What went wrong, for the one who started the run.
pub(crate) type BoxError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(figures) => {
            println!("{}", json(&figures));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Figures, BoxError> {
    // A start is measured where it happens: anywhere.
    if !matches!(options.mode, Mode::Start) {
        server::pin_self(&options.own_cores);
    }
    files::raise_file_limit(options.max_open_connections())?;
    match &options.mode {
        Mode::Http(workload) => load::measure(options, *workload),
        Mode::Soak => soak::measure(options),
        Mode::Stdio(message) => stdio::measure(options, *message),
        Mode::Sessions => memory::sessions(options),
        Mode::Streams(era) => memory::streams(options, *era),
        Mode::Connections => memory::connections(options),
        Mode::Start => start::measure(options),
        Mode::Instructions(workload) => instructions::measure(options, *workload),
    }
}

fn json(figures: &Figures) -> String {
    let fields: Vec<String> = figures.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}
