//! Streams that any node can go on with: what a call says is written down in the store before its client hears it.
//!
//! A *pump* takes what a call says, adds it to a log and only then hands it on, under the number it got there; it goes
//! on when the client leaves. A *follower* reads a log for a client that came back, on whatever node, to its end. A
//! log whose writer is gone is ended by whoever follows it: the first end in a log is the one that counts, so it does
//! not matter how many notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use toolgate_wire::model::SubscriptionFilter;
use toolgate_wire::{ProtocolError, ProtocolErrorKind, RawJson, RequestId, codec};

use super::replica::StreamPosition;
use super::{ClusterSessions, session_space, store_unavailable};
use crate::cluster_bus::{NodeMessage, retry_delay, with_store_timeout};
use crate::protocol::Reply;
use crate::protocol::notifications::send_changes;
use crate::protocol::session::{Session, parse_event_id};
use crate::request::{BoxFuture, task_owner};
use crate::seal::{fill_random, random_token};
use crate::store::{Expect, Key, Listener, StoreError};
use crate::stream::{Capacity, ReadResult, Reader, Stream};
use crate::util::clock::timer_now;
use crate::util::lock;
use crate::util::stored_json;

/// Messages that a log holds. Hints are left out long before, so that hardly any is cut off at its old end.
const MAX_LOG_MESSAGES: usize = 1024;
/// For so long a writer is believed to be at work.
const WRITER_LEASE_TTL: Duration = Duration::from_secs(60);
/// How often it says so.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// How many messages are read at once.
const READ_PAGE_SIZE: usize = 16;
/// How often a log is looked at though nobody said that it grew.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A writer that is missed twice, so long apart, is gone.
const WRITER_GRACE_PERIOD: Duration = Duration::from_secs(3);
/// How often an answer is tried to be kept that the store would not take.
const MAX_APPEND_ATTEMPTS: usize = 60;

/// A stream that a GET is answered by.
pub(crate) struct ClusterStream {
    pub(crate) number: u64,
    pub(crate) reader: Reader,
    /// Writes to it while it is read.
    pub(crate) driver: BoxFuture<'static, Reply>,
}

/// How much was written since somebody read it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

/// The pace of each log that is written here, in the order of their numbers. There are as many as calls under way, so
/// that one more moves a few kilobytes.
#[derive(Debug, Default)]
pub(super) struct Backlogs(Vec<(u64, Arc<Backlog>)>);

impl Backlogs {
    fn search(&self, number: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(number, _)| *number)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Arc<Backlog>> {
        self.search(number).ok().map(|place| &self.0[place].1)
    }

    fn insert(&mut self, number: u64, pace: Arc<Backlog>) {
        match self.search(number) {
            Ok(place) => self.0[place].1 = pace,
            Err(place) => self.0.insert(place, (number, pace)),
        }
    }

    fn remove(&mut self, number: u64) {
        if let Ok(place) = self.search(number) {
            self.0.remove(place);
        }
    }
}

/// Who writes a log, and which requests it answers.
#[derive(Debug, Serialize)]
struct WriterLease {
    node: String,
    /// Their ids, as JSON.
    requests: Vec<String>,
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

/// What stands in a log.
#[derive(Debug, PartialEq, Eq)]
enum LogRecord {
    Message(Bytes),
    /// The last one, if there is any, and the end.
    End(Option<Bytes>),
    /// Whoever reads now is to come back after so many milliseconds.
    Disconnect(u64),
    /// It keeps the log alive.
    Noop,
}

impl LogRecord {
    fn encode(&self) -> Bytes {
        let (mark, rest) = match self {
            LogRecord::Message(message) => (b'm', message.clone()),
            LogRecord::End(Some(message)) => (b'l', message.clone()),
            LogRecord::End(None) => (b'e', Bytes::new()),
            LogRecord::Disconnect(millis) => (b'c', millis.to_string().into()),
            LogRecord::Noop => (b'n', Bytes::new()),
        };
        let mut bytes = BytesMut::with_capacity(1 + rest.len());
        bytes.put_u8(mark);
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

impl Backlog {
    fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Somebody has read what there is.
    pub(super) fn reset(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        let most = Capacity::default();
        self.messages.load(Ordering::Relaxed) >= most.messages
            || self.bytes.load(Ordering::Relaxed) >= most.bytes
    }
}

impl ClusterSessions {
    /// What a call says on `inner` can be read at the given stream, when it is in the store.
    pub(in crate::protocol) fn persist_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        inner: &Arc<Stream>,
    ) -> (u64, Arc<Stream>, BoxFuture<'static, ()>) {
        let number = random_stream_number();
        let outer = Stream::new(Capacity::default());
        // It is the first who reads it, so nobody needs to be told.
        if let Some(kin) = &session.replica {
            kin.attach_reader(number, &random_token(), &outer, &Arc::default(), true);
        }
        let pace = Arc::<Backlog>::default();
        self.backlogs().insert(number, Arc::clone(&pace));
        let pump = LogWriter {
            log: StreamLog { cluster: Arc::clone(self), session, number },
            request_ids: inner.request_ids(),
            reader: inner.reader(),
            outer: Arc::clone(&outer),
            backlog: pace,
            log_bytes: 0,
            has_store_failed: false,
        };
        (number, outer, Box::pin(pump.run()))
    }

    /// The stream that a GET asks for: the standing one, or the rest of one that was cut.
    pub(in crate::protocol) async fn open_get_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        last_event: Option<&str>,
    ) -> Result<ClusterStream, ProtocolError> {
        let none_of_ours = || ProtocolError::invalid_request("last-event-id is none of ours");
        match last_event.map(|id| parse_event_id(id).ok_or_else(none_of_ours)).transpose()? {
            None => self.open_standalone_stream(session, None).await,
            Some((0, after)) => self.open_standalone_stream(session, Some(after)).await,
            Some((number, after)) => self.resume_stream(session, number, after).await,
        }
    }

