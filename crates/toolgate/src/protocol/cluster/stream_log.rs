//! The log of a stream in the store, by which any node can resume it.
//!
//! A [`LogWriter`](super::log_writer) takes the messages of a call, appends them to a log and only then sends them on, under
//! the number they got there. A *follower* ([`StreamLog::follow`]) reads a log for a client that reconnected, on any node, to
//! its end. The log of a writer that has died is ended by its followers: only the first end in a log counts, so it does not
//! matter how many notice.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson, RequestId, codec};

use super::{ClusterSessions, session_space, store_unavailable};
use crate::cluster_bus::{NodeMessage, retry_delay, with_store_timeout};
use crate::protocol::session::{Session, stream_not_resumable};
use crate::store::{Expect, Key, Listener, StoreError};
use crate::stream::Stream;
use crate::util::clock::timer_now;
use crate::util::stored_json;

/// Maximum number of messages in a log. Hints are dropped long before, so that old messages are almost never cut off.
const MAX_LOG_MESSAGES: usize = 1024;
/// How long a writer counts as alive after it renewed its lease.
pub(super) const WRITER_LEASE_TTL: Duration = Duration::from_secs(60);
/// How many messages a follower reads at once.
const READ_PAGE_SIZE: usize = 16;
/// How often a follower reads the log without being notified.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A writer that is found missing twice, this long apart, has died.
const WRITER_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Which node writes a log, and which requests it responds to.
#[derive(Debug, Serialize)]
pub(super) struct WriterLease {
    pub(super) node: String,
    /// The request ids, as JSON.
    pub(super) requests: Vec<String>,
}

impl WriterLease {
    fn decode(bytes: Bytes) -> Option<WriterLease> {
        let raw = stored_json::parse(bytes)?;
        let mut requests = Vec::new();
        for request in raw.view().get("requests")?.items() {
            requests.push(request.as_string()?.into_owned());
        }
        Some(WriterLease { node: raw.view().get("node")?.as_string()?.into_owned(), requests })
    }
}

/// One record of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogRecord {
    Message(Bytes),
    /// The end of the log, with the last message if there is one.
    End(Option<Bytes>),
    /// The present reader must disconnect, and resume after this many milliseconds.
    Disconnect(u64),
    /// Keeps the log from expiring. Unknown records are read as this one.
    Noop,
}

impl LogRecord {
    fn encode(&self) -> Bytes {
        let (tag, rest) = match self {
            LogRecord::Message(message) => (b'm', message.clone()),
            LogRecord::End(Some(message)) => (b'l', message.clone()),
            LogRecord::End(None) => (b'e', Bytes::new()),
            LogRecord::Disconnect(millis) => (b'c', millis.to_string().into()),
            LogRecord::Noop => (b'n', Bytes::new()),
        };
        let mut bytes = BytesMut::with_capacity(1 + rest.len());
        bytes.put_u8(tag);
        bytes.put(rest);
        bytes.freeze()
    }

    fn decode(bytes: &Bytes) -> LogRecord {
        let rest = bytes.slice(bytes.len().min(1)..);
        match bytes.first() {
            Some(b'm') => LogRecord::Message(rest),
            Some(b'l') => LogRecord::End(Some(rest)),
            Some(b'e') => LogRecord::End(None),
            Some(b'c') => std::str::from_utf8(&rest)
                .ok()
                .and_then(|rest| rest.parse().ok())
                .map_or(LogRecord::Noop, LogRecord::Disconnect),
            _ => LogRecord::Noop,
        }
    }
}

/// The log of one stream of a session.
pub(super) struct StreamLog {
    pub(super) cluster: Arc<ClusterSessions>,
    pub(super) session: Arc<Session>,
    pub(super) number: u64,
}

impl StreamLog {
    pub(super) fn key(&self, kind: &str) -> Key {
        self.cluster
            .bus
            .scoped_store
            .key(&session_space(&self.session.id), &format!("{kind}/{}", self.number))
    }

    pub(super) fn log_key(&self) -> Key {
        self.key("log")
    }

