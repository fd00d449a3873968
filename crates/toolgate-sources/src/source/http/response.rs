//! Reads responses of backends under a size limit, and extracts their kind, paging and errors.

use std::io::{self, Write as _};

use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LINK};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use toolgate::RawJson;
use toolgate::model::{Content, ResourceContents, ToolOutput};

use crate::source::bounded_writer::BoundedWriter;
use crate::source::percent::percent_decode;

/// The key of `_meta` for paging information.
pub(crate) const PAGING_KEY: &str = "toolgate/paging";
/// The key of `_meta` for the status and code of a failure.
pub(crate) const BACKEND_KEY: &str = "toolgate/backend";

/// Maximum length of a backend's error message.
const MAX_MESSAGE_CHARS: usize = 1000;

/// A response with its body.
pub(super) struct BackendResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// The body was longer than the limit.
    pub(super) is_truncated: bool,
}

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    Io,
    UnsupportedEncoding,
}

/// Reads and decompresses a body, up to the limit.
///
/// Cancel safe: yes, because dropping the body ends the request.
pub(super) async fn read_response(
    response: http::Response<Incoming>,
    limit: usize,
) -> Result<BackendResponse, BodyError> {
    let (parts, mut body) = response.into_parts();
    let mut decoder = BodyDecoder::new(single_header(&parts.headers, CONTENT_ENCODING), limit)?;
    let mut is_truncated = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Io)?.into_data() else { continue };
        if let Err(error) = decoder.write(&data) {
            if error.kind() != io::ErrorKind::StorageFull {
                return Err(BodyError::Io);
            }
            is_truncated = true;
            break;
        }
    }
    let body = decoder.finish(&mut is_truncated)?;
    Ok(BackendResponse { status: parts.status, headers: parts.headers, body, is_truncated })
}

/// A body decoder. The limit applies to the decompressed size.
enum BodyDecoder {
    Identity(BoundedWriter),
    Gzip(MultiGzDecoder<BoundedWriter>),
    Deflate(ZlibDecoder<BoundedWriter>),
}

impl BodyDecoder {
    fn new(encoding: Option<&str>, limit: usize) -> Result<BodyDecoder, BodyError> {
        let writer = BoundedWriter::new(limit);
        match encoding.map(str::trim).unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(BodyDecoder::Identity(writer)),
            "gzip" | "x-gzip" => Ok(BodyDecoder::Gzip(MultiGzDecoder::new(writer))),
            "deflate" => Ok(BodyDecoder::Deflate(ZlibDecoder::new(writer))),
            _ => Err(BodyError::UnsupportedEncoding),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            BodyDecoder::Identity(decoder) => decoder.write_all(bytes),
            BodyDecoder::Gzip(decoder) => decoder.write_all(bytes),
            BodyDecoder::Deflate(decoder) => decoder.write_all(bytes),
        }
    }

    fn finish(mut self, is_truncated: &mut bool) -> Result<Vec<u8>, BodyError> {
        let finish_result = match &mut self {
            BodyDecoder::Gzip(decoder) if !*is_truncated => decoder.try_finish(),
            BodyDecoder::Deflate(decoder) if !*is_truncated => decoder.try_finish(),
            _ => Ok(()),
        };
        match finish_result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => *is_truncated = true,
            Err(_) => return Err(BodyError::Io),
        }
        let decoder = match &mut self {
            BodyDecoder::Identity(decoder) => decoder,
            BodyDecoder::Gzip(decoder) => decoder.get_mut(),
            BodyDecoder::Deflate(decoder) => decoder.get_mut(),
        };
        Ok(decoder.take())
    }
}

/// Returns the value of a header that occurs once and is ASCII text.
pub(super) fn single_header(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json,
    /// A web page, which is rarely the expected response.
    Html,
    Text,
    Image,
    Audio,
    Bytes,
}

