//! Who is measured: the limit, our server, and the peers at pinned versions, each built for release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::profile::Profile;
use crate::Places;
use crate::install;
use crate::process::{self, Show};

/// What the limit and our server are called in every table.
pub(crate) const LIMIT: &str = "limit";
pub(crate) const OURS: &str = "toolgate";

const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

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
pub(crate) struct Missing {
    pub(crate) name: &'static str,
    pub(crate) why: String,
}

/// A peer written in Rust, in `load/peers/<name>`; each wiring is a contender.
struct Peer {
    name: &'static str,
    wirings: &'static [Wiring],
}

struct Wiring {
    name: &'static str,
    about: &'static str,
    arguments: &'static [&'static str],
}

const PEERS: &[Peer] = &[
    Peer {
        name: "rmcp",
        wirings: &[
            Wiring { name: "rmcp", about: "rmcp 3.8.0, JSON, no sessions, tools shared", arguments: &[] },
            Wiring {
                name: "rmcp, sessions",
                about: "rmcp 3.8.0, its defaults: sessions, answers over SSE",
                arguments: &["--sessions"],
            },
        ],
    },
    Peer {
        name: "tower-mcp",
        wirings: &[
            Wiring { name: "tower-mcp", about: "tower-mcp 0.25.0, JSON, its defaults", arguments: &[] },
            Wiring {
                name: "tower-mcp, stateless",
                about: "tower-mcp 0.25.0, JSON, no sessions, no streams",
                arguments: &["--stateless"],
            },
        ],
    },
    Peer {
        name: "turbomcp",
        wirings: &[Wiring { name: "turbomcp", about: "turbomcp 4.0.0-alpha.5", arguments: &[] }],
    },
    Peer {
        name: "pmcp",
        wirings: &[
            Wiring { name: "pmcp", about: "pmcp 2.23.0, JSON, no sessions", arguments: &[] },
            Wiring {
                name: "pmcp, sessions",
                about: "pmcp 2.23.0, its defaults: sessions",
                arguments: &["--sessions"],
            },
        ],
    },
    Peer {
        name: "rust-mcp-sdk",
        wirings: &[Wiring {
            name: "rust-mcp-sdk",
            about: "rust-mcp-sdk 2.0.0, 2026-07-28 only; JSON, which turns its streams off",
            arguments: &[],
        }],
    },
];

/// A peer that an interpreter runs, and what brings its packages and says how it is started.
struct Script {
    peer: Peer,
    bring: fn(&Places) -> Result<Vec<String>, String>,
}

const SCRIPTS: &[Script] = &[
    Script {
        peer: Peer {
            name: "node",
            wirings: &[Wiring {
                name: "node",
                about: "npm `@modelcontextprotocol/server` 2.4.0, JSON where it can, a factory per request",
                arguments: &[],
            }],
        },
        bring: node,
    },
    Script {
        peer: Peer {
            name: "python",
            wirings: &[
                Wiring { name: "python", about: "FastMCP 4.1.2, JSON, no sessions", arguments: &[] },
                Wiring {
                    name: "python, sessions",
                    about: "FastMCP 4.1.2, JSON, sessions",
                    arguments: &["--sessions"],
                },
            ],
        },
        bring: python,
    },
];

impl Peer {
    /// The contenders that one build makes.
    fn wired(&self, profile: Profile, command: &[String]) -> impl Iterator<Item = Contender> {
        self.wirings.iter().enumerate().map(move |(index, wiring)| {
            let arguments = wiring.arguments.iter().map(|argument| (*argument).to_owned());
            let command = command.iter().cloned().chain(arguments).collect();
            let contender = Contender::new(wiring.name, Role::Peer, profile, wiring.about, command);
            Contender { is_variant: index > 0, ..contender }
        })
    }
}

/// Builds the load generator.
pub(crate) fn generator(places: &Places) -> Result<PathBuf, String> {
    build(places, Profile::Tuned, "load/Cargo.toml", &["--package", "generator"], "generator")
}

/// Builds our server.
pub(crate) fn ours(places: &Places, profile: Profile) -> Result<PathBuf, String> {
    let example = ["--package", "toolgate", "--all-features", "--example", "bench_server"];
    build(places, profile, "Cargo.toml", &example, "bench_server")
}

/// Builds the limit.
pub(crate) fn limit(places: &Places, profile: Profile) -> Result<PathBuf, String> {
    build(places, profile, "load/Cargo.toml", &["--package", "limit"], "limit")
}

