//! The player of transcripts: texts that say what a client sends and what it must hear.
//!
//! ```text
//! @ http page=2                          the transport, and options of the server (see `fixture::Options`)
//! @ let A = {"a":1}                      {A} stands for this text from here on
//! @ each 2025-06-18 2025-11-25           plays the whole text once for each, as {V}
//! @ when 2025-11-25                      the following steps are for these only, up to `@ end`
//! [a] > POST /mcp +session as ada        a request of connection `a`; header lines and a body may follow
//! [a] < 200 application/json             its head; header lines (`-name`: must be absent) and a body may follow
//! [a] < event id=1-1 {"jsonrpc":"2.0"}   one event of a stream; `< comment`, `< retry 7`, `< nothing`, `< end`
//! ! give go                              an action: `give`, `take`, `count`, `drop`, `changed`, …
//! ```
//!
//! With `@ stdio` a `>` line is a line of input (`> eof` ends it, `>b "…"` is bytes with escapes) and a `<`
//! line one of output; `<~` lines in a row may come in any order. `@ headers NAME = a: b | c: d` names
//! headers for `+NAME`; `+modern` mirrors the body as the newest revision wants it.
//!
//! JSON is compared as JSON and whole: a member too many is a failure. `"<any>"` is anything, `"<=x>"` anything
//! that is `{x}` from then on; both may stand inside a string. What was heard and not expected is a failure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use toolgate::{Endpoint, Principal, Server};
use tower_service::Service;

use crate::fixture::{self, Options, Stage};

/// How long something that must come may take. Reached only by failures.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing must come.
const QUIET: Duration = Duration::from_millis(20);

type Vars = BTreeMap<String, String>;

