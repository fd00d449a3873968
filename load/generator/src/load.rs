//! The closed loop: every connection has one request under way, and sends the next when the answer is in.
//!
//! One thread and edge-triggered readiness: one `write` and one `read` per request, so that the generator is faster
//! than what it measures.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::client::Client;
use crate::cpu;
use crate::histogram::Histogram;
use crate::options::Options;
use crate::response::Head;
use crate::server::{Endpoint, Server};
use crate::workload::{Kind, PreparedRequest, Protocol, Workload};
use crate::{BoxError, Figures};

const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) fn measure(options: &Options, workload: Workload) -> Result<Figures, BoxError> {
    let server = Server::start(options)?;
    // A first answer fills what is filled lazily; what is resident then is the idle server.
    let mut first = Load::open(&server, workload, 1)?;
    first.run_until(StopCondition::Count(1))?;
    // A server that cannot do it is not asked a hundred thousand times.
    if let Some(why) = first.first_error() {
        return Err(format!("the first answer is wrong: {why}").into());
    }
    let idle = server.rss_kib()?;
    let mut load = Load::open(&server, workload, options.n_connections)?;
    load.run_until(StopCondition::At(Instant::now() + WARM_UP))?;
    load.reset();
    let (before, began) = (server.cpu()?, Instant::now());
    load.run_until(StopCondition::At(began + options.window))?;
    let (cpu, seconds) = (server.cpu()?.since(before), began.elapsed().as_secs_f64());
    load.print_first_error();
    if load.n_done == 0 {
        return Err("not one request was answered".into());
    }
    let n_done = load.n_done as f64;
    let mut figures: Figures = vec![
        ("requests".into(), n_done),
        ("failures".into(), load.n_failed as f64),
        ("per_second".into(), n_done / seconds),
        ("cpu_share".into(), cpu / seconds),
        ("p50_us".into(), load.latencies.micros_at(0.5)),
        ("p99_us".into(), load.latencies.micros_at(0.99)),
        ("worst_us".into(), load.latencies.micros_at(1.0)),
        ("idle_rss_kib".into(), idle),
        ("rss_kib".into(), server.rss_kib()?),
    ];
    figures.extend(cpu::micros_per_request(cpu, load.n_done).map(|micros| ("cpu_us".into(), micros)));
    Ok(figures)
}

/// When to stop.
#[derive(Clone, Copy)]
pub(crate) enum StopCondition {
    At(Instant),
    Count(u64),
}

/// All connections, and what they have seen so far.
pub(crate) struct Load {
    poll: Poll,
    connections: Vec<Connection>,
    latencies: Histogram,
    pub(crate) n_done: u64,
    pub(crate) n_failed: u64,
}

impl Load {
    pub(crate) fn open(server: &Server, workload: Workload, n_connections: usize) -> Result<Self, BoxError> {
        Self::open_mix(server, &[workload], n_connections)
    }

