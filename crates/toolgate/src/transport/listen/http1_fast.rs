//! The short way: plain requests of HTTP/1.1, read, answered and written without hyper.
//!
//! One read brings a request, one write takes its answer away, and between two requests a connection has no buffer at
//! all. hyper has to be ready for everything that HTTP allows; nearly all that clients send is the same few lines and a
//! body with a length, and nearly all that is sent back is one message. What is not plain (see `plain`) leaves this way
//! for good: the connection and the bytes that were read are handed to hyper, which knows what to do.
//!
//! A response without a length, such as a stream of events, is sent in chunks as it comes.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::deadlines::{Activity, Drive};
use super::fast_request::{FastParseError, FastRequest};
use super::request_body::{PendingBody, RequestBody};
use super::response_head::{self, Framing};
use super::validate_head::HeadLimits;
use super::{MAX_DISCARDED_BYTES, Serve};
use crate::request::BoxFuture;
use crate::util::clock::timer_now;

/// How much is read at once. It lies on the stack.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// A piece of a body up to this length is copied behind the head; a longer one is sent from where it is.
const MAX_COPIED_CHUNK_BYTES: usize = 2048;

/// Requests that are answered before others have their turn: a client may send many at once.
const MAX_PIPELINED_REQUESTS: u32 = 16;

/// As much of a body is read for the sake of the connection when nobody wants it.
const MAX_DRAINED_BODY_BYTES: u64 = 64 * 1024;

/// The longest head that is kept for the next request to be compared with.
const MAX_CACHED_HEAD_BYTES: usize = 4096;

/// Room for the head of an answer and a short body.
const RESPONSE_CAPACITY_BYTES: usize = 1024;

thread_local! {
    /// Where answers are written. One that is sent at once, as nearly all are, leaves its room to the next.
    static RESPONSE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// See the module.
pub(super) struct FastConnection<S: Serve> {
    /// Lent to the body of a request while that is coming.
    read_half: Option<OwnedReadHalf>,
    write_half: OwnedWriteHalf,
    service: S,
    limits: HeadLimits,
    /// What was read, and nothing made of yet.
    unparsed: Bytes,
    /// That is the beginning of a head, and the rest is still to come.
    is_partial_head: bool,
    /// When the first piece of it came.
    head_started_at: Option<Instant>,
    /// The head of the last request: the next one is often the same.
    cached_request: Option<Box<FastRequest>>,
    state: State<S::Body>,
    is_stopping: bool,
    is_peer_closed: bool,
    is_write_blocked: bool,
    request_count: u32,
    write_count: u32,
    /// When the last answer was begun.
    last_response_at: Option<Instant>,
}

enum State<B> {
    /// Waits for a request.
    Idle,
    Handling(PendingHandler<B>),
    Sending(ResponseWriter<B>),
    /// Our side is closed; so many bytes of what the peer still sends were thrown away.
    Closing(usize),
}

/// A request that is being answered.
struct PendingHandler<B> {
    response: BoxFuture<'static, Response<B>>,
    /// What of it has not come yet.
    pending_body: Option<PendingBody>,
    is_last: bool,
}

/// An answer on its way.
struct ResponseWriter<B> {
    /// What comes first, and how much of it is gone.
    buffer: Vec<u8>,
    written: usize,
    /// What follows it.
    chunk: Bytes,
    /// The rest, until it has ended.
    body: Option<B>,
    is_chunked: bool,
    is_last: bool,
    /// The peer may still be sending what nobody reads.
    has_unread_body: bool,
}

/// How a connection ends here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FastPathEnd {
    Closed,
    /// Something came that is not plain: see [`FastConnection::hand_over`].
    Unsupported,
}

/// A connection that has left the lane.
pub(super) struct Handover<S> {
    pub(super) stream: TcpStream,
    pub(super) service: S,
    /// What was read and not answered.
    pub(super) bytes: Bytes,
    /// Nothing came before it.
    pub(super) is_first: bool,
    /// It is the rest of a head that began then.
    pub(super) head_started_at: Option<Instant>,
}

impl<S: Serve> FastConnection<S> {
    pub(super) fn new(stream: TcpStream, service: S, limits: HeadLimits) -> FastConnection<S> {
        let (reading, write_half) = stream.into_split();
        FastConnection {
            read_half: Some(reading),
            write_half,
            service,
            limits,
            unparsed: Bytes::new(),
            is_partial_head: false,
            head_started_at: None,
            cached_request: None,
            state: State::Idle,
            is_stopping: false,
            is_peer_closed: false,
            is_write_blocked: false,
            request_count: 0,
            write_count: 0,
            last_response_at: None,
        }
    }

