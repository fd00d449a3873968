//! A whole program around servers: what [`main!`](crate::main) becomes.
//!
//! Reads the command line, builds a runtime, serves. It has no opinion about what is served, and nothing
//! but the protocol reaches standard output while a client is served there.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

#[cfg(feature = "http")]
use crate::app::App;
use crate::error::Error;
use crate::server::{Builder, PendingItem, Server};
use crate::servers::Servers;

/// Names the server to serve, where the command line does not.
const SERVER_NAME_VAR: &str = "MCP_SERVER_NAME";

/// What a program can be made of: a [`Server`], a [`Builder`], several servers to choose from by name
/// ([`Servers`]), an `App` that says where each of them is served, or a `Result` of these. See [`main!`](crate::main).
///
/// ```no_run
/// use toolgate::{Server, Servers};
///
/// fn servers() -> Servers {
///     let servers = Servers::new();
///     servers.server_with("shop", |server| server.tool("hours", || async { "9 to 5" }));
///     servers.server_with("admin", |server| server.tool("close", || async { "closed" }));
///     servers
/// }
///
/// toolgate::main!(servers()); // `--server shop` chooses
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be served by `toolgate::main!`",
    label = "neither a `Server`, a `Builder`, `Servers`, an `App`, nor a `Result` of these"
)]
pub trait Program: Sized {
    /// The servers to choose from.
    #[doc(hidden)]
    fn servers(self) -> Result<Vec<Server>, String>;

    /// Where several of them are served over HTTP, if that was said.
    #[doc(hidden)]
    #[cfg(feature = "http")]
    fn app(self) -> Result<App, Self> {
        Err(self)
    }
}

impl Program for Servers {
    fn servers(self) -> Result<Vec<Server>, String> {
        (&self).servers()
    }
}

impl Program for &Servers {
    fn servers(self) -> Result<Vec<Server>, String> {
        Ok(self.names().iter().filter_map(|name| self.get(name)).collect())
    }
}

#[cfg(feature = "http")]
impl Program for App {
    fn servers(self) -> Result<Vec<Server>, String> {
        self.server_list().servers()
    }

    fn app(self) -> Result<App, App> {
        Ok(self)
    }
}

impl Program for Server {
    fn servers(self) -> Result<Vec<Server>, String> {
        Ok(vec![self])
    }
}

impl Program for Vec<Server> {
    fn servers(self) -> Result<Vec<Server>, String> {
        Ok(self)
    }
}

impl<L: PendingItem> Program for Builder<L> {
    fn servers(self) -> Result<Vec<Server>, String> {
        self.build().servers()
    }
}

impl<P: Program, E: Display> Program for Result<P, E> {
    fn servers(self) -> Result<Vec<Server>, String> {
        // `{:#}` lets error types that keep a chain of causes tell all of it.
        self.map_err(|error| format!("{error:#}")).and_then(P::servers)
    }

    #[cfg(feature = "http")]
    fn app(self) -> Result<App, Self> {
        match self {
            Ok(program) => program.app().map_err(Ok),
            Err(error) => Err(Err(error)),
        }
    }
}

/// The package that a program is built from, as Cargo knows it.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
}

impl Package {
    /// A server of this name and version, with everything that is linked in.
    #[cfg(feature = "macros")]
    pub fn server(self) -> Builder {
        let server = Server::new(self.name, self.version).collect();
        match self.description {
            "" => server,
            description => server.server_description(description),
        }
    }
}

/// Runs the program until its client leaves or it is asked to end.
#[doc(hidden)]
pub fn run<P: Program>(package: Package, make: impl AsyncFnOnce() -> P) -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let wish = CommandLine::parse(words, std::env::var(SERVER_NAME_VAR).ok());
    match wish {
        Ok(CommandLine::Help) => print(&help(package)),
        Ok(CommandLine::Version) => print(&format!("{} {}", package.name, package.version)),
        Ok(CommandLine::Serve { mode: road, name }) => match serve(road, name.as_deref(), make) {
            Ok(()) => ExitCode::SUCCESS,
            Err(ProgramError::UnknownServer(what)) => report_error(package, &what, 2),
            Err(ProgramError::Failed(what)) => report_error(package, &what, 1),
        },
        Err(what) => report_error(package, &format!("{what}; `--help` says what can be asked for"), 2),
    }
}

