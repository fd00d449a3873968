//! The streams of a session that a client can resume with `Last-Event-ID`, and the standalone stream of a GET.

use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::{ProtocolError, Resumability};

use super::{Session, SessionLimits};
use crate::protocol::{Peer, Protocol};
use crate::request::BoxFuture;
use crate::stream::{Capacity, Stream};
use crate::util::clock::Clock;
use crate::util::lock;

/// The streams of one session that can be resumed. Number 0 is the standalone stream, for messages that belong to no
/// request.
#[derive(Debug, Default)]
pub(super) struct SessionStreams {
    last_number: u64,
    /// Oldest first.
    resumable: Vec<ResumableStream>,
    standalone: Option<Arc<Stream>>,
}

#[derive(Debug)]
struct ResumableStream {
    number: u64,
    stream: Arc<Stream>,
    /// When it was first seen to have ended.
    ended_at: Option<Duration>,
}

impl SessionStreams {
    pub(super) fn has_standalone_reader(&self) -> bool {
        self.standalone.as_ref().is_some_and(|stream| stream.has_reader())
    }

    /// Evicts streams: first those whose replay time is over, then the oldest ended ones while these hold too many bytes,
    /// then, if there are still too many, the oldest of all.
    fn sweep(&mut self, limits: &SessionLimits, now: Duration) {
        for entry in &mut self.resumable {
            if entry.ended_at.is_none() && entry.stream.is_finished() {
                entry.ended_at = Some(now);
            }
        }
        self.resumable
            .retain(|entry| entry.ended_at.is_none_or(|ended| now.saturating_sub(ended) < limits.replay_ttl));
        let mut ended_bytes: usize = self
            .resumable
            .iter()
            .filter(|entry| entry.ended_at.is_some())
            .map(|entry| entry.stream.held_bytes())
            .sum();
        while ended_bytes > limits.max_replay_bytes || self.resumable.len() >= limits.max_streams {
            let ended = self.resumable.iter().position(|entry| entry.ended_at.is_some());
            let evicted = self.resumable.remove(ended.unwrap_or(0));
            ended_bytes = ended_bytes.saturating_sub(evicted.stream.held_bytes());
        }
    }
}

/// How the stream of a POST can be resumed.
pub(crate) struct ResumeInfo {
    /// The number of the stream in its session.
    pub(crate) number: u64,
    /// Whether it starts with an event that only has an id, so that a client can resume before the first message.
    pub(crate) sends_priming_event: bool,
    /// The stream to read instead, and the future that copies messages to it by way of the store.
    pub(crate) relay: Option<(Arc<Stream>, BoxFuture<'static, ()>)>,
}

/// A stream to be read on a GET, from the message after `after`.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) number: u64,
    pub(crate) after: Option<u64>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) session: Arc<Session>,
}

impl Session {
    /// Makes a stream resumable and returns its number.
    pub(super) fn add_resumable(&self, stream: &Arc<Stream>, clock: &Clock) -> u64 {
        let mut streams = lock(&self.streams);
        streams.sweep(&self.limits, clock.uptime());
        streams.last_number += 1;
        let number = streams.last_number;
        stream.make_resumable();
        streams.resumable.push(ResumableStream { number, stream: Arc::clone(stream), ended_at: None });
        number
    }

    pub(super) fn standalone_stream(&self) -> Arc<Stream> {
        let mut streams = lock(&self.streams);
        let stream = streams.standalone.get_or_insert_with(|| {
            let stream = Stream::new(Capacity::default());
            stream.make_resumable();
            stream
        });
        Arc::clone(stream)
    }

    pub(super) fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        let streams = lock(&self.streams);
        if number == 0 {
            return streams.standalone.clone();
        }
        streams.resumable.iter().find(|entry| entry.number == number).map(|entry| Arc::clone(&entry.stream))
    }
}

impl Protocol {
    /// Makes the response stream of a POST resumable, if the session and its protocol version allow it.
    pub(crate) fn make_resumable(&self, peer: &Peer, stream: &Arc<Stream>) -> Option<ResumeInfo> {
        if !stream.outlives_reader() {
            return None;
        }
        let session = self.look_up_session(peer).ok()?;
        let sends_priming_event = match session.client.protocol_version.behavior().resumability {
            Resumability::Never => return None,
            Resumability::Replay => false,
            Resumability::Polling => true,
        };
        if let Some(cluster) = &self.cluster {
            let (number, outer, writer) = cluster.persist_stream(session, stream);
            return Some(ResumeInfo { number, sends_priming_event, relay: Some((outer, writer)) });
        }
        let number = session.add_resumable(stream, &self.clock);
        Some(ResumeInfo { number, sends_priming_event, relay: None })
    }

    /// Opens the stream that a GET requests: the standalone stream, or the rest of one that was interrupted.
    pub(crate) fn open_get_stream(
        &self,
        peer: &Peer,
        last_event: Option<&str>,
    ) -> Result<OpenStream, ProtocolError> {
        let session = self.look_up_session(peer)?;
        let Some(last_event) = last_event else {
            let stream = session.standalone_stream();
            return Ok(OpenStream { number: 0, after: None, stream, session });
        };
        let (number, after) = parse_event_id(last_event).ok_or_else(invalid_event_id)?;
        let stream = session.stream(number).ok_or_else(stream_not_resumable)?;
        Ok(OpenStream { number, after: Some(after), stream, session })
    }
}

/// Writes an SSE event id: the number of the stream in its session, and of the message in the stream.
pub(crate) fn event_id(stream: u64, seq: u64) -> String {
    format!("{stream}-{seq}")
}

/// Parses an id that [`event_id`] wrote.
pub(in crate::protocol) fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (stream, seq) = id.split_once('-')?;
    Some((stream.parse().ok()?, seq.parse().ok()?))
}

pub(in crate::protocol) fn invalid_event_id() -> ProtocolError {
    ProtocolError::invalid_request("last-event-id was not issued by this server")
}

pub(in crate::protocol) fn stream_not_resumable() -> ProtocolError {
    ProtocolError::invalid_request("that stream can no longer be resumed")
}
