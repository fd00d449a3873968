//! Streams for those who have no session, where a dialect offers them: a GET hears of changes, and
//! `resources/subscribe` says of which resources.
//!
//! Whoever is not remembered can only be known by who it has proven to be: subscriptions are kept by principal, and
//! all who have proven nothing share theirs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use toolgate_wire::model::{LogLevel, SubscriptionFilter};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::notifications::send_changes;
use super::wire_format::WireFormat;
use super::{Channel, Peer, Protocol};
use crate::request::{Principal, task_owner};
use crate::stream::Stream;
use crate::subscriptions::{Subscriber, Subscriptions};
use crate::util::name_map::NameMap;

/// Resources that one principal may subscribe to. One more takes the place of the oldest.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// How long the URI of one may be, in bytes.
const MAX_URI_BYTES: usize = 2048;
/// Principals whose subscriptions are kept. One more is refused, unless another has left.
const MAX_PRINCIPALS: usize = 1000;
/// What those hear who cannot say from which level on.
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;

/// What is kept of those who are not remembered, by owner.
#[derive(Debug, Default)]
pub(super) struct SessionlessClients(Mutex<NameMap<SessionlessClient>>);

#[derive(Debug, Default)]
struct SessionlessClient {
    /// Oldest first.
    uris: Vec<String>,
    streams: Vec<Weak<Subscriber>>,
}

impl SessionlessClients {
    /// A new stream's subscriber. None if there are too many principals.
    fn add_stream(&self, principal: &Principal, hub: &Subscriptions) -> Option<Arc<Subscriber>> {
        let mut known = self.lock();
        let stranger = get_or_insert(&mut known, principal)?;
        let uris = stranger.uris.clone();
        let wants = SubscriptionFilter {
            tools: true,
            prompts: true,
            resources: true,
            uris,
            ..SubscriptionFilter::default()
        };
        let subscriber = hub.subscribe(wants);
        subscriber.subscribe_to_roots();
        stranger.streams.retain(|stream| stream.strong_count() > 0);
        stranger.streams.push(Arc::downgrade(&subscriber));
        Some(subscriber)
    }

    fn subscribe(&self, principal: &Principal, uri: &str) -> Result<(), ProtocolError> {
        if uri.len() > MAX_URI_BYTES {
            return Err(ProtocolError::invalid_params(format!(
                "a subscription URI may have at most {MAX_URI_BYTES} bytes"
            )));
        }
        let mut known = self.lock();
        let Some(stranger) = get_or_insert(&mut known, principal) else {
            return Err(ProtocolError::new(
                ProtocolErrorKind::Busy,
                "too many clients are subscribed; try again later",
            ));
        };
        stranger.uris.retain(|known| known != uri);
        if stranger.uris.len() >= MAX_SUBSCRIPTIONS {
            let oldest = stranger.uris.remove(0);
            stranger.live_streams().for_each(|stream| stream.remove_uri(&oldest));
        }
        stranger.uris.push(uri.to_owned());
        stranger.live_streams().for_each(|stream| {
            stream.add_uri(uri, MAX_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS * MAX_URI_BYTES);
        });
        Ok(())
    }

    fn unsubscribe(&self, principal: &Principal, uri: &str) {
        if let Some(stranger) = self.lock().get_mut(&task_owner(principal, None)) {
            stranger.uris.retain(|known| known != uri);
            stranger.live_streams().for_each(|stream| stream.remove_uri(uri));
        }
    }

    fn lock(&self) -> MutexGuard<'_, NameMap<SessionlessClient>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionlessClient {
    fn live_streams(&self) -> impl Iterator<Item = Arc<Subscriber>> {
        self.streams.iter().filter_map(Weak::upgrade)
    }
}

/// The place of a principal. Those that nobody listens for make room.
fn get_or_insert<'a>(
    known: &'a mut NameMap<SessionlessClient>,
    principal: &Principal,
) -> Option<&'a mut SessionlessClient> {
    let owner = task_owner(principal, None);
    if !known.contains_key(&owner) && known.len() >= MAX_PRINCIPALS {
        known.retain(|stranger| stranger.live_streams().next().is_some());
        if known.len() >= MAX_PRINCIPALS {
            return None;
        }
    }
    Some(known.get_or_default(&owner))
}

