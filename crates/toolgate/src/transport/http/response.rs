//! Builds responses with the headers that all responses of a kind have.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use toolgate_wire::ProtocolError;

use super::post_headers;
use super::reject::rejection_response;
use super::sse::SseBody;
use super::{Body, MountContext};
use crate::headers::SESSION_ID;
use crate::transport::RequestHead;

pub(super) fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(super) fn set_session_header(response: &mut Response<Body>, session: Option<Box<str>>) {
    if let Some(id) = session.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
}

pub(super) fn json_response(status: u16, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status_code(status);
    response.headers_mut().insert(header::CONTENT_TYPE, post_headers::JSON);
    set_default_headers(response.headers_mut());
    response
}

pub(super) fn event_stream_response(events: SseBody) -> Response<Body> {
    let mut response = Response::new(Body::events(events));
    // hyper keeps the header map of a response until its body has ended, for reuse: for a stream that can be hours, so
    // the map has room for the headers it will hold and no more.
    *response.headers_mut() = HeaderMap::with_capacity(12);
    set_sse_headers(response.headers_mut());
    response
}

pub(super) fn set_sse_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, post_headers::EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn set_default_headers(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

pub(super) fn empty_response(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    set_default_headers(response.headers_mut());
    response
}

/// A 405 response. Dialects get a message in the body too.
pub(super) fn method_not_allowed(
    head: &RequestHead,
    mount: &MountContext,
    allow: &'static str,
) -> Response<Body> {
    let mut response = match &mount.dialect {
        Some(_) => {
            let error =
                ProtocolError::invalid_request(format!("this endpoint allows {allow}")).with_status(405);
            rejection_response(&head.headers, mount.dialect.as_ref(), &error)
        }
        None => empty_response(StatusCode::METHOD_NOT_ALLOWED),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// The response to a CORS preflight request.
pub(super) fn preflight_response(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = headers;
    response
}

pub(super) fn with_connection_close(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
