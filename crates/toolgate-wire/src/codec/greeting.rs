//! What a message says beside its parameters: `_meta`, both ways.
//!
//! Requests of an edition without a handshake introduce their sender there.
//! Whether the edition they name is served is for others to judge: this only
//! says what was said, or which part of it is missing.

use std::borrow::Cow;

use super::capability::{read_client_capabilities, read_implementation};
use super::fields::{Field, Part};
use super::object::{Object, Open, Put, nest};
use crate::Edition::{self, E2026_07_28};
use crate::edition::Greeting;
use crate::json::{Kind, Raw};
use crate::meta::{Client, Meta, key};
use crate::model::{ClientCapabilities, Implementation, LogLevel};
use crate::{Fault, FaultKind, ProgressToken, RequestId};

/// What a request says, and what it says beside that, found in one walk.
#[derive(Clone, Copy)]
pub struct Said<'a> {
    params: Part<'a>,
    /// The parameters that most calls have, in the order of [`COMMON`].
    common: [Field<'a>; COMMON.len()],
    meta: Field<'a>,
    /// None if there is no `_meta`, or it is no object.
    keys: Option<Keys<'a>>,
}

/// What nearly every call is made of.
const COMMON: [&str; 8] =
    ["_meta", "name", "arguments", "uri", "cursor", "inputResponses", "requestState", "task"];

#[derive(Clone, Copy)]
struct Keys<'a> {
    version: Field<'a>,
    capabilities: Field<'a>,
    client: Field<'a>,
    progress: Field<'a>,
    level: Field<'a>,
}

impl<'a> Said<'a> {
    /// Finds it.
    ///
    /// # Errors
    /// If the params are no object.
    pub fn of(params: Option<&'a Raw>) -> Result<Said<'a>, Fault> {
        let params = Part::params(params)?;
        let common = params.pick(COMMON);
        let [meta, ..] = common;
        let there = meta.given().is_some_and(|value| value.kind() == Kind::Object);
        let keys = there.then(|| meta.part("params._meta").ok()).flatten().map(|part| {
            let [version, capabilities, client, progress, level] = part
                .refused_as(FaultKind::Greeting)
                .pick([key::VERSION, key::CAPABILITIES, key::CLIENT, key::PROGRESS, key::LOG_LEVEL]);
            Keys { version, capabilities, client, progress, level }
        });
        Ok(Said { params, common, meta, keys })
    }

    /// A parameter.
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        match COMMON.iter().position(|known| *known == name) {
            Some(place) => self.common[place],
            None => self.params.field(name),
        }
    }

    /// Parameters by name.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        names.map(|name| self.field(name))
    }

    /// The edition that it names, if that is a string.
    pub fn version(&self) -> Option<Cow<'a, str>> {
        self.keys?.version.given()?.as_text()
    }

    /// What a request of an edition without a handshake must say of its sender:
    /// the edition, as it spelled it; what it can do; and who it is, if it says
    /// so.
    ///
    /// # Errors
    /// A [`FaultKind::Greeting`] that names what is missing.
    pub fn greeting(&self) -> Result<(String, ClientCapabilities, Option<Implementation>), Fault> {
        let params = self.params.refused_as(FaultKind::Greeting);
        let Some(keys) = self.keys else {
            return Err(match self.meta.value() {
                Some(_) => Fault::new(FaultKind::Greeting, self.meta.wrong("an object").message()),
                None => params.refuse(lacks(&[key::VERSION, key::CAPABILITIES])),
            });
        };
        let Keys { version, capabilities, client, .. } = keys;
        if version.given().is_none() || capabilities.given().is_none() {
            let missing: Vec<&str> = [(version, key::VERSION), (capabilities, key::CAPABILITIES)]
                .into_iter()
                .filter_map(|(field, key)| field.given().is_none().then_some(key))
                .collect();
            return Err(params.refuse(lacks(&missing)));
        }
        Ok((
            version.text()?,
            read_client_capabilities(capabilities.part("clientCapabilities")?)?,
            client.value().map(|_| read_implementation(client)).transpose()?,
        ))
    }

    /// The rest, read leniently: a progress token of the wrong type is none.
    ///
    /// # Errors
    /// If it names a log level that does not exist.
    pub fn meta(&self) -> Result<Meta, Fault> {
        let Some(Keys { progress, level, .. }) = self.keys else {
            return Ok(Meta::default());
        };
        let level = level.refused_as(FaultKind::Params);
        Ok(Meta {
            progress: progress.value().and_then(ProgressToken::read),
            log_level: level.value().map(|_| read_level(level)).transpose()?,
            raw: self.meta.maybe_object()?,
        })
    }
}

