//! What is hardly ever there, and looked for with every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

/// Something that may be put down while the house runs. Finding that nothing was is a look at a flag.
#[derive(Debug)]
pub(crate) struct OptionCell<T> {
    is_set: AtomicBool,
    value: ArcSwapOption<T>,
}

impl<T> OptionCell<T> {
    pub(crate) fn new(value: Option<T>) -> OptionCell<T> {
        OptionCell { is_set: AtomicBool::new(value.is_some()), value: ArcSwapOption::from_pointee(value) }
    }

    #[inline]
    pub(crate) fn load(&self) -> Option<Arc<T>> {
        if self.is_set.load(Ordering::Acquire) { self.value.load_full() } else { None }
    }

    /// Whoever looks from now on finds this.
    pub(crate) fn store(&self, value: T) {
        self.value.store(Some(Arc::new(value)));
        self.is_set.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_was_put_down_is_found() {
        let seldom = OptionCell::new(None);
        assert_eq!(seldom.load(), None);
        seldom.store(1);
        seldom.store(2);
        assert_eq!(seldom.load().as_deref(), Some(&2));
        assert_eq!(OptionCell::new(Some(3)).load().as_deref(), Some(&3));
    }
}
