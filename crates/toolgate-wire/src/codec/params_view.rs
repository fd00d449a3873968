//! A view of a request's parameters and `_meta`.
//!
//! In versions without a handshake, `_meta` describes the client. This module reports what a request contains, or which part
//! of it is missing; whether its protocol version is supported is decided elsewhere.

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

/// The parameters of a request, including `_meta`.
#[derive(Clone)]
pub struct ParamsView<'a> {
    params: ObjectReader<'a>,
    common: CommonParamsRef<'a>,
}

/// Positions of the common parameters.
#[derive(Clone)]
enum CommonParamsRef<'a> {
    /// From the index that was filled while the message was scanned; the usual case.
    Indexed(&'a ParamsIndex<'a>, &'a CommonParams<'a>),
    Owned(Box<CommonParams<'a>>),
}

impl<'a> Deref for CommonParamsRef<'a> {
    type Target = CommonParams<'a>;

    #[inline]
    fn deref(&self) -> &CommonParams<'a> {
        match self {
            CommonParamsRef::Indexed(_, common) => common,
            CommonParamsRef::Owned(common) => common,
        }
    }
}

impl<'a> ParamsView<'a> {
    /// Creates a view by scanning the parameters.
    ///
    /// # Errors
    /// If the params are not an object.
    pub fn new(params: Option<&'a RawJson>) -> Result<ParamsView<'a>, ProtocolError> {
        let params = ObjectReader::params(params)?;
        Ok(ParamsView {
            params,
            common: CommonParamsRef::Owned(Box::new(CommonParams::from_object(params.view()))),
        })
    }

    /// Creates a view from an index that [`read_message_indexed`](crate::read_message_indexed) filled. An index of
    /// other parameters is ignored.
    ///
    /// # Errors
    /// If the params are not an object.
    pub fn with_index(
        params: Option<&'a RawJson>,
        index: &'a ParamsIndex<'a>,
    ) -> Result<ParamsView<'a>, ProtocolError> {
        let reader = ObjectReader::params(params)?;
        match index.params_of(reader.view()) {
            Some(common) => {
                Ok(ParamsView { params: reader, common: CommonParamsRef::Indexed(index, common) })
            }
            None => ParamsView::new(params),
        }
    }

    /// Returns a parameter by name.
    #[inline(always)]
    pub(super) fn field(&self, name: &'static str) -> Field<'a> {
        match CommonParams::slot_of(name.as_bytes()) {
            Some(slot) => self.params.field_with(name, self.common.get(slot)),
            None => self.params.field(name),
        }
    }

    /// Returns whether a parameter is present, even as `null`.
    #[inline(always)]
    pub(super) fn has(&self, name: &'static str) -> bool {
        self.field(name).value_or_null().is_some()
    }

    /// Returns parameters by name.
    pub(super) fn pick<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut fields = [self.params.field_with("", None); N];
        for (field, name) in fields.iter_mut().zip(names) {
            *field = self.field(name);
        }
        fields
    }

    /// Returns the protocol version in `_meta`, if it is a string.
    pub fn protocol_version(&self) -> Option<Cow<'a, str>> {
        read_version_str(self.common.meta()?.version?)
    }

    /// Returns a key of `_meta`.
    fn meta_field(&self, name: &'static str, value: Option<View<'a>>) -> Field<'a> {
        self.params
            .with_error_kind(ProtocolErrorKind::InvalidClientMeta)
            .with_path("params._meta")
            .field_with(name, value)
    }

    /// Returns the client information that a request of a version without a handshake must carry in `_meta`: protocol
    /// version as sent, capabilities, and, if present, name and version of the client.
    ///
    /// # Errors
    /// An [`InvalidClientMeta`](ProtocolErrorKind::InvalidClientMeta) error that names the missing keys.
    pub fn client_info(&self) -> Result<(String, ClientCapabilities, Option<Implementation>), ProtocolError> {
        let (version, capabilities, client_info) = self.required_client_fields()?;
        Ok((
            version.string()?,
            read_client_capabilities(&capabilities.reader("clientCapabilities")?)?,
            client_info.value().map(|_| read_implementation(&client_info)).transpose()?,
        ))
    }

    /// Returns version, capabilities and client info. The first two are present, with any value.
    fn required_client_fields(&self) -> Result<(Field<'a>, Field<'a>, Field<'a>), ProtocolError> {
        let params = self.params.with_error_kind(ProtocolErrorKind::InvalidClientMeta);
        let Some(MetaKeys { version, capabilities, client_info, .. }) = self.common.meta() else {
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
            self.meta_field(meta_key::CLIENT_INFO, *client_info),
        ))
    }

    /// Returns the index, if the view has one.
    pub(super) fn index(&self) -> Option<&'a ParamsIndex<'a>> {
        match &self.common {
            CommonParamsRef::Indexed(index, _) => Some(index),
            CommonParamsRef::Owned(_) => None,
        }
    }

    /// Returns the whole `_meta`.
    pub(super) fn meta_view(&self) -> Option<View<'a>> {
        self.field("_meta").value_or_null()
    }

    /// Returns the client information in `_meta`, unparsed, if it is complete.
    pub(super) fn client_views(&self) -> Option<ClientViews<'a>> {
        let MetaKeys { version, capabilities, client_info, .. } = *self.common.meta()?;
        Some(ClientViews { version: version?, capabilities: capabilities?, client_info })
    }

    /// Makes values that are read from this view copies that do not share its text.
    pub(super) fn without_source(self) -> ParamsView<'a> {
        ParamsView { params: self.params.without_source(), ..self }
    }

    /// Returns the rest of `_meta`. Reading is lenient: a progress token of the wrong type is ignored.
    ///
    /// # Errors
    /// If the log level does not exist.
    pub fn meta(&self) -> Result<Meta, ProtocolError> {
        let Some(MetaKeys { progress_token, log_level, .. }) = self.common.meta() else {
            return Ok(Meta::default());
        };
        let log_level = self
            .meta_field(meta_key::LOG_LEVEL, *log_level)
            .with_error_kind(ProtocolErrorKind::InvalidParams);
        Ok(Meta {
            progress_token: progress_token.filter(|value| !value.is_null()).and_then(ProgressToken::read),
            log_level: log_level.value().map(|_| read_log_level(&log_level)).transpose()?,
            raw: self.field("_meta").maybe_object()?,
        })
    }
}

/// Returns the protocol version in the `_meta` of a request, if it is a string.
pub fn read_protocol_version(params: Option<&RawJson>) -> Option<Cow<'_, str>> {
    ParamsView::new(params).ok()?.protocol_version()
}

/// Reads a string that is most likely the date of a version. Known dates need no UTF-8 check.
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
