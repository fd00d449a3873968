//! A stand-in for a WordPress site, to try the pack `buddyboss`: an in-memory community that responds as a real one does,
//! including its oddities. State is lost when it exits.
//!
//! ```sh
//! cargo run -p toolgate-cli --example wordpress -- --http 127.0.0.1:8088
//! ```
//!
//! Its users, with their application passwords: `admin` (`app-pass`, `abcdef`), `editor` (`pw`), `alice` (`alice-pass`),
//! `bob` (`bob-pass`). `GET /_seen` lists the recorded requests, `DELETE /_seen` clears them, and
//! `POST /_switch` turns features off: `{"community": false}` deactivates the plugin, `{"early_auth": false}` behaves like
//! a site that checks application passwords only after the plugin has determined the current user.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

/// Id, name, application passwords, role, and whether the user is an administrator.
const USERS: [(u64, &str, &[&str], &str, bool); 4] = [
    (1, "admin", &["app-pass", "abcdef"], "administrator", true),
    (2, "editor", &["pw"], "editor", false),
    (3, "alice", &["alice-pass"], "author", false),
    (4, "bob", &["bob-pass"], "author", false),
];

/// Paths of the collections, and the error code for an unknown id.
const LISTS: [(&str, &str); 22] = [
    ("members", "bp_rest_member_invalid_id"),
    ("groups", "bp_rest_group_invalid_id"),
    ("activity", "bp_rest_invalid_id"),
    ("messages", "bp_rest_invalid_id"),
    ("friends", "bp_rest_invalid_id"),
    ("notifications", "bp_rest_invalid_id"),
    ("xprofile/groups", "bp_rest_invalid_id"),
    ("xprofile/fields", "bp_rest_invalid_id"),
    ("media", "bp_rest_media_invalid_id"),
    ("media/albums", "bp_rest_album_invalid_id"),
    ("video", "bp_rest_video_invalid_id"),
    ("document", "bp_rest_document_invalid_id"),
    ("document/folder", "bp_rest_folder_invalid_id"),
    ("moderation", "bp_rest_invalid_id"),
    ("forums", "bp_rest_forum_invalid_id"),
    ("topics", "bp_rest_topic_invalid_id"),
    ("reply", "bp_rest_reply_invalid_id"),
    ("user-reactions", "bp_rest_invalid_id"),
    ("invites", "bp_rest_invalid_id"),
    ("subscriptions", "bp_rest_invalid_id"),
    ("groups/invites", "bp_rest_invalid_id"),
    ("groups/membership-requests", "bp_rest_invalid_id"),
];

/// Collections that need a login.
const PRIVATE_LISTS: [&str; 7] = [
    "messages",
    "friends",
    "notifications",
    "groups/invites",
    "groups/membership-requests",
    "invites",
    "moderation",
];

/// Required fields to create an item.
const REQUIRED_FIELDS: [(&str, &[&str]); 8] = [
    ("members", &["user_login", "password", "email"]),
    ("groups", &["name", "description"]),
    ("friends", &["initiator_id", "friend_id"]),
    ("moderation", &["item_id", "type"]),
    ("media", &["upload_ids"]),
    ("document", &["document_ids"]),
    ("topics", &["parent", "title"]),
    ("reply", &["topic_id", "content"]),
];

type SiteResponse = Response<Full<Bytes>>;

struct Site {
    lists: BTreeMap<&'static str, Vec<Value>>,
    requests: Vec<Value>,
    next_id: u64,
    /// True if the plugin is active.
    is_community_active: bool,
    /// True if application passwords are checked before the plugin determines the current user.
    has_early_auth: bool,
}

/// The parts of a request that routing needs.
struct RouteRequest<'a> {
    method: &'a Method,
    /// Path after the namespace, without leading and trailing slashes.
    path: &'a str,
    query: &'a BTreeMap<String, String>,
    body: &'a Map<String, Value>,
    user: Option<usize>,
}

