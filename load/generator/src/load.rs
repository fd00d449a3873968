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
use crate::workload::{Ask, Era, Kind, Workload};
use crate::{Failure, Figures};

const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) fn measure(options: &Options, workload: Workload) -> Result<Figures, Failure> {
    let server = Server::start(options)?;
    // A first answer fills what is filled lazily; what is resident then is the idle server.
    let mut first = Load::open(&server, workload, 1)?;
    first.until(Stop::Count(1))?;
    // A server that cannot do it is not asked a hundred thousand times.
    if let Some(why) = first.wrong() {
        return Err(format!("the first answer is wrong: {why}").into());
    }
    let idle = server.rss_kib()?;
    let mut load = Load::open(&server, workload, options.n_connections)?;
    load.until(Stop::At(Instant::now() + WARM_UP))?;
    load.forget();
    let (before, began) = (server.cpu()?, Instant::now());
    load.until(Stop::At(began + options.window))?;
    let (cpu, seconds) = (server.cpu()?.since(before), began.elapsed().as_secs_f64());
    load.tell_wrong();
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
    figures.extend(cpu::each(cpu, load.n_done).map(|micros| ("cpu_us".into(), micros)));
    Ok(figures)
}

/// When to stop.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
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
    pub(crate) fn open(server: &Server, workload: Workload, n_connections: usize) -> Result<Self, Failure> {
        Self::open_mix(server, &[workload], n_connections)
    }

    /// Connections that ask for these in turn.
    pub(crate) fn open_mix(
        server: &Server,
        workloads: &[Workload],
        n_connections: usize,
    ) -> Result<Self, Failure> {
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
    pub(crate) fn wrong(&self) -> Option<&str> {
        self.connections.iter().find_map(|connection| connection.wrong.as_deref())
    }

    /// Tells whoever started the run, whose last words are shown.
    pub(crate) fn tell_wrong(&self) {
        if let Some(why) = self.wrong() {
            eprintln!("{why}");
        }
    }

    /// Forgets what was counted; requests under way go on.
    pub(crate) fn forget(&mut self) {
        (self.latencies, self.n_done, self.n_failed) = (Histogram::new(), 0, 0);
    }

    /// Runs until told to stop, and fails if a server leaves everything unanswered for ten seconds.
    pub(crate) fn until(&mut self, stop: Stop) -> Result<(), Failure> {
        let mut events = Events::with_capacity(1024);
        let mut progress = Instant::now();
        for connection in &mut self.connections {
            connection.begin();
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
                    self.n_failed += u64::from(outcome == Outcome::Wrong);
                    let more = match stop {
                        Stop::At(_) => true,
                        Stop::Count(limit) => self.n_done + self.connections.len() as u64 <= limit,
                    };
                    if more {
                        self.connections[event.token().0].begin();
                    }
                }
            }
            let now = Instant::now();
            let over = match stop {
                Stop::At(end) => now >= end,
                Stop::Count(limit) => self.n_done >= limit,
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
    Right,
    Wrong,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is under way.
    Resting,
    /// The request is under way.
    Asking,
    /// The session that the request opened is being ended.
    Leaving,
    /// The server closed the connection.
    Gone,
}

struct Connection {
    stream: TcpStream,
    endpoint: Endpoint,
    ask: Ask,
    /// Ends a session; made anew for each.
    goodbye: Vec<u8>,
    kind: Kind,
    era: Era,
    state: State,
    began: Instant,
    n_written: usize,
    buffer: Vec<u8>,
    n_read: usize,
    /// What was wrong with the first answer that was.
    wrong: Option<String>,
}

impl Connection {
    fn open(server: &Server, workload: Workload, number: usize) -> Result<Self, Failure> {
        let mut client = Client::connect(&server.endpoint)?;
        let session = match workload.era {
            // Each request opens one.
            Era::Session if workload.kind == Kind::Initialize => None,
            Era::Session => Some(client.handshake()?.ok_or("the server opens no sessions")?),
            Era::Legacy | Era::Modern => None,
        };
        let stream = client.into_stream();
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            endpoint: server.endpoint.clone(),
            ask: workload.ask(&server.endpoint, session.as_deref(), number),
            goodbye: Vec::new(),
            kind: workload.kind,
            era: workload.era,
            state: State::Resting,
            began: Instant::now(),
            n_written: 0,
            buffer: vec![0; 128 * 1024],
            n_read: 0,
            wrong: None,
        })
    }

    /// Sends the request, unless one is under way.
    fn begin(&mut self) {
        if self.state == State::Resting {
            self.state = State::Asking;
            self.began = Instant::now();
            self.n_written = 0;
            self.write();
        }
    }

    /// Writes what can be written; the rest waits for the socket to be writable again.
    fn write(&mut self) {
        let bytes = match self.state {
            State::Asking => &self.ask.bytes,
            State::Leaving => &self.goodbye,
            State::Resting | State::Gone => return,
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
                latencies.add(self.began.elapsed());
                Some(outcome)
            }
            Err(error) => {
                self.wrong.get_or_insert_with(|| format!("the connection ended: {error}"));
                let under_way = matches!(self.state, State::Asking | State::Leaving);
                self.state = State::Gone;
                under_way.then_some(Outcome::Wrong)
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
            if let Some(outcome) = self.settle()? {
                return Ok(Some(outcome));
            }
        }
    }

    /// Judges the answer if it is whole.
    fn settle(&mut self) -> io::Result<Option<Outcome>> {
        let buffer = &self.buffer[..self.n_read];
        let Some(head) = Head::read(buffer).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let Some(body) = head.body(buffer) else {
            return Ok(None);
        };
        let right = match self.state {
            // A server may leave the end of sessions to itself, and says so with 405.
            State::Leaving => matches!(head.status, 200..300 | 405),
            _ => head.status == 200 && self.ask.is_answered_by(&body),
        };
        let opened = self.state == State::Leaving || self.is_opened_as_asked(&head);
        if !(right && opened) && self.wrong.is_none() {
            self.wrong = Some(match (right, &head.session) {
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
        let (State::Asking, Kind::Initialize, true, Some(session)) =
            (self.state, self.kind, right, head.session)
        else {
            self.state = State::Resting;
            return Ok(Some(if right { Outcome::Right } else { Outcome::Wrong }));
        };
        self.goodbye = Ask::goodbye(&self.endpoint, &session);
        self.state = State::Leaving;
        self.n_written = 0;
        self.write();
        Ok(None)
    }

    /// Where `initialize` is measured with a session there has to be one, and without there has to be none.
    fn is_opened_as_asked(&self, head: &Head) -> bool {
        self.kind != Kind::Initialize || head.session.is_some() == (self.era == Era::Session)
    }
}
