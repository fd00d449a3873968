//! A crate whose only annotated function has no dependencies: `#[toolgate::test]` without a server serves it.

use toolgate::prelude::*;
use toolgate::testing::TestClient;

/// Greet someone
#[tool]
async fn greet(name: String) -> String {
    format!("Hello, {name}!")
}

#[toolgate::test]
async fn has_the_name_and_version_of_the_package(client: TestClient) {
    let server = client.server_details().await.server.expect("the server sends its info");
    assert_eq!((server.name.as_str(), server.version.as_str()), ("toolgate", env!("CARGO_PKG_VERSION")));
}

#[toolgate::test]
async fn has_all_annotated_functions(client: TestClient) {
    assert_eq!(client.tools().await.len(), 1);
    assert_eq!(client.call("greet", json!({ "name": "Ann" })).await.text(), "Hello, Ann!");
}