impl Site {
    fn new() -> Site {
        let mut lists: BTreeMap<&'static str, Vec<Value>> =
            LISTS.iter().map(|(path, _)| (*path, Vec::new())).collect();
        let display_name = |name: &str| if name == "admin" { "John Doe" } else { name }.to_owned();
        let members = USERS.iter().map(|(id, name, ..)| {
            json!({ "id": id, "name": display_name(name), "user_login": name, "mention_name": name })
        });
        let jane =
            json!({ "id": 42, "name": "Jane Smith", "email": "jane@example.com", "user_login": "jane" });
        lists.insert("members", members.chain([jane]).collect());
        let mut site = Site {
            lists,
            requests: Vec::new(),
            next_id: 100,
            is_community_active: true,
            has_early_auth: true,
        };
        site.add("groups", json!({ "name": "Gardeners", "status": "public", "creator_id": 3 }));
        site.add(
            "activity",
            json!({ "content": { "rendered": "Hello" }, "user_id": 3, "component": "activity" }),
        );
        site.add("notifications", json!({ "user_id": 1, "component": "messages", "is_new": 1 }));
        site.add("messages", json!({ "subject": { "rendered": "Welcome" }, "sender_id": 3, "unread": true }));
        site.add("xprofile/groups", json!({ "name": "Base" }));
        site.add("xprofile/fields", json!({ "name": "City", "group_id": 1 }));
        site.add("forums", json!({ "title": { "rendered": "Plants" } }));
        site.add("topics", json!({ "title": { "rendered": "Roses" }, "parent": 1 }));
        for path in ["media", "video", "document", "document/folder", "reply", "friends"] {
            site.add(path, json!({ "title": path }));
        }
        site
    }

    fn add(&mut self, list: &'static str, value: Value) -> Value {
        self.next_id += 1;
        let mut value = value;
        value["id"] = json!(self.next_id);
        self.lists.entry(list).or_default().push(value.clone());
        value
    }

    fn respond(
        &mut self,
        method: &Method,
        path: &str,
        query: &BTreeMap<String, String>,
        headers: &HeaderMap,
        bytes: &[u8],
    ) -> SiteResponse {
        match (method.as_str(), path) {
            ("GET", "/_seen") => return json_response(200, &json!(self.requests)),
            ("DELETE", "/_seen") => {
                self.requests.clear();
                return json_response(200, &json!([]));
            }
            ("POST", "/_switch") => {
                let switches: Value = serde_json::from_slice(bytes).unwrap_or_default();
                self.is_community_active =
                    switches["community"].as_bool().unwrap_or(self.is_community_active);
                self.has_early_auth = switches["early_auth"].as_bool().unwrap_or(self.has_early_auth);
                return json_response(
                    200,
                    &json!({ "community": self.is_community_active, "early_auth": self.has_early_auth }),
                );
            }
            _ => {}
        }
        let is_multipart = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/form-data"));
        let credentials = login(headers);
        let body = match serde_json::from_slice(bytes) {
            Ok(Value::Object(body)) => body,
            _ if bytes.is_empty() || is_multipart => Map::new(),
            _ => return error_response(400, "rest_invalid_json", "Invalid JSON body passed."),
        };
        self.requests.push(json!({
            "method": method.as_str(), "path": path, "query": query, "body": body, "bytes": bytes.len(),
            "user": credentials.as_ref().map(|(user, _)| user),
        }));
        let me = match &credentials {
            None => None,
            Some((user, password)) => {
                let Some(found) = USERS.iter().position(|known| known.1 == *user) else {
                    let message = format!(
                        "<strong>Error:</strong> The username <strong>{user}</strong> is not registered on this site."
                    );
                    return error_response(401, "invalid_username", &message);
                };
                if !USERS[found].2.contains(&password.as_str()) {
                    return error_response(
                        401,
                        "incorrect_password",
                        "The provided password is an invalid application password.",
                    );
                }
                Some(found)
            }
        };
        let Some(path) = path.strip_prefix("/wp-json") else { return html_page(404) };
        match path.trim_matches('/').split_once("/v") {
            Some(("wp", rest)) => wordpress_core(rest.trim_start_matches("2/"), me),
            Some(("buddyboss", rest)) if self.is_community_active => {
                let path = rest.trim_start_matches("1/").to_owned();
                self.route(&RouteRequest { method, path: &path, query, body: &body, user: me })
            }
            _ => no_route(),
        }
    }

