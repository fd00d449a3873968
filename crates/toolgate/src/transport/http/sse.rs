//! A stream of messages as server-sent events.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Sleep;

use super::conclude;
use super::duplex::Seat;
use crate::clock::timer_now;
use crate::era::{Reply, event_id};
use crate::request::BoxFuture;
use crate::stream::{StreamMessage, ReadResult, Reader, Stream};

/// Several small events travel in one piece, up to this size.
const CHUNK: usize = 16 << 10;
/// After how long a client comes back when its connection breaks.
const RETRY: Duration = Duration::from_secs(1);

/// The body of a stream: reads messages, and drives the call that writes them.
pub(super) struct Events {
    reader: Reader,
    /// Comes first, once.
    opening: Option<Bytes>,
    /// The number of the stream in its session, if it can be resumed.
    number: Option<u64>,
    /// Writes to the stream while it is read.
    call: Option<BoxFuture<'static, Reply>>,
    /// Where the call's answer goes. None: there will be none, the call only feeds.
    out: Option<Arc<Stream>>,
    heartbeat: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The call only fed, and has ended.
    fed: bool,
    ended: bool,
    /// Held while the stream lives.
    _seat: Option<Seat>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Events {
    pub(super) fn new(reader: Reader, heartbeat: Duration) -> Events {
        Events {
            reader,
            opening: None,
            number: None,
            call: None,
            out: None,
            heartbeat,
            sleep: None,
            fed: false,
            ended: false,
            _seat: None,
        }
    }

    /// Events carry ids, so that the stream can be resumed.
    pub(super) fn numbered(mut self, number: u64) -> Events {
        self.number = Some(number);
        self
    }

    /// Begins with an event that has an id and no data: from then on the connection may break.
    pub(super) fn primed(mut self) -> Events {
        let id = event_id(self.number.unwrap_or_default(), 0);
        self.opening = Some(format!("id: {id}\nretry: {}\ndata:\n\n", RETRY.as_millis()).into());
        self
    }

    /// Begins with these bytes.
    pub(super) fn opening(mut self, bytes: Bytes) -> Events {
        self.opening = Some(bytes);
        self
    }

    /// Drives a call whose answer is the last event.
    pub(super) fn driving(mut self, call: BoxFuture<'static, Reply>, out: Arc<Stream>) -> Events {
        self.call = Some(call);
        self.out = Some(out);
        self
    }

    /// Drives something that writes events until it ends, and the stream with it.
    pub(super) fn feeding(mut self, feed: BoxFuture<'static, Reply>) -> Events {
        self.call = Some(feed);
        self
    }

    /// Keeps a seat as long as the stream lives.
    pub(super) fn seated(mut self, seat: Seat) -> Events {
        self._seat = Some(seat);
        self
    }

    /// The next piece of the stream.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            match self.reader.poll_next(cx) {
                Poll::Ready(ReadResult::Message(first)) => {
                    self.sleep = None;
                    return Poll::Ready(Some(self.gather(&first)));
                }
                Poll::Ready(ReadResult::End) => return Poll::Ready(None),
                Poll::Ready(ReadResult::Disconnect(retry)) if self.number.is_some() => {
                    self.ended = true;
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
                        Some(out) => conclude(out, answer),
                        // What was written since the reader was looked at is still to be read.
                        None => self.fed = true,
                    }
                }
                None if self.fed => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
                Some(Poll::Pending) | None => return self.poll_heartbeat(cx),
            }
        }
    }

    fn gather(&mut self, first: &StreamMessage) -> Bytes {
        let mut chunk = BytesMut::with_capacity(first.data.len() + 64);
        put(&mut chunk, self.place(first), &first.data);
        while chunk.len() < CHUNK {
            let Some(event) = self.reader.try_next() else { break };
            put(&mut chunk, self.place(&event), &event.data);
        }
        chunk.freeze()
    }

    /// Where a reader can come back behind this event, if it can.
    fn place(&self, event: &StreamMessage) -> Option<(u64, u64)> {
        self.number.zip(event.resume_number.map(NonZeroU64::get))
    }

    fn poll_heartbeat(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let heartbeat = self.heartbeat;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(heartbeat)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        sleep.as_mut().reset(timer_now() + heartbeat);
        Poll::Ready(Some(Bytes::from_static(b": still here\n\n")))
    }
}

/// Says when to come back, and nothing else.
pub(super) fn retry() -> Bytes {
    format!("retry: {}\n\n", RETRY.as_millis()).into()
}

/// One event.
pub(super) fn event(place: Option<(u64, u64)>, data: &Bytes) -> Bytes {
    let mut chunk = BytesMut::with_capacity(data.len() + 64);
    put(&mut chunk, place, data);
    chunk.freeze()
}

/// A message is one line of JSON, so an event has one line of data.
fn put(chunk: &mut BytesMut, place: Option<(u64, u64)>, data: &[u8]) {
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
