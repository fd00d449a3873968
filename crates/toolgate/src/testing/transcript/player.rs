//! Plays the steps of a transcript: what is sent is sent, what is heard is compared.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::TranscriptHost;
use super::compare::{Vars, check_json, substitute};
use super::script::{LineError, ParsedTranscript, ScriptStep, unescape};
use crate::server::Server;
use crate::testing::RECEIVE_TIMEOUT;
use crate::util::spawn::AbortOnDrop;

/// How long nothing must come.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(20);

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
        word: &str,
        vars: Vars,
        host: &mut impl TranscriptHost,
    ) -> Result<Player, LineError> {
        let script = ParsedTranscript::parse(prelude, text, word, vars)?;
        for (line, option) in &script.options {
            host.option(option).map_err(|fault| (*line, fault))?;
        }
        let server = host.open_server().map_err(|fault| (1, fault))?;
        #[cfg(feature = "http")]
        let web = super::http_steps::TranscriptExchanges::new(server.clone().into_service());
        Ok(Player {
            script,
            server,
            connections: HashMap::new(),
            #[cfg(feature = "http")]
            http: web,
        })
    }

    pub(super) async fn run(&mut self, host: &mut impl TranscriptHost) -> Result<(), LineError> {
        let mut last = 0;
        while let Some(step) = self.script.steps.pop_front() {
            last = step.line;
            self.run_step(step, host).await.map_err(|fault| (last, fault))?;
        }
        self.finish().await.map_err(|fault| (last, fault))
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
            _ => Err(format!("`{}` means nothing here", step.operator)),
        }
    }

    async fn run_action(&mut self, step: &ScriptStep, host: &mut impl TranscriptHost) -> Result<(), String> {
        let head = substitute(&step.head, &self.script.vars);
        let words: Vec<&str> = head.split_whitespace().collect();
        match words[..] {
            #[cfg(feature = "http")]
            ["drop"] => return self.http.disconnect(&step.connection).await,
            // For what only time does.
            ["sleep", millis] => {
                let millis = millis.parse().map_err(|_| "no such time")?;
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
        let line = self.connection(&step.connection);
        match wanted.as_str() {
            "nothing" => match tokio::time::timeout(QUIET_PERIOD, line.next_line()).await {
                Ok(Ok(Some(got))) => Err(format!("expected nothing\n  got      {got}")),
                Ok(Ok(None)) => Err("expected nothing\n  got      the end".into()),
                Ok(Err(fault)) => Err(fault),
                Err(_) => Ok(()),
            },
            "eof" => match line.expect_line().await? {
                None => Ok(()),
                Some(got) => Err(format!("expected the end\n  got      {got}")),
            },
            wanted => {
                let got = line
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
            let mut faults = Vec::new();
            let found = wanted.iter().position(|step| {
                let mut vars = self.script.vars.clone();
                let checked = check_json(&step.joined_text(), &got, &mut vars);
                match checked {
                    Ok(()) => self.script.vars = vars,
                    Err(ref fault) => faults.push(fault.clone()),
                }
                checked.is_ok()
            });
            match found {
                Some(index) => drop(wanted.remove(index)),
                None => return Err(faults.join("\nor\n")),
            }
        }
        Ok(())
    }

    /// Whatever is left is too much.
    async fn finish(&mut self) -> Result<(), String> {
        #[cfg(feature = "http")]
        self.http.finish()?;
        for (name, mut line) in self.connections.drain() {
            line.input = None;
            let mut left = Vec::new();
            while let Ok(Ok(Some(got))) = tokio::time::timeout(RECEIVE_TIMEOUT, line.next_line()).await {
                left.push(got);
            }
            if !left.is_empty() {
                return Err(format!(
                    "connection [{name}] at the end, expected nothing\n  got      {}",
                    left.join("\n           ")
                ));
            }
            let served = tokio::time::timeout(RECEIVE_TIMEOUT, line.serving).await;
            served.map_err(|_| "the server does not end")?.map_err(|error| error.to_string())??;
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
        let (input, theirs) = tokio::io::duplex(64 << 10);
        let (printed, output) = tokio::io::duplex(64 << 10);
        let serving =
            tokio::spawn(async move { server.serve_io(theirs, printed).await.map_err(|e| e.to_string()) });
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
            Ok(_) => Err(format!("half a line: {line}")),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn expect_line(&mut self) -> Result<Option<String>, String> {
        let heard = tokio::time::timeout(RECEIVE_TIMEOUT, self.next_line()).await;
        heard.unwrap_or_else(|_| Err("nothing came in time".into()))
    }
}