enum ProgramError {
    /// There is no server of that name.
    UnknownServer(String),
    Failed(String),
}

impl From<Error> for ProgramError {
    fn from(error: Error) -> ProgramError {
        ProgramError::Failed(error.to_string())
    }
}

fn serve<P: Program>(
    road: ServeMode,
    name: Option<&str>,
    make: impl AsyncFnOnce() -> P,
) -> Result<(), ProgramError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| ProgramError::Failed(format!("cannot start: {error}")))?;
    let served = runtime.block_on(async {
        let program = make().await;
        #[cfg(feature = "http")]
        let program = match (&road, program.app()) {
            (ServeMode::Http(address), Ok(app)) => {
                app.check()?;
                let (listener, address) = bind(address).await?;
                let said = format!("listening on http://{address} at {}", app.paths());
                return announce_and_serve(&said, app.serve(listener)).await;
            }
            (ServeMode::Stdio, Ok(app)) => return serve_stdio(app.servers(), name).await,
            (_, Err(program)) => program,
        };
        let servers = program.servers().map_err(ProgramError::Failed)?;
        let server = select_server(servers, name).map_err(ProgramError::UnknownServer)?;
        match road {
            ServeMode::Stdio => Ok(server.serve_stdio().await?),
            // Over HTTP too it is one server that is served. Where several are to be mounted side by side,
            // they have to be kept here until this point.
            ServeMode::Http(address) => listen(&server, &address).await,
        }
    });
    // Work that a handler has moved to a thread of its own does not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

#[cfg(feature = "http")]
async fn serve_stdio(servers: Result<Vec<Server>, String>, name: Option<&str>) -> Result<(), ProgramError> {
    let server =
        select_server(servers.map_err(ProgramError::Failed)?, name).map_err(ProgramError::UnknownServer)?;
    Ok(server.serve_stdio().await?)
}

#[cfg(feature = "http")]
async fn bind(address: &str) -> Result<(tokio::net::TcpListener, std::net::SocketAddr), ProgramError> {
    let cannot = |error| ProgramError::Failed(format!("cannot listen on {address}: {error}"));
    let listener = tokio::net::TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok((listener, address))
}

/// Says this when it is served, not before: whoever reads it may ask us to end at once, and signals are heard from the
/// first poll of the serving on.
#[cfg(feature = "http")]
async fn announce_and_serve(
    said: &str,
    serving: impl Future<Output = Result<(), Error>>,
) -> Result<(), ProgramError> {
    let saying = async {
        eprintln!("{said}");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        served = serving => Ok(served?),
        () = saying => Ok(()),
    }
}

#[cfg(feature = "http")]
async fn listen(server: &Server, address: &str) -> Result<(), ProgramError> {
    let (listener, address) = bind(address).await?;
    announce_and_serve(&format!("listening on http://{address}/mcp"), server.serve(listener)).await
}

#[cfg(not(feature = "http"))]
async fn listen(_: &Server, _: &str) -> Result<(), ProgramError> {
    Err(ProgramError::Failed("this program was built without HTTP (feature `http` of toolgate)".into()))
}

/// The server of that name. Without a name, the only one there is, or the one called `default`.
fn select_server(mut servers: Vec<Server>, name: Option<&str>) -> Result<Server, String> {
    let wanted = match name {
        None if servers.len() == 1 => Some(0),
        name => servers.iter().position(|server| server.name() == name.unwrap_or("default")),
    };
    match (wanted, name) {
        (Some(place), _) => Ok(servers.swap_remove(place)),
        (None, Some(name)) => Err(format!("there is no server `{name}`{}", list_servers(&servers))),
        (None, None) => Err(format!("choose a server with `--server NAME`{}", list_servers(&servers))),
    }
}

