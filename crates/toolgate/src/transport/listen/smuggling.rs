//! Detects request smuggling in the bytes that hyper's HTTP/1 parser reads.
//!
//! hyper accepts a bare LF as a line end, accepts `Content-Length` together with `Transfer-Encoding` and hides the
//! former, and drops a repeated `Content-Length`. Each of these can make a proxy in front of us see other requests
//! than we do. None is visible after parsing, so the raw bytes are scanned.
//!
//! This is not a second parser: it knows line ends and two header names, it can only reject, and hyper still parses
//! everything that it accepts. It skips bodies by their `Content-Length` to find the next head. After a chunked body it
//! does not know where the next head begins and is in [`State::Passthrough`] for the rest of the connection, where
//! hyper's own rules apply (a request with both lengths is served by its chunks, then the connection is closed).

/// The prefix of a line that is kept: enough for both header names and any length of 64 bits.
const LINE_PREFIX_BYTES: usize = 64;

/// The first line of an HTTP/2 connection.
const HTTP2_PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r";

/// Scans request heads, across reads.
pub(super) struct HeadScanner {
    state: State,
    /// The prefix of the current line, and the length of the whole line.
    line_prefix: [u8; LINE_PREFIX_BYTES],
    line_length: usize,
    /// The byte before the next one.
    last_byte: u8,
    /// The body framing that the current head has stated so far.
    content_length: Option<u64>,
    has_transfer_encoding: bool,
    is_http2: bool,
    /// Whether no line of this connection is complete yet.
    is_at_start: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a head; empty lines are skipped here, as hyper does.
    BetweenRequests,
    RequestLine,
    Fields,
    /// The bytes of a body that are still to come.
    Body(u64),
    /// HTTP/2, or after a chunked body: nothing is scanned.
    Passthrough,
}

impl HeadScanner {
    pub(super) fn new() -> Self {
        Self {
            state: State::BetweenRequests,
            line_prefix: [0; LINE_PREFIX_BYTES],
            line_length: 0,
            last_byte: 0,
            content_length: None,
            has_transfer_encoding: false,
            is_http2: false,
            is_at_start: true,
        }
    }

    /// A scanner for a connection that has served requests before, and so cannot become HTTP/2.
    pub(super) fn after_first_request() -> Self {
        Self { is_at_start: false, ..Self::new() }
    }

