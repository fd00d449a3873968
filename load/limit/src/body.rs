//! A response body: some bytes, after which the stream ends or stays open.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// What happens after the bytes.
#[derive(PartialEq, Eq)]
enum BodyEnd {
    End,
    /// The stream stays open and sends nothing else.
    StayOpen,
}

/// A body with one chunk.
pub(crate) struct ResponseBody {
    bytes: Option<Bytes>,
    end: BodyEnd,
}

impl ResponseBody {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self { bytes: Some(bytes), end: BodyEnd::End }
    }

    pub(crate) fn open(bytes: Bytes) -> Self {
        Self { bytes: Some(bytes), end: BodyEnd::StayOpen }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match (self.bytes.take(), &self.end) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, BodyEnd::End) => Poll::Ready(None),
            // No waker is needed: only the end of the connection matters, and hyper watches that.
            (None, BodyEnd::StayOpen) => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.end == BodyEnd::End
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.bytes, &self.end) {
            (_, BodyEnd::StayOpen) => SizeHint::default(),
            (Some(bytes), BodyEnd::End) => SizeHint::with_exact(bytes.len() as u64),
            (None, BodyEnd::End) => SizeHint::with_exact(0),
        }
    }
}
