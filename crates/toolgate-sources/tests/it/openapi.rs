//! OpenAPI descriptions, served to a client of each protocol version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use toolgate::Server;
use toolgate::testing::{TestClient, TestVersion};
use toolgate_sources::{OpenApi, SourceError, SourceErrorKind};

use crate::api_server::{ApiServer, description};

#[path = "../../examples/openapi.rs"]
#[allow(dead_code, reason = "`main` is not called")]
mod example;

fn api(backend: &ApiServer) -> OpenApi {
    OpenApi::from_url(backend.url("/openapi.json")).allow_host(&backend.address)
}

async fn client(api: OpenApi) -> TestClient {
    Server::new("stock", "1.0.0").add(api.load().await.unwrap()).build().unwrap().test()
}

async fn tool_names(api: OpenApi) -> Vec<String> {
    client(api).await.tools().await.into_iter().map(|tool| tool.name.to_string()).collect()
}

async fn load_error(api: OpenApi) -> SourceError {
    api.load().await.unwrap_err()
}

#[tokio::test]
async fn the_example_serves_the_operations_of_a_url_in_every_version() {
    let backend = ApiServer::start().await;
    let server = example::server(api(&backend).bearer_token("s3cret")).await.unwrap();
    for version in TestVersion::all() {
        check_example(&backend, &TestClient::new(&server, version)).await;
    }
}

async fn check_example(backend: &ApiServer, client: &TestClient) {
    let tools = client.tools().await;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["listItems", "addItem", "getItem"], "deprecated operations are left out");
    assert_eq!(tools[0].description.as_deref(), Some("Lists items"));
    backend.take_requests();

    let item = client.call("getItem", json!({ "id": 7 })).await;
    assert_eq!(item.json(), json!({ "id": 7, "name": "Shoe" }));
    let added = client.call("addItem", json!({ "name": "Sock" })).await;
    assert_eq!(added.json(), json!({ "id": 8, "name": "Sock" }));
    assert_eq!(
        backend.take_requests(),
        ["GET /v1/items/7 Bearer s3cret", "POST /v1/items Bearer s3cret {\"name\":\"Sock\"}"]
    );
    for arguments in [json!({ "id": "7/../8" }), json!({}), json!({ "id": 7, "host": "evil.example" })] {
        let rejected = client.call("getItem", arguments.clone()).await;
        assert!(rejected.is_error(), "{arguments}");
    }
    assert_eq!(backend.take_requests(), [""; 0], "invalid arguments never reach the API");
}

#[tokio::test]
async fn a_file_and_a_text_are_served_with_a_base_url() {
    let backend = ApiServer::start().await;
    let file = TempFile::new("stock.json", &description().to_string());
    for api in [OpenApi::from_file(&file.0), OpenApi::from_text(description().to_string())] {
        let client = client(api.base_url(backend.url("/v1")).allow_host(&backend.address)).await;
        assert_eq!(client.call("listItems", json!({ "limit": 3 })).await.json()["items"][0]["id"], 7);
    }
    assert_eq!(backend.take_requests(), ["GET /v1/items?limit=3"; 2]);
}

#[tokio::test]
async fn operations_are_selected_and_renamed() {
    let backend = ApiServer::start().await;
    let names = |api: OpenApi| tool_names(api);
    assert_eq!(names(api(&backend).include(["tag:stock"])).await, ["listItems", "getItem"]);
    assert_eq!(names(api(&backend).include(["GET /items/**"]).exclude(["listItems"])).await, ["getItem"]);
    let renamed = api(&backend).include(["getItem"]).prefix("stock_").rename("getItem", "find");
    assert_eq!(names(renamed).await, ["stock_find"]);
}

#[tokio::test]
async fn get_operations_are_resources_on_request() {
    let backend = ApiServer::start().await;
    let client = client(api(&backend).resources(["GET /items/{id}", "GET /items"]).uri_scheme("stock")).await;
    assert_eq!(client.tools().await.len(), 2, "addItem and removeItem");
    let templates = client.templates().await;
    assert_eq!(templates[0].uri_template, "stock:///items{?limit}");
    assert_eq!(templates[1].uri_template, "stock:///items/{id}");
    let item: Value = serde_json::from_str(&client.read("stock:///items/7").await.text()).unwrap();
    assert_eq!(item["name"], "Shoe");
    backend.take_requests();
    client.read("stock:///items/seven").await.error();
    assert_eq!(backend.take_requests(), [""; 0], "an invalid variable never reaches the API");
    client.read("stock:///items/1").await.error();
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let backend = ApiServer::start().await;
    let with_basic = api(&backend).basic_auth("ada", "pa55").header("X-Team", "t1").query_param("key", "k3y");
    assert!(!format!("{with_basic:?}").contains("pa55"));
    let basic = client(with_basic).await;
    backend.take_requests();
    basic.call("getItem", json!({ "id": 7 })).await;
    assert_eq!(backend.take_requests(), ["GET /v1/items/7?key=k3y Basic YWRhOnBhNTU= t1"]);

    let bearer = client(api(&backend).bearer_token("s3cret")).await;
    let forbidden = bearer.call("getItem", json!({ "id": 9 })).await;
    assert!(forbidden.is_error() && forbidden.text().contains("***"), "{}", forbidden.text());
    assert!(!forbidden.text().contains("s3cret"));

    let forwarded = client(api(&backend).forward_authorization()).await.over_http();
    backend.take_requests();
    let anonymous = forwarded.call("getItem", json!({ "id": 7 })).await;
    assert!(
        anonymous.is_error() && anonymous.text().contains("caller's credentials"),
        "{}",
        anonymous.text()
    );
    let own = forwarded.call("getItem", json!({ "id": 7 })).header("Authorization", "Bearer mine").await;
    assert!(!own.is_error(), "{}", own.text());
    assert_eq!(backend.take_requests(), ["GET /v1/items/7 Bearer mine"]);
}