/// Reads the `_meta` of a request's params; see [`Said::meta`].
pub fn read_meta(params: Option<&Raw>) -> Result<Meta, Fault> {
    Said::of(params)?.meta()
}

/// The edition that a request names in its `_meta`, if that is a string.
pub fn read_version(params: Option<&Raw>) -> Option<Cow<'_, str>> {
    Said::of(params).ok()?.version()
}

/// What a request says of its sender; see [`Said::greeting`].
pub fn read_greeting(
    params: Option<&Raw>,
) -> Result<(String, ClientCapabilities, Option<Implementation>), Fault> {
    Said::of(params)?.greeting()
}

fn lacks(keys: &[&str]) -> String {
    format!("params._meta lacks {}", keys.join(" and "))
}

pub(super) fn read_level(field: Field<'_>) -> Result<LogLevel, Fault> {
    field.word("a log level from \"debug\" to \"emergency\"", LogLevel::of)
}

impl Put for LogLevel {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        self.name().put(out, edition);
    }
}

/// The `_meta` of a request that we send.
pub(super) struct RequestMeta<'a> {
    client: Option<&'a Client>,
    meta: &'a Meta,
    edition: Edition,
}

impl<'a> RequestMeta<'a> {
    /// None if there is nothing to say in `edition`.
    pub(super) fn of(
        edition: Edition,
        client: Option<&'a Client>,
        meta: &'a Meta,
    ) -> Option<RequestMeta<'a>> {
        let client = client.filter(|_| edition.facts().greeting == Greeting::Each);
        let request = RequestMeta { client, meta, edition };
        let level = meta.log_level.is_some() && edition >= E2026_07_28;
        let said = client.is_some() || meta.progress.is_some() || level;
        let kept =
            || Open(meta.raw.as_ref()).object()?.view().members().find(|(name, _)| request.keeps(name));
        (said || kept().is_some()).then_some(request)
    }

    /// Whether a key that came from elsewhere is passed on. What we say
    /// ourselves is not; and a greeting that was meant for us must not be, or
    /// an older server would take the request for one of a newer edition.
    fn keeps(&self, name: &str) -> bool {
        match name {
            key::PROGRESS | key::LOG_LEVEL => false,
            key::VERSION | key::CAPABILITIES | key::CLIENT => {
                self.client.is_none() && self.edition.facts().greeting == Greeting::Each
            }
            _ => true,
        }
    }
}

impl Put for RequestMeta<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let Meta { progress, log_level, raw } = self.meta;
        let mut object = Object::open(out, edition);
        if let Some(client) = self.client {
            // The request is in this edition, whatever was spoken before.
            let Client { edition: _, capabilities, info } = client;
            object = object
                .field(key::VERSION, edition.date())
                .field(key::CAPABILITIES, capabilities)
                .some(key::CLIENT, info);
        }
        object
            .some(key::PROGRESS, progress)
            .since(E2026_07_28, key::LOG_LEVEL, log_level)
            .rest(raw.as_ref(), |name| self.keeps(name))
            .close();
    }
}

/// The `_meta` of a result or notification that we send: what the value
/// brings, and what the protocol says beside it.
#[derive(Clone, Copy, Default)]
pub(super) struct ResultMeta<'a> {
    /// The value's own, an object.
    pub(super) own: Option<&'a Raw>,
    /// Who answers.
    pub(super) server: Option<&'a Implementation>,
    /// Which listening this belongs to.
    pub(super) subscription: Option<&'a RequestId>,
    /// Which core task this belongs to.
    pub(super) task: Option<&'a str>,
}

impl Put for ResultMeta<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let ResultMeta { own, server, subscription, task } = *self;
        if let (Some(own), None, None, None) = (Open(own).object(), server, subscription, task) {
            return own.put(out, edition);
        }
        let related = task.map(|id| nest(move |object| object.field("taskId", id)));
        Object::open(out, edition)
            .some(key::SERVER, &server)
            .some(key::SUBSCRIPTION, &subscription)
            .some(key::RELATED_TASK, &related)
            .rest(own, |name| match name {
                key::SERVER => server.is_none(),
                key::SUBSCRIPTION => subscription.is_none(),
                key::RELATED_TASK => task.is_none(),
                _ => true,
            })
            .close();
    }

    fn is_absent(&self) -> bool {
        let ResultMeta { own, server, subscription, task } = *self;
        let own = own.is_some_and(|own| own.view().kind() == Kind::Object);
        !own && server.is_none() && subscription.is_none() && task.is_none()
    }
}

/// Which listening a message belongs to.
pub(super) fn read_subscription(part: Part<'_>) -> Option<RequestId> {
    let meta = part.field("_meta").value()?;
    RequestId::read(meta.get(key::SUBSCRIPTION)?)
}