/// Plays every transcript of a topic and tells of all that fail.
pub(crate) async fn all(topic: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/transcripts");
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join(topic))
        .unwrap_or_else(|error| panic!("no transcripts of {topic}: {error}"))
        .map(|entry| entry.expect("a directory can be read to its end").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcripts of {topic}");
    let prelude = std::fs::read_to_string(root.join("prelude.txt")).expect("the prelude is there");
    let mut failures = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a transcript is text");
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        failures.extend(play_text(&name, &prelude, &text).await);
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

async fn play_text(name: &str, prelude: &str, text: &str) -> Option<String> {
    let each = text.lines().find_map(|line| line.strip_prefix("@ each "));
    let versions: Vec<&str> = each.map_or_else(|| vec![""], |each| each.split_whitespace().collect());
    for version in versions {
        let mut player = match Player::new(prelude, text, version) {
            Ok(player) => player,
            Err((line, fault)) => return Some(format!("{name}:{line}: {fault}")),
        };
        if let Err((line, fault)) = player.run().await {
            let version = if version.is_empty() { String::new() } else { format!(" ({version})") };
            return Some(format!("transcripts/{name}:{line}{version}: {fault}"));
        }
    }
    None
}

type Fault = (usize, String);

/// One step of a transcript.
#[derive(Clone, Debug)]
struct Step {
    line: usize,
    connection: String,
    /// `>`, `>b`, `<`, `<~` or `!`.
    mark: &'static str,
    head: String,
    /// Lines that follow: headers and body.
    rest: Vec<String>,
}

struct Player {
    vars: Vars,
    headers: HashMap<String, String>,
    steps: VecDeque<Step>,
    stage: Stage,
    server: Server,
    endpoint: Endpoint,
    stdio: Option<HashMap<String, Line>>,
    exchanges: HashMap<String, Exchange>,
}

const MARKS: [&str; 5] = [">b ", "> ", "<~ ", "< ", "! "];

impl Player {
    fn new(prelude: &str, text: &str, version: &str) -> Result<Player, Fault> {
        let mut vars = Vars::from([("V".to_owned(), version.to_owned())]);
        let (mut headers, mut options) = (HashMap::new(), Options::default());
        let mut steps: VecDeque<Step> = VecDeque::new();
        let (mut stdio, mut shown) = (None, true);
        let lines = prelude.lines().map(|line| (0, line));
        for (number, line) in lines.chain(text.lines().enumerate().map(|(index, line)| (index + 1, line))) {
            let fail = |what: &str| Err((number, format!("{what}: {line}")));
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(directive) = line.strip_prefix("@ ") {
                let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
                match word {
                    "stdio" | "http" => {
                        stdio = Some(word == "stdio");
                        for option in rest.split_whitespace() {
                            if options.set(option).is_none() {
                                return fail("no such option");
                            }
                        }
                    }
                    "let" | "headers" => {
                        let Some((name, value)) = rest.split_once(" = ") else {
                            return fail("no value");
                        };
                        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
                        if word == "let" {
                            vars.insert(name, value)
                        } else {
                            headers.insert(name, value)
                        };
                    }
                    "each" => {}
                    "when" => shown = rest.split_whitespace().any(|known| known == version),
                    "end" => shown = true,
                    _ => return fail("no such directive"),
                }
                continue;
            }
            match read_step(number, line) {
                Some(step) if shown => steps.push_back(step),
                None if shown => match steps.back_mut() {
                    Some(step) => step.rest.push(line.to_owned()),
                    None => return fail("nothing to belong to"),
                },
                _ => {}
            }
        }
        let Some(stdio) = stdio else {
            return Err((1, "neither `@ stdio` nor `@ http`".into()));
        };
        let (server, stage) = fixture::serve(&options);
        let endpoint = server.clone().into_service();
        let stdio = stdio.then(HashMap::new);
        Ok(Player { vars, headers, steps, stage, server, endpoint, stdio, exchanges: HashMap::new() })
    }

    async fn run(&mut self) -> Result<(), Fault> {
        let mut last = 0;
        while let Some(step) = self.steps.pop_front() {
            last = step.line;
            let line = step.line;
            self.step(step).await.map_err(|fault| (line, fault))?;
        }
        self.finish().await.map_err(|fault| (last, fault))
    }

    async fn step(&mut self, step: Step) -> Result<(), String> {
        match (step.mark, self.stdio.is_some()) {
            ("!", _) => self.act(&step).await,
            (">" | ">b", true) => self.write(&step).await,
            ("<~", true) => self.read_any_order(step).await,
            ("<", true) => self.read(&step).await,
            (">", false) => self.request(&step),
            ("<", false) => self.response(&step).await,
            _ => Err(format!("`{}` means nothing here", step.mark)),
        }
    }

    async fn act(&mut self, step: &Step) -> Result<(), String> {
        let head = fill(&step.head, &self.vars);
        let words: Vec<&str> = head.split_whitespace().collect();
        match words[..] {
            ["give", name] => self.stage.give(name),
            ["take", name] => {
                let taken = tokio::time::timeout(PATIENCE, self.stage.take(name)).await;
                taken.map_err(|_| format!("no handler gave `{name}`"))?;
            }
            ["count", name, wanted] => {
                let count = self.stage.count(name);
                if wanted != count.to_string() {
                    return Err(format!("expected {wanted} × `{name}`, got {count}"));
                }
            }
            ["drop"] => {
                let exchange = self.exchanges.remove(&step.connection).ok_or("nothing to drop")?;
                exchange.leave().await;
            }
            // For what only time does.
            ["sleep", millis] => {
                let millis = millis.parse().map_err(|_| "no such time")?;
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            ["shut_down"] => self.server.shut_down(),
            ["add_tool", name] => {
                self.server.add_tool(fixture::late_tool(name)).map_err(|error| error.to_string())?;
            }
            ["remove_tool", name] => {
                if !self.server.remove_tool(name) {
                    return Err(format!("there is no tool {name}"));
                }
            }
            ["changed", "tools"] => self.server.changes().tools(),
            ["changed", "prompts"] => self.server.changes().prompts(),
            ["changed", "resources"] => self.server.changes().resources(),
            ["changed", uri] => self.server.changes().resource(uri),
            ["differ", one, other] => {
                if one == other {
                    return Err(format!("both are {one}"));
                }
            }
            _ => return Err(format!("no such action: {head}")),
        }
        Ok(())
    }

    fn line(&mut self, name: &str) -> &mut Line {
        let server = self.server.clone();
        let lines = self.stdio.get_or_insert_default();
        lines.entry(name.to_owned()).or_insert_with(|| Line::open(server))
    }

    async fn write(&mut self, step: &Step) -> Result<(), String> {
        if step.mark == ">" && step.head == "eof" {
            self.line(&step.connection).input = None;
            return Ok(());
        }
        let text = fill(&whole(step), &self.vars);
        let bytes = if step.mark == ">b" { unescape(&text)? } else { format!("{text}\n").into_bytes() };
        let input = self.line(&step.connection).input.as_mut().ok_or("the input has ended")?;
        input.write_all(&bytes).await.map_err(|error| error.to_string())
    }

    async fn read(&mut self, step: &Step) -> Result<(), String> {
        let wanted = whole(step);
        let line = self.line(&step.connection);
        match wanted.as_str() {
            "nothing" => match tokio::time::timeout(QUIET, line.next()).await {
                Ok(Ok(Some(got))) => Err(format!("expected nothing\n  got      {got}")),
                Ok(Ok(None)) => Err("expected nothing\n  got      the end".into()),
                Ok(Err(fault)) => Err(fault),
                Err(_) => Ok(()),
            },
            "eof" => match line.heard().await? {
                None => Ok(()),
                Some(got) => Err(format!("expected the end\n  got      {got}")),
            },
            wanted => {
                let got =
                    line.heard().await?.ok_or_else(|| format!("expected {wanted}\n  got      the end"))?;
                check_json(wanted, &got, &mut self.vars)
            }
        }
    }

    async fn read_any_order(&mut self, first: Step) -> Result<(), String> {
        let mut wanted = vec![first];
        while self
            .steps
            .front()
            .is_some_and(|next| next.mark == "<~" && next.connection == wanted[0].connection)
        {
            wanted.extend(self.steps.pop_front());
        }
        let mut faults = Vec::new();
        for _ in 0..wanted.len() {
            let name = wanted[0].connection.clone();
            let got = self.line(&name).heard().await?.ok_or("the output has ended")?;
            faults.clear();
            let mut vars = self.vars.clone();
            let found = wanted.iter().position(|step| match check_json(&whole(step), &got, &mut vars) {
                Ok(()) => true,
                Err(fault) => {
                    faults.push(fault);
                    false
                }
            });
            match found {
                Some(index) => drop(wanted.remove(index)),
                None => return Err(faults.join("\nor\n")),
            }
            self.vars = vars;
            if wanted.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn request(&mut self, step: &Step) -> Result<(), String> {
        let head = fill(&step.head, &self.vars);
        let mut words = head.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err("no method and path".into());
        };
        let (lines, body) = split_rest(&step.rest);
        let body = fill(&body, &self.vars);
        let (mut principal, mut all) = (None, Vec::new());
        while let Some(word) = words.next() {
            match word.strip_prefix('+') {
                Some("modern") => all.extend(mirrored(&body)?),
                Some(named) => {
                    let set = self.headers.get(named).ok_or_else(|| format!("no headers {named}"))?;
                    let set = fill(set, &self.vars);
                    all.extend(set.split(" | ").map(read_header).collect::<Result<Vec<_>, _>>()?);
                }
                None if word == "as" => principal = words.next().map(|id| Principal::new(id.to_owned())),
                None => return Err(format!("what is {word}?")),
            }
        }
        let said =
            lines.iter().map(|line| read_header(&fill(line, &self.vars))).collect::<Result<Vec<_>, _>>()?;
        // A header said here replaces those of a set; one said twice here is sent twice.
        all.retain(|(name, _)| !said.iter().any(|(other, _)| other == name));
        all.extend(said);
        let request = build(method, path, &all, principal, body.into_bytes())?;
        if let Some(before) = self.exchanges.remove(&step.connection) {
            before.close()?;
        }
        self.exchanges.insert(step.connection.clone(), Exchange::start(self.endpoint.clone(), request));
        Ok(())
    }

    async fn response(&mut self, step: &Step) -> Result<(), String> {
        let exchange = self.exchanges.get_mut(&step.connection).ok_or("no request was sent")?;
        let head = fill(&step.head, &self.vars);
        let (word, rest) = head.split_once(' ').unwrap_or((&head, ""));
        match word {
            "nothing" => match exchange.event_within(QUIET).await? {
                None => Ok(()),
                Some(got) => Err(format!("expected nothing\n  got      {got:?}")),
            },
            "end" => match exchange.event_within(PATIENCE).await? {
                Some(Event::End) => Ok(()),
                got => Err(format!("expected the end\n  got      {got:?}")),
            },
            "comment" => match exchange.raw_event(PATIENCE).await? {
                Some(Event::Comment) => Ok(()),
                got => Err(format!("expected a comment\n  got      {got:?}")),
            },
            "retry" => match exchange.event_within(PATIENCE).await? {
                Some(Event::Retry(got)) if got == rest => Ok(()),
                got => Err(format!("expected retry {rest}\n  got      {got:?}")),
            },
            "event" => {
                let got = exchange.event_within(PATIENCE).await?;
                let Some(Event::Message(got)) = got else {
                    return Err(format!("expected event {rest}\n  got      {got:?}"));
                };
                let mut rest = rest.to_owned();
                for line in &step.rest {
                    rest.push_str(line);
                }
                check_event(&fill(&rest, &self.vars), &got, &mut self.vars)
            }
            status => {
                let (status, kind) = (status.to_owned(), rest.to_owned());
                check_head(exchange, &status, &kind, &step.rest, &mut self.vars).await
            }
        }
    }

    /// Whatever is left is too much.
    async fn finish(&mut self) -> Result<(), String> {
        for (name, exchange) in self.exchanges.drain() {
            exchange.close().map_err(|fault| format!("connection [{name}] at the end: {fault}"))?;
        }
        for (name, mut line) in self.stdio.take().into_iter().flatten() {
            line.input = None;
            let mut left = Vec::new();
            while let Ok(Ok(Some(got))) = tokio::time::timeout(PATIENCE, line.next()).await {
                left.push(got);
            }
            if !left.is_empty() {
                return Err(format!(
                    "connection [{name}] at the end, expected nothing\n  got      {}",
                    left.join("\n           ")
                ));
            }
            let served = tokio::time::timeout(PATIENCE, line.serving).await;
            served.map_err(|_| "the server does not end")?.map_err(|error| error.to_string())??;
        }
        Ok(())
    }
}

fn read_step(number: usize, line: &str) -> Option<Step> {
    let (connection, rest) = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((name, rest)) if name.chars().all(char::is_alphanumeric) => (name, rest),
        _ => ("", line),
    };
    let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark))?;
    Some(Step {
        line: number,
        connection: connection.to_owned(),
        mark: mark.trim_end(),
        head: rest[mark.len()..].to_owned(),
        rest: Vec::new(),
    })
}

