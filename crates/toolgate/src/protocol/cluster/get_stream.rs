//! Streams for a GET, which any node can open: the standalone stream of a session, or the rest of an interrupted stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use toolgate_wire::model::SubscriptionFilter;
use toolgate_wire::{ProtocolError, TasksMode};

use super::record::SessionRecord;
use super::replica::{ReaderAnnouncement, StreamPosition};
use super::stream_log::StreamLog;
use super::{ClusterSessions, store_unavailable};
use crate::cluster_bus::{NodeMessage, retry_delay, with_store_timeout};
use crate::protocol::Reply;
use crate::protocol::notifications::send_changes;
use crate::protocol::session::{Session, invalid_event_id, parse_event_id};
use crate::request::{BoxFuture, task_owner};
use crate::seal::random_token;
use crate::stream::{Capacity, Reader, Stream};

/// The stream for a GET.
pub(crate) struct ClusterStream {
    pub(crate) number: u64,
    pub(crate) reader: Reader,
    /// Writes to the stream while it is read.
    pub(crate) driver: BoxFuture<'static, Reply>,
}

impl ClusterSessions {
    /// Opens the stream that a GET requests: the standalone stream, or the rest of one that was interrupted.
    pub(in crate::protocol) async fn open_get_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        last_event: Option<&str>,
    ) -> Result<ClusterStream, ProtocolError> {
        match last_event.map(|id| parse_event_id(id).ok_or_else(invalid_event_id)).transpose()? {
            None => self.open_standalone_stream(session, None).await,
            Some((0, after)) => self.open_standalone_stream(session, Some(after)).await,
            Some((number, after)) => self.resume_stream(session, number, after).await,
        }
    }

    /// Sends notifications of the tasks of this session's owner, as long as there is a reader. They are not in the change log,
    /// so these events have no id to resume from.
    async fn send_task_changes(&self, session: &Session, out: &Stream) {
        if session.client.protocol_version.behavior().tasks != TasksMode::Core {
            return std::future::pending().await;
        }
        let owner = task_owner(&session.principal, Some(&session.id));
        let subscriber = self.subscriptions.subscribe_to_all_tasks(SubscriptionFilter::default(), owner);
        send_changes(&self.mcp_tasks, &subscriber, out, &session.client.protocol_version.into(), None).await;
        std::future::pending().await
    }

    async fn open_standalone_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        after: Option<u64>,
    ) -> Result<ClusterStream, ProtocolError> {
        if let Some(after) = after
            && !self.changes.is_valid_position(after).await.map_err(store_unavailable)?
        {
            return Err(unknown_position());
        }
        let replica = session.replica.as_ref().ok_or_else(unknown_position)?;
        let (out, reader_id, position) =
            (Stream::new(Capacity::default()), random_token(), Arc::<StreamPosition>::default());
        // Without `Last-Event-ID`, it starts after the last change that a standalone stream of the session sent.
        let stored = match after {
            Some(_) => 0,
            None => {
                let key = self.record_key(&session.id);
                let found = with_store_timeout(self.bus.scoped_store.backend.get(&key))
                    .await
                    .map_err(store_unavailable)?;
                let record = found.and_then(|found| SessionRecord::decode(&found.value));
                record.map_or(0, |record| record.position).max(replica.position.load(Ordering::Relaxed))
            }
        };
        let reader = out.reader();
        let start_at = |number| {
            position.reset(number);
            out.start_after(number);
        };
        // Before the reader is visible: a reader that replaces it at this moment continues from there.
        start_at(after.unwrap_or(stored));
        let previous = replica.attach_reader(0, &reader_id, &out, &position, ReaderAnnouncement::Pending);
        if let (Some(previous), None) = (previous, after) {
            start_at(previous);
        }
        let driver = {
            let (cluster, out) = (Arc::clone(self), Arc::clone(&out));
            async move {
                let guard =
                    PositionGuard { cluster: &cluster, session: &session, out: &out, position: &position };
                let sending = async {
                    tokio::join!(
                        cluster.announce_reader(&session, 0, &reader_id),
                        cluster.changes.send_to_session(&session, &out, &position)
                    );
                };
                let sending_tasks = cluster.send_task_changes(&session, &out);
                tokio::select! {
                    biased;
                    () = session.closed.cancelled() => {}
                    () = cluster.drain.cancelled() => {}
                    () = sending => {}
                    () = sending_tasks => {}
                }
                drop(guard);
                Reply::NoResponse
            }
        };
        Ok(ClusterStream { number: 0, reader, driver: Box::pin(driver) })
    }

    /// Announces a new reader of a stream to all nodes, so that an older reader of it is detached.
    async fn announce_reader(&self, session: &Session, stream: u64, reader_id: &str) {
        let message =
            NodeMessage::ReaderAttached { session: session.id.clone(), stream, reader: reader_id.into() };
        while let Err(error) = self.bus.broadcast(&message).await {
            tracing::debug!(%error, "a new reader of a stream could not be announced to other nodes");
            tokio::time::sleep(retry_delay()).await;
        }
    }

    async fn resume_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        number: u64,
        after: u64,
    ) -> Result<ClusterStream, ProtocolError> {
        let log = StreamLog { cluster: Arc::clone(self), session, number };
        let writer = log.read_lease().await?;
        let store = &self.bus.scoped_store.backend;
        // Subscribed before the log is read, so that no later record is missed.
        let listener =
            with_store_timeout(store.subscribe(&log.channel())).await.map_err(store_unavailable)?;
        let page = with_store_timeout(store.read(&log.log_key(), 0, 1)).await.map_err(store_unavailable)?;
        if after > page.newest || page.oldest > after + 1 {
            return Err(unknown_position());
        }
        let (out, reader_id) = (Stream::new(Capacity::default()), random_token());
        let reader = out.reader();
        if let Some(replica) = &log.session.replica {
            replica.attach_reader(number, &reader_id, &out, &Arc::default(), ReaderAnnouncement::Pending);
        }
        let driver = async move {
            let (session, drain) = (Arc::clone(&log.session), log.cluster.drain.clone());
            let following = async {
                tokio::join!(
                    log.cluster.announce_reader(&log.session, number, &reader_id),
                    log.follow(&out, after, page.newest, listener, &writer)
                );
            };
            tokio::select! {
                biased;
                () = session.closed.cancelled() => {}
                () = drain.cancelled() => {}
                () = following => {}
            }
            Reply::NoResponse
        };
        Ok(ClusterStream { number, reader, driver: Box::pin(driver) })
    }
}

