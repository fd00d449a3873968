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

use super::hygiene::Limits;
use super::inbound::{Coming, Inbound};
use super::plain::{NotPlain, Plain};
use super::reply::{self, Framing};
use super::watch::{Driven, Signs};
use super::{DISCARD, Serve};
use crate::clock::timer_now;
use crate::request::BoxFuture;

/// How much is read at once. It lies on the stack.
const CHUNK: usize = 16 * 1024;

/// A piece of a body up to this length is copied behind the head; a longer one is sent from where it is.
const SMALL: usize = 2048;

/// Requests that are answered before others have their turn: a client may send many at once.
const IN_A_ROW: u32 = 16;

/// As much of a body is read for the sake of the connection when nobody wants it.
const UNREAD: u64 = 64 * 1024;

/// The longest head that is kept for the next request to be compared with.
const KNOWN: usize = 4096;

/// Room for the head of an answer and a short body.
const ANSWER: usize = 1024;

thread_local! {
    /// Where answers are written. One that is sent at once, as nearly all are, leaves its room to the next.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// See the module.
pub(super) struct Lane<S: Serve> {
    /// Lent to the body of a request while that is coming.
    reading: Option<OwnedReadHalf>,
    writing: OwnedWriteHalf,
    service: S,
    limits: Limits,
    /// What was read, and nothing made of yet.
    unused: Bytes,
    /// That is the beginning of a head, and the rest is still to come.
    is_piece: bool,
    /// When the first piece of it came.
    heard_at: Option<Instant>,
    /// The head of the last request: the next one is often the same.
    known: Option<Box<Plain>>,
    state: State<S::Body>,
    is_stopping: bool,
    has_left: bool,
    is_blocked: bool,
    served: u32,
    wrote: u32,
    /// When the last answer was begun.
    at: Option<Instant>,
}

enum State<B> {
    /// Waits for a request.
    Idle,
    Answering(Answering<B>),
    Sending(Sending<B>),
    /// Our side is closed; so many bytes of what the peer still sends were thrown away.
    Closing(usize),
}

/// A request that is being answered.
struct Answering<B> {
    answer: BoxFuture<'static, Response<B>>,
    /// What of it has not come yet.
    coming: Option<Coming>,
    is_last: bool,
}

/// An answer on its way.
struct Sending<B> {
    /// What comes first, and how much of it is gone.
    front: Vec<u8>,
    sent: usize,
    /// What follows it.
    piece: Bytes,
    /// The rest, until it has ended.
    body: Option<B>,
    is_chunked: bool,
    is_last: bool,
    /// The peer may still be sending what nobody reads.
    is_unread: bool,
}

/// How a connection ends here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    /// Something came that is not plain: see [`Lane::hand_over`].
    NotPlain,
}

/// A connection that has left the lane.
pub(super) struct Handed<S> {
    pub(super) stream: TcpStream,
    pub(super) service: S,
    /// What was read and not answered.
    pub(super) bytes: Bytes,
    /// Nothing came before it.
    pub(super) is_first: bool,
    /// It is the rest of a head that began then.
    pub(super) heard_at: Option<Instant>,
}

impl<S: Serve> Lane<S> {
    pub(super) fn new(stream: TcpStream, service: S, limits: Limits) -> Lane<S> {
        let (reading, writing) = stream.into_split();
        Lane {
            reading: Some(reading),
            writing,
            service,
            limits,
            unused: Bytes::new(),
            is_piece: false,
            heard_at: None,
            known: None,
            state: State::Idle,
            is_stopping: false,
            has_left: false,
            is_blocked: false,
            served: 0,
            wrote: 0,
            at: None,
        }
    }

    /// What hyper needs to go on where the lane has ended.
    pub(super) fn hand_over(self) -> Option<Handed<S>> {
        let stream = self.reading?.reunite(self.writing).ok()?;
        let (bytes, is_first) = (self.unused, self.served == 0);
        Some(Handed { stream, service: self.service, bytes, is_first, heard_at: self.heard_at })
    }

