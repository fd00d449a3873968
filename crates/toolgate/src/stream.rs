//! One line of messages to one reader: a bounded log that can be read again from the middle.
//!
//! Everything that goes to a client goes through here: the answer stream of one POST, the standing
//! stream of a session, the output of a stdio process. A stream knows nothing of HTTP, of events or of
//! what its messages mean. Who writes chooses what happens when it is full: [`Stream::hint`] drops,
//! [`Stream::send`] waits, [`Stream::push`] is for the one message that must never be lost.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use toolgate_wire::RequestId;

/// How much a stream holds for a reader that is behind, and for one that comes back.
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

/// A message and its place in its stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamMessage {
    /// Counts from 1. 0 is the place before the first message.
    seq: u64,
    pub(crate) data: Bytes,
    /// Under which number a reader can come back behind it: the place above, or one that a log elsewhere gave.
    pub(crate) resume_number: Option<NonZeroU64>,
    /// Nobody is worse off without it.
    pub(crate) is_hint: bool,
}

/// The reader is gone and will not come back.
#[derive(Debug)]
pub(crate) struct ReaderGone;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    inner: Mutex<Inner>,
    /// The work behind this stream goes on when its reader leaves.
    outlives_reader: AtomicBool,
    /// Woken when room appears or the reader leaves.
    room_available: Notify,
}

#[derive(Debug)]
struct Inner {
    capacity: Capacity,
    /// Kept messages, oldest first: those not yet read, before them those that may be asked for again.
    log: VecDeque<StreamMessage>,
    log_bytes: usize,
    /// What the reader has not taken yet, of `log_bytes`.
    unread_bytes: usize,
    /// The next message gets this number.
    next_seq: u64,
    /// The reader wants this number next.
    next_read_seq: u64,
    /// Read messages stay in the log, so that a reader can come back.
    is_resumable: bool,
    /// Nothing more will come.
    is_finished: bool,
    /// The present reader is to leave and to come back after this time.
    retry_after: Option<Duration>,
    /// Each attached reader has a number; only the latest one reads.
    reader_number: u64,
    /// The latest reader is still there.
    has_reader: bool,
    /// Nobody reads, and nobody will come back.
    is_abandoned: bool,
    /// The number of the last message that was read and has one; before the first, where the stream began.
    last_read_number: u64,
    /// A log elsewhere gives the numbers: what is not in it has none.
    has_external_numbers: bool,
    /// Requests that are answered here, where somebody else may have to do so.
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

    /// Keeps messages that were read, so that a reader can come back for them.
    pub(crate) fn make_resumable(&self) {
        self.lock().is_resumable = true;
        self.set_outlives_reader();
    }

    /// The work behind this stream goes on when its reader leaves.
    pub(crate) fn set_outlives_reader(&self) {
        self.outlives_reader.store(true, Ordering::Relaxed);
    }

    pub(crate) fn outlives_reader(&self) -> bool {
        self.outlives_reader.load(Ordering::Relaxed)
    }

    /// Its numbers are those of a log elsewhere, and it begins behind this one.
    pub(crate) fn start_after(&self, number: u64) {
        let mut inner = self.lock();
        inner.has_external_numbers = true;
        inner.last_read_number = number;
    }

    /// Adds a message if there is room, and says whether there was.
    pub(crate) fn hint(&self, data: Bytes) -> bool {
        let mut inner = self.lock();
        if inner.is_abandoned || inner.is_finished || !inner.has_room() {
            return false;
        }
        let number = inner.next_own_number();
        inner.add(data, number, true);
        true
    }

    /// Adds a message, waiting for room.
    ///
    /// Cancel safe: yes, a dropped wait has added nothing.
    pub(crate) async fn send(&self, data: Bytes) -> Result<(), ReaderGone> {
        self.add(data, Inner::next_own_number).await
    }

    /// Adds a message that has a number elsewhere, or none, waiting for room.
    ///
    /// Cancel safe: yes, a dropped wait has added nothing.
    pub(crate) async fn send_numbered(&self, data: Bytes, number: Option<u64>) -> Result<(), ReaderGone> {
        self.add(data, |_| number.and_then(NonZeroU64::new)).await
    }

