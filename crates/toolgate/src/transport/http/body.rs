//! Bodies: reading a bounded one, sending a whole one or a stream.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;
use toolgate_wire::ProtocolError;

use super::BoxError;
use super::post_headers::body_too_large;
use super::sse::SseBody;
use crate::guard::PrebuiltHeaders;
use crate::util::segments::Segments;

/// The body of an answer.
#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// What is to be sent before it and is not among the headers: only our own listener gets to see this.
    prebuilt_headers: Option<Arc<PrebuiltHeaders>>,
}

#[derive(Debug)]
enum Kind {
    /// What is still to be sent.
    Chunks(Option<Bytes>, Bytes),
    Events(Box<SseBody>),
}

impl Body {
    pub(super) fn empty() -> Body {
        Body::from_kind(Kind::Chunks(None, Bytes::new()))
    }

    fn from_kind(kind: Kind) -> Body {
        Body { kind, prebuilt_headers: None }
    }

    /// The same, whose answer has these headers and no others.
    pub(super) fn with_prebuilt_headers(self, outfit: Arc<PrebuiltHeaders>) -> Body {
        Body { prebuilt_headers: Some(outfit), ..self }
    }

    /// What an answer is to say beside its headers, as lines.
    pub(crate) fn header_lines(&self) -> &[u8] {
        self.prebuilt_headers.as_ref().map_or(&[], |outfit| &outfit.lines)
    }

    /// An answer with all its headers where others look for them.
    pub(crate) fn into_full_response(mut response: Response<Body>) -> Response<Body> {
        if let Some(outfit) = response.body_mut().prebuilt_headers.take() {
            *response.headers_mut() = outfit.map.clone();
        }
        response
    }

    pub(super) fn full(bytes: Bytes) -> Body {
        Body::from_kind(Kind::Chunks(Some(bytes), Bytes::new()))
    }

    pub(super) fn segments(parcel: Segments) -> Body {
        Body::from_kind(Kind::Chunks(Some(parcel.head), parcel.tail))
    }

    pub(super) fn events(events: SseBody) -> Body {
        Body::from_kind(Kind::Events(Box::new(events)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().kind {
            Kind::Chunks(first, then) => {
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
        matches!(self.kind, Kind::Chunks(None, _))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Chunks(first, then) => {
                SizeHint::with_exact((first.as_ref().map_or(0, Bytes::len) + then.len()) as u64)
            }
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadBodyError {
    TooLarge,
    /// It ended early, or was framed wrongly.
    Malformed,
    /// It did not come in time.
    Timeout,
}

impl ReadBodyError {
    pub(super) fn to_protocol_error(&self, limit: usize) -> ProtocolError {
        match self {
            ReadBodyError::TooLarge => body_too_large(limit),
            ReadBodyError::Malformed => {
                ProtocolError::invalid_request("the body ended early or was malformed")
            }
            ReadBodyError::Timeout => {
                ProtocolError::invalid_request("the body did not arrive in time").with_status(408)
            }
        }
    }
}

/// The whole body, if it is not longer than `limit` and here within `time`. One that comes in one piece is not copied, and
/// for one that is there already no timer is set: most are.
pub(super) async fn read_body<B>(
    mut body: Pin<&mut B>,
    limit: usize,
    time: Duration,
) -> Result<Bytes, ReadBodyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut pieces = BodyBuffer::default();
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data()
                        && !pieces.push(data, limit)
                    {
                        return Poll::Ready(Err(ReadBodyError::TooLarge));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(ReadBodyError::Malformed)),
                Poll::Ready(None) => return Poll::Ready(Ok(pieces.take())),
                Poll::Pending => break,
            }
        }
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        // Bytes that keep coming use up what tokio lets one poll do; the time limit must hold all the same.
        pin!(tokio::task::unconstrained(sleep.as_mut())).poll(cx).map(|()| Err(ReadBodyError::Timeout))
    })
    .await
}

/// What has come of a body.
#[derive(Default)]
struct BodyBuffer {
    first: Bytes,
    /// All of it, where there is more than one. Boxed, because every request has room for this.
    joined: Option<Box<BytesMut>>,
}

impl BodyBuffer {
    /// False if it is too much.
    fn push(&mut self, data: Bytes, limit: usize) -> bool {
        let so_far = self.joined.as_ref().map_or(self.first.len(), |more| more.len());
        if so_far + data.len() > limit {
            return false;
        }
        match &mut self.joined {
            Some(more) => more.extend_from_slice(&data),
            None if self.first.is_empty() => self.first = data,
            None => {
                let mut more = BytesMut::with_capacity(so_far + data.len());
                more.extend_from_slice(&std::mem::take(&mut self.first));
                more.extend_from_slice(&data);
                self.joined = Some(Box::new(more));
            }
        }
        true
    }

    fn take(&mut self) -> Bytes {
        match self.joined.take() {
            Some(more) => more.freeze(),
            None => std::mem::take(&mut self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let full = |text: &'static str| Full::new(Bytes::from_static(text.as_bytes()));
        assert_eq!(read_body(pin!(full("12345")), 5, MINUTE).await.unwrap(), "12345");
        assert_eq!(read_body(pin!(full("123456")), 5, MINUTE).await, Err(ReadBodyError::TooLarge));
        assert_eq!(read_body(pin!(full("")), 5, MINUTE).await.unwrap(), "");
    }

    #[tokio::test]
    async fn pieces_are_put_together() {
        let pieces = ["ab", "", "cd", "e"];
        let pieces = pieces
            .into_iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes()))));
        assert_eq!(read_body(pin!(ChunkedBody(pieces.collect(), true)), 5, MINUTE).await.unwrap(), "abcde");
    }

    /// Pieces, and whether the body ends behind them.
    struct ChunkedBody(std::collections::VecDeque<Result<Frame<Bytes>, Infallible>>, bool);

    impl http_body::Body for ChunkedBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                None if !self.1 => Poll::Pending,
                piece => Poll::Ready(piece),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        let endless = ChunkedBody([Ok(Frame::data(Bytes::from_static(b"a")))].into(), false);
        assert_eq!(read_body(pin!(endless), 5, MINUTE).await, Err(ReadBodyError::Timeout));
    }
}
