//! A stream of messages as server-sent events.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Sleep;

use super::legacy_sse::LegacyConnectionGuard;
use super::post::end_stream;
use crate::protocol::{Reply, event_id};
use crate::request::BoxFuture;
use crate::stream::{ReadResult, Reader, Stream, StreamMessage};
use crate::util::clock::timer_now;

/// Small events are sent in one chunk, up to this size.
const MAX_CHUNK_BYTES: usize = 16 << 10;
/// The reconnection delay for clients, sent as `retry`.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The body of a stream: reads messages, and polls the call that writes them.
pub(super) struct SseBody {
    reader: Reader,
    /// Sent first, once.
    preamble: Option<Bytes>,
    /// The number of the stream in its session, if it can be resumed.
    stream_number: Option<u64>,
    /// Writes to the stream while it is read.
    call: Option<BoxFuture<'static, Reply>>,
    /// The stream that ends with the reply of the call. `None`: the call is a driver, which has no reply.
    out: Option<Arc<Stream>>,
    keep_alive: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The driver has ended.
    is_driver_done: bool,
    is_ended: bool,
    /// Held as long as the stream is open.
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
            is_driver_done: false,
            is_ended: false,
            _guard: None,
        }
    }

    /// Gives events ids, so that the stream can be resumed.
    pub(super) fn with_stream_number(mut self, number: u64) -> SseBody {
        self.stream_number = Some(number);
        self
    }

    /// Starts the stream with an event that has an id and no data, so that the client can resume from the beginning.
    pub(super) fn with_priming_event(mut self) -> SseBody {
        let id = event_id(self.stream_number.unwrap_or_default(), 0);
        self.preamble = Some(format!("id: {id}\nretry: {}\ndata:\n\n", RETRY_DELAY.as_millis()).into());
        self
    }

    /// Starts the stream with these bytes.
    pub(super) fn with_preamble(mut self, bytes: Bytes) -> SseBody {
        self.preamble = Some(bytes);
        self
    }

    /// Polls a call whose reply is the last event.
    pub(super) fn with_call(mut self, call: BoxFuture<'static, Reply>, out: Arc<Stream>) -> SseBody {
        self.call = Some(call);
        self.out = Some(out);
        self
    }

    /// Polls a driver: a future that writes events to the stream. The stream ends with it.
    pub(super) fn with_driver(mut self, driver: BoxFuture<'static, Reply>) -> SseBody {
        self.call = Some(driver);
        self
    }

    /// Holds a guard as long as the stream is open.
    pub(super) fn with_guard(mut self, guard: LegacyConnectionGuard) -> SseBody {
        self._guard = Some(guard);
        self
    }

    /// Returns the next chunk of the stream.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(preamble) = self.preamble.take() {
            return Poll::Ready(Some(preamble));
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
                // A client that cannot resume is not disconnected.
                Poll::Ready(ReadResult::Disconnect(_)) => continue,
                Poll::Pending => {}
            }
            match self.call.as_mut().map(|call| call.as_mut().poll(cx)) {
                Some(Poll::Ready(reply)) => {
                    self.call = None;
                    match &self.out {
                        Some(out) => end_stream(out, reply),
                        // Messages written since the reader was polled are still to be read.
                        None => self.is_driver_done = true,
                    }
                }
                None if self.is_driver_done => {
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

    /// The position after this event, if a reader can resume from it.
    fn event_position(&self, event: &StreamMessage) -> Option<(u64, u64)> {
        self.stream_number.zip(event.resume_number.map(NonZeroU64::get))
    }

    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let keep_alive = self.keep_alive;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(keep_alive)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        sleep.as_mut().reset(timer_now() + keep_alive);
        Poll::Ready(Some(Bytes::from_static(b": still here\n\n")))
    }
}

/// An event that sets the reconnection delay and carries nothing else.
pub(super) fn retry_event() -> Bytes {
    format!("retry: {}\n\n", RETRY_DELAY.as_millis()).into()
}

/// Encodes one event.
pub(super) fn encode_event(position: Option<(u64, u64)>, data: &Bytes) -> Bytes {
    let mut chunk = BytesMut::with_capacity(data.len() + 64);
    write_event(&mut chunk, position, data);
    chunk.freeze()
}

/// A message is one line of JSON, so an event has one line of data.
fn write_event(chunk: &mut BytesMut, position: Option<(u64, u64)>, data: &[u8]) {
    chunk.put_slice(b"event: message\n");
    if let Some((number, seq)) = position {
        chunk.put_slice(b"id: ");
        chunk.put_slice(event_id(number, seq).as_bytes());
        chunk.put_u8(b'\n');
    }
    chunk.put_slice(b"data: ");
    chunk.put_slice(data);
    chunk.put_slice(b"\n\n");
}
