//! A program around servers: the expansion of [`main!`](crate::main).
//!
//! Parses the command line, builds a runtime, serves. It does not depend on the servers, and nothing but the
//! protocol reaches standard output while a client is served there.

mod command_line;

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

#[cfg(feature = "http")]
use crate::app::App;
use crate::error::Error;
use crate::server::{Builder, Server};
use crate::servers::Servers;
use command_line::{CommandLine, ServeMode};

/// Names the server to serve, if the command line does not.
const SERVER_NAME_VAR: &str = "MCP_SERVER_NAME";

/// The argument of a program: a [`Server`], a [`Builder`], several servers to choose from by name
/// ([`Servers`]), an `App` with the path of each, or a `Result` of these. See [`main!`](crate::main).
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

    /// The app that serves all of them over HTTP, if there is one.
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

impl Program for Builder {
    fn servers(self) -> Result<Vec<Server>, String> {
        self.build().servers()
    }
}

impl<P: Program, E: Display> Program for Result<P, E> {
    fn servers(self) -> Result<Vec<Server>, String> {
        // `{:#}` includes the whole chain of causes for error types that keep one.
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

/// The Cargo package of a program.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
}

impl Package {
    /// A server of this name and version, with all items that are linked in.
    #[cfg(feature = "macros")]
    pub fn server(self) -> Builder {
        let server = Server::new(self.name, self.version).collect();
        match self.description {
            "" => server,
            description => server.server_description(description),
        }
    }
}

/// Runs the program until its client disconnects or it is asked to terminate.
#[doc(hidden)]
pub fn run<P: Program>(package: Package, make: impl AsyncFnOnce() -> P) -> ExitCode {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let command_line = CommandLine::parse(arguments, std::env::var(SERVER_NAME_VAR).ok());
    match command_line {
        Ok(CommandLine::Help) => print(&help(package)),
        Ok(CommandLine::Version) => print(&format!("{} {}", package.name, package.version)),
        Ok(CommandLine::Serve { mode, name }) => match serve(mode, name.as_deref(), make) {
            Ok(()) => ExitCode::SUCCESS,
            Err(ProgramError::UnknownServer(message)) => report_error(package, &message, 2),
            Err(ProgramError::Failed(message)) => report_error(package, &message, 1),
        },
        Err(message) => report_error(package, &format!("{message}; see `--help`"), 2),
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
    mode: ServeMode,
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
        let program = match (&mode, program.app()) {
            (ServeMode::Http(address), Ok(app)) => {
                app.check()?;
                let (listener, address) = bind(address).await?;
                let message = format!("listening on http://{address} at {}", app.paths());
                return announce_and_serve(&message, app.serve(listener)).await;
            }
            (ServeMode::Stdio, Ok(app)) => return serve_stdio(app.servers(), name).await,
            (_, Err(program)) => program,
        };
        let servers = program.servers().map_err(ProgramError::Failed)?;
        let server = select_server(servers, name).map_err(ProgramError::UnknownServer)?;
        match mode {
            ServeMode::Stdio => Ok(server.serve_stdio().await?),
            // One server is served over HTTP too; an `App` serves several.
            ServeMode::Http(address) => listen(&server, &address).await,
        }
    });
    // A blocking thread of a handler does not keep the process running.
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
    let bind_error = |error| ProgramError::Failed(format!("cannot listen on {address}: {error}"));
    let listener = tokio::net::TcpListener::bind(address).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;
    Ok((listener, address))
}

/// Prints the message once serving has started, not before: its reader may send a signal at once, and signals are
/// handled from the first poll of `serving` on.
#[cfg(feature = "http")]
async fn announce_and_serve(
    message: &str,
    serving: impl Future<Output = Result<(), Error>>,
) -> Result<(), ProgramError> {
    let printing = async {
        eprintln!("{message}");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        served = serving => Ok(served?),
        () = printing => Ok(()),
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

/// Returns the server of that name. Without a name, the only one, or the one called `default`.
fn select_server(mut servers: Vec<Server>, name: Option<&str>) -> Result<Server, String> {
    let index = match name {
        None if servers.len() == 1 => Some(0),
        name => servers.iter().position(|server| server.name() == name.unwrap_or("default")),
    };
    match (index, name) {
        (Some(index), _) => Ok(servers.swap_remove(index)),
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

fn report_error(package: Package, message: &str, code: u8) -> ExitCode {
    eprintln!("{}: {message}", package.name);
    ExitCode::from(code)
}

/// The whole program: `fn main` with a command line, a runtime, and a server.
///
/// Without arguments, the server has the name, version and description of your package, and all items marked with
/// `#[tool]` and similar attributes:
///
/// ```no_run
/// use toolgate::prelude::*;
/// /// Greet someone
/// #[tool]
/// async fn greet(name: String) -> String { format!("Hello, {name}!") }
/// toolgate::main!();
/// ```
///
/// Otherwise it serves its argument: a [`Server`], a [`Builder`], several servers, a
/// `Result` of these, or an `async` block that returns one.
///
/// ```no_run
/// # use toolgate::{Error, Server};
/// toolgate::main!(async {
///     let motto = tokio::fs::read_to_string("motto.txt").await?;
///     Ok::<_, std::io::Error>(Server::new("motto", "1.0.0").state(motto))
/// });
/// ```
///
/// The program serves the client that started it, on standard input and output; `--http :8080` serves HTTP instead.
/// `--server NAME`, a name alone, or `MCP_SERVER_NAME` choose among several servers; see `--help`. The exit code is 2
/// for a wrong command line, and 1 if it cannot serve.
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

/// The package that is being compiled, as Cargo describes it.
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
    use super::*;

    #[test]
    fn a_server_is_chosen_by_its_name() {
        let named = |name: &str| Server::new(name, "1").build().unwrap();
        let all = || vec![named("a"), named("default"), named("b")];
        assert_eq!(select_server(all(), Some("b")).unwrap().name(), "b");
        assert_eq!(select_server(all(), None).unwrap().name(), "default");
        assert_eq!(select_server(vec![named("a")], None).unwrap().name(), "a");
        let error = select_server(all(), Some("c")).unwrap_err();
        assert_eq!(error, "there is no server `c`; there is `a`, `default`, `b`");
        assert!(select_server(vec![named("a"), named("b")], None).is_err());
        assert!(select_server(Vec::new(), None).is_err());
    }
}
