//! Editions in which every request says who sends it, and mirrors itself in HTTP headers.

use std::sync::Arc;

use http::HeaderName;
use toolgate_wire::codec::Said;
use toolgate_wire::model::{Call, Discovery};
use toolgate_wire::{Client, Edition, Fault, FaultKind, Greeting, Meta};

use super::header;
use super::{Era, Peer, Road};
use crate::letterhead::{Field, Labels, METHOD, NAME, VERSION, single};
use crate::registry::decode;

/// A request that says who sends it.
pub(super) struct Greeted {
    pub(super) edition: Edition,
    pub(super) call: Call,
    pub(super) client: Arc<Client>,
    pub(super) meta: Meta,
    /// Marked arguments must stand in headers too.
    pub(super) mirrors: bool,
}

impl Era {
    /// Whether a message is to be read by the rules of these editions.
    pub(super) fn is_each(&self, method: &str, said: &Said<'_>, labels: &Labels) -> bool {
        if method == "server/discover" {
            return true;
        }
        if let Some(version) = said.version() {
            // A date we do not know is answered with those we do, which only these editions can say.
            return Edition::of(&version).is_none_or(|edition| !edition.shakes_hands());
        }
        if method == "initialize" {
            return false;
        }
        let named = header::edition(&labels.version);
        named.is_some_and(|edition| edition.facts().greeting == Greeting::Each)
    }

    /// Checks what a request says of itself, in the order that clients rely on, and reads what it wants.
    pub(super) fn greet_each(
        &self,
        method: &str,
        said: &Said<'_>,
        peer: &Peer,
        labels: &Labels,
    ) -> Result<Greeted, Fault> {
        let (version, client) = self.greetings.meet(said)?;
        let posted = matches!(peer.road, Road::Post { .. });
        if posted
            && !labels.version.is(&version)
            && required(&labels.version, &VERSION)? != version
            && !peer.is_changed
        {
            return Err(mismatch(&VERSION, "the `_meta` of the body"));
        }
        let edition = match Edition::of(&version) {
            Some(edition) if !edition.shakes_hands() => edition,
            // Finding out what is served works from whatever edition the client starts with.
            Some(_) if method == "server/discover" => Edition::NEWEST,
            _ => return Err(Fault::version(&version)),
        };
        if posted
            && !labels.method.is(method)
            && required(&labels.method, &METHOD)? != method
            && !peer.is_changed
        {
            return Err(mismatch(&METHOD, "the method of the body"));
        }
        let call = said.call(edition, method)?;
        let mirrors = posted && edition.facts().mirror_headers && !peer.is_changed;
        if let (true, Some(subject)) = (mirrors, call.subject()) {
            // Most names stand there as they are.
            let is_plain = labels.name.is(subject) && !subject.starts_with("=?");
            if !is_plain && decode(required(&labels.name, &NAME)?.as_bytes()).as_deref() != Some(subject) {
                return Err(mismatch(&NAME, "the body"));
            }
        }
        Ok(Greeted { edition, call, client, meta: said.meta()?, mirrors })
    }

    /// What `server/discover` tells.
    pub(super) fn discovery(&self) -> Discovery {
        let face = self.face.load();
        Discovery {
            versions: Edition::dates().map(str::to_owned).collect(),
            capabilities: (self.offering)(),
            instructions: face.instructions.clone(),
            server: Some(face.info.clone()),
            cache: face.cache,
        }
    }
}

/// Notifications need not mirror themselves; one that does must tell the truth.
pub(super) fn check_method_if_sent(method: &str, peer: &Peer) -> Result<(), Fault> {
    match single(&peer.headers, &METHOD) {
        Ok(None) => Ok(()),
        Ok(Some(sent)) if sent == method => Ok(()),
        _ => Err(mismatch(&METHOD, "the method of the body")),
    }
}

fn required<'a>(label: &'a Field, name: &HeaderName) -> Result<&'a str, Fault> {
    match label.text() {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(Fault::new(FaultKind::Header, format!("header {name} is missing"))),
        Err(_) => Err(Fault::new(FaultKind::Header, format!("header {name} must be sent once, as text"))),
    }
}

fn mismatch(name: &HeaderName, other: &str) -> Fault {
    Fault::new(FaultKind::Header, format!("header {name} differs from {other}"))
}
