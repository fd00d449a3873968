use std::io;

use proptest::prelude::*;
use serde_json::json;
use toolgate_wire::{RawJson, RequestId};

use super::super::events::{RequestInfoParts, Transport};
use super::super::{
    EndStatus, ListenerPoll, ObservedRequest, Observer, RequestEnd, SecurityRejection, Subject,
};
use super::*;
use crate::request::Principal;

/// A writer whose output stays readable after the log is dropped.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn observer() -> Observer {
    Observer::new("evt".into(), Clock::manual(), Events::new())
}

fn begin(observer: &Observer, id: &str, method: &str, params: Value) -> ObservedRequest {
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", "Bearer hdr-s3cret".parse().unwrap());
    headers.insert("x-plain", "hdr-plain".parse().unwrap());
    let mut observed = observer.begin();
    let parts = RequestInfoParts {
        id: Some(&RequestId::String(id.into())),
        method,
        params: Some(&RawJson::from(params)),
        headers: &Arc::new(headers.into()),
        remote: Some("[2001:db8::1]:80".parse().unwrap()),
        principal: &Principal::new("ada"),
        transport: Transport::Http,
    };
    let ListenerPoll::Ready(event) = observer.notify_request(&mut observed, &parts) else {
        panic!("no listener is async")
    };
    observed.decide(event);
    observed
}

fn call(observer: &Observer, id: &str, end: &RequestEnd<'_>, params: Value) {
    let observed = begin(observer, id, end.method, params);
    let body = bytes::Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"content":"out-s3cret"}}"#);
    observer.end(observed, end, 200, body);
}

fn tool<'a>(name: &'a str, status: EndStatus<'a>) -> RequestEnd<'a> {
    RequestEnd { method: "tools/call", subject: Some(Subject::Tool(name)), status }
}

fn params() -> Value {
    json!({ "name": "login", "arguments": { "user": "ada", "deep": [{ "Api-Key": "arg-s3cret" }] } })
}

#[test]
fn a_line_describes_the_request_and_its_outcome() {
    let (observer, buffer) = (observer(), SharedBuffer::default());
    let log = AuditLog::new(buffer.clone()).unwrap();
    log.attach(&observer.events);
    call(&observer, "r1", &tool("login", EndStatus::Ok), params());
    call(&observer, "r2", &tool("login", EndStatus::ToolError { message: "no" }), params());
    let error = EndStatus::ProtocolError { code: -32602, message: "unknown tool: login" };
    call(&observer, "r3", &tool("login", error), params());
    assert!(log.flush());
    let mut lines = buffer.lines();
    assert_eq!(lines.len(), 3, "an error with a response has one line: {lines:?}");
    let time = lines[0]["time"].as_str().unwrap().to_owned();
    assert!(time.len() == 24 && time.ends_with('Z') && time.starts_with("20"), "{time}");
    lines.iter_mut().for_each(|line| line["time"] = Value::Null);
    let expected = json!({
        "time": null, "event": "response", "server": "evt", "transport": "http", "remote": "[2001:db8::1]:80",
        "principal": "ada", "id": "r1", "method": "tools/call", "name": "login", "ok": true,
        "outcome": "ok", "status": 200, "ms": 0.0,
    });
    assert_eq!(lines[0], expected);
    assert_eq!((&lines[1]["ok"], &lines[1]["code"]), (&json!(false), &json!("isError")));
    assert_eq!((&lines[2]["ok"], &lines[2]["code"]), (&json!(false), &json!(-32602)));
    assert!(!buffer.text().contains("s3cret") && !buffer.text().contains("hdr-plain"), "{}", buffer.text());
}

#[test]
fn a_destructive_tool_has_a_line_at_its_beginning() {
    let (observer, buffer) = (observer(), SharedBuffer::default());
    let log = AuditLog::new(buffer.clone()).unwrap();
    log.attach(&observer.events);
    for is_destructive in [false, true] {
        let mut observed = begin(&observer, "r1", "tools/call", params());
        observed.notify_tool_start(is_destructive);
        observed.cancel("tools/call", Some(Subject::Tool("login")));
    }
    assert!(log.flush());
    let mut lines = buffer.lines();
    lines.iter_mut().for_each(|line| line["time"] = Value::Null);
    let cancelled = json!({
        "time": null, "event": "response", "server": "evt", "transport": "http", "remote": "[2001:db8::1]:80",
        "principal": "ada", "id": "r1", "method": "tools/call", "name": "login", "ok": false,
        "outcome": "cancelled", "status": 499, "ms": 0.0,
    });
    let begin = json!({
        "time": null, "event": "begin", "server": "evt", "transport": "http", "remote": "[2001:db8::1]:80",
        "principal": "ada", "id": "r1", "method": "tools/call", "name": "login",
    });
    assert_eq!(lines, [cancelled.clone(), begin, cancelled]);
}

