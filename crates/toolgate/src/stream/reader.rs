//! The reading end of a stream.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Stream, StreamMessage};

/// The reading end of a stream. Dropping it marks the stream as abandoned, unless it is resumable.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(super) stream: Arc<Stream>,
    pub(super) number: u64,
}

/// The result of reading a stream.
#[derive(Debug)]
pub(crate) enum ReadResult {
    Message(StreamMessage),
    /// The reader must disconnect, and may resume after this time.
    Disconnect(Duration),
    /// There are no more messages, or another reader has replaced this one.
    End,
}

impl Reader {
    /// Polls for the next message.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<ReadResult> {
        let mut inner = self.stream.lock();
        if inner.reader_number != self.number {
            return Poll::Ready(ReadResult::End);
        }
        if inner.next_read_seq == inner.next_seq
            && let Some(retry) = inner.retry_after.take()
        {
            return Poll::Ready(ReadResult::Disconnect(retry));
        }
        if inner.next_read_seq < inner.next_seq {
            let first = inner.log.front().map_or(inner.next_seq, |event| event.seq);
            let index = usize::try_from(inner.next_read_seq.saturating_sub(first)).unwrap_or(usize::MAX);
            let event = if inner.is_resumable || index != 0 {
                inner.log.get(index).cloned()
            } else {
                inner.log.pop_front()
            };
            if let Some(event) = event {
                if !inner.is_resumable && index == 0 {
                    inner.log_bytes -= event.data.len();
                }
                inner.unread_bytes = inner.unread_bytes.saturating_sub(event.data.len());
                inner.next_read_seq = event.seq + 1;
                inner.last_read_number = event.resume_number.map_or(inner.last_read_number, NonZeroU64::get);
                drop(inner);
                self.stream.room_available.notify_waiters();
                return Poll::Ready(ReadResult::Message(event));
            }
        }
        if inner.is_finished {
            return Poll::Ready(ReadResult::End);
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the last message was read.
    pub(crate) fn is_at_end(&self) -> bool {
        let inner = self.stream.lock();
        inner.is_finished && inner.next_read_seq == inner.next_seq
    }

    /// Returns the next message if it is available without waiting.
    pub(crate) fn try_next(&mut self) -> Option<StreamMessage> {
        {
            // A disconnect must be left for `poll_next`.
            let inner = self.stream.lock();
            if inner.next_read_seq >= inner.next_seq {
                return None;
            }
        }
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ReadResult::Message(event)) => Some(event),
            _ => None,
        }
    }

    /// Waits for the next message.
    ///
    /// Cancel safe: yes, a message is taken only when it is returned.
    pub(crate) async fn next(&mut self) -> ReadResult {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.stream.lock();
        if inner.reader_number != self.number {
            return;
        }
        inner.has_reader = false;
        if !inner.is_resumable {
            inner.is_abandoned = true;
            drop(inner);
            self.stream.room_available.notify_waiters();
        }
    }
}
