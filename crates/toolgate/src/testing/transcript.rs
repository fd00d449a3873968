//! Transcripts: text files that list what a client sends and what it must receive.
//!
//! A transcript is a test that can be read without knowing Rust, and written by copying the messages of a client.
//! It is played against a server in memory, over stdio framing or over HTTP.
//!
//! ```text
//! # Greets by name.
//! @ stdio
//! > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ann"},"_meta":{META}}}
//! < {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"Hello, Ann!"}],"_meta":"<any>"}}
//! ```
//!
//! The start of a line gives its kind. `#` starts a comment. A line that starts with none of these continues the line
//! before it.
//!
//! | line | meaning |
//! |---|---|
//! | `@ stdio` | the transcript uses stdio framing; options for the [`TranscriptHost`] may follow |
//! | `@ http` | the transcript uses HTTP; options for the [`TranscriptHost`] may follow |
//! | `@ let NAME = TEXT` | `{NAME}` stands for this text from here on |
//! | `@ each A B C` | plays the transcript once for each value, as `{V}`; `@ each all` is all protocol versions |
//! | `@ when A B` … `@ end` | these steps are only played for these values of `@ each` |
//! | `@ headers NAME = a: b \| c: d` | headers that `+NAME` adds to a request |
//! | `> …` | send |
//! | `< …` | expect |
//! | `! …` | run an action: `drop`, `sleep MILLIS`, `differ A B`, or an action of the [`TranscriptHost`] |
//!
//! `[name]` before a step names the connection, if there are several. `{V}` is the value of `@ each`, `{NEWEST}` the
//! newest protocol version, `{META}` the `_meta` of a client of that version without capabilities.
//!
//! Over stdio, `> …` is one line of input, `> eof` ends the input, `>b "a\n\xff"` sends raw bytes.
//! `< …` is one line of output, `< eof` the end of the output, `< nothing` expects no output for a moment; consecutive
//! `<~` lines may arrive in any order.
//!
//! Over HTTP, `> POST /mcp +NAME as ADA` is a request with the named headers and with a principal, as if a layer had
//! authenticated it; header lines and a body may follow. `host`, `accept` and `content-type` are sent as clients do,
//! unless a header line sets them; the value `-` omits a header. `+modern` adds the headers that the newest protocol
//! version mirrors from the body.
//! `< 200 application/json` is the head of the response; header lines (`-name`: must be absent) and a body may
//! follow. For a stream, `< event id=1 {…}` expects one event, `< comment` a comment, `< retry 7` a reconnection time,
//! `< nothing` silence, and `< end` the end of the stream.
//!
//! JSON is compared as JSON and completely: an additional member is a failure. `"<any>"` matches any value. `"<=x>"`
//! matches any value and captures it as `{x}`. Both may be part of a string. Unexpected output is a failure.

mod compare;
#[cfg(feature = "http")]
mod http_steps;
mod player;
mod script;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use toolgate_wire::{ProtocolVersion, meta_key};

use super::{IntoServer, TestVersion};
use crate::server::Server;
use player::Player;

/// A list of what a client sends and what it must receive; see the [module](self).
///
/// ```
/// # use toolgate::Server;
/// # use toolgate::testing::transcript::Transcript;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::new("demo", "1.0.0").tool("hi", || async { "Hello!" }).build()?;
/// let text = r#"
/// @ stdio
/// @ each 2025-06-18 2025-11-25
/// > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"{V}","capabilities":{},"clientInfo":{"name":"cli","version":"1"}}}
/// < {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"{V}","capabilities":"<any>","serverInfo":"<any>"}}
/// > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hi"}}
/// < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Hello?"}]}}
/// "#;
/// let failure = Transcript::new("hello.txt", text).play(&server).await.unwrap_err();
/// assert!(failure.to_string().starts_with("hello.txt:7 (2025-06-18): $.result.content[0].text"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Transcript {
    name: String,
    prelude: String,
    text: String,
}

impl Transcript {
    /// Creates a transcript from a text. Failures show the name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Transcript {
        Transcript { name: name.into(), prelude: String::new(), text: text.into() }
    }

    /// Reads a transcript from a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn file(path: impl AsRef<Path>) -> io::Result<Transcript> {
        let path = path.as_ref();
        Ok(Transcript::new(path.display().to_string(), std::fs::read_to_string(path)?))
    }

    /// Sets the name shown in failures.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Transcript {
        Transcript { name: name.into(), ..self }
    }

    /// Prepends directives that several transcripts share.
    #[must_use]
    pub fn prelude(self, text: impl Into<String>) -> Transcript {
        Transcript { prelude: text.into(), ..self }
    }

    /// Plays the transcript against a server, once for each value of its `@ each`.
    ///
    /// # Errors
    /// The first step that failed.
    ///
    /// # Panics
    /// If the server cannot be built.
    pub async fn play(&self, server: impl IntoServer) -> Result<(), TranscriptError> {
        let server = server.into_server();
        self.play_with(|| ServerHost(server.clone())).await
    }

    /// Plays the transcript against the server of a host, which is created anew for each value of its `@ each`.
    ///
    /// # Errors
    /// The first step that failed.
    pub async fn play_with<H: TranscriptHost>(
        &self,
        mut host: impl FnMut() -> H,
    ) -> Result<(), TranscriptError> {
        for each_value in each_values(&self.text) {
            let mut vars = builtin_vars();
            vars.insert("V".to_owned(), each_value.clone());
            let played = async {
                let mut host = host();
                let mut player = Player::new(&self.prelude, &self.text, &each_value, vars, &mut host)?;
                player.run(&mut host).await
            };
            if let Err((line, message)) = played.await {
                let each_value = Some(each_value).filter(|value| !value.is_empty());
                return Err(TranscriptError { name: self.name.clone(), line, each_value, message });
            }
        }
        Ok(())
    }
}

