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

use super::kin::Place;
use super::{Shared, away, lock, space};
use crate::bus::{Word, jittered, within};
use crate::clock::tick;
use crate::era::Answer;
use crate::era::feed::tell_all;
use crate::era::session::{Session, read_event_id};
use crate::request::{BoxFuture, owner};
use crate::seal::{fill, token};
use crate::store::{Expect, Key, Listener, StoreError};
use crate::stream::{Capacity, Next, Reader, Stream};
use crate::written;

/// Messages that a log holds. Hints are left out long before, so that hardly any is cut off at its old end.
const MOST: usize = 1024;
/// For so long a writer is believed to be at work.
const LEASE: Duration = Duration::from_secs(60);
/// How often it says so.
const RENEW: Duration = Duration::from_secs(20);
/// How many messages are read at once.
const PAGE: usize = 16;
/// How often a log is looked at though nobody said that it grew.
const LOOK: Duration = Duration::from_secs(1);
/// A writer that is missed twice, so long apart, is gone.
const MISSED: Duration = Duration::from_secs(3);
/// How often an answer is tried to be kept that the store would not take.
const TRIES: usize = 60;

/// A stream that a GET is answered by.
pub(crate) struct Stood {
    pub(crate) number: u64,
    pub(crate) reader: Reader,
    /// Writes to it while it is read.
    pub(crate) feed: BoxFuture<'static, Answer>,
}

/// How much was written since somebody read it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

/// The pace of each log that is written here, in the order of their numbers. There are as many as calls under way, so
/// that one more moves a few kilobytes.
#[derive(Debug, Default)]
pub(super) struct Paces(Vec<(u64, Arc<Pace>)>);

impl Paces {
    fn place(&self, number: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(number, _)| *number)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Arc<Pace>> {
        self.place(number).ok().map(|place| &self.0[place].1)
    }

    fn insert(&mut self, number: u64, pace: Arc<Pace>) {
        match self.place(number) {
            Ok(place) => self.0[place].1 = pace,
            Err(place) => self.0.insert(place, (number, pace)),
        }
    }

    fn remove(&mut self, number: u64) {
        if let Ok(place) = self.place(number) {
            self.0.remove(place);
        }
    }
}

/// Who writes a log, and which requests it answers.
#[derive(Debug, Serialize)]
struct Writer {
    node: String,
    /// Their ids, as JSON.
    requests: Vec<String>,
}

impl Writer {
    fn read(bytes: Bytes) -> Option<Writer> {
        let raw = written::read(bytes)?;
        let mut requests = Vec::new();
        for request in raw.view().get("requests")?.items() {
            requests.push(request.as_string()?.into_owned());
        }
        Some(Writer { node: raw.view().get("node")?.as_string()?.into_owned(), requests })
    }
}

/// What stands in a log.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Message(Bytes),
    /// The last one, if there is any, and the end.
    End(Option<Bytes>),
    /// Whoever reads now is to come back after so many milliseconds.
    Cut(u64),
    /// It keeps the log alive.
    Nothing,
}

impl Line {
    fn write(&self) -> Bytes {
        let (mark, rest) = match self {
            Line::Message(message) => (b'm', message.clone()),
            Line::End(Some(message)) => (b'l', message.clone()),
            Line::End(None) => (b'e', Bytes::new()),
            Line::Cut(millis) => (b'c', millis.to_string().into()),
            Line::Nothing => (b'n', Bytes::new()),
        };
        let mut bytes = BytesMut::with_capacity(1 + rest.len());
        bytes.put_u8(mark);
        bytes.put(rest);
        bytes.freeze()
    }

    fn read(bytes: &Bytes) -> Line {
        let rest = bytes.slice(bytes.len().min(1)..);
        match bytes.first() {
            Some(b'm') => Line::Message(rest),
            Some(b'l') => Line::End(Some(rest)),
            Some(b'e') => Line::End(None),
            Some(b'c') => std::str::from_utf8(&rest)
                .ok()
                .and_then(|rest| rest.parse().ok())
                .map_or(Line::Nothing, Line::Cut),
            _ => Line::Nothing,
        }
    }
}

