//! Polls one connection until it ends, and sets a deadline for every wait on the peer.
//!
//! hyper has one timeout for a head and the silence before it, and one timer per request. Here a connection has one
//! timer, which is only ever moved to an earlier time: a request that comes and goes between two of its ticks costs
//! one read of the clock. A connection reports its [`Activity`]; for one that hyper serves, the socket and the
//! service collect it in [`SharedActivity`].

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

/// Tells all connections to shut down.
///
/// The flag spares a connection the lock of the token, which all of them share, each time it is polled.
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

/// The activity of a connection that hyper serves.
///
/// Each value is a hint for a deadline and guards no other memory, so the order of loads and stores does not matter.
#[derive(Default)]
pub(super) struct SharedActivity {
    /// Requests whose response is not complete.
    in_flight: AtomicU32,
    /// Requests so far; wraps.
    request_count: AtomicU32,
    /// Bytes arrived since this was last taken.
    has_input: AtomicBool,
    /// A write waits for the peer.
    is_write_blocked: AtomicBool,
    /// Writes that made progress; wraps.
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
            // Only the socket stores this, so no increment can be lost.
            let count = self.write_count.load(Ordering::Relaxed);
            self.write_count.store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn take_input(&self) -> bool {
        let has_input = self.has_input.load(Ordering::Relaxed);
        if has_input {
            self.has_input.store(false, Ordering::Relaxed);
        }
        has_input
    }
}

/// The state of a connection that its deadlines depend on.
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
    /// Bytes arrived since the last call.
    pub(super) has_input: bool,
    pub(super) is_http2: bool,
    /// Requests so far, and writes that made progress; both wrap.
    pub(super) request_count: u32,
    pub(super) write_count: u32,
    /// When the last response was started, if known.
    pub(super) last_activity: Option<Instant>,
}

/// A connection that can be polled.
pub(super) trait Drive {
    /// How it ends by itself.
    type End;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Self::End>;

    /// Ends the connection after the current request.
    fn start_shutdown(&mut self);

    /// Closes a connection that was idle for too long.
    fn close_idle(&mut self);

    fn activity(&self) -> Activity;
}

/// A connection that hyper serves.
pub(super) struct HyperConnection<C> {
    pub(super) connection: Pin<Box<C>>,
    pub(super) activity: Arc<SharedActivity>,
}

impl<C: GracefulConnection> Drive for HyperConnection<C> {
    type End = ();

    /// Errors are those of the peer, or mean that it is gone; they are not reported.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.as_mut().poll(cx).map(drop)
    }

    fn start_shutdown(&mut self) {
        self.connection.as_mut().graceful_shutdown();
    }

    /// Closes an idle HTTP/1 connection; sends GOAWAY on HTTP/2, which gets a second.
    fn close_idle(&mut self) {
        self.start_shutdown();
        self.activity.set_closing();
    }

    fn activity(&self) -> Activity {
        let activity = &self.activity;
        Activity {
            is_closing: activity.is_closing.load(Ordering::Relaxed),
            is_write_blocked: activity.is_write_blocked.load(Ordering::Relaxed),
            is_busy: activity.is_busy(),
            is_peer_closed: activity.is_peer_closed(),
            has_input: activity.take_input(),
            is_http2: activity.is_http2.load(Ordering::Relaxed),
            request_count: activity.request_count.load(Ordering::Relaxed),
            write_count: activity.write_count.load(Ordering::Relaxed),
            last_activity: None,
        }
    }
}

/// The event that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// A request, of which no byte has arrived.
    Idle,
    /// The rest of a head.
    Head,
    /// The service, or the body of a request, which the service has its own timeout for.
    Busy,
    /// The service, for a peer that may be gone.
    PeerClosed,
    /// The peer, to accept bytes.
    WriteBlocked,
    /// The peer, to close.
    Closing,
}

/// The phase of a connection, and when it began.
struct PhaseTimer {
    phase: Phase,
    since: Instant,
    request_count: u32,
    write_count: u32,
}

impl PhaseTimer {
    fn new(head_started_at: Option<Instant>) -> Self {
        let phase = if head_started_at.is_some() { Phase::Head } else { Phase::Idle };
        Self { phase, since: head_started_at.unwrap_or_else(timer_now), request_count: 0, write_count: 0 }
    }

