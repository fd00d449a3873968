//! A call that nobody waits for any more.
//!
//! Every call has one of these, and hardly any is ever waited for: it is one allocation, a flag, and a list of
//! waiters that stays empty. It knows no parents and no children, which is what makes it cheap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Falls once, and stays fallen. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_cancelled: AtomicBool,
    /// Somebody waits, or has waited: most calls end and nobody ever did.
    has_waiters: AtomicBool,
    notify: Notify,
}

/// Lets it fall when dropped.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Cancel);

impl Cancel {
    pub(crate) fn new() -> Cancel {
        Cancel::default()
    }

    /// Lets it fall.
    pub(crate) fn cancel(&self) {
        // Falling and looking for waiters here, waiting and looking for the fall there: one of the two sees the other.
        let is_first = !self.0.is_cancelled.swap(true, Ordering::SeqCst);
        if is_first && self.0.has_waiters.load(Ordering::SeqCst) {
            self.0.notify.notify_waiters();
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Waits until it falls.
    ///
    /// Cancel safe: yes.
    pub(crate) async fn cancelled(&self) {
        // Made before the look at the flag: whoever lets it fall after that look wakes this one.
        let woken = self.0.notify.notified();
        self.0.has_waiters.store(true, Ordering::SeqCst);
        if !self.0.is_cancelled.load(Ordering::SeqCst) {
            woken.await;
        }
    }

    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl CancelOnDrop {
    pub(crate) fn cancellation(&self) -> &Cancel {
        &self.0
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_woken_once_and_for_all() {
        let cancel = Cancel::new();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let cancel = cancel.clone();
                tokio::spawn(async move { cancel.cancelled().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!cancel.is_cancelled());
        drop(cancel.cancel_on_drop());
        for one in waiting {
            tokio::time::timeout(Duration::from_secs(5), one).await.unwrap().unwrap();
        }
        cancel.cancelled().await;
        assert!(cancel.is_cancelled());
    }

    /// Falling at the same moment as somebody begins to wait must not be missed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_cancellation_is_missed() {
        for _ in 0..2000 {
            let (cancel, other) = (Cancel::new(), Cancel::new());
            let (waits, falls) = (cancel.clone(), cancel);
            let waiting = tokio::spawn(async move { waits.cancelled().await });
            tokio::spawn(async move { falls.cancel() });
            tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
            drop(other);
        }
    }
}
