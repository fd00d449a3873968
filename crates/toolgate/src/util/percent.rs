//! Percent escapes, taken off once.

/// Bytes without percent escapes. What is no escape stays as it is.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, hex(text.get(at + 1)), hex(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                plain.extend(u8::try_from(high * 16 + low));
                at += 3;
            }
            _ => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_taken_off_once() {
        for (text, plain) in [
            ("my%20App", "my App"),
            ("%2525", "%25"),
            ("%zz%4", "%zz%4"),
            ("a+b", "a+b"),
            ("%C3%A9", "é"),
            ("%", "%"),
        ] {
            assert_eq!(decode(text.as_bytes()), plain.as_bytes(), "{text}");
        }
        assert_eq!(decode(b"%ff"), [0xff]);
    }
}