fn whole(step: &Step) -> String {
    let mut text = step.head.clone();
    for line in &step.rest {
        text.push(' ');
        text.push_str(line.trim());
    }
    text
}

/// Header lines, then the body.
fn split_rest(rest: &[String]) -> (Vec<String>, String) {
    let is_header = |line: &&String| {
        let name = line.split(':').next().unwrap_or_default();
        line.contains(':') && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            || line.starts_with('-') && !line.contains(' ')
    };
    let headers: Vec<String> = rest.iter().take_while(is_header).cloned().collect();
    let body = rest[headers.len()..].join("\n");
    (headers, body)
}

fn read_header(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("not a header: {line}"))?;
    Ok((name.trim().to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
}

/// The headers that the newest revision wants beside this body.
fn mirrored(body: &str) -> Result<Vec<(String, String)>, String> {
    let value: Value = serde_json::from_str(body).map_err(|error| format!("{error} in {body}"))?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let name = match text("/method").as_deref() {
        Some("tools/call" | "prompts/get") => text("/params/name"),
        Some("resources/read") => text("/params/uri"),
        _ => None,
    };
    let headers = [
        ("mcp-protocol-version", text("/params/_meta/io.modelcontextprotocol~1protocolVersion")),
        ("mcp-method", text("/method")),
        ("mcp-name", name),
    ];
    Ok(headers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// A request; what every client says is said unless it is said otherwise (`-`: not at all).
pub(crate) fn build(
    method: &str,
    path: &str,
    headers: &[(String, String)],
    principal: Option<Principal>,
    body: Vec<u8>,
) -> Result<http::Request<Full<Bytes>>, String> {
    let mut request = http::Request::builder().method(method).uri(path);
    let usual = match method {
        "POST" => vec![
            ("host", "localhost"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ],
        _ => vec![("host", "localhost"), ("accept", "text/event-stream")],
    };
    for (name, value) in usual {
        if !headers.iter().any(|(said, _)| said == name) {
            request = request.header(name, value);
        }
    }
    for (name, value) in headers.iter().filter(|(_, value)| value != "-") {
        request = request.header(name, value);
    }
    if let Some(principal) = principal {
        request = request.extension(principal);
    }
    request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())
}

/// One connection of `@ stdio`.
struct Line {
    input: Option<DuplexStream>,
    output: BufReader<DuplexStream>,
    serving: JoinHandle<Result<(), String>>,
}

impl Line {
    fn open(server: Server) -> Line {
        let (input, theirs) = tokio::io::duplex(64 << 10);
        let (printed, output) = tokio::io::duplex(64 << 10);
        let serving =
            tokio::spawn(async move { server.serve_io(theirs, printed).await.map_err(|e| e.to_string()) });
        Line { input: Some(input), output: BufReader::new(output), serving }
    }

    async fn next(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line).await {
            Ok(0) => Ok(None),
            Ok(_) if line.ends_with('\n') => Ok(Some(line.trim_end_matches('\n').to_owned())),
            Ok(_) => Err(format!("half a line: {line}")),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn heard(&mut self) -> Result<Option<String>, String> {
        let heard = tokio::time::timeout(PATIENCE, self.next()).await;
        heard.unwrap_or_else(|_| Err("nothing came in time".into()))
    }
}

enum Piece {
    Head(Box<http::response::Parts>),
    Data(Bytes),
}

/// What a stream says.
#[derive(Debug)]
pub(crate) enum Event {
    Message(Message),
    Comment,
    Retry(String),
    End,
}

/// One event of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: String,
}

/// One HTTP request and what comes back. A task reads the answer as a connection would.
pub(crate) struct Exchange {
    pieces: mpsc::Receiver<Piece>,
    task: JoinHandle<()>,
    head: Option<http::response::Parts>,
    buffer: Vec<u8>,
    /// The head was looked at.
    judged: bool,
    ended: bool,
}

impl Exchange {
    pub(crate) fn start(mut endpoint: Endpoint, request: http::Request<Full<Bytes>>) -> Exchange {
        // A test hears little; when this is full the connection waits, as a slow one does.
        let (sender, pieces) = mpsc::channel(1024);
        let task = tokio::spawn(async move {
            let answer: Result<_, Infallible> = endpoint.call(request).await;
            let Ok(answer) = answer;
            let (parts, mut body) = answer.into_parts();
            let _ = sender.send(Piece::Head(Box::new(parts))).await;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                if let Ok(data) = frame.into_data() {
                    let _ = sender.send(Piece::Data(data)).await;
                }
            }
        });
        Exchange { pieces, task, head: None, buffer: Vec::new(), judged: false, ended: false }
    }

    /// Breaks the connection: whatever serves it is dropped.
    pub(crate) async fn leave(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Fails if there is something that nobody looked at.
    fn close(mut self) -> Result<(), String> {
        self.task.abort();
        while let Ok(piece) = self.pieces.try_recv() {
            match piece {
                Piece::Head(head) => return Err(format!("expected no answer\n  got      {head:?}")),
                Piece::Data(data) => self.buffer.extend_from_slice(&data),
            }
        }
        let left = String::from_utf8_lossy(&self.buffer);
        if left.lines().any(|line| !line.is_empty() && !line.starts_with(':')) {
            return Err(format!("expected nothing more\n  got      {left}"));
        }
        Ok(())
    }

    pub(crate) async fn head(&mut self) -> Result<&http::response::Parts, String> {
        if self.head.is_none() {
            let piece = tokio::time::timeout(PATIENCE, self.pieces.recv()).await;
            match piece.map_err(|_| "no answer in time")? {
                Some(Piece::Head(head)) => self.head = Some(*head),
                _ => return Err("the server did not answer".into()),
            }
        }
        self.head.as_ref().ok_or_else(|| "the server did not answer".into())
    }

    pub(crate) async fn body(&mut self) -> Result<String, String> {
        while let Some(piece) =
            tokio::time::timeout(PATIENCE, self.pieces.recv()).await.map_err(|_| "the body does not end")?
        {
            if let Piece::Data(data) = piece {
                self.buffer.extend_from_slice(&data);
            }
        }
        let text = String::from_utf8(std::mem::take(&mut self.buffer)).map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// What the stream says next, but for comments; none if it says nothing in time.
    pub(crate) async fn event_within(&mut self, patience: Duration) -> Result<Option<Event>, String> {
        loop {
            match self.raw_event(patience).await? {
                Some(Event::Comment) => {}
                other => return Ok(other),
            }
        }
    }

    async fn raw_event(&mut self, patience: Duration) -> Result<Option<Event>, String> {
        self.head().await?;
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return read_event(&String::from_utf8(block).map_err(|error| error.to_string())?).map(Some);
            }
            if self.ended {
                return Ok(Some(Event::End));
            }
            match tokio::time::timeout(patience, self.pieces.recv()).await {
                Err(_) => return Ok(None),
                Ok(None) if self.buffer.is_empty() => self.ended = true,
                Ok(None) => {
                    return Err(format!("half an event: {:?}", String::from_utf8_lossy(&self.buffer)));
                }
                Ok(Some(Piece::Data(data))) => self.buffer.extend_from_slice(&data),
                Ok(Some(Piece::Head(_))) => return Err("two heads".into()),
            }
        }
    }

    /// The next message of the stream, which must come.
    pub(crate) async fn message(&mut self) -> Message {
        match self.event_within(PATIENCE).await {
            Ok(Some(Event::Message(message))) => message,
            other => panic!("expected a message, got {other:?}"),
        }
    }
}

fn read_event(block: &str) -> Result<Event, String> {
    let (mut message, mut data, mut retry) = (Message::default(), None, None);
    for line in block.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').ok_or_else(|| format!("not a field: {line}"))?;
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "" => return Ok(Event::Comment),
            "event" => message.name = Some(value),
            "id" => message.id = Some(value),
            "retry" => retry = Some(value),
            "data" if data.is_none() => data = Some(value),
            _ => return Err(format!("unexpected in an event: {line}")),
        }
    }
    match (data, retry) {
        (Some(data), retry) => Ok(Event::Message(Message { data, retry, ..message })),
        (None, Some(retry)) => Ok(Event::Retry(retry)),
        (None, None) => Err(format!("neither data nor retry: {block:?}")),
    }
}

