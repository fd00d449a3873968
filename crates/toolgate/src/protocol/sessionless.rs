//! Streams and subscriptions of clients without a session, in dialects that have them: a GET receives change notifications,
//! and `resources/subscribe` selects the resources.
//!
//! A client without a session is only known by its principal: subscriptions are kept by principal, and all anonymous clients
//! share theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use toolgate_wire::model::{LogLevel, SubscriptionFilter};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::notifications::send_changes;
use super::wire_format::WireFormat;
use super::{Channel, Peer, Protocol};
use crate::request::{Principal, task_owner};
use crate::stream::Stream;
use crate::subscriptions::{Subscriber, Subscriptions};
use crate::util::lock;

/// Maximum number of resources that one principal may subscribe to. A further one replaces the oldest.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// Maximum length of a subscribed URI.
const MAX_URI_BYTES: usize = 2048;
/// Maximum number of principals with subscriptions. A further one is rejected unless one without streams can be removed.
const MAX_PRINCIPALS: usize = 1000;
/// Log level for clients that cannot set one.
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;

/// Clients without a session, by principal (see [`task_owner`]).
#[derive(Debug, Default)]
pub(super) struct SessionlessClients(Mutex<SessionlessMap>);

type SessionlessMap = HashMap<Arc<str>, SessionlessClient>;

#[derive(Debug, Default)]
struct SessionlessClient {
    /// Oldest first.
    uris: Vec<String>,
    streams: Vec<Weak<Subscriber>>,
}

impl SessionlessClients {
    /// Adds the subscriber of a new stream. Returns `None` if there are too many principals.
    fn add_stream(&self, principal: &Principal, subscriptions: &Subscriptions) -> Option<Arc<Subscriber>> {
        let mut clients = lock(&self.0);
        let client = get_or_insert(&mut clients, principal)?;
        let uris = client.uris.clone();
        let filter = SubscriptionFilter {
            tools: true,
            prompts: true,
            resources: true,
            uris,
            ..SubscriptionFilter::default()
        };
        let subscriber = subscriptions.subscribe(filter);
        subscriber.subscribe_to_roots();
        client.streams.retain(|stream| stream.strong_count() > 0);
        client.streams.push(Arc::downgrade(&subscriber));
        Some(subscriber)
    }

    fn subscribe(&self, principal: &Principal, uri: &str) -> Result<(), ProtocolError> {
        if uri.len() > MAX_URI_BYTES {
            return Err(ProtocolError::invalid_params(format!(
                "a subscription URI may have at most {MAX_URI_BYTES} bytes"
            )));
        }
        let mut clients = lock(&self.0);
        let Some(client) = get_or_insert(&mut clients, principal) else {
            return Err(ProtocolError::new(
                ProtocolErrorKind::Busy,
                "too many clients are subscribed; try again later",
            ));
        };
        client.uris.retain(|known| known != uri);
        if client.uris.len() >= MAX_SUBSCRIPTIONS {
            let oldest = client.uris.remove(0);
            client.live_streams().for_each(|stream| stream.remove_uri(&oldest));
        }
        client.uris.push(uri.to_owned());
        client.live_streams().for_each(|stream| {
            stream.add_uri(uri, MAX_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS * MAX_URI_BYTES);
        });
        Ok(())
    }

    fn unsubscribe(&self, principal: &Principal, uri: &str) {
        if let Some(client) = lock(&self.0).get_mut(&task_owner(principal, None)) {
            client.uris.retain(|known| known != uri);
            client.live_streams().for_each(|stream| stream.remove_uri(uri));
        }
    }
}

impl SessionlessClient {
    fn live_streams(&self) -> impl Iterator<Item = Arc<Subscriber>> {
        self.streams.iter().filter_map(Weak::upgrade)
    }
}

