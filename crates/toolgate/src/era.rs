//! The vestibule: where a message takes off its edition, and an answer puts it on.
//!
//! What comes out of here on the way in is canonical, whatever the client speaks; what comes out on the
//! way back is bytes and a status. Which file does the work is chosen by the facts of an edition, never by
//! its date. Handlers and policy are not known here.

mod ask_retry;
mod ask_reverse;
mod each;
mod feed;
mod handshake;
mod header;
mod list;
mod session;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_wire::model::{CacheHint, Call, Implementation, Notice, Outcome, ServerCapabilities};
use toolgate_wire::{
    Asking, Broken, BrokenKind, Edition, Fault, FaultKind, Frame, Meta, Raw, RequestId, codec,
};

pub(crate) use feed::Listening;
pub(crate) use header::{LAST_EVENT, SESSION, single};
pub(crate) use session::{Line, SessionLimits, Sessions, event_id};

use crate::clock::Clock;
use crate::handler::Voice;
use crate::hub::Hub;
use crate::request::{Caller, Principal, Request, Stop};
use crate::seal::Seal;
use crate::stream::Stream;
use ask_retry::Retrying;
use ask_reverse::Reversing;
use list::Lists;
use session::{Session, Ticket};

/// Who sent a message, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) principal: Principal,
    pub(crate) headers: Arc<HeaderMap>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) road: Road,
}

/// What a message came over.
#[derive(Clone, Debug)]
pub(crate) enum Road {
    /// A request of its own. `streams`: its answer may be a stream.
    Post { streams: bool },
    /// A standing connection, on which everything is answered.
    Line(Arc<Line>),
}

/// What a transport sends back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing: it was no question.
    Accepted,
    /// Nothing: the question was taken back.
    Silence,
    /// One message, with the status it has where there are statuses.
    Body { status: u16, body: Bytes, session: Option<Box<str>> },
}

/// What became of a message in the vestibule.
pub(crate) enum Arrival {
    /// It is answered.
    Answered(Answer),
    /// It goes on to the hall.
    Visit(Box<Visit>),
    /// It stays here, listening.
    Listening(Box<Listening>),
}

/// What the server says of itself.
pub(crate) struct Face {
    pub(crate) info: Implementation,
    pub(crate) instructions: Option<String>,
    /// What it offers now.
    pub(crate) capabilities: Box<dyn Fn() -> ServerCapabilities + Send + Sync>,
    pub(crate) cache: CacheHint,
}

/// See the module.
pub(crate) struct Era {
    pub(crate) face: Face,
    sessions: Sessions,
    seal: Seal,
    clock: Clock,
    pub(crate) hub: Arc<Hub>,
    /// Falls when the house closes: streams end.
    pub(crate) drain: CancellationToken,
    lists: Lists,
}

/// A request on its way through the house, and what is needed to answer it.
pub(crate) struct Visit {
    pub(crate) request: Request,
    pub(crate) voice: Arc<dyn Voice>,
    pub(crate) closing: Closing,
}

/// What is needed to answer a request.
pub(crate) struct Closing {
    edition: Edition,
    id: RequestId,
    method: &'static str,
    /// Where answers wait that the client must bring.
    retrying: Option<Arc<Retrying>>,
    /// Keeps the request cancellable while it runs.
    _ticket: Option<Ticket>,
    /// Whoever drops this without an answer has left: work that was moved elsewhere should know.
    _leaving: DropGuard,
}

impl Era {
    pub(crate) fn new(face: Face, sessions: Sessions, seal: Seal, clock: Clock, hub: Arc<Hub>) -> Era {
        let drain = CancellationToken::new();
        let lists = Lists::default();
        Era { face, sessions, seal, clock, hub, drain, lists }
    }

