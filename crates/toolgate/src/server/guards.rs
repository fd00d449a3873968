//! Guards of a server: authentication, rate limits, CORS, hosts, IP addresses and body limits.
//!
//! Each setting exists on the builder and on a running server. On a running server, a setting that fails makes the
//! guards reject every request until the same setting succeeds, so that a typo never opens a server.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{Builder, Server};
use crate::error::{BuildProblem, Error, ErrorKind};
use crate::guard::{
    ApiKeys, BasicAuthProvider, CredentialMode, Guards, IntoStrings, KeyRequest, Rate, SecurityHeaders, Token,
};
use crate::request::Principal;
use crate::util::sharded::ShardedArc;

/// A change of the guards. The error message describes the invalid value.
type GuardChange<'a> = Box<dyn FnOnce(&mut Guards) -> Result<(), String> + 'a>;

/// Declares each setting once: its documentation, its name on the builder, its name on a running server, and its effect.
macro_rules! guard_settings {
    ($(
        $(#[$doc:meta])*
        $builder:ident / $server:ident ($($argument:ident: $type:ty),*) |$guards:ident| $set:expr;
    )*) => {
        impl Builder {
            $($(#[$doc])*
            pub fn $builder(self, $($argument: $type),*) -> Builder {
                self.configure(|config| {
                    let $guards = &mut config.guards;
                    let checked: Result<(), String> = $set;
                    let problem = checked.err().map(|message| BuildProblem::setting(stringify!($builder), message));
                    config.errors.extend(problem);
                })
            })*
        }

        impl Server {
            $($(#[$doc])*
            pub fn $server(&self, $($argument: $type),*) -> Server {
                self.update_guards(stringify!($server), |$guards| $set)
            })*
        }
    };
}

guard_settings! {
    /// Sets the public URL of the server, if clients reach it through another address than this machine's: requests for
    /// its host are accepted, and web pages of its origin may call the server.
    public_url / set_public_url (url: &str) |guards| guards.hosts.allow_url(url);

    /// Accepts requests for this host too, on any port.
    #[doc(alias("DNS rebinding"))]
    allow_host / add_allowed_host (host: &str) |guards| guards.hosts.allow_host(host);

    /// Accepts requests from web pages of this origin too, for example `https://app.example.com`.
    allow_origin / add_allowed_origin (origin: &str) |guards| guards.hosts.allow_origin(origin);

    /// Sets the CORS origins, whose web pages may call the server and read its responses: exact ones
    /// (`https://app.example.com`), all subdomains of a domain (`*.example.com`, which does not include `example.com`), or
    /// all (`*`). Replaces earlier ones.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").cors(["https://app.example.com", "*.example.org"]).build()?;
    /// assert!(server.is_cors_allowed("https://a.example.org"));
    /// assert!(!server.is_cors_allowed("https://notexample.org"));
    /// # Ok(())
    /// # }
    /// ```
    cors / set_cors (origins: impl IntoStrings) |guards| guards.cors.set(origins);

    /// Adds a CORS origin.
    add_cors_origin / add_cors_origin (origin: &str) |guards| guards.cors.add(origin);

    /// Sends a literal `*` in `Access-Control-Allow-Origin` if all origins are allowed, instead of the requesting origin.
    literal_wildcard / set_literal_wildcard () |guards| { guards.cors.set_literal_wildcard(true); Ok(()) };

    /// Sets how long browsers may cache preflight responses, in whole seconds. One day by default.
    cors_max_age / set_cors_max_age (age: Duration) |guards| { guards.cors.set_max_age(age); Ok(()) };

    /// Limits the size of request bodies; larger ones get status 413. With 0, only the limit of messages on every transport
    /// (`message_limit`) applies.
    body_limit / set_body_limit (bytes: usize) |guards| { guards.set_body_limit(bytes); Ok(()) };

    /// Accepts requests only from these IP addresses and networks (`10.0.0.0/8`, `::1`); others get status 403. An empty
    /// list accepts all. Behind a proxy, see `trust_proxies`. In a router of your own, a layer has to add the address
    /// ([`RemoteAddr`](crate::http::RemoteAddr)); without it, every request is rejected.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").allow_ips(["10.0.0.0/8", "::1"]).build()?;
    /// assert!(server.verify_client_ip("10.1.2.3") && !server.verify_client_ip("192.0.2.1"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("firewall", "allowlist"))]
    allow_ips / set_allowed_ips (addresses: impl IntoStrings) |guards| guards.addresses.set(addresses);

    /// Adds an IP address or network from which requests are accepted.
    allow_ip / add_allowed_ip (address: &str) |guards| guards.addresses.add(address);

    /// Sets the proxies whose forwarding headers are trusted, for the client address (`X-Forwarded-For`, or the header set
    /// with `client_address_header`) and for TLS (`X-Forwarded-Proto`). From all other addresses these headers are ignored.
    trust_proxies / set_trusted_proxies (addresses: impl IntoStrings) |guards| {
        guards.trusted_proxies.addresses.set(addresses)
    };

    /// Sets the header in which trusted proxies send the client address: `X-Forwarded-For` by default, or one with a single
    /// address, such as `CF-Connecting-IP`, `True-Client-IP` or `X-Real-IP`. Only this header is read, and the proxy must
    /// overwrite it: what a client sends in it would otherwise be taken for its address.
    client_address_header / set_client_address_header (name: &str) |guards| guards.trusted_proxies.set_header(name);

    /// Limits the request rate per client address: `Rate::per_minute(600).burst(50)`. Requests above it get status 429 with
    /// `Retry-After`. IPv6 addresses are counted by /64 network, and all unknown addresses as one.
    #[doc(alias("rate limit", "throttle"))]
    rate_per_ip / set_rate_per_ip (rate: Rate) |guards| {
        guards.set_rate_per_address(Some(rate));
        Ok(())
    };

    /// Limits the request rate per authenticated principal, from all addresses together.
    rate_per_principal / set_rate_per_principal (rate: Rate) |guards| {
        guards.set_rate_per_principal(Some(rate));
        Ok(())
    };

    /// Limits the request rate of one principal, in place of the rate for all principals.
    rate_of / set_rate_of (principal: &str, rate: Rate) |guards| {
        guards.set_rate_for(principal, rate);
        Ok(())
    };

    /// Adds a user for HTTP basic authentication, with a password in plain text or as an Argon2 hash (`$argon2id$…`, feature
    /// `argon2`). Can be called several times. The principal's id is `user:` followed by the user name.
    ///
    /// An empty user name or password is ignored with a warning. **With no users, basic authentication is off.**
    ///
    /// ```
    /// # use toolgate::Server;
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").basic_auth("ada", "tiger").build()?;
    /// assert!(server.verify_basic_auth("Basic YWRhOnRpZ2Vy"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("authentication", "password"))]
    basic_auth / add_basic_auth (user: &str, password: &str) |guards| {
        guards.users.add(user, password).map(|is_added| {
            if !is_added {
                tracing::warn!("basic auth: ignored a user without name or password");
            }
        })
    };

    /// Adds a user for HTTP basic authentication as `basic_auth` does, with a principal that carries a profile or
    /// attributes.
    ///
    /// ```
    /// # use toolgate::{Principal, Profile, Server};
    /// let ada = Principal::new("user:ada").with_profile(Profile::readonly()).with_attribute("tenant", 7);
    /// let server = Server::new("shop", "1.0.0").basic_user("ada", "tiger", ada);
    /// # assert!(server.build().is_ok());
    /// ```
    basic_user / add_basic_user (user: &str, password: &str, principal: Principal) |guards| {
        guards.users.add_as(user, password, principal).map(drop)
    };

    /// Authenticates users by a function (HTTP basic authentication), such as a lookup in a directory or at a website; see
    /// [`BasicAuthProvider`].
    basic_auth_provider / set_basic_auth_provider (provider: BasicAuthProvider) |guards| {
        guards.set_basic_auth_provider(Some(provider));
        Ok(())
    };

    /// Removes all users and the provider, which turns basic authentication off.
    clear_basic_auth / clear_basic_auth () |guards| {
        guards.users.clear();
        guards.set_basic_auth_provider(None);
        Ok(())
    };

    /// Sets the bearer tokens (`Authorization: Bearer`) that authenticate callers. Replaces earlier ones. An empty list
    /// turns token authentication off; an empty token is a configuration error.
    ///
    /// ```
    /// # use toolgate::guard::Token;
    /// # use toolgate::{Profile, Server};
    /// let server = Server::new("shop", "1.0.0").tokens([
    ///     Token::new("a long and random text").subject("ops"),
    ///     Token::new("another one").profile(Profile::readonly()),
    /// ]);
    /// # assert!(server.build().is_ok());
    /// ```
    #[doc(alias("authentication", "bearer"))]
    tokens / set_tokens (tokens: impl IntoIterator<Item = impl Into<Token>>) |guards| guards.set_tokens(tokens);

    /// Sets the API keys (`X-API-Key` or `Authorization: Bearer`) that authenticate callers: a list, or a function that
    /// verifies them.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # use toolgate::guard::ApiKeys;
    /// let server = Server::new("shop", "1.0.0").api_keys(ApiKeys::provider(|key, request| {
    ///     key == "k-123" && request.method() != Some("tools/call")
    /// }));
    /// # assert!(server.build().is_ok());
    /// ```
    #[doc(alias("authentication", "X-API-Key"))]
    api_keys / set_api_keys (keys: ApiKeys) |guards| guards.set_api_keys(Some(keys));

    /// Accepts a request if any one of the configured kinds of credentials is valid. By default, all of them are required;
    /// passwords and tokens cannot be required together, because both use the `Authorization` header.
    any_credential / set_any_credential () |guards| { guards.mode = CredentialMode::Any; Ok(()) };

    /// Sets the security headers of every response. There are seven by default; see [`SecurityHeaders`].
    security_headers / set_security_headers (headers: SecurityHeaders) |guards| guards.set_headers(headers);
}

impl Server {
    /// Makes the guards reject every request, because the setting `what` failed.
    pub(crate) fn reject_all(&self, what: &'static str) {
        let mut guards = Guards::clone(&self.0.guards.load());
        guards.record_setting(what, false);
        self.0.guards.store(Arc::new(ShardedArc::new(guards)));
    }

    fn update_guards(
        &self,
        what: &'static str,
        change: impl FnOnce(&mut Guards) -> Result<(), String>,
    ) -> Server {
        self.update_guards_boxed(what, Box::new(change))
    }

    fn update_guards_boxed(&self, what: &'static str, change: GuardChange<'_>) -> Server {
        // The lock serializes changes: two concurrent ones would start from the same guards, and one would be lost.
        let changed = {
            let _lock = self.0.config_errors.lock().unwrap_or_else(PoisonError::into_inner);
            let mut guards = Guards::clone(&self.0.guards.load());
            // Only this setting is validated here. Whether all settings fit together is checked before serving,
            // because a chain of setters may not be complete yet.
            let changed = change(&mut guards);
            // Fail closed: a failed setting rejects all requests until it succeeds.
            guards.record_setting(what, changed.is_ok());
            self.0.guards.store(Arc::new(ShardedArc::new(guards)));
            changed
        };
        self.record_error(
            changed.map_err(|error| Error::new(ErrorKind::InvalidConfig, format!("{what}: {error}"))),
        )
    }

    /// Returns the CORS origins as they were configured.
    #[must_use]
    pub fn cors_allowed_origins(&self) -> Vec<String> {
        self.0.guards.load().cors.allowed_origins()
    }

    /// Returns whether web pages of this origin may read responses.
    #[must_use]
    pub fn is_cors_allowed(&self, origin: &str) -> bool {
        self.0.guards.load().cors.is_allowed(origin)
    }

    /// Returns the maximum size of a request body in bytes; 0 if it is not limited separately.
    #[must_use]
    pub fn body_limit(&self) -> usize {
        self.0.guards.load().body_limit.unwrap_or_default()
    }

    /// Returns the IP addresses and networks from which requests are accepted; empty if all are.
    #[must_use]
    pub fn allowed_ips(&self) -> Vec<String> {
        self.0.guards.load().addresses.list()
    }

    /// Accepts requests from all IP addresses again.
    pub fn clear_allowed_ips(&self) -> Server {
        self.update_guards("clear_allowed_ips", |guards| {
            guards.addresses.clear();
            Ok(())
        })
    }

    /// Returns whether requests from this IP address are accepted.
    #[must_use]
    pub fn verify_client_ip(&self, address: &str) -> bool {
        self.0.guards.load().addresses.allows(address)
    }

    /// Returns whether basic authentication is on.
    #[must_use]
    pub fn has_basic_auth(&self) -> bool {
        self.0.guards.load().has_users()
    }

    /// Returns whether this value of an `Authorization` header contains a known user and the right password. Verifying an
    /// Argon2 hash takes as long here as in a request.
    #[must_use]
    pub fn verify_basic_auth(&self, authorization: &str) -> bool {
        self.0.guards.load().users.verify(authorization)
    }

    /// Returns whether API keys are required.
    #[must_use]
    pub fn has_api_key_provider(&self) -> bool {
        self.0.guards.load().api_keys().is_some()
    }

    /// Returns whether this API key is valid for this request. Without configured keys, every key is.
    pub async fn verify_api_key(&self, key: &str, request: &KeyRequest) -> bool {
        let guards = self.0.guards.load_full();
        match guards.api_keys() {
            Some(keys) => keys.verify(key, request).await,
            None => true,
        }
    }
}
