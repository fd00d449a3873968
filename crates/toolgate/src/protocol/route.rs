//! Routing of decoded requests: calls that concern the connection are served here, all others are prepared for the
//! dispatcher.

use std::sync::{Arc, Mutex};

use toolgate_wire::model::{Call, Outcome};
use toolgate_wire::{ProtocolError, RequestId, ServerRequestMode, meta_key};

use super::ask_retry::RetryChannel;
use super::ask_reverse::ReverseChannel;
use super::decode::DecodedCall;
use super::exchange::{Exchange, FormattedError, RequestParts};
use super::in_flight::InFlightGuard;
use super::response::ResponseContext;
use super::session::Session;
use super::wire_format::WireFormat;
use super::{Channel, DecodedMessage, PreparedCall, Protocol};
use crate::dispatch::tasks_undeclared;
use crate::handler::ClientChannel;
use crate::request::{Caller, ClientTaskSupport, Request, task_owner};
use crate::util::cancel::Cancel;

/// The cancellation of a request, and its entry in the table of requests in flight.
pub(super) struct RegisteredCall {
    pub(super) cancel: Cancel,
    /// `None` if the request cannot be cancelled by a notification, because its sender has no session.
    pub(super) in_flight: Option<InFlightGuard>,
}

impl Protocol {
    /// Serves a call that concerns the connection, or prepares any other call for the dispatcher.
    pub(super) fn route_call(
        &self,
        exchange: &Exchange<'_>,
        request: RequestParts<'_>,
        mut decoded: DecodedCall,
    ) -> Result<DecodedMessage, FormattedError> {
        if decoded.caller.task_support == ClientTaskSupport::OnRequest
            && let Some(session) = &decoded.session
            && is_task_call(&decoded.call)
        {
            decoded.caller.owner = Some(task_owner(&decoded.caller.principal, Some(&session.id)));
        }
        if !is_connection_call(&decoded.call) {
            return self.prepare_call(exchange, request, decoded);
        }
        let DecodedCall { format, session, call, caller } = decoded;
        let served = match (&self.cluster, session) {
            (Some(_), Some(session)) if session.replica.is_some() && is_session_update(&call) => {
                self.update_cluster_session(&format, request.id, session, call, &caller)
            }
            (_, session) => {
                self.serve_connection_call(exchange, request.id, &format, session.as_ref(), call, &caller)
            }
        };
        served.map_err(|error| FormattedError { format, error })
    }

    /// Changes a session in the store, and replies when it is stored.
    fn update_cluster_session(
        &self,
        format: &WireFormat,
        id: &RequestId,
        session: Arc<Session>,
        call: Call,
        caller: &Caller,
    ) -> Result<DecodedMessage, ProtocolError> {
        if let Call::Subscribe { uri } = &call {
            self.check_resource_visible(caller, uri)?;
        }
        let Some(cluster) = self.cluster.clone() else {
            return Err(ProtocolError::method_not_found(call.method()));
        };
        let (reply, format, id) = (self.reply(format, id, &Outcome::Empty), format.clone(), id.clone());
        Ok(DecodedMessage::Deferred(Box::pin(async move {
            match cluster.update_session(&session, &call).await {
                Ok(()) => reply,
                Err(error) => format.error_reply(Some(&id), &error),
            }
        })))
    }

    /// Serves a call that concerns the connection: log level, subscriptions.
    fn serve_connection_call(
        &self,
        exchange: &Exchange<'_>,
        id: &RequestId,
        format: &WireFormat,
        session: Option<&Arc<Session>>,
        call: Call,
        caller: &Caller,
    ) -> Result<DecodedMessage, ProtocolError> {
        let peer = exchange.peer;
        match (call, session) {
            (Call::SetLevel(level), session) => {
                if let Some(session) = session {
                    session.set_level(level);
                }
            }
            (Call::Subscribe { uri }, Some(session)) => {
                self.check_resource_visible(caller, &uri)?;
                session.subscribe(&uri)?;
            }
            (Call::Unsubscribe { uri }, Some(session)) => session.unsubscribe(&uri),
            (Call::Subscribe { uri }, None) if self.can_subscribe_sessionless(format, peer) => {
                self.check_resource_visible(caller, &uri)?;
                self.subscribe_sessionless(peer, &uri)?;
            }
            (Call::Unsubscribe { uri }, None) if self.can_subscribe_sessionless(format, peer) => {
                self.unsubscribe_sessionless(peer, &uri);
            }
            (Call::Listen(mut filter), session) => {
                filter.uris.retain(|uri| !self.is_resource_hidden(caller, uri));
                if !filter.tasks.is_empty()
                    && caller.task_support == ClientTaskSupport::Undeclared
                    && (self.capabilities)().extensions.contains_key(meta_key::TASKS_EXTENSION)
                {
                    return Err(tasks_undeclared());
                }
                let registered = self.register_in_flight(exchange, id, session)?;
                let subscription =
                    self.open_subscription(exchange, id, format.version(), filter, caller, registered);
                return Ok(DecodedMessage::Subscription(subscription.serve()));
            }
            (call, _) => return Err(ProtocolError::method_not_found(call.method())),
        }
        Ok(DecodedMessage::Reply(self.reply(format, id, &Outcome::Empty)))
    }

