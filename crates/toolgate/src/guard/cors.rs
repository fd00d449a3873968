//! Which pages of other origins may read answers, and what a browser is told of it.
//!
//! A pattern is compared label by label, never as the end of a text: `*.example.com` has nothing to say
//! about `notexample.com`. Credentials that a browser adds by itself (cookies) are never asked for.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::many::OneOrMany;
use super::origin::{Origin, Scheme, host_and_port};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, OPTIONS, DELETE");
const HEADERS: &str = "Content-Type, Authorization, X-API-Key, Accept, Mcp-Session-Id, MCP-Protocol-Version, \
                       Last-Event-ID, Mcp-Method, Mcp-Name, X-Request-ID";
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Mcp-Session-Id, WWW-Authenticate, Retry-After, X-Request-ID, MCP-Protocol-Version",
);
const A_DAY: HeaderValue = HeaderValue::from_static("86400");
const ANY: HeaderValue = HeaderValue::from_static("*");

/// Headers that mirror arguments have names of their own; more of them than this are not asked for in one call.
const MAX_MIRRORED: usize = 64;

/// An origin as browsers write it is shorter than this.
const MAX_ORIGIN: usize = 300;

/// The origins whose pages may call and read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cors {
    /// As they were given, and what they mean.
    patterns: Vec<(String, Pattern)>,
    /// `*` is answered as it is, not with the origin that asked.
    is_literal: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Some {
        /// Either if none.
        scheme: Option<Scheme>,
        labels: Labels,
        /// Lower case.
        host: String,
        /// Any if none.
        port: Option<u16>,
    },
}

/// How many labels may stand before the host of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    Zero,
    One,
    OneOrMore,
}

impl Cors {
    /// Allows these and no others.
    ///
    /// # Errors
    /// If one is not a pattern; then nothing changes.
    pub(crate) fn set(&mut self, origins: impl OneOrMany) -> Result<(), String> {
        let mut fresh = Cors { patterns: Vec::new(), is_literal: self.is_literal };
        for origin in origins.into_texts() {
            fresh.add(&origin)?;
        }
        *self = fresh;
        Ok(())
    }

    /// Also allows this one. What is allowed already is not listed twice.
    ///
    /// # Errors
    /// If it is not a pattern.
    pub(crate) fn add(&mut self, origin: &str) -> Result<(), String> {
        let pattern = Pattern::parse(origin)?;
        if !self.patterns.iter().any(|(_, known)| *known == pattern) {
            self.patterns.push((origin.to_owned(), pattern));
        }
        Ok(())
    }

    /// Answers `*` where every origin is allowed, instead of the origin that asked.
    pub(crate) fn literal(&mut self, is_literal: bool) {
        self.is_literal = is_literal;
    }

    /// The patterns, as they were given.
    pub(crate) fn allowed_origins(&self) -> Vec<String> {
        self.patterns.iter().map(|(given, _)| given.clone()).collect()
    }

    /// Whether pages of this origin may read answers.
    pub(crate) fn is_allowed(&self, origin: &str) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        if self.is_any() && is_sound(origin) {
            return true;
        }
        Origin::parse(origin)
            .is_some_and(|origin| self.patterns.iter().any(|(_, pattern)| pattern.matches(&origin)))
    }

    fn is_any(&self) -> bool {
        self.patterns.iter().any(|(_, pattern)| *pattern == Pattern::Any)
    }

    /// What `Access-Control-Allow-Origin` says to an origin that is allowed.
    pub(super) fn answer(&self, origin: &HeaderValue) -> HeaderValue {
        if self.is_literal && self.is_any() { ANY } else { origin.clone() }
    }

    /// The headers of an answer that the page may read.
    pub(super) fn dress(headers: &mut HeaderMap, answer: &HeaderValue) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, answer.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        if *answer != ANY {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
    }

    /// What a browser is told that asks before it sends.
    pub(super) fn preflight(asked: &HeaderMap, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(asked));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, A_DAY);
    }
}

/// What clients of the protocol send, and the mirrored arguments that this one wants to send.
fn allowed_headers(asked: &HeaderMap) -> HeaderValue {
    let wanted = asked.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let wanted = wanted.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut allowed = String::new();
    // A header name is a token: what it parses from can stand in an answer.
    let names = wanted.filter_map(|name| name.trim().parse::<HeaderName>().ok());
    for name in names.filter(|name| name.as_str().starts_with("mcp-param-")).take(MAX_MIRRORED) {
        allowed.push_str(", ");
        allowed.push_str(name.as_str());
    }
    if allowed.is_empty() {
        return HeaderValue::from_static(HEADERS);
    }
    HeaderValue::try_from(format!("{HEADERS}{allowed}")).unwrap_or(HeaderValue::from_static(HEADERS))
}