    /// Tells of the tasks of this session's owner, as long as somebody reads. They have no place in the log of changes,
    /// so nobody can come back behind such an event.
    async fn send_task_changes(&self, session: &Session, out: &Stream) {
        if session.client.protocol_version.behavior().tasks != toolgate_wire::TasksMode::Core {
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
        let kin = session.replica.as_ref().ok_or_else(unknown_position)?;
        let (out, who, place) =
            (Stream::new(Capacity::default()), random_token(), Arc::<StreamPosition>::default());
        // Who says where it was is believed. Anybody else gets what nobody read, as far as that is known.
        let kept = match after {
            Some(_) => 0,
            None => {
                let key = self.record_key(&session.id);
                let found = with_store_timeout(self.bus.scoped_store.backend.get(&key))
                    .await
                    .map_err(store_unavailable)?;
                let record = found.and_then(|found| super::SessionRecord::decode(&found.value));
                record.map_or(0, |record| record.position).max(kin.position.load(Ordering::Relaxed))
            }
        };
        let reader = out.reader();
        let begin = |position| {
            place.reset(position);
            out.start_after(position);
        };
        // Before it is seen: whoever comes in the same moment goes on from there.
        begin(after.unwrap_or(kept));
        let before = kin.attach_reader(0, &who, &out, &place, false);
        if let (Some(before), None) = (before, after) {
            begin(before);
        }
        let feed = {
            let (shared, out) = (Arc::clone(self), Arc::clone(&out));
            async move {
                let told = PositionGuard { cluster: &shared, session: &session, out: &out, position: &place };
                let feeding = async {
                    tokio::join!(
                        shared.announce_reader(&session, 0, &who),
                        shared.changes.send_to_session(&session, &out, &place)
                    );
                };
                let telling = shared.send_task_changes(&session, &out);
                tokio::select! {
                    biased;
                    () = session.closed.cancelled() => {}
                    () = shared.drain.cancelled() => {}
                    () = feeding => {}
                    () = telling => {}
                }
                drop(told);
                Reply::NoResponse
            }
        };
        Ok(ClusterStream { number: 0, reader, driver: Box::pin(feed) })
    }

    /// Whoever else reads this stream, here or elsewhere, leaves.
    async fn announce_reader(&self, session: &Session, stream: u64, who: &str) {
        let word = NodeMessage::ReaderAttached { session: session.id.clone(), stream, reader: who.into() };
        while let Err(error) = self.bus.broadcast(&word).await {
            tracing::debug!(%error, "other nodes do not know yet who reads a stream");
            tokio::time::sleep(retry_delay()).await;
        }
    }

    async fn resume_stream(
        self: &Arc<Self>,
        session: Arc<Session>,
        number: u64,
        after: u64,
    ) -> Result<ClusterStream, ProtocolError> {
        let desk = StreamLog { cluster: Arc::clone(self), session, number };
        let writer = desk.read_lease().await?;
        let store = &self.bus.scoped_store.backend;
        // Before it is read: what is added from then on is heard of.
        let listener =
            with_store_timeout(store.subscribe(&desk.channel())).await.map_err(store_unavailable)?;
        let log = desk.log_key();
        let page = with_store_timeout(store.read(&log, 0, 1)).await.map_err(store_unavailable)?;
        if after > page.newest || page.oldest > after + 1 {
            return Err(unknown_position());
        }
        let (out, who) = (Stream::new(Capacity::default()), random_token());
        let reader = out.reader();
        if let Some(kin) = &desk.session.replica {
            kin.attach_reader(number, &who, &out, &Arc::default(), false);
        }
        let feed = async move {
            let (session, drain) = (Arc::clone(&desk.session), desk.cluster.drain.clone());
            let following = async {
                tokio::join!(
                    desk.cluster.announce_reader(&desk.session, number, &who),
                    desk.follow(&out, after, page.newest, listener, &writer)
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
        Ok(ClusterStream { number, reader, driver: Box::pin(feed) })
    }

    /// Forgets every log of a session.
    pub(super) async fn delete_logs(&self, session: &str) -> Result<(), StoreError> {
        let store = &self.bus.scoped_store.backend;
        let all = self.bus.scoped_store.space(&session_space(session));
        let mut after: Option<Box<str>> = None;
        loop {
            let found = with_store_timeout(store.list(&all, after.as_deref(), 64)).await?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            after = Some(last.clone());
            for (name, _) in found {
                if let Some(number) = name.strip_prefix("call/") {
                    with_store_timeout(
                        store.delete(&Key::new(&*all, format!("log/{number}")), Expect::Anything),
                    )
                    .await?;
                }
                with_store_timeout(store.delete(&Key::new(&*all, name), Expect::Anything)).await?;
            }
        }
    }
}

/// How far a standing stream came, kept for whoever asks next without saying it.
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
        let Some(kin) = &self.session.replica else { return };
        let before = kin.position.fetch_max(position, Ordering::Relaxed);
        if position <= before
            || self.session.closed.is_cancelled()
            || tokio::runtime::Handle::try_current().is_err()
        {
            return;
        }
        let (shared, session) = (Arc::clone(self.cluster), Arc::clone(self.session));
        self.cluster.tracker.spawn(async move {
            let put = |record: &mut super::SessionRecord| {
                record.position = record.position.max(position);
                Ok(())
            };
            let kept = shared.update_record(&session, &put);
            if let Err(fault) = kept.await {
                tracing::debug!(%fault, "how far a stream came is not kept");
            }
        });
    }
}

/// One log of one session.
struct StreamLog {
    cluster: Arc<ClusterSessions>,
    session: Arc<Session>,
    number: u64,
}

impl StreamLog {
    fn key(&self, what: &str) -> Key {
        self.cluster
            .bus
            .scoped_store
            .key(&session_space(&self.session.id), &format!("{what}/{}", self.number))
    }

    fn log_key(&self) -> Key {
        self.key("log")
    }

    fn channel(&self) -> String {
        self.cluster.bus.scoped_store.space(&format!("{}/{}", session_space(&self.session.id), self.number))
    }

    /// As long as it is written, and a session that says nothing lives.
    fn ttl(&self) -> Duration {
        self.session.limits.idle_timeout.max(self.session.limits.replay_ttl).max(WRITER_LEASE_TTL * 2)
    }

    async fn append(&self, line: &LogRecord, life: Duration) -> Result<u64, StoreError> {
        let (log, bytes) = (self.log_key(), line.encode());
        with_store_timeout(self.cluster.bus.scoped_store.backend.append(&log, bytes, life, MAX_LOG_MESSAGES))
            .await
    }

    /// Those who follow it elsewhere look again.
    async fn notify_followers(&self) {
        // Whoever does not hear it looks all the same, a little later.
        let _ =
            with_store_timeout(self.cluster.bus.scoped_store.backend.publish(&self.channel(), Bytes::new()))
                .await;
    }

    /// Says who writes it, for so long.
    async fn write_lease(&self, writer: &WriterLease, life: Duration) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(writer).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let key = self.key("call");
        with_store_timeout(self.cluster.bus.scoped_store.backend.put(
            &key,
            bytes.into(),
            Some(life),
            Expect::Anything,
        ))
        .await?;
        Ok(())
    }

    /// Who writes it, or has written it.
    async fn read_lease(&self) -> Result<WriterLease, ProtocolError> {
        let key = self.key("call");
        for again in [true, true, false] {
            let found = with_store_timeout(self.cluster.bus.scoped_store.backend.get(&key))
                .await
                .map_err(store_unavailable)?;
            if let Some(writer) = found.and_then(|found| WriterLease::decode(found.value)) {
                return Ok(writer);
            }
            // A client that is cut off in the first moment comes back before anything is written.
            if again {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Err(ProtocolError::invalid_request("that stream cannot be resumed any more"))
    }

    /// Whether somebody still writes it.
    async fn is_writer_alive(&self, writer: &WriterLease) -> Result<bool, StoreError> {
        if *writer.node == *self.cluster.bus.node {
            return Ok(self.cluster.backlogs().get(self.number).is_some());
        }
        let key = self.key("call");
        let is_signed = with_store_timeout(self.cluster.bus.scoped_store.backend.get(&key)).await?.is_some();
        Ok(is_signed && self.cluster.bus.is_alive(&writer.node).await?)
    }

    /// Reads the log to its end. `known` is what was there at the beginning.
    async fn follow(
        &self,
        out: &Stream,
        after: u64,
        known: u64,
        mut listener: Listener,
        writer: &WriterLease,
    ) {
        let log = self.log_key();
        let (mut after, mut heard) = (after, timer_now());
        // When its writer was first missed.
        let mut missed = None;
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
                    tracing::debug!(%error, "a stream cannot be read yet");
                    tokio::time::sleep(retry_delay()).await;
                    // Writers could not say that they are there either.
                    (heard, missed) = (timer_now(), None);
                    continue;
                }
            };
            if page.newest < after {
                // It has expired, and with it the answer.
                return;
            }
            if page.entries.is_empty() {
                if heard.elapsed() >= WRITER_GRACE_PERIOD {
                    match self.is_writer_alive(writer).await {
                        Ok(false) => {
                            let since = *missed.get_or_insert_with(timer_now);
                            if since.elapsed() >= WRITER_GRACE_PERIOD {
                                self.end_abandoned(writer).await;
                                heard = timer_now();
                            }
                        }
                        Ok(true) => (heard, missed) = (timer_now(), None),
                        Err(_) => missed = None,
                    }
                }
                // Heard, or late: the log is looked at in any case. A channel that has closed says so at once.
                if let Ok(None) = tokio::time::timeout(POLL_INTERVAL, listener.next()).await {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                continue;
            }
            (heard, missed) = (timer_now(), None);
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
                        if number > known {
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
            let word = NodeMessage::ReaderAttached {
                session: self.session.id.clone(),
                stream: self.number,
                reader: "".into(),
            };
            let _ = self.cluster.bus.send_to_node(&writer.node, &word).await;
        }
    }

    /// Answers in place of a writer that is gone.
    async fn end_abandoned(&self, writer: &WriterLease) {
        let fault = ProtocolError::new(
            ProtocolErrorKind::Internal,
            "the process that ran this call has ended; call again",
        );
        let ids: Vec<RequestId> = writer.requests.iter().filter_map(|id| parse_request_id(id)).collect();
        let mut lines: Vec<LogRecord> = Vec::new();
        for id in &ids {
            let mut message = Vec::new();
            codec::write_protocol_error(&mut message, self.session.client.protocol_version, Some(id), &fault);
            lines.push(LogRecord::Message(message.into()));
        }
        let end = match lines.pop() {
            Some(LogRecord::Message(last)) => LogRecord::End(Some(last)),
            _ => LogRecord::End(None),
        };
        lines.push(end);
        tracing::warn!(node = writer.node, "a node is gone; a call that it ran is answered in its place");
        for line in lines {
            if let Err(error) = self.append(&line, self.session.limits.replay_ttl).await {
                tracing::debug!(%error, "a call that nobody runs is not answered yet");
                return;
            }
        }
    }
}

/// Brings what a call says to the store, and from there to its reader.
struct LogWriter {
    log: StreamLog,
    request_ids: Vec<RequestId>,
    reader: Reader,
    outer: Arc<Stream>,
    backlog: Arc<Backlog>,
    /// How many bytes are in the log.
    log_bytes: usize,
    /// The store has failed: what is said goes to the reader alone.
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
        let writer = WriterLease {
            node: self.log.cluster.bus.node.to_string(),
            requests: self.request_ids.iter().map(ToString::to_string).collect(),
        };
        if let Err(error) = self.log.write_lease(&writer, WRITER_LEASE_TTL).await {
            self.mark_store_failed(&error);
        }
        let mut alive = timer_now();
        let mut renewal = Box::pin(tokio::time::sleep(LEASE_RENEW_INTERVAL));
        loop {
            let next = tokio::select! {
                biased;
                next = self.reader.next() => next,
                () = &mut renewal => {
                    renewal.as_mut().reset(timer_now() + LEASE_RENEW_INTERVAL);
                    if !self.has_store_failed {
                        // One that fails now is tried again before the lease ends.
                        let _ = self.log.write_lease(&writer, WRITER_LEASE_TTL).await;
                        if alive.elapsed() > self.log.ttl() / 2 {
                            alive = timer_now();
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
                        self.finish(&writer, Some(event.data)).await;
                        return;
                    }
                    self.write_message(event.data).await;
                    alive = timer_now();
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
                    self.finish(&writer, None).await;
                    return;
                }
            }
        }
    }

    async fn write_message(&mut self, data: Bytes) {
        let mut number = None;
        if !self.has_store_failed {
            match self.log.append(&LogRecord::Message(data.clone()), self.log.ttl()).await {
                Ok(got) => number = Some(got),
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

    /// The call has ended. Its answer is kept for whoever comes back, if need be a little later.
    async fn finish(&mut self, writer: &WriterLease, last: Option<Bytes>) {
        if self.log.session.closed.is_cancelled() {
            return;
        }
        let replay = self.log.session.limits.replay_ttl;
        self.log_bytes += last.as_ref().map_or(0, Bytes::len);
        let line = LogRecord::End(last.clone());
        let mut kept = self.log.append(&line, replay).await;
        if let Some(last) = last {
            let number = kept.as_ref().ok().copied().filter(|_| !self.has_store_failed);
            let _ = self.outer.send_numbered(last, number).await;
        }
        self.outer.finish();
        for _ in 0..MAX_APPEND_ATTEMPTS {
            match &kept {
                Ok(_) => break,
                Err(error) => self.mark_store_failed(error),
            }
            tokio::time::sleep(retry_delay()).await;
            kept = self.log.append(&line, replay).await;
        }
        self.log.notify_followers().await;
        let _ = self.log.write_lease(writer, replay).await;
        self.evict_ended_logs().await;
    }

    /// Only so many logs, and so much, of what has ended here is kept for one session.
    async fn evict_ended_logs(&self) {
        let StreamLog { cluster: shared, session, number } = &self.log;
        let (Some(kin), limits) = (&session.replica, &session.limits) else { return };
        let gone = {
            let mut ended = lock(&kin.ended_logs);
            ended.push((*number, self.log_bytes));
            let mut held: usize = ended.iter().map(|(_, bytes)| bytes).sum();
            let mut n_gone = 0;
            while n_gone + 1 < ended.len()
                && (held > limits.max_replay_bytes || ended.len() - n_gone > limits.max_streams)
            {
                held -= ended[n_gone].1;
                n_gone += 1;
            }
            ended.drain(..n_gone).collect::<Vec<_>>()
        };
        for (number, _) in gone {
            let desk = StreamLog { cluster: Arc::clone(shared), session: Arc::clone(session), number };
            for key in [desk.key("call"), desk.log_key()] {
                let _ =
                    with_store_timeout(shared.bus.scoped_store.backend.delete(&key, Expect::Anything)).await;
            }
        }
    }

    /// The store does not take what is said: the reader that is there gets it, and nobody can come back for it.
    fn mark_store_failed(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.has_store_failed, true) {
            tracing::warn!(%error, "a stream cannot be resumed because the store failed");
        }
    }
}

fn parse_request_id(text: &str) -> Option<RequestId> {
    RequestId::read(RawJson::parse(text.to_owned().into()).ok()?.view())
}

fn unknown_position() -> ProtocolError {
    ProtocolError::invalid_request("that place in the stream is gone or never was")
}

/// 53 bits: whoever reads event ids as numbers of a script gets them right. Never 0, which is the standing stream.
fn random_stream_number() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    (u64::from_le_bytes(bytes) >> 11).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_is_read_as_it_was() {
        let message = || Bytes::from_static(b"{}");
        for line in [
            LogRecord::Message(message()),
            LogRecord::End(Some(message())),
            LogRecord::End(None),
            LogRecord::Disconnect(250),
            LogRecord::Noop,
        ] {
            assert_eq!(LogRecord::decode(&line.encode()), line);
        }
        assert_eq!(LogRecord::decode(&Bytes::new()), LogRecord::Noop);
        assert_eq!(LogRecord::decode(&Bytes::from_static(b"cx")), LogRecord::Noop);
    }
}
