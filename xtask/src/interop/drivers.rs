//! The table of drivers: client, transport and expected steps.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::Workspace;
use crate::fixture::Server;
use crate::install;
use crate::process::{self, OutputMode};
use crate::report::Tally;

const FETCH_TIMEOUT: Duration = Duration::from_secs(300);
const BUILD_TIMEOUT: Duration = Duration::from_secs(15 * 60);

const HUB_STEPS: &[&str] = &["connect", "list tools", "call tool", "call by alias"];
const COMMUNITY_STEPS: &[&str] = &["connect", "list tools", "call tool"];
const SHAPE_STEPS: &[&str] = &["list tools", "accept every shape", "reject another shape"];
const TRACKER_STEPS: &[&str] = &[
    "connect",
    "list tools",
    "empty options",
    "all types",
    "elicit",
    "sample",
    "blocking",
    "report",
    "unknown argument",
    "protocol error",
    "read resource",
    "delete",
];
const CALL_STEPS: &[&str] = &["list tools", "call tool", "read resource", "get prompt"];
const ALL_STEPS: &[&str] =
    &["connect", "list tools", "call tool", "progress", "read resource", "get prompt", "complete", "elicit"];

/// One run of one client.
pub(super) struct Driver {
    /// The printed name, `client/transport`.
    pub(super) name: String,
    program: PathBuf,
    args: Vec<OsString>,
    /// The steps that must be reported; a driver may report more.
    pub(super) steps: &'static [&'static str],
}

impl Driver {
    /// The command with its own home directory, in which clients keep catalogs and tokens.
    pub(super) fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command.env("HOME", home).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// The runtimes of the drivers; `Err` is the reason why one is missing.
pub(super) struct Tools {
    node: Result<Node, String>,
    python: Result<Python, String>,
    rust: Rust,
}

struct Node {
    program: PathBuf,
    /// The directory of the scripts and `node_modules`.
    dir: PathBuf,
}

struct Python {
    program: PathBuf,
    dir: PathBuf,
}

enum Rust {
    Built(PathBuf),
    /// The packages cannot be downloaded, which is not our failure.
    Missing(String),
    /// The packages are downloaded and the driver does not build: it is out of date.
    BuildFailed(String),
}

impl Tools {
    /// Installs and builds everything, at the same time.
    pub(super) fn install(workspace: &Workspace, dir: &Path) -> Self {
        thread::scope(|scope| {
            let node = scope.spawn(|| Node::install(workspace, &dir.join("node")));
            let python = scope.spawn(|| Python::install(workspace, &dir.join("python")));
            let rust = Rust::build(workspace, &dir.join("rust"));
            let died = |_| Err("its installation panicked".to_owned());
            Self {
                node: node.join().unwrap_or_else(died),
                python: python.join().unwrap_or_else(|_| Err("its installation panicked".to_owned())),
                rust,
            }
        })
    }

    /// Reports the clients that are skipped.
    pub(super) fn report(&self, tally: &mut Tally) {
        if let Err(reason) = &self.node {
            tally.skip(&format!("interop: all clients from npm: {reason}"));
        }
        if let Err(reason) = &self.python {
            tally.skip(&format!("interop: all clients from PyPI: {reason}"));
        }
        match &self.rust {
            Rust::Built(_) => {}
            Rust::Missing(reason) => tally.skip(&format!("interop: rmcp: {reason}")),
            Rust::BuildFailed(reason) => tally.fail(&format!("rmcp: {reason}")),
        }
    }
}

impl Node {
    fn install(workspace: &Workspace, dir: &Path) -> Result<Self, String> {
        let source = workspace.root.join("interop/node");
        let program = install::node(workspace)?;
        install::npm_packages(dir, &read(&source.join("package.json"))?)?;
        // Imports are resolved from the directory of a script, so the scripts are copied to the packages.
        let scripts = [
            "steps.mjs",
            "client.mjs",
            "sdk.mjs",
            "inspector.mjs",
            "hub.mjs",
            "community.mjs",
            "shapes.mjs",
            "tracker.mjs",
        ];
        for script in scripts {
            let (from, to) = (source.join(script), dir.join(script));
            fs::copy(&from, to).map_err(|error| format!("cannot copy {}: {error}", from.display()))?;
        }
        let dir = dir.to_path_buf();
        Ok(Self { program, dir })
    }

    fn driver(&self, name: &str, script: &str, args: &[&str], steps: &'static [&'static str]) -> Driver {
        let script = self.dir.join(script).into_os_string();
        let args = args.iter().map(OsString::from);
        Driver {
            name: name.to_owned(),
            program: self.program.clone(),
            args: [script].into_iter().chain(args).collect(),
            steps,
        }
    }
}

