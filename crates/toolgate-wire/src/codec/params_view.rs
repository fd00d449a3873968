//! What a message says beside its parameters: `_meta`, both ways.
//!
//! Requests of an edition without a handshake introduce their sender there.
//! Whether the edition they name is served is for others to judge: this only
//! says what was said, or which part of it is missing.

use std::borrow::Cow;
use std::ops::Deref;

use super::capability::{read_client_capabilities, read_implementation};
use super::client_cache::ClientViews;
use super::fields::{Field, ObjectReader};
use super::object::{ObjectOrAbsent, ObjectWriter, WriteJson, nest};
use crate::ProtocolVersion::{self, V2026_07_28};
use crate::json::{RawJson, View};
use crate::meta::{Client, Meta, meta_key};
use crate::model::{ClientCapabilities, Implementation, LogLevel};
use crate::params_index::{CommonParams, MetaKeys, ParamsIndex};
use crate::protocol_version::Lifecycle;
use crate::{ProgressToken, ProtocolError, ProtocolErrorKind, RequestId};

/// What a request says, and what it says beside that.
#[derive(Clone)]
pub struct ParamsView<'a> {
    params: ObjectReader<'a>,
    common: CommonParamsRef<'a>,
}

/// Where things are.
#[derive(Clone)]
enum CommonParamsRef<'a> {
    /// As the reader of the message noted it: nearly always.
    Indexed(&'a ParamsIndex<'a>, &'a CommonParams<'a>),
    Owned(Box<CommonParams<'a>>),
}

impl<'a> Deref for CommonParamsRef<'a> {
    type Target = CommonParams<'a>;

    #[inline]
    fn deref(&self) -> &CommonParams<'a> {
        match self {
            CommonParamsRef::Indexed(_, places) => places,
            CommonParamsRef::Owned(places) => places,
        }
    }
}

impl<'a> ParamsView<'a> {
    /// Finds what is said in a walk over the parameters.
    ///
    /// # Errors
    /// If the params are no object.
    pub fn new(params: Option<&'a RawJson>) -> Result<ParamsView<'a>, ProtocolError> {
        let params = ObjectReader::params(params)?;
        Ok(ParamsView {
            params,
            common: CommonParamsRef::Owned(Box::new(CommonParams::from_object(params.view()))),
        })
    }

    /// The same without a walk, if `index` is of these parameters, as it was
    /// filled by [`read_noting`](crate::read_noting). Of others it is ignored.
    ///
    /// # Errors
    /// If the params are no object.
    pub fn with_index(
        params: Option<&'a RawJson>,
        index: &'a ParamsIndex<'a>,
    ) -> Result<ParamsView<'a>, ProtocolError> {
        let part = ObjectReader::params(params)?;
        match index.params_of(part.view()) {
            Some(places) => Ok(ParamsView { params: part, common: CommonParamsRef::Indexed(index, places) }),
            None => ParamsView::new(params),
        }
    }

