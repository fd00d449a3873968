//! Messages that are not requests: notifications and responses of the client.

use toolgate_wire::model::Notification;
use toolgate_wire::{
    Frame, FrameError, FrameErrorKind, ProtocolError, ProtocolErrorKind, ProtocolVersion, RawJson, codec,
};

use super::exchange::{ClientState, Exchange, FormattedError};
use super::stateless;
use super::wire_format::WireFormat;
use super::{Channel, DecodedMessage, Protocol, Reply};
use crate::request::BoxFuture;

impl Protocol {
    /// Handles a notification or a response.
    pub(crate) fn receive(&self, exchange: &mut Exchange<'_>, frame: Frame) -> DecodedMessage {
        let reply = match frame {
            Frame::Notification { method, params } => {
                match self.receive_notification(exchange, &method, params.as_ref()) {
                    Ok(None) => Reply::Accepted,
                    Ok(Some(deferred)) => return DecodedMessage::Deferred(deferred),
                    Err(error) => error.reply(None),
                }
            }
            Frame::Response { id, outcome } => match exchange.client(self) {
                Ok(ClientState::Session(session)) => {
                    let cluster = self.cluster.as_ref().filter(|_| session.replica.is_some());
                    if let Some(forwarded) =
                        cluster.and_then(|cluster| cluster.forward_response(session, &id, &outcome))
                    {
                        let format = session.client.protocol_version.into();
                        return DecodedMessage::Deferred(accept_after(format, forwarded));
                    }
                    session.resolve_response(&id, outcome);
                    Reply::Accepted
                }
                Ok(_) => self.receive_unexpected_response(exchange),
                Err(error) => error.reply(None),
            },
            Frame::ErrorWithoutId { .. } | Frame::Request { .. } => {
                self.receive_unexpected_response(exchange)
            }
        };
        DecodedMessage::Reply(reply)
    }

    /// Handles a response to a request that the server did not send.
    fn receive_unexpected_response(&self, exchange: &mut Exchange<'_>) -> Reply {
        let ignores_unmatched = exchange.peer.dialect().ignore_unmatched_responses;
        if !exchange.is_post() {
            return Reply::Accepted;
        }
        match exchange.client(self) {
            Ok(ClientState::Session(_)) => Reply::Accepted,
            Ok(ClientState::Unversioned) if ignores_unmatched => Reply::Accepted,
            _ => {
                let error = ProtocolError::invalid_request("the response does not match a pending request");
                exchange.wire_format(self).error_reply(None, &error)
            }
        }
    }

    /// Handles a notification. Returns a future if it has to be forwarded to another process first.
    fn receive_notification(
        &self,
        exchange: &mut Exchange<'_>,
        method: &str,
        params: Option<&RawJson>,
    ) -> Result<Option<BoxFuture<'static, Reply>>, FormattedError> {
        let view = codec::ParamsView::new(params)
            .map_err(|error| FormattedError::new(exchange.wire_format(self), error))?;
        let peer = exchange.peer;
        if self.is_stateless(method, &view, peer.headers.mcp()) {
            if let Channel::Duplex(connection) = &peer.via
                && let Some((Notification::Cancelled { request: Some(id), .. }, _)) =
                    codec::read_notification(ProtocolVersion::LATEST, method, params)
            {
                connection.in_flight.cancel(&id);
            }
            return match stateless::check_method_header(method, peer) {
                Ok(()) => Ok(None),
                Err(error) => Err(FormattedError::new(ProtocolVersion::LATEST, error)),
            };
        }
        let (version, session) = match exchange.take_client(self)? {
            ClientState::Session(session) => (session.client.protocol_version, Some(session)),
            ClientState::Sessionless(version) => (version, None),
            ClientState::Unversioned => (ProtocolVersion::FALLBACK, None),
        };
        let notification = codec::read_notification(version, method, params);
        if let Some((Notification::Cancelled { request: Some(id), .. }, _)) = notification {
            // A stdio client with a stateless version does not carry client info in its notifications.
            match (&peer.via, session) {
                (Channel::Duplex(connection), _) => {
                    connection.in_flight.cancel(&id);
                }
                (Channel::Post { .. }, Some(session)) => {
                    if !session.in_flight.cancel(&id)
                        && let Some(cluster) = self.cluster.as_ref().filter(|_| session.replica.is_some())
                    {
                        let forwarded = cluster.forward_cancel(&session, &id);
                        return Ok(Some(accept_after(version.into(), forwarded)));
                    }
                }
                (Channel::Post { .. }, None) => {}
            }
        }
        Ok(None)
    }

    /// Replies to bytes that are not a JSON-RPC message.
    pub(crate) fn reject_frame(&self, exchange: &mut Exchange<'_>, error: &FrameError) -> Reply {
        let format = exchange.wire_format(self);
        let kind = match error.kind {
            FrameErrorKind::ParseError => ProtocolErrorKind::ParseError,
            FrameErrorKind::InvalidRequest => ProtocolErrorKind::InvalidRequest,
            // Without params, the client information that a stateless request must carry is missing.
            FrameErrorKind::InvalidParams if matches!(format, WireFormat::Versioned(_)) => {
                ProtocolErrorKind::InvalidClientMeta
            }
            FrameErrorKind::InvalidParams => ProtocolErrorKind::InvalidParams,
        };
        let protocol_error = ProtocolError::new(kind, error.detail.clone());
        format.error_reply(error.id.as_ref(), &protocol_error)
    }

    /// Whether the sender may send JSON-RPC batches.
    pub(crate) fn accepts_batches(&self, exchange: &mut Exchange<'_>) -> bool {
        let peer = exchange.peer;
        match exchange.client(self) {
            Ok(ClientState::Session(session)) => session.client.protocol_version.behavior().batches,
            Ok(ClientState::Sessionless(version)) => version.behavior().batches,
            Ok(ClientState::Unversioned) => match (peer.dialect().batches, &peer.via) {
                (Some(accepts), _) => accepts,
                (None, Channel::Post { .. }) => ProtocolVersion::FALLBACK.behavior().batches,
                // No known client sends a batch on a duplex connection before `initialize`.
                (None, Channel::Duplex(_)) => false,
            },
            Err(_) => false,
        }
    }
}

/// Replies with `Accepted` once the message was forwarded to another process.
fn accept_after(
    format: WireFormat,
    forwarded: impl Future<Output = Result<(), ProtocolError>> + Send + 'static,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        match forwarded.await {
            Ok(()) => Reply::Accepted,
            Err(error) => format.error_reply(None, &error),
        }
    })
}