/// Builds everyone who is wanted with a profile. Without the limit or our server there is nothing to compare.
pub(crate) fn all(
    places: &Places,
    profile: Profile,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Contender>, Vec<Missing>), String> {
    let (limit, ours) = (limit(places, profile)?, ours(places, profile)?);
    let about = "bare hyper that parses and echoes (`load/limit`), the system's allocator";
    let limit = Contender::new(LIMIT, Role::Limit, profile, about, only(&limit));
    let about = "`examples/bench_server.rs`: all features, statistics, guards at their defaults, the system's allocator";
    let mut contenders = vec![limit, Contender::new(OURS, Role::Ours, profile, about, only(&ours))];
    let mut missing = Vec::new();
    for peer in PEERS.iter().filter(|peer| wanted(peer.name)) {
        let package = format!("peer-{}", peer.name);
        let manifest = format!("load/peers/{}/Cargo.toml", peer.name);
        match build(places, profile, &manifest, &[], &package) {
            Ok(program) => contenders.extend(peer.wired(profile, &only(&program))),
            Err(why) => missing.push(Missing { name: peer.name, why }),
        }
    }
    // No profile makes an interpreter another one: once is enough.
    let scripts = SCRIPTS.iter().filter(|script| profile == Profile::Tuned && wanted(script.peer.name));
    for script in scripts {
        match (script.bring)(places) {
            Ok(command) => contenders.extend(script.peer.wired(profile, &command)),
            Err(why) => missing.push(Missing { name: script.peer.name, why }),
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
            true => format!("{about}; {}", version(&command[0])),
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
fn version(program: &str) -> String {
    let finished = process::run(Command::new(program).arg("--version"), Duration::from_secs(10), Show::Quiet);
    let said = finished.map(|finished| finished.stdout.trim().to_owned()).unwrap_or_default();
    if said.starts_with('v') { format!("Node {said}") } else { said }
}

/// A command without arguments.
fn only(program: &Path) -> Vec<String> {
    vec![program.display().to_string()]
}

/// Builds a workspace for release, and finds the executable of the given target.
fn build(
    places: &Places,
    profile: Profile,
    manifest: &str,
    arguments: &[&str],
    target: &str,
) -> Result<PathBuf, String> {
    println!("building {target}, {}", profile.name());
    let mut cargo = crate::rust::cargo(places);
    cargo.args(["build", "--release", "--locked", "--manifest-path", manifest]).args(arguments);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    profile.choose(&mut cargo, &places.root, manifest)?;
    if let Some(directory) = profile.directory(places, manifest) {
        cargo.arg("--target-dir").arg(directory);
    }
    let finished = process::run(&mut cargo, BUILD_LIMIT, Show::Quiet);
    let finished = finished.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !finished.success() {
        let why = error(&finished.stderr, finished.why());
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
fn error(stderr: &str, otherwise: String) -> String {
    let first = stderr.lines().find(|line| line.starts_with("error"));
    first.map_or(otherwise, str::to_owned)
}

fn node(places: &Places) -> Result<Vec<String>, String> {
    let node = install::node(places)?;
    let dir = places.work.join("bench-node");
    let source = places.root.join("load/peers/node");
    install::npm_packages(&dir, &read(&source.join("package.json"))?)?;
    let script = dir.join("server.mjs");
    // Node looks for packages beside the script.
    std::fs::copy(source.join("server.mjs"), &script).map_err(|error| format!("cannot copy it: {error}"))?;
    tried(vec![node.display().to_string(), script.display().to_string()])
}

fn python(places: &Places) -> Result<Vec<String>, String> {
    let source = places.root.join("load/peers/python");
    let python =
        install::python(&places.work.join("bench-python"), &read(&source.join("requirements.txt"))?)?;
    tried(vec![python.display().to_string(), source.join("server.py").display().to_string()])
}

/// A script that cannot even say how it is used misses something.
fn tried(command: Vec<String>) -> Result<Vec<String>, String> {
    let mut help = Command::new(&command[0]);
    help.args(&command[1..]).arg("--help");
    match process::run(&mut help, Duration::from_secs(60), Show::Quiet) {
        Ok(finished) if finished.success() => Ok(command),
        Ok(finished) => Err(finished.why()),
        Err(error) => Err(error.to_string()),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
