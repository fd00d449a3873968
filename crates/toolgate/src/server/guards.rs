//! Who may call a server: the same settings for a description and for a server that runs.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, PendingItem, Server};
use crate::error::{BuildProblem, Error, ErrorKind};
use crate::guard::{
    ApiKeys, BasicAuthProvider, CredentialMode, Guards, IntoStrings, KeyRequest, Rate, SecurityHeaders, Token,
};
use crate::request::Principal;
use crate::util::sharded::ShardedArc;

/// A change of who may call; says what is wrong with it.
type GuardChange<'a> = Box<dyn FnOnce(&mut Guards) -> Result<(), String> + 'a>;

/// One setting, said three times: what it does, how it is written on a description, how on a running server.
macro_rules! guard_settings {
    ($(
        $(#[$doc:meta])*
        $builder:ident / $server:ident ($($argument:ident: $type:ty),*) |$guards:ident| $set:expr;
    )*) => {
        impl<L: PendingItem> Builder<L> {
            $($(#[$doc])*
            pub fn $builder(self, $($argument: $type),*) -> Builder<L> {
                self.configure(|parts| {
                    let $guards = &mut parts.guards;
                    let checked: Result<(), String> = $set;
                    let problem = checked.err().map(|message| BuildProblem::setting(stringify!($builder), message));
                    parts.errors.extend(problem);
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
    /// The address that clients know the server by, where that is not this machine: its host is served,
    /// and pages of its origin may call it.
    public_url / set_public_url (url: &str) |guards| guards.hosts.allow_url(url);

    /// Also serves requests for this host, on any port.
    allow_host / add_allowed_host (host: &str) |guards| guards.hosts.allow_host(host);

    /// Also serves pages of this origin, for example `https://app.example.com`.
    allow_origin / add_allowed_origin (origin: &str) |guards| guards.hosts.allow_origin(origin);

    /// Pages of these origins may call the server and read its answers: exact ones (`https://app.example.com`), all
    /// below a domain (`*.example.com`, which is not `example.com` itself), or all (`*`). Replaces what was said before.
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
    cors / with_cors (origins: impl IntoStrings) |guards| guards.cors.set(origins);

    /// Pages of one more origin may call the server and read its answers.
    add_cors_origin / add_cors_origin (origin: &str) |guards| guards.cors.add(origin);

    /// Where every origin may read answers, says so with a literal `*` instead of the origin that asks.
    literal_wildcard / set_literal_wildcard () |guards| { guards.cors.set_literal_wildcard(true); Ok(()) };

    /// How long browsers remember what pages may do, instead of a day; whole seconds.
    cors_max_age / set_cors_max_age (age: Duration) |guards| { guards.cors.set_max_age(age); Ok(()) };

    /// Bodies of requests have at most so many bytes, and are else answered 413; 0 is no limit of this kind. The limit for
    /// messages on every transport (`message_limit`) holds beside it.
    body_limit / set_body_limit (bytes: usize) |guards| { guards.set_body_limit(bytes); Ok(()) };

    /// Only these addresses and networks (`10.0.0.0/8`, `::1`) are served, others are answered 403; an empty list serves
    /// everybody. Behind a proxy see `trust_proxies`; behind a router of yours a layer has to say the address
    /// ([`RemoteAddr`](crate::Remote)), or nobody is served.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").allow_ips(["10.0.0.0/8", "::1"]).build()?;
    /// assert!(server.verify_client_ip("10.1.2.3") && !server.verify_client_ip("192.0.2.1"));
    /// # Ok(())
    /// # }
    /// ```
    allow_ips / set_allowed_ips (addresses: impl IntoStrings) |guards| guards.addresses.set(addresses);

    /// One more address or network is served.
    allow_ip / add_allowed_ip (address: &str) |guards| guards.addresses.add(address);

    /// What these proxies say of where a request comes from (`X-Forwarded-For` and its like) and whether it came over TLS
    /// (`X-Forwarded-Proto`) is believed. From all others such headers are ignored.
    trust_proxies / set_trusted_proxies (addresses: impl IntoStrings) |guards| guards.trusted_proxies.set(addresses);

    /// How often one address may call: `Rate::per_minute(600).burst(50)`. What is more is answered 429 with `Retry-After`.
    /// IPv6 addresses count by networks of 64 bits, and all that are not known count as one.
    rate_per_ip / set_rate_per_ip (rate: Rate) |guards| {
        guards.set_rate_per_address(Some(rate));
        Ok(())
    };

    /// How often one caller may call, wherever from; counted for those whose name was proven.
    rate_per_principal / set_rate_per_principal (rate: Rate) |guards| {
        guards.set_rate_per_principal(Some(rate));
        Ok(())
    };

    /// How often the caller of this name may call, instead of what holds for all.
    rate_of / set_rate_of (principal: &str, rate: Rate) |guards| {
        guards.set_rate_for(principal, rate);
        Ok(())
    };

    /// Lets in who knows this user's password, as it is or as an Argon2 hash (`$argon2id$…`). May be called for
    /// several users. An empty user or password is none, and where there is none, nobody is asked. The caller's name
    /// is `user:` and the user.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # fn main() -> Result<(), toolgate::Error> {
    /// let server = Server::new("shop", "1.0.0").basic_auth("ada", "tiger").build()?;
    /// assert!(server.verify_basic_auth("Basic YWRhOnRpZ2Vy"));
    /// # Ok(())
    /// # }
    /// ```
    basic_auth / add_basic_auth (user: &str, password: &str) |guards| {
        guards.users.add(user, password).map(|is_added| {
            if !is_added {
                tracing::warn!("basic auth: without a user and a password nobody is asked for them");
            }
        })
    };

    /// The same as `basic_auth`, for somebody of whom more is known than a name: what they see, and attributes.
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

    /// Lets in users whose passwords a function knows (`Authorization: Basic`): a directory, a website. It says who they
    /// are, what is known of them, and who may not come in; see [`BasicAuthProvider`].
    basic_auth_provider / set_basic_auth_provider (logins: BasicAuthProvider) |guards| { guards.set_basic_auth_provider(Some(logins)); Ok(()) };

    /// Forgets all users, and who knows them: passwords are no longer asked for.
    clear_basic_auth / clear_basic_auth () |guards| {
        guards.users.clear();
        guards.set_basic_auth_provider(None);
        Ok(())
    };

    /// Lets in who has one of these tokens (`Authorization: Bearer`); an empty list, and one of empty texts, asks for none.
    /// Replaces those that were given before.
    ///
    /// ```
    /// # use toolgate::{Profile, Server, Token};
    /// let server = Server::new("shop", "1.0.0").tokens([
    ///     Token::new("a long and random text").subject("ops"),
    ///     Token::new("another one").profile(Profile::readonly()),
    /// ]);
    /// # assert!(server.build().is_ok());
    /// ```
    tokens / set_tokens (tokens: impl IntoIterator<Item = impl Into<Token>>) |guards| guards.set_tokens(tokens);

    /// Lets in who has an API key (`X-API-Key` or `Authorization: Bearer`): one of a list, or one that a function knows.
    ///
    /// ```
    /// # use toolgate::{ApiKeys, Server};
    /// let server = Server::new("shop", "1.0.0").api_keys(ApiKeys::provider(|key, request| {
    ///     key == "k-123" && request.method() != Some("tools/call")
    /// }));
    /// # assert!(server.build().is_ok());
    /// ```
    api_keys / set_api_keys (keys: ApiKeys) |guards| guards.set_api_keys(Some(keys));

    /// Where several kinds of credentials are set up, any one of them is enough. All are needed unless this is said;
    /// passwords and tokens, which come in the same header, cannot both be.
    any_credential / set_any_credential () |guards| { guards.mode = CredentialMode::Any; Ok(()) };

    /// The headers that keep browsers from doing harm, on every answer. There are seven unless this is said.
    security_headers / set_security_headers (headers: SecurityHeaders) |guards| guards.set_headers(headers);
}

impl Server {
    /// From now on nobody is let in.
    pub(crate) fn reject_all(&self, why: &'static str) {
        let mut guards = Guards::clone(&self.0.guards.load());
        guards.record_setting(why, false);
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
        // One change at a time: two that read the same set would lose one of them.
        let changed = {
            let _changing = self.0.config_errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mut guards = Guards::clone(&self.0.guards.load());
            // What does not go together is told when somebody tries to serve: a chain of settings may not be at its
            // end.
            let changed = change(&mut guards);
            // A guard that could not be put up lets nobody in until it can.
            guards.record_setting(what, changed.is_ok());
            self.0.guards.store(Arc::new(ShardedArc::new(guards)));
            changed
        };
        self.record_error(
            changed.map_err(|fault| Error::new(ErrorKind::InvalidConfig, format!("{what}: {fault}"))),
        )
    }

    /// The same as [`Server::with_cors`].
    pub fn set_cors(&self, origins: impl IntoStrings) -> Server {
        self.with_cors(origins)
    }

    /// The origins that may read answers, as they were given.
    #[must_use]
    pub fn cors_allowed_origins(&self) -> Vec<String> {
        self.0.guards.load().cors.allowed_origins()
    }

    /// Whether pages of this origin may read answers.
    #[must_use]
    pub fn is_cors_allowed(&self, origin: &str) -> bool {
        self.0.guards.load().cors.is_allowed(origin)
    }

    /// The most bytes of a request's body; 0 is no limit of this kind.
    #[must_use]
    pub fn body_limit(&self) -> usize {
        self.0.guards.load().body_limit.unwrap_or_default()
    }

    /// The addresses and networks that are served; empty if all are.
    #[must_use]
    pub fn allowed_ips(&self) -> Vec<String> {
        self.0.guards.load().addresses.list()
    }

    /// Serves every address again.
    pub fn clear_allowed_ips(&self) -> Server {
        self.update_guards("clear_allowed_ips", |guards| {
            guards.addresses.clear();
            Ok(())
        })
    }

    /// Whether this address is served.
    #[must_use]
    pub fn verify_client_ip(&self, address: &str) -> bool {
        self.0.guards.load().addresses.allows(address)
    }

    /// Whether passwords are asked for.
    #[must_use]
    pub fn has_basic_auth(&self) -> bool {
        self.0.guards.load().has_users()
    }

    /// Whether this value of an `Authorization` header names a user and the right password. Passwords that are
    /// kept as hashes take as long here as in a request.
    #[must_use]
    pub fn verify_basic_auth(&self, authorization: &str) -> bool {
        self.0.guards.load().users.verify(authorization)
    }

    /// Asks this function about every API key; see [`ApiKeys::provider`].
    pub fn set_api_key_provider<F, V, M>(&self, provider: F) -> Server
    where
        F: Fn(String, KeyRequest) -> V + Send + Sync + 'static,
        V: crate::guard::IntoKeyResult<M>,
    {
        self.set_api_keys(ApiKeys::provider(provider))
    }

    /// Whether API keys are asked for.
    #[must_use]
    pub fn has_api_key_provider(&self) -> bool {
        self.0.guards.load().api_keys().is_some()
    }

    /// Whether this key would be let in with this request. Without keys, everybody is.
    pub async fn verify_api_key(&self, key: &str, request: &KeyRequest) -> bool {
        let guards = self.0.guards.load_full();
        match guards.api_keys() {
            Some(keys) => keys.verify(key, request).await,
            None => true,
        }
    }
}