    /// A parameter.
    #[inline(always)]
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        match CommonParams::slot_of(name.as_bytes()) {
            Some(place) => self.params.field_with(name, self.common.get(place)),
            None => self.params.field(name),
        }
    }

    /// Whether there is such a parameter, `null` included.
    #[inline(always)]
    pub(super) fn has(&self, name: &'static str) -> bool {
        self.field(name).value_or_null().is_some()
    }

    /// Parameters by name.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut fields = [self.params.field_with("", None); N];
        for (field, name) in fields.iter_mut().zip(names) {
            *field = self.field(name);
        }
        fields
    }

    /// The edition that it names, if that is a string.
    pub fn protocol_version(&self) -> Option<Cow<'a, str>> {
        read_version_str(self.common.meta()?.version?)
    }

    /// A key of `_meta`.
    fn meta_field(&self, name: &'static str, value: Option<View<'a>>) -> Field<'a> {
        self.params
            .with_error_kind(ProtocolErrorKind::InvalidClientMeta)
            .with_path("params._meta")
            .field_with(name, value)
    }

    /// What a request of an edition without a handshake must say of its sender:
    /// the edition, as it spelled it; what it can do; and who it is, if it says
    /// so.
    ///
    /// # Errors
    /// A [`FaultKind::Lifecycle`] that names what is missing.
    pub fn client_info(&self) -> Result<(String, ClientCapabilities, Option<Implementation>), ProtocolError> {
        let (version, capabilities, client) = self.required_client_fields()?;
        Ok((
            version.string()?,
            read_client_capabilities(&capabilities.reader("clientCapabilities")?)?,
            client.value().map(|_| read_implementation(&client)).transpose()?,
        ))
    }

    /// Where the greeting is: version, capabilities, client. The first two are
    /// there, whatever they are.
    fn required_client_fields(&self) -> Result<(Field<'a>, Field<'a>, Field<'a>), ProtocolError> {
        let params = self.params.with_error_kind(ProtocolErrorKind::InvalidClientMeta);
        let Some(MetaKeys { version, capabilities, client_info: client, .. }) = self.common.meta() else {
            let meta = self.field("_meta");
            return Err(match meta.value() {
                Some(_) => ProtocolError::new(
                    ProtocolErrorKind::InvalidClientMeta,
                    meta.type_error("an object").message(),
                ),
                None => params.error(missing_keys_message(&[
                    meta_key::PROTOCOL_VERSION,
                    meta_key::CLIENT_CAPABILITIES,
                ])),
            });
        };
        if version.is_none() || capabilities.is_none() {
            let missing: Vec<&str> =
                [(version, meta_key::PROTOCOL_VERSION), (capabilities, meta_key::CLIENT_CAPABILITIES)]
                    .into_iter()
                    .filter_map(|(value, key)| value.is_none().then_some(key))
                    .collect();
            return Err(params.error(missing_keys_message(&missing)));
        }
        Ok((
            self.meta_field(meta_key::PROTOCOL_VERSION, *version),
            self.meta_field(meta_key::CLIENT_CAPABILITIES, *capabilities),
            self.meta_field(meta_key::CLIENT_INFO, *client),
        ))
    }

    /// What the reader of the message noted.
    pub(super) fn index(&self) -> Option<&'a ParamsIndex<'a>> {
        match &self.common {
            CommonParamsRef::Indexed(index, _) => Some(index),
            CommonParamsRef::Owned(_) => None,
        }
    }

    /// All of `_meta`.
    pub(super) fn meta_view(&self) -> Option<View<'a>> {
        self.field("_meta").value_or_null()
    }

    /// The words of the greeting, if there are any.
    pub(super) fn client_views(&self) -> Option<ClientViews<'a>> {
        let MetaKeys { version, capabilities, client_info: client, .. } = *self.common.meta()?;
        Some(ClientViews { version: version?, capabilities: capabilities?, client_info: client })
    }

    /// The same; what is read of it will be copied.
    pub(super) fn without_source(self) -> ParamsView<'a> {
        ParamsView { params: self.params.without_source(), ..self }
    }

    /// The rest, read leniently: a progress token of the wrong type is none.
    ///
    /// # Errors
    /// If it names a log level that does not exist.
    pub fn meta(&self) -> Result<Meta, ProtocolError> {
        let Some(MetaKeys { progress_token: progress, log_level: level, .. }) = self.common.meta() else {
            return Ok(Meta::default());
        };
        let level =
            self.meta_field(meta_key::LOG_LEVEL, *level).with_error_kind(ProtocolErrorKind::InvalidParams);
        Ok(Meta {
            progress_token: progress.filter(|value| !value.is_null()).and_then(ProgressToken::read),
            log_level: level.value().map(|_| read_log_level(&level)).transpose()?,
            raw: self.field("_meta").maybe_object()?,
        })
    }
}

/// Reads the `_meta` of a request's params; see [`Said::meta`].
pub fn read_meta(params: Option<&RawJson>) -> Result<Meta, ProtocolError> {
    ParamsView::new(params)?.meta()
}

/// The edition that a request names in its `_meta`, if that is a string.
pub fn read_protocol_version(params: Option<&RawJson>) -> Option<Cow<'_, str>> {
    ParamsView::new(params).ok()?.protocol_version()
}

/// What a request says of its sender; see [`Said::greeting`].
pub fn read_client_info(
    params: Option<&RawJson>,
) -> Result<(String, ClientCapabilities, Option<Implementation>), ProtocolError> {
    ParamsView::new(params)?.client_info()
}

/// A text that is most likely the date of an edition: those need not be checked
/// for being text.
pub(super) fn read_version_str(value: View<'_>) -> Option<Cow<'_, str>> {
    let known = ProtocolVersion::ALL
        .into_iter()
        .rev()
        .map(ProtocolVersion::as_str)
        .find(|date| value.eq_raw_str(date));
    known.map(Cow::Borrowed).or_else(|| value.as_string())
}

fn missing_keys_message(keys: &[&str]) -> String {
    format!("params._meta lacks {}", keys.join(" and "))
}

pub(super) fn read_log_level(field: &Field<'_>) -> Result<LogLevel, ProtocolError> {
    field.keyword("a log level from \"debug\" to \"emergency\"", LogLevel::from_name)
}

impl WriteJson for LogLevel {
    fn write_json(&self, out: &mut Vec<u8>, edition: ProtocolVersion) {
        self.name().write_json(out, edition);
    }
}

/// The `_meta` of a request that we send.
pub(super) struct RequestMeta<'a> {
    client: Option<&'a Client>,
    meta: &'a Meta,
    version: ProtocolVersion,
}

