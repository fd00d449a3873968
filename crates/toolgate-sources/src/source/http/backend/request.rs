//! Builds the HTTP request of a call from its template and the arguments.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderValue, Uri};
use serde_json::{Map, Value};
use toolgate::{Context, HandlerError};

use super::HttpBackend;
use super::request_template::{RequestTarget, RequestTemplate};
use crate::source::http::body::{BodyTemplate, FieldTemplate};
use crate::source::http::client::{HttpClient, OutgoingRequest};
use crate::source::http::encode::{
    Serialization, encode_header_value, encode_path_value, validate_header_value,
};
use crate::source::http::headers::parse_header;
use crate::source::http::template::{StringTemplate, TemplatePart, get_argument};
use crate::source::http::{Expect, PathStyle};
use crate::source::percent::percent_encode;
use crate::source::value_text;

/// Maximum length of a request URL.
const MAX_URL_BYTES: usize = 8 * 1024;

impl HttpBackend {
    /// Whether this argument is serialized as text somewhere, that is, anywhere but in a JSON body.
    pub(in crate::source::http) fn writes_as_text(&self, name: &str) -> bool {
        let RequestTemplate { target, query, headers, cookies, body, .. } = &self.template;
        let is_in = |template: &StringTemplate| template.argument_names().any(|known| known == name);
        let in_target = match target {
            RequestTarget::Path(segments) => segments.iter().any(is_in),
            RequestTarget::Url(argument) => argument == name,
        };
        let in_body = !matches!(body, BodyTemplate::Json { .. }) && body.argument_names().contains(&name);
        in_target || in_body || [query, headers, cookies].into_iter().flatten().any(|pair| is_in(&pair.value))
    }

    /// The URL path, with `{name}` for each argument.
    pub(super) fn path_template(&self) -> String {
        let segments = match &self.template.target {
            RequestTarget::Path(segments) => segments,
            RequestTarget::Url(name) => return format!("{{{name}}}"),
        };
        let mut path = self.client.path_prefix.clone();
        for segment in segments {
            path.push('/');
            for part in &segment.0 {
                match part {
                    TemplatePart::Text(text) => path.push_str(text),
                    TemplatePart::Argument(name) => drop(write!(path, "{{{name}}}")),
                }
            }
        }
        path
    }

    /// Builds the request from the template and the arguments.
    pub(super) fn build_request(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
    ) -> Result<OutgoingRequest, HandlerError> {
        let uri = self.build_uri(arguments)?;
        let auth = self.spec.auth.as_ref().unwrap_or(&self.client.auth);
        let is_own_origin = self.client.is_own_origin(&uri);
        let mut headers = if is_own_origin {
            self.client.request_headers(cx, auth).map_err(HandlerError::new)?
        } else {
            self.client.anonymous_headers()
        };
        if self.spec.expect == Expect::Json {
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        }
        for pair in &self.template.headers {
            if !is_own_origin && is_configured(pair) && !is_public_header(&pair.name) {
                continue;
            }
            let text = match pair.value.sole_argument() {
                Some(name) => {
                    get_argument(arguments, name).map(|value| encode_header_value(value, pair.serialization))
                }
                None => pair.value.render(arguments),
            };
            if let Some(text) = text {
                let (name, value) = parse_header(&pair.name, &validate_header_value(&pair.name, text)?)
                    .map_err(HandlerError::new)?;
                headers.insert(name, value);
            }
        }
        if let Some(cookies) = self.build_cookie_header(arguments, is_own_origin)? {
            headers.insert(COOKIE, cookies);
        }
        let body = match self.template.body.encode(arguments)? {
            Some((bytes, mime)) => {
                let mime = HeaderValue::try_from(mime)
                    .map_err(|_| HandlerError::new("invalid header value for `content-type`"))?;
                headers.insert(CONTENT_TYPE, mime);
                bytes
            }
            None => Bytes::new(),
        };
        Ok(OutgoingRequest { method: self.template.method.clone(), uri, headers, body })
    }

