//! The body of a request as the service sees it.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

/// As much room is made for a body of which little has come.
const INITIAL_CAPACITY_BYTES: usize = 16 * 1024;

/// See the module.
pub(crate) struct RequestBody(Kind);

enum Kind {
    /// As hyper reads it.
    Hyper(Incoming),
    /// All of it, until it is taken.
    Complete(Bytes),
    /// It is still coming.
    Pending(PendingBody),
}

/// A body that is still coming. The socket is lent to whoever reads it, and taken back after the answer. It is read in the
/// task of its connection: a socket wakes one reader.
#[derive(Clone)]
pub(super) struct PendingBody(Arc<Mutex<BodyReader>>);

pub(super) struct BodyReader {
    pub(super) socket: OwnedReadHalf,
    received: BytesMut,
    /// How much of the body has not been read.
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
    pub(super) fn new(socket: OwnedReadHalf, so_far: &[u8], left: u64) -> PendingBody {
        let mut rest = BodyReader { socket, received: BytesMut::new(), remaining: left };
        rest.reserve(so_far.len());
        rest.received.extend_from_slice(so_far);
        PendingBody(Arc::new(Mutex::new(rest)))
    }

    /// What is left, if nobody reads it any more.
    pub(super) fn into_reader(self) -> Option<BodyReader> {
        let rest = Arc::into_inner(self.0)?;
        Some(rest.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BodyReader {
    /// Grows with what has come, not with what was announced: to announce costs nothing.
    fn reserve(&mut self, come: usize) {
        let wanted = usize::try_from(self.remaining).map_or(usize::MAX, |left| left.saturating_add(come));
        self.received.reserve(wanted.min(INITIAL_CAPACITY_BYTES.max(self.received.len().max(come) * 4)));
    }

    /// Reads all there is, and no further than the body goes.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while self.remaining > 0 {
            if self.received.capacity() == self.received.len() {
                self.reserve(0);
            }
            let most = usize::try_from(self.remaining).unwrap_or(usize::MAX);
            let mut space = (&mut self.received).limit(most);
            // A read that has to wait has read nothing, and is begun again.
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
        let all = match &mut self.get_mut().0 {
            Kind::Hyper(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
            }
            Kind::Complete(all) => std::mem::take(all),
            Kind::Pending(PendingBody(rest)) => {
                let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
                ready!(rest.poll_read(cx))?
            }
        };
        Poll::Ready((!all.is_empty()).then(|| Ok(Frame::data(all))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Hyper(body) => body.is_end_stream(),
            Kind::Complete(all) => all.is_empty(),
            Kind::Pending(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Hyper(body) => body.size_hint(),
            Kind::Complete(all) => SizeHint::with_exact(all.len() as u64),
            Kind::Pending(_) => SizeHint::default(),
        }
    }
}