impl Pace {
    fn note(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Somebody has read what there is.
    pub(super) fn note_read(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn is_spent(&self) -> bool {
        let most = Capacity::default();
        self.messages.load(Ordering::Relaxed) >= most.messages
            || self.bytes.load(Ordering::Relaxed) >= most.bytes
    }
}

impl Shared {
    /// What a call says on `inner` can be read at the given stream, when it is in the store.
    pub(in crate::era) fn pump(
        self: &Arc<Self>,
        session: Arc<Session>,
        inner: &Arc<Stream>,
    ) -> (u64, Arc<Stream>, BoxFuture<'static, ()>) {
        let number = random();
        let outer = Stream::new(Capacity::default());
        // It is the first who reads it, so nobody needs to be told.
        if let Some(kin) = &session.kin {
            kin.sit(number, &token(), &outer, &Arc::default(), true);
        }
        let pace = Arc::<Pace>::default();
        self.desks().insert(number, Arc::clone(&pace));
        let pump = Pump {
            desk: Desk { shared: Arc::clone(self), session, number },
            requests: inner.asked(),
            reader: inner.reader(),
            outer: Arc::clone(&outer),
            pace,
            held: 0,
            is_lost: false,
        };
        (number, outer, Box::pin(pump.run()))
    }

    /// The stream that a GET asks for: the standing one, or the rest of one that was cut.
    pub(in crate::era) async fn stand(
        self: &Arc<Self>,
        session: Arc<Session>,
        last_event: Option<&str>,
    ) -> Result<Stood, ProtocolError> {
        let none_of_ours = || ProtocolError::invalid_request("last-event-id is none of ours");
        match last_event.map(|id| read_event_id(id).ok_or_else(none_of_ours)).transpose()? {
            None => self.stand_still(session, None).await,
            Some((0, after)) => self.stand_still(session, Some(after)).await,
            Some((number, after)) => self.follow(session, number, after).await,
        }
    }

    /// Tells of the tasks of this session's owner, as long as somebody reads. They have no place in the log of changes,
    /// so nobody can come back behind such an event.
    async fn tell_tasks(&self, session: &Session, out: &Stream) {
        if session.client.protocol_version.behavior().tasks != toolgate_wire::TasksMode::Core {
            return std::future::pending().await;
        }
        let owner = owner(&session.principal, Some(&session.id));
        let subscriber = self.hub.subscribe_to_all(SubscriptionFilter::default(), owner);
        tell_all(&self.works, &subscriber, out, &session.client.protocol_version.into(), None).await;
        std::future::pending().await
    }

    async fn stand_still(
        self: &Arc<Self>,
        session: Arc<Session>,
        after: Option<u64>,
    ) -> Result<Stood, ProtocolError> {
        if let Some(after) = after
            && !self.changes.is_place(after).await.map_err(away)?
        {
            return Err(no_place());
        }
        let kin = session.kin.as_ref().ok_or_else(no_place)?;
        let (out, who, place) = (Stream::new(Capacity::default()), token(), Arc::<Place>::default());
        // Who says where it was is believed. Anybody else gets what nobody read, as far as that is known.
        let kept = match after {
            Some(_) => 0,
            None => {
                let key = self.key(&session.id);
                let found = within(self.bus.cellar.store.get(&key)).await.map_err(away)?;
                let record = found.and_then(|found| super::Record::read(&found.value));
                record.map_or(0, |record| record.position).max(kin.position.load(Ordering::Relaxed))
            }
        };
        let reader = out.reader();
        let begin = |position| {
            place.begin(position);
            out.begin_behind(position);
        };
        // Before it is seen: whoever comes in the same moment goes on from there.
        begin(after.unwrap_or(kept));
        let before = kin.sit(0, &who, &out, &place, false);
        if let (Some(before), None) = (before, after) {
            begin(before);
        }
        let feed = {
            let (shared, out) = (Arc::clone(self), Arc::clone(&out));
            async move {
                let told = Told { shared: &shared, session: &session, out: &out, place: &place };
                let feeding = async {
                    tokio::join!(
                        shared.announce(&session, 0, &who),
                        shared.changes.feed(&session, &out, &place)
                    );
                };
                let telling = shared.tell_tasks(&session, &out);
                tokio::select! {
                    biased;
                    () = session.over.cancelled() => {}
                    () = shared.drain.cancelled() => {}
                    () = feeding => {}
                    () = telling => {}
                }
                drop(told);
                Answer::Silence
            }
        };
        Ok(Stood { number: 0, reader, feed: Box::pin(feed) })
    }

    /// Whoever else reads this stream, here or elsewhere, leaves.
    async fn announce(&self, session: &Session, stream: u64, who: &str) {
        let word = Word::Reading { session: session.id.clone(), stream, reader: who.into() };
        while let Err(error) = self.bus.tell_all(&word).await {
            tracing::debug!(%error, "other nodes do not know yet who reads a stream");
            tokio::time::sleep(jittered()).await;
        }
    }

    async fn follow(
        self: &Arc<Self>,
        session: Arc<Session>,
        number: u64,
        after: u64,
    ) -> Result<Stood, ProtocolError> {
        let desk = Desk { shared: Arc::clone(self), session, number };
        let writer = desk.writer().await?;
        let store = &self.bus.cellar.store;
        // Before it is read: what is added from then on is heard of.
        let listener = within(store.subscribe(&desk.channel())).await.map_err(away)?;
        let log = desk.log();
        let page = within(store.read(&log, 0, 1)).await.map_err(away)?;
        if after > page.newest || page.oldest > after + 1 {
            return Err(no_place());
        }
        let (out, who) = (Stream::new(Capacity::default()), token());
        let reader = out.reader();
        if let Some(kin) = &desk.session.kin {
            kin.sit(number, &who, &out, &Arc::default(), false);
        }
        let feed = async move {
            let (session, drain) = (Arc::clone(&desk.session), desk.shared.drain.clone());
            let following = async {
                tokio::join!(
                    desk.shared.announce(&desk.session, number, &who),
                    desk.follow(&out, after, page.newest, listener, &writer)
                );
            };
            tokio::select! {
                biased;
                () = session.over.cancelled() => {}
                () = drain.cancelled() => {}
                () = following => {}
            }
            Answer::Silence
        };
        Ok(Stood { number, reader, feed: Box::pin(feed) })
    }

    /// Forgets every log of a session.
    pub(super) async fn clear(&self, session: &str) -> Result<(), StoreError> {
        let store = &self.bus.cellar.store;
        let all = self.bus.cellar.space(&space(session));
        let mut after: Option<Box<str>> = None;
        loop {
            let found = within(store.list(&all, after.as_deref(), 64)).await?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            after = Some(last.clone());
            for (name, _) in found {
                if let Some(number) = name.strip_prefix("call/") {
                    within(store.delete(&Key::new(&*all, format!("log/{number}")), Expect::Anything)).await?;
                }
                within(store.delete(&Key::new(&*all, name), Expect::Anything)).await?;
            }
        }
    }
}

/// How far a standing stream came, kept for whoever asks next without saying it.
struct Told<'a> {
    shared: &'a Arc<Shared>,
    session: &'a Arc<Session>,
    out: &'a Stream,
    place: &'a Place,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let position = self.out.behind().unwrap_or_else(|| self.place.told.load(Ordering::Relaxed));
        let Some(kin) = &self.session.kin else { return };
        let before = kin.position.fetch_max(position, Ordering::Relaxed);
        if position <= before
            || self.session.over.is_cancelled()
            || tokio::runtime::Handle::try_current().is_err()
        {
            return;
        }
        let (shared, session) = (Arc::clone(self.shared), Arc::clone(self.session));
        self.shared.tasks.spawn(async move {
            let put = |record: &mut super::Record| {
                record.position = record.position.max(position);
                Ok(())
            };
            let kept = shared.rewrite(&session, &put);
            if let Err(fault) = kept.await {
                tracing::debug!(%fault, "how far a stream came is not kept");
            }
        });
    }
}