    /// Takes the next request, from what is there or from the socket.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answering<S::Body>, End>> {
        if !self.is_piece && !self.unused.is_empty() {
            let bytes = mem::take(&mut self.unused);
            if let Some(begun) = self.begin(&bytes) {
                return Poll::Ready(begun);
            }
        }
        loop {
            let Some(reading) = &mut self.reading else {
                return Poll::Ready(Err(End::Closed));
            };
            let mut space = [const { MaybeUninit::uninit() }; CHUNK];
            let mut chunk = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(reading).poll_read(cx, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                // Half a head and no more to come is still to be answered.
                let end = if read.is_ok() && self.is_piece { End::NotPlain } else { End::Closed };
                return Poll::Ready(Err(end));
            }
            let begun = if self.is_piece {
                let bytes = [&self.unused, chunk.filled()].concat();
                self.begin(&bytes)
            } else {
                self.begin(chunk.filled())
            };
            if let Some(begun) = begun {
                return Poll::Ready(begun);
            }
        }
    }

    /// Begins to answer what was read, if it is plain. None: a head is not there as a whole.
    fn begin(&mut self, bytes: &[u8]) -> Option<Result<Answering<S::Body>, End>> {
        (self.unused, self.is_piece) = (Bytes::new(), false);
        let known = self.known.take().and_then(|mut known| known.is_again(bytes).then_some(known));
        let read = known.map_or_else(|| Plain::read(bytes, self.limits, S::names()).map(Box::new), Ok);
        let split = read.and_then(|plain| {
            let (head, body) = plain.lengths();
            let end = usize::try_from(body).ok().and_then(|body| head.checked_add(body));
            end.map(|end| (plain, head, end)).ok_or(NotPlain::Other)
        });
        let (plain, head, end) = match split {
            Ok(split) => split,
            Err(why) => {
                self.unused = Bytes::copy_from_slice(bytes);
                // What is too long already is for hyper to refuse.
                self.is_piece = why == NotPlain::Piece && bytes.len() < CHUNK.min(self.limits.head);
                if !self.is_piece {
                    return Some(Err(End::NotPlain));
                }
                self.heard_at = self.heard_at.or_else(|| Some(timer_now()));
                return None;
            }
        };
        let (inbound, coming) = if let Some(body) = bytes.get(head..end) {
            self.unused = Bytes::copy_from_slice(&bytes[end..]);
            (Inbound::here(Bytes::copy_from_slice(body)), None)
        } else {
            let Some(reading) = self.reading.take() else { return Some(Err(End::Closed)) };
            let so_far = bytes.get(head..).unwrap_or_default();
            let coming = Coming::new(reading, so_far, (end - bytes.len()) as u64);
            (Inbound::coming(coming.clone()), Some(coming))
        };
        self.served = self.served.wrapping_add(1);
        self.heard_at = None;
        let answer = self.service.answer(plain.asked(), inbound);
        let is_last = plain.is_last;
        // A long one would be kept for as long as the connection waits.
        self.known = (head <= KNOWN).then_some(plain);
        Some(Ok(Answering { answer, coming, is_last }))
    }

    /// Takes the socket back from a body, and begins to send the answer.
    fn answered(
        &mut self,
        response: Response<S::Body>,
        answering: Answering<S::Body>,
        cx: &mut Context<'_>,
    ) -> Sending<S::Body> {
        let Answering { answer, coming, is_last } = answering;
        drop(answer);
        let mut is_unread = false;
        if let Some(coming) = coming {
            // One that is kept by somebody is never given back: then this is the end of the connection.
            let mut rest = coming.take_back();
            // What nobody wanted to read may be here by now: then the next request can follow it.
            if let Some(rest) = rest.as_mut().filter(|rest| (1..=UNREAD).contains(&rest.left)) {
                let _ = rest.poll(cx);
            }
            is_unread = rest.as_ref().is_none_or(|rest| rest.left > 0);
            self.reading = rest.map(|rest| rest.socket);
        }
        let is_last = is_last || is_unread || self.is_stopping || reply::says_last(response.headers());
        let now = timer_now();
        self.at = Some(now);
        let framing = Framing::of(response.status(), response.body().size_hint().exact());
        let mut front = ROOM.take();
        front.reserve(ANSWER);
        let lines = S::lines(response.body());
        reply::head(&mut front, response.status(), lines, response.headers(), framing, is_last, now);
        let body = (framing != Framing::None).then(|| response.into_body());
        let is_chunked = framing == Framing::Chunked;
        Sending { front, sent: 0, piece: Bytes::new(), body, is_chunked, is_last, is_unread }
    }

    /// Sends what there is of an answer. Ready: that was all.
    fn send(&mut self, sending: &mut Sending<S::Body>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_waiting = sending.gather(cx)?;
            while sending.has_bytes() {
                let writing = Pin::new(&mut self.writing);
                let front = sending.front.get(sending.sent..).unwrap_or_default();
                let written = if sending.piece.is_empty() {
                    writing.poll_write(cx, front)
                } else {
                    writing.poll_write_vectored(cx, &[IoSlice::new(front), IoSlice::new(&sending.piece)])
                };
                self.is_blocked = written.is_pending();
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => sending.advance(n),
                }
                self.wrote = self.wrote.wrapping_add(1);
            }
            if sending.body.is_none() {
                sending.leave_room();
                return Poll::Ready(Ok(()));
            }
            if is_waiting {
                // It may last for hours, and what it does not need is not kept.
                sending.leave_room();
                self.known = None;
                return Poll::Pending;
            }
        }
    }
}

