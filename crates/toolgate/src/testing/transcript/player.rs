//! Runs the steps of a transcript: sends messages and compares what arrives.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::TranscriptHost;
use super::compare::{Vars, check_json, substitute};
use super::script::{LineError, ParsedTranscript, ScriptStep, unescape};
use crate::server::Server;
use crate::testing::RECEIVE_TIMEOUT;
use crate::util::spawn::AbortOnDrop;

/// How long `< nothing` waits for unexpected output.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(20);

/// Runs one transcript for one value of its `@ each`.
pub(super) struct Player {
    pub(super) script: ParsedTranscript,
    server: Server,
    connections: HashMap<String, TranscriptConnection>,
    #[cfg(feature = "http")]
    pub(super) http: super::http_steps::TranscriptExchanges,
}

impl Player {
    pub(super) fn new(
        prelude: &str,
        text: &str,
        each_value: &str,
        vars: Vars,
        host: &mut impl TranscriptHost,
    ) -> Result<Player, LineError> {
        let script = ParsedTranscript::parse(prelude, text, each_value, vars)?;
        for (line, option) in &script.options {
            host.option(option).map_err(|error| (*line, error))?;
        }
        let server = host.open_server().map_err(|error| (1, error))?;
        #[cfg(feature = "http")]
        let http = super::http_steps::TranscriptExchanges::new(server.clone().into_service());
        Ok(Player {
            script,
            server,
            connections: HashMap::new(),
            #[cfg(feature = "http")]
            http,
        })
    }

    pub(super) async fn run(&mut self, host: &mut impl TranscriptHost) -> Result<(), LineError> {
        let mut last = 0;
        while let Some(step) = self.script.steps.pop_front() {
            last = step.line;
            self.run_step(step, host).await.map_err(|error| (last, error))?;
        }
        self.finish().await.map_err(|error| (last, error))
    }

    async fn run_step(&mut self, step: ScriptStep, host: &mut impl TranscriptHost) -> Result<(), String> {
        match (step.operator, self.script.is_stdio) {
            ("!", _) => self.run_action(&step, host).await,
            (">" | ">b", true) => self.write_line(&step).await,
            ("<~", true) => self.read_any_order(step).await,
            ("<", true) => self.read_line(&step).await,
            #[cfg(feature = "http")]
            (">", false) => self.send_request(&step, host),
            #[cfg(feature = "http")]
            ("<", false) => self.check_response(&step).await,
            #[cfg(not(feature = "http"))]
            (_, false) => Err("there is no HTTP without the feature `http`".into()),
            _ => Err(format!("`{}` is not valid here", step.operator)),
        }
    }

