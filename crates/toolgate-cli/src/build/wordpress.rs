//! Authenticates users of a WordPress site with application passwords, which the site verifies.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use toolgate::Principal;
use toolgate::guard::{BasicAuthProvider, LoginError};
use toolgate_sources::source::http::HttpClient;

use crate::config::WordPress;

/// Returns the authenticated user, with capabilities.
const CURRENT_USER_PATH: &str = "/wp/v2/users/me?context=edit";

/// Maximum size of a response about a user.
const MAX_USER_BYTES: usize = 256 * 1024;

/// Verifies logins with the site.
pub(super) fn basic_auth_provider(site: &WordPress, client: Arc<HttpClient>) -> BasicAuthProvider {
    let capability = site.capability.clone();
    let provider = BasicAuthProvider::provider(move |user: String, password: String, _| {
        let (client, capability) = (Arc::clone(&client), capability.clone());
        async move { login(&client, &user, &password, capability.as_deref()).await }
    });
    provider.cache_ttl(site.cache_ttl)
}

/// Logs in to the site. The error does not reveal whether the user or the password is wrong.
async fn login(
    client: &HttpClient,
    user: &str,
    password: &str,
    capability: Option<&str>,
) -> Result<Principal, LoginError> {
    let authorization = basic_authorization(user, password);
    let (status, body) = client
        .get_with_authorization(CURRENT_USER_PATH, &authorization, MAX_USER_BYTES)
        .await
        .map_err(LoginError::unavailable)?;
    match status {
        200 => {}
        401 | 403 => return Err(LoginError::wrong()),
        other => {
            return Err(LoginError::unavailable(format!(
                "the site answered {other} to the request for the current user"
            )));
        }
    }
    let me: Value = serde_json::from_slice(&body)?;
    let me = WordPressUser::parse(&me)
        .ok_or_else(|| LoginError::unavailable("the site did not return the current user"))?;
    // The status alone proves nothing: a cache between us and the site may have answered with another user.
    if !me.matches_login(user) {
        return Err(LoginError::wrong());
    }
    match capability {
        Some(needed) if !me.capabilities.iter().any(|known| known == needed) => {
            Err(LoginError::forbidden("Insufficient permissions."))
        }
        _ => Ok(me.into_principal()),
    }
}

/// WordPress shows application passwords in groups of four; the spaces are not part of them.
pub(super) fn basic_authorization(user: &str, password: &str) -> String {
    let password: String = password.chars().filter(|character| !character.is_whitespace()).collect();
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// A user in the format of the WordPress REST API.
struct WordPressUser {
    id: u64,
    username: String,
    email: String,
    name: String,
    roles: Vec<String>,
    capabilities: Vec<String>,
}

impl WordPressUser {
    /// Returns `None` if the response is not that of an authenticated user.
    fn parse(user_json: &Value) -> Option<WordPressUser> {
        let text = |key: &str| user_json[key].as_str().unwrap_or_default().to_owned();
        let roles = user_json["roles"].as_array().into_iter().flatten();
        // PHP encodes an empty table as a list, which has no members.
        let capabilities = user_json["capabilities"].as_object().into_iter().flatten();
        let granted = |(name, is_granted): (&String, &Value)| {
            let is_granted = is_granted.as_bool().unwrap_or(is_granted == 1 || is_granted == "1");
            is_granted.then(|| name.clone())
        };
        Some(WordPressUser {
            id: user_json["id"].as_u64().filter(|id| *id > 0)?,
            username: Some(text("username")).filter(|user| !user.is_empty())?,
            email: text("email"),
            name: text("name"),
            roles: roles.filter_map(Value::as_str).map(str::to_owned).collect(),
            capabilities: capabilities.filter_map(granted).collect(),
        })
    }

    /// Whether this is the user who logs in with a user name or an email address.
    fn matches_login(&self, user: &str) -> bool {
        let user = user.trim().to_lowercase();
        user == self.username.to_lowercase() || (!self.email.is_empty() && user == self.email.to_lowercase())
    }

    fn into_principal(self) -> Principal {
        Principal::new(format!("wordpress:{}", self.id))
            .with_attribute("id", self.id)
            .with_attribute("user", self.username)
            .with_attribute("name", self.name)
            .with_attribute("roles", self.roles)
            .with_attribute("capabilities", self.capabilities)
    }
}

/// Logs in as the user of the configuration and checks the API that the pack `buddyboss` uses.
pub(super) async fn probe(site: &WordPress, client: &HttpClient) -> Result<(), String> {
    let Some((user, password)) = &site.probe_login else {
        return client.probe().await;
    };
    let principal = login(client, user, password, site.capability.as_deref()).await;
    // Unlike callers, the operator may see the reason.
    let principal = principal.map_err(|error| {
        format!(
            "logging in as {user}: {error}{}",
            error.reason().map(|reason| format!(": {reason}")).unwrap_or_default()
        )
    })?;
    let id = principal.attribute("id").and_then(Value::as_u64).unwrap_or_default();
    let authorization = basic_authorization(user, password);
    let mut statuses = HashMap::new();
    for (name, path) in [
        ("member", "/buddyboss/v1/members/me".to_owned()),
        ("notices", format!("/buddyboss/v1/notifications?user_id={id}&per_page=1")),
    ] {
        statuses.insert(name, client.get_with_authorization(&path, &authorization, MAX_USER_BYTES).await?.0);
    }
    match (statuses["member"], statuses["notices"]) {
        (404, _) => Err("BuddyBoss is not installed or not active on the site (`rest_no_route`)".into()),
        (200, 401 | 403) => Err(
            "the community part of the site rejects application passwords, because it checks the user before \
             WordPress does; the guide `wordpress` has a filter that fixes this"
                .into(),
        ),
        (200, _) => Ok(()),
        (status, _) => Err(format!("the site answered {status} to the request for the member {user}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spaces_in_application_passwords_are_ignored() {
        assert_eq!(basic_authorization("admin", "ab cd ef"), basic_authorization("admin", "abcdef"));
        assert_eq!(basic_authorization("a", "b"), "Basic YTpi");
    }

    #[test]
    fn only_the_user_in_the_response_is_logged_in() {
        let user_json = json!({
            "id": 7, "username": "Ada", "email": "ada@example.com", "name": "Ada L.", "roles": ["editor"],
            "capabilities": { "read": true, "manage_options": false, "level_1": 1 }
        });
        let me = WordPressUser::parse(&user_json).unwrap();
        assert!(
            me.matches_login("ada")
                && me.matches_login("ADA@example.com")
                && !me.matches_login("bob")
                && !me.matches_login("")
        );
        assert_eq!(me.capabilities, ["read", "level_1"]);
        let who = me.into_principal();
        assert_eq!((who.id(), who.attribute("id")), (Some("wordpress:7"), Some(&json!(7))));
        for response in
            [json!({}), json!({ "id": 0, "username": "x" }), json!({ "id": 7 }), json!([]), json!("7")]
        {
            assert!(WordPressUser::parse(&response).is_none(), "{response}");
        }
        let empty = json!({ "id": 7, "username": "x", "capabilities": [] });
        assert!(WordPressUser::parse(&empty).unwrap().capabilities.is_empty());
    }
}
