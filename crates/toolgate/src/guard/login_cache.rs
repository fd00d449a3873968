//! Limits how many password checks run and wait, and caches the logins that were verified.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::digest::Digest;
use crate::request::Principal;
use crate::seal::fill_random;
use crate::util::clock::timer_now;

/// Entries that are older than this are evicted first when the cache is full.
pub(super) const MAX_CACHE_TTL: Duration = Duration::from_secs(60 * 60);

/// The result of looking up credentials, as far as that takes no waiting.
pub(super) enum CredentialLookup<T> {
    /// The request has no credentials of this kind.
    Missing,
    Invalid,
    Valid(Principal),
    /// The credentials have to be checked.
    Unverified(T),
}

impl<T> CredentialLookup<T> {
    pub(super) fn map<U>(self, wrap: impl FnOnce(T) -> U) -> CredentialLookup<U> {
        match self {
            CredentialLookup::Missing => CredentialLookup::Missing,
            CredentialLookup::Invalid => CredentialLookup::Invalid,
            CredentialLookup::Valid(principal) => CredentialLookup::Valid(principal),
            CredentialLookup::Unverified(login) => CredentialLookup::Unverified(wrap(login)),
        }
    }
}

/// Shared by all copies of a guard.
pub(super) struct LoginCache {
    check_permits: Arc<Semaphore>,
    /// Checks that run or wait for a permit. A further one is rejected.
    queue_permits: Arc<Semaphore>,
    /// Makes the cached digests useless outside this process.
    salt: [u8; 32],
    verified: Mutex<HashMap<[u8; 32], (Instant, Principal)>>,
    max_entries: usize,
}

/// Permit to run one check, released when dropped.
pub(super) struct CheckPermit {
    _check: OwnedSemaphorePermit,
    _queue: OwnedSemaphorePermit,
}

/// A place in the queue for a [`CheckPermit`].
pub(super) struct QueuePermit(OwnedSemaphorePermit);

impl LoginCache {
    pub(super) fn new(max_concurrent: usize, max_pending: usize, max_entries: usize) -> LoginCache {
        let mut salt = [0; 32];
        fill_random(&mut salt);
        LoginCache {
            check_permits: Arc::new(Semaphore::new(max_concurrent)),
            queue_permits: Arc::new(Semaphore::new(max_pending)),
            salt,
            verified: Mutex::default(),
            max_entries,
        }
    }

    /// Returns `None` if too many checks are waiting.
    pub(super) fn enqueue(&self) -> Option<QueuePermit> {
        Arc::clone(&self.queue_permits).try_acquire_owned().ok().map(QueuePermit)
    }

    /// Waits until a check may run.
    ///
    /// Cancel safe: yes; the place in the queue is released.
    pub(super) async fn permit(&self, QueuePermit(queue): QueuePermit) -> Option<CheckPermit> {
        let check = Arc::clone(&self.check_permits).acquire_owned().await.ok()?;
        Some(CheckPermit { _check: check, _queue: queue })
    }

    /// The cache key of a login.
    pub(super) fn key(&self, parts: &[&Digest]) -> Digest {
        let mut salted = vec![&self.salt];
        salted.extend(parts.iter().map(|part| part.as_bytes()));
        Digest::combine(&salted)
    }

    /// When a login was verified, and the principal it belongs to.
    pub(super) fn get(&self, key: &Digest) -> Option<(Instant, Principal)> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(key.as_bytes()).cloned()
    }

    /// Caches a verified login. Only valid credentials get here, so a guesser cannot evict others.
    pub(super) fn insert(&self, key: &Digest, principal: &Principal) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= self.max_entries {
            verified.retain(|_, (at, _)| at.elapsed() < MAX_CACHE_TTL);
        }
        if verified.len() >= self.max_entries {
            verified.clear();
        }
        verified.insert(*key.as_bytes(), (timer_now(), principal.clone()));
    }

    pub(super) fn remove(&self, key: &Digest) {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).remove(key.as_bytes());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    #[cfg(test)]
    pub(super) fn permits(&self) -> (&Arc<Semaphore>, &Arc<Semaphore>) {
        (&self.check_permits, &self.queue_permits)
    }
}
