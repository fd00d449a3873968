//! Limits how many connections are open, in total and per address.
//!
//! The lock is taken at accept and close only. The map contains only addresses with an open connection, so its size
//! is bounded by the total.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::util::network::client_network;

/// Limits the connections of one listener.
pub(super) struct ConnectionLimiter {
    max_total: usize,
    max_per_network: usize,
    counts: Arc<SharedCounts>,
}

/// Permit for one open connection, released when dropped.
pub(super) struct ConnectionPermit {
    network: IpAddr,
    counts: Arc<SharedCounts>,
}

#[derive(Default)]
struct SharedCounts(Mutex<ConnectionCounts>);

#[derive(Default)]
struct ConnectionCounts {
    total: usize,
    /// No entry is ever zero.
    per_network: HashMap<IpAddr, usize>,
}

impl ConnectionLimiter {
    pub(super) fn new(max_total: usize, max_per_network: usize) -> Self {
        Self { max_total, max_per_network, counts: Arc::default() }
    }

    /// Returns a permit for a connection from this address, or `None` if a limit is reached.
    pub(super) fn try_acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let network = client_network(address);
        let mut counts = self.counts.lock();
        let each = counts.per_network.get(&network).copied().unwrap_or(0);
        if counts.total >= self.max_total || each >= self.max_per_network {
            return None;
        }
        counts.total += 1;
        counts.per_network.insert(network, each + 1);
        Some(ConnectionPermit { network, counts: Arc::clone(&self.counts) })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.total -= 1;
        match counts.per_network.get_mut(&self.network) {
            Some(each) if *each > 1 => *each -= 1,
            _ => {
                counts.per_network.remove(&self.network);
            }
        }
    }
}

impl SharedCounts {
    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        // The counts are consistent wherever a panic could happen, so poisoning is ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn both_limits_hold_and_permits_are_released() {
        let limiter = ConnectionLimiter::new(3, 2);
        let first = limiter.try_acquire(ip("10.0.0.1")).unwrap();
        let _second = limiter.try_acquire(ip("::ffff:10.0.0.1")).unwrap();
        assert!(limiter.try_acquire(ip("10.0.0.1")).is_none());
        let _third = limiter.try_acquire(ip("2001:db8::1")).unwrap();
        assert!(limiter.try_acquire(ip("10.0.0.2")).is_none());
        drop(first);
        assert!(limiter.try_acquire(ip("10.0.0.1")).is_some());
        assert_eq!(limiter.counts.lock().per_network.len(), 2);
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let limiter = ConnectionLimiter::new(9, 1);
        let _first = limiter.try_acquire(ip("2001:db8::1")).unwrap();
        assert!(limiter.try_acquire(ip("2001:db8::ffff:1")).is_none());
        assert!(limiter.try_acquire(ip("2001:db8:0:1::1")).is_some());
    }
}
