//! Hashers for keys whose origin makes SipHash unnecessary.
//!
//! The documentation of each hasher states who chooses its keys, because that decides whether a cheap hash is safe.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// FNV-1a, for names that the author of the server chooses.
///
/// Clients cannot choose these keys, so they cannot make them collide. Names are short: this takes a tenth of the time of
/// a keyed hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FnvHasher(u64);

impl Default for FnvHasher {
    fn default() -> FnvHasher {
        FnvHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for FnvHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes random ids that this server generated, such as session ids, by their first eight bytes.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            // Folded, because base64 characters do not use all bits of a byte.
            self.0 = fold_multiply(u64::from_le_bytes(*first));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes request ids, which clients choose, with a seed that is random per process.
///
/// Not as strong as SipHash, but a table of calls in flight is looked up four times per call and never holds more than a
/// thousand entries, so a client that guessed the seed would gain little.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeededHashBuilder;

static HASH_SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

impl BuildHasher for SeededHashBuilder {
    type Hasher = SeededHasher;

    #[inline]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(*HASH_SEED)
    }
}

/// The hasher of [`SeededHashBuilder`].
#[derive(Debug)]
pub(crate) struct SeededHasher(u64);

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        self.write_u64(rest.iter().fold(rest.len() as u64, |sum, byte| sum << 8 | u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = fold_multiply(self.0 ^ word);
    }

    #[inline]
    fn write_i64(&mut self, word: i64) {
        self.write_u64(word.cast_unsigned());
    }

    /// Mixes in the enum discriminant: whether a request id is a number or a string.
    #[inline]
    fn write_isize(&mut self, discriminant: isize) {
        self.0 ^= discriminant.cast_unsigned() as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Multiplies to 128 bits and xors the halves: a hash table takes its buckets from the lowest bits and its tags from the
/// highest, so both have to be mixed.
#[inline]
fn fold_multiply(word: u64) -> u64 {
    let product = u128::from(word) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use toolgate_wire::RequestId;

    use super::*;

    #[test]
    fn consecutive_request_ids_spread_over_the_buckets() {
        let bucket = |id: RequestId| SeededHashBuilder.hash_one(id) & 1023;
        let numbers: HashSet<u64> = (0..1000_i64).map(|id| bucket(RequestId::Number(id))).collect();
        let texts: HashSet<u64> = (0..1000).map(|id| bucket(format!("request-{id}").into())).collect();
        // A thousand random draws hit about 640 different buckets.
        assert!(numbers.len() > 550 && texts.len() > 550, "{} {}", numbers.len(), texts.len());
        assert_ne!(
            SeededHashBuilder.hash_one(RequestId::from("1")),
            SeededHashBuilder.hash_one(RequestId::from(1))
        );
    }
}