/// Returns the values of the transcript's `@ each`, or one empty value.
fn each_values(text: &str) -> Vec<String> {
    let Some(each) = text.lines().find_map(|line| line.strip_prefix("@ each ")) else {
        return vec![String::new()];
    };
    let expand = |value: &str| match value {
        "all" => TestVersion::all().map(|version| version.date().to_owned()).collect(),
        value => vec![value.to_owned()],
    };
    each.split_whitespace().flat_map(expand).collect()
}

/// Returns the variables that are defined in every transcript.
fn builtin_vars() -> compare::Vars {
    let newest = ProtocolVersion::LATEST.as_str();
    let meta = serde_json::json!({ meta_key::PROTOCOL_VERSION: newest, meta_key::CLIENT_CAPABILITIES: {} });
    [("NEWEST", newest.to_owned()), ("META", meta.to_string())]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text))
        .collect()
}

/// Provides the server of a transcript, and implements project-specific options after `@ stdio` and `@ http` and actions
/// after `!`.
///
/// ```
/// use toolgate::Server;
/// use toolgate::testing::transcript::{Transcript, TranscriptHost};
///
/// #[derive(Default)]
/// struct Shop { server: Option<Server>, name: String }
///
/// impl TranscriptHost for Shop {
///     fn option(&mut self, option: &str) -> Result<(), String> {
///         self.name = option.strip_prefix("name=").ok_or("no such option")?.to_owned();
///         Ok(())
///     }
///
///     fn open_server(&mut self) -> Result<Server, String> {
///         let server = Server::new(&self.name, "1").build().map_err(|error| error.to_string())?;
///         self.server = Some(server.clone());
///         Ok(server)
///     }
///
///     async fn run_action(&mut self, action: &[&str]) -> Result<(), String> {
///         match (action, &self.server) {
///             (["close"], Some(server)) => server.shutdown(),
///             _ => return Err("no such action".into()),
///         }
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let text = "@ stdio name=north\n! close\n< eof";
/// Transcript::new("closing", text).play_with(Shop::default).await.unwrap();
/// # }
/// ```
pub trait TranscriptHost: Send {
    /// Applies one option.
    ///
    /// # Errors
    /// If the option is not known.
    fn option(&mut self, option: &str) -> Result<(), String> {
        Err(format!("no such option: {option}"))
    }

    /// Returns the server. Called once, after all options.
    ///
    /// # Errors
    /// If the server cannot be built.
    fn open_server(&mut self) -> Result<Server, String>;

    /// Runs an action.
    ///
    /// # Errors
    /// If the action is not known, or fails.
    fn run_action(&mut self, action: &[&str]) -> impl Future<Output = Result<(), String>> + Send {
        let error = format!("no such action: {}", action.join(" "));
        async { Err(error) }
    }

    /// Sends one HTTP request to the server. Override it to put layers in front of the server.
    #[cfg(feature = "http")]
    fn send(
        &mut self,
        endpoint: &crate::transport::http::ServerService,
        request: http::Request<String>,
    ) -> super::HttpExchange {
        super::HttpExchange::start(endpoint.clone(), request)
    }
}

struct ServerHost(Server);

impl TranscriptHost for ServerHost {
    fn open_server(&mut self) -> Result<Server, String> {
        Ok(self.0.clone())
    }
}

/// The first failed step of a transcript. `Display` shows its line and the difference.
#[derive(Clone, Debug)]
pub struct TranscriptError {
    name: String,
    line: usize,
    each_value: Option<String>,
    message: String,
}

impl TranscriptError {
    /// The line of the transcript.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The difference.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for TranscriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TranscriptError { name, line, each_value, message } = self;
        write!(f, "{name}:{line}")?;
        if let Some(each_value) = each_value {
            write!(f, " ({each_value})")?;
        }
        write!(f, ": {message}")
    }
}

impl std::error::Error for TranscriptError {}

/// Plays a transcript: a text, a file, or all `.txt` files of a directory.
///
/// Relative paths start at the current directory; under `cargo test` that is the root of the package. A file named
/// `prelude.txt` is prepended to every file in its directory.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = toolgate::Server::new("demo", "1.0.0").build()?;
/// toolgate::testing::play(&server, r#"
/// @ stdio
/// > {"jsonrpc":"2.0","id":1,"method":"no/such","params":{"_meta":{META}}}
/// < {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"<any>"}}
/// "#).await;
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If a step fails, with its line and the difference.
pub async fn play(server: impl IntoServer, source: &str) {
    let server = server.into_server();
    let all =
        if source.contains('\n') { vec![Transcript::new("transcript", source)] } else { load_all(source) };
    let mut failures = Vec::new();
    for transcript in all {
        failures.extend(transcript.play(&server).await.err().map(|failure| failure.to_string()));
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

fn load_all(path: &str) -> Vec<Transcript> {
    let path = Path::new(path);
    if !path.is_dir() {
        return vec![load(path)];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_transcript = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "txt") && !path.ends_with("prelude.txt")
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_transcript).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no transcripts in {}", path.display());
    paths.iter().map(|path| load(path)).collect()
}

/// Loads a file, and the `prelude.txt` of its directory.
fn load(path: &Path) -> Transcript {
    let prelude = std::fs::read_to_string(path.with_file_name("prelude.txt")).unwrap_or_default();
    match Transcript::file(path) {
        Ok(transcript) => transcript.prelude(prelude),
        Err(error) => panic!("cannot read the transcript {}: {error}", path.display()),
    }
}