    /// The store channel on which new records are announced.
    pub(super) fn channel(&self) -> String {
        self.cluster.bus.scoped_store.space(&format!("{}/{}", session_space(&self.session.id), self.number))
    }

    /// How long the log is kept after each record: at least as long as an idle session.
    pub(super) fn ttl(&self) -> Duration {
        self.session.limits.idle_timeout.max(self.session.limits.replay_ttl).max(WRITER_LEASE_TTL * 2)
    }

    pub(super) async fn append(&self, record: &LogRecord, ttl: Duration) -> Result<u64, StoreError> {
        let (log, bytes) = (self.log_key(), record.encode());
        with_store_timeout(self.cluster.bus.scoped_store.backend.append(&log, bytes, ttl, MAX_LOG_MESSAGES))
            .await
    }

    /// Tells followers on other nodes that the log has grown.
    pub(super) async fn notify_followers(&self) {
        // A follower that misses it polls a little later.
        let _ =
            with_store_timeout(self.cluster.bus.scoped_store.backend.publish(&self.channel(), Bytes::new()))
                .await;
    }

    /// Stores who writes the log, for this time.
    pub(super) async fn write_lease(&self, lease: &WriterLease, ttl: Duration) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(lease).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let key = self.key("call");
        with_store_timeout(self.cluster.bus.scoped_store.backend.put(
            &key,
            bytes.into(),
            Some(ttl),
            Expect::Anything,
        ))
        .await?;
        Ok(())
    }

    /// Reads who writes the log, or has written it.
    pub(super) async fn read_lease(&self) -> Result<WriterLease, ProtocolError> {
        let key = self.key("call");
        for is_retried in [true, true, false] {
            let found = with_store_timeout(self.cluster.bus.scoped_store.backend.get(&key))
                .await
                .map_err(store_unavailable)?;
            if let Some(lease) = found.and_then(|found| WriterLease::decode(found.value)) {
                return Ok(lease);
            }
            // A client that is disconnected at once may reconnect before the lease is stored.
            if is_retried {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Err(stream_not_resumable())
    }

    /// Whether the log is still being written.
    async fn is_writer_alive(&self, lease: &WriterLease) -> Result<bool, StoreError> {
        if *lease.node == *self.cluster.bus.node {
            return Ok(self.cluster.backlogs().get(self.number).is_some());
        }
        let key = self.key("call");
        let has_lease = with_store_timeout(self.cluster.bus.scoped_store.backend.get(&key)).await?.is_some();
        Ok(has_lease && self.cluster.bus.is_alive(&lease.node).await?)
    }

    /// Sends the records after `after` to `out`, until the log ends. `newest` is the last record at the time of the call: a
    /// disconnect before it was for an earlier reader.
    pub(super) async fn follow(
        &self,
        out: &Stream,
        after: u64,
        newest: u64,
        mut listener: Listener,
        lease: &WriterLease,
    ) {
        let log = self.log_key();
        let (mut after, mut last_alive) = (after, timer_now());
        // When the writer was first found missing.
        let mut missing_since = None;
        loop {
            let page = match with_store_timeout(self.cluster.bus.scoped_store.backend.read(
                &log,
                after,
                READ_PAGE_SIZE,
            ))
            .await
            {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "the log of a stream could not be read");
                    tokio::time::sleep(retry_delay()).await;
                    // The writer could not renew its lease either.
                    (last_alive, missing_since) = (timer_now(), None);
                    continue;
                }
            };
            if page.newest < after {
                // The log has expired, and the response with it.
                return;
            }
            if page.entries.is_empty() {
                if last_alive.elapsed() >= WRITER_GRACE_PERIOD {
                    match self.is_writer_alive(lease).await {
                        Ok(false) => {
                            let since = *missing_since.get_or_insert_with(timer_now);
                            if since.elapsed() >= WRITER_GRACE_PERIOD {
                                self.end_abandoned(lease).await;
                                last_alive = timer_now();
                            }
                        }
                        Ok(true) => (last_alive, missing_since) = (timer_now(), None),
                        Err(_) => missing_since = None,
                    }
                }
                // The log is read again in any case. A closed channel returns at once, hence the sleep.
                if let Ok(None) = tokio::time::timeout(POLL_INTERVAL, listener.next()).await {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                continue;
            }
            (last_alive, missing_since) = (timer_now(), None);
            for (number, bytes) in page.entries {
                after = number;
                let sent = match LogRecord::decode(&bytes) {
                    LogRecord::Message(message) => out.send_numbered(message, Some(number)).await,
                    LogRecord::End(last) => {
                        if let Some(last) = last {
                            let _ = out.send_numbered(last, Some(number)).await;
                        }
                        out.finish();
                        return;
                    }
                    LogRecord::Disconnect(millis) => {
                        if number > newest {
                            out.disconnect_reader(Duration::from_millis(millis));
                        }
                        Ok(())
                    }
                    LogRecord::Noop => Ok(()),
                };
                if sent.is_err() {
                    return;
                }
            }
            // Tells the writer that the reader has caught up.
            let message = NodeMessage::ReaderAttached {
                session: self.session.id.clone(),
                stream: self.number,
                reader: "".into(),
            };
            let _ = self.cluster.bus.send_to_node(&lease.node, &message).await;
        }
    }

    /// Ends the log of a writer that has died: appends an error response for each of its requests.
    async fn end_abandoned(&self, lease: &WriterLease) {
        let error = ProtocolError::new(
            ProtocolErrorKind::Internal,
            "the process that ran this call has ended; call again",
        );
        let ids: Vec<RequestId> = lease.requests.iter().filter_map(|id| parse_request_id(id)).collect();
        let mut records: Vec<LogRecord> = Vec::new();
        for id in &ids {
            let mut message = Vec::new();
            codec::write_protocol_error(&mut message, self.session.client.protocol_version, Some(id), &error);
            records.push(LogRecord::Message(message.into()));
        }
        let end = match records.pop() {
            Some(LogRecord::Message(last)) => LogRecord::End(Some(last)),
            _ => LogRecord::End(None),
        };
        records.push(end);
        tracing::warn!(node = lease.node, "a node has died; its call is ended with an error response");
        for record in records {
            if let Err(error) = self.append(&record, self.session.limits.replay_ttl).await {
                tracing::debug!(%error, "a call of a dead node could not be ended yet");
                return;
            }
        }
    }
}

