//! Credentials of callers.

use toolgate::Principal;

use super::*;

fn forwarding_server(fixture: &HttpFixture) -> Server {
    let spec = HttpSpec { auth: Some(Auth::Forward), ..get("/echo") };
    tool(spec, fixture.connect(), &json!({}))
}

#[tokio::test]
async fn credentials_of_callers_are_forwarded_and_never_mixed() {
    let fixture = HttpFixture::new().await;
    let server = forwarding_server(&fixture);
    for credential in ["Basic YWxpY2U6YWJjZGVm", "Basic Ym9iOmFiY2RlZg=="] {
        fixture.server.reset();
        let client = TestClient::http(&server).with_header("authorization", credential);
        let called = client.call("it", json!({})).await;
        assert!(!called.is_error(), "{}", called.text());
        assert_eq!(fixture.server.requests()[0]["headers"]["authorization"], credential);
        // Forwarded credentials are masked in the result.
        assert!(!called.message().to_string().contains(&credential[6..]), "{}", called.text());
        let spec = HttpSpec { auth: Some(Auth::Forward), ..get("/echo/{word}") };
        let server = tool(spec, fixture.connect(), &json!({ "word": string_schema() }));
        let client = TestClient::http(&server).with_header("authorization", credential);
        let called = client.call("it", json!({ "word": "abcdef" })).await;
        assert_eq!(called.json()["path"], "/echo/***", "the decoded password is masked too");
    }
    fixture.server.reset();
    let called = TestClient::http(&server).call("it", json!({})).await;
    assert_eq!(called.text(), "this tool uses the caller's credentials, but the call has none");
    let called = server.test().call("it", json!({})).await;
    assert!(called.is_error() && fixture.server.requests().is_empty(), "stdio calls have no headers");
}

#[tokio::test]
async fn headers_can_be_forwarded_by_name() {
    let fixture = HttpFixture::new().await;
    let auth = Some(Auth::Headers(vec!["X-Tenant".into(), "X-Session".into()]));
    let server = tool(HttpSpec { auth, ..get("/echo") }, fixture.connect(), &json!({}));
    let client = TestClient::http(&server).with_header("x-tenant", "acme").with_header("x-other", "1");
    assert!(!client.call("it", json!({})).await.is_error());
    let received = fixture.server.requests();
    assert_eq!(
        (&received[0]["headers"]["x-tenant"], received[0]["headers"].get("x-other")),
        (&json!("acme"), None)
    );
    assert!(TestClient::http(&server).call("it", json!({})).await.is_error());
    assert_eq!(fixture.server.requests().len(), 1);
}

#[tokio::test]
async fn a_principal_attribute_can_be_the_credential() {
    let mut fixture = HttpFixture::new().await;
    fixture.client_spec.auth = Auth::Attribute {
        attribute: "github".into(),
        header: "Authorization".into(),
        prefix: "Bearer ".into(),
    };
    let server = tool(get("/echo"), fixture.connect(), &json!({}));
    let ada = Principal::new("ada").with_attribute("github", "gho_ada0001");
    let called = TestClient::http(&server).with_principal(ada).call("it", json!({})).await;
    assert!(!called.is_error(), "{}", called.text());
    assert_eq!(fixture.server.requests()[0]["headers"]["authorization"], "Bearer gho_ada0001");
    for principal in [
        Principal::new("eve"),
        Principal::new("eve").with_attribute("github", ""),
        Principal::new("eve").with_attribute("github", "x\r\nX-Admin: 1"),
    ] {
        fixture.server.reset();
        let called = TestClient::http(&server).with_principal(principal).call("it", json!({})).await;
        assert!(called.is_error() && fixture.server.requests().is_empty(), "{}", called.text());
    }
}

#[tokio::test]
async fn query_keys_are_sent_and_masked() {
    let mut fixture = HttpFixture::new().await;
    fixture.client_spec.query = vec![("api_key".into(), "k3y-&-more".into())];
    let client = fixture.client(get("/echo?q={q}"), json!({ "q": string_schema() }));
    let called = client.call("it", json!({ "q": "1" })).await;
    assert_eq!(fixture.server.requests()[0]["query"], "api_key=k3y-%26-more&q=1");
    assert!(!called.message().to_string().contains("k3y-"), "{}", called.text());

    // Backends repeat the query in their links.
    fixture.client_spec.query = vec![("key".into(), "k".into()), ("other".into(), "long-secret".into())];
    let called = fixture.client(get("/list"), json!({})).call("it", json!({})).await;
    let next = &called.message()["result"]["_meta"][PAGING_KEY]["next"];
    assert_eq!(*next, json!({ "page": "2", "again": "***" }), "{next}");
}
