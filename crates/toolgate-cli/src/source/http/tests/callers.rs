//! As whom a backend is called.

use toolgate::Principal;

use super::*;

fn forwarding_server(bench: &HttpFixture) -> Server {
    let spec = HttpSpec { auth: Some(Auth::Forward), ..get("/echo") };
    tool(spec, bench.connect(), &json!({}))
}

#[tokio::test]
async fn credentials_of_callers_are_passed_on_and_never_mixed() {
    let bench = HttpFixture::new().await;
    let server = forwarding_server(&bench);
    for credential in ["Basic YWxpY2U6YWJjZGVm", "Basic Ym9iOmFiY2RlZg=="] {
        bench.server.reset();
        let client = TestClient::http(&server).with_header("authorization", credential);
        let called = client.call("it", json!({})).await;
        assert!(!called.is_error(), "{}", called.text());
        assert_eq!(bench.server.requests()[0]["headers"]["authorization"], credential);
        // What was passed on does not come back.
        assert!(!called.message().to_string().contains(&credential[6..]), "{}", called.text());
        let said = HttpSpec { auth: Some(Auth::Forward), ..get("/echo/{word}") };
        let server = tool(said, bench.connect(), &json!({ "word": string_schema() }));
        let client = TestClient::http(&server).with_header("authorization", credential);
        let called = client.call("it", json!({ "word": "abcdef" })).await;
        assert_eq!(called.json()["path"], "/echo/***", "nor does the password inside");
    }
    bench.server.reset();
    let called = TestClient::http(&server).call("it", json!({})).await;
    assert_eq!(called.text(), "this tool acts as its caller, and the call has no credentials");
    let called = server.test().call("it", json!({})).await;
    assert!(called.is_error() && bench.server.requests().is_empty(), "there are no headers on a line");
}

#[tokio::test]
async fn headers_of_a_call_can_be_passed_on_by_name() {
    let bench = HttpFixture::new().await;
    let auth = Some(Auth::Headers(vec!["X-Tenant".into(), "X-Session".into()]));
    let server = tool(HttpSpec { auth, ..get("/echo") }, bench.connect(), &json!({}));
    let client = TestClient::http(&server).with_header("x-tenant", "acme").with_header("x-other", "1");
    assert!(!client.call("it", json!({})).await.is_error());
    let heard = bench.server.requests();
    assert_eq!(
        (&heard[0]["headers"]["x-tenant"], heard[0]["headers"].get("x-other")),
        (&json!("acme"), None)
    );
    assert!(TestClient::http(&server).call("it", json!({})).await.is_error());
    assert_eq!(bench.server.requests().len(), 1);
}

#[tokio::test]
async fn what_is_known_of_a_caller_can_be_the_credential() {
    let mut bench = HttpFixture::new().await;
    bench.client_spec.auth = Auth::Attribute {
        attribute: "github".into(),
        header: "Authorization".into(),
        prefix: "Bearer ".into(),
    };
    let server = tool(get("/echo"), bench.connect(), &json!({}));
    let ada = Principal::new("ada").with_attribute("github", "gho_ada0001");
    let called = TestClient::http(&server).with_principal(ada).call("it", json!({})).await;
    assert!(!called.is_error(), "{}", called.text());
    assert_eq!(bench.server.requests()[0]["headers"]["authorization"], "Bearer gho_ada0001");
    for principal in [
        Principal::new("eve"),
        Principal::new("eve").with_attribute("github", ""),
        Principal::new("eve").with_attribute("github", "x\r\nX-Admin: 1"),
    ] {
        bench.server.reset();
        let called = TestClient::http(&server).with_principal(principal).call("it", json!({})).await;
        assert!(called.is_error() && bench.server.requests().is_empty(), "{}", called.text());
    }
}

#[tokio::test]
async fn keys_in_the_query_are_sent_and_not_shown() {
    let mut bench = HttpFixture::new().await;
    bench.client_spec.query = vec![("api_key".into(), "k3y-&-more".into())];
    let client = bench.client(get("/echo?q={q}"), json!({ "q": string_schema() }));
    let called = client.call("it", json!({ "q": "1" })).await;
    assert_eq!(bench.server.requests()[0]["query"], "api_key=k3y-%26-more&q=1");
    assert!(!called.message().to_string().contains("k3y-"), "{}", called.text());

    // Backends repeat the query in their links.
    bench.client_spec.query = vec![("key".into(), "k".into()), ("other".into(), "long-secret".into())];
    let called = bench.client(get("/list"), json!({})).call("it", json!({})).await;
    let next = &called.message()["result"]["_meta"][PAGING_KEY]["next"];
    assert_eq!(*next, json!({ "page": "2", "again": "***" }), "{next}");
}