fn list_servers(servers: &[Server]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("`{}`", server.name())).collect();
    match names.as_slice() {
        [] => "; there is none at all".into(),
        _ => format!("; there is {}", names.join(", ")),
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandLine {
    Help,
    Version,
    Serve { mode: ServeMode, name: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ServeMode {
    Stdio,
    Http(String),
}

impl CommandLine {
    /// A name that stands alone wins over `--server`, and that over the environment's.
    fn parse(words: impl IntoIterator<Item = String>, named: Option<String>) -> Result<CommandLine, String> {
        let mut words = words.into_iter();
        let (mut road, mut flag, mut alone) = (None, None, None);
        let mut is_literal = false;
        while let Some(word) = words.next() {
            if is_literal || !word.starts_with('-') || word == "-" {
                set_once(&mut alone, word, "a server's name")?;
                continue;
            }
            let (key, value) = match word.split_once('=') {
                Some((key, value)) if key.starts_with("--") => (key, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let has_value = value.is_some();
            let mut value = |example: &str| match value.clone().or_else(|| words.next()) {
                Some(value) => Ok(value),
                None => Err(format!("`{key}` needs a value, for example `{key} {example}`")),
            };
            match key {
                "--http" => {
                    set_once(&mut road, ServeMode::Http(parse_address(&value(":8080")?)?), "how to serve")?
                }
                "--server" => set_once(&mut flag, value("NAME")?, "`--server`")?,
                _ if has_value => return Err(format!("unknown option `{key}`, or it takes no value")),
                "--stdio" => set_once(&mut road, ServeMode::Stdio, "how to serve")?,
                "--help" | "-h" => return Ok(CommandLine::Help),
                "--version" | "-V" => return Ok(CommandLine::Version),
                "--" => is_literal = true,
                _ => return Err(format!("unknown option `{word}`")),
            }
        }
        let name = [alone, flag, named].into_iter().flatten().find(|name| !name.trim().is_empty());
        let name = name.map(|name| name.trim().to_owned());
        Ok(CommandLine::Serve { mode: road.unwrap_or(ServeMode::Stdio), name })
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{what} is given twice")),
    }
}

/// `8080` and `:8080` are ports of this machine, for nobody beyond it.
fn parse_address(text: &str) -> Result<String, String> {
    let fault = || format!("`{text}` is no address; one looks like `:8080` or `127.0.0.1:8080`");
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    // What stands before the port of an IPv6 address is in brackets.
    let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let port: u16 = port.parse().map_err(|_| fault())?;
    match host {
        "" => Ok(format!("127.0.0.1:{port}")),
        _ if is_plain => Ok(format!("{host}:{port}")),
        _ => Err(fault()),
    }
}

fn help(package: Package) -> String {
    let Package { name, version, description } = package;
    let path = std::env::args_os().next().map(std::path::PathBuf::from).unwrap_or_default();
    let program = path.file_name().map_or(name.into(), |file| file.to_string_lossy());
    let about = if description.is_empty() { String::new() } else { format!("\n{description}\n") };
    format!(
        "{name} {version}{about}
usage: {program} [OPTIONS] [NAME]

  --stdio         serve the client that started this program (the default)
  --http ADDR     serve HTTP at /mcp; `:8080` is a port of this machine only
  --server NAME   which server to serve; also as NAME alone, or by {SERVER_NAME_VAR}
  --help          print this
  --version       print the version"
    )
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn report_error(package: Package, what: &str, code: u8) -> ExitCode {
    eprintln!("{}: {what}", package.name);
    ExitCode::from(code)
}

/// The whole program: `fn main` with a command line, a runtime, and a server.
///
/// Without anything in it, the server has the name, version and description of your package, and offers
/// everything that is marked with `#[tool]` and its like:
///
/// ```no_run
/// use toolgate::prelude::*;
/// /// Greet someone
/// #[tool]
/// async fn greet(name: String) -> String { format!("Hello, {name}!") }
/// toolgate::main!();
/// ```
///
/// Otherwise it serves what it is given: a [`Server`](crate::Server), a [`Builder`](crate::Builder), several
/// servers, a `Result` of these, or an `async` block that gives one.
///
/// ```no_run
/// # use toolgate::{Error, Server};
/// toolgate::main!(async {
///     let motto = tokio::fs::read_to_string("motto.txt").await?;
///     Ok::<_, std::io::Error>(Server::new("motto", "1.0.0").state(motto))
/// });
/// ```
///
/// The program serves the client that started it, on standard input and output; `--http :8080` serves HTTP
/// instead. `--server NAME`, a name alone, or `MCP_SERVER_NAME` choose among several servers. `--help` says
/// so too. It ends with code 2 if it was called in a wrong way, and with 1 if it cannot serve.
#[macro_export]
macro_rules! main {
    () => {
        $crate::main!($crate::__main_package!().server());
    };
    (async move $body:block) => {
        $crate::main!(async $body);
    };
    (async $body:block) => {
        fn main() -> ::std::process::ExitCode {
            $crate::__private::run($crate::__main_package!(), async || $body)
        }
    };
    ($program:expr $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::__private::run($crate::__main_package!(), async || $program)
        }
    };
}

/// What Cargo says of the package that is being compiled.
#[doc(hidden)]
#[macro_export]
macro_rules! __main_package {
    () => {
        $crate::__private::Package {
            name: ::core::env!("CARGO_PKG_NAME"),
            version: ::core::env!("CARGO_PKG_VERSION"),
            description: ::core::env!("CARGO_PKG_DESCRIPTION"),
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_line(line: &str, named: Option<&str>) -> Result<CommandLine, String> {
        CommandLine::parse(line.split_whitespace().map(str::to_owned), named.map(str::to_owned))
    }

    fn stdio(name: Option<&str>) -> CommandLine {
        CommandLine::Serve { mode: ServeMode::Stdio, name: name.map(str::to_owned) }
    }

    fn http(address: &str) -> CommandLine {
        CommandLine::Serve { mode: ServeMode::Http(address.into()), name: None }
    }

    #[test]
    fn a_command_line_says_what_to_serve_and_how() {
        let cases = [
            ("", None, stdio(None)),
            ("--stdio", None, stdio(None)),
            ("--http :8080", None, http("127.0.0.1:8080")),
            ("--http=8080", None, http("127.0.0.1:8080")),
            ("--http 0.0.0.0:80", None, http("0.0.0.0:80")),
            ("--http [::1]:80", None, http("[::1]:80")),
            ("--http localhost:0", None, http("localhost:0")),
            ("--server a", Some("e"), stdio(Some("a"))),
            ("--server=a b", Some("e"), stdio(Some("b"))),
            ("", Some("e"), stdio(Some("e"))),
            ("", Some("  "), stdio(None)),
            ("--server=", Some("e"), stdio(Some("e"))),
            ("-- --odd", None, stdio(Some("--odd"))),
            ("--help", None, CommandLine::Help),
            ("-h", None, CommandLine::Help),
            ("a --version", None, CommandLine::Version),
        ];
        for (line, named, wanted) in cases {
            assert_eq!(parse_line(line, named), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let cases = [
            ("--htpp :80", "unknown option `--htpp`"),
            ("-x", "unknown option `-x`"),
            ("--http", "`--http` needs a value"),
            ("--http nowhere", "`nowhere` is no address"),
            ("--http ::1:80", "`::1:80` is no address"),
            ("--http :70000", "`:70000` is no address"),
            ("--stdio --http :80", "how to serve is given twice"),
            ("--stdio=yes", "takes no value"),
            ("a b", "a server's name is given twice"),
        ];
        for (line, wanted) in cases {
            let fault = parse_line(line, None).unwrap_err();
            assert!(fault.contains(wanted), "{line}: {fault}");
        }
    }

    #[test]
    fn a_server_is_chosen_by_its_name() {
        let named = |name: &str| Server::new(name, "1").build().unwrap();
        let all = || vec![named("a"), named("default"), named("b")];
        assert_eq!(select_server(all(), Some("b")).unwrap().name(), "b");
        assert_eq!(select_server(all(), None).unwrap().name(), "default");
        assert_eq!(select_server(vec![named("a")], None).unwrap().name(), "a");
        let fault = select_server(all(), Some("c")).unwrap_err();
        assert_eq!(fault, "there is no server `c`; there is `a`, `default`, `b`");
        assert!(select_server(vec![named("a"), named("b")], None).is_err());
        assert!(select_server(Vec::new(), None).is_err());
    }

    proptest! {
        #[test]
        fn no_command_line_is_too_odd(words in proptest::collection::vec("[-=:a-z0-9\\[\\] ]{0,12}", 0..5)) {
            let _ = CommandLine::parse(words, None);
        }

        #[test]
        fn an_address_always_has_a_host_and_a_port(text in "\\PC{0,24}") {
            if let Ok(address) = parse_address(&text) {
                let (host, port) = address.rsplit_once(':').unwrap();
                prop_assert!(!host.is_empty() && port.parse::<u16>().is_ok());
            }
        }
    }
}
