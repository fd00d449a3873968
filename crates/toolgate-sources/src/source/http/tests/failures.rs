//! Backends that are slow, large, broken, busy or down.

use super::*;

#[tokio::test]
async fn a_misbehaving_backend_fails_one_call() {
    let mut fixture = HttpFixture::new().await;
    fixture.client_spec.response_limit = 256 * 1024;
    fixture.client_spec.retry.max = 0;
    for (path, wanted) in [
        ("/slow?ms=60000", "the backend timed out"),
        ("/drip", "the backend timed out"),
        ("/huge?mb=4096", "larger than 262144 bytes"),
        ("/gzip?mb=20", "larger than 262144 bytes"),
        ("/half", "the connection to the backend was lost"),
        ("/brotli", "unsupported encoding"),
        ("/badjson", "not valid JSON"),
        ("/deepjson", "not valid JSON"),
        ("/html", "a web page instead of data"),
        ("/reset", "the connection to the backend was lost"),
        ("/status?c=500", "500 Internal Server Error"),
    ] {
        let timeout = wanted.ends_with("timed out").then_some(Duration::from_millis(300));
        let spec = HttpSpec { timeout, ..get(path) };
        let called = fixture.client(spec, json!({})).call("it", json!({})).await;
        assert!(called.is_error() && called.text().contains(wanted), "{path}: {}", called.text());
        assert!(!called.text().contains("secret.php"), "{path}");
    }
    let fine = fixture.client(get("/echo"), json!({})).call("it", json!({})).await;
    assert!(!fine.is_error());
    let cut = HttpSpec { on_exceed: OnExceed::Truncate, response_limit: Some(100), ..get("/huge?mb=1") };
    let called = fixture.client(cut, json!({})).call("it", json!({})).await;
    assert!(
        called.text().ends_with("… truncated after 100 bytes") && called.text().len() < 150,
        "{}",
        called.text()
    );
}

#[tokio::test]
async fn unreachable_backends_are_reported_without_address() {
    let mut fixture = HttpFixture::new().await;
    let closed_address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    fixture.client_spec.base_url = format!("http://{closed_address}");
    fixture.egress_spec.allow = vec![closed_address.to_string()];
    let called = fixture.client(get("/"), json!({})).call("it", json!({})).await;
    assert_eq!(called.text(), "cannot connect: connection refused");
    assert_eq!(called.message()["result"]["_meta"][BACKEND_KEY]["failure"], "unreachable");
    fixture.client_spec.base_url = "http://no-such-host.invalid".into();
    let called = fixture.client(get("/"), json!({})).call("it", json!({})).await;
    assert_eq!(called.text(), "host not found");
}

#[tokio::test]
async fn backend_errors_are_passed_on() {
    let fixture = HttpFixture::new().await;
    for (path, wanted, code) in [
        (
            "/wp/401",
            "401 Unauthorized: You are not currently logged in. (rest_not_logged_in)",
            "rest_not_logged_in",
        ),
        (
            "/wp/403",
            "403 Forbidden: Sorry, you are not allowed to do that. (rest_forbidden)",
            "rest_forbidden",
        ),
        ("/wp/404", "404 Not Found: Invalid post ID. (rest_post_invalid_id)", "rest_post_invalid_id"),
        ("/wp/user", "401 Unauthorized: the backend does not accept these credentials", ""),
        ("/wp/500", "500 Internal Server Error", ""),
    ] {
        let called = fixture.client(get(path), json!({})).call("it", json!({})).await;
        assert!(called.is_error());
        assert_eq!(called.text(), wanted);
        let details = &called.message()["result"]["_meta"][BACKEND_KEY];
        assert_eq!(details["code"].as_str().unwrap_or_default(), code);
        assert_eq!(details["status"].as_u64(), wanted[..3].parse().ok());
    }
    let open = HttpSpec { errors: ErrorExposure::Message, ..get("/wp/500") };
    let called = fixture.client(open, json!({})).call("it", json!({})).await;
    assert_eq!(called.text(), "500 Internal Server Error: Cannot create new group. (bp_rest_error)");
    let closed = HttpSpec { errors: ErrorExposure::Status, ..get("/wp/404") };
    assert_eq!(fixture.client(closed, json!({})).call("it", json!({})).await.text(), "404 Not Found");
}

