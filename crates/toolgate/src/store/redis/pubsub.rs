//! The connection for listeners. All listeners share it.
//!
//! One task maintains it, subscribes to every channel that has a listener in this process, and delivers the messages.
//! After a reconnect, every listener receives a lag event.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream as _;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::StoreError;
use super::address::{Target, describe_error};
use super::connection::{reconnect_delay, unavailable};
use crate::store::channels::Channels;
use crate::store::{Listener, with_timeout};

/// Limit of the queued subscribe commands. If the queue is full, callers wait, at most for the deadline.
const MAX_PENDING_SUBSCRIBES: usize = 256;

/// How often the connection is pinged and channels without listeners are unsubscribed.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(2);

/// Limit of the channels in one SUBSCRIBE command.
const MAX_CHANNELS_PER_COMMAND: usize = 256;

/// The listeners of this process, and the sender to the task that maintains the connection.
pub(super) struct RedisPubSub {
    channels: Arc<Channels>,
    requests: mpsc::Sender<SubscribeCommand>,
    deadline: Duration,
}

/// A request to subscribe to a channel.
struct SubscribeCommand {
    channel: String,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

struct PubSubTask {
    target: Target,
    deadline: Duration,
    channels: Arc<Channels>,
    requests: mpsc::Receiver<SubscribeCommand>,
    /// The channels to which the current connection is subscribed.
    subscribed: HashSet<Box<str>>,
    /// The channels of lost connections whose listeners have not received a lag event yet.
    lost: HashSet<Box<str>>,
}

impl RedisPubSub {
    pub(super) fn open(target: Target, deadline: Duration, tasks: &mut JoinSet<()>) -> RedisPubSub {
        let channels = Arc::<Channels>::default();
        let (sender, requests) = mpsc::channel(MAX_PENDING_SUBSCRIBES);
        let task = PubSubTask {
            target,
            deadline,
            channels: Arc::clone(&channels),
            requests,
            subscribed: HashSet::new(),
            lost: HashSet::new(),
        };
        tasks.spawn(task.run());
        RedisPubSub { channels, requests: sender, deadline }
    }

    pub(super) async fn subscribe(&self, channel: String) -> Result<Listener, StoreError> {
        // The mailbox exists before the first message can arrive.
        let listener = self.channels.subscribe(&channel);
        let subscribing = async {
            let (reply, result) = oneshot::channel();
            let closed = || StoreError::Unavailable("it was closed".to_owned());
            self.requests.send(SubscribeCommand { channel, reply }).await.map_err(|_| closed())?;
            result.await.map_err(|_| closed())?
        };
        let timed_out = || StoreError::Unavailable(format!("Redis: no answer within {:?}", self.deadline));
        with_timeout(self.deadline, subscribing, timed_out).await.map(|()| listener)
    }

    pub(super) fn close(&self) {
        self.channels.close();
    }
}

impl PubSubTask {
    async fn run(mut self) {
        for attempt in 0.. {
            let error = match self.connect(attempt).await {
                Ok((mut sink, mut stream)) => match self.run_connection(&mut sink, &mut stream).await {
                    Ok(()) => return,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let (hosts, reason) = (self.target.hosts(), describe_error(&error));
            tracing::warn!(hosts, reason, "lost the connection to Redis for listeners");
            self.lost.extend(self.subscribed.drain());
            self.reject_until_retry(unavailable(&self.target, &error)).await;
        }
    }

    /// Connects, subscribes to all channels that have listeners, and sends lag events for those lost before.
    async fn connect(&mut self, attempt: usize) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let deadline = self.deadline;
        let connecting = async { self.target.client(attempt).await?.get_async_pubsub().await };
        let (mut sink, stream) = with_timeout(deadline, connecting, timed_out).await?.split();
        let names = self.channels.names();
        for names in names.chunks(MAX_CHANNELS_PER_COMMAND) {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            with_timeout(deadline, sink.subscribe(&names), timed_out).await?;
        }
        self.subscribed.extend(names);
        for name in self.lost.drain() {
            self.channels.mark_lagged(&name);
        }
        Ok((sink, stream))
    }

    /// Delivers messages until the connection is lost. Returns `Ok` when the store is dropped.
    async fn run_connection(
        &mut self,
        sink: &mut PubSubSink,
        stream: &mut PubSubStream,
    ) -> Result<(), RedisError> {
        let mut maintenance = tokio::time::interval(MAINTENANCE_INTERVAL);
        maintenance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                message = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)) => match message {
                    Some(message) => self.deliver(&message),
                    None => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                },
                request = self.requests.recv() => match request {
                    Some(request) => self.subscribe_batch(request, sink).await?,
                    None => return Ok(()),
                },
                _ = maintenance.tick() => self.maintain(sink).await?,
            }
        }
    }

    fn deliver(&self, message: &Msg) {
        // If there are no listeners any more, the next maintenance unsubscribes from the channel.
        let bytes = Bytes::copy_from_slice(message.get_payload_bytes());
        self.channels.publish(message.get_channel_name(), &bytes);
    }

    /// Handles a subscribe request, together with those queued behind it.
    async fn subscribe_batch(
        &mut self,
        first: SubscribeCommand,
        sink: &mut PubSubSink,
    ) -> Result<(), RedisError> {
        let mut requests = vec![first];
        while requests.len() < MAX_CHANNELS_PER_COMMAND
            && let Ok(request) = self.requests.try_recv()
        {
            requests.push(request);
        }
        let new: HashSet<&str> = requests
            .iter()
            .map(|request| &*request.channel)
            .filter(|name| !self.subscribed.contains(*name))
            .collect();
        let new: Vec<&str> = new.into_iter().collect();
        if !new.is_empty()
            && let Err(error) = with_timeout(self.deadline, sink.subscribe(&new), timed_out).await
        {
            let store_error = unavailable(&self.target, &error);
            requests.into_iter().for_each(|request| drop(request.reply.send(Err(store_error.clone()))));
            return Err(error);
        }
        self.subscribed.extend(new.into_iter().map(Box::from));
        requests.into_iter().for_each(|request| drop(request.reply.send(Ok(()))));
        Ok(())
    }

    /// Unsubscribes from channels without listeners, and checks that the connection is alive.
    async fn maintain(&mut self, sink: &mut PubSubSink) -> Result<(), RedisError> {
        let unused: Vec<Box<str>> =
            self.subscribed.iter().filter(|name| !self.channels.has_listeners(name)).cloned().collect();
        for names in unused.chunks(MAX_CHANNELS_PER_COMMAND) {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            with_timeout(self.deadline, sink.unsubscribe(&names), timed_out).await?;
        }
        for name in &unused {
            self.subscribed.remove(name);
        }
        with_timeout(self.deadline, sink.ping::<redis::Value>(), timed_out).await.map(drop)
    }

    /// Waits before the next attempt to connect. Meanwhile, subscribe requests fail with `error`.
    async fn reject_until_retry(&mut self, error: StoreError) {
        let delay = tokio::time::sleep(reconnect_delay());
        tokio::pin!(delay);
        loop {
            tokio::select! {
                biased;
                () = &mut delay => return,
                request = self.requests.recv() => match request {
                    Some(request) => drop(request.reply.send(Err(error.clone()))),
                    None => return,
                },
            }
        }
    }
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
