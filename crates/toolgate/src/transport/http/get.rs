//! GET: streams of a session, streams without a session, and the discovery document. DELETE: ends a session.

use std::sync::Arc;

use http::{Response, StatusCode};
use toolgate_wire::ProtocolError;

use super::admit::Admitted;
use super::reject::rejection_response;
use super::response::{empty_response, event_stream_response, json_response, method_not_allowed};
use super::service::Inner;
use super::sse::{self, SseBody};
use super::{Body, MAX_REQUEST_ID_BYTES, MountContext, OriginalPath};
use crate::headers::{LAST_EVENT_ID, SESSION_ID, single_value};
use crate::protocol::{Channel, ClusterStream, Peer, Reply};
use crate::stream::{Capacity, Stream};
use crate::subscriptions::Subscriber;
use crate::transport::RequestHead;

impl Inner {
    pub(super) async fn get(
        self: &Arc<Self>,
        head: &RequestHead,
        mount: &MountContext,
        admitted: Admitted,
    ) -> Response<Body> {
        let headers = &head.headers;
        let reject = |error: &ProtocolError| rejection_response(headers, mount.dialect.as_ref(), error);
        let scheme = admitted.response_policy().scheme();
        let peer = admitted.into_peer(head.clone(), Channel::Post { accepts_stream: true }, mount);
        if !headers.contains_key(SESSION_ID) {
            if headers.parsed().accepts.stream
                && let Some(subscriber) = self.engine.protocol.open_sessionless_stream(&peer)
            {
                return self.sessionless_stream(subscriber, peer);
            }
            let discovery = match headers.parsed().accepts.stream {
                true => None,
                false => {
                    let original = head.extensions.get::<OriginalPath>();
                    let path = original.map_or_else(|| head.uri.path(), |original| &original.0);
                    let address = self.guards.load().hosts.public_address(scheme, &head.uri, headers, path);
                    self.engine.discovery_document(&peer, query_id(head).as_deref(), &address)
                }
            };
            return discovery
                .map_or_else(|| method_not_allowed(head, mount, "POST"), |body| json_response(200, body));
        }
        if !headers.parsed().accepts.stream {
            return reject(
                &ProtocolError::invalid_request("GET requires `Accept: text/event-stream`").with_status(406),
            );
        }
        let last_event_id = match single_value(headers, &LAST_EVENT_ID) {
            Ok(last_event_id) => last_event_id,
            Err(_) => {
                return reject(&ProtocolError::invalid_request("header last-event-id must be sent once"));
            }
        };
        if let Err(error) = self.prepare(&peer).await {
            return reject(&error);
        }
        if let Some(cluster) = &self.engine.protocol.cluster {
            return match self.engine.protocol.open_cluster_stream(cluster, &peer, last_event_id).await {
                Ok(ClusterStream { number, reader, driver }) => event_stream_response(
                    SseBody::new(reader, self.options.sse_keep_alive)
                        .with_stream_number(number)
                        .with_driver(driver),
                ),
                Err(error) => reject(&error),
            };
        }
        let opened = match self.engine.protocol.open_get_stream(&peer, last_event_id) {
            Ok(opened) => opened,
            Err(error) => return reject(&error),
        };
        let reader = match opened.after {
            Some(after) => opened.stream.attach(after),
            None => Some(opened.stream.reader()),
        };
        let Some(reader) = reader else {
            return reject(&ProtocolError::invalid_request("that position in the stream is not available"));
        };
        let mut events = SseBody::new(reader, self.options.sse_keep_alive).with_stream_number(opened.number);
        if opened.number == 0 {
            let (engine, out, session) =
                (Arc::clone(&self.engine), Arc::clone(&opened.stream), opened.session);
            events = events.with_driver(Box::pin(async move {
                engine.protocol.send_session_changes(&session, &out).await;
                Reply::NoResponse
            }));
        }
        event_stream_response(events)
    }

    /// Opens a stream of change notifications for a client without a session. It cannot be resumed: a client that
    /// reconnects receives the changes from then on.
    fn sessionless_stream(&self, subscriber: Arc<Subscriber>, peer: Peer) -> Response<Body> {
        let (engine, out) = (Arc::clone(&self.engine), Stream::new(Capacity::default()));
        let events =
            SseBody::new(out.reader(), self.options.sse_keep_alive).with_preamble(sse::retry_event());
        event_stream_response(events.with_driver(Box::pin(async move {
            engine.protocol.send_sessionless_changes(&subscriber, &peer, &out).await;
            Reply::NoResponse
        })))
    }

    /// Loads the session of a request without a body, before the protocol layer answers it.
    async fn prepare(&self, peer: &Peer) -> Result<(), ProtocolError> {
        match self.engine.protocol.prepare(peer) {
            Some(preparing) => preparing.await,
            None => Ok(()),
        }
    }

    pub(super) async fn delete(
        &self,
        head: &RequestHead,
        mount: &MountContext,
        admitted: Admitted,
    ) -> Response<Body> {
        if !head.headers.contains_key(SESSION_ID) {
            return method_not_allowed(head, mount, "POST");
        }
        let peer = admitted.into_peer(head.clone(), Channel::Post { accepts_stream: false }, mount);
        let ended = match self.prepare(&peer).await {
            Ok(()) => self.engine.protocol.end_session(&peer).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => empty_response(StatusCode::NO_CONTENT),
            Err(error) => rejection_response(&head.headers, mount.dialect.as_ref(), &error),
        }
    }
}

/// The id for the discovery document, from the query.
fn query_id(head: &RequestHead) -> Option<String> {
    let pairs = head.uri.query()?.split('&');
    let id = { pairs }.find_map(|pair| pair.strip_prefix("id="))?;
    (!id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES).then(|| id.to_owned())
}
