//! The measured servers: bare hyper, ours, and peers at pinned versions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::profile::Profile;
use crate::Workspace;
use crate::install;
use crate::process::{self, OutputMode};

/// The names of bare hyper and of our server in every table.
pub(crate) const LIMIT: &str = "limit";
pub(crate) const OURS: &str = "toolgate";

const BUILD_TIMEOUT: Duration = Duration::from_secs(40 * 60);

/// The role of a contender in comparisons.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Limit,
    Ours,
    Peer,
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// The profile it was built with. A script has none, and is measured together with `dist`.
    pub(crate) profile: Profile,
    /// Version and configuration, for the report.
    pub(crate) about: String,
    /// The program and its arguments before `--listen ADDR` or `--stdio`.
    pub(crate) command: Vec<String>,
    /// Size of the stripped executable; `None` for a script.
    pub(crate) n_bytes: Option<u64>,
    /// Whether it is another configuration of a program that is measured already.
    pub(crate) is_variant: bool,
}

/// A peer that could not be built or installed.
pub(crate) struct MissingPeer {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// A peer in `load/peers/<name>`; each variant of its configuration is a contender.
struct Peer {
    name: &'static str,
    variants: &'static [PeerVariant],
}

struct PeerVariant {
    name: &'static str,
    about: &'static str,
    arguments: &'static [&'static str],
}

const PEERS: &[Peer] = &[
    Peer {
        name: "rmcp",
        variants: &[
            PeerVariant {
                name: "rmcp",
                about: "rmcp 3.8.0, JSON, no sessions, tools shared",
                arguments: &[],
            },
            PeerVariant {
                name: "rmcp, sessions",
                about: "rmcp 3.8.0, its defaults: sessions, responses over SSE",
                arguments: &["--sessions"],
            },
        ],
    },
    Peer {
        name: "tower-mcp",
        variants: &[
            PeerVariant { name: "tower-mcp", about: "tower-mcp 0.25.0, JSON, its defaults", arguments: &[] },
            PeerVariant {
                name: "tower-mcp, stateless",
                about: "tower-mcp 0.25.0, JSON, no sessions, no streams",
                arguments: &["--stateless"],
            },
        ],
    },
    Peer {
        name: "turbomcp",
        variants: &[PeerVariant { name: "turbomcp", about: "turbomcp 4.0.0-alpha.5", arguments: &[] }],
    },
    Peer {
        name: "pmcp",
        variants: &[
            PeerVariant { name: "pmcp", about: "pmcp 2.23.0, JSON, no sessions", arguments: &[] },
            PeerVariant {
                name: "pmcp, sessions",
                about: "pmcp 2.23.0, its defaults: sessions",
                arguments: &["--sessions"],
            },
        ],
    },
    Peer {
        name: "rust-mcp-sdk",
        variants: &[PeerVariant {
            name: "rust-mcp-sdk",
            about: "rust-mcp-sdk 2.0.0, 2026-07-28 only; JSON, which turns its streams off",
            arguments: &[],
        }],
    },
];

/// A peer that needs an interpreter. `install` installs its packages, and returns the command that starts it.
struct ScriptPeer {
    peer: Peer,
    install: fn(&Workspace) -> Result<Vec<String>, String>,
}

const SCRIPTS: &[ScriptPeer] = &[
    ScriptPeer {
        peer: Peer {
            name: "node",
            variants: &[PeerVariant {
                name: "node",
                about: "npm `@modelcontextprotocol/server` 2.4.0, JSON where it can, a factory per request",
                arguments: &[],
            }],
        },
        install: install_node,
    },
    ScriptPeer {
        peer: Peer {
            name: "python",
            variants: &[
                PeerVariant { name: "python", about: "FastMCP 4.1.2, JSON, no sessions", arguments: &[] },
                PeerVariant {
                    name: "python, sessions",
                    about: "FastMCP 4.1.2, JSON, sessions",
                    arguments: &["--sessions"],
                },
            ],
        },
        install: install_python,
    },
];

impl Peer {
    /// The contenders of one build.
    fn contenders(&self, profile: Profile, command: &[String]) -> impl Iterator<Item = Contender> {
        self.variants.iter().enumerate().map(move |(index, variant)| {
            let arguments = variant.arguments.iter().map(|argument| (*argument).to_owned());
            let command = command.iter().cloned().chain(arguments).collect();
            let contender = Contender::new(variant.name, Role::Peer, profile, variant.about, command);
            Contender { is_variant: index > 0, ..contender }
        })
    }
}

/// Builds the load generator.
pub(crate) fn build_generator(workspace: &Workspace) -> Result<PathBuf, String> {
    build(workspace, Profile::Dist, "load/Cargo.toml", &["--package", "generator"], "generator")
}

/// Builds our server.
pub(crate) fn build_ours(workspace: &Workspace, profile: Profile) -> Result<PathBuf, String> {
    let example = ["--package", "toolgate", "--all-features", "--example", "bench_server"];
    build(workspace, profile, "Cargo.toml", &example, "bench_server")
}

/// Builds the limit.
pub(crate) fn build_limit(workspace: &Workspace, profile: Profile) -> Result<PathBuf, String> {
    build(workspace, profile, "load/Cargo.toml", &["--package", "limit"], "limit")
}

