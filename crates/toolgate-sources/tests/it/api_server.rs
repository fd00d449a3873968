//! An API on loopback that describes itself at `/openapi.json` and records its requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) struct ApiServer {
    /// `127.0.0.1:…`
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

/// The description of the API. The server URL is relative, so it is that of the document.
pub(crate) fn description() -> Value {
    let id = json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } });
    let item = json!({ "type": "object", "properties": { "id": { "type": "integer" }, "name": { "type": "string" } } });
    let ok = |schema: &Value| json!({ "200": { "description": "ok", "content": { "application/json": { "schema": schema } } } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Stock", "version": "2.1" },
        "servers": [{ "url": "/v1" }],
        "paths": {
            "/items": {
                "get": {
                    "operationId": "listItems",
                    "summary": "Lists items",
                    "tags": ["stock"],
                    "parameters": [{ "name": "limit", "in": "query", "schema": { "type": "integer", "maximum": 50 } }],
                    "responses": ok(&json!({ "type": "object", "properties": { "items": { "type": "array", "items": item } } })),
                },
                "post": {
                    "operationId": "addItem",
                    "requestBody": { "required": true, "content": { "application/json": { "schema": {
                        "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"],
                    } } } },
                    "responses": ok(&item),
                },
            },
            "/items/{id}": {
                "get": { "operationId": "getItem", "tags": ["stock"], "parameters": [id], "responses": ok(&item) },
                "delete": { "operationId": "removeItem", "deprecated": true, "parameters": [id], "responses": ok(&item) },
            },
            "/copies/{id}": { "get": { "operationId": "getItem", "parameters": [id], "responses": {} } },
        },
    })
}

impl ApiServer {
    pub(crate) async fn start() -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                let service = service_fn(move |request| respond(Arc::clone(&log), request));
                tokio::spawn(async move {
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        ApiServer { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests since the last call: `METHOD path [authorization] body`.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

async fn respond(
    log: Arc<Mutex<Vec<String>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let path = head.uri.path_and_query().unwrap().as_str();
    let parts = [
        Some(format!("{} {path}", head.method)),
        header("authorization"),
        header("x-team"),
        Some(body.clone()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    log.lock().unwrap().push(parts.join(" "));
    let (status, value) = match head.uri.path() {
        "/openapi.json" => (200, description()),
        "/v1/items" if head.method == "POST" => {
            let sent: Value = serde_json::from_str(&body).unwrap();
            (200, json!({ "id": 8, "name": sent["name"] }))
        }
        "/v1/items" => (200, json!({ "items": [{ "id": 7, "name": "Shoe" }] })),
        "/v1/items/7" => (200, json!({ "id": 7, "name": "Shoe" })),
        "/v1/items/9" => {
            (403, json!({ "error": format!("{} may not", header("authorization").unwrap_or_default()) }))
        }
        _ => (404, json!({ "error": "no such item" })),
    };
    let response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    Ok(response.header("content-type", "application/json").body(Full::from(value.to_string())).unwrap())
}
