//! Applies the settings of a server: limits, guards and credentials.

use toolgate::guard::{ApiKeys, SecurityHeaders, Token};
use toolgate::{Builder, Principal, Profile};

use super::ServeMode;
use crate::config::{Credential, Server, Tool};

/// The default of `Builder::result_limit`.
const DEFAULT_RESULT_LIMIT: usize = 16 << 20;

/// Applies the settings of a server to its builder. Guards and credentials apply to HTTP only.
pub(super) fn apply_settings(builder: Builder, server: &Server, mode: ServeMode) -> Builder {
    let settings = &server.settings;
    let max_body_bytes = usize::try_from(settings.max_body_bytes).unwrap_or(usize::MAX);
    let mut builder = builder
        .page_size(settings.page_size)
        .handler_timeout(settings.timeout)
        .shutdown_timeout(settings.shutdown_timeout)
        .message_limit(max_body_bytes);
    if let Some(limit) = settings.response_limit {
        // Applies to encoded results, which have structured output twice and escaped texts; `limits` has enforced the exact
        // limit before.
        builder = builder.result_limit(limit.max_bytes.saturating_mul(8).max(DEFAULT_RESULT_LIMIT));
    }
    if settings.strict_arguments {
        builder = builder.strict_arguments();
    }
    if !settings.sessions {
        builder = builder.stateless();
    }
    if !settings.stats {
        builder = builder.statistics(false);
    }
    if let Some(profile) = &settings.profile {
        builder = builder.visible(profile.clone());
    }
    match mode {
        ServeMode::Local => builder,
        ServeMode::Http => add_credentials(apply_guards(builder, server, max_body_bytes), server),
    }
}

fn apply_guards(mut builder: Builder, server: &Server, max_body_bytes: usize) -> Builder {
    let settings = &server.settings;
    if let Some(url) = &settings.public_url {
        builder = builder.public_url(url);
    }
    for host in &settings.hosts {
        builder = builder.allow_host(host);
    }
    if !settings.security_headers {
        builder = builder.security_headers(SecurityHeaders::none());
    }
    builder = builder
        .trust_proxies(settings.trusted_proxies.clone())
        .client_address_header(&settings.client_address_header)
        .allow_ips(settings.ip_allow.clone())
        .cors(settings.cors_origins.clone())
        .cors_max_age(settings.cors_max_age)
        .legacy_sse(settings.legacy_sse)
        .body_limit(max_body_bytes)
        .any_credential();
    if let Some(rate) = settings.rate_per_ip {
        builder = builder.rate_per_ip(rate);
    }
    if let Some(rate) = settings.rate_per_principal {
        builder = builder.rate_per_principal(rate);
    }
    builder
}

fn add_credentials(mut builder: Builder, server: &Server) -> Builder {
    let settings = &server.settings;
    for user in &settings.users {
        builder = add_user(builder, user, server);
    }
    for credential in settings.tokens.iter().chain(&settings.api_keys) {
        if let (Some(name), Some(rate)) = (&credential.subject, credential.quota) {
            builder = builder.rate_of(name, rate);
        }
    }
    let token = |credential: &Credential| token(credential, server);
    if !settings.tokens.is_empty() {
        builder = builder.tokens(settings.tokens.iter().map(token).collect::<Vec<Token>>());
    }
    if !settings.api_keys.is_empty() {
        let keys = ApiKeys::list(settings.api_keys.iter().map(token).collect::<Vec<Token>>());
        builder = builder.api_keys(keys);
    }
    builder
}

fn token(credential: &Credential, server: &Server) -> Token {
    let mut token = Token::new(&credential.secret).attribute("scopes", credential.scopes.clone());
    for (name, value) in &credential.attributes {
        token = token.attribute(name, value.clone());
    }
    if let Some(subject) = &credential.subject {
        token = token.subject(subject);
    }
    match visible_profile(credential, server) {
        Some(profile) => token.profile(profile),
        None => token,
    }
}

fn add_user(builder: Builder, user: &Credential, server: &Server) -> Builder {
    let name = user.subject.as_deref().unwrap_or_default();
    let id = format!("user:{name}");
    let mut principal = Principal::new(id.as_str()).with_attribute("scopes", user.scopes.clone());
    for (name, value) in &user.attributes {
        principal = principal.with_attribute(name, value.clone());
    }
    if let Some(profile) = visible_profile(user, server) {
        principal = principal.with_profile(profile);
    }
    let builder = builder.basic_user(name, &user.secret, principal);
    match user.quota {
        Some(rate) => builder.rate_of(&id, rate),
        None => builder,
    }
}

/// The profile of a credential, without the tools whose scopes the holder lacks. `None` if everything is visible.
fn visible_profile(credential: &Credential, server: &Server) -> Option<Profile> {
    let lacks = |tool: &&Tool| !tool.scopes.iter().all(|scope| credential.scopes.contains(scope));
    let hidden: Vec<&str> = server.tools.iter().filter(lacks).map(|tool| tool.name.as_str()).collect();
    match (&credential.profile, hidden.is_empty()) {
        (None, true) => None,
        (None, false) => Some(Profile::new("scopes").exclude_tools(hidden)),
        (Some(profile), _) => Some(profile.clone().exclude_tools(hidden)),
    }
}
