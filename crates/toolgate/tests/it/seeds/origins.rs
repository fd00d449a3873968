//! Origins that may call.

use super::empty_server;

#[test]
fn s1_067_one_origin() {
    assert!(empty_server("s").set_cors("https://example.com").is_cors_allowed("https://example.com"));
}

#[test]
fn s1_068_a_list_of_origins() {
    let server = empty_server("s").set_cors(["https://a.com", "https://b.com"]);
    assert_eq!(server.cors_allowed_origins().len(), 2);
    assert!(server.is_cors_allowed("https://b.com"));
}

#[test]
fn s1_069_every_origin() {
    assert!(empty_server("s").set_cors("*").is_cors_allowed("https://x.y"));
}

#[test]
fn s1_071_a_subdomain() {
    assert!(empty_server("s").set_cors("*.example.com").is_cors_allowed("https://app.example.com"));
}

#[test]
fn s1_072_a_subdomain_of_a_subdomain() {
    assert!(empty_server("s").set_cors("*.example.com").is_cors_allowed("https://api.v2.example.com"));
}

#[test]
fn s1_073_a_pattern_ends_at_whole_labels() {
    let server = empty_server("s").set_cors("*.example.com");
    for other in [
        "https://notexample.com",
        "https://example.com.evil.io",
        "https://example.com",
        "https://evil.io/.example.com",
    ] {
        assert!(!server.is_cors_allowed(other), "{other}");
    }
}

#[test]
fn s1_074_an_exact_origin_is_only_itself() {
    let server = empty_server("s").set_cors("https://example.com");
    for other in ["http://example.com", "https://example.com:8443", "https://www.example.com"] {
        assert!(!server.is_cors_allowed(other), "{other}");
    }
}

#[test]
fn s1_075_an_origin_is_added_once() {
    let server = empty_server("s").add_cors_origin("https://a").add_cors_origin("https://a");
    assert_eq!(server.cors_allowed_origins().len(), 1);
}

#[test]
fn s1_076_the_origins_as_they_were_given() {
    let server =
        empty_server("s").add_cors_origin("https://example.com").add_cors_origin("https://app.example.com");
    assert_eq!(server.cors_allowed_origins(), ["https://example.com", "https://app.example.com"]);
}

#[test]
fn s1_077_no_origin_unless_one_is_set() {
    assert!(!empty_server("n").is_cors_allowed("https://a"));
}

#[test]
fn s1_084_patterns_and_exact_origins_in_one_list() {
    let server = empty_server("s").set_cors(["http://localhost:3000", "http://localhost:8080", "*.ngrok.io"]);
    for (origin, allowed) in [
        ("http://localhost:3000", true),
        ("http://localhost:8080", true),
        ("https://abc.ngrok.io", true),
        ("http://localhost:3001", false),
        ("https://ngrok.io", false),
        ("https://abcngrok.io", false),
    ] {
        assert_eq!(server.is_cors_allowed(origin), allowed, "{origin}");
    }
}

#[test]
fn s1_085_set_cors_replaces_origins() {
    assert!(empty_server("s").set_cors("https://t.com").is_cors_allowed("https://t.com"));
}

/// A value of the wrong type does not compile; a string that is not an origin is an error that names the setting.
#[test]
fn s1_086_what_is_no_origin_is_refused() {
    let server = empty_server("s").set_cors("no origin at all");
    let faults = server.config_errors();
    assert!(faults.iter().any(|fault| fault.contains("set_cors")), "{faults:?}");
    assert!(server.cors_allowed_origins().is_empty());
    assert!(toolgate::Server::new("s", "1").cors("no origin at all").build().is_err());
}