    /// What hyper needs to go on where the lane has ended.
    pub(super) fn into_handover(self) -> Option<Handover<S>> {
        let stream = self.read_half?.reunite(self.write_half).ok()?;
        let (bytes, is_first) = (self.unparsed, self.request_count == 0);
        Some(Handover {
            stream,
            service: self.service,
            bytes,
            is_first,
            head_started_at: self.head_started_at,
        })
    }

    /// Takes the next request, from what is there or from the socket.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<PendingHandler<S::Body>, FastPathEnd>> {
        if !self.is_partial_head && !self.unparsed.is_empty() {
            let bytes = mem::take(&mut self.unparsed);
            if let Some(begun) = self.start_request(&bytes) {
                return Poll::Ready(begun);
            }
        }
        loop {
            let Some(reading) = &mut self.read_half else {
                return Poll::Ready(Err(FastPathEnd::Closed));
            };
            let mut space = [const { MaybeUninit::uninit() }; READ_BUFFER_BYTES];
            let mut chunk = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(reading).poll_read(cx, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                // Half a head and no more to come is still to be answered.
                let end = if read.is_ok() && self.is_partial_head {
                    FastPathEnd::Unsupported
                } else {
                    FastPathEnd::Closed
                };
                return Poll::Ready(Err(end));
            }
            let begun = if self.is_partial_head {
                let bytes = [&self.unparsed, chunk.filled()].concat();
                self.start_request(&bytes)
            } else {
                self.start_request(chunk.filled())
            };
            if let Some(begun) = begun {
                return Poll::Ready(begun);
            }
        }
    }

    /// Begins to answer what was read, if it is plain. None: a head is not there as a whole.
    fn start_request(&mut self, bytes: &[u8]) -> Option<Result<PendingHandler<S::Body>, FastPathEnd>> {
        (self.unparsed, self.is_partial_head) = (Bytes::new(), false);
        let known = self.cached_request.take().and_then(|mut known| known.try_reuse(bytes).then_some(known));
        let read = known.map_or_else(
            || FastRequest::parse(bytes, self.limits, S::known_header_names()).map(Box::new),
            Ok,
        );
        let split = read.and_then(|plain| {
            let (head, body) = plain.lengths();
            let end = usize::try_from(body).ok().and_then(|body| head.checked_add(body));
            end.map(|end| (plain, head, end)).ok_or(FastParseError::Unsupported)
        });
        let (plain, head, end) = match split {
            Ok(split) => split,
            Err(why) => {
                self.unparsed = Bytes::copy_from_slice(bytes);
                // What is too long already is for hyper to refuse.
                self.is_partial_head = why == FastParseError::Incomplete
                    && bytes.len() < READ_BUFFER_BYTES.min(self.limits.max_head_bytes);
                if !self.is_partial_head {
                    return Some(Err(FastPathEnd::Unsupported));
                }
                self.head_started_at = self.head_started_at.or_else(|| Some(timer_now()));
                return None;
            }
        };
        let (inbound, coming) = if let Some(body) = bytes.get(head..end) {
            self.unparsed = Bytes::copy_from_slice(&bytes[end..]);
            (RequestBody::complete(Bytes::copy_from_slice(body)), None)
        } else {
            let Some(reading) = self.read_half.take() else { return Some(Err(FastPathEnd::Closed)) };
            let so_far = bytes.get(head..).unwrap_or_default();
            let coming = PendingBody::new(reading, so_far, (end - bytes.len()) as u64);
            (RequestBody::pending(coming.clone()), Some(coming))
        };
        self.request_count = self.request_count.wrapping_add(1);
        self.head_started_at = None;
        let answer = self.service.respond(plain.to_request_head(), inbound);
        let is_last = plain.is_last;
        // A long one would be kept for as long as the connection waits.
        self.cached_request = (head <= MAX_CACHED_HEAD_BYTES).then_some(plain);
        Some(Ok(PendingHandler { response: answer, pending_body: coming, is_last }))
    }

    /// Takes the socket back from a body, and begins to send the answer.
    fn start_response(
        &mut self,
        response: Response<S::Body>,
        answering: PendingHandler<S::Body>,
        cx: &mut Context<'_>,
    ) -> ResponseWriter<S::Body> {
        let PendingHandler { response: answer, pending_body: coming, is_last } = answering;
        drop(answer);
        let mut is_unread = false;
        if let Some(coming) = coming {
            // One that is kept by somebody is never given back: then this is the end of the connection.
            let mut rest = coming.into_reader();
            // What nobody wanted to read may be here by now: then the next request can follow it.
            if let Some(rest) =
                rest.as_mut().filter(|rest| (1..=MAX_DRAINED_BODY_BYTES).contains(&rest.remaining))
            {
                let _ = rest.poll_read(cx);
            }
            is_unread = rest.as_ref().is_none_or(|rest| rest.remaining > 0);
            self.read_half = rest.map(|rest| rest.socket);
        }
        let is_last = is_last
            || is_unread
            || self.is_stopping
            || response_head::is_connection_close(response.headers());
        let now = timer_now();
        self.last_response_at = Some(now);
        let framing = Framing::of(response.status(), response.body().size_hint().exact());
        let mut front = RESPONSE_BUFFER.take();
        front.reserve(RESPONSE_CAPACITY_BYTES);
        let lines = S::header_lines(response.body());
        response_head::write_head(
            &mut front,
            response.status(),
            lines,
            response.headers(),
            framing,
            is_last,
            now,
        );
        let body = (framing != Framing::None).then(|| response.into_body());
        let is_chunked = framing == Framing::Chunked;
        ResponseWriter {
            buffer: front,
            written: 0,
            chunk: Bytes::new(),
            body,
            is_chunked,
            is_last,
            has_unread_body: is_unread,
        }
    }

    /// Sends what there is of an answer. Ready: that was all.
    fn poll_send(
        &mut self,
        sending: &mut ResponseWriter<S::Body>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let is_waiting = sending.fill(cx)?;
            while sending.has_bytes() {
                let writing = Pin::new(&mut self.write_half);
                let front = sending.buffer.get(sending.written..).unwrap_or_default();
                let written = if sending.chunk.is_empty() {
                    writing.poll_write(cx, front)
                } else {
                    writing.poll_write_vectored(cx, &[IoSlice::new(front), IoSlice::new(&sending.chunk)])
                };
                self.is_write_blocked = written.is_pending();
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => sending.advance(n),
                }
                self.write_count = self.write_count.wrapping_add(1);
            }
            if sending.body.is_none() {
                sending.recycle_buffer();
                return Poll::Ready(Ok(()));
            }
            if is_waiting {
                // It may last for hours, and what it does not need is not kept.
                sending.recycle_buffer();
                self.cached_request = None;
                return Poll::Pending;
            }
        }
    }
}

