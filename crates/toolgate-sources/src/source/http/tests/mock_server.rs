//! A mock backend on loopback that records requests and misbehaves by path.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

type MockBody = BoxBody<Bytes, Infallible>;

pub(crate) struct MockServer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<Value>>,
    /// Bodies that are being sent slowly.
    n_dripping: AtomicUsize,
    /// Calls in progress, and the highest number so far.
    n_active: AtomicUsize,
    max_active: AtomicUsize,
    n_attempts: AtomicUsize,
    n_connections: AtomicUsize,
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MockServer {
    pub(crate) async fn start() -> MockServer {
        MockServer::listen(None).await
    }

    pub(crate) async fn start_tls(certificate: &str, key: &str) -> MockServer {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        MockServer::listen(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn listen(tls: Option<TlsAcceptor>) -> MockServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                state.n_connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    let service = service_fn(move |request| respond(Arc::clone(&state), request));
                    let builder = Builder::new(TokioExecutor::new());
                    let _ = match tls {
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
                            Err(_) => Ok(()),
                        },
                        None => builder.serve_connection(TokioIo::new(stream), service).await,
                    };
                });
            }
        });
        MockServer { address, state, task }
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap().clone()
    }

    pub(crate) fn reset(&self) {
        self.state.requests.lock().unwrap().clear();
        self.state.n_attempts.store(0, Ordering::Relaxed);
    }

    pub(crate) fn n_dripping(&self) -> usize {
        self.state.n_dripping.load(Ordering::Relaxed)
    }

    pub(crate) fn max_active(&self) -> usize {
        self.state.max_active.load(Ordering::Relaxed)
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.state.n_connections.load(Ordering::Relaxed)
    }
}

/// Increments a counter until it is dropped.
struct CountGuard(Arc<State>, fn(&State) -> &AtomicUsize);