/// Where every origin is allowed, it must still be one: `null`, or a scheme and a host.
fn is_sound(origin: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/[]+".contains(&byte);
    let has_parts = origin.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.contains('/') && !scheme.contains([':', '/'])
    });
    origin == "null" || (has_parts && origin.len() <= MAX_ORIGIN && origin.bytes().all(is_plain))
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let wrong = |why: &str| {
            format!(
                "{text:?} is not an origin such as `https://example.com`, nor `*`, `*.example.com` or \
                 `https://*.example.com`: {why}"
            )
        };
        if text == "*" {
            return Ok(Pattern::Any);
        }
        let (scheme, rest) = match Scheme::split(text) {
            Some((scheme, rest)) => (Some(scheme), rest),
            None if text == "null" => return Err(wrong("pages without an origin have no name")),
            None if text.contains("://") => return Err(wrong("the scheme is `http` or `https`")),
            None => (None, text),
        };
        let (labels, rest) = match rest.strip_prefix("*.") {
            // With a scheme the pattern says exactly what is meant, so the star is one label.
            Some(rest) if scheme.is_some() => (Labels::One, rest),
            Some(rest) => (Labels::OneOrMore, rest),
            None => (Labels::Zero, rest),
        };
        if rest.contains('*') {
            return Err(wrong("a star stands alone or for what is before the first dot"));
        }
        let (host, port) =
            host_and_port(rest).ok_or_else(|| wrong("it has a host and perhaps a port, no path"))?;
        // An address has no names below it.
        let is_number =
            host.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if labels != Labels::Zero && (is_number || !host.split('.').all(is_label)) {
            return Err(wrong("behind `*.` stands a domain"));
        }
        let port = port.or(scheme.map(Scheme::port));
        Ok(Pattern::Some { scheme, labels, host, port })
    }

    fn matches(&self, origin: &Origin) -> bool {
        let Pattern::Some { scheme, labels, host, port } = self else {
            return true;
        };
        if scheme.is_some_and(|scheme| scheme != origin.scheme)
            || port.is_some_and(|port| port != origin.port)
        {
            return false;
        }
        if *labels == Labels::Zero {
            return *host == origin.host;
        }
        let before = origin.host.strip_suffix(host.as_str()).and_then(|before| before.strip_suffix('.'));
        match (before, labels) {
            (Some(before), Labels::One) => is_label(before),
            (Some(before), _) => before.split('.').all(is_label),
            (None, _) => false,
        }
    }
}