    /// Whether no line is complete yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.is_at_start
    }

    /// The length of the body behind a complete head, if it is known.
    pub(super) fn body_length(&self) -> Option<u64> {
        match self.state {
            State::BetweenRequests => Some(0),
            State::Body(length) => Some(length),
            State::RequestLine | State::Fields | State::Passthrough => None,
        }
    }

    /// Whether bytes need not be scanned.
    pub(super) fn is_passthrough(&self) -> bool {
        self.state == State::Passthrough
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Whether the current line is a request line that alone is too long for a head. A short one is the start of the
    /// next request, behind one with too long a head.
    pub(super) fn is_in_long_request_line(&self) -> bool {
        self.state == State::RequestLine && self.line_length > super::MIN_HEAD_BYTES / 2
    }

    /// Whether the bytes read so far are complete requests, as far as is known.
    pub(super) fn is_between_requests(&self) -> bool {
        self.state == State::BetweenRequests
    }

    /// Scans bytes. `Err(n)`: the first `n` bytes are fine, and the rest must be rejected.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            match self.state {
                State::Passthrough => break,
                State::BetweenRequests if matches!(first, b'\r' | b'\n') => rest = &rest[1..],
                State::BetweenRequests => {
                    self.state = State::RequestLine;
                    self.line_length = 0;
                    self.content_length = None;
                    self.has_transfer_encoding = false;
                }
                State::Body(left) => {
                    let skipped = usize::try_from(left).map_or(rest.len(), |n| n.min(rest.len()));
                    rest = &rest[skipped..];
                    self.state = match left - skipped as u64 {
                        0 => State::BetweenRequests,
                        left => State::Body(left),
                    };
                }
                State::RequestLine | State::Fields => {
                    let line_feed = find_lf(rest);
                    let (piece, after) = rest.split_at(line_feed.unwrap_or(rest.len()));
                    let is_whole = line_feed.is_some() && self.line_length == 0;
                    let scanned = if is_whole {
                        self.scan_line(piece)
                    } else {
                        self.scan_partial_line(piece, line_feed.is_some())
                    };
                    scanned.map_err(|()| bytes.len() - after.len())?;
                    rest = after.get(1..).unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    /// Scans a complete line without its LF, as nearly all lines are.
    fn scan_line(&mut self, line: &[u8]) -> Result<(), ()> {
        match line {
            [b'\r'] => self.state = self.state_after_head(),
            [text @ .., b'\r'] => match self.state {
                State::RequestLine if self.is_at_start && line == HTTP2_PREFACE_LINE => {
                    self.is_http2 = true;
                    self.state = State::Passthrough;
                }
                State::RequestLine => self.state = State::Fields,
                _ => self.scan_header(text)?,
            },
            _ => return Err(()),
        }
        self.is_at_start = false;
        Ok(())
    }

    /// Scans a part of a line, which may be the last.
    fn scan_partial_line(&mut self, text: &[u8], is_last: bool) -> Result<(), ()> {
        if let Some(space) = self.line_prefix.get_mut(self.line_length..) {
            let n = space.len().min(text.len());
            space[..n].copy_from_slice(&text[..n]);
        }
        self.line_length += text.len();
        self.last_byte = text.last().copied().unwrap_or(self.last_byte);
        if !is_last {
            return Ok(());
        }
        if self.line_length == 0 || self.last_byte != b'\r' {
            return Err(());
        }
        let (prefix, length) = (self.line_prefix, std::mem::take(&mut self.line_length));
        match prefix.get(..length) {
            Some(line) => self.scan_line(line),
            // Too long to be one of the short lines; and a length of 64 bits is shorter.
            None => {
                match self.state {
                    State::RequestLine => self.state = State::Fields,
                    _ => self.scan_header(&prefix)?,
                }
                self.is_at_start = false;
                Ok(())
            }
        }
    }

    /// The state after the head that has just ended.
    fn state_after_head(&self) -> State {
        match self.content_length {
            _ if self.has_transfer_encoding => State::Passthrough,
            None | Some(0) => State::BetweenRequests,
            Some(length) => State::Body(length),
        }
    }

    /// Scans a header without its line end. The prefix of a very long one is enough.
    fn scan_header(&mut self, line: &[u8]) -> Result<(), ()> {
        // Most lines are neither header. A few letters suffice to skip them.
        match line {
            [b'c' | b'C', _, _, _, _, _, _, _, b'l' | b'L', ..] => {
                let Some(value) = strip_header_name(line, b"content-length:") else { return Ok(()) };
                let length = parse_content_length(value).ok_or(())?;
                if self.has_transfer_encoding || self.content_length.replace(length).is_some() {
                    return Err(());
                }
            }
            [b't' | b'T', ..] if strip_header_name(line, b"transfer-encoding:").is_some() => {
                if self.content_length.is_some() || self.has_transfer_encoding {
                    return Err(());
                }
                self.has_transfer_encoding = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The position of the next LF. Lines of a head are short: comparing eight bytes at a time is then faster than calling memchr.
#[inline(always)]
fn find_lf(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let at = bytes.len() - rest.len();
        if at >= LINE_PREFIX_BYTES {
            break;
        }
        let word = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'\n'));
        // The lowest bit that is set belongs to the first match; a borrow can only set wrong bits above it.
        let found = word.wrapping_sub(ONES) & !word & (ONES * 0x80);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        rest = after;
    }
    memchr::memchr(b'\n', rest).map(|position| bytes.len() - rest.len() + position)
}

/// The value of a header, if it has this name.
fn strip_header_name<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

/// Parses the length, if it is digits and all of them were kept.
fn parse_content_length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || value.len() > LINE_PREFIX_BYTES - "content-length:".len() - 1 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds all bytes at once, then in chunks of every small size: the result must not depend on it.
    fn check(bytes: &[u8]) -> (Result<(), usize>, HeadScanner) {
        let mut whole = HeadScanner::new();
        let expected = whole.feed(bytes);
        for size in 1..6 {
            let mut scanner = HeadScanner::new();
            let mut fed = 0;
            let mut found = Ok(());
            for chunk in bytes.chunks(size) {
                if let Err(n) = scanner.feed(chunk) {
                    found = Err(fed + n);
                    break;
                }
                fed += chunk.len();
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
        (expected, whole)
    }

    #[test]
    fn the_scanner_keeps_its_place_between_requests() {
        let (verdict, scan) = check(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        assert_eq!(verdict, Ok(()));
        assert!(scan.is_between_requests());
    }

    #[test]
    fn bare_line_feeds_are_rejected_at_their_position() {
        assert_eq!(check(b"GET / HTTP/1.1\nHost: a\r\n\r\n").0, Err(14));
        assert_eq!(check(b"GET / HTTP/1.1\r\nHost: a\n\r\n").0, Err(23));
        assert_eq!(check(b"GET / HTTP/1.1\r\nHost: a\r\n\n").0, Err(25));
    }

    #[test]
    fn two_lengths_are_rejected() {
        for fields in [
            "Content-Length: 5\r\ncontent-length: 5\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999999\r\n",
        ] {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            assert!(check(head.as_bytes()).0.is_err(), "{fields}");
        }
    }

    #[test]
    fn http2_and_chunked_bodies_are_not_scanned() {
        let (verdict, scan) = check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\0\n");
        assert_eq!(verdict, Ok(()));
        assert!(scan.is_http2() && scan.is_passthrough());
        let (verdict, scan) =
            check(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n");
        assert_eq!(verdict, Ok(()));
        assert!(!scan.is_http2() && scan.is_passthrough());
    }

    #[test]
    fn a_long_request_line_is_detected() {
        let mut scan = HeadScanner::new();
        assert_eq!(scan.feed(b"GET /aaaa"), Ok(()));
        assert!(!scan.is_in_long_request_line(), "not long yet");
        assert_eq!(scan.feed(&[b'a'; 9000]), Ok(()));
        assert!(scan.is_in_long_request_line());
        assert_eq!(scan.feed(b" HTTP/1.1\r\nX: aaaa"), Ok(()));
        assert!(!scan.is_in_long_request_line());
    }
}
