//! Memory per idle session, per open stream, per idle connection: resident size before and after many of them.

use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::options::Options;
use crate::server::Server;
use crate::workload::{Kind, PreparedRequest, Protocol, Workload};
use crate::{BoxError, Figures};

/// How many of so many to open before the first measure, so that what exists anyway is not counted.
fn warm_up_count(count: usize) -> usize {
    (count / 20).min(50)
}

/// Opens sessions one after the other and leaves them alone.
pub(crate) fn sessions(options: &Options) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let mut client = Client::connect(&server.endpoint)?;
    let n_warm = warm_up_count(options.count);
    let (mut n_opened, mut refusal) = (0, None);
    let mut before = server.rss_kib()?;
    for number in 0..options.count {
        if number == n_warm {
            before = server.rss_kib()?;
            n_opened = 0;
        }
        match client.handshake() {
            Ok(Some(_)) => n_opened += 1,
            Ok(None) => return Err("the server opens no sessions".into()),
            // A refusal may close the connection.
            Err(why) => {
                refusal.get_or_insert(why);
                client = Client::connect(&server.endpoint)?;
            }
        }
    }
    memory_figures(&server, before, n_opened, options.count - n_warm, refusal)
}

/// Opens streams, each on a connection (and before 2026, in a session) of its own.
pub(crate) fn streams(options: &Options, era: Protocol) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let n_warm = warm_up_count(options.count);
    let mut kept = Vec::with_capacity(options.count);
    let (mut before, mut n_before, mut refusal) = (server.rss_kib()?, 0, None);
    for number in 0..options.count {
        if number == n_warm {
            (before, n_before) = (server.rss_kib()?, kept.len());
        }
        match open_stream(&server, era, number) {
            Ok(client) => kept.push(client),
            Err(why) => drop(refusal.get_or_insert(why)),
        }
    }
    memory_figures(&server, before, kept.len() - n_before, options.count - n_warm, refusal)
}

fn open_stream(server: &Server, era: Protocol, number: usize) -> Result<Client, BoxError> {
    let mut client = Client::connect(&server.endpoint)?;
    let request = match era {
        Protocol::Modern => PreparedRequest::listen(&server.endpoint, number + 1),
        Protocol::Legacy | Protocol::Session => {
            let session = client.handshake()?.ok_or("the server opens no sessions")?;
            PreparedRequest::open_stream(&server.endpoint, &session)
        }
    };
    let head = client.open_stream(&request)?;
    match (head.status, &*head.content_type) {
        (200, kind) if kind.starts_with("text/event-stream") => Ok(client),
        (status, kind) => Err(format!("no stream, but status {status} and `{kind}`").into()),
    }
}

/// Opens connections, has each answered once, and leaves them open.
pub(crate) fn connections(options: &Options) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    let n_warm = warm_up_count(options.count);
    let mut kept = Vec::with_capacity(options.count);
    let (mut before, mut n_before, mut refusal) = (server.rss_kib()?, 0, None);
    let discover = Workload { kind: Kind::Discover, protocol: Protocol::Modern };
    for number in 0..options.count {
        if number == n_warm {
            (before, n_before) = (server.rss_kib()?, kept.len());
        }
        let mut client = Client::connect(&server.endpoint)?;
        match client.exchange(&discover.prepare(&server.endpoint, None, number).bytes) {
            Ok(reply) if reply.is_success() => kept.push(client),
            Ok(reply) => drop(refusal.get_or_insert(format!("status {}", reply.head.status).into())),
            Err(why) => drop(refusal.get_or_insert(why)),
        }
    }
    memory_figures(&server, before, kept.len() - n_before, options.count - n_warm, refusal)
}

fn memory_figures(
    server: &Server,
    before: f64,
    n_opened: usize,
    n_asked: usize,
    refusal: Option<BoxError>,
) -> Result<Figures, BoxError> {
    match refusal {
        Some(why) if n_opened == 0 => return Err(format!("none was opened: {why}").into()),
        Some(why) => eprintln!("{} of {n_asked} were refused, the first with: {why}", n_asked - n_opened),
        None => {}
    }
    // Whatever the server does behind the last answer.
    thread::sleep(Duration::from_millis(300));
    let after = server.rss_kib()?;
    Ok(vec![
        ("opened".into(), n_opened as f64),
        ("refused".into(), (n_asked - n_opened) as f64),
        ("bytes_each".into(), (after - before) * 1024.0 / n_opened as f64),
        ("rss_kib".into(), after),
    ])
}
