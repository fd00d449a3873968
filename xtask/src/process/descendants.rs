//! The descendants of a process, found while it runs and ended afterwards.
//!
//! A process whose parent has ended can no longer be found from its ancestor, so it has to be recorded before.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// The descendants seen so far. Those that still run are killed when this is dropped.
#[derive(Default)]
pub(super) struct Descendants {
    processes: BTreeSet<ProcessId>,
}

/// A process id with its start time, because the id may be reused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessId {
    pid: u32,
    start_time: String,
}

impl Descendants {
    /// Adds the children of a process, their children, and so on.
    pub(super) fn record(&mut self, ancestor: u32) {
        let all = list_processes();
        let mut parents = vec![ancestor];
        while let Some(parent) = parents.pop() {
            for (member, _) in all.iter().filter(|(_, of)| *of == parent) {
                parents.push(member.pid);
                self.processes.insert(member.clone());
            }
        }
    }
}

impl Drop for Descendants {
    fn drop(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let alive = list_processes();
        let alive = alive.iter().filter(|(member, _)| self.processes.contains(member));
        let pids = alive.map(|(member, _)| member.pid.to_string());
        signal("-KILL", pids.collect());
    }
}

/// Stops a process without ending it.
pub(super) fn stop(pid: u32) {
    signal("-STOP", vec![pid.to_string()]);
}

fn signal(signal: &str, pids: Vec<String>) {
    if pids.is_empty() || cfg!(not(unix)) {
        return;
    }
    // `kill` is built into the shell; not every machine has the program. It fails if the processes have ended.
    let _ = Command::new("sh")
        .args(["-c", "kill \"$@\"", "kill", signal])
        .args(pids)
        .stderr(Stdio::null())
        .status();
}

/// All processes with their parents: from `/proc`, or from `ps` without it.
fn list_processes() -> Vec<(ProcessId, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        let columns = ["-A", "-o", "pid=,ppid=,lstart="];
        let listed = Command::new("ps").args(columns).output();
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        return listed.lines().filter_map(parse_ps).collect();
    };
    let stats = entries.flatten().map(|entry| entry.path().join("stat"));
    let stats = stats.filter_map(|path| fs::read_to_string(path).ok());
    stats.filter_map(|stat| parse_stat(&stat)).collect()
}

fn parse_ps(line: &str) -> Option<(ProcessId, u32)> {
    let (pid, rest) = line.trim_start().split_once(' ')?;
    let (parent, born) = rest.trim_start().split_once(' ')?;
    let born = born.trim().to_owned();
    let pid = pid.parse().ok()?;
    Some((ProcessId { pid, start_time: born }, parent.parse().ok()?))
}

/// `pid (name) state ppid …`, where the name may contain anything, and field 22 is the start time.
fn parse_stat(stat: &str) -> Option<(ProcessId, u32)> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // A zombie has ended, but its parent has not read its status yet.
    if fields.first() == Some(&"Z") {
        return None;
    }
    let born = (*fields.get(19)?).to_owned();
    Some((ProcessId { pid, start_time: born }, fields.get(1)?.parse().ok()?))
}

#[cfg(test)]
pub(super) fn is_running(pid: u32) -> bool {
    list_processes().iter().any(|(member, _)| member.pid == pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: Option<(ProcessId, u32)>, pid: u32, parent: u32, born: &str) {
        let (member, of) = read.unwrap();
        assert_eq!((member.pid, of, member.start_time.as_str()), (pid, parent, born));
    }

    #[test]
    fn both_listings_are_read() {
        let stat = "12 (a) b) S 7 12 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 8899 1 1";
        check(parse_stat(stat), 12, 7, "8899");
        let ps = "   12     7 Sat Jan 31 10:20:30 2026    ";
        check(parse_ps(ps), 12, 7, "Sat Jan 31 10:20:30 2026");
    }
}