    async fn run_action(&mut self, step: &ScriptStep, host: &mut impl TranscriptHost) -> Result<(), String> {
        let head = substitute(&step.head, &self.script.vars);
        let words: Vec<&str> = head.split_whitespace().collect();
        match words[..] {
            #[cfg(feature = "http")]
            ["drop"] => return self.http.disconnect(&step.connection).await,
            // For effects that only depend on time.
            ["sleep", millis] => {
                let millis = millis.parse().map_err(|_| "not a number of milliseconds")?;
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            ["differ", one, other] => {
                if one == other {
                    return Err(format!("both are {one}"));
                }
            }
            _ => return host.run_action(&words).await,
        }
        Ok(())
    }

    fn connection(&mut self, name: &str) -> &mut TranscriptConnection {
        let server = &self.server;
        self.connections.entry(name.to_owned()).or_insert_with(|| TranscriptConnection::open(server.clone()))
    }

    async fn write_line(&mut self, step: &ScriptStep) -> Result<(), String> {
        if step.operator == ">" && step.head == "eof" {
            self.connection(&step.connection).input = None;
            return Ok(());
        }
        let text = substitute(&step.joined_text(), &self.script.vars);
        let bytes = if step.operator == ">b" { unescape(&text)? } else { format!("{text}\n").into_bytes() };
        let input = self.connection(&step.connection).input.as_mut().ok_or("the input has ended")?;
        input.write_all(&bytes).await.map_err(|error| error.to_string())
    }

    async fn read_line(&mut self, step: &ScriptStep) -> Result<(), String> {
        let wanted = step.joined_text();
        let connection = self.connection(&step.connection);
        match wanted.as_str() {
            "nothing" => match tokio::time::timeout(QUIET_PERIOD, connection.next_line()).await {
                Ok(Ok(Some(got))) => Err(format!("expected nothing\n  got      {got}")),
                Ok(Ok(None)) => Err("expected nothing\n  got      the end".into()),
                Ok(Err(error)) => Err(error),
                Err(_) => Ok(()),
            },
            "eof" => match connection.expect_line().await? {
                None => Ok(()),
                Some(got) => Err(format!("expected the end\n  got      {got}")),
            },
            wanted => {
                let got = connection
                    .expect_line()
                    .await?
                    .ok_or_else(|| format!("expected {wanted}\n  got      the end"))?;
                check_json(wanted, &got, &mut self.script.vars)
            }
        }
    }

    async fn read_any_order(&mut self, first: ScriptStep) -> Result<(), String> {
        let connection = first.connection.clone();
        let mut wanted = vec![first];
        let is_next = |next: &ScriptStep| next.operator == "<~" && next.connection == connection;
        while self.script.steps.front().is_some_and(is_next) {
            wanted.extend(self.script.steps.pop_front());
        }
        while !wanted.is_empty() {
            let got = self.connection(&connection).expect_line().await?.ok_or("the output has ended")?;
            let mut errors = Vec::new();
            let found = wanted.iter().position(|step| {
                let mut vars = self.script.vars.clone();
                let checked = check_json(&step.joined_text(), &got, &mut vars);
                match checked {
                    Ok(()) => self.script.vars = vars,
                    Err(ref error) => errors.push(error.clone()),
                }
                checked.is_ok()
            });
            match found {
                Some(index) => drop(wanted.remove(index)),
                None => return Err(errors.join("\nor\n")),
            }
        }
        Ok(())
    }

    /// Ends all connections. Fails if one has unread output.
    async fn finish(&mut self) -> Result<(), String> {
        #[cfg(feature = "http")]
        self.http.finish()?;
        for (name, mut connection) in self.connections.drain() {
            connection.input = None;
            let mut left = Vec::new();
            while let Ok(Ok(Some(got))) = tokio::time::timeout(RECEIVE_TIMEOUT, connection.next_line()).await
            {
                left.push(got);
            }
            if !left.is_empty() {
                return Err(format!(
                    "connection [{name}] at the end, expected nothing\n  got      {}",
                    left.join("\n           ")
                ));
            }
            let served = tokio::time::timeout(RECEIVE_TIMEOUT, connection.serving).await;
            served.map_err(|_| "the server did not stop in time")?.map_err(|error| error.to_string())??;
        }
        Ok(())
    }
}

/// One connection of `@ stdio`.
struct TranscriptConnection {
    input: Option<DuplexStream>,
    output: BufReader<DuplexStream>,
    serving: AbortOnDrop<Result<(), String>>,
}

impl TranscriptConnection {
    fn open(server: Server) -> TranscriptConnection {
        let (input, server_input) = tokio::io::duplex(64 << 10);
        let (server_output, output) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(async move {
            server.serve_io(server_input, server_output).await.map_err(|e| e.to_string())
        });
        TranscriptConnection {
            input: Some(input),
            output: BufReader::new(output),
            serving: AbortOnDrop::new(serving),
        }
    }

    async fn next_line(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line).await {
            Ok(0) => Ok(None),
            Ok(_) if line.ends_with('\n') => Ok(Some(line.trim_end_matches('\n').to_owned())),
            Ok(_) => Err(format!("incomplete line: {line}")),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn expect_line(&mut self) -> Result<Option<String>, String> {
        let line = tokio::time::timeout(RECEIVE_TIMEOUT, self.next_line()).await;
        line.unwrap_or_else(|_| Err("no output in time".into()))
    }
}