async fn check_head(
    exchange: &mut Exchange,
    status: &str,
    kind: &str,
    rest: &[String],
    vars: &mut Vars,
) -> Result<(), String> {
    if std::mem::replace(&mut exchange.judged, true) {
        return Err("this answer has been looked at before".into());
    }
    let head = exchange.head().await?.clone();
    let is_stream = kind == "text/event-stream";
    let (headers, body) = split_rest(rest);
    let got_kind = head.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if head.status.as_str() != status || got_kind != kind {
        let said = if got_kind == "text/event-stream" { String::new() } else { exchange.body().await? };
        return Err(format!(
            "expected {status} {kind}\n  got      {} {got_kind} {said}",
            head.status.as_str()
        ));
    }
    for line in headers {
        if let Some(name) = line.strip_prefix('-') {
            if let Some(value) = head.headers.get(name) {
                return Err(format!("expected no {name}\n  got      {value:?}"));
            }
            continue;
        }
        let (name, wanted) = read_header(&fill(&line, vars))?;
        let got = head.headers.get(&name).and_then(|value| value.to_str().ok());
        let got = got.ok_or_else(|| format!("expected {name}: {wanted}\n  got      none"))?;
        if !matches_text(&wanted, got, vars) {
            return Err(format!("expected {name}: {wanted}\n  got      {name}: {got}"));
        }
    }
    if is_stream {
        return Ok(());
    }
    let got = exchange.body().await?;
    match (body.is_empty(), got.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("expected no body\n  got      {got}")),
        (false, _) => check_json(&body, &got, vars),
    }
}

