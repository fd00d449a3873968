//! The baseline of the benchmarks: bare hyper that parses a request, echoes, and does nothing else.
//!
//! It deserializes the envelope and the arguments with serde_json into borrowed structs, writes the response into one
//! buffer, and validates neither headers nor sessions nor schemas. With `--stateless` it opens no sessions. It runs as the
//! measured server does: tokio's current-thread runtime on one core, else the multi-thread one, one task per connection,
//! `TCP_NODELAY`. `--listen ADDR` serves HTTP, `--stdio` lines.

mod body;
mod reply;

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::thread;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use crate::body::ResponseBody;
use crate::reply::{ReplyKind, StaticReplies};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Leaked, because it lives as long as the process.
    let replies: &'static StaticReplies = Box::leak(Box::new(StaticReplies::new()));
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => Ok(serve_stdio(replies)?),
        ["--listen", address] => Ok(listen(replies, address)?),
        ["--stateless", "--listen", address] => {
            Ok(listen(Box::leak(Box::new(StaticReplies::stateless())), address)?)
        }
        _ => Err("usage: limit [--stateless] --listen ADDR | --stdio".into()),
    }
}

fn listen(replies: &'static StaticReplies, address: &str) -> io::Result<()> {
    let mut runtime = match thread::available_parallelism()?.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(accept(replies, address))
}

async fn accept(replies: &'static StaticReplies, address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(replies, stream));
    }
}

async fn connection(replies: &'static StaticReplies, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(replies, request));
    // An error only means that the client has disconnected.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    replies: &'static StaticReplies,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    match *request.method() {
        Method::GET => return Ok(stream(ResponseBody::open(": open\n\n".into()))),
        Method::DELETE => return Ok(Response::new(ResponseBody::full(Bytes::new()))),
        _ => {}
    }
    let Ok(body) = request.into_body().collect().await else {
        return Ok(rejected());
    };
    let body = body.to_bytes();
    let mut out = Vec::with_capacity(body.len() + 256);
    Ok(match replies.reply(&body, &mut out) {
        ReplyKind::Result => json(out),
        ReplyKind::Session => {
            let mut response = json(out);
            let id = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
            response.headers_mut().insert(SESSION, id);
            response
        }
        ReplyKind::Stream => stream(ResponseBody::open(out.into())),
        ReplyKind::NoContent => {
            let mut response = Response::new(ResponseBody::full(out.into()));
            *response.status_mut() = StatusCode::ACCEPTED;
            response
        }
        ReplyKind::Rejected => rejected(),
    })
}

fn json(out: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(out.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn stream(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn rejected() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full("rejected".into()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Replies to all lines of one read with one write.
fn serve_stdio(replies: &StaticReplies) -> io::Result<()> {
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let (mut pending, mut out) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let n_read = stdin.read(&mut chunk)?;
        if n_read == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&chunk[..n_read]);
        let mut start = 0;
        while let Some(length) = pending[start..].iter().position(|byte| *byte == b'\n') {
            if !matches!(replies.reply(&pending[start..start + length], &mut out), ReplyKind::NoContent) {
                out.push(b'\n');
            }
            start += length + 1;
        }
        pending.drain(..start);
        stdout.write_all(&out)?;
        stdout.flush()?;
        out.clear();
    }
}
