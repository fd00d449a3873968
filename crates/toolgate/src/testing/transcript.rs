//! Transcripts: texts that say what a client sends and what it must hear.
//!
//! A transcript is a test that can be read without knowing Rust, and written by copying what a client said.
//! It is played against a server in memory, over lines or over HTTP.
//!
//! ```text
//! # Greets by name.
//! @ stdio
//! > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ann"},"_meta":{META}}}
//! < {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"Hello, Ann!"}],"_meta":"<any>"}}
//! ```
//!
//! A line starts with what it is. `#` is a comment. A line that starts with none of these goes on with what
//! came before it.
//!
//! | line | meaning |
//! |---|---|
//! | `@ stdio` | what follows is lines; options for the [`TranscriptHost`] may follow |
//! | `@ http` | what follows is HTTP; options for the [`TranscriptHost`] may follow |
//! | `@ let NAME = TEXT` | `{NAME}` stands for this text from here on |
//! | `@ each A B C` | plays the whole text once for each word, as `{V}`; `@ each all` is all revisions |
//! | `@ when A B` … `@ end` | these steps are for these words of `@ each` only |
//! | `@ headers NAME = a: b \| c: d` | headers that `+NAME` adds to a request |
//! | `> …` | sends |
//! | `< …` | hears |
//! | `! …` | does something: `drop`, `sleep MILLIS`, `differ A B`, or what the [`TranscriptHost`] knows |
//!
//! `[name]` before a step tells several connections apart. `{V}` is the word of `@ each`, `{NEWEST}` the
//! newest revision, `{META}` the `_meta` of a client of it that can do nothing special.
//!
//! Over lines, `> …` is one line of input, `> eof` ends the input, `>b "a\n\xff"` sends bytes as they are.
//! `< …` is one line of output, `< eof` its end, `< nothing` that there is none for now; `<~` lines in a row
//! may come in any order.
//!
//! Over HTTP, `> POST /mcp +NAME as ADA` is a request with the named headers and, as if a layer had put it
//! there, a principal; header lines and a body may follow. `host`, `accept` and `content-type` are sent as
//! clients do, unless a header line says otherwise; `-` as a value leaves a header out. `+modern` repeats
//! in headers what the newest revision wants repeated.
//! `< 200 application/json` is the head of the answer; header lines (`-name`: must be absent) and a body may
//! follow. Of a stream, `< event id=1 {…}` is one event, `< comment`, `< retry 7`, `< nothing` and `< end`
//! are what they say.
//!
//! JSON is compared as JSON and whole: a member too many is a failure. `"<any>"` is anything, `"<=x>"` is
//! anything too, and `{x}` stands for it from then on; both may stand inside a string. What was heard and
//! not expected is a failure.

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

/// A text that says what a client sends and what it must hear; see the [module](self).
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
    /// This text, under this name in complaints.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Transcript {
        Transcript { name: name.into(), prelude: String::new(), text: text.into() }
    }

    /// The text of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn file(path: impl AsRef<Path>) -> io::Result<Transcript> {
        let path = path.as_ref();
        Ok(Transcript::new(path.display().to_string(), std::fs::read_to_string(path)?))
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Transcript {
        Transcript { name: name.into(), ..self }
    }

    /// Begins with the directives of this text: what several transcripts share.
    #[must_use]
    pub fn prelude(self, text: impl Into<String>) -> Transcript {
        Transcript { prelude: text.into(), ..self }
    }

    /// Plays it against this server, once for each word of its `@ each`.
    ///
    /// # Errors
    /// With the first thing that was not as the text says.
    ///
    /// # Panics
    /// If the server cannot be built.
    pub async fn play(&self, server: impl IntoServer) -> Result<(), TranscriptError> {
        let server = server.into_server();
        self.play_with(|| ServerHost(server.clone())).await
    }

    /// Plays it against the server of a host, which is made anew for each word of its `@ each`.
    ///
    /// # Errors
    /// With the first thing that was not as the text says.
    pub async fn play_with<H: TranscriptHost>(
        &self,
        mut host: impl FnMut() -> H,
    ) -> Result<(), TranscriptError> {
        for word in each_values(&self.text) {
            let mut vars = builtin_vars();
            vars.insert("V".to_owned(), word.clone());
            let played = async {
                let mut host = host();
                let mut player = Player::new(&self.prelude, &self.text, &word, vars, &mut host)?;
                player.run(&mut host).await
            };
            if let Err((line, words)) = played.await {
                let word = Some(word).filter(|word| !word.is_empty());
                return Err(TranscriptError {
                    name: self.name.clone(),
                    line,
                    each_value: word,
                    message: words,
                });
            }
        }
        Ok(())
    }
}

