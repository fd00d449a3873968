//! Publish and subscribe within this process, which every store needs.
//!
//! Each listener has a mailbox of its own, which needs almost no memory while it is empty and is bounded. Publishers
//! never wait for listeners. This module does not know where messages come from.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{ChannelEvent, Listener};
use crate::util::lock;

/// Messages in a mailbox. If there are more, the oldest is dropped and the listener receives a lag event.
const MAX_QUEUED_MESSAGES: usize = 1024;

/// Bytes in a mailbox. A single message always fits.
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// The listeners of one store.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    listeners: HashMap<Box<str>, Vec<Arc<Mailbox>>>,
    is_closed: bool,
}

/// The messages that one listener has not received yet.
#[derive(Debug, Default)]
struct Mailbox {
    queue: Mutex<MailboxQueue>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct MailboxQueue {
    messages: VecDeque<Bytes>,
    n_bytes: usize,
    /// Whether messages before the first one in the queue were dropped.
    is_lagged: bool,
    is_closed: bool,
}

/// The receiving end of a mailbox. Dropping it ends the subscription.
#[derive(Debug)]
pub(super) struct MailboxReceiver {
    mailbox: Arc<Mailbox>,
    channels: Arc<Channels>,
    channel: Box<str>,
}

impl Channels {
    /// Adds a listener to a channel.
    pub(super) fn subscribe(self: &Arc<Self>, channel: &str) -> Listener {
        let mailbox = Arc::new(Mailbox::default());
        let mut inner = lock(&self.0);
        lock(&mailbox.queue).is_closed = inner.is_closed;
        inner.listeners.entry(channel.into()).or_default().push(Arc::clone(&mailbox));
        Listener::from_mailbox(MailboxReceiver {
            mailbox,
            channels: Arc::clone(self),
            channel: channel.into(),
        })
    }

    /// Sends a message to all listeners of a channel. Returns `false` if there are none.
    pub(super) fn publish(&self, channel: &str, message: &Bytes) -> bool {
        // Held until the end, so that all listeners receive messages in the same order.
        let inner = lock(&self.0);
        let Some(listeners) = inner.listeners.get(channel) else { return false };
        for mailbox in listeners {
            mailbox.deliver(message.clone());
        }
        true
    }

    /// Tells the listeners of a channel that messages may have been missed.
    #[cfg(feature = "redis")]
    pub(super) fn mark_lagged(&self, channel: &str) {
        for mailbox in lock(&self.0).listeners.get(channel).into_iter().flatten() {
            lock(&mailbox.queue).is_lagged = true;
            mailbox.notify.notify_one();
        }
    }

    /// Returns whether a channel has listeners.
    #[cfg(feature = "redis")]
    pub(super) fn has_listeners(&self, channel: &str) -> bool {
        lock(&self.0).listeners.contains_key(channel)
    }

    /// Returns the channels that have listeners.
    #[cfg(feature = "redis")]
    pub(super) fn names(&self) -> Vec<Box<str>> {
        lock(&self.0).listeners.keys().cloned().collect()
    }

    /// Closes all mailboxes: listeners receive the queued messages, then the end.
    pub(super) fn close(&self) {
        let mut inner = lock(&self.0);
        inner.is_closed = true;
        for mailbox in inner.listeners.values().flatten() {
            lock(&mailbox.queue).is_closed = true;
            mailbox.notify.notify_one();
        }
    }
}

impl Mailbox {
    fn deliver(&self, message: Bytes) {
        let mut queue = lock(&self.queue);
        queue.n_bytes += message.len();
        queue.messages.push_back(message);
        while queue.messages.len() > MAX_QUEUED_MESSAGES
            || (queue.n_bytes > MAX_QUEUED_BYTES && queue.messages.len() > 1)
        {
            let n_bytes = queue.messages.pop_front().map_or(0, |oldest| oldest.len());
            queue.n_bytes -= n_bytes;
            queue.is_lagged = true;
        }
        drop(queue);
        self.notify.notify_one();
    }
}

impl MailboxReceiver {
    /// Returns the next event. Cancel safe: yes, a message leaves the queue only when it is returned.
    pub(super) async fn next(&mut self) -> Option<ChannelEvent> {
        loop {
            {
                let mut queue = lock(&self.mailbox.queue);
                if std::mem::take(&mut queue.is_lagged) {
                    return Some(ChannelEvent::Lagged);
                }
                if let Some(message) = queue.messages.pop_front() {
                    queue.n_bytes -= message.len();
                    if queue.messages.is_empty() {
                        // Free the memory that a burst of messages needed.
                        queue.messages.shrink_to(16);
                    }
                    return Some(ChannelEvent::Message(message));
                }
                if queue.is_closed {
                    return None;
                }
            }
            self.mailbox.notify.notified().await;
        }
    }
}

impl Drop for MailboxReceiver {
    fn drop(&mut self) {
        let mut inner = lock(&self.channels.0);
        if let Some(listeners) = inner.listeners.get_mut(&self.channel) {
            listeners.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if listeners.is_empty() {
                inner.listeners.remove(&self.channel);
            }
        }
    }
}
