//! Cancellation of one call.
//!
//! Every call has a [`Cancel`], and almost none is ever waited for: it is one allocation, a flag, and a list of waiters
//! that stays empty. Unlike `tokio_util`'s `CancellationToken` it has no parents and no children, which makes it cheap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::lock;

/// One-shot cancellation flag, shared by clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_cancelled: AtomicBool,
    /// Set before the first wait. Most calls end without one, and then cancelling wakes nothing.
    has_waiters: AtomicBool,
    notify: Notify,
    /// The task that called [`Cancel::poll_cancelled`] last.
    waker: Mutex<Option<Waker>>,
}

/// Cancels when dropped.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Cancel);

impl Cancel {
    pub(crate) fn new() -> Cancel {
        Cancel::default()
    }

    /// Sets the flag and wakes all waiters.
    pub(crate) fn cancel(&self) {
        // This sets `is_cancelled` and then reads `has_waiters`; a waiter sets `has_waiters` and then reads
        // `is_cancelled`. So at least one of the two sees the other.
        let is_first = !self.0.is_cancelled.swap(true, Ordering::SeqCst);
        if is_first && self.0.has_waiters.load(Ordering::SeqCst) {
            self.0.notify.notify_waiters();
            let waker = lock(&self.0.waker).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Waits until it is cancelled.
    ///
    /// Cancel safe: yes, it changes nothing.
    pub(crate) async fn cancelled(&self) {
        // Created before the flag is read, so that a later `cancel` wakes it.
        let notified = self.0.notify.notified();
        self.0.has_waiters.store(true, Ordering::SeqCst);
        if !self.0.is_cancelled.load(Ordering::SeqCst) {
            notified.await;
        }
    }

    /// Polls for cancellation without a future, for the one task that drives the call: a second task that polls replaces
    /// the waker of the first.
    pub(crate) fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut waker = lock(&self.0.waker);
            match &mut *waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
        }
        self.0.has_waiters.store(true, Ordering::SeqCst);
        if self.0.is_cancelled.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Drops the waker of [`Cancel::poll_cancelled`]: the call has ended, and cancelling it must not wake its task.
    pub(crate) fn clear_waker(&self) {
        if self.0.has_waiters.load(Ordering::Relaxed) {
            lock(&self.0.waker).take();
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
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn all_waiters_are_woken() {
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
        for waiter in waiting {
            tokio::time::timeout(Duration::from_secs(5), waiter).await.unwrap().unwrap();
        }
        cancel.cancelled().await;
        assert!(cancel.is_cancelled());
    }

    /// A cancellation at the moment at which a waiter starts must not be missed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_cancellation_is_missed() {
        for _ in 0..2000 {
            let cancel = Cancel::new();
            let (awaited, polled) = (cancel.clone(), cancel.clone());
            let waiting = tokio::spawn(async move { awaited.cancelled().await });
            let polling = tokio::spawn(poll_fn(move |cx| polled.poll_cancelled(cx)));
            tokio::spawn(async move { cancel.cancel() });
            for waiter in [waiting, polling] {
                tokio::time::timeout(Duration::from_secs(5), waiter).await.unwrap().unwrap();
            }
        }
    }
}
