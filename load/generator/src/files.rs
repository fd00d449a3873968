//! The limit of open files. Every connection is an open file here and in the server, and the errors caused by a limit
//! that is too low do not mention it.

use std::fs;
use std::process::{Command, Stdio};

use crate::BoxError;

/// Files that a process has open besides connections.
const SPARE_FILES: usize = 64;
/// Ports from which one address can be reached, minus those that other programs use.
const MAX_CONNECTIONS: usize = 25_000;

/// Raises the limit for this many connections, for this process and for the server that it starts later.
pub(crate) fn raise_file_limit(n_connections: usize) -> Result<(), BoxError> {
    if n_connections > MAX_CONNECTIONS {
        return Err(
            format!("{n_connections} connections to one address are more than it has ports for").into()
        );
    }
    let needed = n_connections + SPARE_FILES;
    let (soft, hard) = limits();
    if soft >= needed {
        return Ok(());
    }
    if hard >= needed {
        // A process may raise its own limit up to the hard one; the server inherits it.
        let pid = std::process::id().to_string();
        let mut raise = Command::new("prlimit");
        raise.args(["--pid", &pid, &format!("--nofile={hard}:{hard}")]);
        let _ = raise.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    match limits().0 {
        soft if soft >= needed => Ok(()),
        soft => Err(format!(
            "{n_connections} connections need {needed} open files here and as many in the server, and the limit is \
             {soft} (at most {hard}): raise it with `ulimit -n {needed}`, as root `ulimit -Hn {needed}` before"
        )
        .into()),
    }
}

/// The soft and the hard limit of this process; no limit if the system does not report it.
fn limits() -> (usize, usize) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    parse_limits(&limits).unwrap_or((usize::MAX, usize::MAX))
}

fn parse_limits(limits: &str) -> Option<(usize, usize)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace();
    let mut number = || match words.next()? {
        "unlimited" => Some(usize::MAX),
        word => word.parse().ok(),
    };
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 unlimited            files\n";
        assert_eq!(parse_limits(limits), Some((1024, usize::MAX)));
        assert_eq!(parse_limits("no such line"), None);
    }

    #[test]
    fn too_many_connections_are_an_error() {
        assert!(raise_file_limit(MAX_CONNECTIONS + 1).is_err());
    }
}
