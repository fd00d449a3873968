//! The body of an answer: some bytes, and then either the end or silence.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// What follows the bytes.
#[derive(PartialEq, Eq)]
enum Then {
    End,
    /// The stream stays open and never says anything else.
    Silence,
}

/// Bytes to send, once.
pub(crate) struct Outgoing {
    bytes: Option<Bytes>,
    then: Then,
}

impl Outgoing {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self { bytes: Some(bytes), then: Then::End }
    }

    pub(crate) fn open(bytes: Bytes) -> Self {
        Self { bytes: Some(bytes), then: Then::Silence }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match (self.bytes.take(), &self.then) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, Then::End) => Poll::Ready(None),
            // Nothing will wake it but the end of the connection, which hyper watches.
            (None, Then::Silence) => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.then == Then::End
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.bytes, &self.then) {
            (_, Then::Silence) => SizeHint::default(),
            (Some(bytes), Then::End) => SizeHint::with_exact(bytes.len() as u64),
            (None, Then::End) => SizeHint::with_exact(0),
        }
    }
}
