//! Change notifications: on the standalone stream of a session, or on a `subscriptions/listen` stream.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{Notification, Outcome, ServerCapabilities, SubscriptionFilter};
use toolgate_wire::{ProtocolVersion, RequestId, codec, meta_key};

use super::exchange::Exchange;
use super::in_flight::InFlightGuard;
use super::response::encode_versioned_response;
use super::route::RegisteredCall;
use super::session::Session;
use super::wire_format::WireFormat;
use super::{Channel, Protocol, Reply, ReplyKind, ServerInfo};
use crate::request::{BoxFuture, Caller, task_owner};
use crate::stream::Stream;
use crate::subscriptions::{ChangeTopic, Subscriber};
use crate::task::Tasks;
use crate::util::cancel::Cancel;

/// Maximum number of tasks that one `subscriptions/listen` can name; further ones are ignored.
const MAX_LISTENED_TASKS: usize = 100;

/// An open `subscriptions/listen` request.
pub(super) struct ListenSubscription {
    version: ProtocolVersion,
    id: RequestId,
    accepted: SubscriptionFilter,
    subscriber: Arc<Subscriber>,
    cancel: Cancel,
    /// The owner of the tasks that it may be notified of.
    owner: Arc<str>,
    out: Arc<Stream>,
    /// On a duplex connection: cancelled when no more input will come from the client.
    input_closed: Option<CancellationToken>,
    /// Cancelled when the server shuts down.
    drain: CancellationToken,
    server_info: Arc<ArcSwap<ServerInfo>>,
    tasks: Arc<Tasks>,
    _in_flight: Option<InFlightGuard>,
}

impl Protocol {
    pub(super) fn open_subscription(
        &self,
        exchange: &Exchange<'_>,
        id: &RequestId,
        version: ProtocolVersion,
        requested: SubscriptionFilter,
        caller: &Caller,
        registered: RegisteredCall,
    ) -> ListenSubscription {
        let input_closed = match &exchange.peer.via {
            Channel::Duplex(connection) => Some(connection.input_closed.clone()),
            Channel::Post { .. } => None,
        };
        let accepted = supported_filter(requested, &(self.capabilities)());
        let owner = caller.owner.clone().unwrap_or_else(|| task_owner(&caller.principal, None));
        ListenSubscription {
            version,
            id: id.clone(),
            // Subscribed before the acknowledgement is written: no change after it is missed.
            subscriber: self.subscriptions.subscribe_with_tasks(accepted.clone(), Arc::clone(&owner)),
            accepted,
            cancel: registered.cancel,
            owner,
            out: Arc::clone(exchange.out),
            input_closed,
            drain: self.drain.clone(),
            server_info: Arc::clone(&self.server_info),
            tasks: Arc::clone(&self.tasks),
            _in_flight: registered.in_flight,
        }
    }
}

