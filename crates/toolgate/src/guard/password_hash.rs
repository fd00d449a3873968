//! Argon2 password hashes. Without the feature `argon2`, a hash is a configuration error.

#[cfg(feature = "argon2")]
use argon2::{Argon2, Params, PasswordVerifier as _, password_hash::phc};

/// A parsed `$argon2id$…` hash.
pub(super) struct PasswordHash {
    #[cfg(feature = "argon2")]
    hash: phc::PasswordHash,
    /// Without the feature, there is no hash.
    #[cfg(not(feature = "argon2"))]
    never: std::convert::Infallible,
}

#[cfg(feature = "argon2")]
impl PasswordHash {
    /// # Errors
    /// If the text is not a complete hash, or one of another algorithm.
    pub(super) fn parse(text: &str) -> Result<PasswordHash, String> {
        let hash = phc::PasswordHash::new(text).map_err(|error| format!("the hash is malformed: {error}"))?;
        let is_complete = hash.salt.is_some() && hash.hash.is_some() && Params::try_from(&hash).is_ok();
        let is_supported = argon2::Algorithm::try_from(hash.algorithm.as_str()).is_ok();
        if !is_complete || !is_supported {
            return Err("the hash is not a whole `$argon2id$v=…$m=…,t=…,p=…$salt$hash`".to_owned());
        }
        Ok(PasswordHash { hash })
    }

    /// Returns whether this is the hash of `password`. Takes tens of milliseconds.
    pub(super) fn is_match(&self, password: &[u8]) -> bool {
        Argon2::default().verify_password(password, &self.hash).is_ok()
    }
}

#[cfg(not(feature = "argon2"))]
impl PasswordHash {
    /// # Errors
    /// Always.
    pub(super) fn parse(_text: &str) -> Result<PasswordHash, String> {
        Err("verifying a password hash needs the feature `argon2` of toolgate, which is not enabled"
            .to_owned())
    }

    pub(super) fn is_match(&self, _password: &[u8]) -> bool {
        match self.never {}
    }
}
