//! A stream of messages to one reader: a bounded log that can be read again from the middle.
//!
//! All messages to clients go through one: the response stream of a POST, the standalone stream of a session, the output of a
//! stdio process. A stream does not know HTTP, SSE or the meaning of its messages. The writer chooses what happens when it is
//! full: [`Stream::hint`] drops the message, [`Stream::send`] waits, [`Stream::push`] exceeds the capacity, for the one message
//! that must never be lost.

mod reader;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use toolgate_wire::RequestId;

pub(crate) use reader::{ReadResult, Reader};

use crate::util::lock;

/// How much a stream holds for a slow reader, and for one that resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { messages: 256, bytes: 1 << 20 }
    }
}

/// A message of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamMessage {
    /// The number of the message in its stream, from 1. 0 is the position before the first message.
    seq: u64,
    pub(crate) data: Bytes,
    /// The number after which a reader can resume: `seq`, or the number in an external log. `None` if the message is not in that
    /// log.
    pub(crate) resume_number: Option<NonZeroU64>,
    /// Whether it may be dropped.
    pub(crate) is_hint: bool,
}

/// Error: the reader is gone and will not come back.
#[derive(Debug)]
pub(crate) struct ReaderGone;

/// A bounded stream of messages to one reader at a time.
#[derive(Debug)]
pub(crate) struct Stream {
    inner: Mutex<Inner>,
    /// Whether the call that writes the stream continues when its reader leaves.
    outlives_reader: AtomicBool,
    /// Notified when there is room again or the reader leaves.
    room_available: Notify,
}

#[derive(Debug)]
struct Inner {
    capacity: Capacity,
    /// Oldest first: messages that were read and may be requested again, then those not yet read.
    log: VecDeque<StreamMessage>,
    log_bytes: usize,
    /// The part of `log_bytes` that is not yet read.
    unread_bytes: usize,
    /// The number of the next message that is written.
    next_seq: u64,
    /// The number of the next message that is read.
    next_read_seq: u64,
    /// Whether messages stay in the log after they were read, so that a reader can resume.
    is_resumable: bool,
    /// Whether the last message was written.
    is_finished: bool,
    /// Set if the present reader must disconnect, and resume after this time.
    retry_after: Option<Duration>,
    /// The number of the latest reader. Only this one reads.
    reader_number: u64,
    /// Whether the latest reader is attached.
    has_reader: bool,
    /// Whether there is no reader and none will come back.
    is_abandoned: bool,
    /// The resume number of the last message that was read and has one. Before the first, the start position.
    last_read_number: u64,
    /// Whether resume numbers come from an external log, so that messages that are not in it have none.
    has_external_numbers: bool,
    /// The requests whose responses are written here. Recorded only if another node may have to respond to them.
    request_ids: Vec<RequestId>,
    waker: Option<Waker>,
}

impl Stream {
    pub(crate) fn new(capacity: Capacity) -> Arc<Stream> {
        Arc::new(Stream {
            inner: Mutex::new(Inner {
                capacity,
                log: VecDeque::new(),
                log_bytes: 0,
                unread_bytes: 0,
                next_seq: 1,
                next_read_seq: 1,
                is_resumable: false,
                is_finished: false,
                retry_after: None,
                reader_number: 0,
                has_reader: false,
                is_abandoned: false,
                last_read_number: 0,
                has_external_numbers: false,
                request_ids: Vec::new(),
                waker: None,
            }),
            outlives_reader: AtomicBool::new(false),
            room_available: Notify::new(),
        })
    }

    /// Keeps messages after they were read, so that a reader can resume.
    pub(crate) fn make_resumable(&self) {
        self.lock().is_resumable = true;
        self.set_outlives_reader();
    }

    /// Lets the call that writes the stream go on when its reader leaves.
    pub(crate) fn set_outlives_reader(&self) {
        self.outlives_reader.store(true, Ordering::Relaxed);
    }

    pub(crate) fn outlives_reader(&self) -> bool {
        self.outlives_reader.load(Ordering::Relaxed)
    }

    /// Takes the resume numbers from an external log. The stream starts after this number.
    pub(crate) fn start_after(&self, number: u64) {
        let mut inner = self.lock();
        inner.has_external_numbers = true;
        inner.last_read_number = number;
    }

    /// Adds a message if there is room. Returns whether there was.
    pub(crate) fn hint(&self, data: Bytes) -> bool {
        let mut inner = self.lock();
        if inner.is_abandoned || inner.is_finished || !inner.has_room() {
            return false;
        }
        let number = inner.next_own_number();
        inner.add(data, number, true);
        true
    }

    /// Waits for room and adds a message.
    ///
    /// Cancel safe: yes, if it is dropped while waiting, nothing was added.
    pub(crate) async fn send(&self, data: Bytes) -> Result<(), ReaderGone> {
        self.add(data, Inner::next_own_number).await
    }

    /// Waits for room and adds a message with its number in an external log, if it has one.
    ///
    /// Cancel safe: yes, if it is dropped while waiting, nothing was added.
    pub(crate) async fn send_numbered(&self, data: Bytes, number: Option<u64>) -> Result<(), ReaderGone> {
        self.add(data, |_| number.and_then(NonZeroU64::new)).await
    }

    async fn add(
        &self,
        data: Bytes,
        number: impl FnOnce(&Inner) -> Option<NonZeroU64>,
    ) -> Result<(), ReaderGone> {
        loop {
            // Created before the check, so that room made in between is not missed.
            let room = self.room_available.notified();
            {
                let mut inner = self.lock();
                if inner.is_abandoned {
                    return Err(ReaderGone);
                }
                if inner.has_room() {
                    let number = number(&inner);
                    inner.add(data, number, false);
                    return Ok(());
                }
            }
            room.await;
        }
    }

