//! One database server: installation, initialization, start, restart, shutdown.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::install;
use crate::process::{self, ChildGuard, OutputMode};

const INIT_TIMEOUT: Duration = Duration::from_secs(120);
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How to run one kind of server.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The variable that tells the tests its address.
    pub(crate) variable: &'static str,
    /// The variable that tells them which file to create for a restart.
    pub(crate) restart_variable: &'static str,
    package: &'static str,
    /// The user it runs as if it is started by root.
    user: &'static str,
    /// The program that creates an empty database, and the one that serves it.
    programs: [&'static str; 2],
    /// The file of its process id, and the signal that ends it without waiting for clients.
    pid_file_and_signal: (&'static str, &'static str),
    init_args: fn(&Path) -> Vec<String>,
    serve_args: fn(&Path, u16) -> Vec<String>,
    address: fn(u16) -> String,
}

pub(crate) const POSTGRES: Kind = Kind {
    name: "PostgreSQL",
    variable: "TOOLGATE_TEST_POSTGRES",
    restart_variable: "TOOLGATE_TEST_POSTGRES_RESTART",
    package: "postgresql",
    user: "postgres",
    programs: ["initdb", "postgres"],
    pid_file_and_signal: ("data/postmaster.pid", "-INT"),
    init_args: |data| {
        let options = ["-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"];
        concat_args(&options, &[&data.display().to_string()])
    },
    serve_args: |data, port| {
        let sockets = data.with_file_name("");
        let (data, sockets) = (data.display().to_string(), sockets.display().to_string());
        let options = ["-c", "fsync=off", "-c", "max_connections=100", "-h", "127.0.0.1", "-p"];
        let mut arguments = concat_args(&options, &[&port.to_string(), "-k", &sockets, "-D", &data]);
        // The self-signed certificate of Debian, which this user may read.
        let [certificate, key] =
            ["/etc/ssl/certs/ssl-cert-snakeoil.pem", "/etc/ssl/private/ssl-cert-snakeoil.key"];
        if is_root() && Path::new(certificate).exists() {
            let options =
                ["ssl=on".to_owned(), format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")];
            arguments.extend(options.into_iter().flat_map(|option| ["-c".to_owned(), option]));
        }
        arguments
    },
    address: |port| format!("postgres://postgres@127.0.0.1:{port}/postgres"),
};

pub(crate) const MARIADB: Kind = Kind {
    name: "MariaDB",
    variable: "TOOLGATE_TEST_MYSQL",
    restart_variable: "TOOLGATE_TEST_MYSQL_RESTART",
    package: "mariadb-server",
    user: "mysql",
    programs: ["mariadb-install-db", "mariadbd"],
    pid_file_and_signal: ("mariadb.pid", "-TERM"),
    init_args: |data| {
        let options = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-name-resolve"];
        concat_args(&options, &[&format!("--datadir={}", data.display())])
    },
    serve_args: |data, port| {
        let socket = data.with_file_name("mariadb.sock");
        let options = ["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin"];
        let workspace = [
            format!("--port={port}"),
            format!("--socket={}", socket.display()),
            format!("--datadir={}", data.display()),
            format!("--pid-file={}", data.with_file_name("mariadb.pid").display()),
        ];
        concat_args(&options, &workspace.each_ref().map(String::as_str))
    },
    address: |port| format!("mysql://root@127.0.0.1:{port}/mysql"),
};

fn concat_args(fixed: &[&str], more: &[&str]) -> Vec<String> {
    fixed.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

/// A running server, which is stopped when this is dropped.
pub(crate) struct DatabaseServer {
    pub(crate) kind: &'static Kind,
    data_dir: PathBuf,
    port: u16,
    child: Option<ChildGuard>,
}

impl DatabaseServer {
    /// Finds or installs the programs, creates an empty database and serves it.
    pub(crate) fn start(kind: &'static Kind, home: &Path) -> Result<Self, String> {
        let home = home.join(kind.user);
        let [fill, _] = kind.programs;
        let fill = find_or_install(kind, fill)?;
        install::recreate_dir(&home)?;
        super::allow_all_users(&home)?;
        let port = free_port()?;
        println!("starting {} on port {port}", kind.name);
        let mut command = as_user(kind, &fill, &(kind.init_args)(&home.join("data")));
        let finished = process::run(command.current_dir(&home), INIT_TIMEOUT, OutputMode::Quiet);
        match finished {
            Ok(finished) if finished.is_success() => {}
            Ok(finished) => return Err(format!("{}: {}", fill.display(), finished.failure_summary())),
            Err(error) => return Err(format!("{}: {error}", fill.display())),
        }
        let mut server = Self { kind, data_dir: home, port, child: None };
        server.spawn()?;
        Ok(server)
    }

    pub(crate) fn address(&self) -> String {
        (self.kind.address)(self.port)
    }

    /// The file that requests a restart.
    pub(crate) fn restart_file(&self) -> PathBuf {
        self.data_dir.join("restart")
    }

    /// Kills the server and starts it again.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.child = None;
        // The killed process takes a moment to end, and until then a new server does not start.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match self.spawn() {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(200)),
                ended => return ended,
            }
        }
    }

    fn spawn(&mut self) -> Result<(), String> {
        let [_, serve] = self.kind.programs;
        let serve = find_or_install(self.kind, serve)?;
        let mut command =
            as_user(self.kind, &serve, &(self.kind.serve_args)(&self.data_dir.join("data"), self.port));
        let log = self.data_dir.join("log");
        let open = || fs::OpenOptions::new().create(true).append(true).open(&log);
        let (out, err) =
            open().and_then(|out| Ok((out, open()?))).map_err(|error| format!("log: {error}"))?;
        command.current_dir(&self.data_dir).stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(|error| format!("{}: {error}", serve.display()))?;
        let mut running = ChildGuard(child);
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if !running.is_running() || Instant::now() > deadline {
                let output = fs::read_to_string(&log).unwrap_or_default();
                let last = output.lines().last().unwrap_or("no output").to_owned();
                return Err(format!("it does not start: {last}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.child = Some(running);
        Ok(())
    }
}

impl Drop for DatabaseServer {
    /// Asks the server to end, so that it releases its shared memory. It is killed if it does not end.
    fn drop(&mut self) {
        let Some(running) = &mut self.child else { return };
        let (file, signal) = self.kind.pid_file_and_signal;
        let Ok(text) = fs::read_to_string(self.data_dir.join(file)) else { return };
        let Some(pid) = text.lines().next() else { return };
        let _ = Command::new("sh").args(["-c", "kill \"$@\"", "kill", signal, pid.trim()]).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while running.is_running() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Looks for the program in the path and in the directories of Debian, and installs it if it is missing.
fn find_or_install(kind: &Kind, name: &str) -> Result<PathBuf, String> {
    if let Some(found) = find(name) {
        return Ok(found);
    }
    install::apt_install(kind.package)?;
    find(name).ok_or_else(|| format!("{name} is nowhere, though {} is installed", kind.package))
}

fn find(name: &str) -> Option<PathBuf> {
    // The newest version. These directories are first, so that both programs are of the same version.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin").join(name)))
        })
        .filter(|(_, path)| path.exists())
        .collect();
    versions.sort();
    if let Some((_, path)) = versions.pop() {
        return Some(path);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&paths).chain(more).map(|dir| dir.join(name)).find(|path| path.exists())
}

/// A command that does not run as root.
fn as_user(kind: &Kind, program: &Path, arguments: &[String]) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", kind.user, "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(arguments);
    command
}

fn is_root() -> bool {
    let finished = process::run(Command::new("id").arg("-u"), Duration::from_secs(10), OutputMode::Quiet);
    finished.is_ok_and(|finished| finished.stdout.trim() == "0")
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
