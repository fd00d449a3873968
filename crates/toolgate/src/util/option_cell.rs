//! An optional value that is read on every request and rarely set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

/// An `ArcSwapOption` with a flag in front, so that reading an empty cell is one atomic load.
#[derive(Debug)]
pub(crate) struct OptionCell<T> {
    is_set: AtomicBool,
    value: ArcSwapOption<T>,
}

impl<T> OptionCell<T> {
    pub(crate) fn new(value: Option<T>) -> OptionCell<T> {
        OptionCell { is_set: AtomicBool::new(value.is_some()), value: ArcSwapOption::from_pointee(value) }
    }

    /// Returns the current value, or `None` if nothing was ever set.
    #[inline]
    pub(crate) fn load(&self) -> Option<Arc<T>> {
        if self.is_set.load(Ordering::Acquire) { self.value.load_full() } else { None }
    }

    /// Replaces the value. Requests that start afterwards see it.
    pub(crate) fn store(&self, value: T) {
        self.value.store(Some(Arc::new(value)));
        self.is_set.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stored_value_is_loaded() {
        let cell = OptionCell::new(None);
        assert_eq!(cell.load(), None);
        cell.store(1);
        cell.store(2);
        assert_eq!(cell.load().as_deref(), Some(&2));
        assert_eq!(OptionCell::new(Some(3)).load().as_deref(), Some(&3));
    }
}
