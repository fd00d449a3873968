//! A server's own part of a store.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{Expect, Key, Store, StoreError, Visibility};

/// A store with a prefix for all spaces, so that servers with different names can share a store without conflicts.
#[derive(Clone, Debug)]
pub(crate) struct ScopedStore {
    pub(crate) backend: Arc<dyn Store>,
    prefix: Box<str>,
}

impl ScopedStore {
    /// Creates the part of `server`. Its name is percent-encoded, because spaces must not contain arbitrary characters.
    pub(crate) fn new(backend: Arc<dyn Store>, server: &str) -> ScopedStore {
        let mut prefix = String::with_capacity(server.len());
        for byte in server.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                prefix.push(char::from(byte));
            } else {
                prefix.push_str(&format!("%{byte:02x}"));
            }
        }
        ScopedStore { backend, prefix: prefix.into() }
    }

    /// Returns the full name of a space of this server.
    pub(crate) fn space(&self, space: &str) -> String {
        format!("{}/{space}", self.prefix)
    }

    /// Returns a key in a space of this server.
    pub(crate) fn key(&self, space: &str, name: &str) -> Key {
        Key::new(self.space(space), name)
    }

    /// Returns the key of a nonce. Nonces come from clients, so their hash is used: short, and of safe characters.
    pub(super) fn nonce_key(&self, nonce: &str) -> Key {
        self.key("nonces", &URL_SAFE_NO_PAD.encode(Sha256::digest(nonce)))
    }

    /// Consumes a nonce. Returns `true` for the first caller only, until `ttl` has passed.
    pub(crate) async fn consume_once(&self, nonce: &str, ttl: Duration) -> Result<bool, StoreError> {
        let key = self.nonce_key(nonce);
        let version = self.backend.put(&key, Bytes::new(), Some(ttl), Expect::Absent).await?;
        Ok(version.is_some())
    }

    /// Returns a secret that all processes of this server share, and creates it if it does not exist.
    pub(crate) async fn shared_secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let key = self.key("secrets", name);
        // The second iteration is for a process that lost the race to create it.
        for _ in 0..2 {
            if let Some(entry) = self.backend.get(&key).await? {
                let secret = <[u8; 32]>::try_from(&entry.value[..]);
                return secret
                    .map_err(|_| StoreError::Corrupt(format!("the secret `{name}` does not have 32 bytes")));
            }
            let mut secret = [0; 32];
            getrandom::fill(&mut secret)
                .map_err(|error| StoreError::Unavailable(format!("no random numbers: {error}")))?;
            let value = Bytes::copy_from_slice(&secret);
            if self.backend.put(&key, value, None, Expect::Absent).await?.is_some() {
                return Ok(secret);
            }
        }
        Err(StoreError::Unavailable(format!("the secret `{name}` was deleted while it was read")))
    }

    /// Returns whether other processes use the store at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.backend.visibility() == Visibility::Cluster
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn scoped_store() -> ScopedStore {
        ScopedStore::new(Arc::new(MemoryStore::new()), "a server")
    }

    #[tokio::test]
    async fn a_nonce_is_consumed_once() {
        let store = scoped_store();
        let mut n_first = 0;
        for _ in 0..5 {
            n_first += u32::from(store.consume_once("n", Duration::from_secs(60)).await.unwrap());
        }
        assert_eq!(n_first, 1);
        assert!(store.consume_once("m", Duration::from_secs(60)).await.unwrap());
    }

    #[tokio::test]
    async fn all_processes_read_the_same_secret() {
        let store = scoped_store();
        let first = store.shared_secret("seal").await.unwrap();
        assert_ne!(first, [0; 32]);
        assert_eq!(store.clone().shared_secret("seal").await.unwrap(), first);
        assert_ne!(store.shared_secret("other").await.unwrap(), first);
        let short = store.key("secrets", "short");
        store.backend.put(&short, "abc".into(), None, Expect::Absent).await.unwrap();
        assert!(matches!(store.shared_secret("short").await, Err(StoreError::Corrupt(_))));
    }
}
