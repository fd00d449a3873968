//! Checking, deserializing and writing JSON strings of 64 KiB.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use toolgate_json::RawJson;

#[derive(serde::Deserialize)]
struct Note {
    message: String,
}

fn texts() -> [(&'static str, String); 2] {
    let plain = "All work and no play makes Jack a dull boy. ".repeat(1490);
    let lines = plain.replace(". ", ".\n");
    [("64 KiB of text", plain), ("64 KiB of lines", lines)]
}

fn reading(c: &mut Criterion) {
    let mut group = c.benchmark_group("read");
    for (name, text) in texts() {
        let bytes = Bytes::from(serde_json::json!({ "message": text }).to_string());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("{name}, checked"), |b| {
            b.iter(|| RawJson::parse(black_box(bytes.clone())));
        });
        let raw = RawJson::parse(bytes.clone()).expect("valid JSON");
        group.bench_function(format!("{name}, deserialized"), |b| {
            b.iter(|| black_box(&raw).parse_as::<Note>().map(|note| note.message));
        });
    }
    group.finish();
}

fn writing(c: &mut Criterion) {
    let mut group = c.benchmark_group("write");
    for (name, text) in texts() {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| b.iter(|| RawJson::string(black_box(&text))));
    }
    group.finish();
}

criterion_group!(benches, reading, writing);
criterion_main!(benches);