impl ListenSubscription {
    /// Sends notifications until the client leaves or the server shuts down.
    pub(super) fn serve(self) -> BoxFuture<'static, Reply> {
        // Everything is borrowed from `self`, so that the future holds it once: thousands may listen, each for hours.
        Box::pin(async move { self.run().await })
    }

    async fn run(&self) -> Reply {
        let ListenSubscription { version, id, subscriber, cancel, out, .. } = self;
        let version = *version;
        let input_closed = async {
            match &self.input_closed {
                Some(input_closed) => input_closed.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let notifying = async {
            // Boxed because it happens once, so that the long wait takes less memory.
            if Box::pin(self.acknowledge()).await {
                send_changes(&self.tasks, subscriber, out, &version.into(), Some(id)).await;
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Reply::NoResponse,
            // Before `input_closed`, which a shutdown cancels too: the client is still there to receive the result.
            () = self.drain.cancelled() => self.end_for_shutdown(),
            () = input_closed => Reply::NoResponse,
            () = notifying => Reply::NoResponse,
        }
    }

    /// Sends the acknowledgement. Returns false if the reader is gone.
    async fn acknowledge(&self) -> bool {
        let mut accepted = self.accepted.clone();
        self.retain_own_tasks(&mut accepted).await;
        let notification = Notification::SubscriptionAcknowledged(accepted);
        send_notification(&self.out, self.version, &notification, Some(&self.id)).await
    }

    /// Removes tasks that the client may not see from the filter. Schedules a notification for those that have ended.
    async fn retain_own_tasks(&self, filter: &mut SubscriptionFilter) {
        // Each id is looked up in the store, so duplicates are removed and the number is limited.
        let mut ids: Vec<String> = Vec::new();
        for id in std::mem::take(&mut filter.tasks) {
            if ids.len() < MAX_LISTENED_TASKS && !ids.contains(&id) {
                ids.push(id);
            }
        }
        for id in ids {
            let Some(task) = self.tasks.try_get(&self.owner, &id).await else { continue };
            if task.status.is_terminal() {
                let (owner, id) = ((*self.owner).into(), id.as_str().into());
                self.subscriber.restore_changed(ChangeTopic::Task { owner, id });
            }
            filter.tasks.push(id);
        }
    }

    /// The result that ends the subscription when the server shuts down.
    fn end_for_shutdown(&self) -> Reply {
        let outcome = Outcome::ListenEnded { subscription_id: self.id.clone() };
        let body = encode_versioned_response(self.version, &self.id, &outcome, &self.server_info.load());
        if self.input_closed.is_none() {
            return Reply::Body { status: 200, body, session_id: None, kind: ReplyKind::Success };
        }
        // A duplex connection stays open after the result. Spec 2026-07-28 has two ways to end a subscription, the result
        // and `notifications/cancelled`, and does not say which a client waits for: it gets both, in this order.
        let mut message = Vec::with_capacity(96);
        let cancelled = Notification::Cancelled { request: Some(self.id.clone()), reason: None };
        if codec::write_notification(&mut message, self.version, &cancelled, None) {
            self.out.push(body.into_bytes());
            self.out.push(Bytes::from(message));
        }
        Reply::NoResponse
    }
}

impl Protocol {
    /// Sends change notifications of a session on `out`, until the session ends or the server shuts down.
    pub(crate) async fn send_session_changes(&self, session: &Session, out: &Stream) {
        let format = session.client.protocol_version.into();
        let notifying = send_changes(&self.tasks, session.subscriber(), out, &format, None);
        tokio::select! {
            biased;
            () = session.closed.cancelled() => {}
            () = self.drain.cancelled() => {}
            () = notifying => {}
        }
    }
}

/// Sends change notifications until the reader is gone. A change is taken only when there is room for its notification, so
/// that a change that this reader does not receive is left for the next one.
pub(super) async fn send_changes(
    tasks: &Tasks,
    subscriber: &Subscriber,
    out: &Stream,
    format: &WireFormat,
    subscription_id: Option<&RequestId>,
) {
    loop {
        subscriber.notified().await;
        out.wait_for_room().await;
        if out.is_abandoned() || out.is_finished() {
            return;
        }
        let Some(topic) = subscriber.take_changed() else { continue };
        let mut guard = TopicGuard { subscriber, topic: Some(topic.clone()) };
        let notification = match topic {
            ChangeTopic::Task { owner, id } => {
                // Boxed because it is rare, and thousands of these futures wait.
                Box::pin(tasks.try_get(&owner, &id))
                    .await
                    .map(|task| Notification::TaskStatus(Box::new(task)))
            }
            topic => notification_for(topic),
        };
        let mut message = Vec::with_capacity(160);
        if notification.is_none_or(|notification| {
            !format.write_notification(&mut message, &notification, subscription_id)
                || out.hint(message.into())
        }) {
            guard.topic = None;
        }
    }
}

/// The notification of a change. Returns `None` for a task, whose status has to be looked up first.
pub(super) fn notification_for(topic: ChangeTopic) -> Option<Notification> {
    Some(match topic {
        ChangeTopic::Tools => Notification::ToolsChanged,
        ChangeTopic::Prompts => Notification::PromptsChanged,
        ChangeTopic::Resources => Notification::ResourcesChanged,
        ChangeTopic::Resource(uri) => Notification::ResourceUpdated { uri: uri.into() },
        ChangeTopic::Roots => Notification::RootsChanged,
        ChangeTopic::Task { .. } => return None,
    })
}

/// A change that was taken from its subscriber, and is restored if its notification was not sent.
struct TopicGuard<'a> {
    subscriber: &'a Subscriber,
    topic: Option<ChangeTopic>,
}

impl Drop for TopicGuard<'_> {
    fn drop(&mut self) {
        if let Some(topic) = self.topic.take() {
            self.subscriber.restore_changed(topic);
        }
    }
}

/// Waits for room and sends a notification. Returns false if the reader is gone.
async fn send_notification(
    out: &Stream,
    version: ProtocolVersion,
    notification: &Notification,
    subscription_id: Option<&RequestId>,
) -> bool {
    let mut message = Vec::with_capacity(160);
    if !codec::write_notification(&mut message, version, notification, subscription_id) {
        return true;
    }
    out.send(Bytes::from(message)).await.is_ok()
}

/// Reduces a filter to the notifications that the server supports.
fn supported_filter(requested: SubscriptionFilter, capabilities: &ServerCapabilities) -> SubscriptionFilter {
    SubscriptionFilter {
        tools: requested.tools && capabilities.tools == Some(true),
        prompts: requested.prompts && capabilities.prompts == Some(true),
        resources: requested.resources && capabilities.resources == Some(true),
        uris: if capabilities.resource_updates { requested.uris } else { Vec::new() },
        tasks: if capabilities.extensions.contains_key(meta_key::TASKS_EXTENSION) {
            requested.tasks
        } else {
            Vec::new()
        },
    }
}
