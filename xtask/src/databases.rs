//! The tests of SQL tools against real servers: a PostgreSQL and a MariaDB that live in a temporary directory, listen on
//! free ports of this machine, and end with the run.
//!
//! The programs are the system's; where they are missing, its package manager is asked for them. Neither server runs as
//! root: started by root, they run as the users that their packages make. A test may ask for a server to be killed and
//! started again by making the file that it was told of; the file is gone when the server is back.

mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use self::server::{DatabaseServer, MARIADB, POSTGRES};
use crate::Workspace;
use crate::report::Tally;
use crate::rust;

pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) {
    let home = match TempDir::create() {
        Ok(home) => home,
        Err(reason) => return tally.skip(&format!("databases: {reason}")),
    };
    let mut servers = Vec::new();
    for kind in [&POSTGRES, &MARIADB] {
        match DatabaseServer::start(kind, &home.0) {
            Ok(server) => servers.push(server),
            Err(reason) => tally.skip(&format!("{}: {reason}", kind.name)),
        }
    }
    let addresses: Vec<_> = servers.iter().map(|server| (server.kind.variable, server.address())).collect();
    rust::binary_tests(workspace, tally, "source::sql", &addresses);

    // These take the server away from everybody, so they run when nobody else does.
    let requests = servers.iter().map(|server| (server.kind.restart_variable, server.restart_file()));
    let requests: Vec<_> = requests.map(|(name, file)| (name, file.display().to_string())).collect();
    if requests.is_empty() {
        return;
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| handle_restart_requests(&mut servers, &over));
        let variables = [addresses, requests].concat();
        rust::binary_tests(workspace, tally, "a_server_that_was_killed", &variables);
        over.store(true, Ordering::Relaxed);
    });
}

/// Kills and starts servers as the tests wish.
fn handle_restart_requests(servers: &mut [DatabaseServer], over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        for server in &mut *servers {
            let file = server.restart_file();
            if file.exists() {
                if let Err(reason) = server.restart() {
                    println!("{}: {reason}", server.kind.name);
                }
                // A file that stays is a test that fails.
                let _ = fs::remove_file(file);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A directory that is gone when the run ends. It is not below `target/`, which other users may not be able to reach.
struct TempDir(PathBuf);

impl TempDir {
    fn create() -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("toolgate-databases-{}", std::process::id()));
        crate::install::recreate_dir(&dir)?;
        allow_all_users(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The servers run as users of their own, and the tests leave notes for them.
fn allow_all_users(dir: &Path) -> Result<(), String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
            .map_err(|error| format!("cannot open {}: {error}", dir.display()))?;
    }
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}
