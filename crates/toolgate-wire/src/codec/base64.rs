//! Base64 with the standard alphabet, for images, audio and resources.
//!
//! Decoding is strict: padding is required and its unused bits must be zero, so that each value has one encoding. Line breaks
//! and other alphabets are rejected, as the protocol requires.

use super::object::WriteJson;
use crate::ProtocolVersion;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Marks bytes outside the alphabet.
const INVALID: u8 = 0xff;

/// Maps characters to values.
static DECODE_TABLE: [u8; 256] = {
    let mut values = [INVALID; 256];
    let mut n = 0;
    while n < 64 {
        values[ALPHABET[n] as usize] = n as u8;
        n += 1;
    }
    values
};

/// Bytes that are written as a base64 string.
pub(super) struct Base64<'a>(pub(super) &'a [u8]);

impl WriteJson for Base64<'_> {
    fn write_json(&self, out: &mut Vec<u8>, _: ProtocolVersion) {
        out.push(b'"');
        encode(out, self.0);
        out.push(b'"');
    }
}

fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, b'=');
    let (triples, rest) = bytes.as_chunks::<3>();
    let (quads, _) = out[start..].as_chunks_mut::<4>();
    for (triple, quad) in triples.iter().zip(quads.iter_mut()) {
        *quad = encode_triple([triple[0], triple[1], triple[2]]);
    }
    // The buffer was filled with padding.
    if let (Some(last), [first, others @ ..]) = (quads.last_mut(), rest) {
        let second = others.first().copied().unwrap_or(0);
        let all = encode_triple([*first, second, 0]);
        last[..=rest.len()].copy_from_slice(&all[..=rest.len()]);
    }
}

fn encode_triple([a, b, c]: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, a, b, c]);
    let character = |shift: u32| ALPHABET[(bits >> shift) as usize & 63];
    [character(18), character(12), character(6), character(0)]
}

/// Decodes a base64 string. Returns `None` if it is not strictly valid.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (quads, []) = text.as_bytes().as_chunks::<4>() else {
        return None;
    };
    let Some((last, quads)) = quads.split_last() else {
        return Some(Vec::new());
    };
    let mut bytes = Vec::with_capacity((quads.len() + 1) * 3);
    for quad in quads {
        bytes.extend_from_slice(&decode_quad(*quad)?);
    }
    let (padded, count) = match last {
        [a, b, b'=', b'='] => ([*a, *b, b'A', b'A'], 1),
        [a, b, c, b'='] => ([*a, *b, *c, b'A'], 2),
        whole => (*whole, 3),
    };
    let value = decode_quad(padded)?;
    let (head, tail) = value.split_at(count);
    bytes.extend_from_slice(head);
    tail.iter().all(|byte| *byte == 0).then_some(bytes)
}

fn decode_quad(quad: [u8; 4]) -> Option<[u8; 3]> {
    let values = quad.map(|character| DECODE_TABLE[character as usize]);
    // Values have six bits; `INVALID` has the highest bit set.
    if values.iter().fold(0, |all, value| all | value) & 0x80 != 0 {
        return None;
    }
    let bits = values.iter().fold(0_u32, |bits, value| bits << 6 | u32::from(*value));
    let [_, a, b, c] = bits.to_be_bytes();
    Some([a, b, c])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_to_string(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        encode(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_examples_of_rfc_4648() {
        let texts = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, text) in texts.into_iter().enumerate() {
            assert_eq!(encode_to_string(&b"foobar"[..length]), text);
            assert_eq!(decode(text).as_deref(), Some(&b"foobar"[..length]));
        }
    }

    #[test]
    fn every_byte_round_trips() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for length in 0..bytes.len() {
            assert_eq!(decode(&encode_to_string(&bytes[..length])).as_deref(), Some(&bytes[..length]));
        }
    }

    #[test]
    fn only_strict_encodings_are_accepted() {
        for text in [
            "Zg", "Zg=", "Zg===", "Z===", "====", "Zh==", "Zm9=", "Zm9v\n", "Zm9-", "Zm9_", " Zm9",
            "Zg==Zg==", "Zm=v", "Zmé", "=Zm9", "Zm9vZg=",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
