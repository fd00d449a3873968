//! Who listens to what, inside this process: the part of publish and subscribe that every store needs.
//!
//! Each listener has a mailbox of its own, which costs next to nothing while it is empty and never more than its bound.
//! Nobody who publishes waits for a listener. It must not know where messages come from.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{ChannelEvent, Listener};
use crate::util::lock;

/// Messages that a listener may be behind before it misses the oldest of them, and learns of a gap.
const MAX_QUEUED_MESSAGES: usize = 1024;

/// Bytes that a listener may be behind; one message is always kept.
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// The listeners of one store.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    listeners: HashMap<Box<str>, Vec<Arc<Mailbox>>>,
    is_closed: bool,
}

/// What one listener has yet to hear.
#[derive(Debug, Default)]
struct Mailbox {
    queue: Mutex<MailboxQueue>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct MailboxQueue {
    messages: VecDeque<Bytes>,
    n_bytes: usize,
    /// Something was missed before the first that waits.
    is_lagged: bool,
    is_closed: bool,
}

/// A listener's end. Whoever drops it has left.
#[derive(Debug)]
pub(super) struct MailboxReceiver {
    mailbox: Arc<Mailbox>,
    channels: Arc<Channels>,
    channel: Box<str>,
}

impl Channels {
    /// One more who listens to this channel from now on.
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

    /// Tells everybody who listens to a channel. False if nobody does.
    pub(super) fn publish(&self, channel: &str, message: &Bytes) -> bool {
        // The lock is held to the end, so that all listeners hear everything in the same order.
        let inner = lock(&self.0);
        let Some(listeners) = inner.listeners.get(channel) else { return false };
        for mailbox in listeners {
            mailbox.deliver(message.clone());
        }
        true
    }

    /// Tells the listeners of a channel that something may have been missed.
    #[cfg(feature = "redis")]
    pub(super) fn mark_lagged(&self, channel: &str) {
        for mailbox in lock(&self.0).listeners.get(channel).into_iter().flatten() {
            lock(&mailbox.queue).is_lagged = true;
            mailbox.notify.notify_one();
        }
    }

    /// Whether anybody listens to this channel.
    #[cfg(feature = "redis")]
    pub(super) fn has_listeners(&self, channel: &str) -> bool {
        lock(&self.0).listeners.contains_key(channel)
    }

    /// The channels that somebody listens to.
    #[cfg(feature = "redis")]
    pub(super) fn names(&self) -> Vec<Box<str>> {
        lock(&self.0).listeners.keys().cloned().collect()
    }

    /// Nothing more will be said: listeners hear what waits for them, then the end.
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
        let mut letters = lock(&self.queue);
        letters.n_bytes += message.len();
        letters.messages.push_back(message);
        while letters.messages.len() > MAX_QUEUED_MESSAGES
            || (letters.n_bytes > MAX_QUEUED_BYTES && letters.messages.len() > 1)
        {
            let n_bytes = letters.messages.pop_front().map_or(0, |oldest| oldest.len());
            letters.n_bytes -= n_bytes;
            letters.is_lagged = true;
        }
        drop(letters);
        self.notify.notify_one();
    }
}

impl MailboxReceiver {
    /// What comes next. Cancel safe: yes, a letter is taken out in the moment it is returned.
    pub(super) async fn next(&mut self) -> Option<ChannelEvent> {
        loop {
            {
                let mut letters = lock(&self.mailbox.queue);
                if std::mem::take(&mut letters.is_lagged) {
                    return Some(ChannelEvent::Lagged);
                }
                if let Some(message) = letters.messages.pop_front() {
                    letters.n_bytes -= message.len();
                    if letters.messages.is_empty() {
                        // What a burst needed is given back.
                        letters.messages.shrink_to(16);
                    }
                    return Some(ChannelEvent::Message(message));
                }
                if letters.is_closed {
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
