//! Request bodies with a size limit, and response bodies of known length or of a stream.

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

/// The body of a response.
#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// Headers that are sent in front of the body and are not in the header map: only our own listener writes them.
    prebuilt_headers: Option<Arc<PrebuiltHeaders>>,
}

#[derive(Debug)]
enum Kind {
    /// The chunks still to be sent.
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

    /// Sets the headers of the response; it then has no others.
    pub(super) fn with_prebuilt_headers(self, headers: Arc<PrebuiltHeaders>) -> Body {
        Body { prebuilt_headers: Some(headers), ..self }
    }

    /// The prebuilt headers, as lines of HTTP/1.1.
    pub(crate) fn header_lines(&self) -> &[u8] {
        self.prebuilt_headers.as_ref().map_or(&[], |headers| &headers.lines)
    }

    /// Moves the prebuilt headers into the header map, where every other listener expects them.
    pub(crate) fn into_full_response(mut response: Response<Body>) -> Response<Body> {
        if let Some(headers) = response.body_mut().prebuilt_headers.take() {
            *response.headers_mut() = headers.map.clone();
        }
        response
    }

    pub(super) fn full(bytes: Bytes) -> Body {
        Body::from_kind(Kind::Chunks(Some(bytes), Bytes::new()))
    }

    pub(super) fn segments(segments: Segments) -> Body {
        Body::from_kind(Kind::Chunks(Some(segments.head), segments.tail))
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
            Kind::Chunks(first, second) => {
                let chunk = first.take();
                if !second.is_empty() {
                    *first = Some(std::mem::take(second));
                }
                Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
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
            Kind::Chunks(first, second) => {
                SizeHint::with_exact((first.as_ref().map_or(0, Bytes::len) + second.len()) as u64)
            }
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadBodyError {
    TooLarge,
    /// It ended early, or its framing is malformed.
    Malformed,
    /// It did not arrive in time.
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

/// Reads the whole body, if it is at most `limit` bytes long and arrives within `timeout`. A body that arrives in one
/// chunk is not copied, and no timer is created for one that has already arrived: both are the common case.
pub(super) async fn read_body<B>(
    mut body: Pin<&mut B>,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, ReadBodyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut buffer = BodyBuffer::default();
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data()
                        && !buffer.push(data, limit)
                    {
                        return Poll::Ready(Err(ReadBodyError::TooLarge));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(ReadBodyError::Malformed)),
                Poll::Ready(None) => return Poll::Ready(Ok(buffer.take())),
                Poll::Pending => break,
            }
        }
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        // A steady flow of bytes uses up tokio's budget for one poll; the time limit must hold all the same.
        pin!(tokio::task::unconstrained(sleep.as_mut())).poll(cx).map(|()| Err(ReadBodyError::Timeout))
    })
    .await
}

/// The part of a body that has arrived.
#[derive(Default)]
struct BodyBuffer {
    first: Bytes,
    /// All chunks, if there is more than one. Boxed, because every request reserves room for this struct.
    joined: Option<Box<BytesMut>>,
}

impl BodyBuffer {
    /// Returns false if the body is longer than the limit.
    fn push(&mut self, data: Bytes, limit: usize) -> bool {
        let length = self.joined.as_ref().map_or(self.first.len(), |joined| joined.len());
        if length + data.len() > limit {
            return false;
        }
        match &mut self.joined {
            Some(joined) => joined.extend_from_slice(&data),
            None if self.first.is_empty() => self.first = data,
            None => {
                let mut joined = BytesMut::with_capacity(length + data.len());
                joined.extend_from_slice(&std::mem::take(&mut self.first));
                joined.extend_from_slice(&data);
                self.joined = Some(Box::new(joined));
            }
        }
        true
    }

    fn take(&mut self) -> Bytes {
        match self.joined.take() {
            Some(joined) => joined.freeze(),
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
    async fn chunks_are_joined() {
        let pieces = ["ab", "", "cd", "e"];
        let pieces = pieces
            .into_iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes()))));
        assert_eq!(read_body(pin!(ChunkedBody(pieces.collect(), true)), 5, MINUTE).await.unwrap(), "abcde");
    }

    /// Chunks, and whether the body ends after them.
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
    async fn a_body_that_stalls_times_out() {
        let endless = ChunkedBody([Ok(Frame::data(Bytes::from_static(b"a")))].into(), false);
        assert_eq!(read_body(pin!(endless), 5, MINUTE).await, Err(ReadBodyError::Timeout));
    }
}