impl ClusterSessions {
    /// Deletes all logs of a session.
    pub(super) async fn delete_logs(&self, session: &str) -> Result<(), StoreError> {
        let store = &self.bus.scoped_store.backend;
        let space = self.bus.scoped_store.space(&session_space(session));
        let mut after: Option<Box<str>> = None;
        loop {
            let found = with_store_timeout(store.list(&space, after.as_deref(), 64)).await?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            after = Some(last.clone());
            for (name, _) in found {
                if let Some(number) = name.strip_prefix("call/") {
                    with_store_timeout(
                        store.delete(&Key::new(&*space, format!("log/{number}")), Expect::Anything),
                    )
                    .await?;
                }
                with_store_timeout(store.delete(&Key::new(&*space, name), Expect::Anything)).await?;
            }
        }
    }
}

fn parse_request_id(text: &str) -> Option<RequestId> {
    RequestId::read(RawJson::parse(text.to_owned().into()).ok()?.view())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_decoded_as_it_was_encoded() {
        let message = || Bytes::from_static(b"{}");
        for record in [
            LogRecord::Message(message()),
            LogRecord::End(Some(message())),
            LogRecord::End(None),
            LogRecord::Disconnect(250),
            LogRecord::Noop,
        ] {
            assert_eq!(LogRecord::decode(&record.encode()), record);
        }
        assert_eq!(LogRecord::decode(&Bytes::new()), LogRecord::Noop);
        assert_eq!(LogRecord::decode(&Bytes::from_static(b"cx")), LogRecord::Noop);
    }
}