/// What a transcript is played for: the words of its `@ each`, or once.
fn each_values(text: &str) -> Vec<String> {
    let Some(each) = text.lines().find_map(|line| line.strip_prefix("@ each ")) else {
        return vec![String::new()];
    };
    let all = |word: &str| match word {
        "all" => TestVersion::all().map(|revision| revision.date().to_owned()).collect(),
        word => vec![word.to_owned()],
    };
    each.split_whitespace().flat_map(all).collect()
}

/// What every transcript knows.
fn builtin_vars() -> compare::Vars {
    let newest = ProtocolVersion::LATEST.as_str();
    let meta = serde_json::json!({ meta_key::PROTOCOL_VERSION: newest, meta_key::CLIENT_CAPABILITIES: {} });
    [("NEWEST", newest.to_owned()), ("META", meta.to_string())]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text))
        .collect()
}

/// Who gives a transcript its server, and does what only your project can do: the options after `@ stdio`
/// and `@ http`, and the actions after `!`.
///
/// ```
/// use toolgate::Server;
/// use toolgate::testing::transcript::{Host, Transcript};
///
/// #[derive(Default)]
/// struct Shop { server: Option<Server>, name: String }
///
/// impl Host for Shop {
///     fn option(&mut self, option: &str) -> Result<(), String> {
///         self.name = option.strip_prefix("name=").ok_or("no such option")?.to_owned();
///         Ok(())
///     }
///
///     fn open(&mut self) -> Result<Server, String> {
///         let server = Server::new(&self.name, "1").build().map_err(|error| error.to_string())?;
///         self.server = Some(server.clone());
///         Ok(server)
///     }
///
///     async fn act(&mut self, action: &[&str]) -> Result<(), String> {
///         match (action, &self.server) {
///             (["close"], Some(server)) => server.shut_down(),
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
    /// Takes one option.
    ///
    /// # Errors
    /// If there is no such option.
    fn option(&mut self, option: &str) -> Result<(), String> {
        Err(format!("no such option: {option}"))
    }

    /// The server, after all options; asked for once.
    ///
    /// # Errors
    /// If there is none.
    fn open_server(&mut self) -> Result<Server, String>;

    /// Does something.
    ///
    /// # Errors
    /// If it cannot be done, or nobody knows how.
    fn run_action(&mut self, action: &[&str]) -> impl Future<Output = Result<(), String>> + Send {
        let fault = format!("no such action: {}", action.join(" "));
        async { Err(fault) }
    }

    /// Sends one HTTP request: to the server itself, unless you have something in front of it.
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

/// The first thing that was not as a transcript says. Shown, it names the place and what differs.
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

    /// What differs.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for TranscriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TranscriptError { name, line, each_value: word, message: words } = self;
        write!(f, "{name}:{line}")?;
        if let Some(word) = word {
            write!(f, " ({word})")?;
        }
        write!(f, ": {words}")
    }
}

impl std::error::Error for TranscriptError {}

/// Plays a transcript: a text, a file, or all `.txt` files of a directory.
///
/// Paths are those of the test's process; under `cargo test` that is from the root of the package. A file
/// named `prelude.txt` is the beginning of every file beside it.
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
/// If something is not as the text says, with the place and what differs.
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
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "txt") && !path.ends_with("prelude.txt")
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no transcripts in {}", path.display());
    paths.iter().map(|path| load(path)).collect()
}

/// A file, after what stands in the `prelude.txt` beside it.
fn load(path: &Path) -> Transcript {
    let prelude = std::fs::read_to_string(path.with_file_name("prelude.txt")).unwrap_or_default();
    match Transcript::file(path) {
        Ok(transcript) => transcript.prelude(prelude),
        Err(error) => panic!("no transcript at {}: {error}", path.display()),
    }
}
