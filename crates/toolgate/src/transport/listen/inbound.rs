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
const ROOM: usize = 16 * 1024;

/// See the module.
pub(crate) struct Inbound(Kind);

enum Kind {
    /// As hyper reads it.
    Hyper(Incoming),
    /// All of it, until it is taken.
    Here(Bytes),
    /// It is still coming.
    Coming(Coming),
}

/// A body that is still coming. The socket is lent to whoever reads it, and taken back after the answer. It is read in the
/// task of its connection: a socket wakes one reader.
#[derive(Clone)]
pub(super) struct Coming(Arc<Mutex<Rest>>);

pub(super) struct Rest {
    pub(super) socket: OwnedReadHalf,
    so_far: BytesMut,
    /// How much of the body has not been read.
    pub(super) left: u64,
}

impl Inbound {
    pub(super) fn by_hyper(body: Incoming) -> Inbound {
        Inbound(Kind::Hyper(body))
    }

    pub(super) fn here(body: Bytes) -> Inbound {
        Inbound(Kind::Here(body))
    }

    pub(super) fn coming(body: Coming) -> Inbound {
        Inbound(Kind::Coming(body))
    }
}

impl Coming {
    pub(super) fn new(socket: OwnedReadHalf, so_far: &[u8], left: u64) -> Coming {
        let mut rest = Rest { socket, so_far: BytesMut::new(), left };
        rest.make_room(so_far.len());
        rest.so_far.extend_from_slice(so_far);
        Coming(Arc::new(Mutex::new(rest)))
    }

    /// What is left, if nobody reads it any more.
    pub(super) fn take_back(self) -> Option<Rest> {
        let rest = Arc::into_inner(self.0)?;
        Some(rest.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Rest {
    /// Grows with what has come, not with what was announced: to announce costs nothing.
    fn make_room(&mut self, come: usize) {
        let wanted = usize::try_from(self.left).map_or(usize::MAX, |left| left.saturating_add(come));
        self.so_far.reserve(wanted.min(ROOM.max(self.so_far.len().max(come) * 4)));
    }

    /// Reads all there is, and no further than the body goes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while self.left > 0 {
            if self.so_far.capacity() == self.so_far.len() {
                self.make_room(0);
            }
            let most = usize::try_from(self.left).unwrap_or(usize::MAX);
            let mut space = (&mut self.so_far).limit(most);
            // A read that has to wait has read nothing, and is begun again.
            match ready!(pin!(self.socket.read_buf(&mut space)).poll(cx))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                n => self.left = self.left.saturating_sub(n as u64),
            }
        }
        Poll::Ready(Ok(self.so_far.split().freeze()))
    }
}

impl Body for Inbound {
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
            Kind::Here(all) => std::mem::take(all),
            Kind::Coming(Coming(rest)) => {
                let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
                ready!(rest.poll(cx))?
            }
        };
        Poll::Ready((!all.is_empty()).then(|| Ok(Frame::data(all))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Hyper(body) => body.is_end_stream(),
            Kind::Here(all) => all.is_empty(),
            Kind::Coming(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Hyper(body) => body.size_hint(),
            Kind::Here(all) => SizeHint::with_exact(all.len() as u64),
            Kind::Coming(_) => SizeHint::default(),
        }
    }
}
