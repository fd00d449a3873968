//! The machine of a run, and whether it was busy with something else.

use std::process::Command;
use std::time::Duration;

use crate::Workspace;
use crate::process::{self, OutputMode};

/// The machine as it was before the run.
pub(super) struct Machine {
    pub(super) description: String,
    n_cores: usize,
    /// `None` if the system does not report it.
    load_average: Option<f64>,
}

impl Machine {
    pub(super) fn describe(workspace: &Workspace) -> Self {
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut rustc = Command::new("rustc");
        rustc.arg("--version").current_dir(&workspace.root);
        let version = process::run(&mut rustc, Duration::from_secs(30), OutputMode::Quiet);
        let version = version.map(|finished| finished.stdout).unwrap_or_default();
        // Without the date of the compiler.
        let version = version.split(" (").next().unwrap_or_default();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load_average = load.split(' ').next().and_then(|average| average.parse().ok());
        Self { description: format!("{n_cores} cores, {}", version.trim()), n_cores, load_average }
    }

    /// A sentence for the reader if other programs took part of the machine.
    pub(super) fn warning(&self) -> Option<String> {
        let load = self.load_average.filter(|load| *load > self.n_cores as f64 / 2.0)?;
        Some(format!(
            "**Measured on a busy machine** (load average {load:.0} on {} cores): wall times and the start are too long.",
            self.n_cores
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_reported() {
        let machine = |load_average| Machine { description: String::new(), n_cores: 2, load_average };
        let warning = machine(Some(14.2)).warning().unwrap();
        assert!(warning.contains("load average 14 on 2 cores"), "{warning}");
        assert!(machine(Some(0.9)).warning().is_none() && machine(None).warning().is_none());
    }
}