/// One log of one session.
struct Desk {
    shared: Arc<Shared>,
    session: Arc<Session>,
    number: u64,
}

impl Desk {
    fn key(&self, what: &str) -> Key {
        self.shared.bus.cellar.key(&space(&self.session.id), &format!("{what}/{}", self.number))
    }

    fn log(&self) -> Key {
        self.key("log")
    }

    fn channel(&self) -> String {
        self.shared.bus.cellar.space(&format!("{}/{}", space(&self.session.id), self.number))
    }

    /// As long as it is written, and a session that says nothing lives.
    fn life(&self) -> Duration {
        self.session.limits.idle.max(self.session.limits.replay).max(LEASE * 2)
    }

    async fn append(&self, line: &Line, life: Duration) -> Result<u64, StoreError> {
        let (log, bytes) = (self.log(), line.write());
        within(self.shared.bus.cellar.store.append(&log, bytes, life, MOST)).await
    }

    /// Those who follow it elsewhere look again.
    async fn stir(&self) {
        // Whoever does not hear it looks all the same, a little later.
        let _ = within(self.shared.bus.cellar.store.publish(&self.channel(), Bytes::new())).await;
    }

    /// Says who writes it, for so long.
    async fn sign(&self, writer: &Writer, life: Duration) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(writer).map_err(|error| StoreError::Broken(error.to_string()))?;
        let key = self.key("call");
        within(self.shared.bus.cellar.store.put(&key, bytes.into(), Some(life), Expect::Anything)).await?;
        Ok(())
    }

    /// Who writes it, or has written it.
    async fn writer(&self) -> Result<Writer, ProtocolError> {
        let key = self.key("call");
        for again in [true, true, false] {
            let found = within(self.shared.bus.cellar.store.get(&key)).await.map_err(away)?;
            if let Some(writer) = found.and_then(|found| Writer::read(found.value)) {
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
    async fn is_written(&self, writer: &Writer) -> Result<bool, StoreError> {
        if *writer.node == *self.shared.bus.node {
            return Ok(self.shared.desks().get(self.number).is_some());
        }
        let key = self.key("call");
        let is_signed = within(self.shared.bus.cellar.store.get(&key)).await?.is_some();
        Ok(is_signed && self.shared.bus.is_alive(&writer.node).await?)
    }

    /// Reads the log to its end. `known` is what was there at the beginning.
    async fn follow(&self, out: &Stream, after: u64, known: u64, mut listener: Listener, writer: &Writer) {
        let log = self.log();
        let (mut after, mut heard) = (after, tick());
        // When its writer was first missed.
        let mut missed = None;
        loop {
            let page = match within(self.shared.bus.cellar.store.read(&log, after, PAGE)).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "a stream cannot be read yet");
                    tokio::time::sleep(jittered()).await;
                    // Writers could not say that they are there either.
                    (heard, missed) = (tick(), None);
                    continue;
                }
            };
            if page.newest < after {
                // It has expired, and with it the answer.
                return;
            }
            if page.entries.is_empty() {
                if heard.elapsed() >= MISSED {
                    match self.is_written(writer).await {
                        Ok(false) => {
                            let since = *missed.get_or_insert_with(tick);
                            if since.elapsed() >= MISSED {
                                self.end_for(writer).await;
                                heard = tick();
                            }
                        }
                        Ok(true) => (heard, missed) = (tick(), None),
                        Err(_) => missed = None,
                    }
                }
                // Heard, or late: the log is looked at in any case. A channel that has closed says so at once.
                if let Ok(None) = tokio::time::timeout(LOOK, listener.next()).await {
                    tokio::time::sleep(LOOK).await;
                }
                continue;
            }
            (heard, missed) = (tick(), None);
            for (number, bytes) in page.entries {
                after = number;
                let sent = match Line::read(&bytes) {
                    Line::Message(message) => out.send_as(message, Some(number)).await,
                    Line::End(last) => {
                        if let Some(last) = last {
                            let _ = out.send_as(last, Some(number)).await;
                        }
                        out.finish();
                        return;
                    }
                    Line::Cut(millis) => {
                        if number > known {
                            out.cut(Duration::from_millis(millis));
                        }
                        Ok(())
                    }
                    Line::Nothing => Ok(()),
                };
                if sent.is_err() {
                    return;
                }
            }
            let word =
                Word::Reading { session: self.session.id.clone(), stream: self.number, reader: "".into() };
            let _ = self.shared.bus.tell_node(&writer.node, &word).await;
        }
    }

    /// Answers in place of a writer that is gone.
    async fn end_for(&self, writer: &Writer) {
        let fault = ProtocolError::new(ProtocolErrorKind::Internal, "the process that ran this call has ended; call again");
        let ids: Vec<RequestId> = writer.requests.iter().filter_map(|id| read_id(id)).collect();
        let mut lines: Vec<Line> = Vec::new();
        for id in &ids {
            let mut message = Vec::new();
            codec::write_protocol_error(&mut message, self.session.client.protocol_version, Some(id), &fault);
            lines.push(Line::Message(message.into()));
        }
        let end = match lines.pop() {
            Some(Line::Message(last)) => Line::End(Some(last)),
            _ => Line::End(None),
        };
        lines.push(end);
        tracing::warn!(node = writer.node, "a node is gone; a call that it ran is answered in its place");
        for line in lines {
            if let Err(error) = self.append(&line, self.session.limits.replay).await {
                tracing::debug!(%error, "a call that nobody runs is not answered yet");
                return;
            }
        }
    }
}