    async fn add(
        &self,
        data: Bytes,
        number: impl FnOnce(&Inner) -> Option<NonZeroU64>,
    ) -> Result<(), ReaderGone> {
        loop {
            // Created before the look, so that room made in between is not missed.
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

    /// Whether nobody reads any more, and nobody will.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// Waits until there is room for one more message, or nobody reads any more.
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

    /// Adds a message whether there is room or not. For the last message of a request only: their number
    /// is bounded by the number of requests.
    pub(crate) fn push(&self, data: Bytes) {
        let mut inner = self.lock();
        if !inner.is_abandoned {
            let number = inner.next_own_number();
            inner.add(data, number, false);
        }
    }

    /// Adds the last message, and nothing more will come: nobody sees the one without the other.
    pub(crate) fn finish_with(&self, last: Option<Bytes>) {
        let mut inner = self.lock();
        inner.is_finished = true;
        if let Some(data) = last.filter(|_| !inner.is_abandoned) {
            let number = inner.next_own_number();
            inner.add(data, number, false);
        }
        inner.wake();
    }

    /// Sends the present reader away for good: somebody else reads what this one would have.
    pub(crate) fn detach_reader(&self) {
        let mut inner = self.lock();
        inner.reader_number += 1;
        inner.has_reader = false;
        inner.is_abandoned = true;
        inner.wake();
        drop(inner);
        self.room_available.notify_waiters();
    }

    /// Notes a request that is answered here.
    pub(crate) fn add_request_id(&self, id: &RequestId) {
        self.lock().request_ids.push(id.clone());
    }

    /// The requests that are answered here.
    pub(crate) fn request_ids(&self) -> Vec<RequestId> {
        self.lock().request_ids.clone()
    }

    /// The number of the last message that was read, if there are others that were not.
    pub(crate) fn resume_position(&self) -> Option<u64> {
        let inner = self.lock();
        (inner.next_read_seq < inner.next_seq).then_some(inner.last_read_number)
    }

    /// Nothing more will come; the reader ends when it has read the rest.
    pub(crate) fn finish(&self) {
        let mut inner = self.lock();
        inner.is_finished = true;
        inner.wake();
    }

    /// How many bytes it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().log_bytes
    }

    /// Whether somebody reads it now.
    pub(crate) fn has_reader(&self) -> bool {
        self.lock().has_reader
    }

    /// Whether nothing more will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.lock().is_finished
    }

    /// Sends the present reader away, to come back after `retry`.
    pub(crate) fn disconnect_reader(&self, retry: Duration) {
        let mut inner = self.lock();
        inner.retry_after = Some(retry);
        inner.wake();
    }

    /// Whether something waits to be read, or the reader is to leave.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().is_ready()
    }

    /// The same. Wakes the task when that changes.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.is_ready() {
            return Poll::Ready(());
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads from the message after `seq`. An earlier reader ends. None if that place is not known.
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

    /// Reads from where the last reader stopped.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        let mut inner = self.lock();
        inner.reader_number += 1;
        inner.has_reader = true;
        inner.is_abandoned = false;
        inner.wake();
        Reader { number: inner.reader_number, stream: Arc::clone(self) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding it could only come from an allocation failure: the data is still whole.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Inner {
    /// The number of a message that has none elsewhere.
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
            // Most streams never hold more than one.
            self.log.reserve_exact(1);
        }
        self.log.push_back(StreamMessage { seq: self.next_seq, data, resume_number: number, is_hint });
        self.next_seq += 1;
        self.evict();
        self.wake();
    }

    /// Forgets what was read, or, where it is kept, what was read and exceeds the capacity.
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

/// The reading end. Dropping it tells writers that nobody listens, unless the log is kept.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: Arc<Stream>,
    number: u64,
}

/// What a reader finds.
#[derive(Debug)]
pub(crate) enum ReadResult {
    Message(StreamMessage),
    /// Leave, and come back after this time.
    Disconnect(Duration),
    /// Nothing more will come, or another reader has taken over.
    End,
}

impl Reader {
    /// The next message.
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

    /// Whether everything was read, and nothing more will come.
    pub(crate) fn is_at_end(&self) -> bool {
        let inner = self.stream.lock();
        inner.is_finished && inner.next_read_seq == inner.next_seq
    }

