//! The backend: answers on loopback, remembers what it heard, and misbehaves by path.

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

type Body = BoxBody<Bytes, Infallible>;

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    heard: Mutex<Vec<Value>>,
    /// Bodies that drip at this moment.
    dripping: AtomicUsize,
    /// Calls that are served at this moment, and the most there were.
    busy: AtomicUsize,
    busiest: AtomicUsize,
    tries: AtomicUsize,
    connections: AtomicUsize,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    pub(crate) async fn start() -> Backend {
        Backend::listen(None).await
    }

    pub(crate) async fn start_secure(certificate: &str, key: &str) -> Backend {
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
        Backend::listen(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn listen(tls: Option<TlsAcceptor>) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                state.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&state), request));
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
        Backend { address, state, task }
    }

    pub(crate) fn heard(&self) -> Vec<Value> {
        self.state.heard.lock().unwrap().clone()
    }

    pub(crate) fn forget(&self) {
        self.state.heard.lock().unwrap().clear();
        self.state.tries.store(0, Ordering::Relaxed);
    }

    pub(crate) fn dripping(&self) -> usize {
        self.state.dripping.load(Ordering::Relaxed)
    }

    pub(crate) fn busiest(&self) -> usize {
        self.state.busiest.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

/// Counts while it lives.
struct Count(Arc<State>, fn(&State) -> &AtomicUsize);

impl Count {
    fn begin(state: &Arc<State>, which: fn(&State) -> &AtomicUsize) -> Count {
        let now = which(state).fetch_add(1, Ordering::Relaxed) + 1;
        state.busiest.fetch_max(now, Ordering::Relaxed);
        Count(Arc::clone(state), which)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut headers = Map::new();
    for (name, value) in &parts.headers {
        headers.insert(name.to_string(), String::from_utf8_lossy(value.as_bytes()).into());
    }
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let heard = json!({
        "method": parts.method.as_str(), "path": parts.uri.path(), "query": query, "headers": headers,
        "body": String::from_utf8_lossy(&body), "version": format!("{:?}", parts.version),
    });
    state.heard.lock().unwrap().push(heard.clone());
    let field =
        |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).map(plain);
    let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let _busy = Count::begin(&state, |state| &state.busy);
    Ok(match parts.uri.path() {
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            reply(200, "application/json", "{}")
        }
        "/drip" => drip(&state),
        "/huge" => huge(number("mb")),
        "/gzip" => with(
            reply(
                200,
                "application/json",
                zipped(&vec![b' '; 1024 * 1024 * usize::try_from(number("mb")).unwrap()]),
            ),
            "content-encoding",
            "gzip",
        ),
        "/zipped" => {
            with(reply(200, "application/json", zipped(br#"{"zipped":true}"#)), "content-encoding", "gzip")
        }
        "/half" => {
            with(reply(200, "application/json", zipped(b"{}")[..12].to_vec()), "content-encoding", "gzip")
        }
        "/brotli" => with(reply(200, "application/json", "{}"), "content-encoding", "br"),
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
            let turn = state.tries.fetch_add(1, Ordering::Relaxed) as u64;
            match turn < number("n") {
                true => with(
                    reply(503, "text/plain", "later"),
                    "retry-after",
                    &field("after").unwrap_or_default(),
                ),
                false => reply(200, "application/json", format!("{{\"turn\":{turn}}}")),
            }
        }
        "/redir" => with(reply(302, "", ""), "location", &field("to").unwrap_or_default()),
        "/redirloop" => with(reply(302, "", ""), "location", "/redirloop"),
        "/list" => {
            let more = if query.is_empty() {
                String::new()
            } else {
                format!("&key=k&again={}", field("other").unwrap_or_default())
            };
            let link = format!("<http://10.0.0.7/list?page=2{more}>; rel=\"next\"");
            let reply = with(reply(200, "application/json", r#"[{"id":1},{"id":2}]"#), "x-wp-total", "37");
            let reply = with(with(reply, "x-wp-totalpages", "19"), "link", &link);
            with(
                with(reply, "set-cookie", "backend-cookie=1"),
                "www-authenticate",
                "Basic realm=\"backend-cookie\"",
            )
        }
        path if path.starts_with("/wp/") => wordpress(path),
        "/openapi.json" => match heard["headers"].get("if-none-match") {
            Some(known) if known == "\"one\"" => reply(304, "", ""),
            _ => with(reply(200, "application/json", r#"{"openapi":"3.0.0","paths":{}}"#), "etag", "\"one\""),
        },
        _ => reply(200, "application/json", heard.to_string()),
    })
}

fn wordpress(path: &str) -> Response<Body> {
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

fn reply(status: u16, mime: &str, body: impl Into<Bytes>) -> Response<Body> {
    let reply = Response::builder().status(status).body(Full::new(body.into()).boxed()).unwrap();
    if mime.is_empty() { reply } else { with(reply, "content-type", mime) }
}

fn with(mut reply: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    reply.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    reply
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A body that goes on for ever, a byte at a time.
fn drip(state: &Arc<State>) -> Response<Body> {
    let count = Count::begin(state, |state| &state.dripping);
    let stream = Endless {
        every: Some(tokio::time::interval(Duration::from_millis(20))),
        left: u64::MAX,
        chunk: Bytes::from_static(b" "),
        _count: Some(count),
    };
    with(Response::new(BodyExt::boxed(StreamBody::new(stream))), "content-type", "application/json")
}

fn huge(mb: u64) -> Response<Body> {
    let chunk = Bytes::from(vec![b' '; 64 * 1024]);
    let stream = Endless { every: None, left: mb * 16, chunk, _count: None };
    with(Response::new(BodyExt::boxed(StreamBody::new(stream))), "content-type", "application/json")
}

struct Endless {
    every: Option<tokio::time::Interval>,
    left: u64,
    chunk: Bytes,
    _count: Option<Count>,
}

impl futures_core::Stream for Endless {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        use std::task::Poll;
        if let Some(every) = &mut self.every
            && every.poll_tick(cx).is_pending()
        {
            return Poll::Pending;
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

fn plain(text: &str) -> String {
    text.replace("%3A", ":").replace("%2F", "/").replace("%3F", "?").replace("%3D", "=").replace("%40", "@")
}
