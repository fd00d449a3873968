//! The environment of a run: machine, date, versions.

use std::process::Command;
use std::time::{Duration, Instant};

use super::profile::Profile;
use crate::Workspace;
use crate::process::{self, OutputMode};

/// The lines of the report, and the load average before the run.
pub(crate) struct Environment {
    lines: Vec<String>,
    load_average: String,
    started: Instant,
}

impl Environment {
    pub(crate) fn collect(workspace: &Workspace, arguments: &[&str]) -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let model = file("/proc/cpuinfo");
        let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let model = model.map_or("an unknown processor", |(_, model)| model);
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let kernel = file("/proc/sys/kernel/osrelease");
        let profiles = Profile::ALL.map(|one| format!("{}: {}", one.name(), one.describe(&workspace.root)));
        let lines = vec![
            format!("date: {}", command_output(workspace, &["date", "-u", "+%Y-%m-%d %H:%M UTC"])),
            format!("command: `{}`", [&["cargo xtask bench"], arguments].concat().join(" ")),
            format!("machine: {n_cores} cores of {model}, Linux {}", kernel.trim()),
            format!("commit: {}", command_output(workspace, &["git", "describe", "--always", "--dirty"])),
            format!(
                "compiler: {}; {}",
                command_output(workspace, &["rustc", "--version"]),
                profiles.join("; ")
            ),
            format!("instructions counted by: {}", command_output(workspace, &["valgrind", "--version"])),
        ];
        Self { lines, load_average: load_average(), started: Instant::now() }
    }

    /// Returns the lines, with the duration and the load average before and after.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let minutes = self.started.elapsed().as_secs_f64() / 60.0;
        let line = format!(
            "took {minutes:.1} minutes; load average {} before, {} after",
            self.load_average,
            load_average()
        );
        self.lines.push(line);
        self.lines
    }
}

fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

fn command_output(workspace: &Workspace, command_line: &[&str]) -> String {
    let mut command = Command::new(command_line[0]);
    command.args(&command_line[1..]).current_dir(&workspace.root);
    let finished = process::run(&mut command, Duration::from_secs(10), OutputMode::Quiet);
    finished.map(|finished| finished.stdout.trim().to_owned()).unwrap_or_default()
}