    /// Prepares a call for the dispatcher: registers it for cancellation and opens its channel to the client.
    fn prepare_call(
        &self,
        exchange: &Exchange<'_>,
        request: RequestParts<'_>,
        decoded: DecodedCall,
    ) -> Result<DecodedMessage, FormattedError> {
        let DecodedCall { format, session, call, caller } = decoded;
        let registered = self.register_in_flight(exchange, request.id, session.as_ref());
        let RegisteredCall { cancel, in_flight } = match registered {
            Ok(registered) => registered,
            Err(error) => return Err(FormattedError { format, error }),
        };
        let version = format.version();
        // A client without a session cannot come back for the result, so its call ends when it hangs up.
        if session.is_some() && !version.behavior().disconnect_cancels {
            exchange.out.set_outlives_reader();
        }
        if exchange.is_post() && self.cluster.is_some() {
            exchange.out.add_request_id(request.id);
        }
        let accepts_stream = match &exchange.peer.via {
            Channel::Post { accepts_stream } => *accepts_stream,
            Channel::Duplex(_) => true,
        };
        let out = accepts_stream.then(|| Arc::clone(exchange.out));
        let method = call.method();
        let span = self.call_span(request.id, &call, &caller, session.as_deref());
        let (client_channel, retry_channel): (Arc<dyn ClientChannel>, _) =
            match version.behavior().server_requests {
                ServerRequestMode::Reverse => {
                    let channel = ReverseChannel {
                        version,
                        session,
                        out,
                        cancel: cancel.clone(),
                        log_level: self.sessionless_log_level(&format),
                        is_post: exchange.is_post(),
                        recorded_values: Mutex::default(),
                    };
                    (Arc::new(channel), None)
                }
                ServerRequestMode::Retry => {
                    let channel =
                        Arc::new(RetryChannel::new(version, &call, request.params, &caller, out, self));
                    (Arc::clone(&channel) as Arc<dyn ClientChannel>, Some(channel))
                }
            };
        let response_context = ResponseContext {
            wire_format: format,
            id: request.id.clone(),
            method,
            span,
            retry_channel,
            _in_flight: in_flight,
            cancel_on_drop: cancel.cancel_on_drop(),
        };
        let request = Request { call, caller, cancel };
        Ok(DecodedMessage::Call(PreparedCall { request, client_channel, response_context }))
    }

    /// Adds a request to the table of those in flight, so that `notifications/cancelled` finds it.
    fn register_in_flight(
        &self,
        exchange: &Exchange<'_>,
        id: &RequestId,
        session: Option<&Arc<Session>>,
    ) -> Result<RegisteredCall, ProtocolError> {
        let cancel = Cancel::new();
        let table = match (&exchange.peer.via, session) {
            (Channel::Duplex(connection), _) => {
                if connection.in_flight.contains(id) {
                    return Err(ProtocolError::invalid_request("a request with this id is in flight"));
                }
                connection.check_call_limit()?;
                &connection.in_flight
            }
            (Channel::Post { .. }, Some(session)) => {
                session.check_call_limit()?;
                &session.in_flight
            }
            (Channel::Post { .. }, None) => return Ok(RegisteredCall { cancel, in_flight: None }),
        };
        let in_flight = Some(table.insert(id, &cancel));
        Ok(RegisteredCall { cancel, in_flight })
    }

    fn check_resource_visible(&self, caller: &Caller, uri: &str) -> Result<(), ProtocolError> {
        match self.is_resource_hidden(caller, uri) {
            true => Err(ProtocolError::resource_not_found(uri)),
            false => Ok(()),
        }
    }

    /// Whether the profiles of the server and of the caller hide this resource.
    fn is_resource_hidden(&self, caller: &Caller, uri: &str) -> bool {
        let default_profile = self.default_profile.load();
        let profiles = [default_profile.as_deref(), caller.principal.profile()];
        profiles.into_iter().flatten().any(|profile| !profile.allows_resource(uri))
    }
}

/// Whether a call concerns the connection, so that it is served here and not by the dispatcher.
fn is_connection_call(call: &Call) -> bool {
    is_session_update(call) || matches!(call, Call::Initialize(_) | Call::Listen(_))
}

/// Whether a call changes the state of a session.
fn is_session_update(call: &Call) -> bool {
    matches!(call, Call::SetLevel(_) | Call::Subscribe { .. } | Call::Unsubscribe { .. })
}

/// Whether a call needs the owner of the tasks that the caller may see.
fn is_task_call(call: &Call) -> bool {
    matches!(
        call,
        Call::CallTool { task: Some(_), .. }
            | Call::GetTask { .. }
            | Call::UpdateTask { .. }
            | Call::CancelTask { .. }
            | Call::ListTasks { .. }
            | Call::TaskResult { .. }
            | Call::CreateTask { .. }
    )
}
