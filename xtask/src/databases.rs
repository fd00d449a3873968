//! The tests of SQL tools against real servers: a PostgreSQL and a MariaDB with their data in a temporary directory, on free
//! local ports, which end with the run.
//!
//! The programs are those of the system; missing ones are installed with its package manager. Neither server runs as
//! root: started by root, they run as the users of their packages. A test requests that a server is killed and
//! restarted by creating a file, which is removed when the server is back.

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
    rust::source_tests(workspace, tally, "source::sql", &addresses);

    // These restart the servers, so they run after all other tests.
    let requests = servers.iter().map(|server| (server.kind.restart_variable, server.restart_file()));
    let requests: Vec<_> = requests.map(|(name, file)| (name, file.display().to_string())).collect();
    if requests.is_empty() {
        return;
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| handle_restart_requests(&mut servers, &done));
        let variables = [addresses, requests].concat();
        rust::source_tests(workspace, tally, "a_restarted_server_is_used_again", &variables);
        done.store(true, Ordering::Relaxed);
    });
}

/// Restarts servers on request of the tests.
fn handle_restart_requests(servers: &mut [DatabaseServer], done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        for server in &mut *servers {
            let file = server.restart_file();
            if file.exists() {
                if let Err(reason) = server.restart() {
                    println!("{}: {reason}", server.kind.name);
                }
                // If the file stays, the test fails.
                let _ = fs::remove_file(file);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A directory that is removed at the end. It is not below `target/`, because other users may not have access there.
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

/// Gives all users access: the servers run as other users, and the tests create files there.
fn allow_all_users(dir: &Path) -> Result<(), String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
            .map_err(|error| format!("cannot change the permissions of {}: {error}", dir.display()))?;
    }
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}