    /// Connections that ask for these in turn.
    pub(crate) fn open_mix(
        server: &Server,
        workloads: &[Workload],
        n_connections: usize,
    ) -> Result<Self, BoxError> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(n_connections);
        for (number, workload) in (0..n_connections).zip(workloads.iter().copied().cycle()) {
            let mut connection = Connection::open(server, workload, number)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut connection.stream, Token(number), interest)?;
            connections.push(connection);
        }
        Ok(Self { poll, connections, latencies: Histogram::new(), n_done: 0, n_failed: 0 })
    }

    /// What was wrong with the first answer that was.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.connections.iter().find_map(|connection| connection.first_error.as_deref())
    }

    /// Tells whoever started the run, whose last words are shown.
    pub(crate) fn print_first_error(&self) {
        if let Some(why) = self.first_error() {
            eprintln!("{why}");
        }
    }

    /// Forgets what was counted; requests under way go on.
    pub(crate) fn reset(&mut self) {
        (self.latencies, self.n_done, self.n_failed) = (Histogram::new(), 0, 0);
    }

    /// Runs until told to stop, and fails if a server leaves everything unanswered for ten seconds.
    pub(crate) fn run_until(&mut self, stop: StopCondition) -> Result<(), BoxError> {
        let mut events = Events::with_capacity(1024);
        let mut progress = Instant::now();
        for connection in &mut self.connections {
            connection.send();
        }
        loop {
            self.poll.poll(&mut events, Some(Duration::from_millis(100)))?;
            let before = self.n_done;
            for event in &events {
                let Some(connection) = self.connections.get_mut(event.token().0) else {
                    continue;
                };
                if let Some(outcome) = connection.advance(&mut self.latencies) {
                    self.n_done += 1;
                    self.n_failed += u64::from(outcome == Outcome::Invalid);
                    let more = match stop {
                        StopCondition::At(_) => true,
                        StopCondition::Count(limit) => self.n_done + self.connections.len() as u64 <= limit,
                    };
                    if more {
                        self.connections[event.token().0].send();
                    }
                }
            }
            let now = Instant::now();
            let over = match stop {
                StopCondition::At(end) => now >= end,
                StopCondition::Count(limit) => self.n_done >= limit,
            };
            if over {
                return Ok(());
            }
            if self.n_done > before {
                progress = now;
            } else if now - progress > Duration::from_secs(10) {
                return Err("no answer for ten seconds".into());
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Valid,
    Invalid,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is under way.
    Idle,
    /// The request is under way.
    AwaitingResponse,
    /// The session that the request opened is being ended.
    DeletingSession,
    /// The server closed the connection.
    Closed,
}

struct Connection {
    stream: TcpStream,
    endpoint: Endpoint,
    request: PreparedRequest,
    /// Ends a session; made anew for each.
    delete_request: Vec<u8>,
    kind: Kind,
    protocol: Protocol,
    state: State,
    started: Instant,
    n_written: usize,
    buffer: Vec<u8>,
    n_read: usize,
    /// What was wrong with the first answer that was.
    first_error: Option<String>,
}

impl Connection {
    fn open(server: &Server, workload: Workload, number: usize) -> Result<Self, BoxError> {
        let mut client = Client::connect(&server.endpoint)?;
        let session = match workload.protocol {
            // Each request opens one.
            Protocol::Session if workload.kind == Kind::Initialize => None,
            Protocol::Session => Some(client.handshake()?.ok_or("the server opens no sessions")?),
            Protocol::Legacy | Protocol::Modern => None,
        };
        let stream = client.into_stream();
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            endpoint: server.endpoint.clone(),
            request: workload.prepare(&server.endpoint, session.as_deref(), number),
            delete_request: Vec::new(),
            kind: workload.kind,
            protocol: workload.protocol,
            state: State::Idle,
            started: Instant::now(),
            n_written: 0,
            buffer: vec![0; 128 * 1024],
            n_read: 0,
            first_error: None,
        })
    }

    /// Sends the request, unless one is under way.
    fn send(&mut self) {
        if self.state == State::Idle {
            self.state = State::AwaitingResponse;
            self.started = Instant::now();
            self.n_written = 0;
            self.write();
        }
    }

    /// Writes what can be written; the rest waits for the socket to be writable again.
    fn write(&mut self) {
        let bytes = match self.state {
            State::AwaitingResponse => &self.request.bytes,
            State::DeletingSession => &self.delete_request,
            State::Idle | State::Closed => return,
        };
        while self.n_written < bytes.len() {
            match self.stream.write(&bytes[self.n_written..]) {
                Ok(n_written) => self.n_written += n_written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The reading side tells the story.
                Err(_) => return,
            }
        }
    }

    /// Takes what has arrived. `Some` if that completes a request.
    fn advance(&mut self, latencies: &mut Histogram) -> Option<Outcome> {
        self.write();
        match self.read() {
            Ok(None) => None,
            Ok(Some(outcome)) => {
                latencies.add(self.started.elapsed());
                Some(outcome)
            }
            Err(error) => {
                self.first_error.get_or_insert_with(|| format!("the connection ended: {error}"));
                let under_way = matches!(self.state, State::AwaitingResponse | State::DeletingSession);
                self.state = State::Closed;
                under_way.then_some(Outcome::Invalid)
            }
        }
    }

    fn read(&mut self) -> io::Result<Option<Outcome>> {
        loop {
            if self.n_read == self.buffer.len() {
                self.buffer.resize(2 * self.n_read, 0);
            }
            match self.stream.read(&mut self.buffer[self.n_read..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n_read) => self.n_read += n_read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // A whole answer is all that can have come, so there is no need to read until nothing is left.
            if let Some(outcome) = self.check_response()? {
                return Ok(Some(outcome));
            }
        }
    }

    /// Judges the answer if it is whole.
    fn check_response(&mut self) -> io::Result<Option<Outcome>> {
        let buffer = &self.buffer[..self.n_read];
        let Some(head) = Head::read(buffer).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let Some(body) = head.body(buffer) else {
            return Ok(None);
        };
        let right = match self.state {
            // A server may leave the end of sessions to itself, and says so with 405.
            State::DeletingSession => matches!(head.status, 200..300 | 405),
            _ => head.status == 200 && self.request.accepts(&body),
        };
        let opened = self.state == State::DeletingSession || self.has_expected_session(&head);
        if !(right && opened) && self.first_error.is_none() {
            self.first_error = Some(match (right, &head.session) {
                (true, Some(_)) => "a session was opened, and none was wanted".to_owned(),
                (true, None) => "no session was opened".to_owned(),
                (false, _) => {
                    let shown: String = String::from_utf8_lossy(&body).chars().take(120).collect();
                    format!("status {} with {}", head.status, shown.replace(['\r', '\n'], " ").trim())
                }
            });
        }
        let right = right && opened;
        self.n_read = 0;
        let (State::AwaitingResponse, Kind::Initialize, true, Some(session)) =
            (self.state, self.kind, right, head.session)
        else {
            self.state = State::Idle;
            return Ok(Some(if right { Outcome::Valid } else { Outcome::Invalid }));
        };
        self.delete_request = PreparedRequest::delete_session(&self.endpoint, &session);
        self.state = State::DeletingSession;
        self.n_written = 0;
        self.write();
        Ok(None)
    }

    /// Where `initialize` is measured with a session there has to be one, and without there has to be none.
    fn has_expected_session(&self, head: &Head) -> bool {
        self.kind != Kind::Initialize || head.session.is_some() == (self.protocol == Protocol::Session)
    }
}
