//! A private Redis that can be stopped, killed and restarted with its data.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

pub(crate) struct Redis {
    program: &'static str,
    child: Child,
    port: u16,
    folder: PathBuf,
    fsync: &'static str,
}

impl Redis {
    /// Returns `None`, with a message, if Redis is not installed. `fsync` is when it persists writes: `always`, so that a
    /// kill loses nothing, or `everysec`.
    pub(crate) async fn start(name: &str, fsync: &'static str) -> Option<Redis> {
        let is_there =
            |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        let Some(program) = ["redis-server", "valkey-server"].into_iter().find(is_there) else {
            eprintln!("SKIPPED: no `redis-server` on this machine; `cargo xtask test` installs one");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("toolgate-faults-{name}-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let child = spawn_redis(program, port, &folder, fsync);
        let redis = Redis { program, child, port, folder, fsync };
        redis.wait_until_reachable().await;
        Some(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.child = spawn_redis(self.program, self.port, &self.folder, self.fsync);
        self.wait_until_reachable().await;
    }

    async fn wait_until_reachable(&self) {
        let at = SocketAddr::from(([127, 0, 0, 1], self.port));
        for _ in 0..200 {
            if TcpStream::connect(at).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("redis-server does not listen at {at}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn_redis(program: &str, port: u16, folder: &Path, fsync: &str) -> Child {
    Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", fsync, "--daemonize", "no", "--dir"])
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
