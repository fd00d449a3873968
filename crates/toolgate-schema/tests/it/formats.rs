//! Formats of strings.

use serde_json::json;
use toolgate_schema::Schema;

fn check(format: &str, valid: &[&str], invalid: &[&str]) {
    let document = json!({ "format": format });
    let annotation = Schema::new(&document).expect("a valid schema");
    let checked = Schema::with_formats(&document).expect("a valid schema");
    for text in valid {
        assert!(checked.is_valid(&json!(text)), "{format}: {text:?} is valid");
    }
    let list = Schema::with_formats(&json!({ "items": document })).expect("a valid schema");
    for text in invalid {
        assert!(annotation.is_valid(&json!(text)), "{format} is an annotation");
        let value = json!([text]);
        let Err(error) = list.validate(&value) else { panic!("{format}: {text:?} is invalid") };
        assert_eq!((error.pointer(), error.to_string()), ("/0", format!("{text:?} is not a \"{format}\"")));
    }
    assert!(checked.is_valid(&json!(5)), "{format} is about strings only");
}

#[test]
fn dates_and_times_follow_rfc_3339() {
    check(
        "date",
        &["2026-07-28", "2024-02-29", "2000-02-29", "0000-01-01"],
        &[
            "2026-7-28",
            "2023-02-29",
            "1900-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "2026-04-31",
            "",
            "20260728",
        ],
    );
    check(
        "date-time",
        &[
            "2026-07-28T09:30:00Z",
            "2026-07-28t09:30:00.123456789z",
            "1998-12-31T23:59:60Z",
            "1998-12-31T15:59:60-08:00",
        ],
        &[
            "2026-07-28",
            "2026-07-28 09:30:00Z",
            "2026-07-28T09:30:00",
            "2026-07-28T24:00:00Z",
            "2026-07-28T09:30Z",
            "2026-07-28T09:30:00.Z",
            "1998-12-31T22:59:60Z",
            "2026-07-28T09:30:00+24:00",
            "€€€€€€€€€€",
        ],
    );
    check(
        "time",
        &["09:30:00Z", "23:59:60Z", "01:29:60+01:30"],
        &["09:30:00", "9:30:00Z", "09:60:00Z", "09:30:61Z", ""],
    );
}

#[test]
fn addresses_and_identifiers_have_the_shape_of_their_standard() {
    check(
        "email",
        &["ada@example.com", "a.b+c@localhost", "\"a b\"@example.com", "ada@[127.0.0.1]", "ada@[IPv6:::1]"],
        &[
            "ada",
            "@example.com",
            "ada@",
            ".a@b.c",
            "a..b@c.d",
            "a b@c.d",
            "a@-b.c",
            "a@b_c",
            "ä@b.c",
            "ada@[::1]",
            "\"a\"b\"@c.d",
        ],
    );
    check(
        "uri",
        &[
            "https://ada:pw@example.com:8080/a/b?c=d&e#f",
            "urn:isbn:0451450523",
            "mailto:ada@example.com",
            "http://[::1]/%20",
            "file:///etc/hosts",
            "a:",
        ],
        &[
            "/relative",
            "example.com",
            "http://a b/",
            "http://a/%2",
            "http://a/ä",
            "http://[::1/",
            "1http://a/",
            "http://a:b/",
            "http://a/[b]",
            "",
            "http://a/#b#c",
        ],
    );
    check(
        "uuid",
        &[
            "2eb8aa08-aa98-11ea-b4aa-73b441d16380",
            "00000000-0000-0000-0000-000000000000",
            "2EB8AA08-AA98-11EA-B4AA-73B441D16380",
        ],
        &[
            "2eb8aa08aa9811eab4aa73b441d16380",
            "{2eb8aa08-aa98-11ea-b4aa-73b441d16380}",
            "2eb8aa08-aa98-11ea-b4aa-73b441d1638g",
            "",
        ],
    );
    check("ipv4", &["127.0.0.1"], &["127.0.0.01", "127.0.0", "256.0.0.1", "127.0.0.1 "]);
    check("ipv6", &["::1", "::ffff:192.168.0.1"], &["12345::", "fe80::a%eth0", "127.0.0.1", "::1/64"]);
}

#[test]
fn other_formats_are_annotations() {
    let schema = Schema::with_formats(&json!({ "format": "duration", "type": "string" })).unwrap();
    assert!(schema.is_valid(&json!("soon")));
}