impl CountGuard {
    fn enter(state: &Arc<State>, which: fn(&State) -> &AtomicUsize) -> CountGuard {
        let now = which(state).fetch_add(1, Ordering::Relaxed) + 1;
        state.max_active.fetch_max(now, Ordering::Relaxed);
        CountGuard(Arc::clone(state), which)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

async fn respond(state: Arc<State>, request: Request<Incoming>) -> Result<Response<MockBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut headers = Map::new();
    for (name, value) in &parts.headers {
        headers.insert(name.to_string(), String::from_utf8_lossy(value.as_bytes()).into());
    }
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let received = json!({
        "method": parts.method.as_str(), "path": parts.uri.path(), "query": query, "headers": headers,
        "body": String::from_utf8_lossy(&body), "version": format!("{:?}", parts.version),
    });
    state.requests.lock().unwrap().push(received.clone());
    let field = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).map(decode_query_value)
    };
    let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let _busy = CountGuard::enter(&state, |state| &state.n_active);
    Ok(match parts.uri.path() {
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            reply(200, "application/json", "{}")
        }
        "/drip" => drip_response(&state),
        "/huge" => huge_response(number("mb")),
        "/gzip" => with_header(
            reply(
                200,
                "application/json",
                gzip(&vec![b' '; 1024 * 1024 * usize::try_from(number("mb")).unwrap()]),
            ),
            "content-encoding",
            "gzip",
        ),
        "/zipped" => with_header(
            reply(200, "application/json", gzip(br#"{"zipped":true}"#)),
            "content-encoding",
            "gzip",
        ),
        "/half" => with_header(
            reply(200, "application/json", gzip(b"{}")[..12].to_vec()),
            "content-encoding",
            "gzip",
        ),
        "/brotli" => with_header(reply(200, "application/json", "{}"), "content-encoding", "br"),
        "/badjson" => reply(200, "application/json", "{\"a\":"),
        "/deepjson" => reply(200, "application/json", "[".repeat(100_000)),
        "/html" => reply(200, "text/html", "<html>Please log in</html>"),
        "/text" => reply(200, "text/plain", "plain words"),
        "/image" => reply(200, "image/png", vec![137, 80, 78, 71]),
        "/empty" => reply(204, "", ""),
        "/reset" => panic!("the connection ends here"),
        "/status" => reply(
            u16::try_from(number("c")).unwrap(),
            "application/json",
            r#"{"code":"stack","message":"at /srv/app/secret.php line 7"}"#,
        ),
        "/flaky" => {
            let turn = state.n_attempts.fetch_add(1, Ordering::Relaxed) as u64;
            match turn < number("n") {
                true => with_header(
                    reply(503, "text/plain", "later"),
                    "retry-after",
                    &field("after").unwrap_or_default(),
                ),
                false => reply(200, "application/json", format!("{{\"turn\":{turn}}}")),
            }
        }
        "/redir" => with_header(reply(302, "", ""), "location", &field("to").unwrap_or_default()),
        "/redirloop" => with_header(reply(302, "", ""), "location", "/redirloop"),
        "/list" => {
            let more = if query.is_empty() {
                String::new()
            } else {
                format!("&key=k&again={}", field("other").unwrap_or_default())
            };
            let link = format!("<http://10.0.0.7/list?page=2{more}>; rel=\"next\"");
            let reply =
                with_header(reply(200, "application/json", r#"[{"id":1},{"id":2}]"#), "x-wp-total", "37");
            let reply = with_header(with_header(reply, "x-wp-totalpages", "19"), "link", &link);
            with_header(
                with_header(reply, "set-cookie", "backend-cookie=1"),
                "www-authenticate",
                "Basic realm=\"backend-cookie\"",
            )
        }
        path if path.starts_with("/wp/") => wordpress(path),
        "/openapi.json" => match received["headers"].get("if-none-match") {
            Some(known) if known == "\"one\"" => reply(304, "", ""),
            _ => with_header(
                reply(200, "application/json", r#"{"openapi":"3.0.0","paths":{}}"#),
                "etag",
                "\"one\"",
            ),
        },
        _ => reply(200, "application/json", received.to_string()),
    })
}

fn wordpress(path: &str) -> Response<MockBody> {
    let (status, code, message) = match path {
        "/wp/401" => (401, "rest_not_logged_in", "You are not currently logged in."),
        "/wp/403" => (403, "rest_forbidden", "Sorry, you are not allowed to do that."),
        "/wp/404" => (404, "rest_post_invalid_id", "Invalid post ID."),
        "/wp/user" => (
            401,
            "invalid_username",
            "<strong>Error:</strong> The username <strong>x</strong> is not registered.",
        ),
        _ => (500, "bp_rest_error", "Cannot create new group."),
    };
    let body = json!({ "code": code, "message": message, "data": { "status": status } });
    reply(status, "application/json; charset=UTF-8", body.to_string())
}

fn reply(status: u16, mime: &str, body: impl Into<Bytes>) -> Response<MockBody> {
    let reply = Response::builder().status(status).body(Full::new(body.into()).boxed()).unwrap();
    if mime.is_empty() { reply } else { with_header(reply, "content-type", mime) }
}

fn with_header(mut reply: Response<MockBody>, name: &'static str, value: &str) -> Response<MockBody> {
    reply.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    reply
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An endless body, one byte at a time.
fn drip_response(state: &Arc<State>) -> Response<MockBody> {
    let count = CountGuard::enter(state, |state| &state.n_dripping);
    let stream = ChunkStream {
        interval: Some(tokio::time::interval(Duration::from_millis(20))),
        n_chunks_left: u64::MAX,
        chunk: Bytes::from_static(b" "),
        _count: Some(count),
    };
    with_header(Response::new(BodyExt::boxed(StreamBody::new(stream))), "content-type", "application/json")
}

fn huge_response(mb: u64) -> Response<MockBody> {
    let chunk = Bytes::from(vec![b' '; 64 * 1024]);
    let stream = ChunkStream { interval: None, n_chunks_left: mb * 16, chunk, _count: None };
    with_header(Response::new(BodyExt::boxed(StreamBody::new(stream))), "content-type", "application/json")
}

struct ChunkStream {
    interval: Option<tokio::time::Interval>,
    n_chunks_left: u64,
    chunk: Bytes,
    _count: Option<CountGuard>,
}

impl futures_core::Stream for ChunkStream {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        use std::task::Poll;
        if let Some(every) = &mut self.interval
            && every.poll_tick(cx).is_pending()
        {
            return Poll::Pending;
        }
        if self.n_chunks_left == 0 {
            return Poll::Ready(None);
        }
        self.n_chunks_left -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

fn decode_query_value(text: &str) -> String {
    text.replace("%3A", ":").replace("%2F", "/").replace("%3F", "?").replace("%3D", "=").replace("%40", "@")
}