impl Protocol {
    /// The subscriber of a GET that names neither a session nor an edition. None where such a GET is no question, or
    /// there is no room.
    pub(crate) fn open_sessionless_stream(&self, peer: &Peer) -> Option<Arc<Subscriber>> {
        let is_open = peer.dialect().sessionless_streams
            && matches!(self.wire_format(peer), WireFormat::Unversioned(_));
        is_open.then(|| self.sessionless.add_stream(&peer.principal, &self.subscriptions))?
    }

    /// Tells of changes on `out` until nobody reads or the house closes.
    pub(crate) async fn send_sessionless_changes(&self, subscriber: &Subscriber, peer: &Peer, out: &Stream) {
        let speech = WireFormat::unversioned(peer);
        tokio::select! {
            biased;
            () = self.drain.cancelled() => {}
            () = send_changes(&self.tasks, subscriber, out, &speech, None) => {}
        }
    }

    /// Whether this peer may subscribe although it is not remembered.
    pub(super) fn can_subscribe_sessionless(&self, speech: &WireFormat, peer: &Peer) -> bool {
        let is_posted = matches!(peer.via, Channel::Post { .. });
        is_posted && matches!(speech, WireFormat::Unversioned(_)) && peer.dialect().sessionless_streams
    }

    pub(super) fn subscribe_sessionless(&self, peer: &Peer, uri: &str) -> Result<(), ProtocolError> {
        self.sessionless.subscribe(&peer.principal, uri)
    }

    pub(super) fn unsubscribe_sessionless(&self, peer: &Peer, uri: &str) {
        self.sessionless.unsubscribe(&peer.principal, uri);
    }

    /// From which level on log lines are told to a caller who has no session.
    pub(super) fn sessionless_log_level(&self, speech: &WireFormat) -> Option<LogLevel> {
        match speech {
            WireFormat::Unversioned(Some(dialect)) if dialect.sessionless_streams => Some(DEFAULT_LOG_LEVEL),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriptions::ChangeTopic;

    fn is_notified(hub: &Subscriptions, subscriber: &Subscriber, uri: &str) -> bool {
        hub.publish(&ChangeTopic::Resource(uri.into()));
        subscriber.take_changed().is_some()
    }

    #[test]
    fn subscriptions_are_kept_by_principal_and_the_newest_count() {
        let (strangers, hub) = (SessionlessClients::default(), Subscriptions::default());
        let (nobody, ada) = (Principal::anonymous(), Principal::new("ada"));
        let early = strangers.add_stream(&nobody, &hub).unwrap();
        let hers = strangers.add_stream(&ada, &hub).unwrap();
        strangers.subscribe(&nobody, "a://b").unwrap();
        let late = strangers.add_stream(&nobody, &hub).unwrap();
        for stream in [&early, &late] {
            assert!(is_notified(&hub, stream, "a://b"));
        }
        assert!(!is_notified(&hub, &hers, "a://b"));
        for n in 0..MAX_SUBSCRIPTIONS {
            strangers.subscribe(&nobody, &format!("a://{n}")).unwrap();
        }
        while early.take_changed().is_some() {}
        assert!(!is_notified(&hub, &early, "a://b"), "the oldest has made room");
        assert!(is_notified(&hub, &early, "a://999"));
        strangers.unsubscribe(&nobody, "a://999");
        assert!(!is_notified(&hub, &early, "a://999"));
        assert!(strangers.subscribe(&nobody, &"x".repeat(MAX_URI_BYTES + 1)).is_err());
    }

    #[test]
    fn principals_without_streams_make_room() {
        let (strangers, hub) = (SessionlessClients::default(), Subscriptions::default());
        let listening = strangers.add_stream(&Principal::new("ada"), &hub).unwrap();
        for n in 0..MAX_PRINCIPALS + 10 {
            strangers.subscribe(&Principal::new(n.to_string()), "a://b").unwrap();
        }
        assert!(strangers.lock().len() <= MAX_PRINCIPALS);
        assert!(strangers.lock().contains_key(&task_owner(&Principal::new("ada"), None)));
        drop(listening);
    }
}
