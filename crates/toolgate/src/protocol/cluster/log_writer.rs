//! Writing the log of a stream: messages of a call are stored before its client receives them.
//!
//! The writer continues when the client disconnects, so that the client can resume the stream on any node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use toolgate_wire::RequestId;

use super::ClusterSessions;
use super::replica::ReaderAnnouncement;
use super::stream_log::{LogRecord, StreamLog, WRITER_LEASE_TTL, WriterLease};
use crate::cluster_bus::{retry_delay, with_store_timeout};
use crate::protocol::session::Session;
use crate::request::BoxFuture;
use crate::seal::{fill_random, random_token};
use crate::store::{Expect, StoreError};
use crate::stream::{Capacity, ReadResult, Reader, Stream};
use crate::util::clock::timer_now;
use crate::util::lock;

/// How often the writer renews its lease.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// How often the last record is appended again after the store failed.
const MAX_APPEND_ATTEMPTS: usize = 60;

/// How much was written to a log since it was last read.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

/// The backlog of each log that this node writes, sorted by number. There is one per call in flight, so an insertion moves a
/// few kilobytes at most.
#[derive(Debug, Default)]
pub(super) struct Backlogs(Vec<(u64, Arc<Backlog>)>);

impl Backlogs {
    fn search(&self, number: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(number, _)| *number)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Arc<Backlog>> {
        self.search(number).ok().map(|index| &self.0[index].1)
    }

    fn insert(&mut self, number: u64, backlog: Arc<Backlog>) {
        match self.search(number) {
            Ok(index) => self.0[index].1 = backlog,
            Err(index) => self.0.insert(index, (number, backlog)),
        }
    }

    fn remove(&mut self, number: u64) {
        if let Ok(index) = self.search(number) {
            self.0.remove(index);
        }
    }
}

impl Backlog {
    fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that a reader has caught up.
    pub(super) fn reset(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        let capacity = Capacity::default();
        self.messages.load(Ordering::Relaxed) >= capacity.messages
            || self.bytes.load(Ordering::Relaxed) >= capacity.bytes
    }
}

impl ClusterSessions {
    /// Copies the messages of `inner` to a log in the store, and from there to the returned stream, so that any node can resume
    /// it. Returns the number of the stream, the stream to read, and the future that copies.
    pub(in crate::protocol) fn persist_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        inner: &Arc<Stream>,
    ) -> (u64, Arc<Stream>, BoxFuture<'static, ()>) {
        let number = random_stream_number();
        let outer = Stream::new(Capacity::default());
        // The first reader need not be announced to other nodes.
        if let Some(replica) = &session.replica {
            replica.attach_reader(number, &random_token(), &outer, &Arc::default(), ReaderAnnouncement::Done);
        }
        let backlog = Arc::<Backlog>::default();
        self.backlogs().insert(number, Arc::clone(&backlog));
        let writer = LogWriter {
            log: StreamLog { cluster: Arc::clone(self), session, number },
            request_ids: inner.request_ids(),
            reader: inner.reader(),
            outer: Arc::clone(&outer),
            backlog,
            log_bytes: 0,
            has_store_failed: false,
        };
        (number, outer, Box::pin(writer.run()))
    }
}

/// Appends the messages of a call to its log, and then sends them to its reader under the number they got there.
struct LogWriter {
    log: StreamLog,
    request_ids: Vec<RequestId>,
    reader: Reader,
    outer: Arc<Stream>,
    backlog: Arc<Backlog>,
    /// Total length of the messages in the log.
    log_bytes: usize,
    /// Whether the store has failed: messages then go to the reader only.
    has_store_failed: bool,
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.log.cluster.backlogs().remove(self.log.number);
        self.outer.finish();
    }
}

