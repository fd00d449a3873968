//! Memory per idle session, open stream and idle connection: resident size before and after opening many of them.

use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::options::Options;
use crate::server::Server;
use crate::workload::{Kind, PreparedRequest, Protocol, Workload};
use crate::{BoxError, Figures};

/// How many to open before the first reading, so that lazily allocated memory is not counted.
fn warm_up_count(count: usize) -> usize {
    (count / 20).min(50)
}

/// Opens sessions one after the other and leaves them idle.
pub(crate) fn sessions(options: &Options) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let mut client = Client::connect(&server.endpoint)?;
    let n_warm = warm_up_count(options.count);
    let (mut n_opened, mut rejection) = (0, None);
    let mut before = server.rss_kib()?;
    for number in 0..options.count {
        if number == n_warm {
            before = server.rss_kib()?;
            n_opened = 0;
        }
        match client.handshake() {
            Ok(Some(_)) => n_opened += 1,
            Ok(None) => return Err("the server opens no sessions".into()),
            // The server may close the connection with its error.
            Err(error) => {
                rejection.get_or_insert(error);
                client = Client::connect(&server.endpoint)?;
            }
        }
    }
    memory_figures(&server, before, n_opened, options.count - n_warm, rejection)
}

/// Opens streams, each on a connection (and before 2026, in a session) of its own.
pub(crate) fn streams(options: &Options, protocol: Protocol) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let n_warm = warm_up_count(options.count);
    let mut clients = Vec::with_capacity(options.count);
    let (mut before, mut n_before, mut rejection) = (server.rss_kib()?, 0, None);
    for number in 0..options.count {
        if number == n_warm {
            (before, n_before) = (server.rss_kib()?, clients.len());
        }
        match open_stream(&server, protocol, number) {
            Ok(client) => clients.push(client),
            Err(error) => drop(rejection.get_or_insert(error)),
        }
    }
    memory_figures(&server, before, clients.len() - n_before, options.count - n_warm, rejection)
}

fn open_stream(server: &Server, protocol: Protocol, number: usize) -> Result<Client, BoxError> {
    let mut client = Client::connect(&server.endpoint)?;
    let request = match protocol {
        Protocol::Modern => PreparedRequest::listen(&server.endpoint, number + 1),
        Protocol::Legacy | Protocol::Session => {
            let session = client.handshake()?.ok_or("the server opens no sessions")?;
            PreparedRequest::open_stream(&server.endpoint, &session)
        }
    };
    let head = client.open_stream(&request)?;
    match (head.status, &*head.content_type) {
        (200, kind) if kind.starts_with("text/event-stream") => Ok(client),
        (status, kind) => Err(format!("expected a stream, got status {status} and `{kind}`").into()),
    }
}

/// Opens connections, sends one request on each, and leaves them open.
pub(crate) fn connections(options: &Options) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let n_warm = warm_up_count(options.count);
    let mut clients = Vec::with_capacity(options.count);
    let (mut before, mut n_before, mut rejection) = (server.rss_kib()?, 0, None);
    let discover = Workload { kind: Kind::Discover, protocol: Protocol::Modern };
    for number in 0..options.count {
        if number == n_warm {
            (before, n_before) = (server.rss_kib()?, clients.len());
        }
        let mut client = Client::connect(&server.endpoint)?;
        match client.exchange(&discover.prepare(&server.endpoint, None, number).bytes) {
            Ok(response) if response.is_success() => clients.push(client),
            Ok(response) => drop(rejection.get_or_insert(format!("status {}", response.head.status).into())),
            Err(error) => drop(rejection.get_or_insert(error)),
        }
    }
    memory_figures(&server, before, clients.len() - n_before, options.count - n_warm, rejection)
}

fn memory_figures(
    server: &Server,
    before: f64,
    n_opened: usize,
    n_attempts: usize,
    rejection: Option<BoxError>,
) -> Result<Figures, BoxError> {
    match rejection {
        Some(error) if n_opened == 0 => return Err(format!("none was opened: {error}").into()),
        Some(error) => {
            eprintln!("{} of {n_attempts} were rejected, the first with: {error}", n_attempts - n_opened);
        }
        None => {}
    }
    // Let the server finish its work after the last response.
    thread::sleep(Duration::from_millis(300));
    let after = server.rss_kib()?;
    Ok(vec![
        ("opened".into(), n_opened as f64),
        ("refused".into(), (n_attempts - n_opened) as f64),
        ("bytes_each".into(), (after - before) * 1024.0 / n_opened as f64),
        ("rss_kib".into(), after),
    ])
}