/// What is to be done next.
enum Next {
    /// Another request.
    Request,
    Wait,
    End(End),
}

impl<S: Serve> Lane<S> {
    /// Answers a request, as far as that can be done now.
    fn answer(&mut self, mut answering: Answering<S::Body>, cx: &mut Context<'_>) -> Next {
        let Poll::Ready(response) = answering.answer.as_mut().poll(cx) else {
            self.state = State::Answering(answering);
            return self.wait(cx);
        };
        let sending = self.answered(response, answering, cx);
        self.go_on(sending, cx)
    }

    /// Sends an answer, as far as that can be done now.
    fn go_on(&mut self, mut sending: Sending<S::Body>, cx: &mut Context<'_>) -> Next {
        match self.send(&mut sending, cx) {
            Poll::Ready(Ok(())) => self.sent(&sending, cx),
            Poll::Ready(Err(_)) => Next::End(End::Closed),
            Poll::Pending => {
                self.state = State::Sending(sending);
                self.wait(cx)
            }
        }
    }

    /// Notices meanwhile that the peer has closed: it may be gone, or wait for its answer.
    fn wait(&mut self, cx: &mut Context<'_>) -> Next {
        if self.has_left {
            return Next::Wait;
        }
        let mut byte = [MaybeUninit::uninit()];
        match self.writing.as_ref().poll_peek(cx, &mut ReadBuf::uninit(&mut byte)) {
            Poll::Ready(Ok(0)) => self.has_left = true,
            Poll::Ready(Ok(_)) | Poll::Pending => {}
            Poll::Ready(Err(_)) => return Next::End(End::Closed),
        }
        Next::Wait
    }

    /// What follows an answer.
    fn sent(&mut self, sending: &Sending<S::Body>, cx: &mut Context<'_>) -> Next {
        if !sending.is_last && !self.is_stopping {
            return Next::Request;
        }
        // Nothing waits here: the kernel takes note, and sends what it has.
        let shut = Pin::new(&mut self.writing).poll_shutdown(cx);
        let is_read = !sending.is_unread && self.unused.is_empty() && !self.has_more(cx);
        if is_read || !matches!(shut, Poll::Ready(Ok(()))) {
            return Next::End(End::Closed);
        }
        self.unused = Bytes::new();
        self.state = State::Closing(0);
        self.discard(0, cx)
    }