    /// Reads one message.
    pub(crate) fn arrive(&self, frame: Frame, peer: &Peer, out: &Arc<Stream>, in_batch: bool) -> Arrival {
        match frame {
            Frame::Request { id, method, params } => {
                match self.request(&id, &method, params.as_ref(), peer, out, in_batch) {
                    Ok(arrival) => arrival,
                    Err((edition, fault)) => Arrival::Answered(refusal(edition, Some(&id), &fault)),
                }
            }
            Frame::Notification { method, params } => {
                Arrival::Answered(match self.notification(&method, params.as_ref(), peer) {
                    Ok(()) => Answer::Accepted,
                    Err((edition, fault)) => refusal(edition, None, &fault),
                })
            }
            Frame::Response { id, outcome } => Arrival::Answered(match self.speaker(peer) {
                Ok(Speaker::Session(session)) => {
                    session.hear(&id, outcome);
                    Answer::Accepted
                }
                Ok(_) => self.stray(peer),
                Err((edition, fault)) => refusal(edition, None, &fault),
            }),
            Frame::Lost { .. } => Arrival::Answered(self.stray(peer)),
        }
    }

    /// A response that nobody waits for.
    fn stray(&self, peer: &Peer) -> Answer {
        match (&peer.road, self.speaker(peer)) {
            (Road::Line(_), _) | (_, Ok(Speaker::Session(_))) => Answer::Accepted,
            _ => refusal(Edition::NEWEST, None, &Fault::invalid("a response to nothing that was asked")),
        }
    }