fn check_event(wanted: &str, got: &Message, vars: &mut Vars) -> Result<(), String> {
    let (mut rest, mut id, mut retry, mut name) = (wanted.trim(), None, None, None);
    while let Some((word, after)) = rest.split_once(' ').or((!rest.is_empty()).then_some((rest, ""))) {
        match word.split_once('=') {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("retry", value)) => retry = Some(value.to_owned()),
            Some(("name", value)) => name = Some(value.to_owned()),
            _ => break,
        }
        rest = after.trim_start();
    }
    for (what, wanted, got) in [("id", id, &got.id), ("retry", retry, &got.retry)] {
        let fits = match (&wanted, got) {
            (None, None) => true,
            (Some(wanted), Some(got)) => matches_text(wanted, got, vars),
            _ => false,
        };
        if !fits {
            return Err(format!("expected {what} {wanted:?}\n  got      {what} {got:?}"));
        }
    }
    if rest.is_empty() {
        return if got.data.is_empty() {
            Ok(())
        } else {
            Err(format!("expected no data\n  got      {}", got.data))
        };
    }
    let name = name.unwrap_or_else(|| "message".into());
    if got.name.as_deref() != Some(name.as_str()) {
        return Err(format!("expected event {name}\n  got      {:?}", got.name));
    }
    if rest.starts_with(['{', '[']) {
        return check_json(rest, &got.data, vars);
    }
    if matches_text(rest, &got.data, vars) {
        Ok(())
    } else {
        Err(format!("expected {rest}\n  got      {}", got.data))
    }
}