/// Builds all wanted contenders with a profile. Fails if bare hyper or our server cannot be built.
pub(crate) fn build_all(
    workspace: &Workspace,
    profile: Profile,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Contender>, Vec<MissingPeer>), String> {
    let (limit, ours) = (build_limit(workspace, profile)?, build_ours(workspace, profile)?);
    let about = "bare hyper that parses and echoes (`load/limit`), system allocator";
    let limit = Contender::new(LIMIT, Role::Limit, profile, about, to_command(&limit));
    let about = "`examples/bench_server.rs`: all features, statistics, default guards, system allocator";
    let mut contenders = vec![limit, Contender::new(OURS, Role::Ours, profile, about, to_command(&ours))];
    let mut missing = Vec::new();
    for peer in PEERS.iter().filter(|peer| wanted(peer.name)) {
        let package = format!("peer-{}", peer.name);
        let manifest = format!("load/peers/{}/Cargo.toml", peer.name);
        match build(workspace, profile, &manifest, &[], &package) {
            Ok(program) => contenders.extend(peer.contenders(profile, &to_command(&program))),
            Err(reason) => missing.push(MissingPeer { name: peer.name, reason }),
        }
    }
    // Profiles make no difference to scripts.
    let scripts = SCRIPTS.iter().filter(|script| profile == Profile::Dist && wanted(script.peer.name));
    for script in scripts {
        match (script.install)(workspace) {
            Ok(command) => contenders.extend(script.peer.contenders(profile, &command)),
            Err(reason) => missing.push(MissingPeer { name: script.peer.name, reason }),
        }
    }
    Ok((contenders, missing))
}

impl Contender {
    fn new(name: &'static str, role: Role, profile: Profile, about: &str, command: Vec<String>) -> Self {
        // A script is the second argument, after its interpreter.
        let is_script = command.get(1).is_some_and(|argument| !argument.starts_with("--"));
        let n_bytes = std::fs::metadata(&command[0]).ok().filter(|_| !is_script).map(|file| file.len());
        let about = match is_script {
            true => format!("{about}; {}", interpreter_version(&command[0])),
            false => about.to_owned(),
        };
        Self { name, role, profile, about, command, n_bytes, is_variant: false }
    }

    /// Whether an interpreter runs it.
    pub(crate) fn is_script(&self) -> bool {
        self.n_bytes.is_none()
    }
}

/// The version that an interpreter reports.
fn interpreter_version(program: &str) -> String {
    let finished =
        process::run(Command::new(program).arg("--version"), Duration::from_secs(10), OutputMode::Quiet);
    let version = finished.map(|finished| finished.stdout.trim().to_owned()).unwrap_or_default();
    if version.starts_with('v') { format!("Node {version}") } else { version }
}

/// A command without arguments.
fn to_command(program: &Path) -> Vec<String> {
    vec![program.display().to_string()]
}

/// Builds a workspace, and returns the executable of the given target.
fn build(
    workspace: &Workspace,
    profile: Profile,
    manifest: &str,
    arguments: &[&str],
    target: &str,
) -> Result<PathBuf, String> {
    println!("building {target}, {}", profile.name());
    let mut cargo = crate::rust::cargo(workspace);
    cargo.args(["build", "--locked", "--manifest-path", manifest]).args(arguments);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    profile.apply(&mut cargo, &workspace.root, manifest)?;
    if let Some(directory) = profile.target_dir(workspace, manifest) {
        cargo.arg("--target-dir").arg(directory);
    }
    let finished = process::run(&mut cargo, BUILD_TIMEOUT, OutputMode::Quiet);
    let finished = finished.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !finished.is_success() {
        let reason = first_error(&finished.stderr, finished.failure_summary());
        return Err(format!("{target} does not build ({}): {reason}", profile.name()));
    }
    let mut messages =
        finished.stdout.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = messages.find_map(|message| {
        let matches = message["target"]["name"] == target;
        message["executable"].as_str().filter(|_| matches).map(PathBuf::from)
    });
    executable.ok_or_else(|| format!("cargo named no executable for {target}"))
}

/// The first error of the compiler, which is more useful than its last line.
fn first_error(stderr: &str, default: String) -> String {
    let first = stderr.lines().find(|line| line.starts_with("error"));
    first.map_or(default, str::to_owned)
}

fn install_node(workspace: &Workspace) -> Result<Vec<String>, String> {
    let node = install::node(workspace)?;
    let dir = workspace.work_dir.join("bench-node");
    let source = workspace.root.join("load/peers/node");
    install::npm_packages(&dir, &read(&source.join("package.json"))?)?;
    let script = dir.join("server.mjs");
    // Node looks for packages in the directory of the script.
    std::fs::copy(source.join("server.mjs"), &script)
        .map_err(|error| format!("cannot copy the script: {error}"))?;
    check_help(vec![node.display().to_string(), script.display().to_string()])
}

fn install_python(workspace: &Workspace) -> Result<Vec<String>, String> {
    let source = workspace.root.join("load/peers/python");
    let python =
        install::python(&workspace.work_dir.join("bench-python"), &read(&source.join("requirements.txt"))?)?;
    check_help(vec![python.display().to_string(), source.join("server.py").display().to_string()])
}

/// Checks that the script starts: without its packages it cannot even print its usage.
fn check_help(command: Vec<String>) -> Result<Vec<String>, String> {
    let mut help = Command::new(&command[0]);
    help.args(&command[1..]).arg("--help");
    match process::run(&mut help, Duration::from_secs(60), OutputMode::Quiet) {
        Ok(finished) if finished.is_success() => Ok(command),
        Ok(finished) => Err(finished.failure_summary()),
        Err(error) => Err(error.to_string()),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
