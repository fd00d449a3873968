//! Writes the head of a response.

use bytes::BufMut;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::util::clock;

/// The framing of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// The response cannot have a body.
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    /// The framing of a body with this status, whose length may be known.
    pub(super) fn of(status: StatusCode, length: Option<u64>) -> Framing {
        match length {
            _ if status.is_informational() => Framing::None,
            _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => Framing::None,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        }
    }
}

/// Whether a response closes the connection.
pub(super) fn is_connection_close(headers: &HeaderMap) -> bool {
    headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Writes the status line and the headers; `lines` are headers that are encoded already. Headers about the connection
/// and the framing are written here, whatever the service has set.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    status: StatusCode,
    lines: &[u8],
    headers: &HeaderMap,
    framing: Framing,
    is_last: bool,
    now: Instant,
) {
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(lines);
    for (name, value) in headers {
        if !matches!(*name, CONNECTION | CONTENT_LENGTH | DATE | TRANSFER_ENCODING) {
            write_header(out, name.as_str(), value);
        }
    }
    match framing {
        Framing::None => {}
        Framing::Length(length) => write_content_length(out, length),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    // In one write, because every head ends with it.
    let mut end = *b"date: .............................\r\n\r\n";
    end[6..35].copy_from_slice(&clock::current_http_date(now));
    out.extend_from_slice(&end);
}

fn write_header(out: &mut Vec<u8>, name: &str, value: &HeaderValue) {
    out.reserve(name.len() + value.len() + 4);
    out.put_slice(name.as_bytes());
    out.put_slice(b": ");
    out.put_slice(value.as_bytes());
    out.put_slice(b"\r\n");
}

/// Writes the `Content-Length` line, in one write too.
fn write_content_length(out: &mut Vec<u8>, length: u64) {
    const NAME: &[u8; 16] = b"content-length: ";
    let mut line = [0; NAME.len() + 22];
    line[..NAME.len()].copy_from_slice(NAME);
    let mut end = NAME.len() + length.checked_ilog10().unwrap_or(0) as usize + 1;
    line[end..end + 2].copy_from_slice(b"\r\n");
    let (text, mut rest) = (end + 2, length);
    while end > NAME.len() {
        end -= 1;
        line[end] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&line[..text]);
}

/// Starts a chunk with its length in hexadecimal digits.
pub(super) fn write_chunk_size(out: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut shift = usize::BITS - length.leading_zeros();
    while shift > 0 {
        shift = (shift - 1) / 4 * 4;
        out.push(DIGITS[length >> shift & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_and_machines_do() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 4095, 65_536, 1_000_000, usize::MAX] {
            let mut out = Vec::new();
            write_content_length(&mut out, number as u64);
            assert_eq!(out, format!("content-length: {number}\r\n").as_bytes());
            if number > 0 {
                let mut out = Vec::new();
                write_chunk_size(&mut out, number);
                assert_eq!(out, format!("{number:x}\r\n").as_bytes());
            }
        }
    }

    #[tokio::test]
    async fn what_is_about_the_connection_is_said_once() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("x-a", "1"), ("connection", "close"), ("content-length", "9"), ("date", "never")]
        {
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert!(is_connection_close(&headers));
        let head_of = |status, framing, is_last| {
            let mut out = Vec::new();
            write_head(&mut out, status, b"x-b: 2\r\n", &headers, framing, is_last, clock::timer_now());
            let text = String::from_utf8(out).unwrap();
            let (head, date) = text.split_once("date: ").unwrap();
            assert!(date.ends_with(" GMT\r\n\r\n") && date.len() == 33, "{date}");
            head.to_owned()
        };
        assert_eq!(
            head_of(StatusCode::OK, Framing::Length(12), false),
            "HTTP/1.1 200 OK\r\nx-b: 2\r\nx-a: 1\r\ncontent-length: 12\r\n"
        );
        assert_eq!(
            head_of(StatusCode::NOT_FOUND, Framing::Chunked, true),
            "HTTP/1.1 404 Not Found\r\nx-b: 2\r\nx-a: 1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n"
        );
        assert_eq!(
            head_of(StatusCode::NO_CONTENT, Framing::None, false),
            "HTTP/1.1 204 No Content\r\nx-b: 2\r\nx-a: 1\r\n"
        );
    }

    #[test]
    fn some_answers_have_no_body() {
        assert_eq!(Framing::of(StatusCode::NO_CONTENT, Some(0)), Framing::None);
        assert_eq!(Framing::of(StatusCode::ACCEPTED, Some(0)), Framing::Length(0));
        assert_eq!(Framing::of(StatusCode::OK, None), Framing::Chunked);
    }
}
