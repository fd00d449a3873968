//! Masks values whose names suggest a secret.
//!
//! Only the name decides, and in doubt the value is masked: a hidden number is a nuisance, a password in a log is a
//! leak. Secrets within a longer text are not found.

use serde_json::Value;

/// Replacement of a secret value.
pub(crate) const MASK: &str = "***";

/// A name that contains one of these, ignoring case and punctuation, names a secret.
const SECRET_NAME_PARTS: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "cookie",
    "sessionid",
    "signature",
];

/// A name that equals one of these, ignoring case and punctuation, names a secret too.
const SECRET_NAMES: [&str; 9] = ["key", "auth", "bearer", "pass", "pin", "otp", "jwt", "cvv", "cvc"];

/// Replaces the values of all members whose names suggest a secret by `"***"`, at any depth.
///
/// ```
/// # use serde_json::json;
/// let mut arguments = json!({ "user": "ada", "login": { "Pass-Word": "x", "api_key": [1, 2] } });
/// toolgate::events::mask_secrets(&mut arguments);
/// assert_eq!(arguments, json!({ "user": "ada", "login": { "Pass-Word": "***", "api_key": "***" } }));
/// ```
pub fn mask_secrets(value: &mut Value) {
    // A work list instead of recursion, so that deep nesting cannot overflow the stack.
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => {
                for (name, value) in members {
                    if is_secret(name) {
                        *value = MASK.into();
                    } else {
                        pending.push(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a name suggests a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    let normalized: String = letters.flat_map(char::to_lowercase).collect();
    SECRET_NAMES.contains(&&*normalized) || SECRET_NAME_PARTS.iter().any(|part| normalized.contains(part))
}

/// Masks the user information and the secret query parameters of a URI.
pub(crate) fn mask_uri(uri: &str) -> String {
    let (base, query) = uri.split_once('?').map_or((uri, None), |(base, query)| (base, Some(query)));
    let mut masked = match base.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            match rest[..end].rfind('@') {
                Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
                None => base.to_owned(),
            }
        }
        None => base.to_owned(),
    };
    for (index, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        masked.push(if index == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) if is_secret(name) => masked.extend([name, "=", MASK]),
            _ => masked.push_str(pair),
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_names_are_recognized_in_all_spellings() {
        let secrets = "password PASSWORD user_password passwd Pass-Phrase pwd secret client_secret clientSecret \
            token access_token refreshToken id-token api_key apiKey x-api-key API-KEY apikey key Key \
            Authorization proxy-authorization authorization credential credentials aws.credentials cookie \
            Set-Cookie session_id Mcp-Session-Id private_key private.key AWS_ACCESS_KEY_ID pin otp jwt cvv bearer auth";
        for name in secrets.split_whitespace() {
            assert!(is_secret(name), "{name}");
        }
        for name in "user name monkey keyboard keys author compass pinned message uri id sessions".split(' ')
        {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let mut deep = json!({ "token": "s3cret" });
        for _ in 0..100_000 {
            deep = Value::Array(vec![deep]);
        }
        mask_secrets(&mut deep);
        let mut inside = &mut deep;
        while let Value::Array(items) = inside {
            inside = &mut items[0];
        }
        assert_eq!(*inside, json!({ "token": "***" }));
        // Dropping it as a whole would recurse.
        while let Value::Array(mut items) = deep {
            deep = items.pop().unwrap();
        }
    }

    #[test]
    fn only_the_secrets_of_a_uri_are_masked() {
        let rows = [
            ("notes://note/1", "notes://note/1"),
            ("https://ada:pw@example.com/a@b", "https://***@example.com/a@b"),
            ("https://ada@pw@example.com", "https://***@example.com"),
            ("https://example.com/?q=1&api_key=s3cret&x", "https://example.com/?q=1&api_key=***&x"),
            ("mailto:ada@example.com", "mailto:ada@example.com"),
            ("", ""),
            ("?", "?"),
        ];
        for (uri, expected) in rows {
            assert_eq!(mask_uri(uri), expected);
        }
    }

    /// Generates values in which `s3cret` appears only below a secret name.
    fn values() -> impl Strategy<Value = Value> {
        let plain = prop_oneof![Just(json!(null)), any::<i32>().prop_map(|n| json!(n)), Just(json!("plain"))];
        let leaf =
            prop_oneof![plain, Just(json!({ "Password": "s3cret" })), Just(json!({ "k_e_y": ["s3cret"] }))];
        leaf.prop_recursive(6, 64, 6, |inner| {
            let secret = prop::sample::select(vec!["token", "API_KEY", "my-Secret", "Cookie", "key"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec(("[a-d]{1,3}", inner.clone()), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
                (secret, inner).prop_map(|(name, inner)| json!({ name: { "deep": [inner, "s3cret"] } })),
            ]
        })
    }

    fn is_masked_below_secrets(value: &Value, is_below: bool) -> bool {
        match value {
            Value::Object(members) => members
                .iter()
                .all(|(name, value)| is_masked_below_secrets(value, is_below || is_secret(name))),
            Value::Array(items) => items.iter().all(|value| is_masked_below_secrets(value, is_below)),
            value => !is_below || value == MASK,
        }
    }

    proptest! {
        #[test]
        fn no_value_below_a_secret_name_survives(mut value in values()) {
            let before = value.to_string();
            mask_secrets(&mut value);
            prop_assert!(!value.to_string().contains("s3cret"), "{before} became {value}");
            prop_assert!(is_masked_below_secrets(&value, false));
            let once = value.clone();
            mask_secrets(&mut value);
            prop_assert_eq!(once, value);
        }

        #[test]
        fn any_uri_is_masked_without_panic(uri in "\\PC*", secret in "[a-z0-9]{8,12}") {
            let _ = mask_uri(&uri);
            let with = format!("https://u:{secret}@h/p?a=b&token={secret}");
            prop_assert!(!mask_uri(&with).contains(&secret));
        }
    }
}
