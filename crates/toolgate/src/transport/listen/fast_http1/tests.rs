//! The fast path against hyper: the same bytes get the same responses.

use std::time::Instant;

use tokio::io::AsyncWriteExt;

use crate::transport::listen::Options;
use crate::transport::listen::tests::{close, ms, post, read_to_close, read_until, start};

/// The responses that a client reads, without what may differ: the date, the order of headers, and whether the last
/// response has `Connection: close`.
fn normalized_responses(response: &str) -> Vec<String> {
    let mut normalized = Vec::new();
    for piece in response.split("HTTP/1.").skip(1) {
        let (head, body) = piece.split_once("\r\n\r\n").unwrap_or((piece, ""));
        let is_compared = |line: &&str| !line.starts_with("date: ") && !line.starts_with("connection: ");
        let mut lines: Vec<_> = head.lines().filter(is_compared).collect();
        lines[1..].sort_unstable();
        normalized.push(format!("{}\n\n{body}", lines.join("\n")));
    }
    normalized
}

#[tokio::test]
async fn fast_path_and_hyper_respond_alike() {
    let [fast, hyper] =
        [false, true].map(|is_fast_path_disabled| Options { is_fast_path_disabled, ..Options::default() });
    let servers = [start(fast).await, start(hyper).await];
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let big = "b".repeat(100_000);
    let posts = |length: usize| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let rows = [
        close("/"),
        post("Content-Length: 5\r\n", "hello"),
        post("Content-Length: 0\r\n", ""),
        format!("{get}{get}{}", close("/wait")),
        format!("{}one{}two{}", posts(3), posts(3), post("Content-Length: 5\r\n", "three")),
        format!("{}one{}", posts(3), post("Transfer-Encoding: chunked\r\n", "3\r\ntwo\r\n0\r\n\r\n")),
        format!("{}{big}{}", posts(100_000), close("/refuse")),
        format!("{}one{}", posts(3), post(&format!("Content-Length: {}\r\n", big.len()), &big)),
        format!("{}one{}{big}{}two{}", posts(3), posts(100_000), posts(3), close("/")),
        format!("\r\n\r\n{}", close("/")),
        format!("{get}HEAD / HTTP/1.1\r\nHost: a\r\n\r\n{}", close("/")),
        format!("{get}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        format!("{get}GET / HTTP/1.0\r\nHost: a\r\n\r\n"),
        format!("{get}GET / HTTP/1.1\nHost: a\n\n"),
        format!("{get}{}", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")),
        format!("{get}{}", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
        format!("{get}GET http://b/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        format!("{get}garbage\r\n\r\n"),
        format!("{}short", posts(50)),
        format!("{get}GET / HT"),
    ];
    for row in rows {
        // At once, and in pieces that end anywhere.
        for size in [usize::MAX, 4000, 37] {
            if row.len() / size > 1000 {
                continue;
            }
            let mut responses = Vec::new();
            for server in &servers {
                let (mut read, mut write) = server.connect().await.into_split();
                let sending = async {
                    for piece in row.as_bytes().chunks(size) {
                        if write.write_all(piece).await.is_err() {
                            break;
                        }
                        tokio::task::yield_now().await;
                        if size < 100 {
                            tokio::time::sleep(ms(1)).await;
                        }
                    }
                    let _ = write.shutdown().await;
                };
                let ((), response) = tokio::join!(sending, read_to_close(&mut read));
                responses.push(normalized_responses(&response));
            }
            let shown: String = row.chars().take(300).collect();
            assert_eq!(responses[0], responses[1], "{shown:?} in pieces of {size}");
        }
    }
}

#[tokio::test]
async fn a_head_that_comes_in_pieces_stays_on_the_fast_path() {
    let server = start(Options::default().head_timeout(ms(300))).await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        for piece in ["POST / HTTP/1.1\r\nHo", "st: a\r\nContent-Le", "ngth: 5\r\n\r\nhe", "llo"] {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(ms(20)).await;
        }
        read_until(&mut stream, "hello").await;
    }
    // The head timeout applies to it.
    let begin = Instant::now();
    stream.write_all(b"POST / HT").await.unwrap();
    assert_eq!(read_to_close(&mut stream).await, "");
    assert!(begin.elapsed() > ms(250) && begin.elapsed() < ms(1500), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_malformed_head_is_rejected_before_it_is_complete() {
    let server = start(Options::default().max_head(8192)).await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(10_000));
    let twice = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n";
    for (status, head) in [(431, long.as_str()), (400, twice), (400, "GET / HTTP/1.1\nHost: a\r\n")] {
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // Neither a blank line nor an end of input follows.
        assert!(read_to_close(&mut stream).await.starts_with(&format!("HTTP/1.1 {status} ")), "{status}");
    }
}

#[tokio::test]
async fn a_short_unread_body_does_not_close_the_connection() {
    let server = start(Options::default()).await;
    let mut stream = server.connect().await;
    let head = "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(ms(50)).await;
        stream.write_all(b"{}").await.unwrap();
        assert!(!read_until(&mut stream, "waited").await.contains("connection: close"));
    }
}
