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
use super::object::WriteJson;
use crate::json::{RawJson, View};
use crate::meta::{Meta, meta_key};
use crate::model::{ClientCapabilities, Implementation, LogLevel};
use crate::params_index::{CommonParams, MetaKeys, ParamsIndex};
use crate::{ProgressToken, ProtocolError, ProtocolErrorKind, ProtocolVersion};

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

/// The edition that a request names in its `_meta`, if that is a string.
pub fn read_protocol_version(params: Option<&RawJson>) -> Option<Cow<'_, str>> {
    ParamsView::new(params).ok()?.protocol_version()
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
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        self.name().write_json(out, version);
    }
}