    fn route(&mut self, request: &RouteRequest<'_>) -> SiteResponse {
        let me = request.user.map(|me| USERS[me].0);
        // Without early authentication the plugin sees no current user.
        let me = if self.has_early_auth { me } else { None };
        let parts: Vec<&str> = request.path.split('/').collect();
        let is_admin = request.user.is_some_and(|me| USERS[me].4);
        if request
            .query
            .get("group_id")
            .is_some_and(|id| request.path == "groups/membership-requests" && id.parse::<u64>().is_err())
        {
            return html_page(500);
        }
        if let Some(per_page) = request.query.get("per_page")
            && per_page.parse().is_ok_and(|n: u64| !(1..=100).contains(&n))
        {
            let message = "per_page must be between 1 (inclusive) and 100 (inclusive)";
            return json_response(
                400,
                &json!({
                    "code": "rest_invalid_param", "message": "Invalid parameter(s): per_page",
                    "data": { "status": 400, "params": { "per_page": message } }
                }),
            );
        }
        let is_private = PRIVATE_LISTS
            .iter()
            .any(|path| request.path == *path || request.path.starts_with(&format!("{path}/")));
        if me.is_none() && (is_private || *request.method != Method::GET) {
            let status = if request.user.is_some() { 403 } else { 401 };
            return error_response(
                status,
                "bp_rest_authorization_required",
                "Sorry, you are not allowed to do that.",
            );
        }
        // Acting as another user is rejected here; for messages and groups the site accepts it.
        for name in ["initiator_id", "inviter_id", "user_id"] {
            let is_mine = ["activity", "friends", "groups/invites"].contains(&request.path)
                && name != "user_id"
                || (request.path == "activity" && name == "user_id");
            if *request.method == Method::POST
                && is_mine
                && request.body.get(name).is_some_and(|id| number(id) != me)
            {
                return error_response(
                    403,
                    "bp_rest_authorization_required",
                    "Sorry, you are not allowed to do that.",
                );
            }
        }
        if ["messages", "notifications", "friends"].contains(&request.path)
            && *request.method == Method::GET
            && !is_admin
            && request.query.get("user_id").is_none_or(|id| id.parse().ok() != me)
        {
            return error_response(
                403,
                "bp_rest_authorization_required",
                "Sorry, you are not allowed to do that.",
            );
        }
        let get = *request.method == Method::GET;
        match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["members", "me"]) => match request.user {
                Some(me) => json_response(200, &self.lists["members"][me]),
                None => error_response(401, "rest_not_logged_in", "You are not currently logged in."),
            },
            ("GET", ["reactions"]) => json_response(200, &json!([{ "id": 1, "name": "like" }])),
            ("GET", ["components"]) => {
                json_response(200, &json!([{ "name": "members", "status": "active" }]))
            }
            ("POST", ["members"]) if !is_admin => {
                error_response(403, "rest_cannot_create", "Sorry, you are not allowed to create new members.")
            }
            ("POST", ["moderation", "report"]) => {
                json_response(200, &json!({ "reported": true, "data": request.body }))
            }
            ("GET", ["moderation", "report"]) => {
                json_response(200, &json!([{ "id": 1, "name": "Offensive" }]))
            }
            ("POST", [kind @ ("media" | "video" | "document"), "upload"]) => {
                self.next_id += 1;
                let key = if *kind == "media" { "upload_id" } else { "id" };
                json_response(200, &json!({ key: self.next_id, "name": "uploaded" }))
            }
            ("DELETE", ["friends"]) => match request.query.get("friend_id") {
                Some(_) => json_response(200, &json!({ "deleted": true, "previous": {} })),
                None => missing_params(&["friend_id"]),
            },
            (_, ["notifications", "bulk", "read"]) if !get => json_response(200, &json!({ "updated": 1 })),
            ("POST", ["messages", "group"] | ["messages", "action", _]) => {
                json_response(200, &json!({ "done": true, "data": request.body }))
            }
            ("GET", ["messages", "search-recipients"]) => json_response(200, &json!(self.lists["members"])),
            (_, ["members" | "topics" | "reply", "action", id]) if !get => {
                json_response(200, &json!({ "id": id, "action": request.body.get("action") }))
            }
            ("GET", ["xprofile", field, "data", user]) => json_response(
                200,
                &json!({ "field_id": field, "user_id": user, "value": { "raw": "Berlin" } }),
            ),
            (_, ["xprofile", field, "data", user]) if !get => json_response(
                200,
                &json!({ "field_id": field, "user_id": user, "value": { "raw": request.body.get("value") } }),
            ),
            ("DELETE", ["groups", group, "members", user]) => {
                json_response(200, &json!({ "removed": true, "previous": { "group_id": group, "id": user } }))
            }
            ("GET", ["groups", _, "members"]) => page_of(&self.lists["members"], request.query),
            (_, ["groups", group, "members", ..] | ["groups", group, "settings"]) => {
                json_response(200, &json!({ "group_id": group, "data": request.body }))
            }
            (_, ["activity", id, "favorite"]) if !get => {
                json_response(200, &json!({ "id": id, "favorited": true }))
            }
            ("GET", ["activity", _, "comment"]) => json_response(200, &json!({ "comments": [] })),
            ("POST", ["activity", id, "comment"]) => {
                json_response(200, &json!({ "id": id, "data": request.body }))
            }
            ("GET", ["members", id, "detail"]) => json_response(200, &json!({ "id": id, "tabs": [] })),
            _ => self.list(request, me),
        }
    }

    /// Serves the collections and their items.
    fn list(&mut self, request: &RouteRequest<'_>, me: Option<u64>) -> SiteResponse {
        if let Some((name, _)) = LISTS.iter().find(|(name, _)| *name == request.path) {
            return match request.method.as_str() {
                "GET" => page_of(&self.lists[name], request.query),
                "POST" => self.create(name, request, me),
                _ => no_route(),
            };
        }
        let Some((list, id)) = request.path.rsplit_once('/') else { return no_route() };
        let (Some((name, code)), Ok(id)) = (LISTS.iter().find(|(name, _)| *name == list), id.parse::<u64>())
        else {
            return no_route();
        };
        let items = self.lists.entry(name).or_default();
        let Some(index) = items.iter().position(|item| item["id"] == id) else {
            return error_response(404, code, &format!("Invalid {} ID.", name.trim_end_matches('s')));
        };
        match request.method.as_str() {
            "GET" => json_response(200, &items[index]),
            "DELETE" => json_response(200, &json!({ "deleted": true, "previous": items.remove(index) })),
            "POST" | "PUT" | "PATCH" => {
                for (key, value) in request.body {
                    items[index][key] = value.clone();
                }
                json_response(200, &items[index])
            }
            _ => no_route(),
        }
    }

    fn create(&mut self, name: &'static str, request: &RouteRequest<'_>, me: Option<u64>) -> SiteResponse {
        let required =
            REQUIRED_FIELDS.iter().find(|(path, _)| *path == name).map_or(&[][..], |(_, required)| required);
        let missing: Vec<&str> =
            required.iter().copied().filter(|key| !request.body.contains_key(*key)).collect();
        if !missing.is_empty() {
            return missing_params(&missing);
        }
        let mut item = Value::Object(request.body.clone());
        // Given ids are accepted unchecked; the default is the current user.
        for key in ["sender_id", "creator_id", "user_id"] {
            if item[key].is_null() {
                item[key] = json!(me);
            }
        }
        let created = self.add(name, item);
        json_response(if name == "members" { 201 } else { 200 }, &created)
    }
}

