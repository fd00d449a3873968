//! The table of requests in flight, by which `notifications/cancelled` finds the call to cancel.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use toolgate_wire::RequestId;

use crate::util::cancel::Cancel;
use crate::util::hash::SeededHashBuilder;
use crate::util::lock;

/// Requests in flight of one session or connection. Clones share the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<InFlightTable>>);

#[derive(Debug, Default)]
struct InFlightTable {
    /// Tells two requests with the same id apart.
    last_serial: u64,
    calls: HashMap<RequestId, (u64, Cancel), SeededHashBuilder>,
    /// Requests whose id was already in flight. The protocol does not allow this.
    duplicates: Vec<(RequestId, u64, Cancel)>,
}

/// Removes a request from the table when dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    in_flight: InFlight,
    id: RequestId,
    serial: u64,
}

impl InFlight {
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        lock(&self.0).calls.contains_key(id)
    }

    pub(super) fn insert(&self, id: &RequestId, cancel: &Cancel) -> InFlightGuard {
        let mut table = lock(&self.0);
        table.last_serial += 1;
        let serial = table.last_serial;
        match table.calls.entry(id.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert((serial, cancel.clone()));
            }
            Entry::Occupied(_) => table.duplicates.push((id.clone(), serial, cancel.clone())),
        }
        InFlightGuard { in_flight: self.clone(), id: id.clone(), serial }
    }

    /// Cancels all requests with this id. Returns false if none is in flight.
    pub(super) fn cancel(&self, id: &RequestId) -> bool {
        let table = lock(&self.0);
        let first = table.calls.get(id).map(|(_, cancel)| cancel);
        let duplicates =
            table.duplicates.iter().filter(|(other, ..)| other == id).map(|(_, _, cancel)| cancel);
        let mut is_found = false;
        for cancel in first.into_iter().chain(duplicates) {
            cancel.cancel();
            is_found = true;
        }
        is_found
    }

    pub(super) fn cancel_all(&self) {
        let table = lock(&self.0);
        let duplicates = table.duplicates.iter().map(|(_, _, cancel)| cancel);
        for cancel in table.calls.values().map(|(_, cancel)| cancel).chain(duplicates) {
            cancel.cancel();
        }
    }

    pub(super) fn len(&self) -> usize {
        let table = lock(&self.0);
        table.calls.len() + table.duplicates.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut table = lock(&self.in_flight.0);
        if table.calls.get(&self.id).is_some_and(|(serial, _)| *serial == self.serial) {
            table.calls.remove(&self.id);
        } else {
            table.duplicates.retain(|(_, serial, _)| *serial != self.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_requests_with_the_same_id_are_cancelled_independently() {
        let calls = InFlight::default();
        let (first, second) = (Cancel::new(), Cancel::new());
        let id = RequestId::from(1);
        let guard = calls.insert(&id, &first);
        let _duplicate = calls.insert(&id, &second);
        drop(guard);
        assert!(calls.cancel(&id));
        assert!(!first.is_cancelled());
        assert!(second.is_cancelled(), "the remaining one can still be cancelled");
    }
}