/// Brings what a call says to the store, and from there to its reader.
struct Pump {
    desk: Desk,
    requests: Vec<RequestId>,
    reader: Reader,
    outer: Arc<Stream>,
    pace: Arc<Pace>,
    /// How many bytes are in the log.
    held: usize,
    /// The store has failed: what is said goes to the reader alone.
    is_lost: bool,
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.desk.shared.desks().remove(self.desk.number);
        self.outer.finish();
    }
}

impl Pump {
    async fn run(mut self) {
        let writer = Writer {
            node: self.desk.shared.bus.node.to_string(),
            requests: self.requests.iter().map(ToString::to_string).collect(),
        };
        if let Err(error) = self.desk.sign(&writer, LEASE).await {
            self.lose(&error);
        }
        let mut alive = tick();
        let mut renewal = Box::pin(tokio::time::sleep(RENEW));
        loop {
            let next = tokio::select! {
                biased;
                next = self.reader.next() => next,
                () = &mut renewal => {
                    renewal.as_mut().reset(tick() + RENEW);
                    if !self.is_lost {
                        // One that fails now is tried again before the lease ends.
                        let _ = self.desk.sign(&writer, LEASE).await;
                        if alive.elapsed() > self.desk.life() / 2 {
                            alive = tick();
                            let _ = self.desk.append(&Line::Nothing, self.desk.life()).await;
                        }
                    }
                    continue;
                }
            };
            match next {
                Next::Event(event) => {
                    let is_last = self.reader.is_at_end();
                    if event.is_hint && !is_last && self.outer.is_gone() && self.pace.is_spent() {
                        continue;
                    }
                    if is_last {
                        self.end(&writer, Some(event.data)).await;
                        return;
                    }
                    self.say(event.data).await;
                    alive = tick();
                }
                Next::Cut(retry) => {
                    if self.outer.is_gone() && !self.is_lost {
                        let millis = u64::try_from(retry.as_millis()).unwrap_or(u64::MAX);
                        let _ = self.desk.append(&Line::Cut(millis), self.desk.life()).await;
                        self.desk.stir().await;
                    }
                    self.outer.cut(retry);
                }
                Next::End => {
                    self.end(&writer, None).await;
                    return;
                }
            }
        }
    }

