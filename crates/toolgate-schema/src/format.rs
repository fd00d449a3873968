//! The formats of strings that can be checked: dates and times (RFC 3339), email addresses, URIs, UUIDs and IP addresses.
//!
//! Every check reads its text once. Other formats are annotations.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Date,
    DateTime,
    Email,
    Ipv4,
    Ipv6,
    Time,
    Uri,
    Uuid,
}

impl Format {
    pub(crate) fn from_name(name: &str) -> Option<Format> {
        Some(match name {
            "date" => Format::Date,
            "date-time" => Format::DateTime,
            "email" => Format::Email,
            "ipv4" => Format::Ipv4,
            "ipv6" => Format::Ipv6,
            "time" => Format::Time,
            "uri" => Format::Uri,
            "uuid" => Format::Uuid,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Date => "date",
            Format::DateTime => "date-time",
            Format::Email => "email",
            Format::Ipv4 => "ipv4",
            Format::Ipv6 => "ipv6",
            Format::Time => "time",
            Format::Uri => "uri",
            Format::Uuid => "uuid",
        }
    }

    pub(crate) fn is_valid(self, text: &str) -> bool {
        match self {
            Format::Date => is_date(text.as_bytes()),
            Format::DateTime => is_date_time(text.as_bytes()),
            Format::Email => is_email(text),
            Format::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Format::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Format::Time => is_time(text.as_bytes()),
            Format::Uri => is_uri(text),
            Format::Uuid => is_uuid(text.as_bytes()),
        }
    }
}

/// `full-date` of RFC 3339.
fn is_date(text: &[u8]) -> bool {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return false };
    let (Some(century), Some(year), Some(month), Some(day)) =
        (two_digits(*y1, *y2), two_digits(*y3, *y4), two_digits(*m1, *m2), two_digits(*d1, *d2))
    else {
        return false;
    };
    let is_leap_year = if year == 0 { century % 4 == 0 } else { year % 4 == 0 };
    let n_days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap_year => 29,
        2 => 28,
        _ => return false,
    };
    (1..=n_days).contains(&day)
}

/// `date-time` of RFC 3339.
fn is_date_time(text: &[u8]) -> bool {
    match text.split_at_checked(10) {
        Some((date, [b'T' | b't', time @ ..])) => is_date(date) && is_time(time),
        _ => false,
    }
}

/// `full-time` of RFC 3339.
fn is_time(text: &[u8]) -> bool {
    let [h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = text else { return false };
    let (Some(hour), Some(minute), Some(second)) =
        (two_digits(*h1, *h2), two_digits(*m1, *m2), two_digits(*s1, *s2))
    else {
        return false;
    };
    let rest = match rest {
        [b'.', fraction @ ..] => {
            let n_digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if n_digits == 0 {
                return false;
            }
            &fraction[n_digits..]
        }
        rest => rest,
    };
    // Minutes east of UTC.
    let offset = match rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => match (two_digits(*h1, *h2), two_digits(*m1, *m2)) {
            (Some(hours @ ..24), Some(minutes @ ..60)) => {
                let offset = i32::from(hours) * 60 + i32::from(minutes);
                if *sign == b'+' { offset } else { -offset }
            }
            _ => return false,
        },
        _ => return false,
    };
    match second {
        ..60 => hour < 24 && minute < 60,
        // A leap second is the last second of a day in UTC.
        60 => {
            let utc = i32::from(hour) * 60 + i32::from(minute) - offset;
            hour < 24 && minute < 60 && utc.rem_euclid(24 * 60) == 24 * 60 - 1
        }
        _ => false,
    }
}

fn two_digits(tens: u8, ones: u8) -> Option<u8> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| (tens - b'0') * 10 + (ones - b'0'))
}

/// `Mailbox` of RFC 5321.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_atom = |atom: &str| {
        !atom.is_empty()
            && atom.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte))
    };
    let is_local = match local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => is_quoted(quoted),
        None => local.split('.').all(is_atom),
    };
    let literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_domain = match literal {
        Some(literal) => match literal.strip_prefix("IPv6:") {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => literal.parse::<Ipv4Addr>().is_ok(),
        },
        None => is_hostname(domain),
    };
    is_local && is_domain
}

/// The inside of a quoted local part: printable characters, with `"` and `\` escaped.
fn is_quoted(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_allowed = match byte {
            b'\\' => bytes.next().is_some_and(|next| (b' '..=b'~').contains(&next)),
            b'"' => false,
            byte => (b' '..=b'~').contains(&byte),
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// `URI` of RFC 3986: a scheme, and only characters that are allowed.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (hierarchy, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_hierarchy = match hierarchy.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            is_authority(authority) && has_uri_characters(path, b":@/")
        }
        None => has_uri_characters(hierarchy, b":@/"),
    };
    is_scheme && is_hierarchy && has_uri_characters(query, b":@/?") && has_uri_characters(fragment, b":@/?")
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            let is_future = address.starts_with(['v', 'V']) && has_uri_characters(address, b":");
            if !is_future && address.parse::<Ipv6Addr>().is_err() {
                return false;
            }
            ("", port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    has_uri_characters(user, b":") && has_uri_characters(host, b"") && is_port
}

/// Returns whether a text has only unreserved characters, `sub-delims`, percent-encoded bytes and those that are given.
fn has_uri_characters(text: &str, others: &[u8]) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_allowed = match byte {
            b'%' => [bytes.next(), bytes.next()]
                .iter()
                .all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit())),
            byte => {
                byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte) || others.contains(&byte)
            }
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

/// `UUID` of RFC 4122.
fn is_uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(n, byte)| match n {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
