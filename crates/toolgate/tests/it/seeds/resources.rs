//! Resources: registration, removal, reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use toolgate::{ResourceSpec, Server};

use super::empty_server;

fn readme_server() -> Server {
    empty_server("s")
        .add_resource(
            ResourceSpec::new("docs://readme", || async { "# R" }).name("README").mime("text/markdown"),
        )
        .unwrap()
}

#[tokio::test]
async fn s1_170_a_resource_is_registered() {
    let listed = readme_server().list_resources().await;
    assert_eq!(listed, [json!({ "uri": "docs://readme", "name": "README", "mimeType": "text/markdown" })]);
    // Unset fields are omitted, and contents are text.
    let plain = empty_server("s").add_resource(ResourceSpec::new("x://y", || async { "words" })).unwrap();
    let read = plain.read_resource("x://y").await.unwrap();
    assert_eq!(read["contents"][0]["text"], "words");
}

#[tokio::test]
async fn s1_171_a_resource_is_made_when_it_is_read() {
    let count = Arc::new(AtomicU32::new(0));
    let server = empty_server("s")
        .add_resource(ResourceSpec::new("x://count", move || {
            let count = Arc::clone(&count);
            async move { count.fetch_add(1, Ordering::Relaxed).to_string() }
        }))
        .unwrap();
    let read = async || server.read_resource("x://count").await.unwrap()["contents"][0]["text"].clone();
    assert_ne!(read().await, read().await);
}

#[test]
fn s1_173_has_resource() {
    assert!(readme_server().has_resource("docs://readme") && !readme_server().has_resource("docs://other"));
}

#[tokio::test]
async fn s1_176_resources_are_taken_away() {
    let server = readme_server().add_resource(ResourceSpec::new("x://y", || async { "y" })).unwrap();
    assert!(server.remove_resource("docs://readme"));
    assert_eq!(server.resource_count(), 1);
    assert!(server.read_resource("docs://readme").await.is_err());
    assert_eq!(server.clear_resources().resource_count(), 0);
}