/// What is to be done next.
enum NextStep {
    /// Another request.
    Request,
    Wait,
    End(FastPathEnd),
}

impl<S: Serve> FastConnection<S> {
    /// Answers a request, as far as that can be done now.
    fn poll_handler(&mut self, mut answering: PendingHandler<S::Body>, cx: &mut Context<'_>) -> NextStep {
        let Poll::Ready(response) = answering.response.as_mut().poll(cx) else {
            self.state = State::Handling(answering);
            return self.detect_peer_close(cx);
        };
        let sending = self.start_response(response, answering, cx);
        self.poll_response(sending, cx)
    }

    /// Sends an answer, as far as that can be done now.
    fn poll_response(&mut self, mut sending: ResponseWriter<S::Body>, cx: &mut Context<'_>) -> NextStep {
        match self.poll_send(&mut sending, cx) {
            Poll::Ready(Ok(())) => self.after_response(&sending, cx),
            Poll::Ready(Err(_)) => NextStep::End(FastPathEnd::Closed),
            Poll::Pending => {
                self.state = State::Sending(sending);
                self.detect_peer_close(cx)
            }
        }
    }

    /// Notices meanwhile that the peer has closed: it may be gone, or wait for its answer.
    fn detect_peer_close(&mut self, cx: &mut Context<'_>) -> NextStep {
        if self.is_peer_closed {
            return NextStep::Wait;
        }
        let mut byte = [MaybeUninit::uninit()];
        match self.write_half.as_ref().poll_peek(cx, &mut ReadBuf::uninit(&mut byte)) {
            Poll::Ready(Ok(0)) => self.is_peer_closed = true,
            Poll::Ready(Ok(_)) | Poll::Pending => {}
            Poll::Ready(Err(_)) => return NextStep::End(FastPathEnd::Closed),
        }
        NextStep::Wait
    }

    /// What follows an answer.
    fn after_response(&mut self, sending: &ResponseWriter<S::Body>, cx: &mut Context<'_>) -> NextStep {
        if !sending.is_last && !self.is_stopping {
            return NextStep::Request;
        }
        // Nothing waits here: the kernel takes note, and sends what it has.
        let shut = Pin::new(&mut self.write_half).poll_shutdown(cx);
        let is_read = !sending.has_unread_body && self.unparsed.is_empty() && !self.has_unread_input(cx);
        if is_read || !matches!(shut, Poll::Ready(Ok(()))) {
            return NextStep::End(FastPathEnd::Closed);
        }
        self.unparsed = Bytes::new();
        self.state = State::Closing(0);
        self.discard_input(0, cx)
    }

