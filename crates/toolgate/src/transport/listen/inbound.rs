//! The body of a request as the service sees it: hyper's, read without waking its own connection for nothing.
//!
//! Whoever takes a piece of a body wakes the task of its connection, so that it reads the next one. Here both are the
//! same task, and nearly always the piece was the last: the task would be run once more after every request, only to find
//! that there is nothing to do. So the waker that hyper is given ([`Line`]) knows when its own thread is just taking a
//! piece, and the wake-up is passed on only if there is more to come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::watch::Line;

/// See the module.
pub(crate) struct Inbound {
    body: Incoming,
    /// None where a body and its connection are different tasks: HTTP/2.
    line: Option<Arc<Line>>,
}

impl Inbound {
    pub(super) fn new(body: Incoming, line: Option<Arc<Line>>) -> Inbound {
        Inbound { body, line }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Inbound { body, line } = self.get_mut();
        let Some(line) = line else {
            return Pin::new(body).poll_frame(cx);
        };
        let (frame, was_woken) = line.without_waking(|| Pin::new(&mut *body).poll_frame(cx));
        // All of it is here, so hyper has nothing left to do for it: it told us the length, and counts along.
        let is_last = matches!(frame, Poll::Ready(Some(Ok(_)))) && body.is_end_stream();
        if was_woken && !is_last {
            line.wake_task();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
