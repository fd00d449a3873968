//! Drives one connection to its end, and sees that no wait on the peer is without a deadline.
//!
//! hyper has one timeout for a head and the silence before it, and a timer per request. Here a
//! connection has one timer, which is moved only to be earlier: a request that comes and goes between
//! two of its ticks costs a look at the clock. What drives a connection shows its [`Activity`]; for hyper's, [`Line`] is
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

use super::socket::{HttpVersion, Socket};
use super::{CLOSE_TIMEOUT, Options};
use crate::util::clock::timer_now;

/// Tells all connections to finish.
///
/// The flag spares a connection the token's lock, which all of them share, each time it is polled.
#[derive(Default)]
pub(super) struct ShutdownSignal {
    flag: AtomicBool,
    token: CancellationToken,
}

impl ShutdownSignal {
    pub(super) fn trigger(&self) {
        self.flag.store(true, Ordering::Release);
        self.token.cancel();
    }

    fn is_triggered(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

/// What is known of a connection, by those who see it.
///
/// Each value is a hint for a deadline and guards no other memory, so the order of loads and stores
/// does not matter.
#[derive(Default)]
pub(super) struct SharedActivity {
    /// Requests whose answer is not finished.
    in_flight: AtomicU32,
    /// Requests so far; wraps.
    request_count: AtomicU32,
    /// Bytes came since this was last taken.
    has_input: AtomicBool,
    /// A write waits for the peer.
    is_write_blocked: AtomicBool,
    /// Writes that got somewhere; wraps.
    write_count: AtomicU32,
    /// The peer has closed its sending side during a request.
    is_peer_closed: AtomicBool,
    /// Our sending side is closed.
    is_closing: AtomicBool,
    is_http2: AtomicBool,
}

/// A request in flight, until dropped.
pub(super) struct RequestGuard(Arc<SharedActivity>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedActivity {
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.request_count.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(self))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_peer_closed(&self) -> bool {
        self.is_peer_closed.load(Ordering::Relaxed)
    }

    pub(super) fn set_input(&self) {
        self.has_input.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_peer_closed(&self) {
        self.is_peer_closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_closing(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
    }

    pub(super) fn record_write(&self, result: &Poll<io::Result<usize>>) {
        self.is_write_blocked.store(result.is_pending(), Ordering::Relaxed);
        if result.is_ready() {
            // Only the socket writes this, so no addition can be lost.
            let wrote = self.write_count.load(Ordering::Relaxed);
            self.write_count.store(wrote.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn take_input(&self) -> bool {
        let heard = self.has_input.load(Ordering::Relaxed);
        if heard {
            self.has_input.store(false, Ordering::Relaxed);
        }
        heard
    }
}

/// What a connection shows of itself to whoever keeps its time.
#[derive(Clone, Copy)]
pub(super) struct Activity {
    /// Our sending side is closed.
    pub(super) is_closing: bool,
    /// A write waits for the peer.
    pub(super) is_write_blocked: bool,
    /// A request is being answered.
    pub(super) is_busy: bool,
    /// The peer has closed its sending side during a request.
    pub(super) is_peer_closed: bool,
    /// Bytes came since the last look.
    pub(super) has_input: bool,
    pub(super) is_http2: bool,
    /// Requests so far, and writes that got somewhere; both wrap.
    pub(super) request_count: u32,
    pub(super) write_count: u32,
    /// When the last of it happened, where that is known.
    pub(super) last_activity: Option<Instant>,
}

/// A connection that can be driven.
pub(super) trait Drive {
    /// How it ends by itself.
    type End;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Self::End>;

    /// It is to end with the request it is at.
    fn start_shutdown(&mut self);

    /// It was idle for too long.
    fn close_idle(&mut self);

    fn activity(&self) -> Activity;
}

/// A connection in the hands of hyper.
pub(super) struct HyperConnection<C> {
    pub(super) connection: Pin<Box<C>>,
    pub(super) activity: Arc<SharedActivity>,
}

impl<C: GracefulConnection> Drive for HyperConnection<C> {
    type End = ();

    /// An error is the peer's, or hyper's word for a peer that is gone. Neither is ours to tell.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.as_mut().poll(cx).map(drop)
    }

    fn start_shutdown(&mut self) {
        self.connection.as_mut().graceful_shutdown();
    }

    /// Closes an idle HTTP/1 connection; says goodbye on HTTP/2, and a second is enough for it.
    fn close_idle(&mut self) {
        self.start_shutdown();
        self.activity.set_closing();
    }

    fn activity(&self) -> Activity {
        let line = &self.activity;
        Activity {
            is_closing: line.is_closing.load(Ordering::Relaxed),
            is_write_blocked: line.is_write_blocked.load(Ordering::Relaxed),
            is_busy: line.is_busy(),
            is_peer_closed: line.is_peer_closed(),
            has_input: line.take_input(),
            is_http2: line.is_http2.load(Ordering::Relaxed),
            request_count: line.request_count.load(Ordering::Relaxed),
            write_count: line.write_count.load(Ordering::Relaxed),
            last_activity: None,
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
    PeerClosed,
    /// The peer, to take bytes.
    WriteBlocked,
    /// The peer, to close.
    Closing,
}

/// The phase a connection is in, and since when.
struct PhaseTimer {
    phase: Phase,
    since: Instant,
    request_count: u32,
    write_count: u32,
}

impl PhaseTimer {
    fn new(heard_at: Option<Instant>) -> Self {
        let phase = if heard_at.is_some() { Phase::Head } else { Phase::Idle };
        Self { phase, since: heard_at.unwrap_or_else(timer_now), request_count: 0, write_count: 0 }
    }

    /// Takes note of what happened since the last look.
    fn update(&mut self, signs: &Activity) {
        let same_request = signs.request_count == self.request_count;
        let phase = if signs.is_closing {
            Phase::Closing
        } else if signs.is_write_blocked {
            Phase::WriteBlocked
        } else if signs.is_busy {
            if signs.is_peer_closed { Phase::PeerClosed } else { Phase::Busy }
        } else if self.phase == Phase::Head && same_request {
            Phase::Head
        } else if signs.has_input && same_request && self.phase == Phase::Idle && !signs.is_http2 {
            // ## Idle => Head: the first bytes of a request, which is not complete.
            Phase::Head
        } else {
            Phase::Idle
        };
        let moved = match phase {
            Phase::WriteBlocked => signs.write_count != self.write_count,
            Phase::Idle | Phase::PeerClosed => !same_request,
            _ => false,
        };
        if phase == Phase::Idle && moved {
            self.since = signs.last_activity.unwrap_or_else(timer_now);
        } else if moved || phase != self.phase {
            self.since = timer_now();
        }
        (self.phase, self.request_count, self.write_count) = (phase, signs.request_count, signs.write_count);
    }

    fn deadline(&self, options: &Options) -> Option<Instant> {
        let limit: Duration = match self.phase {
            Phase::Idle => options.idle_timeout,
            Phase::Head => options.head_timeout,
            Phase::Busy => return None,
            Phase::PeerClosed => options.linger,
            Phase::WriteBlocked => options.write_timeout,
            Phase::Closing => CLOSE_TIMEOUT,
        };
        Some(self.since + limit)
    }
}

/// Waits for the bytes that tell which HTTP is spoken. None: nobody speaks, or not in time.
///
/// Cancel safe: yes; what was read stays with the socket.
pub(super) async fn detect_version(
    socket: &mut Socket,
    options: &Options,
    stop: &ShutdownSignal,
) -> Option<HttpVersion> {
    let mut timer = pin!(sleep_until(timer_now() + options.idle_timeout));
    let mut stopped = pin!(stop.token.cancelled());
    let mut has_begun = false;
    poll_fn(|cx| {
        if let Poll::Ready(version) = socket.poll_version(cx) {
            return Poll::Ready(version.ok().flatten());
        }
        if socket.has_prefetched() && !has_begun {
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
pub(super) fn drive<C: Drive + Send>(
    connection: &mut C,
    options: &Options,
    stop: &ShutdownSignal,
    heard_at: Option<Instant>,
) -> impl Future<Output = Option<C::End>> + Send {
    async move {
        let mut stopped = pin!(stop.token.cancelled());
        let mut wait = PhaseTimer::new(heard_at);
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
                if !is_stopping && stop.is_triggered() {
                    is_stopping = true;
                    connection.start_shutdown();
                }
                if let Poll::Ready(end) = connection.poll(cx) {
                    return Poll::Ready(Some(end));
                }
                wait.update(&connection.activity());
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
                    Phase::Idle => connection.close_idle(),
                    _ => return Poll::Ready(None),
                }
            }
        })
        .await
    }
}
