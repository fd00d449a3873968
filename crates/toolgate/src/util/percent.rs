//! Percent-decoding.

/// Decodes percent escapes once. Invalid escapes stay as they are.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut index = 0;
    while let Some(&byte) = text.get(index) {
        match (byte, hex(text.get(index + 1)), hex(text.get(index + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.extend(u8::try_from(high * 16 + low));
                index += 3;
            }
            _ => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
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
