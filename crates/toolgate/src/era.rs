//! The vestibule: where a message takes off its edition, and an answer puts it on.
//!
//! What comes out of here on the way in is canonical, whatever the client speaks; what comes out on the
//! way back is bytes and a status. Which file does the work is chosen by the facts of an edition, never by
//! its date. Handlers and policy are not known here.

mod ask_retry;
mod ask_reverse;
mod bare;
mod each;
mod feed;
mod handshake;
mod header;
mod list;
mod session;
mod shared;
mod speech;
mod stranger;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{
    CacheHint, Call, Implementation, Notification, Outcome, ServerCapabilities, ToolOutput,
};
use toolgate_wire::{
    ServerRequestMode, FrameError, FrameErrorKind, Client, Dialect, ProtocolVersion, ProtocolError, ProtocolErrorKind, Frame, ParamsIndex, Meta, RawJson,
    RequestId, codec, key,
};

pub(crate) use feed::Listening;
pub(crate) use session::{Line, Opened, SessionLimits, Sessions, event_id};
pub(crate) use shared::{Shared, Stood};
pub(crate) use speech::refuse_head;

use crate::cancel::{Cancel, CancelOnDrop};
use crate::clock::Clock;
use crate::dispatch::undeclared;
use crate::handler::Voice;
use crate::hub::Hub;
use crate::letterhead::Letterhead;
use crate::observe::SessionInfo;
use crate::observe::Transport;
use crate::parcel::Parcel;
use crate::profile::Profile;
use crate::request::{BARE_OWNER, BoxFuture, Caller, Principal, Request, Stop, TaskWay, owner};
use crate::seal::Seal;
use crate::seldom::Seldom;
use crate::stream::Stream;
use crate::task::Tasks;
use ask_retry::{Kit, Retrying};
use ask_reverse::Reversing;
use each::Greeted;
use list::Lists;
use session::{Session, Ticket};
use speech::Speech;
use stranger::Strangers;

/// Who sent a message, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) principal: Principal,
    pub(crate) headers: Arc<Letterhead>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) road: Road,
    /// How those are spoken to who name no edition. None: as the protocol says.
    pub(crate) dialect: Option<Arc<Dialect>>,
    /// For those who listen.
    pub(crate) transport: Transport,
    /// Somebody who listens has made another request of it: what its headers say is no longer about it.
    pub(crate) is_changed: bool,
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
    Body { status: u16, body: Parcel, session: Option<Box<str>>, told: Told },
}

/// What an answer tells, for those who keep count.
#[derive(Debug)]
pub(crate) enum Told {
    /// What was wanted.
    Well,
    /// That a greeting was heard; this message follows at once.
    Greeted(Bytes),
    /// That a tool failed, in its result.
    Failed(Box<str>),
    /// That there is no answer.
    Fault { code: i64, message: Box<str> },
}

/// What became of a message in the vestibule.
// The largest variant is the common one, and lives for a moment.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Arrival {
    /// It is answered.
    Answered(Answer),
    /// It is answered when something is kept, or told to another node.
    Later(BoxFuture<'static, Answer>),
    /// It goes on to the hall.
    Visit(Visit),
    /// It stays here, listening.
    Listening(Box<Listening>),
}

/// What the server says of itself. It may change while the server runs.
#[derive(Clone, Debug)]
pub(crate) struct Face {
    pub(crate) info: Implementation,
    /// The same as each edition says it.
    pub(crate) signatures: [codec::EncodedServerInfo; ProtocolVersion::ALL.len()],
    pub(crate) instructions: Option<String>,
    pub(crate) cache: CacheHint,
}

impl Face {
    pub(crate) fn new(info: Implementation, instructions: Option<String>, cache: CacheHint) -> Face {
        let signatures = ProtocolVersion::ALL.map(|edition| codec::EncodedServerInfo::new(edition, &info));
        Face { info, signatures, instructions, cache }
    }
}

/// What a server offers now.
pub(crate) type Offering = Box<dyn Fn() -> ServerCapabilities + Send + Sync>;

