//! Users of a WordPress site, who come in with application passwords: the site itself says who they are.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use toolgate::{BasicAuthProvider, LoginError, Principal};

use crate::config::WordPress;
use crate::source::http::HttpClient;

/// Who is it? Only whoever logged in is told, and with all that they may do.
const CURRENT_USER_PATH: &str = "/wp/v2/users/me?context=edit";

/// The largest description of a user that is read.
const MAX_USER_BYTES: usize = 256 * 1024;

/// Asks the site about everybody.
pub(super) fn basic_auth_provider(about: &WordPress, site: Arc<HttpClient>) -> BasicAuthProvider {
    let capability = about.capability.clone();
    let logins = BasicAuthProvider::provider(move |user: String, password: String, _| {
        let (site, capability) = (Arc::clone(&site), capability.clone());
        async move { login(&site, &user, &password, capability.as_deref()).await }
    });
    logins.cache_ttl(about.cache_ttl)
}

/// Who this is. Which of the two is wrong, and whether there is such a user, is told to nobody.
async fn login(
    site: &HttpClient,
    user: &str,
    password: &str,
    capability: Option<&str>,
) -> Result<Principal, LoginError> {
    let authorization = basic_authorization(user, password);
    let (status, body) = site
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
    // A success alone proves nothing: something between us may have answered with somebody else's.
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

/// Application passwords are shown in groups of four; the blanks are not part of them.
pub(super) fn basic_authorization(user: &str, password: &str) -> String {
    let password: String = password.chars().filter(|letter| !letter.is_whitespace()).collect();
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// A user, as the site describes them.
struct WordPressUser {
    id: u64,
    username: String,
    email: String,
    name: String,
    roles: Vec<String>,
    capabilities: Vec<String>,
}

impl WordPressUser {
    /// None if this is no user who has logged in.
    fn parse(told: &Value) -> Option<WordPressUser> {
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        let roles = told["roles"].as_array().into_iter().flatten();
        // An empty table is a list, in PHP.
        let capabilities = told["capabilities"].as_object().into_iter().flatten();
        let granted = |(name, is_granted): (&String, &Value)| {
            let is_granted = is_granted.as_bool().unwrap_or(is_granted == 1 || is_granted == "1");
            is_granted.then(|| name.clone())
        };
        Some(WordPressUser {
            id: told["id"].as_u64().filter(|id| *id > 0)?,
            username: Some(text("username")).filter(|user| !user.is_empty())?,
            email: text("email"),
            name: text("name"),
            roles: roles.filter_map(Value::as_str).map(str::to_owned).collect(),
            capabilities: capabilities.filter_map(granted).collect(),
        })
    }

    /// By the name or the address that people log in with.
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

/// Logs in as the user of the file, and says what a caller would meet. Nothing: all is well.
pub(super) async fn probe(about: &WordPress, site: &HttpClient) -> Result<(), String> {
    let Some((user, password)) = &about.probe_login else {
        return site.probe().await;
    };
    let who = login(site, user, password, about.capability.as_deref()).await;
    // Here, why it could not be checked is no secret.
    let who = who.map_err(|error| {
        format!(
            "logging in as {user}: {error}{}",
            error.reason().map(|why| format!(": {why}")).unwrap_or_default()
        )
    })?;
    let id = who.attribute("id").and_then(Value::as_u64).unwrap_or_default();
    let authorization = basic_authorization(user, password);
    let mut told = HashMap::new();
    for (name, path) in [
        ("member", "/buddyboss/v1/members/me".to_owned()),
        ("notices", format!("/buddyboss/v1/notifications?user_id={id}&per_page=1")),
    ] {
        told.insert(name, site.get_with_authorization(&path, &authorization, MAX_USER_BYTES).await?.0);
    }
    match (told["member"], told["notices"]) {
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
    fn blanks_in_application_passwords_do_not_count() {
        assert_eq!(basic_authorization("admin", "ab cd ef"), basic_authorization("admin", "abcdef"));
        assert_eq!(basic_authorization("a", "b"), "Basic YTpi");
    }

    #[test]
    fn only_whoever_is_described_has_logged_in() {
        let told = json!({
            "id": 7, "username": "Ada", "email": "ada@example.com", "name": "Ada L.", "roles": ["editor"],
            "capabilities": { "read": true, "manage_options": false, "level_1": 1 }
        });
        let me = WordPressUser::parse(&told).unwrap();
        assert!(
            me.matches_login("ada")
                && me.matches_login("ADA@example.com")
                && !me.matches_login("bob")
                && !me.matches_login("")
        );
        assert_eq!(me.capabilities, ["read", "level_1"]);
        let who = me.into_principal();
        assert_eq!((who.id(), who.attribute("id")), (Some("wordpress:7"), Some(&json!(7))));
        for stranger in
            [json!({}), json!({ "id": 0, "username": "x" }), json!({ "id": 7 }), json!([]), json!("7")]
        {
            assert!(WordPressUser::parse(&stranger).is_none(), "{stranger}");
        }
        let empty = json!({ "id": 7, "username": "x", "capabilities": [] });
        assert!(WordPressUser::parse(&empty).unwrap().capabilities.is_empty());
    }
}
