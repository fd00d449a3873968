//! Small building blocks without knowledge of the protocol: clock, cancellation, task spawning, sharded counters.

pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod name_map;
pub(crate) mod option_cell;
pub(crate) mod percent;
pub(crate) mod segments;
pub(crate) mod sharded;
pub(crate) mod spawn;
pub(crate) mod stored_json;

/// Locks a mutex, ignoring poisoning: no invariant spans a panic here.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
