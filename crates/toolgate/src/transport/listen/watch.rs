//! Drives one connection to its end, and sees that no wait on the peer is without a deadline.
//!
//! hyper has one timeout for a head and the silence before it, and a timer per request. Here a
//! connection has one timer, which is moved only to be earlier: a request that comes and goes between
//! two of its ticks costs a look at the clock. What drives a connection shows its [`Signs`]; for hyper's, [`Line`] is
//! what socket and service tell us.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::socket::{Socket, Version};
use super::{END, Options};
use crate::clock::timer_now;

/// Tells all connections to finish.
///
/// The flag spares a connection the token's lock, which all of them share, each time it is polled.
#[derive(Default)]
pub(super) struct Stop {
    flag: AtomicBool,
    token: CancellationToken,
}

impl Stop {
    pub(super) fn begin(&self) {
        self.flag.store(true, Ordering::Release);
        self.token.cancel();
    }

    fn has_begun(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

/// What is known of a connection, by those who see it.
///
/// Each value is a hint for a deadline and guards no other memory, so the order of loads and stores
/// does not matter.
#[derive(Default)]
pub(super) struct Line {
    /// Requests whose answer is not finished.
    in_flight: AtomicU32,
    /// Requests so far; wraps.
    served: AtomicU32,
    /// Bytes came since this was last taken.
    heard: AtomicBool,
    /// A write waits for the peer.
    blocked: AtomicBool,
    /// Writes that got somewhere; wraps.
    wrote: AtomicU32,
    /// The peer has closed its sending side during a request.
    left: AtomicBool,
    /// Our sending side is closed.
    closing: AtomicBool,
    http2: AtomicBool,
}

/// A request in flight, until dropped.
pub(super) struct Busy(Arc<Line>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Line {
    pub(super) fn enter(self: &Arc<Self>) -> Busy {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    pub(super) fn set_heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_left(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_closing(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_http2(&self) {
        self.http2.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_write(&self, result: &Poll<io::Result<usize>>) {
        self.blocked.store(result.is_pending(), Ordering::Relaxed);
        if result.is_ready() {
            // Only the socket writes this, so no addition can be lost.
            let wrote = self.wrote.load(Ordering::Relaxed);
            self.wrote.store(wrote.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn take_heard(&self) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        if heard {
            self.heard.store(false, Ordering::Relaxed);
        }
        heard
    }
}

/// What a connection shows of itself to whoever keeps its time.
#[derive(Clone, Copy)]
pub(super) struct Signs {
    /// Our sending side is closed.
    pub(super) is_closing: bool,
    /// A write waits for the peer.
    pub(super) is_blocked: bool,
    /// A request is being answered.
    pub(super) is_busy: bool,
    /// The peer has closed its sending side during a request.
    pub(super) has_left: bool,
    /// Bytes came since the last look.
    pub(super) is_heard: bool,
    pub(super) is_http2: bool,
    /// Requests so far, and writes that got somewhere; both wrap.
    pub(super) served: u32,
    pub(super) wrote: u32,
    /// When the last of it happened, where that is known.
    pub(super) at: Option<Instant>,
}

/// A connection that can be driven.
pub(super) trait Driven {
    /// How it ends by itself.
    type End;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Self::End>;

    /// It is to end with the request it is at.
    fn finish(&mut self);

    /// It was idle for too long.
    fn retire(&mut self);

    fn signs(&self) -> Signs;
}

/// A connection in the hands of hyper.
pub(super) struct ByHyper<C> {
    pub(super) connection: Pin<Box<C>>,
    pub(super) line: Arc<Line>,
}

impl<C: GracefulConnection> Driven for ByHyper<C> {
    type End = ();

    /// An error is the peer's, or hyper's word for a peer that is gone. Neither is ours to tell.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.as_mut().poll(cx).map(drop)
    }

    fn finish(&mut self) {
        self.connection.as_mut().graceful_shutdown();
    }

    /// Closes an idle HTTP/1 connection; says goodbye on HTTP/2, and a second is enough for it.
    fn retire(&mut self) {
        self.finish();
        self.line.set_closing();
    }

    fn signs(&self) -> Signs {
        let line = &self.line;
        Signs {
            is_closing: line.closing.load(Ordering::Relaxed),
            is_blocked: line.blocked.load(Ordering::Relaxed),
            is_busy: line.is_busy(),
            has_left: line.has_left(),
            is_heard: line.take_heard(),
            is_http2: line.http2.load(Ordering::Relaxed),
            served: line.served.load(Ordering::Relaxed),
            wrote: line.wrote.load(Ordering::Relaxed),
            at: None,
        }
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// A request, of which no byte has come.
    Idle,
    /// The rest of a head.
    Head,
    /// The service, or the body of a request: the service's own time.
    Busy,
    /// The service, for a peer that may be gone.
    Left,
    /// The peer, to take bytes.
    Blocked,
    /// The peer, to close.
    Closing,
}

/// The phase a connection is in, and since when.
struct Wait {
    phase: Phase,
    since: Instant,
    served: u32,
    wrote: u32,
}

impl Wait {
    fn new(heard_at: Option<Instant>) -> Self {
        let phase = if heard_at.is_some() { Phase::Head } else { Phase::Idle };
        Self { phase, since: heard_at.unwrap_or_else(timer_now), served: 0, wrote: 0 }
    }

    /// Takes note of what happened since the last look.
    fn look(&mut self, signs: &Signs) {
        let same_request = signs.served == self.served;
        let phase = if signs.is_closing {
            Phase::Closing
        } else if signs.is_blocked {
            Phase::Blocked
        } else if signs.is_busy {
            if signs.has_left { Phase::Left } else { Phase::Busy }
        } else if self.phase == Phase::Head && same_request {
            Phase::Head
        } else if signs.is_heard && same_request && self.phase == Phase::Idle && !signs.is_http2 {
            // ## Idle => Head: the first bytes of a request, which is not complete.
            Phase::Head
        } else {
            Phase::Idle
        };
        let moved = match phase {
            Phase::Blocked => signs.wrote != self.wrote,
            Phase::Idle | Phase::Left => !same_request,
            _ => false,
        };
        if phase == Phase::Idle && moved {
            self.since = signs.at.unwrap_or_else(timer_now);
        } else if moved || phase != self.phase {
            self.since = timer_now();
        }
        (self.phase, self.served, self.wrote) = (phase, signs.served, signs.wrote);
    }

    fn deadline(&self, options: &Options) -> Option<Instant> {
        let limit: Duration = match self.phase {
            Phase::Idle => options.idle_timeout,
            Phase::Head => options.head_timeout,
            Phase::Busy => return None,
            Phase::Left => options.linger,
            Phase::Blocked => options.write_timeout,
            Phase::Closing => END,
        };
        Some(self.since + limit)
    }
}

/// Waits for the bytes that tell which HTTP is spoken. None: nobody speaks, or not in time.
///
/// Cancel safe: yes; what was read stays with the socket.
pub(super) async fn first(socket: &mut Socket, options: &Options, stop: &Stop) -> Option<Version> {
    let mut timer = pin!(sleep_until(timer_now() + options.idle_timeout));
    let mut stopped = pin!(stop.token.cancelled());
    let mut has_begun = false;
    poll_fn(|cx| {
        if let Poll::Ready(version) = socket.poll_version(cx) {
            return Poll::Ready(version.ok().flatten());
        }
        if socket.has_first() && !has_begun {
            has_begun = true;
            timer.as_mut().reset(timer_now() + options.head_timeout);
        }
        let over = stopped.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready();
        if over { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Polls the connection until it ends by itself, or by a deadline: then there is nothing to tell. A head may have begun
/// before.
///
/// Cancel safe: yes; dropping it drops the connection with its requests.
#[allow(clippy::manual_async_fn)] // Said to be `Send` here: the compiler does not find it out where this is used.
pub(super) fn run<C: Driven + Send>(
    connection: &mut C,
    options: &Options,
    stop: &Stop,
    heard_at: Option<Instant>,
) -> impl Future<Output = Option<C::End>> + Send {
    async move {
        let mut stopped = pin!(stop.token.cancelled());
        let mut wait = Wait::new(heard_at);
        let mut timer = pin!(sleep_until(wait.since + options.idle_timeout));
        let mut is_heard = false;
        let mut is_stopping = false;
        // The timer knows whom to wake.
        let mut is_set = false;
        poll_fn(|cx| {
            // Registers our waker, which stays the same as long as the task lives. From here on a wake-up
            // and the flag are enough.
            if !is_heard {
                is_heard = true;
                let _ = stopped.as_mut().poll(cx);
            }
            loop {
                if !is_stopping && stop.has_begun() {
                    is_stopping = true;
                    connection.finish();
                }
                if let Poll::Ready(end) = connection.poll(cx) {
                    return Poll::Ready(Some(end));
                }
                wait.look(&connection.signs());
                let Some(deadline) = wait.deadline(options) else {
                    return Poll::Pending;
                };
                if deadline < timer.deadline() || timer.is_elapsed() {
                    timer.as_mut().reset(deadline);
                    is_set = false;
                }
                if is_set {
                    return Poll::Pending;
                }
                // A peer that sends without end uses up what tokio lets one poll do, and the timer with it would
                // never be seen to have elapsed.
                if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                    is_set = true;
                    return Poll::Pending;
                }
                if timer_now() < deadline {
                    continue;
                }
                match wait.phase {
                    Phase::Idle => connection.retire(),
                    _ => return Poll::Ready(None),
                }
            }
        })
        .await
    }
}
