//! Bearer tokens that are configured, each with the profile of its holder.

use std::fmt;

use serde_json::Value;
use subtle::Choice;

use super::digest::Digest;
use crate::profile::Profile;
use crate::request::Principal;

/// A secret that authenticates its holder, as a bearer token or an API key.
///
/// It is configured in plain text, or as `sha256:` and the hex digits of its digest, so that configurations need not contain
/// it. Only the digest is kept.
///
/// ```
/// # use toolgate::guard::Token;
/// # use toolgate::Profile;
/// let admin = Token::new("a long and random text").subject("ops");
/// let guest = Token::new("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
///     .profile(Profile::readonly());
/// let monitor = Token::from("another").include_tools(["*_get*"]).exclude_tools(["user_*"]);
/// assert!(!format!("{admin:?}").contains("random"));
/// # let _ = (guest, monitor);
/// ```
#[derive(Clone)]
#[must_use]
#[doc(alias("authentication", "bearer"))]
pub struct Token {
    /// `None` if the secret is empty: then it never matches.
    digest: Option<Digest>,
    subject: Option<String>,
    profile: Option<Profile>,
    /// Patterns for single tools. A profile takes precedence.
    tool_filter: Option<Profile>,
    attributes: Vec<(String, Value)>,
    error: Option<String>,
}

impl Token {
    /// A token with this secret, or with this digest of one.
    pub fn new(secret: impl AsRef<str>) -> Token {
        let secret = secret.as_ref();
        let (digest, error) = match Digest::parse(secret) {
            Ok(_) if secret.is_empty() => (None, None),
            Ok(digest) => (Some(digest), None),
            Err(error) => (None, Some(error)),
        };
        Token { digest, subject: None, profile: None, tool_filter: None, attributes: Vec::new(), error }
    }

    /// Sets the id of its holder. The default is `token:` and the first digits of the digest.
    pub fn subject(mut self, name: impl Into<String>) -> Token {
        self.subject = Some(name.into());
        self
    }

    /// Sets the profile of its holder: the items that it can see and call. It takes precedence over patterns for single tools.
    pub fn profile(mut self, profile: Profile) -> Token {
        self.profile = Some(profile);
        self
    }

    /// Sets an attribute of its holder: [`Principal::attribute`].
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Value>) -> Token {
        self.attributes.push((name.into(), value.into()));
        self
    }

    /// Includes only tools that match one of these patterns, or one given before.
    pub fn include_tools<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Token {
        self.tool_filter = Some(self.take_tool_filter().include_tools(patterns));
        self
    }

    /// Excludes tools that match one of these patterns.
    pub fn exclude_tools<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Token {
        self.tool_filter = Some(self.take_tool_filter().exclude_tools(patterns));
        self
    }

    fn take_tool_filter(&mut self) -> Profile {
        self.tool_filter.take().unwrap_or_else(|| Profile::new("token"))
    }

    fn principal(&self, kind: &str, digest: &Digest) -> Principal {
        let principal = match &self.subject {
            Some(subject) => Principal::new(subject.as_str()),
            None => Principal::new(format!("{kind}:{}", digest.short_hex())),
        };
        let known = |principal: Principal, (name, value): &(String, Value)| {
            principal.with_attribute(name.as_str(), value.clone())
        };
        let principal = self.attributes.iter().fold(principal, known);
        match self.profile.as_ref().or(self.tool_filter.as_ref()) {
            Some(profile) => principal.with_profile(profile.clone()),
            None => principal,
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("subject", &self.subject)
            .field("profile", &self.profile.as_ref().or(self.tool_filter.as_ref()).map(Profile::name))
            .finish_non_exhaustive()
    }
}

impl From<&str> for Token {
    fn from(secret: &str) -> Token {
        Token::new(secret)
    }
}

impl From<String> for Token {
    fn from(secret: String) -> Token {
        Token::new(secret)
    }
}

impl From<&String> for Token {
    fn from(secret: &String) -> Token {
        Token::new(secret)
    }
}

/// The tokens of a server. If there are none, no token is required.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Vec<(Digest, Principal)>);

impl Tokens {
    /// Tokens whose holders have the id `kind:` and digits, unless it is set.
    ///
    /// # Errors
    /// If a digest is malformed, or a secret is empty: a list of empty secrets would accept every caller.
    pub(super) fn new<T: Into<Token>>(
        kind: &str,
        tokens: impl IntoIterator<Item = T>,
    ) -> Result<Tokens, String> {
        let mut known = Vec::new();
        for token in tokens {
            let token: Token = token.into();
            match (&token.error, &token.digest) {
                (Some(error), _) => return Err(error.clone()),
                (None, Some(digest)) => known.push((*digest, token.principal(kind, digest))),
                (None, None) => {
                    return Err(format!("a {kind} is empty; is its environment variable set?"));
                }
            }
        }
        Ok(Tokens(known))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The holder of a secret. Every token is compared, even after a match, so that the time does not depend on it.
    pub(super) fn principal_for(&self, secret: &[u8]) -> Option<&Principal> {
        let presented = Digest::of(secret);
        let mut found = None;
        for (digest, principal) in &self.0 {
            let is_match: Choice = digest.ct_eq(&presented);
            if bool::from(is_match) {
                found = Some(principal);
            }
        }
        found
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_secret_or_its_digest() {
        let tokens = Tokens::new(
            "token",
            [
                Token::new("t1"),
                Token::new("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
                Token::new("t3")
                    .subject("ops")
                    .attribute("tenant", 7)
                    .include_tools(["*_get*"])
                    .exclude_tools(["secret_get"]),
                Token::new("t4").include_tools(["x"]).profile(Profile::readonly()),
            ],
        )
        .unwrap();
        let holder = |secret: &str| tokens.principal_for(secret.as_bytes());
        assert_eq!(holder("test").unwrap().id(), Some("token:9f86d081884c7d65"));
        assert!(holder("t1").unwrap().profile().is_none());
        let ops = holder("t3").unwrap();
        assert_eq!((ops.id(), ops.attribute("tenant")), (Some("ops"), Some(&Value::from(7))));
        let profile = ops.profile().unwrap();
        assert!(profile.allows_tool("cache_get") && !profile.allows_tool("secret_get"));
        assert_eq!(holder("t4").unwrap().profile(), Some(&Profile::readonly()), "a profile goes first");
        for wrong in
            ["", "t", "t11", "T1", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
        {
            assert!(holder(wrong).is_none(), "{wrong}");
        }
        assert!(Tokens::new("token", ["sha256:zz"]).is_err());
        assert!(Tokens::new("token", [""]).is_err(), "a variable that is not set opens nothing");
        assert!(Tokens::new("token", [""; 0]).unwrap().is_empty());
    }

    #[test]
    fn no_secret_is_shown() {
        let token = Token::new("hunter2hunter2").subject("ops").profile(Profile::readonly());
        let tokens = Tokens::new("token", [token.clone()]).unwrap();
        let shown = format!("{token:?} {tokens:?}");
        assert!(shown.contains("ops") && !shown.contains("hunter2"), "{shown}");
    }
}
