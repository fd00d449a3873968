//! The text of the `big-text` workloads: Markdown with source code, as users send it to tools.
//!
//! Text without a single escape is the best case of a JSON parser. Real text has a quote, a line end or a backslash
//! about every forty bytes, and some characters that are not ASCII.

/// Length of the text in bytes, before it is escaped.
const TEXT_BYTES: usize = 64 * 1024;

/// One section; `{n}` becomes its number.
const SECTION: &str = r##"## {n}. How requests are counted

Each worker owns one shard of the counters, so `add` never waits for another thread; a reader sums up the shards. The sum may be a little behind — that is fine for a dashboard, and it is what the "relaxed" ordering of the standard library promises anyway (see Müller & Søndergaard, §{n}).

A request is counted when its response has been written, and not when its handler returns. A client that disconnects in between is counted as cancelled, together with those that sent a cancellation, and the time until then goes into the same histogram. Buckets grow by two percent each, so a quantile is never off by more than that; there is no lock, no allocation and no system call on the way.

The shards are padded to a cache line. Without the padding, two threads that count at the same time would invalidate each other's line with every request, which costs about as much as the mutex that the shards are meant to avoid.

```rust
/// Adds one request with this outcome.
pub fn add(&self, method: &str, outcome: Outcome) {
    let shard = &self.shards[thread_index() % self.shards.len()];
    if method.starts_with("tools/") {
        shard.calls.fetch_add(1, Relaxed);
    }
    tracing::debug!(method, "counted {n}: \"{}\"", outcome);
	// Tabs and paths as C:\work\bench\{n} occur as well.
}
```

| workload | median | p99 | comment |
|---|--:|--:|---|
| `echo` | 11.2 µs | 40.7 µs | one connection, "warm" |
| `list` | 17.9 µs | 61.3 µs | 52 tools, naïve client |

- [x] The shard is chosen once per thread, not once per request.
- [ ] Write the result of run {n} to `results/{n}.json`, e.g. `{"run": {n}, "ok": true}`.

"##;

/// Returns 64 KiB of Markdown that differs for each `seed`.
pub(crate) fn markdown(seed: usize) -> String {
    let mut text = format!("# Notes of connection {seed}\n\n");
    let mut number = seed * 1000;
    while text.len() < TEXT_BYTES {
        number += 1;
        text += &SECTION.replace("{n}", &number.to_string());
    }
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text
}

/// Escapes text for a JSON string as `serde_json` does: with short escapes where they exist, and without escaping
/// characters outside ASCII.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 16);
    for character in text.chars() {
        match character {
            '"' => escaped += "\\\"",
            '\\' => escaped += "\\\\",
            '\n' => escaped += "\\n",
            '\t' => escaped += "\\t",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_looks_like_what_users_send() {
        let text = markdown(7);
        assert!((TEXT_BYTES - 3..=TEXT_BYTES).contains(&text.len()), "{}", text.len());
        let n_escapes = escape(&text).len() - text.len();
        assert!(
            (25..=45).contains(&(text.len() / n_escapes)),
            "one escape in {} bytes",
            text.len() / n_escapes
        );
        let n_wide = text.chars().filter(|character| !character.is_ascii()).count();
        assert!((200..2000).contains(&n_wide), "{n_wide} characters are not ASCII");
        assert_ne!(text, markdown(8));
    }

    #[test]
    fn escapes_are_those_of_json() {
        assert_eq!(escape("a\"b\\c\nd\té"), r#"a\"b\\c\nd\té"#);
    }
}