    /// Whether the peer has sent more than was read.
    fn has_more(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let seen = self.writing.as_ref().poll_peek(cx, &mut ReadBuf::uninit(&mut byte));
        matches!(seen, Poll::Ready(Ok(1..)))
    }

    /// Throws away what the peer still sends: to close with bytes unread would make the kernel reset the connection,
    /// and the peer may then lose the answer that says why.
    fn discard(&mut self, mut discarded: usize, cx: &mut Context<'_>) -> Next {
        let Some(reading) = &mut self.reading else { return Next::End(End::Closed) };
        let mut space = [const { MaybeUninit::uninit() }; CHUNK];
        while discarded <= DISCARD {
            let mut chunk = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *reading).poll_read(cx, &mut chunk) {
                Poll::Ready(Ok(())) if !chunk.filled().is_empty() => discarded += chunk.filled().len(),
                Poll::Ready(_) => break,
                Poll::Pending => {
                    self.state = State::Closing(discarded);
                    return Next::Wait;
                }
            }
        }
        Next::End(End::Closed)
    }
}

impl<S: Serve> Driven for Lane<S> {
    type End = End;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..IN_A_ROW {
            let next = match mem::replace(&mut self.state, State::Idle) {
                State::Idle if self.is_stopping => Next::End(End::Closed),
                State::Idle => match ready!(self.poll_next(cx)) {
                    Ok(answering) => self.answer(answering, cx),
                    Err(end) => Next::End(end),
                },
                State::Answering(answering) => self.answer(answering, cx),
                State::Sending(sending) => self.go_on(sending, cx),
                State::Closing(discarded) => self.discard(discarded, cx),
            };
            match next {
                Next::Request => {}
                Next::Wait => return Poll::Pending,
                Next::End(end) => return Poll::Ready(end),
            }
        }
        // The turn of others.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn finish(&mut self) {
        self.is_stopping = true;
    }

    fn retire(&mut self) {
        self.is_stopping = true;
    }

    fn signs(&self) -> Signs {
        Signs {
            is_closing: matches!(self.state, State::Closing(_)),
            is_blocked: self.is_blocked,
            is_busy: matches!(self.state, State::Answering(_) | State::Sending(_)),
            has_left: self.has_left,
            is_heard: self.is_piece,
            is_http2: false,
            served: self.served,
            wrote: self.wrote,
            at: self.at,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Sending<B> {
    fn has_bytes(&self) -> bool {
        self.sent < self.front.len() || !self.piece.is_empty()
    }

    /// Takes pieces of the body, as many as go into one write. True: there is more, and it has to be waited for.
    fn gather(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while self.piece.is_empty() && self.front.len() < CHUNK {
            let Some(body) = &mut self.body else { break };
            let data = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(_))) => return Err(io::ErrorKind::Other.into()),
                Poll::Ready(None) => {
                    self.ended();
                    break;
                }
                Poll::Pending => return Ok(true),
            };
            let is_end = body.is_end_stream();
            if self.is_chunked && !data.is_empty() {
                reply::chunk(&mut self.front, data.len());
                self.front.extend_from_slice(&data);
                self.front.extend_from_slice(b"\r\n");
            } else if data.len() <= SMALL {
                self.front.extend_from_slice(&data);
            } else {
                self.piece = data;
            }
            if is_end {
                self.ended();
            }
        }
        Ok(false)
    }

    fn ended(&mut self) {
        self.body = None;
        if self.is_chunked {
            self.front.extend_from_slice(b"0\r\n\r\n");
        }
    }

    fn advance(&mut self, n: usize) {
        let front = n.min(self.front.len() - self.sent);
        self.sent += front;
        self.piece.advance((n - front).min(self.piece.len()));
        if self.sent == self.front.len() {
            self.front.clear();
            self.sent = 0;
        }
    }

    /// Gives the room of what is sent to who writes next.
    fn leave_room(&mut self) {
        let mut front = mem::take(&mut self.front);
        front.clear();
        if (1..=CHUNK).contains(&front.capacity()) {
            ROOM.set(front);
        }
    }
}
