//! An answer of a backend becomes the result of a tool: read under a limit, picked, shaped, and without what does
//! not belong to the caller.

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

/// What is surfaced of the pages of an answer, below this key of `_meta`.
pub(crate) const PAGING_KEY: &str = "toolgate/paging";
/// What a backend said of its failure, below this key of `_meta`.
pub(crate) const BACKEND_KEY: &str = "toolgate/backend";

/// Longest message of a backend that is passed on.
const MAX_MESSAGE_CHARS: usize = 1000;

/// An answer, read.
pub(super) struct BackendResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// There was more.
    pub(super) is_truncated: bool,
}

/// Why an answer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    Io,
    UnsupportedEncoding,
}

/// Reads a body, inflating it, and stops at the limit.
/// Cancel safe: yes, because dropping the body ends the request.
pub(super) async fn read_response(
    response: http::Response<Incoming>,
    limit: usize,
) -> Result<BackendResponse, BodyError> {
    let (parts, mut body) = response.into_parts();
    let mut sink = BodyDecoder::new(single_header(&parts.headers, CONTENT_ENCODING), limit)?;
    let mut is_cut = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Io)?.into_data() else { continue };
        if let Err(error) = sink.write(&data) {
            if error.kind() != io::ErrorKind::StorageFull {
                return Err(BodyError::Io);
            }
            is_cut = true;
            break;
        }
    }
    let body = sink.finish(&mut is_cut)?;
    Ok(BackendResponse { status: parts.status, headers: parts.headers, body, is_truncated: is_cut })
}

/// What is counted is what comes out, not what comes in.
enum BodyDecoder {
    Identity(BoundedWriter),
    Gzip(MultiGzDecoder<BoundedWriter>),
    Deflate(ZlibDecoder<BoundedWriter>),
}

impl BodyDecoder {
    fn new(encoding: Option<&str>, limit: usize) -> Result<BodyDecoder, BodyError> {
        let bounded = BoundedWriter::new(limit);
        match encoding.map(str::trim).unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(BodyDecoder::Identity(bounded)),
            "gzip" | "x-gzip" => Ok(BodyDecoder::Gzip(MultiGzDecoder::new(bounded))),
            "deflate" => Ok(BodyDecoder::Deflate(ZlibDecoder::new(bounded))),
            _ => Err(BodyError::UnsupportedEncoding),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            BodyDecoder::Identity(sink) => sink.write_all(bytes),
            BodyDecoder::Gzip(sink) => sink.write_all(bytes),
            BodyDecoder::Deflate(sink) => sink.write_all(bytes),
        }
    }

    fn finish(mut self, is_cut: &mut bool) -> Result<Vec<u8>, BodyError> {
        let ended = match &mut self {
            BodyDecoder::Gzip(sink) if !*is_cut => sink.try_finish(),
            BodyDecoder::Deflate(sink) if !*is_cut => sink.try_finish(),
            _ => Ok(()),
        };
        match ended {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => *is_cut = true,
            Err(_) => return Err(BodyError::Io),
        }
        let sink = match &mut self {
            BodyDecoder::Identity(sink) => sink,
            BodyDecoder::Gzip(sink) => sink.get_mut(),
            BodyDecoder::Deflate(sink) => sink.get_mut(),
        };
        Ok(sink.take())
    }
}

/// The one value of a header, if it is text and there is only one.
pub(super) fn single_header(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

/// What kind of thing a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json,
    /// A web page: hardly ever what a program asked for.
    Html,
    Text,
    Image,
    Audio,
    Bytes,
}

