//! Limits how many calls of one tool run at a time, and how many wait for their turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// A semaphore with a bounded number of waiters. When the queue is full, a further call is rejected at once.
pub(crate) struct CallQueue {
    permits: Semaphore,
    n_waiting: AtomicUsize,
    max_waiting: usize,
}

impl CallQueue {
    /// Lets `concurrency` calls run (at least one) while `max_waiting` others wait.
    pub(crate) fn new(concurrency: usize, max_waiting: usize) -> CallQueue {
        CallQueue { permits: Semaphore::new(concurrency.max(1)), n_waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Waits for a permit. Returns `None` if the queue is full.
    ///
    /// Cancel safe: yes, because a guard leaves the queue when the future is dropped.
    pub(crate) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Some(permit);
        }
        let _slot = WaitingSlot::try_new(&self.n_waiting, self.max_waiting)?;
        self.permits.acquire().await.ok()
    }
}

/// Counts one waiting call until it is dropped.
struct WaitingSlot<'a>(&'a AtomicUsize);

impl<'a> WaitingSlot<'a> {
    fn try_new(count: &'a AtomicUsize, max: usize) -> Option<WaitingSlot<'a>> {
        let next = |current: usize| (current < max).then_some(current + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|_| WaitingSlot(count))
    }
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rejects_calls_beyond_the_waiting_limit() {
        let queue = CallQueue::new(1, 1);
        let running = queue.acquire().await.unwrap();
        let mut waiting = std::pin::pin!(queue.acquire());
        assert!(poll_once(waiting.as_mut()).is_pending());
        assert!(queue.acquire().await.is_none(), "one runs and one waits");
        drop(running);
        assert!(waiting.await.is_some());
        assert_eq!(queue.n_waiting.load(Ordering::Relaxed), 0);
    }

    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }
}