/// See the module.
pub(crate) struct Era {
    pub(crate) face: Arc<ArcSwap<Face>>,
    offering: Offering,
    sessions: Arc<Sessions>,
    /// Those who have none.
    strangers: Strangers,
    /// What is known of sessions in other processes, where there are any.
    pub(crate) shared: Option<Arc<Shared>>,
    clock: Clock,
    kit: Arc<Kit>,
    pub(crate) hub: Arc<Hub>,
    /// Falls when the house closes: streams end.
    pub(crate) drain: CancellationToken,
    lists: Lists,
    /// Clients that introduced themselves lately.
    pub(crate) greetings: codec::ClientCache,
    /// What anybody may see, here as in the hall.
    shown: Arc<Seldom<Profile>>,
    /// Nothing is served but `ping`.
    pub(crate) paused: AtomicBool,
    /// What changes are told of.
    tasks: Arc<Tasks>,
}

/// A request on its way through the house, and what is needed to answer it.
pub(crate) struct Visit {
    pub(crate) request: Request,
    pub(crate) voice: Arc<dyn Voice>,
    pub(crate) closing: Closing,
}

/// What is needed to answer a request.
pub(crate) struct Closing {
    speech: Speech,
    id: RequestId,
    pub(crate) method: &'static str,
    /// Where answers wait that the client must bring.
    retrying: Option<Arc<Retrying>>,
    /// Keeps the request cancellable while it runs.
    _ticket: Option<Ticket>,
    /// Whoever drops this without an answer has left: work that was moved elsewhere should know.
    leaving: CancelOnDrop,
}

impl Closing {
    /// Falls when the request is cancelled.
    pub(crate) fn cancel(&self) -> &Cancel {
        self.leaving.cancel()
    }
}

impl Era {
    /// What is known of every session here.
    pub(crate) fn known_sessions(&self) -> Vec<SessionInfo> {
        self.sessions.each(self.clock.uptime())
    }

    /// Ends every session here.
    pub(crate) fn forget_sessions(&self) -> usize {
        self.sessions.clear()
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        face: Face,
        offering: Offering,
        sessions: Arc<Sessions>,
        shared: Option<Arc<Shared>>,
        seal: Seal,
        clock: Clock,
        hub: Arc<Hub>,
        shown: Arc<Seldom<Profile>>,
        drain: CancellationToken,
        tasks: Arc<Tasks>,
    ) -> Era {
        let face = Arc::new(ArcSwap::from_pointee(face));
        let kit = Arc::new(Kit { server: Arc::clone(&face), seal, clock: clock.clone() });
        Era {
            face,
            offering,
            sessions,
            strangers: Strangers::default(),
            shared,
            clock,
            kit,
            hub,
            drain,
            lists: Lists::default(),
            greetings: codec::ClientCache::default(),
            shown,
            paused: AtomicBool::new(false),
            tasks,
        }
    }