#[tokio::test]
async fn only_safe_requests_are_retried() {
    let mut fixture = HttpFixture::new().await;
    fixture.client_spec.retry = Retry { max: 3, statuses: vec![503] };
    let call = async |fixture: &HttpFixture, spec: HttpSpec| {
        fixture.server.reset();
        let called = fixture.client(spec, json!({})).call("it", json!({})).await;
        (called.text(), fixture.server.requests().len())
    };
    assert_eq!(call(&fixture, get("/flaky?n=2&after=0")).await, (r#"{"turn":2}"#.into(), 3));
    // Without `Retry-After` the client backs off by itself.
    assert_eq!(call(&fixture, get("/flaky?n=1")).await, (r#"{"turn":1}"#.into(), 2));
    assert_eq!(
        call(&fixture, get("/flaky?n=9&after=0")).await,
        ("503 Service Unavailable; try again in 0 s".into(), 4)
    );
    // The delay exceeds the timeout.
    assert_eq!(
        call(&fixture, get("/flaky?n=1&after=3600")).await,
        ("503 Service Unavailable; try again in 3600 s".into(), 1)
    );
    let posted = |idempotent| HttpSpec { method: "POST".into(), idempotent, ..get("/flaky?n=1&after=0") };
    assert_eq!(call(&fixture, posted(None)).await, ("503 Service Unavailable; try again in 0 s".into(), 1));
    assert_eq!(call(&fixture, posted(Some(true))).await, (r#"{"turn":1}"#.into(), 2));
    assert_eq!(call(&fixture, get("/reset")).await.1, 4);
    assert_eq!(call(&fixture, HttpSpec { method: "POST".into(), ..get("/reset") }).await.1, 1);
    fixture.client_spec.retry.statuses = vec![429];
    assert_eq!(call(&fixture, get("/flaky?n=1&after=0")).await.1, 1);
}

#[tokio::test]
async fn connections_are_reused() {
    let fixture = HttpFixture::new().await;
    let client = fixture.client(get("/echo"), json!({}));
    for _ in 0..5 {
        assert!(!client.call("it", json!({})).await.is_error());
    }
    assert_eq!(fixture.server.n_connections(), 1);
}

#[tokio::test]
async fn the_waiting_queue_is_bounded() {
    let fixture = HttpFixture::new().await;
    let spec = HttpSpec { concurrency: 4, queue: 6, ..get("/slow?ms=500") };
    let client = fixture.client(spec, json!({}));
    let calls: Vec<_> = (0..20).map(|_| client.call("it", json!({})).start()).collect();
    let mut n_busy = 0;
    for call in calls {
        let called = call.await;
        if called.is_error() {
            assert!(called.text().starts_with("busy"), "{}", called.text());
            n_busy += 1;
        }
    }
    assert_eq!(n_busy, 10);
    assert_eq!(fixture.server.max_active(), 4);
}

#[tokio::test]
async fn cancelling_a_call_ends_its_request() {
    let fixture = HttpFixture::new().await;
    let client = fixture.client(get("/drip"), json!({}));
    let call = client.call("it", json!({})).start();
    let wait_until_dripping = async |wanted: usize| {
        for _ in 0..400 {
            if fixture.server.n_dripping() == wanted {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    };
    assert!(wait_until_dripping(1).await, "the backend is sending");
    call.cancel().await;
    assert!(wait_until_dripping(0).await, "the request was cancelled");
}

#[tokio::test]
async fn a_document_is_fetched_once() {
    let fixture = HttpFixture::new().await;
    let connection = fixture.connect();
    let address = format!("http://{}/openapi.json", fixture.server.address);
    let first = connection.fetch(&address, None, 1000).await.unwrap().unwrap();
    assert_eq!(
        (first.text.as_str(), first.etag.as_deref()),
        (r#"{"openapi":"3.0.0","paths":{}}"#, Some("\"one\""))
    );
    assert_eq!(connection.fetch(&address, first.etag.as_deref(), 1000).await, Ok(None));
    let base = format!("http://{}", fixture.server.address);
    assert!(connection.fetch(&format!("{base}/huge?mb=1"), None, 1000).await.unwrap_err().contains("larger"));
    assert!(connection.fetch(&format!("{base}/status?c=404"), None, 1000).await.unwrap_err().contains("404"));
    assert!(
        connection.fetch("http://169.254.169.254/", None, 1000).await.unwrap_err().contains("not allowed")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_a_thousand_calls_of_a_slow_backend_do_not_block_others() {
    let fixture = HttpFixture::new().await;
    let slow = fixture.client(HttpSpec { concurrency: 64, queue: 256, ..get("/slow?ms=1500") }, json!({}));
    let quick = fixture.client(get("/echo"), json!({}));
    let calls: Vec<_> = (0..1000).map(|_| slow.call("it", json!({})).start()).collect();
    let mut times = Vec::new();
    for _ in 0..50 {
        let started = std::time::Instant::now();
        assert!(!quick.call("it", json!({})).await.is_error());
        times.push(started.elapsed());
    }
    times.sort();
    let mut n_busy = 0;
    for call in calls {
        let called = call.await;
        n_busy += usize::from(called.is_error() && called.text().starts_with("busy"));
    }
    assert_eq!(n_busy, 1000 - 64 - 256);
    // 64 calls, the fast one, and calls whose end the backend has not noticed yet when the next ones arrive: at most as many.
    let busiest = fixture.server.max_active();
    assert!(busiest <= 2 * 64 + 1, "{busiest} at once");
    // Checks the median only, since other tests run at the same time.
    assert!(times[25] < std::time::Duration::from_millis(50), "{times:?}");
}