    async fn say(&mut self, data: Bytes) {
        let mut number = None;
        if !self.is_lost {
            match self.desk.append(&Line::Message(data.clone()), self.desk.life()).await {
                Ok(got) => number = Some(got),
                Err(error) => self.lose(&error),
            }
        }
        self.held += data.len();
        if self.outer.send_as(data.clone(), number).await.is_ok() {
            self.pace.note_read();
        } else {
            self.pace.note(data.len());
            self.desk.stir().await;
        }
    }

    /// The call has ended. Its answer is kept for whoever comes back, if need be a little later.
    async fn end(&mut self, writer: &Writer, last: Option<Bytes>) {
        if self.desk.session.over.is_cancelled() {
            return;
        }
        let replay = self.desk.session.limits.replay;
        self.held += last.as_ref().map_or(0, Bytes::len);
        let line = Line::End(last.clone());
        let mut kept = self.desk.append(&line, replay).await;
        if let Some(last) = last {
            let number = kept.as_ref().ok().copied().filter(|_| !self.is_lost);
            let _ = self.outer.send_as(last, number).await;
        }
        self.outer.finish();
        for _ in 0..TRIES {
            match &kept {
                Ok(_) => break,
                Err(error) => self.lose(error),
            }
            tokio::time::sleep(jittered()).await;
            kept = self.desk.append(&line, replay).await;
        }
        self.desk.stir().await;
        let _ = self.desk.sign(writer, replay).await;
        self.make_room().await;
    }

