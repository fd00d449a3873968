//! Percent-encoding of URLs (RFC 3986).

/// Encodes everything but the unreserved characters, so that no character of the text has a meaning in a URL.
pub(crate) fn percent_encode(text: &str) -> String {
    encode_except(text, b"-._~")
}

/// Encodes a path. The slashes between its segments stay.
pub(crate) fn percent_encode_path(path: &str) -> String {
    encode_except(path, b"-._~/")
}

fn encode_except(text: &str, safe: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || safe.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.push(char::from(HEX[usize::from(byte >> 4)]));
            escaped.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    escaped
}

/// Decodes percent escapes. Invalid escapes stay as they are; invalid UTF-8 becomes U+FFFD.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        match (byte, hex(ahead.next()), hex(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                plain.extend(u8::try_from(high * 16 + low));
                bytes = ahead;
            }
            _ => plain.push(byte),
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
