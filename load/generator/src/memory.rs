//! Memory per idle session, per open stream, per idle connection: resident size before and after many of them.

use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::options::Options;
use crate::server::Server;
use crate::workload::{Ask, Era, Kind, Workload};
use crate::{Failure, Figures};

/// How many of so many to open before the first measure, so that what exists anyway is not counted.
fn n_to_warm(count: usize) -> usize {
    (count / 20).min(50)
}

/// Opens sessions one after the other and leaves them alone.
pub(crate) fn sessions(options: &Options) -> Result<Figures, Failure> {
    let server = Server::start(options)?;
    let mut client = Client::connect(&server.endpoint)?;
    let n_warm = n_to_warm(options.count);
    let mut n_opened = 0;
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
            Err(_) => client = Client::connect(&server.endpoint)?,
        }
    }
    each(&server, before, n_opened, options.count - n_warm)
}

/// Opens streams, each on a connection (and before 2026, in a session) of its own.
pub(crate) fn streams(options: &Options, era: Era) -> Result<Figures, Failure> {
    let server = Server::start(options)?;
    let n_warm = n_to_warm(options.count);
    let mut kept = Vec::with_capacity(options.count);
    let (mut before, mut n_before) = (server.rss_kib()?, 0);
    for number in 0..options.count {
        if number == n_warm {
            (before, n_before) = (server.rss_kib()?, kept.len());
        }
        kept.extend(stream(&server, era, number));
    }
    each(&server, before, kept.len() - n_before, options.count - n_warm)
}

fn stream(server: &Server, era: Era, number: usize) -> Option<Client> {
    let mut client = Client::connect(&server.endpoint).ok()?;
    let request = match era {
        Era::Modern => Ask::listen(&server.endpoint, number + 1),
        Era::Legacy | Era::Session => Ask::stream(&server.endpoint, &client.handshake().ok()??),
    };
    let head = client.open(&request).ok()?;
    let opened = head.status == 200 && head.content_type.starts_with("text/event-stream");
    opened.then_some(client)
}

/// Opens connections, has each answered once, and leaves them open.
pub(crate) fn connections(options: &Options) -> Result<Figures, Failure> {
    let server = Server::start(options)?;
    let n_warm = n_to_warm(options.count);
    let mut kept = Vec::with_capacity(options.count);
    let (mut before, mut n_before) = (server.rss_kib()?, 0);
    let discover = Workload { kind: Kind::Discover, era: Era::Modern };
    for number in 0..options.count {
        if number == n_warm {
            (before, n_before) = (server.rss_kib()?, kept.len());
        }
        let mut client = Client::connect(&server.endpoint)?;
        let reply = client.exchange(&discover.ask(&server.endpoint, None, number).bytes);
        kept.extend(reply.is_ok_and(|reply| reply.is_success()).then_some(client));
    }
    each(&server, before, kept.len() - n_before, options.count - n_warm)
}

fn each(server: &Server, before: f64, n_opened: usize, n_asked: usize) -> Result<Figures, Failure> {
    if n_opened == 0 {
        return Err("none was opened".into());
    }
    // Whatever the server does behind the last answer.
    thread::sleep(Duration::from_millis(300));
    let after = server.rss_kib()?;
    Ok(vec![
        ("opened", n_opened as f64),
        ("refused", (n_asked - n_opened) as f64),
        ("bytes_each", (after - before) * 1024.0 / n_opened as f64),
        ("rss_kib", after),
    ])
}
