//! Reading and writing messages.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use toolgate_wire::codec::{
    ClientCache, EncodedServerInfo, ParamsView, read_call, write_outcome, write_outcome_from,
};
use toolgate_wire::model::{CacheHint, Call, Implementation, Outcome, Page, Tool, ToolOutput};
use toolgate_wire::{
    Frame, Limits, Message, ParamsIndex, ProtocolVersion, RawJson, RequestId, read_message,
    read_message_cached, write_result,
};

/// A tool call in a protocol version with a handshake.
const SHORT: &str = r#"{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello from the load generator, all is well"}}}"#;

/// The same call as a stateless request, with its `_meta`.
const LONG: &str = r#"{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello from the load generator"},"_meta":{"io.modelcontextprotocol/protocolVersion":"0000-00-00","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}"#;

fn reading(c: &mut Criterion) {
    let text = "All work and no play makes Jack a dull boy. ".repeat(1490);
    let large = SHORT.replace("hello", &text);
    let limits = Limits::default();
    let mut group = c.benchmark_group("read");
    for (name, message) in [("150 B", SHORT), ("335 B", LONG), ("64 KiB", &large)] {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| b.iter(|| read_message(black_box(&bytes), &limits)));
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

/// From bytes to a call, including the client information and `_meta`.
fn calls(c: &mut Criterion) {
    let limits = Limits::default();
    let mut group = c.benchmark_group("call");
    for (name, version, message) in [
        ("handshake", ProtocolVersion::LATEST_WITH_HANDSHAKE, SHORT),
        ("stateless", ProtocolVersion::LATEST, LONG),
    ] {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let Ok(Message::Single(Frame::Request { method, params, .. })) =
                    read_message(black_box(&bytes), &limits)
                else {
                    panic!("not a request");
                };
                let client = (!version.has_handshake())
                    .then(|| ParamsView::new(params.as_ref()).and_then(|view| view.client_info()));
                let meta = ParamsView::new(params.as_ref()).and_then(|view| view.meta());
                (client, meta, read_call(version, &method, params.as_ref()))
            });
        });
    }
    group.finish();
}

#[derive(serde::Deserialize)]
struct Echo {
    message: String,
}

/// Everything the wire crate does for one call, from bytes to bytes: the cost of the protocol itself.
/// `uncached` keeps nothing between calls; `cached` uses an index of the params and a cache of clients.
fn echoes(c: &mut Criterion) {
    let text = "All work and no play makes Jack a dull boy. ".repeat(1490);
    let long = LONG.replace("0000-00-00", ProtocolVersion::LATEST.as_str());
    let large = long.replace("hello from the load generator", &text);
    let server = Implementation::new("bench", "1.0.0");
    let mut group = c.benchmark_group("echo");
    for (name, version, message) in [
        ("handshake", ProtocolVersion::LATEST_WITH_HANDSHAKE, SHORT),
        ("stateless", ProtocolVersion::LATEST, &long),
        ("64 KiB", ProtocolVersion::LATEST, &large),
    ] {
        let bytes = Bytes::copy_from_slice(message.as_bytes());
        let server_info = EncodedServerInfo::new(version, &server);
        let clients = ClientCache::default();
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("{name}, uncached"), |b| {
            b.iter(|| echo_uncached(version, black_box(&bytes), &server));
        });
        group.bench_function(format!("{name}, cached"), |b| {
            b.iter(|| echo_cached(version, black_box(&bytes), &server_info, &clients));
        });
    }
    group.finish();
}

fn echo_uncached(version: ProtocolVersion, bytes: &Bytes, server: &Implementation) -> Vec<u8> {
    let Ok(Message::Single(Frame::Request { id, method, params })) = read_message(bytes, &Limits::default())
    else {
        panic!("not a request");
    };
    let view = ParamsView::new(params.as_ref()).expect("params");
    let client = view.protocol_version().map(|_| view.client_info().expect("client information"));
    let call = view.read_call(version, &method).expect("a call");
    black_box((client, view.meta().expect("meta")));
    let mut out = Vec::with_capacity(512);
    write_outcome(&mut out, version, &run(call), Some(server));
    black_box(id);
    out
}

fn echo_cached(
    version: ProtocolVersion,
    bytes: &Bytes,
    server_info: &EncodedServerInfo,
    clients: &ClientCache,
) -> Vec<u8> {
    let mut index = ParamsIndex::default();
    let Ok(Message::Single(Frame::Request { id, method, params })) =
        read_message_cached(bytes, &Limits::default(), &mut index, clients)
    else {
        panic!("not a request");
    };
    let view = ParamsView::with_index(params.as_ref(), &index).expect("params");
    let client = view.protocol_version().map(|_| clients.resolve(&view).expect("client information"));
    let call = view.read_call(version, &method).expect("a call");
    black_box((client, view.meta().expect("meta")));
    let mut out = Vec::with_capacity(512);
    write_outcome_from(&mut out, &run(call), server_info);
    black_box(id);
    out
}

fn run(call: Call) -> Outcome {
    match call {
        Call::CallTool { arguments: Some(arguments), .. } => {
            let Echo { message } = arguments.parse_as().expect("arguments");
            Outcome::Tool(ToolOutput::text(message))
        }
        _ => panic!("not a tool call"),
    }
}

/// From an outcome to bytes.
fn outcomes(c: &mut Criterion) {
    let text = Outcome::Tool(ToolOutput::text("hello from the load generator"));
    let items = (0..52).map(|n| tool(n).into()).collect();
    let tools = Outcome::Tools(Page { items, next_cursor: None, cache: CacheHint::default() });
    let server = Implementation::new("bench", "1.0.0");
    let mut group = c.benchmark_group("outcome");
    for (name, outcome) in [("text", &text), ("52 tools", &tools)] {
        for version in [ProtocolVersion::LATEST_WITH_HANDSHAKE, ProtocolVersion::LATEST] {
            let mut out = Vec::new();
            write_outcome(&mut out, version, outcome, Some(&server));
            group.throughput(Throughput::Bytes(out.len() as u64));
            group.bench_function(format!("{name}, {version}"), |b| {
                b.iter(|| {
                    out.clear();
                    write_outcome(&mut out, version, black_box(outcome), Some(&server));
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
    let output_schema = RawJson::from(&schema);
    Tool::new(format!("search.number_{n}"), RawJson::from(schema))
        .with_title(format!("Search number {n}"))
        .with_description("Looks for something in one of many places and tells what it found")
        .with_output_schema(output_schema)
}

criterion_group!(benches, reading, writing, calls, echoes, outcomes);
criterion_main!(benches);