impl BackendResponse {
    /// The media type in lower case, without parameters.
    pub(super) fn mime(&self) -> String {
        let text = single_header(&self.headers, CONTENT_TYPE).unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    pub(super) fn kind(&self) -> BodyKind {
        let mime = self.mime();
        match mime.as_str() {
            "application/json" => BodyKind::Json,
            "text/html" | "application/xhtml+xml" => BodyKind::Html,
            // Without a media type: JSON if it looks like JSON.
            "" if matches!(self.body.first(), Some(b'{' | b'[')) => BodyKind::Json,
            ""
            | "application/xml"
            | "application/yaml"
            | "application/x-yaml"
            | "application/javascript"
            | "application/x-www-form-urlencoded" => BodyKind::Text,
            _ if mime.ends_with("+json") => BodyKind::Json,
            _ if mime.starts_with("text/") || mime.ends_with("+xml") || mime.ends_with("+yaml") => {
                BodyKind::Text
            }
            _ if mime.starts_with("image/") => BodyKind::Image,
            _ if mime.starts_with("audio/") => BodyKind::Audio,
            _ => BodyKind::Bytes,
        }
    }

    /// Converts a binary body to content of its kind.
    pub(super) fn into_media(self) -> ToolOutput {
        let mime = self.mime();
        let content = match self.kind() {
            BodyKind::Image => Content::image(self.body, mime),
            BodyKind::Audio => Content::audio(self.body, mime),
            _ => Content::embedded(ResourceContents::blob("toolgate:answer", self.body).with_mime(mime)),
        };
        ToolOutput::new(vec![content])
    }

    /// Totals and links from the usual paging headers. Only the parameters of links are returned, not the address of
    /// the backend.
    pub(super) fn paging(&self) -> Option<Value> {
        let mut paging = Map::new();
        for (header, name) in [
            ("x-wp-total", "total"),
            ("x-total-count", "total"),
            ("x-wp-totalpages", "totalPages"),
            ("x-total-pages", "totalPages"),
        ] {
            let value = single_header(&self.headers, http::HeaderName::from_static(header));
            if let Some(number) = value.and_then(|text| text.trim().parse::<u64>().ok()) {
                paging.entry(name).or_insert(number.into());
            }
        }
        if let Some(seconds) = retry_after(&self.headers) {
            paging.insert("retryAfter".into(), seconds.as_secs().into());
        }
        for value in self.headers.get_all(LINK).iter().take(4) {
            for (relation, parameters) in parse_links(value.to_str().unwrap_or_default()) {
                paging.entry(relation).or_insert(parameters);
            }
        }
        (!paging.is_empty()).then_some(Value::Object(paging))
    }

    /// Whether the error reveals which half of the credentials is wrong, as WordPress does.
    pub(super) fn reveals_wrong_credential(&self) -> bool {
        let code = self.error_details().1.unwrap_or_default();
        ["invalid_username", "invalid_email", "incorrect_password"].contains(&code.as_str())
    }

    /// The message and code of an error: WordPress, problem details, other common formats, or plain text.
    pub(super) fn error_details(&self) -> (Option<String>, Option<String>) {
        match self.kind() {
            BodyKind::Json => {
                serde_json::from_slice(&self.body).map_or((None, None), |value| parse_error_details(&value))
            }
            BodyKind::Text => (sanitize_message(&String::from_utf8_lossy(&self.body)), None),
            _ => (None, None),
        }
    }
}

fn parse_error_details(value: &Value) -> (Option<String>, Option<String>) {
    let text = |names: &[&str]| {
        names.iter().find_map(|name| value.get(name)).and_then(Value::as_str).and_then(sanitize_message)
    };
    let code = match value.get("code").or_else(|| value.get("type")) {
        Some(Value::String(code)) if code != "about:blank" => sanitize_message(code),
        Some(Value::Number(code)) => Some(code.to_string()),
        _ => None,
    };
    let message = match (text(&["title"]), text(&["detail"])) {
        (Some(title), Some(detail)) => Some(format!("{title}: {detail}")),
        (one, other) => {
            text(&["message", "error_description"]).or(one).or(other).or_else(|| text(&["error"]))
        }
    };
    // The invalid parameters, which a model can correct.
    let invalid_params = value.pointer("/data/params").map(|params| match params {
        Value::Object(params) => {
            params.values().filter_map(Value::as_str).filter_map(sanitize_message).collect::<Vec<_>>()
        }
        Value::Array(names) => names.iter().filter_map(Value::as_str).filter_map(sanitize_message).collect(),
        _ => Vec::new(),
    });
    let message = match (message, invalid_params) {
        (Some(message), Some(invalid_params)) if !invalid_params.is_empty() => {
            sanitize_message(&format!("{message} ({})", invalid_params.join("; ")))
        }
        (message, _) => message,
    };
    match (message, value.get("error").or_else(|| value.pointer("/errors/0"))) {
        (None, Some(inner @ Value::Object(_))) => parse_error_details(inner),
        (message, _) => (message, code),
    }
}

/// Removes tags and control characters from a message of the backend and truncates it. Returns `None` if nothing is
/// left.
pub(super) fn sanitize_message(text: &str) -> Option<String> {
    let mut decode = String::new();
    let mut in_tag = false;
    for (at, character) in text.char_indices() {
        match character {
            '<' if text[at + 1..]
                .starts_with(|next: char| next.is_ascii_alphabetic() || "/!".contains(next)) =>
            {
                in_tag = true;
            }
            '>' if in_tag => in_tag = false,
            _ if in_tag => {}
            control if control.is_control() => decode.push(' '),
            other => decode.push(other),
        }
    }
    let words: Vec<&str> = decode.split_whitespace().collect();
    let mut shown: String = words.join(" ").chars().take(MAX_MESSAGE_CHARS + 1).collect();
    if shown.chars().count() > MAX_MESSAGE_CHARS {
        shown = shown.chars().take(MAX_MESSAGE_CHARS - 1).chain(['…']).collect();
    }
    (!shown.is_empty()).then_some(shown)
}

/// The result of a call that failed with an HTTP status.
pub(super) fn error_output(status: StatusCode, message: Option<&str>, code: Option<&str>) -> ToolOutput {
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let mut text = format!("{}{reason}", status.as_u16());
    if let Some(message) = message {
        text = format!("{text}: {message}");
    }
    if let Some(code) = code {
        text = format!("{text} ({code})");
    }
    let mut details = json!({ "status": status.as_u16() });
    if let Some(code) = code {
        details["code"] = code.into();
    }
    ToolOutput::error(text).with_meta(RawJson::from(json!({ BACKEND_KEY: details })))
}

/// The delay of a `Retry-After` header. A date is relative to the backend's own `Date`.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<std::time::Duration> {
    let text = single_header(headers, http::header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(std::time::Duration::from_secs(seconds));
    }
    let retry_at = httpdate::parse_http_date(text).ok()?;
    let now = httpdate::parse_http_date(single_header(headers, http::header::DATE)?).ok()?;
    retry_at.duration_since(now).ok()
}