impl BackendResponse {
    /// The media type, without parameters and in small letters.
    pub(super) fn mime(&self) -> String {
        let text = single_header(&self.headers, CONTENT_TYPE).unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    pub(super) fn kind(&self) -> BodyKind {
        let mime = self.mime();
        match mime.as_str() {
            "application/json" => BodyKind::Json,
            "text/html" | "application/xhtml+xml" => BodyKind::Html,
            // Nothing said: what looks like JSON is.
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

    /// What is not text, as content of its own kind.
    pub(super) fn into_media(self) -> ToolOutput {
        let mime = self.mime();
        let content = match self.kind() {
            BodyKind::Image => Content::image(self.body, mime),
            BodyKind::Audio => Content::audio(self.body, mime),
            _ => Content::embedded(ResourceContents::blob("toolgate:answer", self.body).with_mime(mime)),
        };
        ToolOutput { content: vec![content], ..ToolOutput::default() }
    }

    /// How many there are and where to go on, from the headers that are in use for it. Of links only the parameters
    /// are told: where a backend lives is nobody's business.
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

    /// Whether a refusal says which half of the credentials is wrong, as WordPress does.
    pub(super) fn reveals_wrong_credential(&self) -> bool {
        let code = self.error_details().1.unwrap_or_default();
        ["invalid_username", "invalid_email", "incorrect_password"].contains(&code.as_str())
    }

    /// What a failure says, and its code: WordPress, problem details, the common shapes of others, or plain text.
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
    // Which parameters are wrong: what a model can mend.
    let wrong = value.pointer("/data/params").map(|params| match params {
        Value::Object(params) => {
            params.values().filter_map(Value::as_str).filter_map(sanitize_message).collect::<Vec<_>>()
        }
        Value::Array(names) => names.iter().filter_map(Value::as_str).filter_map(sanitize_message).collect(),
        _ => Vec::new(),
    });
    let message = match (message, wrong) {
        (Some(message), Some(wrong)) if !wrong.is_empty() => {
            sanitize_message(&format!("{message} ({})", wrong.join("; ")))
        }
        (message, _) => message,
    };
    match (message, value.get("error").or_else(|| value.pointer("/errors/0"))) {
        (None, Some(inner @ Value::Object(_))) => parse_error_details(inner),
        (message, _) => (message, code),
    }
}

/// A text of somebody else, fit to be shown: no tags, no control characters, not long. Nothing left: none.
pub(super) fn sanitize_message(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut in_tag = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' if text[at + 1..]
                .starts_with(|next: char| next.is_ascii_alphabetic() || "/!".contains(next)) =>
            {
                in_tag = true;
            }
            '>' if in_tag => in_tag = false,
            _ if in_tag => {}
            control if control.is_control() => plain.push(' '),
            other => plain.push(other),
        }
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    let mut shown: String = words.join(" ").chars().take(MAX_MESSAGE_CHARS + 1).collect();
    if shown.chars().count() > MAX_MESSAGE_CHARS {
        shown = shown.chars().take(MAX_MESSAGE_CHARS - 1).chain(['…']).collect();
    }
    (!shown.is_empty()).then_some(shown)
}

/// A failure of a backend as a result that says so.
pub(super) fn error_output(status: StatusCode, message: Option<&str>, code: Option<&str>) -> ToolOutput {
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let mut text = format!("{}{reason}", status.as_u16());
    if let Some(message) = message {
        text = format!("{text}: {message}");
    }
    if let Some(code) = code {
        text = format!("{text} ({code})");
    }
    let mut told = json!({ "status": status.as_u16() });
    if let Some(code) = code {
        told["code"] = code.into();
    }
    ToolOutput { meta: Some(RawJson::from(json!({ BACKEND_KEY: told }))), ..ToolOutput::error(text) }
}

/// How long a backend wants to be left alone. A date is reckoned against the backend's own clock.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<std::time::Duration> {
    let text = single_header(headers, http::header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(std::time::Duration::from_secs(seconds));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    let now = httpdate::parse_http_date(single_header(headers, http::header::DATE)?).ok()?;
    then.duration_since(now).ok()
}

/// Relations and the parameters of their addresses, out of a `Link` header.
fn parse_links(text: &str) -> Vec<(&'static str, Value)> {
    let plain = |text: &str| percent_decode(&text.replace('+', " "));
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
                pairs.map(|(name, value)| (plain(name), Value::String(plain(value)))).collect();
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
    fn complaints_are_understood() {
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
            let (said, told) = test_response(400, &headers, body).error_details();
            assert_eq!(
                (said.unwrap_or_default().as_str(), told.unwrap_or_default().as_str()),
                (message, code),
                "{body}"
            );
        }
        assert_eq!(sanitize_message(&"x".repeat(5000)).unwrap().chars().count(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn pages_are_told_without_addresses() {
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
    fn a_date_to_come_back_is_reckoned_by_the_clock_that_said_it() {
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