    /// Only so many logs, and so much, of what has ended here is kept for one session.
    async fn make_room(&self) {
        let Desk { shared, session, number } = &self.desk;
        let (Some(kin), limits) = (&session.kin, &session.limits) else { return };
        let gone = {
            let mut ended = lock(&kin.ended);
            ended.push((*number, self.held));
            let mut held: usize = ended.iter().map(|(_, bytes)| bytes).sum();
            let mut n_gone = 0;
            while n_gone + 1 < ended.len()
                && (held > limits.replay_bytes || ended.len() - n_gone > limits.streams)
            {
                held -= ended[n_gone].1;
                n_gone += 1;
            }
            ended.drain(..n_gone).collect::<Vec<_>>()
        };
        for (number, _) in gone {
            let desk = Desk { shared: Arc::clone(shared), session: Arc::clone(session), number };
            for key in [desk.key("call"), desk.log()] {
                let _ = within(shared.bus.cellar.store.delete(&key, Expect::Anything)).await;
            }
        }
    }

    /// The store does not take what is said: the reader that is there gets it, and nobody can come back for it.
    fn lose(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_lost, true) {
            tracing::warn!(%error, "a stream cannot be resumed because the store failed");
        }
    }
}

fn read_id(text: &str) -> Option<RequestId> {
    RequestId::read(RawJson::parse(text.to_owned().into()).ok()?.view())
}

fn no_place() -> ProtocolError {
    ProtocolError::invalid_request("that place in the stream is gone or never was")
}

/// 53 bits: whoever reads event ids as numbers of a script gets them right. Never 0, which is the standing stream.
fn random() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    (u64::from_le_bytes(bytes) >> 11).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_is_read_as_it_was() {
        let message = || Bytes::from_static(b"{}");
        for line in [
            Line::Message(message()),
            Line::End(Some(message())),
            Line::End(None),
            Line::Cut(250),
            Line::Nothing,
        ] {
            assert_eq!(Line::read(&line.write()), line);
        }
        assert_eq!(Line::read(&Bytes::new()), Line::Nothing);
        assert_eq!(Line::read(&Bytes::from_static(b"cx")), Line::Nothing);
    }
}
