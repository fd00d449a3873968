//! The steps of a transcript over HTTP.

use std::collections::HashMap;

use serde_json::Value;

use super::TranscriptHost;
use super::compare::{Vars, check_json, matches_text, substitute};
use super::player::{Player, QUIET_PERIOD};
use super::script::{ScriptStep, parse_header, split_headers_and_body};
use crate::request::Principal;
use crate::testing::RECEIVE_TIMEOUT;
use crate::testing::exchange::{EventMessage, HttpExchange, ReceivedEvent, build_request};
use crate::transport::http::ServerService;

/// The exchanges of a transcript by connection name, each with a flag that its head was checked.
pub(super) struct TranscriptExchanges {
    endpoint: ServerService,
    exchanges: HashMap<String, (HttpExchange, bool)>,
}

impl TranscriptExchanges {
    pub(super) fn new(endpoint: ServerService) -> TranscriptExchanges {
        TranscriptExchanges { endpoint, exchanges: HashMap::new() }
    }

    /// Closes a connection.
    pub(super) async fn disconnect(&mut self, connection: &str) -> Result<(), String> {
        let (exchange, _) = self.exchanges.remove(connection).ok_or("nothing to drop")?;
        exchange.disconnect().await;
        Ok(())
    }

    /// Ends all exchanges. Fails if one has unread output.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        for (name, (exchange, _)) in self.exchanges.drain() {
            exchange.finish().map_err(|error| format!("connection [{name}] at the end: {error}"))?;
        }
        Ok(())
    }
}

impl Player {
    pub(super) fn send_request(
        &mut self,
        step: &ScriptStep,
        host: &mut impl TranscriptHost,
    ) -> Result<(), String> {
        let vars = &self.script.vars;
        let head = substitute(&step.head, vars);
        let mut words = head.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err("expected a method and a path".into());
        };
        let (lines, body) = split_headers_and_body(&step.continuation);
        let body = substitute(&body, vars);
        let (mut principal, mut all) = (None, Vec::new());
        while let Some(word) = words.next() {
            match word.strip_prefix('+') {
                Some("modern") => all.extend(mirrored_headers(&body)?),
                Some(named) => {
                    let set = self
                        .script
                        .headers
                        .get(named)
                        .ok_or_else(|| format!("no headers are named {named}"))?;
                    let set = substitute(set, vars);
                    all.extend(set.split(" | ").map(parse_header).collect::<Result<Vec<_>, _>>()?);
                }
                None if word == "as" => principal = words.next().map(|id| Principal::new(id.to_owned())),
                None => return Err(format!("unexpected word in a request line: {word}")),
            }
        }
        let own =
            lines.iter().map(|line| parse_header(&substitute(line, vars))).collect::<Result<Vec<_>, _>>()?;
        // A header line replaces the header of a set; a header that is listed twice here is sent twice.
        all.retain(|(name, _)| !own.iter().any(|(other, _)| other == name));
        all.extend(own);
        let mut request = build_request(method, path, all, body).map_err(|error| error.to_string())?;
        if let Some(principal) = principal {
            request.extensions_mut().insert(principal);
        }
        let http = &mut self.http;
        if let Some((previous, _)) = http.exchanges.remove(&step.connection) {
            previous.finish()?;
        }
        http.exchanges.insert(step.connection.clone(), (host.send(&http.endpoint, request), false));
        Ok(())
    }

    pub(super) async fn check_response(&mut self, step: &ScriptStep) -> Result<(), String> {
        let vars = &mut self.script.vars;
        let (exchange, head_checked) =
            self.http.exchanges.get_mut(&step.connection).ok_or("no request was sent")?;
        let head = substitute(&step.head, vars);
        let (word, rest) = head.split_once(' ').unwrap_or((&head, ""));
        match word {
            "nothing" => match exchange.event_within(QUIET_PERIOD).await? {
                None => Ok(()),
                Some(got) => Err(format!("expected nothing\n  got      {got:?}")),
            },
            "end" => match exchange.event_within(RECEIVE_TIMEOUT).await? {
                Some(ReceivedEvent::End) => Ok(()),
                got => Err(format!("expected the end\n  got      {got:?}")),
            },
            "comment" => match exchange.raw_event(RECEIVE_TIMEOUT).await? {
                Some(ReceivedEvent::Comment) => Ok(()),
                got => Err(format!("expected a comment\n  got      {got:?}")),
            },
            "retry" => match exchange.event_within(RECEIVE_TIMEOUT).await? {
                Some(ReceivedEvent::Retry(got)) if got == rest => Ok(()),
                got => Err(format!("expected retry {rest}\n  got      {got:?}")),
            },
            "event" => {
                let got = exchange.event_within(RECEIVE_TIMEOUT).await?;
                let Some(ReceivedEvent::Message(got)) = got else {
                    return Err(format!("expected event {rest}\n  got      {got:?}"));
                };
                let rest = step.continuation.iter().fold(rest.to_owned(), |rest, line| rest + line);
                check_event(&substitute(&rest, vars), &got, vars)
            }
            _ if std::mem::replace(head_checked, true) => {
                Err("the head of this response was already checked".into())
            }
            status => check_head(exchange, status, rest, &step.continuation, vars).await,
        }
    }
}

/// Returns the headers that the newest protocol version mirrors from this body.
fn mirrored_headers(body: &str) -> Result<Vec<(String, String)>, String> {
    let value: Value = serde_json::from_str(body).map_err(|error| format!("{error} in {body}"))?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let name = match text("/method").as_deref() {
        Some("tools/call" | "prompts/get") => text("/params/name"),
        Some("resources/read") => text("/params/uri"),
        Some("tasks/get" | "tasks/update" | "tasks/cancel") => text("/params/taskId"),
        _ => None,
    };
    let headers = [
        ("mcp-protocol-version", text("/params/_meta/io.modelcontextprotocol~1protocolVersion")),
        ("mcp-method", text("/method")),
        ("mcp-name", name),
    ];
    Ok(headers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

async fn check_head(
    exchange: &mut HttpExchange,
    status: &str,
    kind: &str,
    rest: &[String],
    vars: &mut Vars,
) -> Result<(), String> {
    let head = exchange.head().await?.clone();
    let is_stream = kind == "text/event-stream";
    let (headers, body) = split_headers_and_body(rest);
    let got_kind = head.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if head.status.as_str() != status || got_kind != kind {
        let body = if got_kind == "text/event-stream" { String::new() } else { exchange.body().await? };
        return Err(format!(
            "expected {status} {kind}\n  got      {} {got_kind} {body}",
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
        let (name, wanted) = parse_header(&substitute(&line, vars))?;
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

fn check_event(wanted: &str, got: &EventMessage, vars: &mut Vars) -> Result<(), String> {
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
        let is_match = match (&wanted, got) {
            (None, None) => true,
            (Some(wanted), Some(got)) => matches_text(wanted, got, vars),
            _ => false,
        };
        if !is_match {
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