    /// Reads a request.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub(crate) fn arrive(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&RawJson>,
        index: &ParamsIndex<'_>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Arrival {
        match self.request(id, method, params, index, peer, out, in_batch) {
            Ok(arrival) => arrival,
            Err((speech, fault)) => Arrival::Answered(speech.refusal(Some(id), &fault)),
        }
    }

    /// A request as it was meant, where this peer names no edition and its dialect overlooks small mistakes. None if it
    /// needs no mending.
    pub(crate) fn mend(
        &self,
        method: &str,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Option<(String, Option<RawJson>)> {
        let (mended, changed) = bare::mend(peer, method, params)?;
        let names_none = codec::read_protocol_version(params).is_none();
        (names_none && matches!(self.speaker(peer), Ok(Speaker::Bare))).then(|| (mended.to_owned(), changed))
    }

    /// Hears a message that is no request.
    pub(crate) fn hear(&self, frame: Frame, peer: &Peer) -> Arrival {
        let refused = |(speech, fault): (Speech, ProtocolError)| speech.refusal(None, &fault);
        let answer = match frame {
            Frame::Notification { method, params } => {
                match self.notification(&method, params.as_ref(), peer) {
                    Ok(None) => Answer::Accepted,
                    Ok(Some(later)) => return Arrival::Later(later),
                    Err(error) => refused(error),
                }
            }
            Frame::Response { id, outcome } => match self.speaker(peer) {
                Ok(Speaker::Session(session)) => {
                    let elsewhere = self.shared.as_ref().filter(|_| session.kin.is_some());
                    if let Some(told) = elsewhere.and_then(|shared| shared.answer(&session, &id, &outcome)) {
                        return Arrival::Later(accepted(session.client.protocol_version.into(), told));
                    }
                    session.hear(&id, outcome);
                    Answer::Accepted
                }
                Ok(_) => self.stray(peer),
                Err(error) => refused(error),
            },
            Frame::ErrorWithoutId { .. } | Frame::Request { .. } => self.stray(peer),
        };
        Arrival::Answered(answer)
    }

    /// What must be fetched before a message of this peer can be read; nothing where there is one process only.
    pub(crate) fn prepare<'a>(&'a self, peer: &'a Peer) -> Option<BoxFuture<'a, Result<(), ProtocolError>>> {
        self.shared.as_ref()?.prepare(peer)
    }

    /// Refuses a message before it was read.
    pub(crate) fn unprepared(&self, id: Option<&RequestId>, fault: &ProtocolError) -> Answer {
        Speech::from(ProtocolVersion::LATEST_WITH_HANDSHAKE).refusal(id, fault)
    }

    /// Begins to listen to other processes, if there are any.
    pub(crate) fn wake(&self) {
        if let Some(shared) = &self.shared {
            shared.wake();
        }
    }

    /// The stream that a GET asks for, where any process can give it.
    pub(crate) async fn stand_anywhere(
        &self,
        shared: &Arc<Shared>,
        peer: &Peer,
        last_event: Option<&str>,
    ) -> Result<Stood, ProtocolError> {
        let session = self.session_of(peer)?;
        shared.stand(session, last_event).await
    }

    /// A response that nobody waits for.
    fn stray(&self, peer: &Peer) -> Answer {
        match (&peer.road, self.speaker(peer)) {
            (Road::Line(_), _) | (_, Ok(Speaker::Session(_))) => Answer::Accepted,
            (_, Ok(Speaker::Bare)) if peer.dialect().ignore_unmatched_responses => Answer::Accepted,
            _ => self.speech(peer).refusal(None, &ProtocolError::invalid_request("a response to nothing that was asked")),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn request(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<&RawJson>,
        index: &ParamsIndex<'_>,
        peer: &Peer,
        out: &Arc<Stream>,
        in_batch: bool,
    ) -> Result<Arrival, (Speech, ProtocolError)> {
        if self.paused.load(Ordering::Relaxed) && method != "ping" {
            let said = "the server is paused; try again later";
            return Err((self.speech(peer), ProtocolError::new(ProtocolErrorKind::Paused, said)));
        }
        let said = codec::ParamsView::with_index(params, index).map_err(|fault| (self.speech(peer), fault))?;
        let labels = peer.headers.labels();
        if self.is_each(method, &said, labels) {
            let newest = |fault| (Speech::from(ProtocolVersion::LATEST), fault);
            if in_batch {
                return Err(newest(ProtocolError::invalid_request("a request of this kind cannot be part of a batch")));
            }
            if let Road::Line(line) = &peer.road {
                line.note_each();
            }
            let greeted = self.greet_each(method, &said, peer, labels).map_err(newest)?;
            let Greeted { edition, call, client, meta, mirrors } = greeted;
            if let Some(answer) = self.answer_at_once(&edition.into(), id, &call) {
                return Ok(Arrival::Answered(answer));
            }
            let caller = self.caller(peer, client, meta, mirrors);
            return self.seat(&edition.into(), id, call, params, caller, None, peer, out);
        }
        if method == "initialize" {
            if in_batch {
                let fault = ProtocolError::invalid_request("`initialize` cannot be part of a batch");
                return Err((ProtocolVersion::LATEST_WITH_HANDSHAKE.into(), fault));
            }
            if let Some(answer) = self.nod(id, params, peer) {
                return Ok(Arrival::Answered(answer));
            }
            self.check_greeting(params, peer)?;
            return self
                .shake_hands(id, params, peer)
                .map_err(|fault| (ProtocolVersion::LATEST_WITH_HANDSHAKE.into(), fault));
        }
        let (speech, session) = match self.speaker_of(peer, labels)? {
            Speaker::Session(session) => (session.client.protocol_version.into(), Some(session)),
            Speaker::Stranger(edition) if !edition.has_handshake() => {
                let said = "say who you are in the `_meta` of each request, or send `initialize` first";
                return Err((edition.into(), ProtocolError::invalid_params(said)));
            }
            Speaker::Stranger(edition) => (edition.into(), None),
            Speaker::Bare if self.waits_for_greeting(method, peer) => {
                let fault = ProtocolError::new(ProtocolErrorKind::NotInitialized, "send `initialize` first");
                return Err((Speech::bare(peer), fault));
            }
            Speaker::Bare => (Speech::bare(peer), None),
        };
        if method == "shutdown"
            && let Road::Line(line) = &peer.road
            && line.close()
        {
            return Ok(Arrival::Answered(self.answer(&speech, id, &Outcome::Empty)));
        }
        let told = |fault| (speech.clone(), fault);
        let call = match &speech {
            Speech::Named(edition) => said.read_call(*edition, method),
            Speech::Bare(_) => said.read_unversioned_call(peer.dialect(), method),
        };
        let call = call.map_err(told)?;
        let meta = said.meta().map_err(told)?;
        if let Some(answer) = self.answer_at_once(&speech, id, &call) {
            return Ok(Arrival::Answered(answer));
        }
        let client = match &session {
            Some(session) => Arc::clone(&session.client),
            None => self.sessions.stranger(speech.edition()),
        };
        let mut caller = self.caller(peer, client, meta, false);
        if matches!(speech, Speech::Bare(_)) {
            caller.lenient = peer.dialect().lenient;
            caller.empty_lists = peer.dialect().empty_lists;
            if peer.dialect().tasks_create {
                caller.tasks = TaskWay::Asked;
                caller.owner = caller.principal.id().is_none().then(|| BARE_OWNER.into());
            }
        }
        self.seat(&speech, id, call, params, caller, session, peer, out)
    }

    /// What needs to know nothing of its caller.
    fn answer_at_once(&self, speech: &Speech, id: &RequestId, call: &Call) -> Option<Answer> {
        match call {
            Call::Ping => Some(self.answer(speech, id, &Outcome::Empty)),
            Call::Discover => {
                let discovery = Outcome::Discover(Box::new(self.discovery()));
                Some(self.answer(speech, id, &discovery))
            }
            _ => None,
        }
    }

    /// Gives a request its place: what is about the connection is answered here, the rest goes on.
    #[allow(clippy::too_many_arguments)]
    fn seat(
        &self,
        speech: &Speech,
        id: &RequestId,
        call: Call,
        params: Option<&RawJson>,
        mut caller: Box<Caller>,
        session: Option<Arc<Session>>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Result<Arrival, (Speech, ProtocolError)> {
        if caller.tasks == TaskWay::Asked
            && let Some(session) = &session
            && is_about_tasks(&call)
        {
            caller.owner = Some(owner(&caller.principal, Some(&session.id)));
        }
        let told = |fault| (speech.clone(), fault);
        let answered = |outcome| Ok(Arrival::Answered(self.answer(speech, id, &outcome)));
        if let (Some(shared), Some(session)) = (&self.shared, &session)
            && session.kin.is_some()
            && matches!(call, Call::SetLevel(_) | Call::Subscribe { .. } | Call::Unsubscribe { .. })
        {
            if let Call::Subscribe { uri } = &call
                && self.hides(&caller, uri)
            {
                return Err(told(ProtocolError::resource_not_found(uri)));
            }
            let (shared, session) = (Arc::clone(shared), Arc::clone(session));
            let (answer, speech, id) = (self.answer(speech, id, &Outcome::Empty), speech.clone(), id.clone());
            return Ok(Arrival::Later(Box::pin(async move {
                let kept = shared.remember(&session, &call).await;
                kept.map_or_else(|fault| speech.refusal(Some(&id), &fault), |()| answer)
            })));
        }
        if !is_about_connection(&call) {
            return self.visit(speech.clone(), id, call, params, caller, session, peer, out).map_err(told);
        }
        match (call, &session) {
            (Call::Initialize(_), _) => Err(told(ProtocolError::method_not_found("initialize"))),
            (Call::SetLevel(level), session) => {
                if let Some(session) = session {
                    session.set_level(level);
                }
                answered(Outcome::Empty)
            }
            (Call::Subscribe { uri }, Some(session)) => {
                if self.hides(&caller, &uri) {
                    return Err(told(ProtocolError::resource_not_found(&uri)));
                }
                session.subscribe(&uri).map_err(told)?;
                answered(Outcome::Empty)
            }
            (Call::Unsubscribe { uri }, Some(session)) => {
                session.unsubscribe(&uri);
                answered(Outcome::Empty)
            }
            (Call::Subscribe { uri }, None) if self.subscribes_unnamed(speech, peer) => {
                if self.hides(&caller, &uri) {
                    return Err(told(ProtocolError::resource_not_found(&uri)));
                }
                self.subscribe_unnamed(peer, &uri).map_err(told)?;
                answered(Outcome::Empty)
            }
            (Call::Unsubscribe { uri }, None) if self.subscribes_unnamed(speech, peer) => {
                self.unsubscribe_unnamed(peer, &uri);
                answered(Outcome::Empty)
            }
            (call @ (Call::Subscribe { .. } | Call::Unsubscribe { .. }), None) => {
                Err(told(ProtocolError::method_not_found(call.method())))
            }
            (Call::Listen(mut filter), _) => {
                filter.uris.retain(|uri| !self.hides(&caller, uri));
                let offered = || (self.offering)().extensions.contains_key(key::TASKS_EXTENSION);
                if !filter.tasks.is_empty() && caller.tasks == TaskWay::Undeclared && offered() {
                    return Err(told(undeclared()));
                }
                let (cancel, ticket) = self.ticket(id, session.as_ref(), peer).map_err(told)?;
                let listening = self.listen(speech.edition(), id, filter, cancel, ticket, &caller, peer, out);
                Ok(Arrival::Listening(Box::new(listening)))
            }
            (call, _) => Err(told(ProtocolError::method_not_found(call.method()))),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn visit(
        &self,
        speech: Speech,
        id: &RequestId,
        call: Call,
        params: Option<&RawJson>,
        caller: Box<Caller>,
        session: Option<Arc<Session>>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Result<Arrival, ProtocolError> {
        let (cancel, ticket) = self.ticket(id, session.as_ref(), peer)?;
        let edition = speech.edition();
        let posted = matches!(peer.road, Road::Post { .. });
        if !edition.behavior().disconnect_cancels {
            out.outlive_reader();
        }
        let streams = match &peer.road {
            Road::Post { streams } => *streams,
            Road::Line(_) => true,
        };
        let method = call.method();
        if posted && self.shared.is_some() {
            out.asks(id);
        }
        let out = streams.then(|| Arc::clone(out));
        let (voice, retrying): (Arc<dyn Voice>, _) = match edition.behavior().server_requests {
            ServerRequestMode::Reverse => {
                let level = self.level_unnamed(&speech);
                let voice = Reversing::new(edition, session, out, cancel.clone(), posted).hearing(level);
                (Arc::new(voice), None)
            }
            ServerRequestMode::Retry => {
                let retrying = Arc::new(Retrying::new(edition, &call, params, &caller, out, self));
                (Arc::clone(&retrying) as Arc<dyn Voice>, Some(retrying))
            }
        };
        let leaving = cancel.on_drop();
        let closing = Closing { speech, id: id.clone(), method, retrying, _ticket: ticket, leaving };
        let request = Request { call, caller, cancel };
        Ok(Arrival::Visit(Visit { request, voice, closing }))
    }

    /// A token that falls when the request is cancelled, and its entry where cancellations are looked up.
    fn ticket(
        &self,
        id: &RequestId,
        session: Option<&Arc<Session>>,
        peer: &Peer,
    ) -> Result<(Cancel, Option<Ticket>), ProtocolError> {
        let cancel = Cancel::new();
        let calls = match (&peer.road, session) {
            (Road::Line(line), _) => {
                if line.calls.contains(id) {
                    return Err(ProtocolError::invalid_request("a request with this id is in flight"));
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

    fn caller(&self, peer: &Peer, client: Arc<Client>, meta: Meta, mirrors: bool) -> Box<Caller> {
        Box::new(Caller {
            tasks: task_way(&client),
            owner: None,
            principal: peer.principal.clone(),
            client,
            headers: Arc::clone(&peer.headers),
            remote: peer.remote,
            meta,
            mirrors,
            lenient: false,
            empty_lists: false,
            given: None,
        })
    }

    /// Hears a notification; what is still to be done if it concerns another process.
    fn notification(
        &self,
        method: &str,
        params: Option<&RawJson>,
        peer: &Peer,
    ) -> Result<Option<BoxFuture<'static, Answer>>, (Speech, ProtocolError)> {
        let said = codec::ParamsView::new(params).map_err(|fault| (self.speech(peer), fault))?;
        if self.is_each(method, &said, peer.headers.labels()) {
            if let Road::Line(line) = &peer.road
                && let Some((Notification::Cancelled { request: Some(id), .. }, _)) =
                    codec::read_notification(ProtocolVersion::LATEST, method, params)
            {
                line.calls.cancel(&id);
            }
            let checked = each::check_method_if_sent(method, peer);
            return checked.map(|()| None).map_err(|fault| (ProtocolVersion::LATEST.into(), fault));
        }
        let (edition, calls) = match self.speaker(peer)? {
            Speaker::Session(session) => (session.client.protocol_version, Some(session)),
            Speaker::Stranger(edition) => (edition, None),
            Speaker::Bare => (ProtocolVersion::FALLBACK, None),
        };
        let notice = codec::read_notification(edition, method, params).map(|(notice, _)| notice);
        if let Some(Notification::Cancelled { request: Some(id), .. }) = notice {
            // A stdio client of an edition without a handshake says nothing of itself in a notification.
            match (&peer.road, calls) {
                (Road::Line(line), _) => {
                    line.calls.cancel(&id);
                }
                (_, Some(session)) => {
                    if !session.calls.cancel(&id)
                        && let Some(shared) = self.shared.as_ref().filter(|_| session.kin.is_some())
                    {
                        return Ok(Some(accepted(edition.into(), shared.cancel(&session, &id))));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Answers bytes that are no message.
    pub(crate) fn broken(&self, broken: &FrameError, peer: &Peer) -> Answer {
        let kind = match broken.kind {
            FrameErrorKind::ParseError => ProtocolErrorKind::ParseError,
            FrameErrorKind::InvalidRequest => ProtocolErrorKind::InvalidRequest,
            FrameErrorKind::InvalidParams => ProtocolErrorKind::InvalidParams,
        };
        self.speech(peer).refusal(broken.id.as_ref(), &ProtocolError::new(kind, broken.detail.clone()))
    }

    /// Refuses a message that somebody who listens would not have.
    pub(crate) fn reject(&self, id: Option<&RequestId>, peer: &Peer, fault: &ProtocolError) -> Answer {
        self.speech(peer).refusal(id, fault)
    }

    /// Whether this peer may send arrays of messages.
    pub(crate) fn takes_batches(&self, peer: &Peer) -> bool {
        match self.speaker(peer) {
            Ok(Speaker::Session(session)) => session.client.protocol_version.behavior().batches,
            Ok(Speaker::Stranger(edition)) => edition.behavior().batches,
            Ok(Speaker::Bare) => match (peer.dialect().batches, &peer.road) {
                (Some(takes), _) => takes,
                (None, Road::Post { .. }) => ProtocolVersion::FALLBACK.behavior().batches,
                // Nobody who speaks on a standing connection has ever sent one before a greeting.
                (None, Road::Line(_)) => false,
            },
            Err(_) => false,
        }
    }

    /// Whether a caller may not know of this resource.
    fn hides(&self, caller: &Caller, uri: &str) -> bool {
        let shown = self.shown.load();
        let profiles = [shown.as_deref(), caller.principal.profile()];
        profiles.into_iter().flatten().any(|profile| !profile.allows_reading(uri))
    }

    fn answer(&self, speech: &Speech, id: &RequestId, outcome: &Outcome) -> Answer {
        let body = self.write(speech, id, outcome, &self.face.load());
        let told = match outcome {
            Outcome::Tool(output) if output.is_error => Told::Failed(first_words(output).into()),
            _ => Told::Well,
        };
        Answer::Body { status: 200, body, session: None, told }
    }

    /// Answers a request that went through the house.
    pub(crate) fn close(&self, closing: &Closing, ended: Result<Outcome, Stop>) -> Answer {
        let Closing { speech, id, method, retrying, .. } = closing;
        let refuse = |fault: &ProtocolError| speech.refusal(Some(id), fault);
        if let Some(fault) = retrying.as_ref().and_then(|retrying| retrying.forged()) {
            return refuse(&fault);
        }
        match ended {
            Ok(outcome) => {
                if retrying.as_ref().is_some_and(|retrying| retrying.is_waiting()) {
                    tracing::warn!(method, "a handler ended well although its question was not answered");
                }
                self.answer(speech, id, &outcome)
            }
            Err(Stop::Fault(fault)) => refuse(&fault),
            Err(Stop::Tool(failure, output)) => match speech.tool_fault(failure, first_words(&output)) {
                Some(fault) => refuse(&fault),
                None => {
                    let output = speech.reworded(failure, *output);
                    self.answer(speech, id, &Outcome::Tool(output))
                }
            },
            Err(Stop::Cancelled) => Answer::Silence,
            // The hall makes a task of it.
            Err(Stop::Later) => refuse(&ProtocolError::internal(&crate::seal::reference())),
            Err(Stop::NeedsInput) => match retrying.as_ref().map(|retrying| retrying.suspend()) {
                Some(Ok(outcome)) => self.answer(speech, id, &outcome),
                Some(Err(fault)) => refuse(&fault),
                None => refuse(&ProtocolError::internal(&crate::seal::reference())),
            },
        }
    }
}

/// Taken, once somebody else has been told.
fn accepted(
    speech: Speech,
    told: impl Future<Output = Result<(), ProtocolError>> + Send + 'static,
) -> BoxFuture<'static, Answer> {
    Box::pin(
        async move { told.await.map_or_else(|fault| speech.refusal(None, &fault), |()| Answer::Accepted) },
    )
}

/// How a client's way of speaking deals with work that takes long.
fn task_way(client: &Client) -> TaskWay {
    match client.protocol_version.behavior().tasks {
        toolgate_wire::TasksMode::Never => TaskWay::Never,
        toolgate_wire::TasksMode::Core => TaskWay::Asked,
        toolgate_wire::TasksMode::Extension => {
            match client.capabilities.extensions.contains_key(key::TASKS_EXTENSION) {
                true => TaskWay::Free,
                false => TaskWay::Undeclared,
            }
        }
    }
}

/// Whether a wish is fulfilled here, and not in the hall.
fn is_about_connection(call: &Call) -> bool {
    matches!(
        call,
        Call::Initialize(_)
            | Call::SetLevel(_)
            | Call::Subscribe { .. }
            | Call::Unsubscribe { .. }
            | Call::Listen(_)
    )
}

/// Whether it matters whose tasks a caller may see.
fn is_about_tasks(call: &Call) -> bool {
    matches!(
        call,
        Call::CallTool { task: Some(_), .. }
            | Call::GetTask { .. }
            | Call::UpdateTask { .. }
            | Call::CancelTask { .. }
            | Call::ListTasks { .. }
            | Call::TaskResult { .. }
            | Call::CreateTask { .. }
    )
}

/// What a tool's output begins with.
fn first_words(output: &ToolOutput) -> &str {
    output.content.first().and_then(|content| content.as_text()).unwrap_or_default()
}

/// Who sends a message of a handshake edition.
enum Speaker {
    /// One whose greeting is remembered.
    Session(Arc<Session>),
    /// One who names an edition, of whom nothing is remembered, because nothing ever is.
    Stranger(ProtocolVersion),
    /// One who says nothing of itself.
    Bare,
}

/// A refusal before a message was looked at, or more of it than its id.
pub(crate) fn refuse(id: Option<&RequestId>, fault: &ProtocolError) -> Bytes {
    let mut out = Vec::with_capacity(256);
    codec::write_protocol_error(&mut out, ProtocolVersion::LATEST, id, fault);
    out.into()
}
