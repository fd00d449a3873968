//! Digests of secrets, which have one length and are compared in constant time.
//!
//! A digest is never shown, and the secret is not kept.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a secret.
#[derive(Clone, Copy)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(secret: &[u8]) -> Digest {
        Digest(Sha256::digest(secret).into())
    }

    /// The digest of several digests and a salt, as the key of a cache.
    pub(super) fn combine(parts: &[&[u8; 32]]) -> Digest {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }

    /// Parses a setting: a secret, or `sha256:` and the 64 hex digits of its digest.
    ///
    /// # Errors
    /// If the digits are not 64 hex digits.
    pub(super) fn parse(text: &str) -> Result<Digest, String> {
        let Some(digits) = text.strip_prefix("sha256:") else {
            return Ok(Digest::of(text.as_bytes()));
        };
        let error = || "`sha256:` is followed by 64 hex digits".to_owned();
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
            return Err(error());
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| parse_hex_byte(*pair)).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest).ok_or_else(error)
    }

    pub(super) fn ct_eq(&self, other: &Digest) -> Choice {
        self.0.ct_eq(&other.0)
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 hex digits, which identify a secret without revealing it.
    pub(super) fn short_hex(&self) -> String {
        let mut start = [0; 8];
        start.copy_from_slice(&self.0[..8]);
        format!("{:016x}", u64::from_be_bytes(start))
    }
}

fn parse_hex_byte([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |letter: u8| char::from(letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_digest_is_the_digest_of_the_secret() {
        // printf abc | sha256sum
        let written = "sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Digest::parse(written).unwrap();
        assert!(bool::from(digest.ct_eq(&Digest::of(b"abc"))));
        assert!(!bool::from(digest.ct_eq(&Digest::of(b"abd"))));
        assert_eq!(digest.short_hex(), "ba7816bf8f01cfea");
        assert!(bool::from(Digest::parse("abc").unwrap().ct_eq(&digest)));
        for wrong in ["sha256:", "sha256:ba78", "sha256:+a7816", &written[..70], &format!("{written}00")] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
        let wrong = format!("sha256:{}", "é".repeat(32));
        assert!(Digest::parse(&wrong).is_err());
        assert_eq!(format!("{digest:?}"), "Digest");
    }
}