impl LogWriter {
    async fn run(mut self) {
        let lease = WriterLease {
            node: self.log.cluster.bus.node.to_string(),
            requests: self.request_ids.iter().map(ToString::to_string).collect(),
        };
        if let Err(error) = self.log.write_lease(&lease, WRITER_LEASE_TTL).await {
            self.mark_store_failed(&error);
        }
        let mut last_append = timer_now();
        let mut renewal = Box::pin(tokio::time::sleep(LEASE_RENEW_INTERVAL));
        loop {
            let next = tokio::select! {
                biased;
                next = self.reader.next() => next,
                () = &mut renewal => {
                    renewal.as_mut().reset(timer_now() + LEASE_RENEW_INTERVAL);
                    if !self.has_store_failed {
                        // A failed renewal is repeated before the lease expires.
                        let _ = self.log.write_lease(&lease, WRITER_LEASE_TTL).await;
                        if last_append.elapsed() > self.log.ttl() / 2 {
                            last_append = timer_now();
                            let _ = self.log.append(&LogRecord::Noop, self.log.ttl()).await;
                        }
                    }
                    continue;
                }
            };
            match next {
                ReadResult::Message(event) => {
                    let is_last = self.reader.is_at_end();
                    if event.is_hint && !is_last && self.outer.is_abandoned() && self.backlog.is_full() {
                        continue;
                    }
                    if is_last {
                        self.finish(&lease, Some(event.data)).await;
                        return;
                    }
                    self.write_message(event.data).await;
                    last_append = timer_now();
                }
                ReadResult::Disconnect(retry) => {
                    if self.outer.is_abandoned() && !self.has_store_failed {
                        let millis = u64::try_from(retry.as_millis()).unwrap_or(u64::MAX);
                        let _ = self.log.append(&LogRecord::Disconnect(millis), self.log.ttl()).await;
                        self.log.notify_followers().await;
                    }
                    self.outer.disconnect_reader(retry);
                }
                ReadResult::End => {
                    self.finish(&lease, None).await;
                    return;
                }
            }
        }
    }

    async fn write_message(&mut self, data: Bytes) {
        let mut number = None;
        if !self.has_store_failed {
            match self.log.append(&LogRecord::Message(data.clone()), self.log.ttl()).await {
                Ok(appended) => number = Some(appended),
                Err(error) => self.mark_store_failed(&error),
            }
        }
        self.log_bytes += data.len();
        if self.outer.send_numbered(data.clone(), number).await.is_ok() {
            self.backlog.reset();
        } else {
            self.backlog.add(data.len());
            self.log.notify_followers().await;
        }
    }

    /// Ends the log with the last message. The response is stored for a client that resumes, with retries if the store fails.
    async fn finish(&mut self, lease: &WriterLease, last: Option<Bytes>) {
        if self.log.session.closed.is_cancelled() {
            return;
        }
        let ttl = self.log.session.limits.replay_ttl;
        self.log_bytes += last.as_ref().map_or(0, Bytes::len);
        let record = LogRecord::End(last.clone());
        let mut appended = self.log.append(&record, ttl).await;
        if let Some(last) = last {
            let number = appended.as_ref().ok().copied().filter(|_| !self.has_store_failed);
            let _ = self.outer.send_numbered(last, number).await;
        }
        self.outer.finish();
        for _ in 0..MAX_APPEND_ATTEMPTS {
            match &appended {
                Ok(_) => break,
                Err(error) => self.mark_store_failed(error),
            }
            tokio::time::sleep(retry_delay()).await;
            appended = self.log.append(&record, ttl).await;
        }
        self.log.notify_followers().await;
        let _ = self.log.write_lease(lease, ttl).await;
        self.evict_ended_logs().await;
    }

    /// Deletes the oldest ended logs of the session beyond its limits of number and bytes.
    async fn evict_ended_logs(&self) {
        let StreamLog { cluster, session, number } = &self.log;
        let (Some(replica), limits) = (&session.replica, &session.limits) else { return };
        let evicted = {
            let mut ended = lock(&replica.ended_logs);
            ended.push((*number, self.log_bytes));
            let mut held: usize = ended.iter().map(|(_, bytes)| bytes).sum();
            let mut n_evicted = 0;
            while n_evicted + 1 < ended.len()
                && (held > limits.max_replay_bytes || ended.len() - n_evicted > limits.max_streams)
            {
                held -= ended[n_evicted].1;
                n_evicted += 1;
            }
            ended.drain(..n_evicted).collect::<Vec<_>>()
        };
        for (number, _) in evicted {
            let log = StreamLog { cluster: Arc::clone(cluster), session: Arc::clone(session), number };
            for key in [log.key("call"), log.log_key()] {
                let _ =
                    with_store_timeout(cluster.bus.scoped_store.backend.delete(&key, Expect::Anything)).await;
            }
        }
    }

    /// Notes that the store failed: the present reader gets the messages, but the stream cannot be resumed.
    fn mark_store_failed(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.has_store_failed, true) {
            tracing::warn!(%error, "a stream cannot be resumed because the store failed");
        }
    }
}

/// A random stream number of 53 bits, which JavaScript numbers hold exactly. Never 0, which is the standalone stream.
fn random_stream_number() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    (u64::from_le_bytes(bytes) >> 11).max(1)
}