    /// Whether there is room for one more message.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().has_room()
    }

    /// Whether there is no reader and none will come back.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// Waits until there is room for one more message, or the reader is gone.
    ///
    /// Cancel safe: yes, it changes nothing.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let room = self.room_available.notified();
            {
                let inner = self.lock();
                if inner.is_abandoned || inner.has_room() {
                    return;
                }
            }
            room.await;
        }
    }

    /// Adds a message even if the stream is full. Only for the last message of a request: their number is limited by the number of
    /// requests.
    pub(crate) fn push(&self, data: Bytes) {
        let mut inner = self.lock();
        if !inner.is_abandoned {
            let number = inner.next_own_number();
            inner.add(data, number, false);
        }
    }

    /// Adds the last message and finishes the stream, atomically for readers.
    pub(crate) fn finish_with(&self, last: Option<Bytes>) {
        let mut inner = self.lock();
        inner.is_finished = true;
        if let Some(data) = last.filter(|_| !inner.is_abandoned) {
            let number = inner.next_own_number();
            inner.add(data, number, false);
        }
        inner.wake();
    }

    /// Detaches the present reader permanently, because another one reads the messages.
    pub(crate) fn detach_reader(&self) {
        let mut inner = self.lock();
        inner.reader_number += 1;
        inner.has_reader = false;
        inner.is_abandoned = true;
        inner.wake();
        drop(inner);
        self.room_available.notify_waiters();
    }

    /// Adds a request whose response is written here.
    pub(crate) fn add_request_id(&self, id: &RequestId) {
        self.lock().request_ids.push(id.clone());
    }

    /// The requests whose responses are written here.
    pub(crate) fn request_ids(&self) -> Vec<RequestId> {
        self.lock().request_ids.clone()
    }

    /// The resume number of the last message that was read. `None` if all were read.
    pub(crate) fn resume_position(&self) -> Option<u64> {
        let inner = self.lock();
        (inner.next_read_seq < inner.next_seq).then_some(inner.last_read_number)
    }

    /// Finishes the stream: the reader ends when it has read the rest.
    pub(crate) fn finish(&self) {
        let mut inner = self.lock();
        inner.is_finished = true;
        inner.wake();
    }

    /// Total length of the messages in the log.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().log_bytes
    }

    /// Whether a reader is attached.
    pub(crate) fn has_reader(&self) -> bool {
        self.lock().has_reader
    }

    /// Whether the last message was written.
    pub(crate) fn is_finished(&self) -> bool {
        self.lock().is_finished
    }

    /// Disconnects the present reader, which may resume after `retry`.
    pub(crate) fn disconnect_reader(&self, retry: Duration) {
        let mut inner = self.lock();
        inner.retry_after = Some(retry);
        inner.wake();
    }

    /// Whether the reader has something to do: read a message, disconnect, or end.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().is_ready()
    }

    /// Like [`Stream::is_ready`]. Wakes the task when it becomes true.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.is_ready() {
            return Poll::Ready(());
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Attaches a reader that starts after message `seq`. An earlier reader ends. Returns `None` if that message is not in the log
    /// any more, or was never written.
    pub(crate) fn attach(self: &Arc<Self>, seq: u64) -> Option<Reader> {
        let mut inner = self.lock();
        let oldest = inner.log.front().map_or(inner.next_seq, |event| event.seq);
        if seq >= inner.next_seq || seq + 1 < oldest {
            return None;
        }
        inner.next_read_seq = seq + 1;
        inner.unread_bytes =
            inner.log.iter().filter(|event| event.seq > seq).map(|event| event.data.len()).sum();
        inner.reader_number += 1;
        inner.has_reader = true;
        inner.retry_after = None;
        inner.is_abandoned = false;
        inner.wake();
        Some(Reader { number: inner.reader_number, stream: Arc::clone(self) })
    }

    /// Attaches a reader that starts where the last one stopped.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        let mut inner = self.lock();
        inner.reader_number += 1;
        inner.has_reader = true;
        inner.is_abandoned = false;
        inner.wake();
        Reader { number: inner.reader_number, stream: Arc::clone(self) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Inner {
    /// The resume number of the next message, unless numbers come from an external log.
    fn next_own_number(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.next_seq).filter(|_| !self.has_external_numbers)
    }

    fn is_ready(&self) -> bool {
        self.next_read_seq < self.next_seq || self.retry_after.is_some() || self.is_finished
    }

    fn has_room(&self) -> bool {
        let unread = self.next_seq - self.next_read_seq;
        unread < self.capacity.messages as u64 && self.unread_bytes < self.capacity.bytes
    }

    fn add(&mut self, data: Bytes, number: Option<NonZeroU64>, is_hint: bool) {
        self.log_bytes += data.len();
        self.unread_bytes += data.len();
        if self.log.capacity() == 0 {
            // Most streams never hold more than one message.
            self.log.reserve_exact(1);
        }
        self.log.push_back(StreamMessage { seq: self.next_seq, data, resume_number: number, is_hint });
        self.next_seq += 1;
        self.evict();
        self.wake();
    }

    /// Removes messages that were read; in a resumable stream, only those that exceed the capacity.
    fn evict(&mut self) {
        while let Some(oldest) = self.log.front() {
            let over = self.log.len() > self.capacity.messages || self.log_bytes > self.capacity.bytes;
            if oldest.seq >= self.next_read_seq || (self.is_resumable && !over) {
                break;
            }
            self.log_bytes -= oldest.data.len();
            self.log.pop_front();
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