fn is_label(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cors(patterns: &[&str]) -> Cors {
        let mut cors = Cors::default();
        cors.set(patterns).unwrap();
        cors
    }

    #[test]
    fn a_pattern_allows_what_it_says_and_nothing_else() {
        let rows: [(&str, &[&str], &[&str]); 8] = [
            (
                "https://example.com",
                &["https://example.com", "https://example.com:443", "https://EXAMPLE.com"],
                &["http://example.com", "https://example.com:8443", "https://a.example.com", "null"],
            ),
            (
                "*.example.com",
                &["https://app.example.com", "http://app.example.com:3000", "https://api.v2.example.com"],
                &[
                    "https://example.com",
                    "https://notexample.com",
                    "https://example.com.evil.io",
                    "https://.example.com",
                    "https://a..example.com",
                    "https://app.example.com.",
                    "https://user@app.example.com",
                    "https://evil.io#.example.com",
                    "https://evil.io/.example.com",
                    "https://evil.io?.example.com",
                    "https://evil.io\\.example.com",
                    "ftp://app.example.com",
                    "app.example.com",
                    "null",
                    "",
                ],
            ),
            (
                // G09
                "https://*.example.com",
                &["https://app.example.com", "https://APP.example.com", "https://app.example.com:443"],
                &[
                    "https://a.b.example.com",
                    "http://app.example.com",
                    "https://app.example.com:8443",
                    "https://example.com",
                    "https://notexample.com",
                    "https://-.example.com.evil.io",
                    "https://app.example.com@evil.io",
                    "https://evil.io/app.example.com",
                    "https://%61pp.example.com",
                    "https://app%2eexample.com",
                    "https://app.example.com, https://app.example.com",
                    " https://app.example.com",
                    "https://app.example.com/",
                    "https://*.example.com",
                ],
            ),
            ("https://*.example.com:8443", &["https://a.example.com:8443"], &["https://a.example.com"]),
            (
                "http://localhost:3000",
                &["http://localhost:3000"],
                &["http://localhost:3001", "http://localhost"],
            ),
            ("*.ngrok.io", &["https://abc.ngrok.io"], &["https://ngrok.io"]),
            ("example.com", &["https://example.com", "http://example.com:81"], &["https://a.example.com"]),
            (
                "*",
                &["https://x.y", "http://[::1]:8080", "null", "chrome-extension://abc"],
                &["", "https://a, https://b", "x y", "https://a/b", "https://%zz", "https://a b", "nullx"],
            ),
        ];
        for (pattern, good, bad) in rows {
            let cors = cors(&[pattern]);
            for origin in good {
                assert!(cors.is_allowed(origin), "{pattern} should allow {origin:?}");
            }
            for origin in bad {
                assert!(!cors.is_allowed(origin), "{pattern} should not allow {origin:?}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for wrong in [
            "",
            "null",
            "**",
            "*.*.example.com",
            "https://*",
            "https://*example.com",
            "https://a.*.example.com",
            "*.",
            "*.10.0.0.1",
            "*.[::1]",
            "https://example.com/",
            "https://example.com:x",
            "https://example.com:99999",
            "https://user@example.com",
            "ftp://example.com",
            "https://",
            "a b",
        ] {
            let mut cors = cors(&["https://kept.example"]);
            assert!(cors.set(["https://other.example", wrong]).is_err(), "{wrong:?}");
            assert!(cors.is_allowed("https://kept.example"), "a bad list changes nothing");
        }
    }

    #[test]
    fn an_origin_is_listed_once() {
        let mut cors = Cors::default();
        assert!(!cors.is_allowed("https://a"), "nothing is allowed unless said");
        for origin in ["https://a", "https://a", "https://A:443"] {
            cors.add(origin).unwrap();
        }
        assert_eq!(cors.allowed_origins(), ["https://a"]);
        cors.set("https://b").unwrap();
        assert_eq!(cors.allowed_origins(), ["https://b"]);
        cors.set(Vec::<String>::new()).unwrap();
        assert!(cors.allowed_origins().is_empty());
    }

    #[test]
    fn every_origin_is_answered_by_its_name_unless_asked_otherwise() {
        let origin = HeaderValue::from_static("https://z.io");
        let mut any = cors(&["*"]);
        assert_eq!(any.answer(&origin), "https://z.io");
        any.literal(true);
        assert_eq!(any.answer(&origin), "*");
        any.set("https://z.io").unwrap();
        assert_eq!(any.answer(&origin), "https://z.io", "a list is never answered with a star");
    }

    #[test]
    fn mirrored_arguments_may_be_sent() {
        let mut asked = HeaderMap::new();
        let wanted = "content-type, Mcp-Param-Region,mcp-param-a b, x-evil, mcp-param-\"q\"";
        asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static(wanted));
        let allowed = allowed_headers(&asked);
        assert_eq!(allowed.to_str().unwrap(), format!("{HEADERS}, mcp-param-region"));
        assert_eq!(allowed_headers(&HeaderMap::new()), HEADERS);
    }

    /// The same question, asked of lists of labels.
    fn slow(pattern: &str, origin: &str) -> bool {
        let (scheme, host) = match pattern.split_once("://") {
            Some((scheme, host)) => (Some(scheme), host),
            None => (None, pattern),
        };
        let (given_scheme, given) = origin.split_once("://").unwrap();
        let (given_host, given_port) = given.split_once(':').unwrap_or((given, "default"));
        let (host, port) = match host.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host, scheme.map(|_| "default")),
        };
        let wanted: Vec<&str> = host.split('.').collect();
        let labels: Vec<&str> = given_host.split('.').collect();
        let is_host = match wanted.split_first() {
            Some((&"*", rest)) => {
                let before = labels.len().saturating_sub(rest.len());
                let is_count = if scheme.is_some() { before == 1 } else { before >= 1 };
                is_count && labels.ends_with(rest) && labels.iter().all(|label| !label.is_empty())
            }
            _ => wanted == labels,
        };
        is_host
            && scheme.is_none_or(|scheme| scheme == given_scheme)
            && port.is_none_or(|port| port == given_port)
    }

    proptest! {
        #[test]
        fn matching_is_what_it_says(
            pattern in "(https?://)?(\\*\\.)?[ab]{1,2}(\\.[ab]){0,2}(:81)?",
            origin in "https?://[ab]{0,2}(\\.[ab]{0,2}){0,4}(:8[12])?",
        ) {
            let expected = slow(&pattern, &origin);
            prop_assert_eq!(cors(&[&pattern]).is_allowed(&origin), expected, "{} {}", pattern, origin);
        }

        #[test]
        fn any_text_can_be_a_pattern_or_an_origin(pattern in "\\PC{0,20}", origin in "\\PC{0,40}") {
            let mut cors = Cors::default();
            if cors.add(&pattern).is_ok() {
                cors.is_allowed(&origin);
            }
        }
    }
}
