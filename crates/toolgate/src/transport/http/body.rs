//! Bodies: reading a bounded one, sending a whole one or a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::Sleep;

use super::BoxError;
use super::sse::Events;
use crate::parcel::Parcel;

/// The body of an answer.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    /// What is still to be sent.
    Pieces(Option<Bytes>, Bytes),
    Events(Box<Events>),
}

impl Body {
    pub(super) fn empty() -> Body {
        Body(Kind::Pieces(None, Bytes::new()))
    }

    pub(super) fn full(bytes: Bytes) -> Body {
        Body(Kind::Pieces(Some(bytes), Bytes::new()))
    }

    pub(super) fn parcel(parcel: Parcel) -> Body {
        Body(Kind::Pieces(Some(parcel.head), parcel.tail))
    }

    pub(super) fn events(events: Events) -> Body {
        Body(Kind::Events(Box::new(events)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().0 {
            Kind::Pieces(first, then) => {
                let piece = first.take();
                if !then.is_empty() {
                    *first = Some(std::mem::take(then));
                }
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
            Kind::Events(events) => {
                events.poll_chunk(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Pieces(None, _))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pieces(first, then) => {
                SizeHint::with_exact((first.as_ref().map_or(0, Bytes::len) + then.len()) as u64)
            }
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooLong {
    TooLong,
    /// It ended early, or was framed wrongly.
    Broken,
}

/// The whole body, if it is not longer than `limit`. One that comes in one piece is not copied.
pub(super) async fn read<B>(body: B, limit: usize) -> Result<Bytes, TooLong>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut whole = Bytes::new();
    let mut more = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| TooLong::Broken)?.into_data() else {
            continue;
        };
        if whole.len() + more.len() + data.len() > limit {
            return Err(TooLong::TooLong);
        }
        if whole.is_empty() && more.is_empty() {
            whole = data;
        } else {
            more.extend_from_slice(&std::mem::take(&mut whole));
            more.extend_from_slice(&data);
        }
    }
    Ok(if more.is_empty() { whole } else { more.freeze() })
}

/// A future with a time limit whose timer is set only if it has to wait.
pub(super) struct Lazy<F> {
    future: F,
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Lazy<F> {
    /// The future's output, or none if it takes longer than `limit`.
    pub(super) fn within(limit: Duration, future: F) -> impl Future<Output = Option<F::Output>> {
        let mut lazy = Lazy { future: Box::pin(future), limit, sleep: None };
        std::future::poll_fn(move |cx| lazy.poll(cx))
    }
}

impl<F: Future> Lazy<Pin<Box<F>>> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let limit = self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        // Bytes that keep coming use up what tokio lets one poll do; the time limit must hold all the same.
        std::pin::pin!(tokio::task::unconstrained(sleep.as_mut())).poll(cx).map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let full = |text: &'static str| Full::new(Bytes::from_static(text.as_bytes()));
        assert_eq!(read(full("12345"), 5).await.unwrap(), "12345");
        assert_eq!(read(full("123456"), 5).await, Err(TooLong::TooLong));
        assert_eq!(read(full(""), 5).await.unwrap(), "");
    }

    #[tokio::test]
    async fn pieces_are_put_together() {
        let pieces = ["ab", "", "cd", "e"];
        let pieces = pieces
            .into_iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes()))));
        assert_eq!(read(Pieces(pieces.collect()), 5).await.unwrap(), "abcde");
    }

    struct Pieces(std::collections::VecDeque<Result<Frame<Bytes>, Infallible>>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        assert_eq!(Lazy::within(Duration::from_secs(1), std::future::pending::<()>()).await, None);
        assert_eq!(Lazy::within(Duration::from_secs(1), async { 7 }).await, Some(7));
    }
}
