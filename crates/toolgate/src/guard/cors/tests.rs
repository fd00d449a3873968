//! Patterns, origins, and the headers for browsers.

use proptest::prelude::*;

use super::*;

fn cors(patterns: &[&str]) -> Cors {
    let mut cors = Cors::default();
    cors.set(patterns).unwrap();
    cors
}

#[test]
fn a_pattern_allows_its_origins_and_no_others() {
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
        ("http://localhost:3000", &["http://localhost:3000"], &["http://localhost:3001", "http://localhost"]),
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
fn an_invalid_pattern_is_an_error() {
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
    assert!(!cors.is_allowed("https://a"), "nothing is allowed by default");
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
fn a_wildcard_is_answered_with_the_origin_unless_literal() {
    let origin = HeaderValue::from_static("https://z.io");
    let mut any = cors(&["*"]);
    assert_eq!(any.allow_origin_value(&origin, false), "https://z.io");
    assert_eq!(any.allow_origin_value(&origin, true), "*");
    any.set_literal_wildcard(true);
    assert_eq!(any.allow_origin_value(&origin, false), "*");
    any.set("https://z.io").unwrap();
    assert_eq!(
        any.allow_origin_value(&origin, false),
        "https://z.io",
        "a list is never answered with a star"
    );
}

#[test]
fn mirrored_arguments_may_be_sent() {
    let mut asked = HeaderMap::new();
    let wanted = "content-type, Mcp-Param-Region,mcp-param-a b, x-evil, mcp-param-\"q\"";
    asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static(wanted));
    let allowed = allowed_headers(&asked);
    assert_eq!(allowed.to_str().unwrap(), format!("{ALLOWED_HEADERS}, mcp-param-region"));
    assert_eq!(allowed_headers(&HeaderMap::new()), ALLOWED_HEADERS);
}

/// A reference implementation on lists of labels.
fn matches_reference(pattern: &str, origin: &str) -> bool {
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
    fn matching_agrees_with_the_reference(
        pattern in "(https?://)?(\\*\\.)?[ab]{1,2}(\\.[ab]){0,2}(:81)?",
        origin in "https?://[ab]{0,2}(\\.[ab]{0,2}){0,4}(:8[12])?",
    ) {
        let expected = matches_reference(&pattern, &origin);
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
