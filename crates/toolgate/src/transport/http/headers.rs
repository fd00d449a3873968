//! What the head of a POST must say before its body is read.

use http::{HeaderMap, HeaderValue, header};
use toolgate_wire::{Dialect, Fault, FaultKind};

use super::REQUEST_ID;
use crate::era::{SESSION, VERSION};
use crate::guard::Named;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// How nearly every client puts that it takes both: not worth reading word by word.
const USUAL: [&[u8]; 4] = [
    b"application/json, text/event-stream",
    b"text/event-stream, application/json",
    b"application/json,text/event-stream",
    b"text/event-stream,application/json",
];

/// What kinds of answer a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    /// Said in so many words: `*/*` is no wish for a stream.
    pub(super) stream: bool,
}

const BOTH: Accepts = Accepts { json: true, stream: true };

impl Accepts {
    /// The same, without streams to those who name no edition where a dialect has none, or none but for answers.
    pub(super) fn for_dialect(self, headers: &HeaderMap, dialect: Option<&Dialect>) -> Accepts {
        let Some(dialect) = dialect.filter(|dialect| dialect.json_only || dialect.answers_alone) else {
            return self;
        };
        match headers.contains_key(SESSION) || headers.contains_key(VERSION) {
            true => self,
            false => Accepts { json: self.json || dialect.json_only, stream: false },
        }
    }
}

/// What a head says that is asked of every request, found in one walk: there are few fields, and to look for one takes
/// as long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    length: Length,
    is_json: bool,
    is_encoded: bool,
    accepts: Accepts,
    /// The sender has a name for this request.
    pub(super) is_named: bool,
}

/// The same, and what is said of hosts.
pub(super) fn walk(headers: &HeaderMap) -> (Look, Named<'_>) {
    let mut named = Named::default();
    (Look::beside(headers, &mut named), named)
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Unsaid,
    Malformed,
    Bytes(u64),
}

impl Look {
    pub(super) fn at(headers: &HeaderMap) -> Look {
        Look::beside(headers, &mut Named::default())
    }

    #[inline]
    fn beside<'a>(headers: &'a HeaderMap, named: &mut Named<'a>) -> Look {
        let (mut length, mut kind, mut accept) = (Length::Unsaid, None, None);
        let (mut n_kinds, mut n_accepts, mut is_encoded, mut is_named) = (0_u32, 0_u32, false, false);
        for (name, value) in headers {
            match *name {
                header::CONTENT_LENGTH if matches!(length, Length::Unsaid) => {
                    let said = value.to_str().ok().and_then(|length| length.parse().ok());
                    length = said.map_or(Length::Malformed, Length::Bytes);
                }
                header::CONTENT_TYPE => (kind, n_kinds) = (Some(value), n_kinds + 1),
                header::ACCEPT => (accept, n_accepts) = (Some(value), n_accepts + 1),
                header::CONTENT_ENCODING => is_encoded = true,
                header::HOST => named.host(value),
                header::ORIGIN => named.origin(value),
                _ => is_named |= name.as_str() == REQUEST_ID.as_str(),
            }
        }
        Look {
            length,
            is_json: n_kinds == 1 && kind.is_some_and(says_json),
            is_encoded,
            accepts: match accept {
                Some(only) if n_accepts == 1 && USUAL.contains(&only.as_bytes()) => BOTH,
                _ => accepts(headers),
            },
            is_named,
        }
    }
}

/// Judges the head of a POST.
pub(super) fn check(look: &Look, limit: usize) -> Result<Accepts, Fault> {
    let refuse = |status, why: &str| Err(Fault::invalid(why).with_status(status));
    match look.length {
        Length::Bytes(length) if length > limit as u64 => return Err(too_long(limit)),
        Length::Malformed => return refuse(400, "header content-length is malformed"),
        Length::Bytes(_) | Length::Unsaid => {}
    }
    if !look.is_json {
        return refuse(415, "a message is sent as `Content-Type: application/json`");
    }
    if look.is_encoded {
        return refuse(415, "a message is sent without content-encoding");
    }
    if !look.accepts.json && !look.accepts.stream {
        return refuse(406, "answers are `application/json` or `text/event-stream`; accept both");
    }
    Ok(look.accepts)
}

