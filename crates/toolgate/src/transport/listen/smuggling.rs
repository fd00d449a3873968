//! Reads along with hyper's HTTP/1 parser and refuses what that lets pass and we do not.
//!
//! hyper takes a bare LF for a line end, takes `Content-Length` beside `Transfer-Encoding` and hides
//! the former, and forgets a repeated `Content-Length`. Each is a way to make a proxy in front of us see
//! other requests than we do. None of it is visible once parsed, so it is looked at in the bytes.
//!
//! This is no second parser: it knows line ends and two field names, it can only refuse, and what it
//! lets pass is judged by hyper. It counts bodies by `Content-Length` to find the next head; after a
//! chunked body it has lost its place and goes [`State::Blind`] for the rest of the connection, where
//! hyper's own rules hold (a request with both lengths is served by its chunks, then closed).

/// As much of a line as is kept: both field names and any length that fits 64 bits.
const LINE_PREFIX_BYTES: usize = 64;

/// The first line of an HTTP/2 connection.
const HTTP2_PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r";

/// A reader of heads that keeps its place from read to read.
pub(super) struct HeadScanner {
    state: State,
    /// The start of the line being read, and the length of all of it.
    line_prefix: [u8; LINE_PREFIX_BYTES],
    line_length: usize,
    /// The byte before the next.
    last_byte: u8,
    /// What the head being read has said of its body.
    content_length: Option<u64>,
    has_transfer_encoding: bool,
    is_http2: bool,
    /// Whether no line of this connection was complete yet.
    is_at_start: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a head; empty lines are skipped here, as hyper does.
    BetweenRequests,
    RequestLine,
    Fields,
    /// So many bytes of a body are to come.
    Body(u64),
    /// HTTP/2, or after a chunked body: nothing is looked at.
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

    /// The same behind other requests, where no connection begins any more.
    pub(super) fn after_first_request() -> Self {
        Self { is_at_start: false, ..Self::new() }
    }

    /// Whether no line was complete yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.is_at_start
    }

    /// How long the body is behind a head that was fed whole, if that is known.
    pub(super) fn body_length(&self) -> Option<u64> {
        match self.state {
            State::BetweenRequests => Some(0),
            State::Body(length) => Some(length),
            State::RequestLine | State::Fields | State::Passthrough => None,
        }
    }

    /// Whether bytes may pass without being shown here.
    pub(super) fn is_passthrough(&self) -> bool {
        self.state == State::Passthrough
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Whether the line being read is a request line, and one that fills a head by itself: it is what is
    /// too long. A short one is the start of a request that came right behind the one with too long a head.
    pub(super) fn is_in_long_request_line(&self) -> bool {
        self.state == State::RequestLine && self.line_length > super::MIN_HEAD_BYTES / 2
    }

    /// Whether all that was read is whole requests, as far as is known.
    pub(super) fn is_between_requests(&self) -> bool {
        self.state == State::BetweenRequests
    }

    /// Looks at what was read. `Err(n)`: the first `n` bytes are fine, what follows must be refused.
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
                    let here = usize::try_from(left).map_or(rest.len(), |n| n.min(rest.len()));
                    rest = &rest[here..];
                    self.state = match left - here as u64 {
                        0 => State::BetweenRequests,
                        left => State::Body(left),
                    };
                }
                State::RequestLine | State::Fields => {
                    let found = find_lf(rest);
                    let (piece, behind) = rest.split_at(found.unwrap_or(rest.len()));
                    let is_whole = found.is_some() && self.line_length == 0;
                    let taken = if is_whole {
                        self.scan_line(piece)
                    } else {
                        self.scan_partial_line(piece, found.is_some())
                    };
                    taken.map_err(|()| bytes.len() - behind.len())?;
                    rest = behind.get(1..).unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    /// Takes a line that came in one piece, as nearly all do, without the LF behind it.
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

    /// Takes a piece of a line; it may be the last one.
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
        let (kept, length) = (self.line_prefix, std::mem::take(&mut self.line_length));
        match kept.get(..length) {
            Some(line) => self.scan_line(line),
            // Too long to be kept, so it is neither of those that are short; and no length that fits is so long.
            None => {
                match self.state {
                    State::RequestLine => self.state = State::Fields,
                    _ => self.scan_header(&kept)?,
                }
                self.is_at_start = false;
                Ok(())
            }
        }
    }

    /// What follows the head that has just ended.
    fn state_after_head(&self) -> State {
        match self.content_length {
            _ if self.has_transfer_encoding => State::Passthrough,
            None | Some(0) => State::BetweenRequests,
            Some(length) => State::Body(length),
        }
    }

    /// Takes a field, without its line end. Of a very long one the beginning is enough.
    fn scan_header(&mut self, line: &[u8]) -> Result<(), ()> {
        // Most lines are neither; one letter says so.
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

/// Where the next LF is. Lines of a head are short: for those, eight bytes at a time is sooner than a call.
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
        // The lowest bit that is set is the top bit of the first zero; a borrow can set wrong ones above it only.
        let found = word.wrapping_sub(ONES) & !word & (ONES * 0x80);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        rest = after;
    }
    memchr::memchr(b'\n', rest).map(|place| bytes.len() - rest.len() + place)
}

/// What stands behind the name of a field, if it has this name.
fn strip_header_name<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

/// The value of the length field, if it is digits, all of which were kept.
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

    /// Feeds whole, then in pieces of every small size: the verdict may not depend on it.
    fn check(bytes: &[u8]) -> (Result<(), usize>, HeadScanner) {
        let mut whole = HeadScanner::new();
        let verdict = whole.feed(bytes);
        for size in 1..6 {
            let mut scan = HeadScanner::new();
            let mut done = 0;
            let mut found = Ok(());
            for piece in bytes.chunks(size) {
                if let Err(n) = scan.feed(piece) {
                    found = Err(done + n);
                    break;
                }
                done += piece.len();
            }
            assert_eq!(found, verdict, "in pieces of {size}");
        }
        (verdict, whole)
    }

    #[test]
    fn requests_one_after_the_other_keep_the_place() {
        let (verdict, scan) = check(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        assert_eq!(verdict, Ok(()));
        assert!(scan.is_between_requests());
    }

    #[test]
    fn bare_line_feeds_are_refused_at_their_place() {
        assert_eq!(check(b"GET / HTTP/1.1\nHost: a\r\n\r\n").0, Err(14));
        assert_eq!(check(b"GET / HTTP/1.1\r\nHost: a\n\r\n").0, Err(23));
        assert_eq!(check(b"GET / HTTP/1.1\r\nHost: a\r\n\n").0, Err(25));
    }

    #[test]
    fn two_lengths_are_refused() {
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
    fn http2_and_chunks_are_not_looked_at() {
        let (verdict, scan) = check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\0\n");
        assert_eq!(verdict, Ok(()));
        assert!(scan.is_http2() && scan.is_passthrough());
        let (verdict, scan) =
            check(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n");
        assert_eq!(verdict, Ok(()));
        assert!(!scan.is_http2() && scan.is_passthrough());
    }

    #[test]
    fn a_long_request_line_is_known_for_one() {
        let mut scan = HeadScanner::new();
        assert_eq!(scan.feed(b"GET /aaaa"), Ok(()));
        assert!(!scan.is_in_long_request_line(), "not long yet");
        assert_eq!(scan.feed(&[b'a'; 9000]), Ok(()));
        assert!(scan.is_in_long_request_line());
        assert_eq!(scan.feed(b" HTTP/1.1\r\nX: aaaa"), Ok(()));
        assert!(!scan.is_in_long_request_line());
    }
}
