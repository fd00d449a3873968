//! Small building blocks without knowledge of the protocol: clock, cancellation, task spawning, sharded counters.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod hash;
pub(crate) mod network;
pub(crate) mod option_cell;
pub(crate) mod percent;
pub(crate) mod poll_watch;
pub(crate) mod segments;
pub(crate) mod sharded;
pub(crate) mod similar;
pub(crate) mod spawn;
pub(crate) mod stored_json;

/// Locks a mutex, ignoring poison.
///
/// Critical sections in this crate are a few lines that leave the data consistent, so a panic inside one (an allocation
/// failure) must not fail every later request.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
