//! Change notices on their way to a client: on the standing stream of a session, or on a stream that the
//! client opened to listen.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{Notification, Outcome, ServerCapabilities, SubscriptionFilter};
use toolgate_wire::{ProtocolVersion, RequestId, codec, meta_key};

use super::session::{InFlightGuard, Session};
use super::wire_format::WireFormat;
use super::{Channel, Peer, Protocol, Reply};
use crate::request::{Caller, task_owner};
use crate::stream::Stream;
use crate::subscriptions::{ChangeTopic, Subscriber};
use crate::task::Tasks;
use crate::util::cancel::Cancel;

/// How many tasks one listener can name; what is more is left out.
const MAX_LISTENED_TASKS: usize = 100;

/// A client that listens, until it or the house has enough.
pub(crate) struct ListenSubscription {
    version: ProtocolVersion,
    id: RequestId,
    accepted: SubscriptionFilter,
    subscriber: Arc<Subscriber>,
    cancel: Cancel,
    /// Whose tasks it may hear of.
    owner: Arc<str>,
    out: Arc<Stream>,
    /// Falls when nothing more will come from the client.
    input_closed: Option<CancellationToken>,
    _in_flight: Option<InFlightGuard>,
}

impl Protocol {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn open_subscription(
        &self,
        edition: ProtocolVersion,
        id: &RequestId,
        wanted: SubscriptionFilter,
        cancel: Cancel,
        ticket: Option<InFlightGuard>,
        caller: &Caller,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> ListenSubscription {
        let hung_up = match &peer.via {
            Channel::Duplex(line) => Some(line.input_closed.clone()),
            Channel::Post { .. } => None,
        };
        let accepted = supported_filter(wanted, &(self.capabilities)());
        let owner = caller.owner.clone().unwrap_or_else(|| task_owner(&caller.principal, None));
        ListenSubscription {
            version: edition,
            id: id.clone(),
            // Subscribed before the acknowledgement is written: nothing that changes after it is missed.
            subscriber: self.subscriptions.subscribe_with_tasks(accepted.clone(), Arc::clone(&owner)),
            accepted,
            cancel,
            owner,
            out: Arc::clone(out),
            input_closed: hung_up,
            _in_flight: ticket,
        }
    }

    /// Tells one listener of changes; ends when it leaves or the house closes.
    pub(crate) async fn serve_subscription(&self, listening: &ListenSubscription) -> Reply {
        let ListenSubscription {
            version: edition,
            id,
            accepted,
            subscriber,
            cancel,
            owner,
            out,
            input_closed: hung_up,
            _in_flight: _ticket,
        } = listening;
        let edition = *edition;
        let on_a_line = hung_up.is_some();
        let hung_up = async {
            match hung_up {
                Some(hung_up) => hung_up.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let telling = async {
            // What happens once is boxed, so that waiting for hours takes less room.
            let acknowledged = Box::pin(async {
                let mut accepted = accepted.clone();
                self.retain_own_tasks(&mut accepted, owner, subscriber).await;
                send_notification(out, edition, &Notification::SubscriptionAcknowledged(accepted), Some(id))
                    .await
            });
            if !acknowledged.await {
                return;
            }
            send_changes(&self.tasks, subscriber, out, &edition.into(), Some(id)).await;
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Reply::NoResponse,
            // Before the hanging up, which a closing house does as well: the client is still there to hear it.
            () = self.drain.cancelled() => {
                let ended = Outcome::ListenEnded { subscription_id: id.clone() };
                let answer = self.reply(&edition.into(), id, &ended);
                if on_a_line { end_on_connection(out, edition, id.clone(), answer) } else { answer }
            }
            () = hung_up => Reply::NoResponse,
            () = telling => Reply::NoResponse,
        }
    }

    /// Tells a session of changes on `out`; ends when the session or the house does.
    pub(crate) async fn send_session_changes(&self, session: &Session, out: &Stream) {
        let speech = session.client.protocol_version.into();
        let feeding = send_changes(&self.tasks, session.subscriber(), out, &speech, None);
        tokio::select! {
            biased;
            () = session.closed.cancelled() => {}
            () = self.drain.cancelled() => {}
            () = feeding => {}
        }
    }
}

/// Tells of changes until nobody reads any more. A change is taken only when there is room to tell of it:
/// what the reader does not live to hear is there for the next one.
pub(super) async fn send_changes(
    tasks: &Tasks,
    subscriber: &Subscriber,
    out: &Stream,
    speech: &WireFormat,
    tag: Option<&RequestId>,
) {
    loop {
        subscriber.notified().await;
        out.wait_for_room().await;
        if out.is_abandoned() || out.is_finished() {
            return;
        }
        let Some(topic) = subscriber.take_changed() else { continue };
        let mut untold = TopicGuard { subscriber, topic: Some(topic.clone()) };
        let notice = match topic {
            ChangeTopic::Task { owner, id } => {
                // Boxed, because thousands wait here for other things.
                let look = Box::pin(tasks.try_get(&owner, &id));
                look.await.map(|task| Notification::TaskStatus(Box::new(task)))
            }
            topic => notification_for(topic),
        };
        let mut message = Vec::with_capacity(160);
        if notice.is_none_or(|notice| {
            !speech.write_notification(&mut message, &notice, tag) || out.hint(message.into())
        }) {
            untold.topic = None;
        }
    }
}

/// What a client is told of a change; of a task it is told how it stands, which is looked up.
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

impl Protocol {
    /// Leaves of the tasks that a listener names those that it may see. What has ended already is told at once.
    async fn retain_own_tasks(&self, filter: &mut SubscriptionFilter, owner: &str, subscriber: &Subscriber) {
        // Each of them is looked up, so each one once, and not too many.
        let mut named: Vec<String> = Vec::new();
        for id in std::mem::take(&mut filter.tasks) {
            if named.len() < MAX_LISTENED_TASKS && !named.contains(&id) {
                named.push(id);
            }
        }
        for id in named {
            let Some(task) = self.tasks.try_get(owner, &id).await else { continue };
            if task.status.is_terminal() {
                subscriber.restore_changed(ChangeTopic::Task { owner: owner.into(), id: id.as_str().into() });
            }
            filter.tasks.push(id);
        }
    }
}

/// A change that was taken and not told yet: it is given back.
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

/// On a line nothing closes with a listening. Spec 2026-07-28 has two words for its end, the result and
/// `notifications/cancelled`, and does not say which a client waits for: it gets both, in this order.
fn end_on_connection(out: &Stream, edition: ProtocolVersion, id: RequestId, answer: Reply) -> Reply {
    let mut message = Vec::with_capacity(96);
    let over = Notification::Cancelled { request: Some(id), reason: None };
    if let (Reply::Body { body, .. }, true) =
        (answer, codec::write_notification(&mut message, edition, &over, None))
    {
        out.push(body.into_bytes());
        out.push(Bytes::from(message));
    }
    Reply::NoResponse
}

/// Waits for room. False when the reader is gone.
async fn send_notification(
    out: &Stream,
    edition: ProtocolVersion,
    notice: &Notification,
    tag: Option<&RequestId>,
) -> bool {
    let mut message = Vec::with_capacity(160);
    if !codec::write_notification(&mut message, edition, notice, tag) {
        return true;
    }
    out.send(Bytes::from(message)).await.is_ok()
}

/// What of a wish the server can fulfil.
fn supported_filter(wanted: SubscriptionFilter, offered: &ServerCapabilities) -> SubscriptionFilter {
    SubscriptionFilter {
        tools: wanted.tools && offered.tools == Some(true),
        prompts: wanted.prompts && offered.prompts == Some(true),
        resources: wanted.resources && offered.resources == Some(true),
        uris: if offered.resource_updates { wanted.uris } else { Vec::new() },
        tasks: if offered.extensions.contains_key(meta_key::TASKS_EXTENSION) {
            wanted.tasks
        } else {
            Vec::new()
        },
    }
}
