//! Parses an HTTP/1.1 response in a growing buffer.

use std::borrow::Cow;

use memchr::memmem;

/// The parsed head of a response. The bytes stay in the buffer.
pub(crate) struct Head {
    pub(crate) status: u16,
    head_len: usize,
    framing: Framing,
    pub(crate) session: Option<String>,
    pub(crate) content_type: String,
}

#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Head {
    /// Parses the head; `Ok(None)` if more bytes are needed.
    pub(crate) fn read(buffer: &[u8]) -> Result<Option<Self>, &'static str> {
        let Some(end) = memmem::find(buffer, b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&buffer[..end]).map_err(|_| "the response head is not UTF-8")?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let mut head = Self {
            status: status.ok_or("the response has no status")?,
            head_len: end + 4,
            framing: Framing::Length(0),
            session: None,
            content_type: String::new(),
        };
        for line in lines {
            let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
            head.set_header(name, value.trim())?;
        }
        Ok(Some(head))
    }

    fn set_header(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        if name.eq_ignore_ascii_case("content-length") {
            self.framing = Framing::Length(value.parse().map_err(|_| "invalid Content-Length")?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            self.session = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("content-type") {
            value.clone_into(&mut self.content_type);
        }
        Ok(())
    }

    /// The whole body, or `None` if more bytes are needed.
    pub(crate) fn body<'a>(&self, buffer: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let rest = &buffer[self.head_len..];
        match self.framing {
            Framing::Length(length) => rest.get(..length).map(Cow::Borrowed),
            Framing::Chunked => decode_chunks(rest).map(Cow::Owned),
        }
    }
}

fn decode_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = memmem::find(rest, b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        let data = rest.get(line + 2..)?;
        // The two bytes after the data, or after the last chunk, must have arrived too.
        let next = data.get(size + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(&data[..size]);
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(response: &str, expected: Option<&str>) {
        let head = Head::read(response.as_bytes()).unwrap().unwrap();
        let body = head.body(response.as_bytes());
        assert_eq!(body.as_deref(), expected.map(str::as_bytes), "{response:?}");
    }

    #[test]
    fn bodies() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Some("{}"));
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}", None);
        check("HTTP/1.1 202 Accepted\r\n\r\n", Some(""));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        check(chunked, Some("abcd"));
        check(&chunked[..chunked.len() - 2], None);
    }
}
