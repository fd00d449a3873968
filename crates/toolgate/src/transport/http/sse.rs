//! A stream of messages as server-sent events.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Sleep;

use super::end_stream;
use super::legacy_sse::LegacyConnectionGuard;
use crate::protocol::{Reply, event_id};
use crate::request::BoxFuture;
use crate::stream::{ReadResult, Reader, Stream, StreamMessage};
use crate::util::clock::timer_now;

/// Several small events travel in one piece, up to this size.
const MAX_CHUNK_BYTES: usize = 16 << 10;
/// After how long a client comes back when its connection breaks.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The body of a stream: reads messages, and drives the call that writes them.
pub(super) struct SseBody {
    reader: Reader,
    /// Comes first, once.
    preamble: Option<Bytes>,
    /// The number of the stream in its session, if it can be resumed.
    stream_number: Option<u64>,
    /// Writes to the stream while it is read.
    call: Option<BoxFuture<'static, Reply>>,
    /// Where the call's answer goes. None: there will be none, the call only feeds.
    out: Option<Arc<Stream>>,
    keep_alive: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The call only fed, and has ended.
    is_feed_done: bool,
    is_ended: bool,
    /// Held while the stream lives.
    _guard: Option<LegacyConnectionGuard>,
}

impl std::fmt::Debug for SseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SseBody").field("number", &self.stream_number).finish_non_exhaustive()
    }
}

impl SseBody {
    pub(super) fn new(reader: Reader, keep_alive: Duration) -> SseBody {
        SseBody {
            reader,
            preamble: None,
            stream_number: None,
            call: None,
            out: None,
            keep_alive,
            sleep: None,
            is_feed_done: false,
            is_ended: false,
            _guard: None,
        }
    }

    /// Events carry ids, so that the stream can be resumed.
    pub(super) fn with_stream_number(mut self, number: u64) -> SseBody {
        self.stream_number = Some(number);
        self
    }

    /// Begins with an event that has an id and no data: from then on the connection may break.
    pub(super) fn with_priming_event(mut self) -> SseBody {
        let id = event_id(self.stream_number.unwrap_or_default(), 0);
        self.preamble = Some(format!("id: {id}\nretry: {}\ndata:\n\n", RETRY_DELAY.as_millis()).into());
        self
    }

    /// Begins with these bytes.
    pub(super) fn with_preamble(mut self, bytes: Bytes) -> SseBody {
        self.preamble = Some(bytes);
        self
    }

    /// Drives a call whose answer is the last event.
    pub(super) fn with_call(mut self, call: BoxFuture<'static, Reply>, out: Arc<Stream>) -> SseBody {
        self.call = Some(call);
        self.out = Some(out);
        self
    }

    /// Drives something that writes events until it ends, and the stream with it.
    pub(super) fn with_feed(mut self, feed: BoxFuture<'static, Reply>) -> SseBody {
        self.call = Some(feed);
        self
    }

    /// Keeps a seat as long as the stream lives.
    pub(super) fn with_guard(mut self, seat: LegacyConnectionGuard) -> SseBody {
        self._guard = Some(seat);
        self
    }

    /// The next piece of the stream.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(opening) = self.preamble.take() {
            return Poll::Ready(Some(opening));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        loop {
            match self.reader.poll_next(cx) {
                Poll::Ready(ReadResult::Message(first)) => {
                    self.sleep = None;
                    return Poll::Ready(Some(self.collect_chunk(&first)));
                }
                Poll::Ready(ReadResult::End) => return Poll::Ready(None),
                Poll::Ready(ReadResult::Disconnect(retry)) if self.stream_number.is_some() => {
                    self.is_ended = true;
                    return Poll::Ready(Some(format!("retry: {}\n\n", retry.as_millis()).into()));
                }
                // A client that cannot come back is not sent away.
                Poll::Ready(ReadResult::Disconnect(_)) => continue,
                Poll::Pending => {}
            }
            match self.call.as_mut().map(|call| call.as_mut().poll(cx)) {
                Some(Poll::Ready(answer)) => {
                    self.call = None;
                    match &self.out {
                        Some(out) => end_stream(out, answer),
                        // What was written since the reader was looked at is still to be read.
                        None => self.is_feed_done = true,
                    }
                }
                None if self.is_feed_done => {
                    self.is_ended = true;
                    return Poll::Ready(None);
                }
                Some(Poll::Pending) | None => return self.poll_keep_alive(cx),
            }
        }
    }

    fn collect_chunk(&mut self, first: &StreamMessage) -> Bytes {
        let mut chunk = BytesMut::with_capacity(first.data.len() + 64);
        write_event(&mut chunk, self.event_position(first), &first.data);
        while chunk.len() < MAX_CHUNK_BYTES {
            let Some(event) = self.reader.try_next() else { break };
            write_event(&mut chunk, self.event_position(&event), &event.data);
        }
        chunk.freeze()
    }

    /// Where a reader can come back behind this event, if it can.
    fn event_position(&self, event: &StreamMessage) -> Option<(u64, u64)> {
        self.stream_number.zip(event.resume_number.map(NonZeroU64::get))
    }

    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let heartbeat = self.keep_alive;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(heartbeat)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        sleep.as_mut().reset(timer_now() + heartbeat);
        Poll::Ready(Some(Bytes::from_static(b": still here\n\n")))
    }
}

/// Says when to come back, and nothing else.
pub(super) fn retry_event() -> Bytes {
    format!("retry: {}\n\n", RETRY_DELAY.as_millis()).into()
}

/// One event.
pub(super) fn encode_event(place: Option<(u64, u64)>, data: &Bytes) -> Bytes {
    let mut chunk = BytesMut::with_capacity(data.len() + 64);
    write_event(&mut chunk, place, data);
    chunk.freeze()
}

/// A message is one line of JSON, so an event has one line of data.
fn write_event(chunk: &mut BytesMut, place: Option<(u64, u64)>, data: &[u8]) {
    chunk.put_slice(b"event: message\n");
    if let Some((number, seq)) = place {
        chunk.put_slice(b"id: ");
        chunk.put_slice(event_id(number, seq).as_bytes());
        chunk.put_u8(b'\n');
    }
    chunk.put_slice(b"data: ");
    chunk.put_slice(data);
    chunk.put_slice(b"\n\n");
}
