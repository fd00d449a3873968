//! What a message costs, in and out.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use toolgate_wire::codec::{
    Greetings, Said, Signature, read_call, read_greeting, read_meta, write_outcome, write_signed_outcome,
};
use toolgate_wire::model::{CacheHint, Call, Implementation, Outcome, Page, Tool, ToolOutput};
use toolgate_wire::{
    Edition, Frame, Index, Limits, Message, Raw, RequestId, read, read_knowing, write_result,
};

/// A tool call as handshake editions send it.
const SHORT: &str = r#"{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello from the load generator, all is well"}}}"#;

/// The same call with everything that a stateless request says about itself.
const LONG: &str = r#"{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello from the load generator"},"_meta":{"io.modelcontextprotocol/protocolVersion":"0000-00-00","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}"#;

fn reading(c: &mut Criterion) {
    let text = "All work and no play makes Jack a dull boy. ".repeat(1490);
    let large = SHORT.replace("hello", &text);
    let limits = Limits::default();
    let mut group = c.benchmark_group("read");
    for (name, message) in [("150 B", SHORT), ("335 B", LONG), ("64 KiB", &large)] {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| b.iter(|| read(black_box(&bytes), &limits)));
    }
    group.finish();
}

fn writing(c: &mut Criterion) {
    let mut group = c.benchmark_group("write");
    let id = RequestId::from(12345);
    let result = br#"{"content":[{"type":"text","text":"hello from the load generator"}]}"#;
    group.throughput(Throughput::Bytes(result.len() as u64));
    group.bench_function("result", |b| {
        let mut out = Vec::with_capacity(256);
        b.iter(|| {
            out.clear();
            write_result(&mut out, black_box(&id), black_box(result));
            out.len()
        });
    });
    group.finish();
}

/// From bytes to a call, with all that the message says of its sender.
fn calls(c: &mut Criterion) {
    let limits = Limits::default();
    let mut group = c.benchmark_group("call");
    for (name, edition, message) in
        [("handshake", Edition::NEWEST_HANDSHAKE, SHORT), ("stateless", Edition::NEWEST, LONG)]
    {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let Ok(Message::One(Frame::Request { method, params, .. })) =
                    read(black_box(&bytes), &limits)
                else {
                    panic!("no request");
                };
                let greeting = (!edition.shakes_hands()).then(|| read_greeting(params.as_ref()));
                let meta = read_meta(params.as_ref());
                (greeting, meta, read_call(edition, &method, params.as_ref()))
            });
        });
    }
    group.finish();
}

#[derive(serde::Deserialize)]
struct Echo {
    message: String,
}

/// All that this crate does for one call, from bytes to bytes: what a server spends on the protocol itself.
/// Walked: as by someone who keeps nothing. Known: with an index, and greetings heard before.
fn echoes(c: &mut Criterion) {
    let text = "All work and no play makes Jack a dull boy. ".repeat(1490);
    let long = LONG.replace("0000-00-00", Edition::NEWEST.date());
    let large = long.replace("hello from the load generator", &text);
    let server =
        Implementation { name: "bench".to_owned(), version: "1.0.0".to_owned(), ..Implementation::default() };
    let mut group = c.benchmark_group("echo");
    for (name, edition, message) in [
        ("handshake", Edition::NEWEST_HANDSHAKE, SHORT),
        ("stateless", Edition::NEWEST, &long),
        ("64 KiB", Edition::NEWEST, &large),
    ] {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        let signature = Signature::new(edition, &server);
        let greetings = Greetings::default();
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("{name}, walked"), |b| {
            b.iter(|| echo_walked(edition, black_box(&bytes), &server));
        });
        group.bench_function(format!("{name}, known"), |b| {
            b.iter(|| echo_known(edition, black_box(&bytes), &signature, &greetings));
        });
    }
    group.finish();
}

fn echo_walked(edition: Edition, bytes: &Bytes, server: &Implementation) -> Vec<u8> {
    let Ok(Message::One(Frame::Request { id, method, params })) = read(bytes, &Limits::default()) else {
        panic!("no request");
    };
    let said = Said::of(params.as_ref()).expect("params");
    let client = said.version().map(|_| said.greeting().expect("a greeting"));
    let call = said.call(edition, &method).expect("a call");
    black_box((client, said.meta().expect("meta")));
    let mut out = Vec::with_capacity(512);
    write_outcome(&mut out, edition, &run(call), Some(server));
    black_box(id);
    out
}

fn echo_known(edition: Edition, bytes: &Bytes, signature: &Signature, greetings: &Greetings) -> Vec<u8> {
    let mut index = Index::default();
    let Ok(Message::One(Frame::Request { id, method, params })) =
        read_knowing(bytes, &Limits::default(), &mut index, greetings)
    else {
        panic!("no request");
    };
    let said = Said::noted(params.as_ref(), &index).expect("params");
    let client = said.version().map(|_| greetings.meet(&said).expect("a greeting"));
    let call = said.call(edition, &method).expect("a call");
    black_box((client, said.meta().expect("meta")));
    let mut out = Vec::with_capacity(512);
    write_signed_outcome(&mut out, &run(call), signature);
    black_box(id);
    out
}

fn run(call: Call) -> Outcome {
    match call {
        Call::CallTool { arguments: Some(arguments), .. } => {
            let Echo { message } = arguments.parse_as().expect("arguments");
            Outcome::Tool(ToolOutput::text(message))
        }
        _ => panic!("no call of a tool"),
    }
}

/// From an outcome to bytes.
fn outcomes(c: &mut Criterion) {
    let text = Outcome::Tool(ToolOutput::text("hello from the load generator"));
    let items = (0..52).map(|n| tool(n).into()).collect();
    let tools = Outcome::Tools(Page { items, next: None, cache: CacheHint::default() });
    let server =
        Implementation { name: "bench".to_owned(), version: "1.0.0".to_owned(), ..Implementation::default() };
    let mut group = c.benchmark_group("outcome");
    for (name, outcome) in [("text", &text), ("52 tools", &tools)] {
        for edition in [Edition::NEWEST_HANDSHAKE, Edition::NEWEST] {
            let mut out = Vec::new();
            write_outcome(&mut out, edition, outcome, Some(&server));
            group.throughput(Throughput::Bytes(out.len() as u64));
            group.bench_function(format!("{name}, {edition}"), |b| {
                b.iter(|| {
                    out.clear();
                    write_outcome(&mut out, edition, black_box(outcome), Some(&server));
                    out.len()
                });
            });
        }
    }
    group.finish();
}

fn tool(n: usize) -> Tool {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "What to look for" },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
        },
        "required": ["query"],
    });
    Tool {
        title: Some(format!("Search number {n}")),
        description: Some("Looks for something in one of many places and tells what it found".to_owned()),
        output_schema: Some(Raw::from(&schema)),
        ..Tool::new(format!("search.number_{n}"), Raw::from(schema))
    }
}

criterion_group!(benches, reading, writing, calls, echoes, outcomes);
criterion_main!(benches);