    pub(super) fn build_uri(&self, arguments: &Map<String, Value>) -> Result<Uri, HandlerError> {
        let segments = match &self.template.target {
            RequestTarget::Url(name) => {
                let text = get_argument(arguments, name).map(value_text).unwrap_or_default();
                return self
                    .client
                    .validate_url(&text)
                    .map_err(|failure| HandlerError::new(failure.to_string()));
            }
            RequestTarget::Path(segments) => segments,
        };
        let HttpClient { scheme, authority, path_prefix, query, .. } = &*self.client;
        let mut address = format!("{scheme}://{authority}{path_prefix}");
        for segment in segments {
            address.push('/');
            address.push_str(&self.render_segment(segment, arguments)?);
        }
        let mut pairs = query.clone();
        FieldTemplate::render_all(&self.template.query, arguments, &mut pairs)?;
        if !pairs.is_empty() {
            address.push('?');
            address.push_str(&pairs.join("&"));
        }
        if address.len() > MAX_URL_BYTES {
            return Err(HandlerError::new("the arguments are too long for a URL"));
        }
        match Uri::try_from(address) {
            // Cannot happen, but is checked anyway: arguments must never choose the host.
            Ok(uri) if uri.authority() == Some(authority) && uri.scheme() == Some(scheme) => Ok(uri),
            _ => Err(HandlerError::new("the arguments do not form a valid URL")),
        }
    }

    fn render_segment(
        &self,
        segment: &StringTemplate,
        arguments: &Map<String, Value>,
    ) -> Result<String, HandlerError> {
        let mut rendered = String::new();
        for part in &segment.0 {
            match part {
                TemplatePart::Text(text) => rendered.push_str(text),
                TemplatePart::Argument(name) => {
                    let value = get_argument(arguments, name).ok_or_else(|| {
                        HandlerError::new(format!("`{name}` is missing: it is part of a path"))
                    })?;
                    let style = self.spec.path_styles.iter().find(|style| style.argument == *name);
                    let (name_in_path, serialization) = style.map_or(
                        (name.as_str(), Serialization::SIMPLE),
                        |PathStyle { name, serialization, .. }| (name, *serialization),
                    );
                    rendered.push_str(&encode_path_value(name_in_path, value, serialization)?);
                }
            }
        }
        if segment.literal().is_none() && matches!(rendered.as_str(), "" | "." | "..") {
            return Err(HandlerError::new("the arguments do not form a valid path"));
        }
        Ok(rendered)
    }

    fn build_cookie_header(
        &self,
        arguments: &Map<String, Value>,
        is_own_origin: bool,
    ) -> Result<Option<HeaderValue>, HandlerError> {
        let cookies = self.template.cookies.iter().filter(|pair| is_own_origin || !is_configured(pair));
        let rendered = cookies.filter_map(|pair| {
            let text = match pair.value.sole_argument() {
                Some(name) => encode_header_value(get_argument(arguments, name)?, pair.serialization),
                None => pair.value.render(arguments)?,
            };
            Some(format!("{}={}", percent_encode(&pair.name), percent_encode(&text)))
        });
        let joined = rendered.collect::<Vec<_>>().join("; ");
        if joined.is_empty() {
            return Ok(None);
        }
        let mut value = HeaderValue::try_from(validate_header_value("cookie", joined)?)
            .map_err(|_| HandlerError::new("invalid header value for `cookie`"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Whether a header or cookie contains text of the configuration, which may be a secret. It is only sent to the host of
/// `base_url`, not to one that the caller names.
fn is_configured(pair: &FieldTemplate) -> bool {
    pair.value.sole_argument().is_none()
}

/// Whether a header selects a representation and never carries a secret.
fn is_public_header(name: &str) -> bool {
    let public = ["accept", "accept-language", "cache-control", "range", "user-agent"];
    public.iter().any(|known| name.eq_ignore_ascii_case(known))
}
