//! Drives a server with `compare/client.py`, once as a client of the handshake and once as a client of the newest protocol
//! version, and collects the steps that fail.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::contender::{Prepared, read};
use crate::Workspace;
use crate::install;
use crate::interop::parse_steps;
use crate::process;

const CLIENT_TIMEOUT: Duration = Duration::from_secs(180);

/// The arguments of the client script, and the protocol versions that they lead to.
pub(super) const CLIENTS: [(&str, &str); 2] = [("legacy", "2025-11-25"), ("auto", "2026-07-28")];

/// The official Python client with our script.
pub(super) struct Client {
    python: PathBuf,
    /// The steps of the script, in order.
    steps: Vec<String>,
}

/// What a server does.
pub(super) struct Behavior {
    /// For each of [`CLIENTS`], the steps with the reason why one failed.
    runs: Vec<Vec<(String, Result<(), String>)>>,
}

impl Behavior {
    /// The numbers of steps that pass, and of all steps, with one of [`CLIENTS`].
    pub(super) fn counts(&self, client: usize) -> (usize, usize) {
        let steps = self.runs.get(client).map(Vec::as_slice).unwrap_or_default();
        (steps.iter().filter(|(_, outcome)| outcome.is_ok()).count(), steps.len())
    }

    /// The protocol version, the step and the reason of each failure.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&'static str, &str, &str)> {
        let runs = CLIENTS.iter().zip(&self.runs);
        runs.flat_map(|((_, version), steps)| {
            steps.iter().filter_map(move |(step, outcome)| {
                outcome.as_ref().err().map(|reason| (*version, step.as_str(), reason.as_str()))
            })
        })
    }
}

impl Client {
    /// Installs the packages of the interop drivers, in the same place as they do.
    pub(super) fn install(workspace: &Workspace) -> Result<Self, String> {
        let requirements = read(&workspace.root.join("interop/python/requirements.txt"))?;
        let python = install::python(&workspace.work_dir.join("interop/python"), &requirements)?;
        let steps = script_steps(&read(&workspace.root.join("compare/client.py"))?);
        Ok(Self { python, steps })
    }

    /// Runs all steps with each of [`CLIENTS`], and prints them.
    pub(super) fn check(&self, workspace: &Workspace, server: &Prepared) -> Result<Behavior, String> {
        let mut runs = Vec::new();
        for (argument, version) in CLIENTS {
            let mut command = Command::new(&self.python);
            command.arg("compare/client.py").arg(argument).args(&server.command).current_dir(&workspace.root);
            command.env("PYTHONPATH", "interop/python").env("PYTHONDONTWRITEBYTECODE", "1");
            let finished = process::run_with_descendants(&mut command, CLIENT_TIMEOUT)
                .map_err(|error| format!("cannot start the client: {error}"))?;
            let mut reported = parse_steps(&finished.stdout);
            let mut steps = Vec::new();
            for step in &self.steps {
                let outcome = reported.remove(step).unwrap_or_else(|| Err("not reported".to_owned()));
                steps.push((step.clone(), outcome));
            }
            // A failure outside of the steps.
            steps.extend(reported);
            for (step, outcome) in &steps {
                match outcome {
                    Ok(()) => println!("ok   {version}: {step}"),
                    Err(reason) => println!("fail {version}: {step}: {reason}"),
                }
            }
            runs.push(steps);
        }
        Ok(Behavior { runs })
    }
}

/// The names of the steps that the script runs.
fn script_steps(script: &str) -> Vec<String> {
    let steps = script.lines().filter_map(|line| line.trim().strip_prefix("await steps.step(\""));
    steps.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_the_script() {
        let script = "async def check():\n    await steps.step(\"connect\", connect)\n    await steps.step(\"a, b\", a)\n";
        assert_eq!(script_steps(script), ["connect", "a, b"]);
        let steps = script_steps(&read(&Workspace::find().root.join("compare/client.py")).unwrap());
        assert!(steps.len() > 10, "{steps:?}");
    }
}
