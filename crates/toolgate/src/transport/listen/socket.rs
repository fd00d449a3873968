//! The TCP stream as hyper sees it: counts and scans the bytes.
//!
//! It reports the events for the deadlines to [`SharedActivity`] (bytes arrived, a write is blocked, the peer has closed),
//! feeds the bytes to [`HeadScanner`], and makes hyper reject the requests that the scanner rejects. It has no timers.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::deadlines::SharedActivity;
use super::smuggling::HeadScanner;
use super::{MAX_DISCARDED_BYTES, READ_BUFFER_BYTES};

/// Size of the reads before the HTTP version is known: as much as hyper reads then.
const FIRST_READ_BYTES: usize = super::MIN_HEAD_BYTES;

/// The bytes that hyper reads in place of rejected ones. A head cannot contain a NUL, so hyper answers 400 and closes, and the
/// empty line makes it do so at once.
const INVALID_HEAD: &[u8] = b"\0\r\n\r\n";

/// The start of hyper's response to a head over the limit.
const HEAD_TOO_LARGE_PREFIX: &[u8] = b"HTTP/1.1 431 ";

/// Our response if that head was one long request line.
const TARGET_TOO_LONG_RESPONSE: &[u8] =
    b"HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A TCP stream with its scanner and the activity of the connection.
pub(super) struct Socket {
    stream: TcpStream,
    activity: Arc<SharedActivity>,
    scanner: HeadScanner,
    rejection: InputRejection,
    /// Whether our side is closed and the input of the peer is discarded.
    is_shut_down: bool,
    /// How many bytes were discarded.
    discarded: usize,
    /// The bytes that were read before the HTTP version was known. hyper reads them first, and all at once: in
    /// pieces, it would reserve twice the room for as long as the connection lasts.
    prefetched: Vec<u8>,
}

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// The bytes that every HTTP/2 connection begins with.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether bytes were rejected.
enum InputRejection {
    None,
    /// They were, and these are still to be read in their place; once empty, the input ends.
    Injecting(&'static [u8]),
}

impl Socket {
    /// A stream from which these bytes were read. It can be HTTP/2 only if they are the first of the connection.
    pub(super) fn new(
        stream: TcpStream,
        activity: Arc<SharedActivity>,
        prefetched: Vec<u8>,
        is_first: bool,
    ) -> Self {
        let scanner = if is_first { HeadScanner::new() } else { HeadScanner::after_first_request() };
        Self {
            stream,
            activity,
            scanner,
            rejection: InputRejection::None,
            is_shut_down: false,
            discarded: 0,
            prefetched,
        }
    }

    /// Reads until the HTTP version is known. `None`: the peer has closed.
    pub(super) fn poll_version(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<HttpVersion>>> {
        loop {
            if self.prefetched.starts_with(HTTP2_PREFACE) && self.scanner.is_at_start() {
                return Poll::Ready(Ok(Some(HttpVersion::Http2)));
            }
            if !HTTP2_PREFACE.starts_with(&self.prefetched) || !self.scanner.is_at_start() {
                return Poll::Ready(Ok(Some(HttpVersion::Http1)));
            }
            let mut space = [const { MaybeUninit::uninit() }; FIRST_READ_BYTES];
            let mut chunk = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(None));
            }
            self.prefetched.extend_from_slice(chunk.filled());
        }
    }

    /// Whether there are bytes that hyper has not read.
    pub(super) fn has_prefetched(&self) -> bool {
        !self.prefetched.is_empty()
    }