impl Python {
    fn install(workspace: &Workspace, dir: &Path) -> Result<Self, String> {
        let source = workspace.root.join("interop/python");
        let program = install::python(dir, &read(&source.join("requirements.txt"))?)?;
        Ok(Self { program, dir: source })
    }

    fn driver(&self, name: &str, script: &str, args: &[&str], steps: &'static [&'static str]) -> Driver {
        let script = self.dir.join(script).into_os_string();
        let args = args.iter().map(OsString::from);
        Driver {
            name: name.to_owned(),
            program: self.program.clone(),
            args: [script].into_iter().chain(args).collect(),
            steps,
        }
    }
}

impl Rust {
    fn build(workspace: &Workspace, dir: &Path) -> Self {
        let cargo = |args: &[&str], limit| {
            let mut command = crate::rust::cargo(workspace);
            command.args(args).args(["--locked", "--manifest-path", "interop/rust/Cargo.toml"]);
            command.env("CARGO_TARGET_DIR", dir);
            match process::run(&mut command, limit, OutputMode::Quiet) {
                Ok(finished) if finished.is_success() => Ok(()),
                Ok(finished) => Err(format!("cargo {}: {}", args.join(" "), finished.failure_summary())),
                Err(error) => Err(format!("cannot run cargo: {error}")),
            }
        };
        if let Err(reason) = cargo(&["fetch"], FETCH_TIMEOUT) {
            return Self::Missing(reason);
        }
        match cargo(&["build", "--quiet"], BUILD_TIMEOUT) {
            Ok(()) => Self::Built(
                dir.join("debug/toolgate-interop").with_extension(std::env::consts::EXE_EXTENSION),
            ),
            Err(reason) => Self::BuildFailed(reason),
        }
    }
}

/// All drivers whose runtime is installed.
pub(super) fn all_drivers(tools: &Tools, server: &Server, program: &Path) -> Vec<Driver> {
    let program = program.to_string_lossy();
    let stdio = [&*program, "--stdio"];
    let mut drivers = Vec::new();
    if let Ok(node) = &tools.node {
        node_drivers(node, server, stdio, &mut drivers);
    }
    if let Ok(python) = &tools.python {
        for (client, script) in [("python-mcp", "official.py"), ("fastmcp", "fast.py")] {
            for mode in ["legacy", "auto"] {
                let http = ["http", mode, &server.url];
                drivers.push(python.driver(&format!("{client}/http-{mode}"), script, &http, ALL_STEPS));
                let stdio = [&["stdio", mode], &stdio[..]].concat();
                drivers.push(python.driver(&format!("{client}/stdio-{mode}"), script, &stdio, ALL_STEPS));
            }
        }
    }
    if let Rust::Built(rmcp) = &tools.rust {
        for mode in ["legacy", "auto"] {
            let http = ["http", mode, &server.url];
            let stdio = [&["stdio", mode], &stdio[..]].concat();
            for (transport, args) in [("http", &http[..]), ("stdio", &stdio)] {
                drivers.push(Driver {
                    name: format!("rmcp/{transport}-{mode}"),
                    program: rmcp.clone(),
                    args: args.iter().map(OsString::from).collect(),
                    steps: ALL_STEPS,
                });
            }
        }
    }
    drivers
}

/// The stdio bridge `mcp-remote` against the program with a catalog. Empty without npm.
pub(super) fn hub_driver(tools: &Tools, server: &Server) -> Option<Driver> {
    let node = tools.node.as_ref().ok()?;
    let runtime = node.program.to_string_lossy();
    let bridge = node.dir.join("node_modules/mcp-remote/dist/proxy.js");
    let args = [&*runtime, &*bridge.to_string_lossy(), &*server.url];
    Some(node.driver("mcp-remote/hub", "hub.mjs", &args, HUB_STEPS))
}

/// Clients that validate structured output, against a server with output of every shape.
pub(super) fn shape_drivers(tools: &Tools, server: &Server) -> Vec<Driver> {
    let mut drivers = Vec::new();
    if let Ok(node) = &tools.node {
        for (name, mode) in [("ts-sdk", "sdk"), ("ts-client", "legacy"), ("ts-client", "auto")] {
            let name = format!("{name}/shapes-{mode}");
            drivers.push(node.driver(&name, "shapes.mjs", &[mode, &server.url], SHAPE_STEPS));
        }
    }
    if let Ok(python) = &tools.python {
        for (name, client) in [("python-mcp", "official"), ("fastmcp", "fast")] {
            for mode in ["legacy", "auto"] {
                let args = [client, mode, &server.url];
                drivers.push(python.driver(
                    &format!("{name}/shapes-{mode}"),
                    "shapes.py",
                    &args,
                    SHAPE_STEPS,
                ));
            }
        }
    }
    drivers
}

