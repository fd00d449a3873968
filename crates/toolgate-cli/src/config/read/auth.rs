//! Reads credentials.

use super::{ConfigReader, is_loopback};
use crate::config::diagnostics::Span;
use crate::config::items::Tool;
use crate::config::keys;
use crate::config::server::{Credential, ServerSettings, WordPress};
use crate::config::table_view::TableView;
use crate::config::tree::Node;

impl ConfigReader<'_> {
    /// Adds the credentials of each table of `[auth]` that a server names.
    pub(super) fn add_auth(&mut self, node: &Node, settings: &mut ServerSettings) {
        let Some(auth) = node.get("auth") else { return };
        let known = self.named("auth");
        let names = if auth.as_text().is_some() { std::slice::from_ref(auth) } else { auth.items() };
        for item in names {
            let Some(name) = item.as_text() else { continue };
            let Some(auth) = known.get(name) else {
                self.report_unknown_name(item.span, name, "auth", &known);
                continue;
            };
            for user in auth.get("basic").map(Node::items).unwrap_or_default() {
                settings.users.extend(self.user_credential(user));
            }
            if let Some(site) = auth.get("wordpress") {
                self.add_wordpress(name, site, item.span, settings);
            }
            for token in auth.get("bearer").map(Node::items).unwrap_or_default() {
                settings.tokens.extend(self.credential(token, "token", "subject"));
            }
            for key in auth.get("api_keys").map(Node::items).unwrap_or_default() {
                settings.api_keys.extend(self.credential(key, "key", "id"));
            }
        }
    }

    pub(super) fn check_auth(&mut self, node: &Node, settings: &ServerSettings, tools: &[Tool]) {
        if settings.wordpress.is_some() && !settings.users.is_empty() {
            let message =
                "`basic` and `wordpress` cannot be used together: both check `Authorization: Basic`";
            self.diagnostics.report(node.span_at("auth"), message);
        }
        // Users of a WordPress site have no scopes.
        let has_scopes =
            !settings.users.is_empty() || !settings.tokens.is_empty() || !settings.api_keys.is_empty();
        if let Some(tool) = tools.iter().find(|tool| !tool.scopes.is_empty() && !has_scopes) {
            let message = "`scopes` requires `auth` on the server, with users, tokens or API keys";
            self.diagnostics.report(tool.node.span_at("scopes"), message);
        }
    }

    fn add_wordpress(&mut self, name: &str, node: &Node, span: Span, settings: &mut ServerSettings) {
        let Some(url) = node.text("url") else { return };
        let table = TableView::new(Some(node), &keys::WORDPRESS);
        let plain_host =
            url.strip_prefix("http://").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        if !plain_host.is_none_or(is_loopback) && !table.flag("insecure") {
            let message = "passwords would be sent without TLS; use `https://`, or set `insecure = true`";
            self.diagnostics.report(node.span_at("url"), message);
        }
        if settings.wordpress.is_some() {
            self.diagnostics.report(span, "a server can use only one `wordpress` site");
        }
        if let (Some(_), None) | (None, Some(_)) = (node.get("user"), node.get("password")) {
            self.diagnostics.report(node.span, "`user` and `password` must be set together");
        }
        settings.wordpress = Some(WordPress {
            name: name.to_owned(),
            url: url.trim_end_matches('/').to_owned(),
            capability: node.text("capability"),
            cache_ttl: table.duration("cache"),
            probe_login: node.text("user").zip(node.text("password")),
            node: node.clone(),
        });
    }

    fn user_credential(&mut self, node: &Node) -> Option<Credential> {
        let user = node.text("user")?;
        if user.is_empty() || user.contains(':') {
            self.diagnostics
                .report(node.span_at("user"), "`user` must not be empty and must not contain `:`");
            return None;
        }
        if let Some(hash) = node.get("hash")
            && !hash.as_text().is_none_or(is_argon2_hash)
        {
            let message = "`hash` must be an Argon2 hash; create one with `toolgate hash-password`";
            self.diagnostics.report(hash.span, message);
            return None;
        }
        let secret = node.text("hash").or_else(|| node.text("password"))?;
        Some(self.build_credential(node, secret, Some(user)))
    }

    /// Reads a token or an API key. `secret` and `subject` are the keys of the secret and of the holder's name.
    fn credential(&mut self, node: &Node, secret: &str, subject: &str) -> Option<Credential> {
        if let Some(text) = node.as_text() {
            return Some(self.build_credential(&Node::empty(), text.to_owned(), None));
        }
        let digest = node.text("sha256");
        if let Some(digest) = &digest
            && (digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            self.diagnostics.report(
                node.span_at("sha256"),
                "`sha256` must be 64 hex digits; compute it with `printf %s KEY | sha256sum`",
            );
            return None;
        }
        let secret = digest.map(|digest| format!("sha256:{digest}")).or_else(|| node.text(secret))?;
        if let (Some(quota), None) = (node.get("quota"), node.get(subject)) {
            self.diagnostics.report(quota.span, format!("`quota` requires `{subject}`"));
        }
        Some(self.build_credential(node, secret, node.text(subject)))
    }

    fn build_credential(&mut self, node: &Node, secret: String, subject: Option<String>) -> Credential {
        let attributes = node.entries_of("attributes").iter();
        Credential {
            secret,
            subject,
            scopes: node.texts("scopes"),
            profile: node.get("profile").and_then(|profile| self.resolve_profile(profile)),
            attributes: attributes.map(|entry| (entry.key.clone(), entry.node.to_json())).collect(),
            quota: node.text("quota").and_then(|quota| quota.parse().ok()),
        }
    }
}

fn is_argon2_hash(text: &str) -> bool {
    text.starts_with("$argon2id$") && argon2::password_hash::phc::PasswordHash::new(text).is_ok()
}
