//! HTTP/1.1 fast path: serves simple requests directly on the socket, without hyper.
//!
//! A request is *simple* if [`FastRequest::parse`] accepts it: HTTP/1.1, one of four methods, an origin-form target,
//! at most 32 headers, a `Content-Length` or no body, and no `Expect`, `Upgrade` or `Transfer-Encoding`. Anything
//! else moves the connection to hyper, together with the bytes read so far, and it never comes back. The fast path
//! rejects nothing by itself, so every error response is hyper's.
//!
//! Nearly all requests are simple. One read brings a request and one write sends its response, and between two
//! requests a connection holds no buffer. A response without a known length, such as an SSE stream, is sent with
//! chunked encoding.
//!
//! - `request`: parses a head. `response_head`: writes one. `response_writer`: a response that is being sent.
//! - `tests`: sends the same bytes to this path and to hyper, and compares the responses.

mod request;
mod response_head;
mod response_writer;
#[cfg(test)]
mod tests;

#[cfg(fuzzing)]
pub(crate) use request::check_parser;

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::deadlines::{Activity, Drive};
use super::request_body::{PendingBody, RequestBody};
use super::validate_head::HeadLimits;
use super::{MAX_DISCARDED_BYTES, READ_BUFFER_BYTES, Serve};
use crate::request::BoxFuture;
use crate::util::clock::timer_now;
use request::{FastParseError, FastRequest};
use response_head::Framing;
use response_writer::{ResponseWriter, take_buffer};

/// Pipelined requests served before the task yields to others.
const MAX_PIPELINED_REQUESTS: u32 = 16;

/// Unread request body that is drained to keep the connection alive; a longer one closes it.
const MAX_DRAINED_BODY_BYTES: u64 = 64 * 1024;

/// The longest head that is kept to compare the next request with.
const MAX_CACHED_HEAD_BYTES: usize = 4096;

/// One connection on the fast path.
pub(super) struct FastConnection<S: Serve> {
    /// Lent to the body of a request while that is being received.
    read_half: Option<OwnedReadHalf>,
    write_half: OwnedWriteHalf,
    service: S,
    limits: HeadLimits,
    /// Bytes that were read and not parsed yet.
    unparsed: Bytes,
    /// `unparsed` is the beginning of a head whose rest has not arrived.
    is_partial_head: bool,
    /// When the first bytes of that head arrived.
    head_started_at: Option<Instant>,
    /// The head of the last request: the next one is often the same.
    cached_request: Option<Box<FastRequest>>,
    state: State<S::Body>,
    is_stopping: bool,
    is_peer_closed: bool,
    is_write_blocked: bool,
    request_count: u32,
    write_count: u32,
    /// When the last response was started.
    last_response_at: Option<Instant>,
}

enum State<B> {
    /// Waiting for a request.
    Idle,
    Handling(PendingHandler<B>),
    Sending(ResponseWriter<B>),
    /// Our side is closed. Counts the bytes of the peer that were discarded since.
    Closing(usize),
}

/// A request whose response is being computed.
struct PendingHandler<B> {
    response: BoxFuture<'static, Response<B>>,
    /// The part of its body that has not been received.
    pending_body: Option<PendingBody>,
    is_last: bool,
}

/// Why a connection leaves the fast path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FastPathEnd {
    Closed,
    /// The next request is not simple: see [`FastConnection::into_handover`].
    Unsupported,
}

/// A connection that moves to hyper.
pub(super) struct Handover<S> {
    pub(super) stream: TcpStream,
    pub(super) service: S,
    /// The bytes that were read and not answered.
    pub(super) bytes: Bytes,
    /// Whether no request was served before them.
    pub(super) is_first: bool,
    /// When the head that they begin was started, if it is incomplete.
    pub(super) head_started_at: Option<Instant>,
}