/// Parses a `Link` header into relations and the query parameters of their URLs.
fn parse_links(text: &str) -> Vec<(&'static str, Value)> {
    let decode = |text: &str| percent_decode(&text.replace('+', " "));
    let mut found = Vec::new();
    for part in text.split('<').skip(1) {
        let Some((address, rest)) = part.split_once('>') else { continue };
        let relation = ["next", "prev", "first", "last"].into_iter().find(|relation| {
            rest.contains(&format!("rel=\"{relation}\"")) || rest.contains(&format!("rel={relation}"))
        });
        let query =
            address.split('#').next().unwrap_or_default().split_once('?').map_or("", |(_, query)| query);
        if let Some(relation) = relation.filter(|_| !query.is_empty()) {
            let pairs = query.split('&').take(32).filter_map(|pair| pair.split_once('='));
            let parameters: Map<String, Value> =
                pairs.map(|(name, value)| (decode(name), Value::String(decode(value)))).collect();
            found.push((relation, Value::Object(parameters)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_response(status: u16, headers: &[(&'static str, &str)], body: &str) -> BackendResponse {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        BackendResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: map,
            body: body.into(),
            is_truncated: false,
        }
    }

    #[test]
    fn error_formats_are_recognized() {
        let json = [("content-type", "application/json; charset=UTF-8")];
        let problem = [("content-type", "application/problem+json")];
        let text = [("content-type", "text/plain")];
        let page = [("content-type", "text/html")];
        for (headers, body, message, code) in [
            (
                json,
                r#"{"code":"rest_post_invalid_id","message":"Invalid post ID.","data":{"status":404}}"#,
                "Invalid post ID.",
                "rest_post_invalid_id",
            ),
            (
                json,
                r#"{"code":"rest_invalid_param","message":"Invalid parameter(s): page","data":{"status":400,"params":{"page":"page must be greater than 1"}}}"#,
                "Invalid parameter(s): page (page must be greater than 1)",
                "rest_invalid_param",
            ),
            (
                json,
                r#"{"code":"rest_missing_callback_param","message":"Missing parameter(s): id","data":{"status":400,"params":["id"]}}"#,
                "Missing parameter(s): id (id)",
                "rest_missing_callback_param",
            ),
            (
                json,
                r#"{"code":"x","message":"<strong>Error:</strong> no <em>such</em> user"}"#,
                "Error: no such user",
                "x",
            ),
            (
                problem,
                r#"{"type":"about:blank","title":"Gone","detail":"It left","status":410}"#,
                "Gone: It left",
                "",
            ),
            (json, r#"{"error":{"message":"bad key","code":"k1"}}"#, "bad key", "k1"),
            (json, r#"{"errors":[{"title":"Nope"}]}"#, "Nope", ""),
            (json, r#"{"error":"invalid_grant","error_description":"expired"}"#, "expired", ""),
            (json, "[]", "", ""),
            (json, "{", "", ""),
            (text, "a < b\u{7}\r\n\tc", "a < b c", ""),
            (page, "<html><b>stack</b>", "", ""),
        ] {
            let (found_message, found_code) = test_response(400, &headers, body).error_details();
            assert_eq!(
                (found_message.unwrap_or_default().as_str(), found_code.unwrap_or_default().as_str()),
                (message, code),
                "{body}"
            );
        }
        assert_eq!(sanitize_message(&"x".repeat(5000)).unwrap().chars().count(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn paging_contains_no_addresses() {
        let headers = [
            ("x-wp-total", "37"),
            ("x-wp-totalpages", "4"),
            (
                "link",
                "<http://10.0.0.5/wp-json/wp/v2/posts?page=1&s=a%20b>; rel=\"prev\", <http://10.0.0.5/x?page=3>; rel=\"next\"",
            ),
            ("set-cookie", "secret=1"),
        ];
        let wanted =
            json!({"total": 37, "totalPages": 4, "prev": {"page": "1", "s": "a b"}, "next": {"page": "3"}});
        assert_eq!(test_response(200, &headers, "").paging(), Some(wanted));
        assert_eq!(test_response(200, &[("x-total-count", "x"), ("link", "<nonsense")], "").paging(), None);
    }

    #[test]
    fn retry_after_date_is_relative_to_the_backend_clock() {
        let headers =
            [("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")];
        let seconds = |headers: &[(&'static str, &str)]| {
            retry_after(&test_response(429, headers, "").headers).map(|d| d.as_secs())
        };
        assert_eq!(seconds(&headers), Some(10));
        assert_eq!(seconds(&[("retry-after", "7")]), Some(7));
        assert_eq!(seconds(&[("retry-after", "soon")]), None);
    }
}
