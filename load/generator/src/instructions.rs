//! User-space instructions per request: the server runs under callgrind with few and with many requests, and the
//! difference does not include start-up and shutdown.

use std::path::Path;

use crate::load::{Load, StopCondition};
use crate::options::Options;
use crate::server::{Server, pinned_command};
use crate::workload::Workload;
use crate::{BoxError, Figures};

const FEW_REQUESTS: u64 = 300;
const MANY_REQUESTS: u64 = 1300;

pub(crate) fn measure(options: &Options, workload: Workload) -> Result<Figures, BoxError> {
    let file = std::env::temp_dir().join(format!("callgrind.{}", std::process::id()));
    let few = count(options, workload, &file, FEW_REQUESTS);
    let many = few.and_then(|few| Ok((few, count(options, workload, &file, MANY_REQUESTS)?)));
    if let Some(keep) = &options.profile_file {
        std::fs::copy(&file, keep)?;
    }
    let _ = std::fs::remove_file(&file);
    let (few, many) = many?;
    Ok(vec![
        ("instructions".into(), (many - few) / (MANY_REQUESTS - FEW_REQUESTS) as f64),
        ("total".into(), many),
    ])
}

fn count(options: &Options, workload: Workload, file: &Path, n_requests: u64) -> Result<f64, BoxError> {
    let mut command = vec![
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--callgrind-out-file={}", file.display()),
    ];
    command.extend_from_slice(&options.command);
    // On one core, a server that sizes its runtime by the number of cores starts one worker.
    let server = Server::start_with(pinned_command(&options.server_cores, &command))?;
    let mut load = Load::open(&server, workload, options.n_connections)?;
    load.run_until(StopCondition::Count(n_requests))?;
    if load.n_failed > 0 {
        return Err(format!("{} of {n_requests} responses were invalid", load.n_failed).into());
    }
    drop(load);
    server.finish()?;
    let profile = std::fs::read_to_string(file)?;
    let total =
        profile.lines().find_map(|line| line.strip_prefix("totals:")).ok_or("callgrind wrote no totals")?;
    Ok(total.trim().parse()?)
}