/// Stores the position of a standalone stream when it is dropped, for the next GET without `Last-Event-ID`.
struct PositionGuard<'a> {
    cluster: &'a Arc<ClusterSessions>,
    session: &'a Arc<Session>,
    out: &'a Stream,
    position: &'a StreamPosition,
}

impl Drop for PositionGuard<'_> {
    fn drop(&mut self) {
        let position =
            self.out.resume_position().unwrap_or_else(|| self.position.sent.load(Ordering::Relaxed));
        let Some(replica) = &self.session.replica else { return };
        let previous = replica.position.fetch_max(position, Ordering::Relaxed);
        if position <= previous
            || self.session.closed.is_cancelled()
            || tokio::runtime::Handle::try_current().is_err()
        {
            return;
        }
        let (cluster, session) = (Arc::clone(self.cluster), Arc::clone(self.session));
        self.cluster.tracker.spawn(async move {
            let set_position = |record: &mut SessionRecord| {
                record.position = record.position.max(position);
                Ok(())
            };
            if let Err(error) = cluster.update_record(&session, &set_position).await {
                tracing::debug!(%error, "the position of a standalone stream could not be stored");
            }
        });
    }
}

fn unknown_position() -> ProtocolError {
    ProtocolError::invalid_request("that position in the stream is not available")
}
