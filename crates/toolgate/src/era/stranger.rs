//! Streams for those who have no session, where a dialect offers them: a GET hears of changes, and
//! `resources/subscribe` says of which resources.
//!
//! Whoever is not remembered can only be known by who it has proven to be: subscriptions are kept by principal, and
//! all who have proven nothing share theirs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use toolgate_wire::model::{SubscriptionFilter, LogLevel};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::feed::tell_all;
use super::speech::Speech;
use super::{Era, Peer, Road};
use crate::hub::{Hub, Subscriber};
use crate::maps::ByName;
use crate::request::{Principal, owner};
use crate::stream::Stream;

/// Resources that one principal may subscribe to. One more takes the place of the oldest.
const SUBSCRIPTIONS: usize = 1000;
/// How long the URI of one may be, in bytes.
const LONGEST: usize = 2048;
/// Principals whose subscriptions are kept. One more is refused, unless another has left.
const PRINCIPALS: usize = 1000;
/// What those hear who cannot say from which level on.
const LEVEL: LogLevel = LogLevel::Info;

/// What is kept of those who are not remembered, by owner.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<ByName<Stranger>>);

#[derive(Debug, Default)]
struct Stranger {
    /// Oldest first.
    uris: Vec<String>,
    streams: Vec<Weak<Subscriber>>,
}

impl Strangers {
    /// A new stream's subscriber. None if there are too many principals.
    fn open(&self, principal: &Principal, hub: &Hub) -> Option<Arc<Subscriber>> {
        let mut known = self.lock();
        let stranger = room(&mut known, principal)?;
        let uris = stranger.uris.clone();
        let wants = SubscriptionFilter { tools: true, prompts: true, resources: true, uris, ..SubscriptionFilter::default() };
        let subscriber = hub.subscribe(wants);
        subscriber.add_roots();
        stranger.streams.retain(|stream| stream.strong_count() > 0);
        stranger.streams.push(Arc::downgrade(&subscriber));
        Some(subscriber)
    }

    fn subscribe(&self, principal: &Principal, uri: &str) -> Result<(), ProtocolError> {
        if uri.len() > LONGEST {
            return Err(ProtocolError::invalid_params(format!("a URI of at most {LONGEST} bytes can be subscribed to")));
        }
        let mut known = self.lock();
        let Some(stranger) = room(&mut known, principal) else {
            return Err(ProtocolError::new(ProtocolErrorKind::Busy, "too many clients subscribe; try again later"));
        };
        stranger.uris.retain(|known| known != uri);
        if stranger.uris.len() >= SUBSCRIPTIONS {
            let oldest = stranger.uris.remove(0);
            stranger.streams().for_each(|stream| stream.remove(&oldest));
        }
        stranger.uris.push(uri.to_owned());
        stranger.streams().for_each(|stream| {
            stream.add(uri, SUBSCRIPTIONS, SUBSCRIPTIONS * LONGEST);
        });
        Ok(())
    }

    fn unsubscribe(&self, principal: &Principal, uri: &str) {
        if let Some(stranger) = self.lock().get_mut(&owner(principal, None)) {
            stranger.uris.retain(|known| known != uri);
            stranger.streams().for_each(|stream| stream.remove(uri));
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByName<Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stranger {
    fn streams(&self) -> impl Iterator<Item = Arc<Subscriber>> {
        self.streams.iter().filter_map(Weak::upgrade)
    }
}

/// The place of a principal. Those that nobody listens for make room.
fn room<'a>(known: &'a mut ByName<Stranger>, principal: &Principal) -> Option<&'a mut Stranger> {
    let owner = owner(principal, None);
    if !known.has(&owner) && known.len() >= PRINCIPALS {
        known.retain(|stranger| stranger.streams().next().is_some());
        if known.len() >= PRINCIPALS {
            return None;
        }
    }
    Some(known.or_default(&owner))
}

impl Era {
    /// The subscriber of a GET that names neither a session nor an edition. None where such a GET is no question, or
    /// there is no room.
    pub(crate) fn stand_unnamed(&self, peer: &Peer) -> Option<Arc<Subscriber>> {
        let is_open = peer.dialect().sessionless_streams && matches!(self.speech(peer), Speech::Bare(_));
        is_open.then(|| self.strangers.open(&peer.principal, &self.hub))?
    }

    /// Tells of changes on `out` until nobody reads or the house closes.
    pub(crate) async fn feed_unnamed(&self, subscriber: &Subscriber, peer: &Peer, out: &Stream) {
        let speech = Speech::bare(peer);
        tokio::select! {
            biased;
            () = self.drain.cancelled() => {}
            () = tell_all(&self.tasks, subscriber, out, &speech, None) => {}
        }
    }

    /// Whether this peer may subscribe although it is not remembered.
    pub(super) fn subscribes_unnamed(&self, speech: &Speech, peer: &Peer) -> bool {
        let is_posted = matches!(peer.road, Road::Post { .. });
        is_posted && matches!(speech, Speech::Bare(_)) && peer.dialect().sessionless_streams
    }

    pub(super) fn subscribe_unnamed(&self, peer: &Peer, uri: &str) -> Result<(), ProtocolError> {
        self.strangers.subscribe(&peer.principal, uri)
    }

    pub(super) fn unsubscribe_unnamed(&self, peer: &Peer, uri: &str) {
        self.strangers.unsubscribe(&peer.principal, uri);
    }

    /// From which level on log lines are told to a caller who has no session.
    pub(super) fn level_unnamed(&self, speech: &Speech) -> Option<LogLevel> {
        match speech {
            Speech::Bare(Some(dialect)) if dialect.sessionless_streams => Some(LEVEL),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Topic;

    fn changed(hub: &Hub, subscriber: &Subscriber, uri: &str) -> bool {
        hub.publish(&Topic::Resource(uri.into()));
        subscriber.take().is_some()
    }

    #[test]
    fn subscriptions_are_kept_by_principal_and_the_newest_count() {
        let (strangers, hub) = (Strangers::default(), Hub::default());
        let (nobody, ada) = (Principal::anonymous(), Principal::new("ada"));
        let early = strangers.open(&nobody, &hub).unwrap();
        let hers = strangers.open(&ada, &hub).unwrap();
        strangers.subscribe(&nobody, "a://b").unwrap();
        let late = strangers.open(&nobody, &hub).unwrap();
        for stream in [&early, &late] {
            assert!(changed(&hub, stream, "a://b"));
        }
        assert!(!changed(&hub, &hers, "a://b"));
        for n in 0..SUBSCRIPTIONS {
            strangers.subscribe(&nobody, &format!("a://{n}")).unwrap();
        }
        while early.take().is_some() {}
        assert!(!changed(&hub, &early, "a://b"), "the oldest has made room");
        assert!(changed(&hub, &early, "a://999"));
        strangers.unsubscribe(&nobody, "a://999");
        assert!(!changed(&hub, &early, "a://999"));
        assert!(strangers.subscribe(&nobody, &"x".repeat(LONGEST + 1)).is_err());
    }

    #[test]
    fn principals_without_streams_make_room() {
        let (strangers, hub) = (Strangers::default(), Hub::default());
        let listening = strangers.open(&Principal::new("ada"), &hub).unwrap();
        for n in 0..PRINCIPALS + 10 {
            strangers.subscribe(&Principal::new(n.to_string()), "a://b").unwrap();
        }
        assert!(strangers.lock().len() <= PRINCIPALS);
        assert!(strangers.lock().has(&owner(&Principal::new("ada"), None)));
        drop(listening);
    }
}
