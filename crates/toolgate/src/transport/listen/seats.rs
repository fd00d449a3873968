//! Counts connections, total and per address, and refuses those over the limit.
//!
//! The lock is taken at accept and at close only. The map holds addresses with an open connection and
//! no others, so it is bounded by the total.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The seats of one listener.
pub(super) struct Seats {
    max_total: usize,
    max_each: usize,
    taken: Arc<Taken>,
}

/// One taken seat, given back when dropped.
pub(super) struct Seat {
    network: IpAddr,
    taken: Arc<Taken>,
}

#[derive(Default)]
struct Taken(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    total: usize,
    /// No entry is ever zero.
    each: HashMap<IpAddr, usize>,
}

impl Seats {
    pub(super) fn new(max_total: usize, max_each: usize) -> Self {
        Self { max_total, max_each, taken: Arc::default() }
    }

    /// A seat for a connection from this address, unless there is none left.
    pub(super) fn take(&self, address: IpAddr) -> Option<Seat> {
        let network = network(address);
        let mut counts = self.taken.lock();
        let each = counts.each.get(&network).copied().unwrap_or(0);
        if counts.total >= self.max_total || each >= self.max_each {
            return None;
        }
        counts.total += 1;
        counts.each.insert(network, each + 1);
        Some(Seat { network, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.taken.lock();
        counts.total -= 1;
        match counts.each.get_mut(&self.network) {
            Some(each) if *each > 1 => *each -= 1,
            _ => {
                counts.each.remove(&self.network);
            }
        }
    }
}

impl Taken {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        // The counts are whole at every point where a panic could happen, so poison says nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who counts as one: an IPv4 address, or the /64 network one IPv6 customer commonly has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn both_limits_hold_and_seats_come_back() {
        let seats = Seats::new(3, 2);
        let first = seats.take(ip("10.0.0.1")).unwrap();
        let _second = seats.take(ip("::ffff:10.0.0.1")).unwrap();
        assert!(seats.take(ip("10.0.0.1")).is_none());
        let _third = seats.take(ip("2001:db8::1")).unwrap();
        assert!(seats.take(ip("10.0.0.2")).is_none());
        drop(first);
        assert!(seats.take(ip("10.0.0.1")).is_some());
        assert_eq!(seats.taken.lock().each.len(), 2);
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let seats = Seats::new(9, 1);
        let _first = seats.take(ip("2001:db8::1")).unwrap();
        assert!(seats.take(ip("2001:db8::ffff:1")).is_none());
        assert!(seats.take(ip("2001:db8:0:1::1")).is_some());
    }
}
