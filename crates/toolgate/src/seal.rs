//! Authenticated encryption of data that clients hold for the server: request state and list cursors.
//!
//! A sealed text is `v1.<key id>.<base64url of nonce, ciphertext and tag>` (XChaCha20-Poly1305). Its purpose (caller, method,
//! arguments) is associated data: opened for another purpose, it is rejected like a forgery. Keys rotate: the first key of the
//! ring seals, all of them open.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

const NONCE_BYTES: usize = 24;

/// A ring of keys. The first one seals; all of them open. Clones share the ring.
#[derive(Clone)]
pub(crate) struct Seal {
    keys: Arc<RwLock<Vec<SealKey>>>,
}

#[derive(Clone)]
struct SealKey {
    /// Identifies the key without revealing it.
    id: String,
    cipher: XChaCha20Poly1305,
}

impl SealKey {
    fn from_secret(secret: [u8; 32]) -> SealKey {
        let id = Sha256::digest([b"toolgate key id".as_slice(), &secret].concat());
        SealKey { id: URL_SAFE_NO_PAD.encode(&id[..4]), cipher: XChaCha20Poly1305::new(&secret.into()) }
    }
}

/// Error: the text was not sealed with one of the keys, or for another purpose.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidSeal;

impl Seal {
    /// Creates a ring with one random key, which is lost when the process ends.
    pub(crate) fn random() -> Seal {
        let mut secret = [0; 32];
        fill_random(&mut secret);
        Seal::from_secrets([secret])
    }

    /// Creates a ring of shared secrets, newest first.
    pub(crate) fn from_secrets(secrets: impl IntoIterator<Item = [u8; 32]>) -> Seal {
        let keys = secrets.into_iter().map(SealKey::from_secret).collect();
        Seal { keys: Arc::new(RwLock::new(keys)) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys().is_empty()
    }

    /// Seals with this secret from now on. Older keys still open.
    pub(crate) fn add_secret(&self, secret: [u8; 32]) {
        let newest = SealKey::from_secret(secret);
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|key| key.id != newest.id);
        keys.insert(0, newest);
    }

    fn keys(&self) -> RwLockReadGuard<'_, Vec<SealKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals `plain` for one purpose.
    pub(crate) fn seal(&self, purpose: &[u8], plain: &[u8]) -> String {
        let mut sealed = vec![0; NONCE_BYTES];
        fill_random(&mut sealed);
        let keys = self.keys();
        let Some(key) = keys.first() else {
            return String::new();
        };
        let nonce = XNonce::try_from(&sealed[..NONCE_BYTES]).expect("the nonce has the length of a nonce");
        let payload = Payload { msg: plain, aad: purpose };
        let body =
            key.cipher.encrypt(&nonce, payload).expect("encryption into memory fails only beyond 256 GiB");
        sealed.extend_from_slice(&body);
        format!("v1.{}.{}", key.id, URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a text that was sealed for the same purpose.
    pub(crate) fn open(&self, purpose: &[u8], sealed: &str) -> Result<Vec<u8>, InvalidSeal> {
        let (id, body) =
            sealed.strip_prefix("v1.").and_then(|rest| rest.split_once('.')).ok_or(InvalidSeal)?;
        let keys = self.keys();
        let key = keys.iter().find(|key| key.id == id).ok_or(InvalidSeal)?;
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| InvalidSeal)?;
        let (nonce, body) = bytes.split_at_checked(NONCE_BYTES).ok_or(InvalidSeal)?;
        let nonce = XNonce::try_from(nonce).map_err(|_| InvalidSeal)?;
        key.cipher.decrypt(&nonce, Payload { msg: body, aad: purpose }).map_err(|_| InvalidSeal)
    }
}

/// Fills a buffer with cryptographically secure random bytes.
pub(crate) fn fill_random(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("a machine without randomness cannot keep secrets, so it must not serve");
}

/// Creates a reference that connects an error message to a log entry.
pub(crate) fn error_reference() -> String {
    random_token().split_off(19)
}

/// Creates an identifier of 160 random bits, in characters that need no escaping anywhere.
pub(crate) fn random_token() -> String {
    let mut bytes = [0; 20];
    fill_random(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_sealed_for_the_same_purpose_open() {
        let seal = Seal::random();
        let sealed = seal.seal(b"state", b"plain");
        assert_eq!(seal.open(b"state", &sealed).unwrap(), b"plain");
        assert_eq!(seal.open(b"cursor", &sealed), Err(InvalidSeal));
        assert_eq!(Seal::random().open(b"state", &sealed), Err(InvalidSeal));
        assert_ne!(seal.seal(b"state", b"plain"), sealed, "each nonce differs");
    }

    #[test]
    fn any_change_is_noticed() {
        let seal = Seal::random();
        let sealed = seal.seal(b"state", b"plain");
        assert_eq!(seal.open(b"state", &format!("{sealed}-TAMPERED")), Err(InvalidSeal));
        for index in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[index] ^= 1;
            // The last base64 character may have unused bits: the decoder rejects them.
            if let Ok(text) = String::from_utf8(bytes) {
                assert_eq!(seal.open(b"state", &text), Err(InvalidSeal), "at {index}");
            }
        }
        for garbage in ["", "v1", "v1.", "v1..", "v1.x.y", "v2.a.b"] {
            assert_eq!(seal.open(b"state", garbage), Err(InvalidSeal));
        }
    }

    #[test]
    fn an_old_key_still_opens_after_rotation() {
        let old = Seal::from_secrets([[1; 32]]);
        let new = Seal::from_secrets([[2; 32], [1; 32]]);
        let sealed = old.seal(b"p", b"plain");
        assert_eq!(new.open(b"p", &sealed).unwrap(), b"plain");
        assert_eq!(old.open(b"p", &new.seal(b"p", b"plain")), Err(InvalidSeal));
    }

    #[test]
    fn a_shared_secret_can_be_added() {
        let (ours, theirs) = (Seal::random(), Seal::from_secrets([[3; 32]]));
        let (before, other) = (ours.seal(b"p", b"before"), ours.clone());
        for _ in 0..2 {
            ours.add_secret([3; 32]);
        }
        assert_eq!(theirs.open(b"p", &other.seal(b"p", b"after")).unwrap(), b"after");
        assert_eq!(ours.open(b"p", &before).unwrap(), b"before");
        assert_eq!(ours.keys().len(), 2);
    }
}
