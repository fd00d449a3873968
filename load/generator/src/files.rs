//! Open files: every connection is one here and one in the server, and a limit that is too low says nothing useful.

use std::fs;
use std::process::{Command, Stdio};

use crate::BoxError;

/// What both processes have open besides connections.
const SPARE_FILES: usize = 64;
/// What a server on the loopback address can be reached from, minus those that others use.
const MAX_CONNECTIONS: usize = 25_000;

/// Makes room for so many connections, here and in the server that is started later, or says what is missing.
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
        // Everybody may raise their own limit up to the hard one; the server inherits it.
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

/// The limits of this process; where nobody tells, there are none.
fn limits() -> (usize, usize) {
    let told = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    parse_limits(&told).unwrap_or((usize::MAX, usize::MAX))
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
        let told = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 unlimited            files\n";
        assert_eq!(parse_limits(told), Some((1024, usize::MAX)));
        assert_eq!(parse_limits("nothing of the kind"), None);
    }

    #[test]
    fn too_many_are_refused_in_words() {
        assert!(raise_file_limit(MAX_CONNECTIONS + 1).is_err());
    }
}