/// A body is longer than is read here.
pub(super) fn too_long(limit: usize) -> Fault {
    Fault::new(FaultKind::TooLarge, format!("Request body too large (max: {limit} bytes)"))
}

fn says_json(value: &HeaderValue) -> bool {
    value == "application/json" || value.to_str().is_ok_and(is_json)
}

/// `application/json`, in any case, alone or with `charset=utf-8`.
fn is_json(value: &str) -> bool {
    let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
    let charset = parameters.trim();
    kind.trim().eq_ignore_ascii_case("application/json")
        && (charset.is_empty()
            || charset.split_once('=').is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("charset")
                    && value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }))
}

fn accepts(headers: &HeaderMap) -> Accepts {
    let mut accepts = Accepts { json: false, stream: false };
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';');
            let kind = parts.next().unwrap_or_default().trim();
            let is = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(kind));
            if parts.any(is_never) {
                continue;
            }
            accepts.json |= is(&["application/json", "application/*", "*/*"]);
            accepts.stream |= is(&["text/event-stream", "text/*"]);
        }
    }
    accepts.json |= !any;
    accepts
}

/// `q=0`: anything but this.
fn is_never(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, value)| {
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0_f32)
    })
}

/// Whether a GET asks for a stream.
pub(super) fn accepts_stream(headers: &HeaderMap) -> bool {
    accepts(headers).stream
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pairs: &[(&'static str, &'static str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(&Look::at(&headers), 100)
            .map_or_else(|fault| crate::era::refuse_head(&headers, None, &fault).0, |_| 200)
    }

    #[test]
    fn only_json_is_read() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
        ] {
            assert_eq!(status(&[("content-type", good)]), 200, "{good}");
        }
        for bad in [
            "text/plain",
            "application/json-evil",
            "application/jsonp",
            "application/json; charset=utf-16",
            "*/*",
            "",
            "application/x-www-form-urlencoded",
            "application/json; evil=1",
        ] {
            assert_eq!(status(&[("content-type", bad)]), 415, "{bad}");
        }
        assert_eq!(status(&[]), 415);
        assert_eq!(
            status(&[("content-type", "application/json"), ("content-type", "application/json")]),
            415
        );
        assert_eq!(status(&[("content-type", "application/json"), ("content-encoding", "gzip")]), 415);
    }

    #[test]
    fn an_answer_must_be_wanted() {
        let json = ("content-type", "application/json");
        for good in [
            "*/*",
            "application/json",
            "text/event-stream",
            "application/json, text/event-stream",
            "text/html, */*;q=0.1",
        ] {
            assert_eq!(status(&[json, ("accept", good)]), 200, "{good}");
        }
        for bad in ["text/html", "image/png", "*/*;q=0", ""] {
            assert_eq!(status(&[json, ("accept", bad)]), 406, "{bad:?}");
        }
    }

    #[test]
    fn a_body_that_says_it_is_too_long_is_not_read() {
        let json = ("content-type", "application/json");
        assert_eq!(status(&[json, ("content-length", "100")]), 200);
        assert_eq!(status(&[json, ("content-length", "101")]), 413);
        assert_eq!(status(&[json, ("content-length", "x")]), 400);
    }

    #[test]
    fn a_stream_is_sent_only_to_those_who_ask_for_it() {
        let of = |value: &'static str| {
            accepts(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]))
        };
        assert_eq!(of("*/*"), Accepts { json: true, stream: false });
        assert_eq!(of("application/json, text/event-stream"), Accepts { json: true, stream: true });
        assert_eq!(of("text/event-stream"), Accepts { json: false, stream: true });
    }
}