impl<'a> RequestMeta<'a> {
    /// None if there is nothing to say in `edition`.
    pub(super) fn for_version(
        edition: ProtocolVersion,
        client: Option<&'a Client>,
        meta: &'a Meta,
    ) -> Option<RequestMeta<'a>> {
        let client = client.filter(|_| edition.behavior().lifecycle == Lifecycle::Stateless);
        let request = RequestMeta { client, meta, version: edition };
        let level = meta.log_level.is_some() && edition >= V2026_07_28;
        let said = client.is_some() || meta.progress_token.is_some() || level;
        let kept = || {
            ObjectOrAbsent(meta.raw.as_ref())
                .object()?
                .view()
                .members()
                .find(|(name, _)| request.forwards(name))
        };
        (said || kept().is_some()).then_some(request)
    }

    /// Whether a key that came from elsewhere is passed on. What we say
    /// ourselves is not; and a greeting that was meant for us must not be, or
    /// an older server would take the request for one of a newer edition.
    fn forwards(&self, name: &str) -> bool {
        match name {
            meta_key::PROGRESS_TOKEN | meta_key::LOG_LEVEL => false,
            meta_key::PROTOCOL_VERSION | meta_key::CLIENT_CAPABILITIES | meta_key::CLIENT_INFO => {
                self.client.is_none() && self.version.behavior().lifecycle == Lifecycle::Stateless
            }
            _ => true,
        }
    }
}

impl WriteJson for RequestMeta<'_> {
    fn write_json(&self, out: &mut Vec<u8>, edition: ProtocolVersion) {
        let Meta { progress_token: progress, log_level, raw } = self.meta;
        let mut object = ObjectWriter::open(out, edition);
        if let Some(client) = self.client {
            // The request is in this edition, whatever was spoken before.
            let Client { protocol_version: _, capabilities, info } = client;
            object = object
                .field(meta_key::PROTOCOL_VERSION, edition.as_str())
                .field(meta_key::CLIENT_CAPABILITIES, capabilities)
                .optional(meta_key::CLIENT_INFO, info);
        }
        object
            .optional(meta_key::PROGRESS_TOKEN, progress)
            .since(V2026_07_28, meta_key::LOG_LEVEL, log_level)
            .copy_members(raw.as_ref(), |name| self.forwards(name))
            .close();
    }
}

/// Who answers.
#[derive(Clone, Copy)]
pub(super) enum ServerInfoRef<'a> {
    Value(&'a Implementation),
    /// An implementation that was written before, in this edition.
    Encoded(&'a RawJson),
}

impl WriteJson for ServerInfoRef<'_> {
    fn write_json(&self, out: &mut Vec<u8>, edition: ProtocolVersion) {
        match self {
            ServerInfoRef::Value(server) => server.write_json(out, edition),
            ServerInfoRef::Encoded(server) => out.extend_from_slice(server.as_bytes()),
        }
    }
}

/// The `_meta` of a result or notification that we send: what the value
/// brings, and what the protocol says beside it.
#[derive(Clone, Copy, Default)]
pub(super) struct ResultMeta<'a> {
    /// The value's own, an object.
    pub(super) custom: Option<&'a RawJson>,
    /// Who answers.
    pub(super) server_info: Option<ServerInfoRef<'a>>,
    /// Which listening this belongs to.
    pub(super) subscription_id: Option<&'a RequestId>,
    /// Which core task this belongs to.
    pub(super) task_id: Option<&'a str>,
}

impl WriteJson for ResultMeta<'_> {
    fn write_json(&self, out: &mut Vec<u8>, edition: ProtocolVersion) {
        let ResultMeta { custom: own, server_info: server, subscription_id: subscription, task_id: task } =
            *self;
        if let (Some(own), None, None, None) = (ObjectOrAbsent(own).object(), server, subscription, task) {
            return own.write_json(out, edition);
        }
        let related = task.map(|id| nest(move |object| object.field("taskId", id)));
        ObjectWriter::open(out, edition)
            .optional(meta_key::SERVER_INFO, &server)
            .optional(meta_key::SUBSCRIPTION_ID, &subscription)
            .optional(meta_key::RELATED_TASK, &related)
            .copy_members(own, |name| match name {
                meta_key::SERVER_INFO => server.is_none(),
                meta_key::SUBSCRIPTION_ID => subscription.is_none(),
                meta_key::RELATED_TASK => task.is_none(),
                _ => true,
            })
            .close();
    }

    fn is_absent(&self) -> bool {
        let ResultMeta { custom: own, server_info: server, subscription_id: subscription, task_id: task } =
            *self;
        let own = own.is_some_and(|own| own.view().is_object());
        !own && server.is_none() && subscription.is_none() && task.is_none()
    }
}

/// Which listening a message belongs to.
pub(super) fn read_subscription_id(part: &ObjectReader<'_>) -> Option<RequestId> {
    let meta = part.field("_meta").value()?;
    RequestId::read(meta.get(meta_key::SUBSCRIPTION_ID)?)
}