impl<S: Serve> FastConnection<S> {
    pub(super) fn new(stream: TcpStream, service: S, limits: HeadLimits) -> FastConnection<S> {
        let (read_half, write_half) = stream.into_split();
        FastConnection {
            read_half: Some(read_half),
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

    /// Returns the state that hyper needs to continue.
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

    /// Returns the next request, from the bytes that are there or from the socket.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<PendingHandler<S::Body>, FastPathEnd>> {
        if !self.is_partial_head && !self.unparsed.is_empty() {
            let bytes = mem::take(&mut self.unparsed);
            if let Some(started) = self.start_request(&bytes) {
                return Poll::Ready(started);
            }
        }
        loop {
            let Some(read_half) = &mut self.read_half else {
                return Poll::Ready(Err(FastPathEnd::Closed));
            };
            let mut space = [const { MaybeUninit::uninit() }; READ_BUFFER_BYTES];
            let mut chunk = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(read_half).poll_read(cx, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                // hyper answers an incomplete head at the end of the input.
                let end = if read.is_ok() && self.is_partial_head {
                    FastPathEnd::Unsupported
                } else {
                    FastPathEnd::Closed
                };
                return Poll::Ready(Err(end));
            }
            let started = if self.is_partial_head {
                let bytes = [&self.unparsed, chunk.filled()].concat();
                self.start_request(&bytes)
            } else {
                self.start_request(chunk.filled())
            };
            if let Some(started) = started {
                return Poll::Ready(started);
            }
        }
    }

    /// Starts to handle a request, if it is simple. Returns `None` if its head is incomplete.
    fn start_request(&mut self, bytes: &[u8]) -> Option<Result<PendingHandler<S::Body>, FastPathEnd>> {
        (self.unparsed, self.is_partial_head) = (Bytes::new(), false);
        let cached =
            self.cached_request.take().and_then(|mut cached| cached.try_reuse(bytes).then_some(cached));
        let read = cached.map_or_else(
            || FastRequest::parse(bytes, self.limits, S::known_header_names()).map(Box::new),
            Ok,
        );
        let split = read.and_then(|request| {
            let (head, body) = request.lengths();
            let end = usize::try_from(body).ok().and_then(|body| head.checked_add(body));
            end.map(|end| (request, head, end)).ok_or(FastParseError::Unsupported)
        });
        let (request, head, end) = match split {
            Ok(split) => split,
            Err(error) => {
                self.unparsed = Bytes::copy_from_slice(bytes);
                // A head that is already too long is rejected by hyper.
                self.is_partial_head = error == FastParseError::Incomplete
                    && bytes.len() < READ_BUFFER_BYTES.min(self.limits.max_head_bytes);
                if !self.is_partial_head {
                    return Some(Err(FastPathEnd::Unsupported));
                }
                self.head_started_at = self.head_started_at.or_else(|| Some(timer_now()));
                return None;
            }
        };
        let (request_body, pending_body) = if let Some(body) = bytes.get(head..end) {
            self.unparsed = Bytes::copy_from_slice(&bytes[end..]);
            (RequestBody::complete(Bytes::copy_from_slice(body)), None)
        } else {
            let Some(read_half) = self.read_half.take() else { return Some(Err(FastPathEnd::Closed)) };
            let received = bytes.get(head..).unwrap_or_default();
            let pending_body = PendingBody::new(read_half, received, (end - bytes.len()) as u64);
            (RequestBody::pending(pending_body.clone()), Some(pending_body))
        };
        self.request_count = self.request_count.wrapping_add(1);
        self.head_started_at = None;
        let response = self.service.respond(request.to_request_head(), request_body);
        let is_last = request.is_last;
        // A long head would be held as long as the connection waits.
        self.cached_request = (head <= MAX_CACHED_HEAD_BYTES).then_some(request);
        Some(Ok(PendingHandler { response, pending_body, is_last }))
    }

    /// Takes the socket back from the request body, and starts the response.
    fn start_response(
        &mut self,
        response: Response<S::Body>,
        pending: PendingHandler<S::Body>,
        cx: &mut Context<'_>,
    ) -> ResponseWriter<S::Body> {
        let PendingHandler { response: handler, pending_body, is_last } = pending;
        drop(handler);
        let mut has_unread_body = false;
        if let Some(pending_body) = pending_body {
            // A body that the handler has kept does not give the socket back: then this response is the last.
            let mut reader = pending_body.into_reader();
            // The part that the handler did not read may have arrived: then another request can follow.
            if let Some(reader) =
                reader.as_mut().filter(|reader| (1..=MAX_DRAINED_BODY_BYTES).contains(&reader.remaining))
            {
                let _ = reader.poll_read(cx);
            }
            has_unread_body = reader.as_ref().is_none_or(|reader| reader.remaining > 0);
            self.read_half = reader.map(|reader| reader.socket);
        }
        let is_last = is_last
            || has_unread_body
            || self.is_stopping
            || response_head::is_connection_close(response.headers());
        let now = timer_now();
        self.last_response_at = Some(now);
        let framing = Framing::of(response.status(), response.body().size_hint().exact());
        let mut buffer = take_buffer();
        let lines = S::header_lines(response.body());
        response_head::write_head(
            &mut buffer,
            response.status(),
            lines,
            response.headers(),
            framing,
            is_last,
            now,
        );
        let body = (framing != Framing::None).then(|| response.into_body());
        let is_chunked = framing == Framing::Chunked;
        ResponseWriter { buffer, written: 0, chunk: Bytes::new(), body, is_chunked, is_last, has_unread_body }
    }

    /// Writes as much of a response as possible. Ready when all of it is written.
    fn poll_send(
        &mut self,
        response: &mut ResponseWriter<S::Body>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let is_waiting = response.fill(cx)?;
            while response.has_bytes() {
                let write_half = Pin::new(&mut self.write_half);
                let buffer = response.buffer.get(response.written..).unwrap_or_default();
                let written = if response.chunk.is_empty() {
                    write_half.poll_write(cx, buffer)
                } else {
                    write_half.poll_write_vectored(cx, &[IoSlice::new(buffer), IoSlice::new(&response.chunk)])
                };
                self.is_write_blocked = written.is_pending();
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => response.advance(n),
                }
                self.write_count = self.write_count.wrapping_add(1);
            }
            if response.body.is_none() {
                response.recycle_buffer();
                return Poll::Ready(Ok(()));
            }
            if is_waiting {
                // A stream may stay open for hours, so buffers it does not need are released.
                response.recycle_buffer();
                self.cached_request = None;
                return Poll::Pending;
            }
        }
    }
}

