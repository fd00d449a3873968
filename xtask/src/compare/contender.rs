//! The three servers: their sources, versions, and how they are prepared and started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::build::CargoPackage;
use super::source::{self, Language, SourceCounts};
use crate::Workspace;
use crate::install;
use crate::process::{self, OutputMode};

/// The name of our server in the table.
pub(super) const OURS: &str = "Toolgate";

/// The packages that the Python server imports from; others belong to Python or to the server.
const PYTHON_PACKAGES: [&str; 4] = ["fastmcp", "mcp", "mcp_types", "pydantic"];
/// What every venv contains.
const VENV_PACKAGES: &str = "pip setuptools wheel";
const PYTHON_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) const ALL: [Contender; 3] = [
    Contender { name: OURS, dir: "toolgate", language: Language::Rust },
    Contender { name: "rmcp", dir: "rmcp", language: Language::Rust },
    Contender { name: "FastMCP", dir: "fastmcp", language: Language::Python },
];

/// One of the servers in `compare/`.
pub(super) struct Contender {
    /// The name of its library in the table.
    pub(super) name: &'static str,
    dir: &'static str,
    language: Language,
}

/// A server that can be built or started.
pub(super) struct Prepared {
    /// The command that serves stdio. Of a compiled server, it exists after the first build.
    pub(super) command: Vec<PathBuf>,
    /// `None` if the server is not compiled.
    pub(super) cargo: Option<CargoPackage>,
}

impl Contender {
    pub(super) fn is_compiled(&self) -> bool {
        self.language == Language::Rust
    }

    /// The source file that defines the server.
    pub(super) fn source(&self) -> String {
        match self.language {
            Language::Rust => format!("compare/{}/src/main.rs", self.dir),
            Language::Python => format!("compare/{}/server.py", self.dir),
        }
    }

    pub(super) fn count_source(&self, workspace: &Workspace) -> Result<SourceCounts, String> {
        let packages = match self.language {
            Language::Rust => {
                let manifest = read(&self.path(workspace, "Cargo.toml"))?;
                source::cargo_dependencies(&manifest)
            }
            Language::Python => PYTHON_PACKAGES.map(str::to_owned).to_vec(),
        };
        let text = read(&workspace.root.join(self.source()))?;
        source::count(self.language, &text, &packages)
            .map_err(|reason| format!("{}: {reason}", self.source()))
    }

    /// The pinned release of the library; empty for ours, which is that of this repository.
    pub(super) fn version(&self, workspace: &Workspace) -> Result<String, String> {
        let (file, before) = match self.language {
            Language::Rust => ("Cargo.toml", "rmcp = { version = \"="),
            Language::Python => ("requirements.txt", "fastmcp=="),
        };
        let text = read(&self.path(workspace, file))?;
        let version = text.lines().find_map(|line| line.strip_prefix(before));
        let version = version.map(|rest| rest.split(['"', ' ']).next().unwrap_or_default());
        Ok(version.unwrap_or_default().to_owned())
    }

    /// Copies the server below `target/xtask/compare/`, and downloads its packages.
    pub(super) fn prepare(&self, workspace: &Workspace) -> Result<Prepared, String> {
        let copy = work_dir(workspace).join("src").join(self.dir);
        install::recreate_dir(&copy)?;
        match self.language {
            Language::Rust => {
                let cargo = CargoPackage::copy(workspace, &self.path(workspace, ""), &copy)?;
                Ok(Prepared { command: vec![cargo.program()], cargo: Some(cargo) })
            }
            Language::Python => {
                for file in ["server.py", "orders.py"] {
                    copy_file(&self.path(workspace, file), &copy.join(file))?;
                }
                let requirements = read(&self.path(workspace, "requirements.txt"))?;
                let python = install::python(&work_dir(workspace).join("python"), &requirements)?;
                Ok(Prepared { command: vec![python, copy.join("server.py")], cargo: None })
            }
        }
    }

    fn path(&self, workspace: &Workspace, file: &str) -> PathBuf {
        workspace.root.join("compare").join(self.dir).join(file)
    }
}

impl Prepared {
    /// Counts the crates that are compiled, or the packages that are installed.
    pub(super) fn count_packages(&self, workspace: &Workspace) -> Result<usize, String> {
        if let Some(cargo) = &self.cargo {
            return cargo.count_crates(workspace);
        }
        let mut python = Command::new(&self.command[0]);
        python.args(["-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]);
        let listed = process::run(&mut python, PYTHON_TIMEOUT, OutputMode::Quiet)
            .map_err(|error| error.to_string())?;
        if !listed.is_success() {
            return Err(format!("pip list: {}", listed.failure_summary()));
        }
        let names = listed.stdout.lines().filter_map(|line| line.split("==").next());
        Ok(names.filter(|name| !VENV_PACKAGES.split(' ').any(|package| package == *name)).count())
    }
}

/// The directory of the copies, their builds and the venv.
pub(super) fn work_dir(workspace: &Workspace) -> PathBuf {
    workspace.work_dir.join("compare")
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

pub(super) fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|error| format!("cannot copy {}: {error}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources can be counted, and name the same items.
    #[test]
    fn servers_define_the_same_items() {
        let workspace = Workspace::find();
        for contender in &ALL {
            let text = read(&workspace.root.join(contender.source())).unwrap();
            for item in [
                "fn find_order(",
                "fn list_orders(",
                "fn cancel_order(",
                "fn export_orders(",
                "fn summarize(",
                "fn follow_up(",
                "\"order://{id}\"",
            ] {
                let item =
                    if contender.is_compiled() { item.to_owned() } else { item.replace("fn ", "def ") };
                assert!(text.contains(&item), "{} has no `{item}`", contender.source());
            }
            let counted = contender.count_source(&workspace).unwrap();
            assert!(counted.lines > 50 && counted.names.len() > 10, "{}", contender.source());
            assert_eq!(contender.version(&workspace).unwrap().is_empty(), contender.name == OURS);
        }
    }
}