/// `{name}` becomes what the name stands for; other braces are JSON. What stands for it may have names in it.
fn fill(text: &str, vars: &Vars) -> String {
    let mut text = text.to_owned();
    for _ in 0..3 {
        let before = text.clone();
        for (name, value) in vars {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        if before == text {
            break;
        }
    }
    text
}

/// Compares, and remembers what was captured.
pub(crate) fn check_json(wanted: &str, got: &str, vars: &mut Vars) -> Result<(), String> {
    let wanted = fill(wanted, vars);
    let expected: Value = serde_json::from_str(&wanted).map_err(|error| format!("{error} in {wanted}"))?;
    let value: Value = serde_json::from_str(got)
        .map_err(|error| format!("{error}\n  expected {wanted}\n  got      {got}"))?;
    match differ("$", &expected, &value, vars) {
        None => Ok(()),
        Some(place) => Err(format!("{place}\n  expected {expected}\n  got      {value}")),
    }
}

/// The first place where two values differ.
fn differ(path: &str, wanted: &Value, got: &Value, vars: &mut Vars) -> Option<String> {
    match (wanted, got) {
        (Value::String(pattern), Value::String(text)) => {
            (!matches_text(pattern, text, vars)).then(|| format!("{path} differs"))
        }
        (Value::String(pattern), other) if pattern.starts_with('<') && pattern.ends_with('>') => {
            (!matches_text(pattern, &other.to_string(), vars)).then(|| format!("{path} differs"))
        }
        (Value::Object(wanted), Value::Object(got)) => {
            for (key, value) in wanted {
                let place = format!("{path}.{key}");
                let Some(other) = got.get(key) else {
                    return Some(format!("{place} is missing"));
                };
                if let Some(place) = differ(&place, value, other, vars) {
                    return Some(place);
                }
            }
            got.keys().find(|key| !wanted.contains_key(*key)).map(|key| format!("{path}.{key} is too much"))
        }
        (Value::Array(wanted), Value::Array(got)) => {
            if wanted.len() != got.len() {
                return Some(format!("{path} has {} items instead of {}", got.len(), wanted.len()));
            }
            let mut pairs = wanted.iter().zip(got).enumerate();
            pairs.find_map(|(index, (wanted, got))| differ(&format!("{path}[{index}]"), wanted, got, vars))
        }
        _ => (wanted != got).then(|| format!("{path} differs")),
    }
}

/// A pattern has at most one placeholder: `<any>`, or `<=name>` to remember.
fn matches_text(pattern: &str, text: &str, vars: &mut Vars) -> bool {
    let open = pattern.find("<any>").or_else(|| pattern.find("<="));
    let Some(open) = open else { return pattern == text };
    let Some(close) = pattern[open..].find('>') else {
        return pattern == text;
    };
    let (before, after) = (&pattern[..open], &pattern[open + close + 1..]);
    let Some(middle) = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) else {
        return false;
    };
    if let Some(name) = pattern[open..open + close].strip_prefix("<=") {
        vars.insert(name.to_owned(), middle.to_owned());
    }
    true
}

/// `"a\r\n\xff"` as bytes.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let inner = text
        .trim()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or("bytes stand in quotes")?;
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b'r') => bytes.push(b'\r'),
            Some(quoted @ (b'\\' | b'"')) => bytes.push(quoted),
            Some(b'x') => {
                let digits = [rest.next().unwrap_or(b'?'), rest.next().unwrap_or(b'?')];
                let digits = std::str::from_utf8(&digits).map_err(|error| error.to_string())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
            }
            other => return Err(format!("no such escape: {other:?}")),
        }
    }
    Ok(bytes)
}

/// Everything a reader has to say, for tests with sockets.
pub(crate) async fn drain(mut reader: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(PATIENCE, reader.read_to_end(&mut text)).await;
    read.expect("the connection ends in time").expect("the connection can be read");
    String::from_utf8(text).expect("HTTP is text here")
}