/// The next step of the connection.
enum NextStep {
    /// Reads another request.
    Request,
    Wait,
    End(FastPathEnd),
}

impl<S: Serve> FastConnection<S> {
    /// Polls the handler of a request.
    fn poll_handler(&mut self, mut pending: PendingHandler<S::Body>, cx: &mut Context<'_>) -> NextStep {
        let Poll::Ready(response) = pending.response.as_mut().poll(cx) else {
            self.state = State::Handling(pending);
            return self.detect_peer_close(cx);
        };
        let writer = self.start_response(response, pending, cx);
        self.poll_response(writer, cx)
    }

    /// Writes a response.
    fn poll_response(&mut self, mut writer: ResponseWriter<S::Body>, cx: &mut Context<'_>) -> NextStep {
        match self.poll_send(&mut writer, cx) {
            Poll::Ready(Ok(())) => self.after_response(&writer, cx),
            Poll::Ready(Err(_)) => NextStep::End(FastPathEnd::Closed),
            Poll::Pending => {
                self.state = State::Sending(writer);
                self.detect_peer_close(cx)
            }
        }
    }

    /// Detects that the peer has closed its sending side: it may be gone, or still wait for the response.
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

    /// Decides the next step after a response.
    fn after_response(&mut self, writer: &ResponseWriter<S::Body>, cx: &mut Context<'_>) -> NextStep {
        if !writer.is_last && !self.is_stopping {
            return NextStep::Request;
        }
        // Does not wait: the kernel sends what it has buffered.
        let shutdown = Pin::new(&mut self.write_half).poll_shutdown(cx);
        let is_all_read = !writer.has_unread_body && self.unparsed.is_empty() && !self.has_unread_input(cx);
        if is_all_read || !matches!(shutdown, Poll::Ready(Ok(()))) {
            return NextStep::End(FastPathEnd::Closed);
        }
        self.unparsed = Bytes::new();
        self.state = State::Closing(0);
        self.discard_input(0, cx)
    }

    /// Whether the peer has sent bytes that were not read.
    fn has_unread_input(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = self.write_half.as_ref().poll_peek(cx, &mut ReadBuf::uninit(&mut byte));
        matches!(peeked, Poll::Ready(Ok(1..)))
    }

    /// Discards further input of the peer: closing with unread bytes would make the kernel reset the connection, and
    /// the peer could lose the response.
    fn discard_input(&mut self, mut discarded: usize, cx: &mut Context<'_>) -> NextStep {
        let Some(read_half) = &mut self.read_half else { return NextStep::End(FastPathEnd::Closed) };
        let mut space = [const { MaybeUninit::uninit() }; READ_BUFFER_BYTES];
        while discarded <= MAX_DISCARDED_BYTES {
            let mut chunk = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *read_half).poll_read(cx, &mut chunk) {
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
                    Ok(pending) => self.poll_handler(pending, cx),
                    Err(end) => NextStep::End(end),
                },
                State::Handling(pending) => self.poll_handler(pending, cx),
                State::Sending(writer) => self.poll_response(writer, cx),
                State::Closing(discarded) => self.discard_input(discarded, cx),
            };
            match next {
                NextStep::Request => {}
                NextStep::Wait => return Poll::Pending,
                NextStep::End(end) => return Poll::Ready(end),
            }
        }
        // Let other tasks run.
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
