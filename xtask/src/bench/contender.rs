//! Who is measured: the limit, our server, and the peers at pinned versions, each built for release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::profile::Profile;
use crate::Workspace;
use crate::install;
use crate::process::{self, OutputMode};

/// What the limit and our server are called in every table.
pub(crate) const LIMIT: &str = "limit";
pub(crate) const OURS: &str = "toolgate";

const BUILD_TIMEOUT: Duration = Duration::from_secs(40 * 60);

/// What a contender is compared as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Limit,
    Ours,
    Peer,
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// What it was built with. A script was not built, and counts among the tuned.
    pub(crate) profile: Profile,
    /// What it is and how it is wired, for the reader.
    pub(crate) about: String,
    /// A program that takes `--listen ADDR` and `--stdio`, with what comes before those.
    pub(crate) command: Vec<String>,
    /// The stripped executable; a script has none.
    pub(crate) n_bytes: Option<u64>,
    /// A second wiring of a program that takes part already.
    pub(crate) is_variant: bool,
}

/// A peer that could not be had, and why.
pub(crate) struct MissingPeer {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// A peer written in Rust, in `load/peers/<name>`; each wiring is a contender.
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
                about: "rmcp 3.8.0, its defaults: sessions, answers over SSE",
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

/// A peer that an interpreter runs, and what brings its packages and says how it is started.
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
    /// The contenders that one build makes.
    fn contenders(&self, profile: Profile, command: &[String]) -> impl Iterator<Item = Contender> {
        self.variants.iter().enumerate().map(move |(index, wiring)| {
            let arguments = wiring.arguments.iter().map(|argument| (*argument).to_owned());
            let command = command.iter().cloned().chain(arguments).collect();
            let contender = Contender::new(wiring.name, Role::Peer, profile, wiring.about, command);
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

/// Builds everyone who is wanted with a profile. Without the limit or our server there is nothing to compare.
pub(crate) fn build_all(
    workspace: &Workspace,
    profile: Profile,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Contender>, Vec<MissingPeer>), String> {
    let (limit, ours) = (build_limit(workspace, profile)?, build_ours(workspace, profile)?);
    let about = "bare hyper that parses and echoes (`load/limit`), the system's allocator";
    let limit = Contender::new(LIMIT, Role::Limit, profile, about, to_command(&limit));
    let about = "`examples/bench_server.rs`: all features, statistics, guards at their defaults, the system's allocator";
    let mut contenders = vec![limit, Contender::new(OURS, Role::Ours, profile, about, to_command(&ours))];
    let mut missing = Vec::new();
    for peer in PEERS.iter().filter(|peer| wanted(peer.name)) {
        let package = format!("peer-{}", peer.name);
        let manifest = format!("load/peers/{}/Cargo.toml", peer.name);
        match build(workspace, profile, &manifest, &[], &package) {
            Ok(program) => contenders.extend(peer.contenders(profile, &to_command(&program))),
            Err(why) => missing.push(MissingPeer { name: peer.name, reason: why }),
        }
    }
    // No profile makes an interpreter another one: once is enough.
    let scripts = SCRIPTS.iter().filter(|script| profile == Profile::Dist && wanted(script.peer.name));
    for script in scripts {
        match (script.install)(workspace) {
            Ok(command) => contenders.extend(script.peer.contenders(profile, &command)),
            Err(why) => missing.push(MissingPeer { name: script.peer.name, reason: why }),
        }
    }
    Ok((contenders, missing))
}

impl Contender {
    fn new(name: &'static str, role: Role, profile: Profile, about: &str, command: Vec<String>) -> Self {
        // A script is the second word, after its interpreter.
        let is_script = command.get(1).is_some_and(|word| !word.starts_with("--"));
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

/// What an interpreter says of itself.
fn interpreter_version(program: &str) -> String {
    let finished =
        process::run(Command::new(program).arg("--version"), Duration::from_secs(10), OutputMode::Quiet);
    let said = finished.map(|finished| finished.stdout.trim().to_owned()).unwrap_or_default();
    if said.starts_with('v') { format!("Node {said}") } else { said }
}

/// A command without arguments.
fn to_command(program: &Path) -> Vec<String> {
    vec![program.display().to_string()]
}

/// Builds a workspace for release, and finds the executable of the given target.
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
        let why = first_error(&finished.stderr, finished.failure_summary());
        return Err(format!("{target} does not build ({}): {why}", profile.name()));
    }
    let mut messages =
        finished.stdout.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = messages.find_map(|message| {
        let matches = message["target"]["name"] == target;
        message["executable"].as_str().filter(|_| matches).map(PathBuf::from)
    });
    executable.ok_or_else(|| format!("cargo named no executable for {target}"))
}

/// The first error of a compiler says more than its last line.
fn first_error(stderr: &str, otherwise: String) -> String {
    let first = stderr.lines().find(|line| line.starts_with("error"));
    first.map_or(otherwise, str::to_owned)
}

fn install_node(workspace: &Workspace) -> Result<Vec<String>, String> {
    let node = install::node(workspace)?;
    let dir = workspace.work_dir.join("bench-node");
    let source = workspace.root.join("load/peers/node");
    install::npm_packages(&dir, &read(&source.join("package.json"))?)?;
    let script = dir.join("server.mjs");
    // Node looks for packages beside the script.
    std::fs::copy(source.join("server.mjs"), &script).map_err(|error| format!("cannot copy it: {error}"))?;
    check_help(vec![node.display().to_string(), script.display().to_string()])
}

fn install_python(workspace: &Workspace) -> Result<Vec<String>, String> {
    let source = workspace.root.join("load/peers/python");
    let python =
        install::python(&workspace.work_dir.join("bench-python"), &read(&source.join("requirements.txt"))?)?;
    check_help(vec![python.display().to_string(), source.join("server.py").display().to_string()])
}

/// A script that cannot even say how it is used misses something.
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
