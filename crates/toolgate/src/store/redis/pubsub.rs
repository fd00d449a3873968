//! The connection for listeners, shared by all. One task keeps it, listens on it to every channel that somebody here
//! listens to, and hands out what comes. When it had to be made anew, every listener hears of a gap.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream as _;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::StoreError;
use super::address::{Target, describe_error};
use super::connection::{jittered, unavailable};
use crate::store::Listener;
use crate::store::channels::Channels;

/// Wishes that wait for the task. Whoever comes when so many wait, waits for a place, and not longer than the deadline.
const MAX_PENDING_SUBSCRIBES: usize = 256;

/// How often a connection on which nothing comes is tried, and channels that nobody listens to any more are left.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(2);

/// The middle of the pause between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(700);

/// Channels that are asked for with one command.
const MAX_CHANNELS_PER_COMMAND: usize = 256;

pub(super) struct RedisPubSub {
    channels: Arc<Channels>,
    requests: mpsc::Sender<SubscribeCommand>,
    deadline: Duration,
}

/// Somebody who wants to hear a channel, and waits until it can be heard.
struct SubscribeCommand {
    channel: String,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

struct PubSubTask {
    target: Target,
    deadline: Duration,
    channels: Arc<Channels>,
    requests: mpsc::Receiver<SubscribeCommand>,
    /// The channels that this connection is known to hear.
    subscribed: HashSet<Box<str>>,
    /// The channels that the one before heard, whose listeners have not been told yet that it was lost.
    lost: HashSet<Box<str>>,
}

impl RedisPubSub {
    pub(super) fn open(target: Target, deadline: Duration, tasks: &mut JoinSet<()>) -> RedisPubSub {
        let channels = Arc::<Channels>::default();
        let (sender, wishes) = mpsc::channel(MAX_PENDING_SUBSCRIBES);
        let task = PubSubTask {
            target,
            deadline,
            channels: Arc::clone(&channels),
            requests: wishes,
            subscribed: HashSet::new(),
            lost: HashSet::new(),
        };
        tasks.spawn(task.run());
        RedisPubSub { channels, requests: sender, deadline }
    }

    pub(super) async fn subscribe(&self, channel: String) -> Result<Listener, StoreError> {
        // Its mailbox is there before the first message can come.
        let listener = self.channels.subscribe(&channel);
        let asking = async {
            let (heard, answer) = oneshot::channel();
            let away = || StoreError::Unavailable("it was closed".to_owned());
            self.requests.send(SubscribeCommand { channel, reply: heard }).await.map_err(|_| away())?;
            answer.await.map_err(|_| away())?
        };
        match timeout(self.deadline, asking).await {
            Ok(asked) => asked.map(|()| listener),
            Err(_) => Err(StoreError::Unavailable(format!("Redis: no answer within {:?}", self.deadline))),
        }
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
            tracing::warn!(
                at = self.target.hosts(),
                why = describe_error(&error),
                "nothing is heard from Redis"
            );
            self.lost.extend(self.subscribed.drain());
            self.reject_until_retry(unavailable(&self.target, &error)).await;
        }
    }

    /// Connects, listens to everything that was listened to before, and says that something may have been missed.
    async fn connect(&mut self, attempt: usize) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let deadline = self.deadline;
        let connecting = async { self.target.client(attempt).await?.get_async_pubsub().await };
        let (mut sink, stream) = with_deadline(deadline, connecting).await?.split();
        let names = self.channels.names();
        for names in names.chunks(MAX_CHANNELS_PER_COMMAND) {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            with_deadline(deadline, sink.subscribe(&names)).await?;
        }
        self.subscribed.extend(names);
        for name in self.lost.drain() {
            self.channels.mark_lagged(&name);
        }
        Ok((sink, stream))
    }

    /// Hands out what comes until the connection is lost. Ends well when nobody can want anything any more.
    async fn run_connection(
        &mut self,
        sink: &mut PubSubSink,
        stream: &mut PubSubStream,
    ) -> Result<(), RedisError> {
        let mut round = tokio::time::interval(MAINTENANCE_INTERVAL);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                message = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)) => match message {
                    Some(message) => self.deliver(&message),
                    None => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                },
                wish = self.requests.recv() => match wish {
                    Some(wish) => self.subscribe_batch(wish, sink).await?,
                    None => return Ok(()),
                },
                _ = round.tick() => self.maintain(sink).await?,
            }
        }
    }

    fn deliver(&self, message: &Msg) {
        // Where nobody listens any more, the next round leaves the channel.
        let bytes = Bytes::copy_from_slice(message.get_payload_bytes());
        self.channels.publish(message.get_channel_name(), &bytes);
    }

    /// Listens for whoever wishes it, and for all others who wait too.
    async fn subscribe_batch(
        &mut self,
        first: SubscribeCommand,
        sink: &mut PubSubSink,
    ) -> Result<(), RedisError> {
        let mut wishes = vec![first];
        while wishes.len() < MAX_CHANNELS_PER_COMMAND
            && let Ok(wish) = self.requests.try_recv()
        {
            wishes.push(wish);
        }
        let new: HashSet<&str> = wishes
            .iter()
            .map(|wish| &*wish.channel)
            .filter(|name| !self.subscribed.contains(*name))
            .collect();
        let new: Vec<&str> = new.into_iter().collect();
        if !new.is_empty()
            && let Err(error) = with_deadline(self.deadline, sink.subscribe(&new)).await
        {
            let refusal = unavailable(&self.target, &error);
            wishes.into_iter().for_each(|wish| drop(wish.reply.send(Err(refusal.clone()))));
            return Err(error);
        }
        self.subscribed.extend(new.into_iter().map(Box::from));
        wishes.into_iter().for_each(|wish| drop(wish.reply.send(Ok(()))));
        Ok(())
    }

    /// Leaves the channels that nobody listens to, and makes sure that the other side is alive.
    async fn maintain(&mut self, sink: &mut PubSubSink) -> Result<(), RedisError> {
        let left: Vec<Box<str>> =
            self.subscribed.iter().filter(|name| !self.channels.has_listeners(name)).cloned().collect();
        for names in left.chunks(MAX_CHANNELS_PER_COMMAND) {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            with_deadline(self.deadline, sink.unsubscribe(&names)).await?;
        }
        for name in &left {
            self.subscribed.remove(name);
        }
        with_deadline(self.deadline, sink.ping::<redis::Value>()).await.map(drop)
    }

    /// A pause before the next attempt, in which whoever wishes something is told why not.
    async fn reject_until_retry(&mut self, refusal: StoreError) {
        let pause = tokio::time::sleep(jittered(RECONNECT_DELAY));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                biased;
                () = &mut pause => return,
                wish = self.requests.recv() => match wish {
                    Some(wish) => drop(wish.reply.send(Err(refusal.clone()))),
                    None => return,
                },
            }
        }
    }
}

async fn with_deadline<T>(
    deadline: Duration,
    future: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match timeout(deadline, future).await {
        Ok(ended) => ended,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}