    /// The next message, if it is there already.
    pub(crate) fn try_next(&mut self) -> Option<StreamMessage> {
        {
            // A cut is for whoever waits, and must not be taken here.
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

    /// The next message.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    async fn text(reader: &mut Reader) -> String {
        match reader.next().await {
            ReadResult::Message(event) => String::from_utf8(event.data.to_vec()).unwrap(),
            other => format!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn messages_come_in_order_and_the_end_comes_last() {
        let stream = Stream::new(Capacity::default());
        stream.push(message("a"));
        stream.push(message("b"));
        stream.finish();
        let mut reader = stream.reader();
        assert_eq!(text(&mut reader).await, "a");
        assert_eq!(text(&mut reader).await, "b");
        assert_eq!(text(&mut reader).await, "End");
    }

    #[tokio::test]
    async fn a_hint_is_dropped_when_full_and_a_push_is_not() {
        let stream = Stream::new(Capacity { messages: 1, bytes: 100 });
        assert!(stream.hint(message("a")));
        assert!(!stream.hint(message("lost")));
        stream.push(message("last"));
        let mut reader = stream.reader();
        assert_eq!(text(&mut reader).await, "a");
        assert_eq!(text(&mut reader).await, "last");
    }

    #[tokio::test]
    async fn send_waits_for_room() {
        let stream = Stream::new(Capacity { messages: 1, bytes: 100 });
        stream.push(message("a"));
        let mut reader = stream.reader();
        let sender = tokio::spawn({
            let stream = Arc::clone(&stream);
            async move { stream.send(message("b")).await.is_ok() }
        });
        tokio::task::yield_now().await;
        assert_eq!(text(&mut reader).await, "a");
        assert_eq!(text(&mut reader).await, "b");
        assert!(sender.await.unwrap());
    }

    #[tokio::test]
    async fn a_kept_stream_can_be_read_again_from_the_middle() {
        let stream = Stream::new(Capacity::default());
        stream.make_resumable();
        for text in ["a", "b", "c"] {
            stream.push(message(text));
        }
        let mut first = stream.reader();
        assert_eq!(text(&mut first).await, "a");
        assert_eq!(text(&mut first).await, "b");
        let mut second = stream.attach(1).unwrap();
        assert_eq!(text(&mut first).await, "End", "the earlier reader is over");
        assert_eq!(text(&mut second).await, "b");
        assert_eq!(text(&mut second).await, "c");
        assert!(stream.attach(9).is_none(), "a place that never was");
    }

    #[tokio::test]
    async fn what_was_evicted_cannot_be_asked_for() {
        let stream = Stream::new(Capacity { messages: 2, bytes: 100 });
        stream.make_resumable();
        let mut reader = stream.reader();
        for text in ["a", "b", "c", "d"] {
            stream.push(message(text));
            reader.next().await;
        }
        assert!(stream.attach(0).is_none());
        assert!(stream.attach(2).is_some());
    }

    #[tokio::test]
    async fn a_writer_learns_that_its_reader_left() {
        let stream = Stream::new(Capacity { messages: 1, bytes: 100 });
        drop(stream.reader());
        assert!(stream.send(message("a")).await.is_err());
        assert!(!stream.hint(message("a")));
    }

    #[tokio::test]
    async fn what_is_not_in_the_log_that_numbers_a_stream_has_no_number() {
        let stream = Stream::new(Capacity::default());
        stream.start_after(70);
        let mut reader = stream.reader();
        assert!(stream.hint(message("a hint")));
        assert_eq!(stream.resume_position(), Some(70), "nothing was read, so it is where it began");
        stream.send_numbered(message("a change"), Some(71)).await.unwrap();
        stream.push(message("more"));
        let numbers = [reader.try_next(), reader.try_next()]
            .map(|event| event.unwrap().resume_number.map(NonZeroU64::get));
        assert_eq!(numbers, [None, Some(71)]);
        assert_eq!(stream.resume_position(), Some(71));
        assert_eq!(reader.try_next().unwrap().resume_number, None);
        assert_eq!(stream.resume_position(), None);
    }

    #[tokio::test]
    async fn looking_for_more_does_not_take_the_cut() {
        let stream = Stream::new(Capacity::default());
        stream.make_resumable();
        stream.push(message("a"));
        stream.disconnect_reader(Duration::from_millis(5));
        let mut reader = stream.reader();
        assert!(reader.try_next().is_some());
        assert!(reader.try_next().is_none());
        assert!(matches!(reader.next().await, ReadResult::Disconnect(_)));
    }

    #[tokio::test]
    async fn a_cut_reader_gets_what_was_written_before_it() {
        let stream = Stream::new(Capacity::default());
        stream.make_resumable();
        stream.push(message("a"));
        stream.disconnect_reader(Duration::from_millis(5));
        let mut reader = stream.reader();
        assert_eq!(text(&mut reader).await, "a");
        assert!(matches!(reader.next().await, ReadResult::Disconnect(_)));
    }
}
