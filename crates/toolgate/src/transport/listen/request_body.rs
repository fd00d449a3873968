//! The body of a request, as the service reads it.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

/// Initial capacity for a body of which little has arrived.
const INITIAL_CAPACITY_BYTES: usize = 16 * 1024;

/// See the module.
pub(crate) struct RequestBody(Kind);

enum Kind {
    /// hyper reads it.
    Hyper(Incoming),
    /// The whole body, until it is taken.
    Complete(Bytes),
    /// The rest has not arrived.
    Pending(PendingBody),
}

/// A body whose rest has not arrived. The socket is lent to the body while it is read, and taken back after the
/// response. It is read in the task of its connection, because a socket wakes one reader only.
#[derive(Clone)]
pub(super) struct PendingBody(Arc<Mutex<BodyReader>>);

pub(super) struct BodyReader {
    pub(super) socket: OwnedReadHalf,
    received: BytesMut,
    /// The bytes of the body that were not read yet.
    pub(super) remaining: u64,
}

impl RequestBody {
    pub(super) fn from_hyper(body: Incoming) -> RequestBody {
        RequestBody(Kind::Hyper(body))
    }

    pub(super) fn complete(body: Bytes) -> RequestBody {
        RequestBody(Kind::Complete(body))
    }

    pub(super) fn pending(body: PendingBody) -> RequestBody {
        RequestBody(Kind::Pending(body))
    }
}

impl PendingBody {
    pub(super) fn new(socket: OwnedReadHalf, received: &[u8], remaining: u64) -> PendingBody {
        let mut reader = BodyReader { socket, received: BytesMut::new(), remaining };
        reader.reserve(received.len());
        reader.received.extend_from_slice(received);
        PendingBody(Arc::new(Mutex::new(reader)))
    }

    /// Returns the reader, if the body was dropped.
    pub(super) fn into_reader(self) -> Option<BodyReader> {
        let reader = Arc::into_inner(self.0)?;
        Some(reader.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BodyReader {
    /// Grows with the bytes that arrived, not with those announced, because announcing costs nothing.
    fn reserve(&mut self, received: usize) {
        let wanted = usize::try_from(self.remaining)
            .map_or(usize::MAX, |remaining| remaining.saturating_add(received));
        self.received.reserve(wanted.min(INITIAL_CAPACITY_BYTES.max(self.received.len().max(received) * 4)));
    }

    /// Reads all that is available, but no further than the end of the body.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while self.remaining > 0 {
            if self.received.capacity() == self.received.len() {
                self.reserve(0);
            }
            let max = usize::try_from(self.remaining).unwrap_or(usize::MAX);
            let mut space = (&mut self.received).limit(max);
            // A read that is pending has read nothing, and is started again.
            match ready!(pin!(self.socket.read_buf(&mut space)).poll(cx))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                n => self.remaining = self.remaining.saturating_sub(n as u64),
            }
        }
        Poll::Ready(Ok(self.received.split().freeze()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let bytes = match &mut self.get_mut().0 {
            Kind::Hyper(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
            }
            Kind::Complete(bytes) => std::mem::take(bytes),
            Kind::Pending(PendingBody(reader)) => {
                let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                ready!(reader.poll_read(cx))?
            }
        };
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Hyper(body) => body.is_end_stream(),
            Kind::Complete(bytes) => bytes.is_empty(),
            Kind::Pending(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Hyper(body) => body.size_hint(),
            Kind::Complete(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pending(_) => SizeHint::default(),
        }
    }
}
