//! Plays the steps of a transcript: what is sent is sent, what is heard is compared.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::Host;
use super::compare::{Vars, check_json, fill};
use super::script::{Fault, Script, Step, unescape};
use crate::server::Server;
use crate::testing::PATIENCE;
use crate::tracker::AbortOnDrop;

/// How long nothing must come.
pub(super) const QUIET: Duration = Duration::from_millis(20);

pub(super) struct Player {
    pub(super) script: Script,
    server: Server,
    lines: HashMap<String, Line>,
    #[cfg(feature = "http")]
    pub(super) web: super::web::Web,
}

impl Player {
    pub(super) fn new(
        prelude: &str,
        text: &str,
        word: &str,
        vars: Vars,
        host: &mut impl Host,
    ) -> Result<Player, Fault> {
        let script = Script::read(prelude, text, word, vars)?;
        for (line, option) in &script.options {
            host.option(option).map_err(|fault| (*line, fault))?;
        }
        let server = host.open().map_err(|fault| (1, fault))?;
        #[cfg(feature = "http")]
        let web = super::web::Web::new(server.clone().into_service());
        Ok(Player {
            script,
            server,
            lines: HashMap::new(),
            #[cfg(feature = "http")]
            web,
        })
    }

    pub(super) async fn run(&mut self, host: &mut impl Host) -> Result<(), Fault> {
        let mut last = 0;
        while let Some(step) = self.script.steps.pop_front() {
            last = step.line;
            self.step(step, host).await.map_err(|fault| (last, fault))?;
        }
        self.finish().await.map_err(|fault| (last, fault))
    }

    async fn step(&mut self, step: Step, host: &mut impl Host) -> Result<(), String> {
        match (step.mark, self.script.lines) {
            ("!", _) => self.act(&step, host).await,
            (">" | ">b", true) => self.write(&step).await,
            ("<~", true) => self.read_any_order(step).await,
            ("<", true) => self.read(&step).await,
            #[cfg(feature = "http")]
            (">", false) => self.request(&step, host),
            #[cfg(feature = "http")]
            ("<", false) => self.response(&step).await,
            #[cfg(not(feature = "http"))]
            (_, false) => Err("there is no HTTP without the feature `http`".into()),
            _ => Err(format!("`{}` means nothing here", step.mark)),
        }
    }

    async fn act(&mut self, step: &Step, host: &mut impl Host) -> Result<(), String> {
        let head = fill(&step.head, &self.script.vars);
        let words: Vec<&str> = head.split_whitespace().collect();
        match words[..] {
            #[cfg(feature = "http")]
            ["drop"] => return self.web.leave(&step.connection).await,
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
            _ => return host.act(&words).await,
        }
        Ok(())
    }

    fn line(&mut self, name: &str) -> &mut Line {
        let server = &self.server;
        self.lines.entry(name.to_owned()).or_insert_with(|| Line::open(server.clone()))
    }

    async fn write(&mut self, step: &Step) -> Result<(), String> {
        if step.mark == ">" && step.head == "eof" {
            self.line(&step.connection).input = None;
            return Ok(());
        }
        let text = fill(&step.whole(), &self.script.vars);
        let bytes = if step.mark == ">b" { unescape(&text)? } else { format!("{text}\n").into_bytes() };
        let input = self.line(&step.connection).input.as_mut().ok_or("the input has ended")?;
        input.write_all(&bytes).await.map_err(|error| error.to_string())
    }

    async fn read(&mut self, step: &Step) -> Result<(), String> {
        let wanted = step.whole();
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
                check_json(wanted, &got, &mut self.script.vars)
            }
        }
    }

    async fn read_any_order(&mut self, first: Step) -> Result<(), String> {
        let connection = first.connection.clone();
        let mut wanted = vec![first];
        let is_next = |next: &Step| next.mark == "<~" && next.connection == connection;
        while self.script.steps.front().is_some_and(is_next) {
            wanted.extend(self.script.steps.pop_front());
        }
        while !wanted.is_empty() {
            let got = self.line(&connection).heard().await?.ok_or("the output has ended")?;
            let mut faults = Vec::new();
            let found = wanted.iter().position(|step| {
                let mut vars = self.script.vars.clone();
                let checked = check_json(&step.whole(), &got, &mut vars);
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
        self.web.finish()?;
        for (name, mut line) in self.lines.drain() {
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

/// One connection of `@ stdio`.
struct Line {
    input: Option<DuplexStream>,
    output: BufReader<DuplexStream>,
    serving: AbortOnDrop<Result<(), String>>,
}

impl Line {
    fn open(server: Server) -> Line {
        let (input, theirs) = tokio::io::duplex(64 << 10);
        let (printed, output) = tokio::io::duplex(64 << 10);
        let serving =
            tokio::spawn(async move { server.serve_io(theirs, printed).await.map_err(|e| e.to_string()) });
        Line { input: Some(input), output: BufReader::new(output), serving: AbortOnDrop::new(serving) }
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