#[tokio::test]
async fn operations_that_cannot_be_served_are_reported() {
    let backend = ApiServer::start().await;
    let loaded = api(&backend).include(["/**", "tag:typo"]).load_with_report().await.unwrap();
    assert_eq!((loaded.title.as_str(), loaded.version.as_str(), loaded.items.len()), ("Stock", "2.1", 4));
    let subjects: Vec<&str> = loaded.skipped.iter().map(|skipped| skipped.subject.as_str()).collect();
    assert_eq!(subjects, ["GET /copies/{id}", "include `tag:typo`"]);
    assert!(loaded.skipped.iter().all(|skipped| !skipped.reason.is_empty()));
}

#[tokio::test]
async fn limits_apply_to_calls() {
    let backend = ApiServer::start().await;
    let small = client(api(&backend).include(["getItem"]).base_url(backend.url("/v1")).max_response_bytes(8));
    // The description itself has its own limit.
    let output = small.await.call("getItem", json!({ "id": 7 })).await;
    assert!(output.is_error(), "{}", output.text());
    let error = load_error(api(&backend).timeout(Duration::ZERO)).await;
    assert_eq!((error.kind(), error.problems()[0].subject()), (SourceErrorKind::InvalidSetting, "timeout"));
}

#[tokio::test]
async fn errors_say_which_call_helps() {
    let backend = ApiServer::start().await;
    let address = &backend.address;
    let text = || OpenApi::from_text(description().to_string());
    let elsewhere = {
        let mut description = description();
        description["servers"][0]["url"] = "https://stock.example.com/v1".into();
        description.to_string()
    };
    let (setting, document, unavailable) =
        (SourceErrorKind::InvalidSetting, SourceErrorKind::InvalidDocument, SourceErrorKind::Unavailable);
    let rows: Vec<(OpenApi, SourceErrorKind, &str, String)> = vec![
        (text(), setting, "base_url", ".base_url(\"https://api.example.com\")".into()),
        (
            OpenApi::from_text(elsewhere),
            setting,
            "base_url",
            ".base_url(\"https://stock.example.com/v1\")".into(),
        ),
        (text().base_url(backend.url("/v1")), setting, "base_url", format!(".allow_host(\"{address}\")")),
        (text().base_url("http://localhost:1"), setting, "base_url", ".allow_host(\"localhost:1\")".into()),
        (
            OpenApi::from_url(backend.url("/openapi.json")),
            setting,
            "from_url",
            format!(".allow_host(\"{address}\")"),
        ),
        (OpenApi::from_url("stock.json"), setting, "from_url", "not an absolute URL".into()),
        (text().base_url("https://a.example").header("a b", "c"), setting, "header a b", "".into()),
        (text().base_url("https://a.example").allow_host("a:b"), setting, "allow_host", "".into()),
        (text().base_url("https://a.example").ca_certificates("x"), setting, "ca_certificates", "".into()),
        (text().base_url("https://a.example").include([""]), setting, "include", "".into()),
        (
            text().base_url("https://a.example").include(["nothing"]),
            document,
            "document",
            "no operation".into(),
        ),
        (OpenApi::from_text("{}").base_url("https://a.example"), document, "document", "".into()),
        (OpenApi::from_file("gone.yaml"), unavailable, "gone.yaml", "cannot read".into()),
        (
            OpenApi::from_url(backend.url("/gone.json?key=s3cret")).allow_host(address),
            unavailable,
            &backend.url("/gone.json"),
            "404".into(),
        ),
    ]
    .into_iter()
    .map(|(api, kind, subject, part)| (api, kind, &*Box::leak(subject.to_owned().into_boxed_str()), part))
    .collect();
    for (api, kind, subject, part) in rows {
        let error = load_error(api).await;
        let problem = &error.problems()[0];
        assert_eq!((error.kind(), problem.subject()), (kind, subject), "{error}");
        assert!(error.to_string().contains(&part), "{error} does not contain {part}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

/// A file that is removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> TempFile {
        let path =
            Path::new(&std::env::temp_dir()).join(format!("toolgate-sources-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
