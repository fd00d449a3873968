//! What a message says beside its parameters: `_meta`, both ways.
//!
//! Requests of an edition without a handshake introduce their sender there.
//! Whether the edition they name is served is for others to judge: this only
//! says what was said, or which part of it is missing.

use std::borrow::Cow;
use std::ops::Deref;

use super::capability::{read_client_capabilities, read_implementation};
use super::fields::{Field, Part};
use super::greetings::Words;
use super::object::{Object, Open, Put, nest};
use crate::Edition::{self, E2026_07_28};
use crate::edition::Greeting;
use crate::index::{Index, MetaKeys, Params};
use crate::json::{Raw, View};
use crate::meta::{Client, Meta, key};
use crate::model::{ClientCapabilities, Implementation, LogLevel};
use crate::{Fault, FaultKind, ProgressToken, RequestId};

/// What a request says, and what it says beside that.
#[derive(Clone)]
pub struct Said<'a> {
    params: Part<'a>,
    places: Places<'a>,
}

/// Where things are.
#[derive(Clone)]
enum Places<'a> {
    /// As the reader of the message noted it: nearly always.
    Noted(&'a Index<'a>, &'a Params<'a>),
    Walked(Box<Params<'a>>),
}

impl<'a> Deref for Places<'a> {
    type Target = Params<'a>;

    #[inline]
    fn deref(&self) -> &Params<'a> {
        match self {
            Places::Noted(_, places) => places,
            Places::Walked(places) => places,
        }
    }
}

impl<'a> Said<'a> {
    /// Finds what is said in a walk over the parameters.
    ///
    /// # Errors
    /// If the params are no object.
    pub fn of(params: Option<&'a Raw>) -> Result<Said<'a>, Fault> {
        let params = Part::params(params)?;
        Ok(Said { params, places: Places::Walked(Box::new(Params::walk(params.view()))) })
    }

    /// The same without a walk, if `index` is of these parameters, as it was
    /// filled by [`read_noting`](crate::read_noting). Of others it is ignored.
    ///
    /// # Errors
    /// If the params are no object.
    pub fn noted(params: Option<&'a Raw>, index: &'a Index<'a>) -> Result<Said<'a>, Fault> {
        let part = Part::params(params)?;
        match index.of(part.view()) {
            Some(places) => Ok(Said { params: part, places: Places::Noted(index, places) }),
            None => Said::of(params),
        }
    }

    /// A parameter.
    #[inline(always)]
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        match Params::place_of(name.as_bytes()) {
            Some(place) => self.params.found(name, self.places.at(place)),
            None => self.params.field(name),
        }
    }

    /// Whether there is such a parameter, `null` included.
    #[inline(always)]
    pub(super) fn has(&self, name: &'static str) -> bool {
        self.field(name).given().is_some()
    }

    /// Parameters by name.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut fields = [self.params.found("", None); N];
        for (field, name) in fields.iter_mut().zip(names) {
            *field = self.field(name);
        }
        fields
    }