#[test]
fn arguments_are_written_only_on_request_and_without_secrets() {
    let (observer, buffer) = (observer(), SharedBuffer::default());
    let log = AuditLog::new(buffer.clone()).unwrap().with_arguments();
    log.attach(&observer.events);
    call(&observer, "r1", &tool("login", EndStatus::Ok), params());
    let long = json!({ "name": "login", "arguments": { "text": "x".repeat(20_000) } });
    call(&observer, "r2", &tool("login", EndStatus::Ok), long);
    let uri = json!({ "uri": "https://ada:uri-s3cret@example.com/?token=uri-s3cret" });
    let read =
        RequestEnd { method: "resources/read", subject: Some(Subject::Resource("")), status: EndStatus::Ok };
    call(&observer, "r3", &read, uri);
    drop((observer, log));
    let lines = buffer.lines();
    assert_eq!(lines[0]["arguments"], json!({ "user": "ada", "deep": [{ "Api-Key": "***" }] }));
    assert_eq!(lines[1]["arguments"], json!("(20011 bytes)"));
    assert_eq!(lines[2]["name"], json!("https://***@example.com/?token=***"));
    assert!(!buffer.text().contains("s3cret"), "{}", buffer.text());
}

#[test]
fn a_rejected_client_has_a_line() {
    let (observer, buffer) = (observer(), SharedBuffer::default());
    let log = AuditLog::new(buffer.clone()).unwrap();
    let subscription = log.attach(&observer.events);
    let remote = Some("192.0.2.1:5".parse().unwrap());
    observer.record_rejection(SecurityRejection::Auth, Transport::Http, remote, "wrong password\nfor ada");
    subscription.off();
    observer.record_rejection(SecurityRejection::Auth, Transport::Http, remote, "not logged");
    drop((observer, log));
    assert_eq!(buffer.text().lines().count(), 1, "line breaks in a message are escaped");
    let mut line = buffer.lines().remove(0);
    line["time"] = Value::Null;
    let expected = json!({
        "time": null, "event": "error", "server": "evt", "transport": "http", "remote": "192.0.2.1:5",
        "ok": false, "context": "auth", "kind": "AuthFailure", "message": "wrong password\nfor ada",
    });
    assert_eq!(line, expected);
}

/// Writes nothing until its channel gets a message or is closed.
struct BlockedWriter(SharedBuffer, std::sync::mpsc::Receiver<()>);

impl Write for BlockedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An error means that the channel is closed: from now on nothing blocks.
        let _ = self.1.recv();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn dropped_lines_are_counted_and_reported_later() {
    let (observer, buffer) = (observer(), SharedBuffer::default());
    let (unblock, blocked) = sync_channel(0);
    let log = AuditLog::new(BlockedWriter(buffer.clone(), blocked)).unwrap();
    log.attach(&observer.events);
    let n_sent = 3 * MAX_QUEUED_LINES as u64;
    for _ in 0..n_sent {
        observer.record_rejection(SecurityRejection::Ip, Transport::Http, None, "no");
    }
    let dropped = log.dropped();
    assert!(dropped > 0 && dropped <= n_sent - MAX_QUEUED_LINES as u64, "{dropped}");
    drop(unblock);
    drop((observer, log));
    let lines = buffer.lines();
    let reported: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
    let written = lines.iter().filter(|line| line["event"] == "error").count() as u64;
    assert_eq!((reported, written + reported), (dropped, n_sent));
}

struct FailingWriter;

impl Write for FailingWriter {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("no space left"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::Error::other("no space left"))
    }
}

struct PanickingWriter;

impl Write for PanickingWriter {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("writer panicked")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failing_writer_does_not_affect_calls() {
    let observer = observer();
    let logs = [AuditLog::new(FailingWriter).unwrap(), AuditLog::new(PanickingWriter).unwrap()];
    for log in &logs {
        log.attach(&observer.events);
    }
    for _ in 0..1000 {
        call(&observer, "r", &tool("login", EndStatus::Ok), params());
    }
    for log in &logs {
        assert!(!log.flush());
    }
    call(&observer, "r", &tool("login", EndStatus::Ok), params());
    assert!(logs[1].dropped() > 0, "the writer thread has ended");
    assert_eq!(observer.stats.summary().total_requests, 1001);
}

#[test]
fn a_file_is_appended_to_and_private() {
    let path = std::env::temp_dir().join(format!("toolgate-audit-{}.jsonl", crate::seal::random_token()));
    for round in 1..=2 {
        let observer = observer();
        let log = AuditLog::file(&path).unwrap();
        log.attach(&observer.events);
        call(&observer, &format!("r{round}"), &tool("login", EndStatus::Ok), params());
    }
    let text = std::fs::read_to_string(&path).unwrap();
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(text.ends_with('\n'));
    let message = AuditLog::file("/nowhere/at/all.jsonl").unwrap_err().to_string();
    assert!(message.contains("/nowhere/at/all.jsonl"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_client_text_is_one_line(id in "\\PC*|[\\x00-\\x1f]{0,20}", name in "[\\x00-\\x{2028}]{0,2000}") {
        let (observer, buffer) = (observer(), SharedBuffer::default());
        let log = AuditLog::new(buffer.clone()).unwrap().with_arguments();
        log.attach(&observer.events);
        let params = json!({ "name": name, "arguments": { &name: name } });
        call(&observer, &id, &tool(&name, EndStatus::Ok), params);
        drop((observer, log));
        let text = buffer.text();
        prop_assert_eq!(text.matches('\n').count(), 1);
        prop_assert!(text.len() < 40_000);
        let line: Value = serde_json::from_str(&text).unwrap();
        prop_assert!(line["name"].as_str().unwrap().len() <= MAX_TEXT_BYTES);
    }
}