/// Routes of WordPress itself: the current user.
fn wordpress_core(path: &str, me: Option<usize>) -> SiteResponse {
    match (path, me) {
        ("users/me", Some(me)) => {
            let (id, name, _, role, is_admin) = USERS[me];
            let capabilities = json!({ "read": true, "manage_options": is_admin });
            json_response(
                200,
                &json!({
                    "id": id, "username": name, "name": name, "email": format!("{name}@example.com"), "slug": name,
                    "roles": [role], "capabilities": capabilities
                }),
            )
        }
        ("users/me", None) => error_response(401, "rest_not_logged_in", "You are not currently logged in."),
        _ => no_route(),
    }
}

/// Returns user and password, without the spaces with which application passwords are displayed.
fn login(headers: &HeaderMap) -> Option<(String, String)> {
    let encoded = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some((user.to_owned(), password.replace(' ', "")))
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns a page of a collection. A page past the end is empty; an empty collection has no total headers.
fn page_of(items: &[Value], query: &BTreeMap<String, String>) -> SiteResponse {
    let number =
        |name: &str, default: usize| query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (page, per_page) = (number("page", 1).max(1), number("per_page", 10).max(1));
    let search = query.get("search").map(|text| text.to_lowercase()).unwrap_or_default();
    let found: Vec<&Value> =
        items.iter().filter(|item| item.to_string().to_lowercase().contains(&search)).collect();
    let page_items: Vec<&&Value> = found.iter().skip((page - 1) * per_page).take(per_page).collect();
    let mut response = json_response(200, &json!(page_items));
    if !found.is_empty() {
        let totals = [("x-wp-total", found.len()), ("x-wp-totalpages", found.len().div_ceil(per_page))];
        for (name, total) in totals {
            response.headers_mut().insert(name, HeaderValue::from(total));
        }
    }
    response
}

fn json_response(status: u16, body: &Value) -> SiteResponse {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json; charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn error_response(status: u16, code: &str, message: &str) -> SiteResponse {
    json_response(status, &json!({ "code": code, "message": message, "data": { "status": status } }))
}

fn missing_params(names: &[&str]) -> SiteResponse {
    let message = format!("Missing parameter(s): {}", names.join(", "));
    json_response(
        400,
        &json!({
            "code": "rest_missing_callback_param", "message": message, "data": { "status": 400, "params": names }
        }),
    )
}

fn no_route() -> SiteResponse {
    error_response(404, "rest_no_route", "No route was found matching the URL and request method.")
}

fn html_page(status: u16) -> SiteResponse {
    let mut response = json_response(status, &Value::Null);
    *response.body_mut() =
        Full::from("<!DOCTYPE html><p>There has been a critical error on this website.</p>");
    let html = HeaderValue::from_static("text/html; charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// Parses a query such as `a=1&b%5B%5D=2` as PHP does: the last value of a name wins, values of `name[]` are joined.
fn parse_query(text: &str) -> BTreeMap<String, String> {
    let mut query: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let (name, value) = (percent_decode(name), percent_decode(value));
        match (name.strip_suffix("[]"), query.get_mut(name.trim_end_matches("[]"))) {
            (Some(_), Some(known)) => {
                known.push(',');
                known.push_str(&value);
            }
            (list, _) => {
                query.insert(list.unwrap_or(&name).to_owned(), value);
            }
        }
    }
    query
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let escaped =
            more.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn lock(site: &Mutex<Site>) -> MutexGuard<'_, Site> {
    site.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(site: Arc<Mutex<Site>>, request: Request<Incoming>) -> Result<SiteResponse, Infallible> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let query = parse_query(parts.uri.query().unwrap_or_default());
    Ok(lock(&site).respond(&parts.method, parts.uri.path(), &query, &parts.headers, &bytes))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).skip_while(|argument| argument != "--http");
    let address = arguments.nth(1).unwrap_or_else(|| "127.0.0.1:8088".to_owned());
    let listener = TcpListener::bind(&address).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    let site = Arc::new(Mutex::new(Site::new()));
    loop {
        let (stream, _) = listener.accept().await?;
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            let service = service_fn(move |request| serve(Arc::clone(&site), request));
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