    /// Updates the phase from the activity since the last call.
    fn update(&mut self, activity: &Activity) {
        let is_same_request = activity.request_count == self.request_count;
        let phase = if activity.is_closing {
            Phase::Closing
        } else if activity.is_write_blocked {
            Phase::WriteBlocked
        } else if activity.is_busy {
            if activity.is_peer_closed { Phase::PeerClosed } else { Phase::Busy }
        } else if self.phase == Phase::Head && is_same_request {
            Phase::Head
        } else if activity.has_input && is_same_request && self.phase == Phase::Idle && !activity.is_http2 {
            // The first bytes of a request arrived, and its head is incomplete.
            Phase::Head
        } else {
            Phase::Idle
        };
        let has_progress = match phase {
            Phase::WriteBlocked => activity.write_count != self.write_count,
            Phase::Idle | Phase::PeerClosed => !is_same_request,
            _ => false,
        };
        if phase == Phase::Idle && has_progress {
            self.since = activity.last_activity.unwrap_or_else(timer_now);
        } else if has_progress || phase != self.phase {
            self.since = timer_now();
        }
        (self.phase, self.request_count, self.write_count) =
            (phase, activity.request_count, activity.write_count);
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

/// Waits for the bytes that tell the HTTP version. `None`: the peer has closed, or has sent too little in time.
///
/// Cancel safe: yes; the bytes that were read stay with the socket.
pub(super) async fn detect_version(
    socket: &mut Socket,
    options: &Options,
    shutdown: &ShutdownSignal,
) -> Option<HttpVersion> {
    let mut timer = pin!(sleep_until(timer_now() + options.idle_timeout));
    let mut cancelled = pin!(shutdown.token.cancelled());
    let mut has_started = false;
    poll_fn(|cx| {
        if let Poll::Ready(version) = socket.poll_version(cx) {
            return Poll::Ready(version.ok().flatten());
        }
        if socket.has_prefetched() && !has_started {
            has_started = true;
            timer.as_mut().reset(timer_now() + options.head_timeout);
        }
        let is_over = cancelled.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready();
        if is_over { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Polls the connection until it ends by itself, or `None` by a deadline. `head_started_at`: a head began before.
///
/// Cancel safe: yes; dropping it drops the connection with its requests.
// Not an `async fn`, because the compiler cannot prove `Send` where it is used.
#[allow(clippy::manual_async_fn)]
pub(super) fn drive<C: Drive + Send>(
    connection: &mut C,
    options: &Options,
    shutdown: &ShutdownSignal,
    head_started_at: Option<Instant>,
) -> impl Future<Output = Option<C::End>> + Send {
    async move {
        let mut cancelled = pin!(shutdown.token.cancelled());
        let mut phase_timer = PhaseTimer::new(head_started_at);
        let mut timer = pin!(sleep_until(phase_timer.since + options.idle_timeout));
        let mut is_registered = false;
        let mut is_stopping = false;
        // Whether the timer has our waker.
        let mut is_timer_set = false;
        poll_fn(|cx| {
            // Registers our waker, which stays the same as long as the task lives. From here on, waking and the flag
            // are enough.
            if !is_registered {
                is_registered = true;
                let _ = cancelled.as_mut().poll(cx);
            }
            loop {
                if !is_stopping && shutdown.is_triggered() {
                    is_stopping = true;
                    connection.start_shutdown();
                }
                if let Poll::Ready(end) = connection.poll(cx) {
                    return Poll::Ready(Some(end));
                }
                phase_timer.update(&connection.activity());
                let Some(deadline) = phase_timer.deadline(options) else {
                    return Poll::Pending;
                };
                if deadline < timer.deadline() || timer.is_elapsed() {
                    timer.as_mut().reset(deadline);
                    is_timer_set = false;
                }
                if is_timer_set {
                    return Poll::Pending;
                }
                // A peer that sends without end uses up tokio's budget for one poll, and the timer would never be
                // seen to elapse.
                if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                    is_timer_set = true;
                    return Poll::Pending;
                }
                if timer_now() < deadline {
                    continue;
                }
                match phase_timer.phase {
                    Phase::Idle => connection.close_idle(),
                    _ => return Poll::Ready(None),
                }
            }
        })
        .await
    }
}
