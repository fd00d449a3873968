//! Resolves URI references in schemas (RFC 3986, as far as schemas need it).

/// Resolves a reference against a base. Returns the URI without fragment, and the fragment.
pub(crate) fn resolve(base: &str, reference: &str) -> (String, String) {
    let (path, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    (resolve_path(base, path), fragment.to_owned())
}

fn resolve_path(base: &str, reference: &str) -> String {
    if reference.is_empty() {
        return base.to_owned();
    }
    if scheme_end(reference).is_some() {
        return reference.to_owned();
    }
    let (start, rest) = match scheme_end(base) {
        Some(end) => base.split_at(end + 1),
        None => ("", base),
    };
    if reference.starts_with("//") {
        return format!("{start}{reference}");
    }
    let (host, path) = match rest.strip_prefix("//") {
        Some(inside) => rest.split_at(2 + inside.find(['/', '?']).unwrap_or(inside.len())),
        None => ("", rest),
    };
    let path = path.split('?').next().unwrap_or_default();
    let query_at = reference.find('?').unwrap_or(reference.len());
    let (reference, query) = reference.split_at(query_at);
    let merged = match reference {
        "" => path.to_owned(),
        reference if reference.starts_with('/') => reference.to_owned(),
        reference => match path.rfind('/') {
            Some(end) => format!("{}{reference}", &path[..=end]),
            None if !host.is_empty() => format!("/{reference}"),
            None => reference.to_owned(),
        },
    };
    format!("{start}{host}{}{query}", remove_dot_segments(&merged))
}

/// Returns the position of the colon after a scheme.
fn scheme_end(uri: &str) -> Option<usize> {
    let end =
        uri.find(|character: char| !(character.is_ascii_alphanumeric() || "+-.".contains(character)))?;
    (end > 0 && uri[end..].starts_with(':')).then_some(end)
}

fn remove_dot_segments(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut input = path.split('/').peekable();
    while let Some(segment) = input.next() {
        let is_last = input.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." && segments.last().is_some_and(|last| !last.is_empty()) {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

/// Decodes percent-encoding.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => {
                hex_digit(*high).zip(hex_digit(*low)).map(|(high, low)| high * 16 + low)
            }
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_against_their_base() {
        for (base, reference, expected) in [
            ("", "a.json", "a.json"),
            ("", "#/a", ""),
            ("http://x.example/a/b.json", "c.json", "http://x.example/a/c.json"),
            ("http://x.example/a/b.json", "../c.json", "http://x.example/c.json"),
            ("http://x.example/a/b.json", "./d/", "http://x.example/a/d/"),
            ("http://x.example/a/b.json", "/c", "http://x.example/c"),
            ("http://x.example", "c", "http://x.example/c"),
            ("http://x.example/a?b/c", "d", "http://x.example/d"),
            ("http://x.example/a", "//y.example/b", "http://y.example/b"),
            ("http://x.example/a", "urn:b:c", "urn:b:c"),
            ("urn:b:c", "#d", "urn:b:c"),
            ("a/b", "../../c", "c"),
        ] {
            assert_eq!(resolve(base, reference).0, expected, "{reference} from {base}");
        }
        assert_eq!(percent_decode("a%25b%zz%"), "a%b%zz%");
    }
}