    /// Reads through a separate buffer, because safe code cannot see the bytes written to hyper's.
    fn poll_read_scanned(&mut self, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_BUFFER_BYTES];
        let n = into.remaining().min(READ_BUFFER_BYTES);
        let mut chunk = ReadBuf::uninit(&mut space[..n]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut chunk))?;
        self.forward(chunk.filled(), into);
        Poll::Ready(Ok(()))
    }

    /// Gives hyper the bytes that were read, up to the first that is rejected.
    fn forward(&mut self, bytes: &[u8], mut into: ReadBufCursor<'_>) {
        if !bytes.is_empty() {
            self.activity.set_input();
        }
        match self.scanner.feed(bytes) {
            Ok(()) => into.put_slice(bytes),
            Err(0) => {
                let n = INVALID_HEAD.len().min(into.remaining());
                into.put_slice(&INVALID_HEAD[..n]);
                self.rejection = InputRejection::Injecting(&INVALID_HEAD[n..]);
            }
            Err(accepted) => {
                into.put_slice(&bytes[..accepted]);
                self.rejection = InputRejection::Injecting(INVALID_HEAD);
            }
        }
        if self.scanner.is_http2() {
            self.activity.set_http2();
        }
    }

    /// Detects that the peer has closed while its request is being answered: hyper, set to accept half-closed
    /// connections, does not look.
    ///
    /// Costs a system call only after the kernel has reported that there is something to read.
    fn detect_peer_close(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.scanner.is_http2() || !self.activity.is_busy() || self.activity.is_peer_closed() {
            return Ok(());
        }
        let mut byte = [MaybeUninit::uninit()];
        match self.stream.poll_peek(cx, &mut ReadBuf::uninit(&mut byte)) {
            Poll::Ready(Ok(0)) => {
                self.activity.set_peer_closed();
                Ok(())
            }
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    fn record_write(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.record_write(&result);
        result
    }

    /// Whether [`TARGET_TOO_LONG_RESPONSE`] replaces hyper's response.
    fn is_target_too_long(&self, response: &[u8]) -> bool {
        self.scanner.is_in_long_request_line() && response.starts_with(HEAD_TOO_LARGE_PREFIX)
    }

    fn poll_write_target_too_long(
        &mut self,
        cx: &mut Context<'_>,
        instead_of: usize,
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.stream).poll_write(cx, TARGET_TOO_LONG_RESPONSE))?;
        if n < TARGET_TOO_LONG_RESPONSE.len() {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        Poll::Ready(Ok(instead_of))
    }

    /// Discards further input of the peer. Closing with unread bytes would make the kernel reset the connection, and
    /// the peer could lose the response.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut space = [const { MaybeUninit::uninit() }; READ_BUFFER_BYTES];
            let mut chunk = ReadBuf::uninit(&mut space);
            // An error ends it just as well: the response is sent.
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut chunk)) {
                Ok(()) if !chunk.filled().is_empty() && self.discarded < MAX_DISCARDED_BYTES => {
                    self.discarded += chunk.filled().len();
                }
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    fn is_mid_request(&self) -> bool {
        !self.scanner.is_http2()
            && (!self.scanner.is_between_requests() || matches!(self.rejection, InputRejection::Injecting(_)))
    }
}

impl Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let InputRejection::Injecting(rest) = &mut this.rejection {
            let n = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..n]);
            *rest = &rest[n..];
            return Poll::Ready(Ok(()));
        }
        if this.has_prefetched() {
            let later = this.prefetched.split_off(this.prefetched.len().min(buf.remaining()));
            let now = std::mem::replace(&mut this.prefetched, later);
            this.forward(&now, buf);
            return Poll::Ready(Ok(()));
        }
        if !this.scanner.is_passthrough() {
            return this.poll_read_scanned(cx, buf);
        }
        ready!(Pin::new(&mut TokioIo::new(&mut this.stream)).poll_read(cx, buf))?;
        this.activity.set_input();
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_target_too_long(buf) {
            return this.poll_write_target_too_long(cx, buf.len());
        }
        let result = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.record_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bufs.first().is_some_and(|buf| this.is_target_too_long(buf)) {
            return this.poll_write_target_too_long(cx, bufs.iter().map(|buf| buf.len()).sum());
        }
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.record_write(result)
    }

    /// TCP has nothing to flush, but hyper calls this at the end of every pass.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().detect_peer_close(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut_down {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.is_shut_down = true;
            this.activity.set_closing();
        }
        if this.is_mid_request() {
            return this.poll_discard(cx);
        }
        Poll::Ready(Ok(()))
    }
}
