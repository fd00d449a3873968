//! The closed loop: every connection has one request in flight, and sends the next after the response.
//!
//! One thread with edge-triggered readiness, and one `write` and one `read` per request, so that the generator is faster
//! than the server.

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
    // The first response completes lazy initialization; the resident size after it is that of the idle server.
    let mut first = Load::open(&server, workload, 1)?;
    first.run_until(StopCondition::Count(1))?;
    // A server that fails the first request is not sent a hundred thousand more.
    if let Some(error) = first.first_error() {
        return Err(format!("the first response is invalid: {error}").into());
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
        return Err("no request got a response".into());
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

/// When a run of the loop ends.
#[derive(Clone, Copy)]
pub(crate) enum StopCondition {
    At(Instant),
    Count(u64),
}

/// All connections with their counts so far.
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

    /// Opens connections that take these workloads in turn.
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

    /// Describes the first invalid response.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.connections.iter().find_map(|connection| connection.first_error.as_deref())
    }

    /// Prints the first error to standard error.
    pub(crate) fn print_first_error(&self) {
        if let Some(error) = self.first_error() {
            eprintln!("{error}");
        }
    }

    /// Resets the counts; requests in flight continue.
    pub(crate) fn reset(&mut self) {
        (self.latencies, self.n_done, self.n_failed) = (Histogram::new(), 0, 0);
    }

    /// Runs the loop until `stop`.
    ///
    /// # Errors
    /// If no response arrives for ten seconds.
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
                return Err("no response for ten seconds".into());
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
    /// No request is in flight.
    Idle,
    /// The request is in flight.
    AwaitingResponse,
    /// The session that the request opened is being deleted.
    DeletingSession,
    /// The server closed the connection.
    Closed,
}

struct Connection {
    stream: TcpStream,
    endpoint: Endpoint,
    request: PreparedRequest,
    /// Deletes the session; built for each session anew.
    delete_request: Vec<u8>,
    kind: Kind,
    protocol: Protocol,
    state: State,
    started: Instant,
    n_written: usize,
    buffer: Vec<u8>,
    n_read: usize,
    /// Describes the first invalid response.
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

    /// Sends the request, unless one is in flight.
    fn send(&mut self) {
        if self.state == State::Idle {
            self.state = State::AwaitingResponse;
            self.started = Instant::now();
            self.n_written = 0;
            self.write();
        }
    }

    /// Writes as much as the socket takes; the rest follows when it is writable again.
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
                // The next read reports the error.
                Err(_) => return,
            }
        }
    }

    /// Continues to write and read. Returns `Some` if that completes a request.
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
                let in_flight = matches!(self.state, State::AwaitingResponse | State::DeletingSession);
                self.state = State::Closed;
                in_flight.then_some(Outcome::Invalid)
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
            // Nothing can follow a whole response, so there is no need to read until the socket would block.
            if let Some(outcome) = self.check_response()? {
                return Ok(Some(outcome));
            }
        }
    }

    /// Checks the response if it is complete.
    fn check_response(&mut self) -> io::Result<Option<Outcome>> {
        let buffer = &self.buffer[..self.n_read];
        let Some(head) = Head::read(buffer).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let Some(body) = head.body(buffer) else {
            return Ok(None);
        };
        let is_valid = match self.state {
            // 405 means that clients cannot delete sessions, which the specification allows.
            State::DeletingSession => matches!(head.status, 200..300 | 405),
            _ => head.status == 200 && self.request.accepts(&body),
        };
        let has_session = self.state == State::DeletingSession || self.has_expected_session(&head);
        if !(is_valid && has_session) && self.first_error.is_none() {
            self.first_error = Some(match (is_valid, &head.session) {
                (true, Some(_)) => "the server opened a session in a workload without sessions".to_owned(),
                (true, None) => "the server opened no session".to_owned(),
                (false, _) => {
                    let shown: String = String::from_utf8_lossy(&body).chars().take(120).collect();
                    format!("status {} with {}", head.status, shown.replace(['\r', '\n'], " ").trim())
                }
            });
        }
        let is_valid = is_valid && has_session;
        self.n_read = 0;
        let (State::AwaitingResponse, Kind::Initialize, true, Some(session)) =
            (self.state, self.kind, is_valid, head.session)
        else {
            self.state = State::Idle;
            return Ok(Some(if is_valid { Outcome::Valid } else { Outcome::Invalid }));
        };
        self.delete_request = PreparedRequest::delete_session(&self.endpoint, &session);
        self.state = State::DeletingSession;
        self.n_written = 0;
        self.write();
        Ok(None)
    }

    /// Whether the response to `initialize` opens a session exactly if the workload has sessions.
    fn has_expected_session(&self, head: &Head) -> bool {
        self.kind != Kind::Initialize || head.session.is_some() == (self.protocol == Protocol::Session)
    }
}