/// The bridge and the Inspector against the program in front of a site with basic authentication. Empty without npm.
pub(super) fn community_drivers(tools: &Tools, server: &Server) -> Vec<Driver> {
    let Ok(node) = tools.node.as_ref() else { return Vec::new() };
    // `admin:app-pass`
    let args = |client| [client, &*server.url, "Basic YWRtaW46YXBwLXBhc3M="];
    vec![
        node.driver("mcp-remote/community", "community.mjs", &args("bridge"), COMMUNITY_STEPS),
        node.driver("inspector/community", "community.mjs", &args("inspector"), &COMMUNITY_STEPS[1..]),
    ]
}

/// All clients that are libraries against the example `tracker`, with validation of results.
pub(super) fn tracker_drivers(tools: &Tools, server: &Server) -> Vec<Driver> {
    let url = &*server.url;
    let mut drivers = Vec::new();
    if let Ok(node) = &tools.node {
        for mode in ["sdk", "legacy", "auto"] {
            let name = format!("tracker/ts-{mode}");
            drivers.push(node.driver(&name, "tracker.mjs", &[mode, url], TRACKER_STEPS));
        }
    }
    for mode in ["legacy", "auto"] {
        if let Ok(python) = &tools.python {
            let name = format!("tracker/python-{mode}");
            drivers.push(python.driver(&name, "tracker.py", &[mode, url], TRACKER_STEPS));
        }
        if let Rust::Built(rmcp) = &tools.rust {
            drivers.push(Driver {
                name: format!("tracker/rmcp-{mode}"),
                program: rmcp.clone(),
                args: ["tracker", mode, url].map(OsString::from).to_vec(),
                steps: TRACKER_STEPS,
            });
        }
    }
    drivers
}

fn node_drivers(node: &Node, server: &Server, stdio: [&str; 2], drivers: &mut Vec<Driver>) {
    let url = &*server.url;
    let sse = &*server.sse_url();
    for mode in ["legacy", "auto", "pinned"] {
        let name = format!("ts-client/http-{mode}");
        drivers.push(node.driver(&name, "client.mjs", &["http", mode, url], ALL_STEPS));
        let name = format!("ts-client/stdio-{mode}");
        let args = [&["stdio", mode], &stdio[..]].concat();
        drivers.push(node.driver(&name, "client.mjs", &args, ALL_STEPS));
    }
    drivers.push(node.driver("ts-sdk/http", "sdk.mjs", &["http", url], ALL_STEPS));
    drivers.push(node.driver("ts-sdk/sse", "sdk.mjs", &["sse", sse], ALL_STEPS));
    let args = [&["stdio"], &stdio[..]].concat();
    drivers.push(node.driver("ts-sdk/stdio", "sdk.mjs", &args, ALL_STEPS));

    for version in ["legacy", "modern"] {
        let name = format!("inspector/http-{version}");
        drivers.push(node.driver(&name, "inspector.mjs", &["http", version, url], CALL_STEPS));
        let name = format!("inspector/stdio-{version}");
        let args = [&["stdio", version], &stdio[..]].concat();
        drivers.push(node.driver(&name, "inspector.mjs", &args, CALL_STEPS));
    }
    drivers.push(node.driver("inspector/sse", "inspector.mjs", &["sse", "legacy", sse], CALL_STEPS));

    // The bridge is a stdio server to its client, and an HTTP client to ours.
    let runtime = node.program.to_string_lossy();
    let bridge = node.dir.join("node_modules/mcp-remote/dist/proxy.js");
    let bridge = bridge.to_string_lossy();
    let bridge = [&*runtime, &*bridge, url, "--transport", "http-only"];
    let args = [&["stdio", "legacy"], &bridge[..]].concat();
    drivers.push(node.driver("mcp-remote/inspector", "inspector.mjs", &args, CALL_STEPS));
    for mode in ["legacy", "auto"] {
        let name = format!("mcp-remote/ts-client-{mode}");
        let args = [&["stdio", mode], &bridge[..]].concat();
        drivers.push(node.driver(&name, "client.mjs", &args, ALL_STEPS));
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
