//! What state costs: tasks per second for each store, memory per idle session and per open listener at 10,000 of each.

use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::Places;
use crate::bench::contender;
use crate::bench::profile::Profile;
use crate::process::{self, Show};
use crate::redis;
use crate::rust;

const LIMIT: Duration = Duration::from_secs(20 * 60);

/// What the generator opens and leaves open.
const MEMORY: [&[&str]; 3] = [
    &["sessions", "--count", "10000"],
    &["streams", "2026", "--count", "9000"],
    &["streams", "2025", "--count", "9000"],
];

pub(crate) fn run(places: &Places) -> ExitCode {
    match tasks(places).and_then(|()| memory(places)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("state: {why}");
            ExitCode::FAILURE
        }
    }
}

fn tasks(places: &Places) -> Result<(), String> {
    let mut bench = rust::cargo(places);
    bench.args(["bench", "--package", "toolgate", "--bench", "state", "--features", "redb,redis"]);
    let redis = redis::start(places);
    match &redis {
        Ok(redis) => drop(bench.env(redis::ADDRESS, &redis.url)),
        Err(why) => println!("without Redis: {why}"),
    }
    shown(&mut bench)
}

/// The generator says itself what it found: how many were opened and refused, and bytes of the server for each.
fn memory(places: &Places) -> Result<(), String> {
    let (generator, server) = (contender::generator(places)?, contender::ours(places, Profile::Tuned)?);
    for what in MEMORY {
        println!("{}", what.join(" "));
        shown(Command::new(&generator).args(what).arg("--").arg(&server))?;
    }
    Ok(())
}

fn shown(command: &mut Command) -> Result<(), String> {
    let finished = process::run(command, LIMIT, Show::Live).map_err(|error| error.to_string())?;
    if finished.success() { Ok(()) } else { Err(finished.why()) }
}
