//! Change notices on their way to a client: on the standing stream of a session, or on a stream that the
//! client opened to listen.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{Filter, Notice, Outcome, ServerCapabilities};
use toolgate_wire::{Edition, RequestId, codec};

use super::session::{Session, Ticket};
use super::speech::Speech;
use super::{Answer, Era, Peer, Road};
use crate::cancel::Cancel;
use crate::hub::{Subscriber, Topic};
use crate::stream::Stream;

/// A client that listens, until it or the house has enough.
pub(crate) struct Listening {
    edition: Edition,
    id: RequestId,
    accepted: Filter,
    subscriber: Arc<Subscriber>,
    cancel: Cancel,
    out: Arc<Stream>,
    /// Falls when nothing more will come from the client.
    hung_up: Option<CancellationToken>,
    _ticket: Option<Ticket>,
}

impl Era {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn listen(
        &self,
        edition: Edition,
        id: &RequestId,
        wanted: Filter,
        cancel: Cancel,
        ticket: Option<Ticket>,
        peer: &Peer,
        out: &Arc<Stream>,
    ) -> Listening {
        let hung_up = match &peer.road {
            Road::Line(line) => Some(line.hung_up.clone()),
            Road::Post { .. } => None,
        };
        let accepted = accept(wanted, &(self.offering)());
        Listening {
            edition,
            id: id.clone(),
            // Subscribed before the acknowledgement is written: nothing that changes after it is missed.
            subscriber: self.hub.subscribe(accepted.clone()),
            accepted,
            cancel,
            out: Arc::clone(out),
            hung_up,
            _ticket: ticket,
        }
    }

    /// Tells one listener of changes; ends when it leaves or the house closes.
    pub(crate) async fn tell(&self, listening: &Listening) -> Answer {
        let Listening { edition, id, accepted, subscriber, cancel, out, hung_up, _ticket } = listening;
        let edition = *edition;
        let on_a_line = hung_up.is_some();
        let hung_up = hung_up.clone().unwrap_or_default();
        let telling = async {
            let acknowledged = Notice::Acknowledged(accepted.clone());
            if !write(out, edition, &acknowledged, Some(id)).await {
                return;
            }
            tell_all(subscriber, out, &edition.into(), Some(id)).await;
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Answer::Silence,
            // Before the hanging up, which a closing house does as well: the client is still there to hear it.
            () = self.drain.cancelled() => {
                let ended = Outcome::Listened { subscription: id.clone() };
                let answer = self.answer(&edition.into(), id, &ended);
                if on_a_line { end_on_line(out, edition, id.clone(), answer) } else { answer }
            }
            () = hung_up.cancelled() => Answer::Silence,
            () = telling => Answer::Silence,
        }
    }

    /// Tells a session of changes on `out`; ends when the session or the house does.
    pub(crate) async fn feed(&self, session: &Session, out: &Stream) {
        let speech = session.client.edition.into();
        let feeding = tell_all(session.subscriber(), out, &speech, None);
        tokio::select! {
            biased;
            () = session.over.cancelled() => {}
            () = self.drain.cancelled() => {}
            () = feeding => {}
        }
    }
}

/// Tells of changes until nobody reads any more. A change is taken only when there is room to tell of it:
/// what the reader does not live to hear is there for the next one.
pub(super) async fn tell_all(
    subscriber: &Subscriber,
    out: &Stream,
    speech: &Speech,
    tag: Option<&RequestId>,
) {
    loop {
        subscriber.stirred().await;
        out.room().await;
        if out.is_gone() || out.is_finished() {
            return;
        }
        let Some(topic) = subscriber.take() else { continue };
        let notice = match topic.clone() {
            Topic::Tools => Notice::ToolsChanged,
            Topic::Prompts => Notice::PromptsChanged,
            Topic::Resources => Notice::ResourcesChanged,
            Topic::Resource(uri) => Notice::ResourceUpdated { uri: uri.into() },
            Topic::Roots => Notice::RootsChanged,
        };
        let mut message = Vec::with_capacity(160);
        if speech.notice(&mut message, &notice, tag) && !out.hint(message.into()) {
            subscriber.give_back(topic);
        }
    }
}

/// On a line nothing closes with a listening. Spec 2026-07-28 has two words for its end, the result and
/// `notifications/cancelled`, and does not say which a client waits for: it gets both, in this order.
fn end_on_line(out: &Stream, edition: Edition, id: RequestId, answer: Answer) -> Answer {
    let mut message = Vec::with_capacity(96);
    let over = Notice::Cancelled { request: Some(id), reason: None };
    if let (Answer::Body { body, .. }, true) =
        (answer, codec::write_notice(&mut message, edition, &over, None))
    {
        out.push(body.whole());
        out.push(Bytes::from(message));
    }
    Answer::Silence
}

/// Waits for room. False when the reader is gone.
async fn write(out: &Stream, edition: Edition, notice: &Notice, tag: Option<&RequestId>) -> bool {
    let mut message = Vec::with_capacity(160);
    if !codec::write_notice(&mut message, edition, notice, tag) {
        return true;
    }
    out.send(Bytes::from(message)).await.is_ok()
}

/// What of a wish the server can fulfil.
fn accept(wanted: Filter, offered: &ServerCapabilities) -> Filter {
    Filter {
        tools: wanted.tools && offered.tools == Some(true),
        prompts: wanted.prompts && offered.prompts == Some(true),
        resources: wanted.resources && offered.resources == Some(true),
        uris: if offered.resource_updates { wanted.uris } else { Vec::new() },
        tasks: Vec::new(),
    }
}
