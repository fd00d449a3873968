//! SQL statements of a SQLite file, served as tools.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use toolgate::testing::TestClient;
use toolgate::{Principal, Server};
use toolgate_sources::{Database, SourceErrorKind};

#[path = "../../examples/sql.rs"]
#[allow(dead_code, reason = "`main` is not called")]
mod example;

/// A SQLite file with three customers, which is removed at the end.
struct Shop(PathBuf);

impl Shop {
    async fn create() -> Shop {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("toolgate-sources-{}-{n}.db", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        let statements = "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT);
            INSERT INTO customer VALUES (1, 'Ada', 'London'), (2, 'Adam', NULL), (3, 'Grace', 'New York')";
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned()))).await.unwrap();
        connection.close().await.unwrap();
        Shop(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn client(database: Database) -> TestClient {
    Server::new("shop", "1.0.0").add(database.load().await.unwrap()).build().unwrap().test()
}

#[tokio::test]
async fn the_example_queries_a_file() {
    let shop = Shop::create().await;
    let client = example::server(shop.path()).await.unwrap().test();
    let tools = client.tools().await;
    assert_eq!(tools[0].name, "find_customer");
    let input: Value = serde_json::from_str(&tools[0].input_schema.to_string()).unwrap();
    assert_eq!(input["required"], json!(["name"]));
    assert_eq!(input["properties"]["name"]["description"], "The beginning of the name");
    assert_eq!(tools[0].hints.read_only, Some(true));
    let output: Value = serde_json::from_str(&tools[0].output_schema.as_ref().unwrap().to_string()).unwrap();
    assert_eq!(output["properties"]["rows"]["items"]["properties"]["name"]["type"], "string");

    let call = |arguments: Value| client.call("find_customer", arguments);
    let rows = call(json!({ "name": "Ad" })).await.json();
    let ada = json!({ "id": 1, "name": "Ada", "city": "London" });
    assert_eq!(rows, json!({ "rows": [ada, { "id": 2, "name": "Adam", "city": null }] }));
    assert_eq!(call(json!({ "name": "Ad", "city": "London" })).await.json(), json!({ "rows": [ada] }));
    let injected = call(json!({ "name": "x' OR 1 = 1 --" })).await;
    assert_eq!(injected.json(), json!({ "rows": [] }));
    assert!(call(json!({ "name": "A" })).await.is_error(), "too short");
    assert_eq!(client.call("count_customers", json!({})).await.json(), json!({ "value": 3 }));
}

#[tokio::test]
async fn defaults_and_optional_arguments_are_filled_in() {
    let shop = Shop::create().await;
    let query = "SELECT name FROM customer WHERE :city IS NULL OR city = :city ORDER BY id LIMIT :limit";
    let database = Database::sqlite(shop.path()).query("list", query, |query| {
        query
            .optional_arg("city", json!({ "type": "string" }))
            .arg("limit", json!({ "type": "integer", "default": 1 }))
            .tool(|tool| tool.title("List customers"))
    });
    let client = client(database).await;
    assert_eq!(client.tools().await[0].title.as_deref(), Some("List customers"));
    assert_eq!(client.call("list", json!({})).await.json(), json!({ "rows": [{ "name": "Ada" }] }));
    let two = client.call("list", json!({ "limit": 2 })).await.json();
    assert_eq!(two["rows"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn writing_needs_two_permissions() {
    let shop = Shop::create().await;
    let insert = "INSERT INTO customer (name) VALUES (:name)";
    let name = json!({ "type": "string" });
    let read_only = Database::sqlite(shop.path())
        .query("add", insert, |query| query.arg("name", name.clone()).allow_writes());
    let error = read_only.load().await.unwrap_err();
    assert_eq!((error.kind(), error.problems()[0].subject()), (SourceErrorKind::InvalidQuery, "add"));
    assert!(error.to_string().contains("allow_writes"), "{error}");

    let unmarked = Database::sqlite(shop.path())
        .allow_writes()
        .query("add", insert, |query| query.arg("name", name.clone()));
    assert_eq!(unmarked.load().await.unwrap_err().kind(), SourceErrorKind::InvalidQuery);

    let writable = Database::sqlite(shop.path())
        .allow_writes()
        .query("add", insert, |query| query.arg("name", name.clone()).allow_writes());
    let client = client(writable).await;
    assert_eq!(client.tools().await[0].hints.read_only, None);
    assert_eq!(client.call("add", json!({ "name": "Alan" })).await.json()["affected"], 1);
}

#[tokio::test]
async fn clients_can_send_statements_that_read() {
    let shop = Shop::create().await;
    let database = Database::sqlite(shop.path())
        .client_query("query", |query| query.describe("Queries the shop").max_rows(2));
    let client = client(database).await;
    let result = client.call("query", json!({ "sql": "SELECT id FROM customer ORDER BY id" })).await.json();
    assert_eq!(result, json!({ "rows": [{ "id": 1 }, { "id": 2 }], "truncated": true }));
    assert!(client.call("query", json!({ "sql": "DELETE FROM customer" })).await.is_error());
}

#[tokio::test]
async fn arguments_from_the_call_cannot_be_sent_by_clients() {
    let shop = Shop::create().await;
    let database = Database::sqlite(shop.path()).query(
        "mine",
        "SELECT name FROM customer WHERE city = :city",
        |query| {
            query
                .arg_from_context("city", json!({ "type": "string" }), |cx| {
                    cx.principal().attribute("city").cloned()
                })
                .one_row()
        },
    );
    let client = client(database).await.over_http();
    let call = |principal: Principal, arguments: Value| {
        let client = client.clone().with_principal(principal);
        async move { client.call("mine", arguments).await }
    };
    let ada = Principal::new("ada").with_attribute("city", "London");
    assert_eq!(call(ada.clone(), json!({})).await.json(), json!({ "name": "Ada" }));
    let without_city = call(Principal::new("bob"), json!({})).await;
    assert!(without_city.text().contains("requires `city`"), "{}", without_city.text());
    let wrong_type = call(Principal::new("eve").with_attribute("city", 7), json!({})).await;
    assert!(wrong_type.text().contains("not valid"), "{}", wrong_type.text());
    let sent = call(ada, json!({ "city": "New York" })).await;
    assert!(sent.is_error(), "an argument that is not announced is rejected");
}

#[tokio::test]
async fn all_invalid_queries_are_reported_at_once() {
    let shop = Shop::create().await;
    let database = Database::sqlite(shop.path())
        .query("unknown", "SELECT :nam FROM customer", |query| query.arg("name", json!({ "type": "string" })))
        .query("schema", "SELECT :a", |query| query.arg("a", json!({ "type": "strin" })))
        .query("twice", "SELECT :a", |query| query.arg("a", json!({})).arg("a", json!({})))
        .query("two", "SELECT 1; SELECT 2", |query| query);
    let error = database.load().await.unwrap_err();
    let subjects: Vec<&str> = error.problems().iter().map(|problem| problem.subject()).collect();
    assert_eq!(subjects, ["unknown", "schema", "twice", "two"], "{error}");
    assert!(error.to_string().contains("strin"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_down_is_served_and_fails_the_check() {
    let gone = Database::sqlite("/nonexistent/shop.db").query("all", "SELECT 1 AS one", |query| query);
    let client = client(gone.clone()).await;
    assert!(client.tools().await[0].output_schema.is_none());
    let output = client.call("all", json!({})).await;
    assert!(output.is_error() && output.text().contains("cannot be reached"), "{}", output.text());
    assert_eq!(gone.check().await.unwrap_err().kind(), SourceErrorKind::Unavailable);

    let shop = Shop::create().await;
    let wrong = Database::sqlite(shop.path()).query("wrong", "SELECT nothing FROM customer", |query| query);
    let error = wrong.check().await.unwrap_err();
    assert_eq!((error.kind(), error.problems()[0].subject()), (SourceErrorKind::InvalidQuery, "wrong"));
    let right = Database::sqlite(shop.path()).query("right", "SELECT name FROM customer", |query| query);
    right.check().await.unwrap();
    let secret = format!("{:?}", Database::postgres("postgres://app:s3cret@db.example.com/shop"));
    assert!(!secret.contains("s3cret"), "{secret}");
}
