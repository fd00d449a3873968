//! The limit that benchmarks divide by: bare hyper that parses a request, echoes, and does nothing else.
//!
//! It reads the envelope and the arguments with serde_json into borrowed structs, writes the answer into one buffer,
//! and checks neither headers nor sessions nor schemas; `--stateless` names no session either. It runs as the measured
//! server runs: tokio's runtime for one thread where there is one core, else that for several, one task per connection,
//! `TCP_NODELAY`. `--listen ADDR` serves HTTP, `--stdio` lines.

mod answer;
mod body;

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

use crate::answer::{Answer, Lists};
use crate::body::Outgoing;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Both live as long as the process.
    let lists: &'static Lists = Box::leak(Box::new(Lists::new()));
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => Ok(lines(lists)?),
        ["--listen", address] => Ok(listen(lists, address)?),
        ["--stateless", "--listen", address] => Ok(listen(Box::leak(Box::new(Lists::stateless())), address)?),
        _ => Err("usage: limit [--stateless] --listen ADDR | --stdio".into()),
    }
}

fn listen(lists: &'static Lists, address: &str) -> io::Result<()> {
    let mut runtime = match thread::available_parallelism()?.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(accept(lists, address))
}

async fn accept(lists: &'static Lists, address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(lists, stream));
    }
}

async fn connection(lists: &'static Lists, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(lists, request));
    // A client that goes away is no news.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    lists: &'static Lists,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Infallible> {
    match *request.method() {
        Method::GET => return Ok(stream(Outgoing::open(": open\n\n".into()))),
        Method::DELETE => return Ok(Response::new(Outgoing::full(Bytes::new()))),
        _ => {}
    }
    let Ok(body) = request.into_body().collect().await else {
        return Ok(refused());
    };
    let body = body.to_bytes();
    let mut out = Vec::with_capacity(body.len() + 256);
    Ok(match lists.answer(&body, &mut out) {
        Answer::Result => json(out),
        Answer::Session => {
            let mut response = json(out);
            let id = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
            response.headers_mut().insert(SESSION, id);
            response
        }
        Answer::Stream => stream(Outgoing::open(out.into())),
        Answer::Nothing => {
            let mut response = Response::new(Outgoing::full(out.into()));
            *response.status_mut() = StatusCode::ACCEPTED;
            response
        }
        Answer::Refused => refused(),
    })
}

fn json(out: Vec<u8>) -> Response<Outgoing> {
    let mut response = Response::new(Outgoing::full(out.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn stream(body: Outgoing) -> Response<Outgoing> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn refused() -> Response<Outgoing> {
    let mut response = Response::new(Outgoing::full("refused".into()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Answers all the lines that one read brings with one write.
fn lines(lists: &Lists) -> io::Result<()> {
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
            if !matches!(lists.answer(&pending[start..start + length], &mut out), Answer::Nothing) {
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