/// Returns the entry of a principal. If there are too many, removes those without a stream first; returns `None` if that does
/// not help.
fn get_or_insert<'a>(
    clients: &'a mut SessionlessMap,
    principal: &Principal,
) -> Option<&'a mut SessionlessClient> {
    let owner = task_owner(principal, None);
    if !clients.contains_key(&owner) && clients.len() >= MAX_PRINCIPALS {
        clients.retain(|_, client| client.live_streams().next().is_some());
        if clients.len() >= MAX_PRINCIPALS {
            return None;
        }
    }
    Some(clients.entry(owner).or_default())
}

impl Protocol {
    /// Opens the stream of a GET that names neither a session nor a protocol version. Returns `None` if the dialect has no such
    /// streams, or there are too many principals.
    pub(crate) fn open_sessionless_stream(&self, peer: &Peer) -> Option<Arc<Subscriber>> {
        let is_supported = peer.dialect().sessionless_streams && self.is_unversioned(peer);
        is_supported.then(|| self.sessionless.add_stream(&peer.principal, &self.subscriptions))?
    }

    /// Sends change notifications on `out` until the reader is gone or the server shuts down.
    pub(crate) async fn send_sessionless_changes(&self, subscriber: &Subscriber, peer: &Peer, out: &Stream) {
        let format = WireFormat::unversioned(peer);
        tokio::select! {
            biased;
            () = self.drain.cancelled() => {}
            () = send_changes(&self.tasks, subscriber, out, &format, None) => {}
        }
    }

    /// Whether this peer may subscribe without a session.
    pub(super) fn can_subscribe_sessionless(&self, format: &WireFormat, peer: &Peer) -> bool {
        let is_post = matches!(peer.via, Channel::Post { .. });
        is_post && matches!(format, WireFormat::Unversioned(_)) && peer.dialect().sessionless_streams
    }

    pub(super) fn subscribe_sessionless(&self, peer: &Peer, uri: &str) -> Result<(), ProtocolError> {
        self.sessionless.subscribe(&peer.principal, uri)
    }

    pub(super) fn unsubscribe_sessionless(&self, peer: &Peer, uri: &str) {
        self.sessionless.unsubscribe(&peer.principal, uri);
    }

    /// Minimum level of the log messages for a caller without a session. `None`: it gets none.
    pub(super) fn sessionless_log_level(&self, format: &WireFormat) -> Option<LogLevel> {
        match format {
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
        let (clients, hub) = (SessionlessClients::default(), Subscriptions::default());
        let (anonymous, ada) = (Principal::anonymous(), Principal::new("ada"));
        let early = clients.add_stream(&anonymous, &hub).unwrap();
        let hers = clients.add_stream(&ada, &hub).unwrap();
        clients.subscribe(&anonymous, "a://b").unwrap();
        let late = clients.add_stream(&anonymous, &hub).unwrap();
        for stream in [&early, &late] {
            assert!(is_notified(&hub, stream, "a://b"));
        }
        assert!(!is_notified(&hub, &hers, "a://b"));
        for n in 0..MAX_SUBSCRIPTIONS {
            clients.subscribe(&anonymous, &format!("a://{n}")).unwrap();
        }
        while early.take_changed().is_some() {}
        assert!(!is_notified(&hub, &early, "a://b"), "the oldest was removed");
        assert!(is_notified(&hub, &early, "a://999"));
        clients.unsubscribe(&anonymous, "a://999");
        assert!(!is_notified(&hub, &early, "a://999"));
        assert!(clients.subscribe(&anonymous, &"x".repeat(MAX_URI_BYTES + 1)).is_err());
    }

    #[test]
    fn principals_without_streams_make_room() {
        let (clients, hub) = (SessionlessClients::default(), Subscriptions::default());
        let listening = clients.add_stream(&Principal::new("ada"), &hub).unwrap();
        for n in 0..MAX_PRINCIPALS + 10 {
            clients.subscribe(&Principal::new(n.to_string()), "a://b").unwrap();
        }
        assert!(lock(&clients.0).len() <= MAX_PRINCIPALS);
        assert!(lock(&clients.0).contains_key(&task_owner(&Principal::new("ada"), None)));
        drop(listening);
    }
}