    /// The edition that it names, if that is a string.
    pub fn version(&self) -> Option<Cow<'a, str>> {
        read_date(self.places.meta()?.version?)
    }

    /// A key of `_meta`.
    fn key(&self, name: &'static str, value: Option<View<'a>>) -> Field<'a> {
        self.params.refused_as(FaultKind::Greeting).within("params._meta").found(name, value)
    }

    /// What a request of an edition without a handshake must say of its sender:
    /// the edition, as it spelled it; what it can do; and who it is, if it says
    /// so.
    ///
    /// # Errors
    /// A [`FaultKind::Greeting`] that names what is missing.
    pub fn greeting(&self) -> Result<(String, ClientCapabilities, Option<Implementation>), Fault> {
        let (version, capabilities, client) = self.greeter()?;
        Ok((
            version.text()?,
            read_client_capabilities(&capabilities.part("clientCapabilities")?)?,
            client.value().map(|_| read_implementation(&client)).transpose()?,
        ))
    }

    /// Where the greeting is: version, capabilities, client. The first two are
    /// there, whatever they are.
    fn greeter(&self) -> Result<(Field<'a>, Field<'a>, Field<'a>), Fault> {
        let params = self.params.refused_as(FaultKind::Greeting);
        let Some(MetaKeys { version, capabilities, client, .. }) = self.places.meta() else {
            let meta = self.field("_meta");
            return Err(match meta.value() {
                Some(_) => Fault::new(FaultKind::Greeting, meta.wrong("an object").message()),
                None => params.refuse(lacks(&[key::VERSION, key::CAPABILITIES])),
            });
        };
        if version.is_none() || capabilities.is_none() {
            let missing: Vec<&str> = [(version, key::VERSION), (capabilities, key::CAPABILITIES)]
                .into_iter()
                .filter_map(|(value, key)| value.is_none().then_some(key))
                .collect();
            return Err(params.refuse(lacks(&missing)));
        }
        Ok((
            self.key(key::VERSION, *version),
            self.key(key::CAPABILITIES, *capabilities),
            self.key(key::CLIENT, *client),
        ))
    }

    /// What the reader of the message noted.
    pub(super) fn index(&self) -> Option<&'a Index<'a>> {
        match &self.places {
            Places::Noted(index, _) => Some(index),
            Places::Walked(_) => None,
        }
    }

    /// All of `_meta`.
    pub(super) fn whole(&self) -> Option<View<'a>> {
        self.field("_meta").given()
    }

    /// The words of the greeting, if there are any.
    pub(super) fn words(&self) -> Option<Words<'a>> {
        let MetaKeys { version, capabilities, client, .. } = *self.places.meta()?;
        Some(Words { version: version?, capabilities: capabilities?, client })
    }

    /// The same; what is read of it will be copied.
    pub(super) fn apart(self) -> Said<'a> {
        Said { params: self.params.apart(), ..self }
    }

    /// The rest, read leniently: a progress token of the wrong type is none.
    ///
    /// # Errors
    /// If it names a log level that does not exist.
    pub fn meta(&self) -> Result<Meta, Fault> {
        let Some(MetaKeys { progress, level, .. }) = self.places.meta() else {
            return Ok(Meta::default());
        };
        let level = self.key(key::LOG_LEVEL, *level).refused_as(FaultKind::Params);
        Ok(Meta {
            progress: progress.filter(|value| !value.is_null()).and_then(ProgressToken::read),
            log_level: level.value().map(|_| read_level(&level)).transpose()?,
            raw: self.field("_meta").maybe_object()?,
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

/// A text that is most likely the date of an edition: those need not be checked
/// for being text.
pub(super) fn read_date(value: View<'_>) -> Option<Cow<'_, str>> {
    let known = Edition::ALL.into_iter().rev().map(Edition::date).find(|date| value.is_word(date));
    known.map(Cow::Borrowed).or_else(|| value.as_text())
}

fn lacks(keys: &[&str]) -> String {
    format!("params._meta lacks {}", keys.join(" and "))
}

pub(super) fn read_level(field: &Field<'_>) -> Result<LogLevel, Fault> {
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

/// Who answers.
#[derive(Clone, Copy)]
pub(super) enum Server<'a> {
    Known(&'a Implementation),
    /// An implementation that was written before, in this edition.
    Written(&'a Raw),
}

impl Put for Server<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        match self {
            Server::Known(server) => server.put(out, edition),
            Server::Written(server) => out.extend_from_slice(server.as_bytes()),
        }
    }
}

/// The `_meta` of a result or notification that we send: what the value
/// brings, and what the protocol says beside it.
#[derive(Clone, Copy, Default)]
pub(super) struct ResultMeta<'a> {
    /// The value's own, an object.
    pub(super) own: Option<&'a Raw>,
    /// Who answers.
    pub(super) server: Option<Server<'a>>,
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
        let own = own.is_some_and(|own| own.view().is_object());
        !own && server.is_none() && subscription.is_none() && task.is_none()
    }
}

/// Which listening a message belongs to.
pub(super) fn read_subscription(part: &Part<'_>) -> Option<RequestId> {
    let meta = part.field("_meta").value()?;
    RequestId::read(meta.get(key::SUBSCRIPTION)?)
}