    fn request(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&Raw>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Result<Arrival, (Edition, Fault)> {
        let said = codec::Said::of(params).map_err(|fault| (Edition::NEWEST, fault))?;
        if self.is_each(method, &said, peer) {
            if in_batch {
                return Err((
                    Edition::NEWEST,
                    Fault::invalid("a request of this kind cannot be part of a batch"),
                ));
            }
            let (edition, call, caller) =
                self.greet_each(method, &said, peer).map_err(|fault| (Edition::NEWEST, fault))?;
            return self.seat(edition, id, call, caller, None, peer, out);
        }
        if method == "initialize" {
            let edition = Edition::NEWEST_HANDSHAKE;
            if in_batch {
                return Err((edition, Fault::invalid("`initialize` cannot be part of a batch")));
            }
            return self
                .shake_hands(id, params, peer)
                .map(Arrival::Answered)
                .map_err(|fault| (edition, fault));
        }
        let (edition, session) = match self.speaker(peer)? {
            Speaker::Session(session) => (session.client.edition, Some(session)),
            Speaker::Bare => (Edition::UNNAMED, None),
            Speaker::Nobody if method == "ping" => (Edition::UNNAMED, None),
            Speaker::Nobody => {
                let said = "send `initialize` first, or say who you are in the `_meta` of each request";
                return Err((Edition::NEWEST, Fault::params(said)));
            }
        };
        let told = |fault| (edition, fault);
        let call = said.call(edition, method).map_err(told)?;
        let meta = said.meta().map_err(told)?;
        let client = match &session {
            Some(session) => Arc::clone(&session.client),
            None => self.sessions.bare_client(),
        };
        let caller = self.caller(peer, client, meta, false);
        self.seat(edition, id, call, caller, session, peer, out)
    }

    /// Gives a request its place: what is about the connection is answered here, the rest goes on.
    #[allow(clippy::too_many_arguments)]
    fn seat(
        &self,
        edition: Edition,
        id: &RequestId,
        call: Call,
        caller: Caller,
        session: Option<Arc<Session>>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Result<Arrival, (Edition, Fault)> {
        let told = |fault| (edition, fault);
        let answered = |outcome| Ok(Arrival::Answered(self.answer(edition, id, &outcome)));
        match (call, &session) {
            (Call::Hello(_), _) => Err(told(Fault::method("initialize"))),
            (Call::Ping, _) => answered(Outcome::Done),
            (Call::Discover, _) => answered(Outcome::Discovery(Box::new(self.discovery()))),
            (Call::SetLevel(level), session) => {
                if let Some(session) = session {
                    session.set_level(level);
                }
                answered(Outcome::Done)
            }
            (Call::Subscribe { uri }, Some(session)) => {
                session.subscribe(&uri).map_err(told)?;
                answered(Outcome::Done)
            }
            (Call::Unsubscribe { uri }, Some(session)) => {
                session.unsubscribe(&uri);
                answered(Outcome::Done)
            }
            (call @ (Call::Subscribe { .. } | Call::Unsubscribe { .. }), None) => {
                Err(told(Fault::method(call.method())))
            }
            (Call::Listen(filter), _) => {
                let (cancel, ticket) = self.ticket(id, session.as_ref(), peer).map_err(told)?;
                let listening = self.listen(edition, id, filter, cancel, ticket, peer, out);
                Ok(Arrival::Listening(Box::new(listening)))
            }
            (call, _) => self.visit(edition, id, call, caller, session, peer, out).map_err(told),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn visit(
        &self,
        edition: Edition,
        id: &RequestId,
        call: Call,
        caller: Caller,
        session: Option<Arc<Session>>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Result<Arrival, Fault> {
        let (cancel, ticket) = self.ticket(id, session.as_ref(), peer)?;
        let posted = matches!(peer.road, Road::Post { .. });
        if !edition.facts().leaving_cancels {
            out.outlive_reader();
        }
        let streams = match &peer.road {
            Road::Post { streams } => *streams,
            Road::Line(_) => true,
        };
        let method = call.method();
        let out = streams.then(|| Arc::clone(out));
        let (voice, retrying): (Arc<dyn Voice>, _) = match edition.facts().asking {
            Asking::Reverse => {
                (Arc::new(Reversing::new(edition, session, out, cancel.clone(), posted)), None)
            }
            Asking::Retry => {
                let retrying = Arc::new(Retrying::new(edition, &call, &caller, out, self));
                (Arc::clone(&retrying) as Arc<dyn Voice>, Some(retrying))
            }
        };
        let leaving = cancel.clone().drop_guard();
        let closing =
            Closing { edition, id: id.clone(), method, retrying, _ticket: ticket, _leaving: leaving };
        let request = Request { call, caller, cancel };
        Ok(Arrival::Visit(Box::new(Visit { request, voice, closing })))
    }

    /// A token that falls when the request is cancelled, and its entry where cancellations are looked up.
    fn ticket(
        &self,
        id: &RequestId,
        session: Option<&Arc<Session>>,
        peer: &Peer,
    ) -> Result<(CancellationToken, Option<Ticket>), Fault> {
        let cancel = CancellationToken::new();
        let calls = match (&peer.road, session) {
            (Road::Line(line), _) => {
                if line.calls.contains(id) {
                    return Err(Fault::invalid("a request with this id is in flight"));
                }
                line.check_room()?;
                &line.calls
            }
            (Road::Post { .. }, Some(session)) => {
                session.check_room()?;
                &session.calls
            }
            (Road::Post { .. }, None) => return Ok((cancel, None)),
        };
        let ticket = calls.enter(id, &cancel);
        Ok((cancel, Some(ticket)))
    }

    fn caller(&self, peer: &Peer, client: Arc<toolgate_wire::Client>, meta: Meta, mirrors: bool) -> Caller {
        Caller {
            principal: peer.principal.clone(),
            client,
            headers: Arc::clone(&peer.headers),
            remote: peer.remote,
            meta,
            mirrors,
            given: BTreeMap::new(),
        }
    }

    fn notification(&self, method: &str, params: Option<&Raw>, peer: &Peer) -> Result<(), (Edition, Fault)> {
        let said = codec::Said::of(params).map_err(|fault| (Edition::NEWEST, fault))?;
        if self.is_each(method, &said, peer) {
            if let Road::Line(line) = &peer.road
                && let Some((Notice::Cancelled { request: Some(id), .. }, _)) =
                    codec::read_notice(Edition::NEWEST, method, params)
            {
                line.calls.cancel(&id);
            }
            return each::check_method_if_sent(method, peer).map_err(|fault| (Edition::NEWEST, fault));
        }
        let (edition, calls) = match self.speaker(peer)? {
            Speaker::Session(session) => (session.client.edition, Some(session)),
            Speaker::Bare | Speaker::Nobody => (Edition::UNNAMED, None),
        };
        let notice = codec::read_notice(edition, method, params).map(|(notice, _)| notice);
        if let Some(Notice::Cancelled { request: Some(id), .. }) = notice {
            // A stdio client of an edition without a handshake says nothing of itself in a notification.
            match (&peer.road, calls) {
                (Road::Line(line), _) => line.calls.cancel(&id),
                (_, Some(session)) => session.calls.cancel(&id),
                _ => {}
            }
        }
        Ok(())
    }

    /// Answers bytes that are no message.
    pub(crate) fn broken(&self, broken: &Broken, peer: &Peer) -> Answer {
        let kind = match broken.kind {
            BrokenKind::Parse => FaultKind::Parse,
            BrokenKind::Invalid => FaultKind::Invalid,
            BrokenKind::Params => FaultKind::Params,
        };
        let edition = match self.speaker(peer) {
            Ok(Speaker::Session(session)) => session.client.edition,
            _ => Edition::NEWEST,
        };
        refusal(edition, broken.id.as_ref(), &Fault::new(kind, broken.detail.clone()))
    }

    /// Whether this peer may send arrays of messages.
    pub(crate) fn takes_batches(&self, peer: &Peer) -> bool {
        match self.speaker(peer) {
            Ok(Speaker::Session(session)) => session.client.edition.facts().batches,
            Ok(Speaker::Bare) => Edition::UNNAMED.facts().batches,
            _ => false,
        }
    }

    fn answer(&self, edition: Edition, id: &RequestId, outcome: &Outcome) -> Answer {
        Answer::Body { status: 200, body: self.write(edition, id, outcome), session: None }
    }

    fn write(&self, edition: Edition, id: &RequestId, outcome: &Outcome) -> Bytes {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        id.write(&mut out);
        out.extend_from_slice(b",\"result\":");
        self.lists.write(&mut out, edition, outcome, &self.face);
        out.push(b'}');
        out.into()
    }

    /// Answers a request that went through the house.
    pub(crate) fn close(&self, closing: &Closing, ended: Result<Outcome, Stop>) -> Answer {
        let Closing { edition, id, method, retrying, .. } = closing;
        let refuse = |fault: &Fault| refusal(*edition, Some(id), fault);
        if let Some(fault) = retrying.as_ref().and_then(|retrying| retrying.forged()) {
            return refuse(&fault);
        }
        match ended {
            Ok(outcome) => {
                if retrying.as_ref().is_some_and(|retrying| retrying.is_waiting()) {
                    tracing::warn!(method, "a handler ended well although its question was not answered");
                }
                self.answer(*edition, id, &outcome)
            }
            Err(Stop::Fault(fault)) => refuse(&fault),
            Err(Stop::Cancelled) => Answer::Silence,
            Err(Stop::NeedsInput) => {
                match retrying.as_ref().map(|retrying| retrying.suspend(&self.seal, &self.clock)) {
                    Some(Ok(outcome)) => self.answer(*edition, id, &outcome),
                    Some(Err(fault)) => refuse(&fault),
                    None => refuse(&Fault::internal(&crate::seal::reference())),
                }
            }
        }
    }
}

/// Who sends a message of a handshake edition.
enum Speaker {
    /// One whose greeting is remembered.
    Session(Arc<Session>),
    /// A single HTTP request that says nothing of itself.
    Bare,
    /// A standing connection that has not greeted.
    Nobody,
}

/// A message that says no.
fn refusal(edition: Edition, id: Option<&RequestId>, fault: &Fault) -> Answer {
    let mut out = Vec::with_capacity(256);
    codec::write_fault(&mut out, edition, id, fault);
    Answer::Body { status: fault.status(edition), body: out.into(), session: None }
}

/// A refusal before a message was looked at, or more of it than its id.
pub(crate) fn refuse(id: Option<&RequestId>, fault: &Fault) -> Bytes {
    let mut out = Vec::with_capacity(256);
    codec::write_fault(&mut out, Edition::NEWEST, id, fault);
    out.into()
}

/// The status of a refusal before any message was read.
pub(crate) fn status(fault: &Fault) -> u16 {
    fault.status(Edition::NEWEST_HANDSHAKE)
}