    /// Whether the peer has sent more than was read.
    fn has_unread_input(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let seen = self.write_half.as_ref().poll_peek(cx, &mut ReadBuf::uninit(&mut byte));
        matches!(seen, Poll::Ready(Ok(1..)))
    }

    /// Throws away what the peer still sends: to close with bytes unread would make the kernel reset the connection,
    /// and the peer may then lose the answer that says why.
    fn discard_input(&mut self, mut discarded: usize, cx: &mut Context<'_>) -> NextStep {
        let Some(reading) = &mut self.read_half else { return NextStep::End(FastPathEnd::Closed) };
        let mut space = [const { MaybeUninit::uninit() }; READ_BUFFER_BYTES];
        while discarded <= MAX_DISCARDED_BYTES {
            let mut chunk = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *reading).poll_read(cx, &mut chunk) {
                Poll::Ready(Ok(())) if !chunk.filled().is_empty() => discarded += chunk.filled().len(),
                Poll::Ready(_) => break,
                Poll::Pending => {
                    self.state = State::Closing(discarded);
                    return NextStep::Wait;
                }
            }
        }
        NextStep::End(FastPathEnd::Closed)
    }
}

impl<S: Serve> Drive for FastConnection<S> {
    type End = FastPathEnd;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FastPathEnd> {
        for _ in 0..MAX_PIPELINED_REQUESTS {
            let next = match mem::replace(&mut self.state, State::Idle) {
                State::Idle if self.is_stopping => NextStep::End(FastPathEnd::Closed),
                State::Idle => match ready!(self.poll_request(cx)) {
                    Ok(answering) => self.poll_handler(answering, cx),
                    Err(end) => NextStep::End(end),
                },
                State::Handling(answering) => self.poll_handler(answering, cx),
                State::Sending(sending) => self.poll_response(sending, cx),
                State::Closing(discarded) => self.discard_input(discarded, cx),
            };
            match next {
                NextStep::Request => {}
                NextStep::Wait => return Poll::Pending,
                NextStep::End(end) => return Poll::Ready(end),
            }
        }
        // The turn of others.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn start_shutdown(&mut self) {
        self.is_stopping = true;
    }

    fn close_idle(&mut self) {
        self.is_stopping = true;
    }

    fn activity(&self) -> Activity {
        Activity {
            is_closing: matches!(self.state, State::Closing(_)),
            is_write_blocked: self.is_write_blocked,
            is_busy: matches!(self.state, State::Handling(_) | State::Sending(_)),
            is_peer_closed: self.is_peer_closed,
            has_input: self.is_partial_head,
            is_http2: false,
            request_count: self.request_count,
            write_count: self.write_count,
            last_activity: self.last_response_at,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> ResponseWriter<B> {
    fn has_bytes(&self) -> bool {
        self.written < self.buffer.len() || !self.chunk.is_empty()
    }

    /// Takes pieces of the body, as many as go into one write. True: there is more, and it has to be waited for.
    fn fill(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while self.chunk.is_empty() && self.buffer.len() < READ_BUFFER_BYTES {
            let Some(body) = &mut self.body else { break };
            let data = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(_))) => return Err(io::ErrorKind::Other.into()),
                Poll::Ready(None) => {
                    self.finish_body();
                    break;
                }
                Poll::Pending => return Ok(true),
            };
            let is_end = body.is_end_stream();
            if self.is_chunked && !data.is_empty() {
                response_head::write_chunk_size(&mut self.buffer, data.len());
                self.buffer.extend_from_slice(&data);
                self.buffer.extend_from_slice(b"\r\n");
            } else if data.len() <= MAX_COPIED_CHUNK_BYTES {
                self.buffer.extend_from_slice(&data);
            } else {
                self.chunk = data;
            }
            if is_end {
                self.finish_body();
            }
        }
        Ok(false)
    }

    fn finish_body(&mut self) {
        self.body = None;
        if self.is_chunked {
            self.buffer.extend_from_slice(b"0\r\n\r\n");
        }
    }

    fn advance(&mut self, n: usize) {
        let front = n.min(self.buffer.len() - self.written);
        self.written += front;
        self.chunk.advance((n - front).min(self.chunk.len()));
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
        }
    }

    /// Gives the room of what is sent to who writes next.
    fn recycle_buffer(&mut self) {
        let mut front = mem::take(&mut self.buffer);
        front.clear();
        if (1..=READ_BUFFER_BYTES).contains(&front.capacity()) {
            RESPONSE_BUFFER.set(front);
        }
    }
}
