//! Drives one connection to its end, and sees that no wait on the peer is without a deadline.
//!
//! hyper has one timeout for a head and the silence before it, and a timer per request. Here a
//! connection has one timer, which is moved only to be earlier: a request that comes and goes between
//! two of its ticks costs a look at the clock. [`Line`] is what socket and service tell us.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::socket::{Socket, Version};
use super::{END, Options};
use crate::clock::tick;

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
    /// The task that drives the connection; hyper is given us as its waker.
    task: OnceLock<Waker>,
}

thread_local! {
    /// Whose wake-ups this thread keeps back at the moment, and whether there was one. No line is at the address 0.
    static KEPT_BACK: Cell<(usize, bool)> = const { Cell::new((0, false)) };
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

    /// Does something that may wake this connection on this thread, and says whether it would have. What wakes it
    /// meanwhile on another thread does.
    pub(super) fn without_waking<T>(&self, act: impl FnOnce() -> T) -> (T, bool) {
        KEPT_BACK.set((self.address(), false));
        let done = act();
        (done, KEPT_BACK.replace((0, false)).1)
    }

    /// Lets the connection be polled again.
    pub(super) fn wake_task(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// A waker for hyper, once it is known whose task this is.
    fn waker(self: &Arc<Self>, task: &Waker) -> Option<Waker> {
        let known = self.task.get_or_init(|| task.clone());
        known.will_wake(task).then(|| Waker::from(Arc::clone(self)))
    }

    fn is_driven_by(&self, task: &Waker) -> bool {
        self.task.get().is_some_and(|known| known.will_wake(task))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn take_heard(&self) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        if heard {
            self.heard.store(false, Ordering::Relaxed);
        }
        heard
    }
}

impl Wake for Line {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let address = self.address();
        if KEPT_BACK.get().0 == address {
            KEPT_BACK.set((address, true));
        } else {
            self.wake_task();
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
    fn new() -> Self {
        Self { phase: Phase::Idle, since: tick(), served: 0, wrote: 0 }
    }

    /// Takes note of what happened since the last look.
    fn look(&mut self, line: &Line) {
        let heard = line.take_heard();
        let served = line.served.load(Ordering::Relaxed);
        let wrote = line.wrote.load(Ordering::Relaxed);
        let same_request = served == self.served;
        let phase = if line.closing.load(Ordering::Relaxed) {
            Phase::Closing
        } else if line.blocked.load(Ordering::Relaxed) {
            Phase::Blocked
        } else if line.is_busy() {
            if line.has_left() { Phase::Left } else { Phase::Busy }
        } else if self.phase == Phase::Head && same_request {
            Phase::Head
        } else if heard && same_request && self.phase == Phase::Idle && !line.http2.load(Ordering::Relaxed) {
            // ## Idle => Head: the first bytes of a request, which is not complete.
            Phase::Head
        } else {
            Phase::Idle
        };
        let moved = match phase {
            Phase::Blocked => wrote != self.wrote,
            Phase::Idle => !same_request,
            _ => false,
        };
        if moved || phase != self.phase {
            self.since = tick();
        }
        (self.phase, self.served, self.wrote) = (phase, served, wrote);
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
    let mut timer = pin!(sleep_until(tick() + options.idle_timeout));
    let mut stopped = pin!(stop.token.cancelled());
    let mut has_begun = false;
    poll_fn(|cx| {
        if let Poll::Ready(version) = socket.poll_version(cx) {
            return Poll::Ready(version.ok().flatten());
        }
        if socket.has_first() && !has_begun {
            has_begun = true;
            timer.as_mut().reset(tick() + options.head_timeout);
        }
        let over = stopped.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready();
        if over { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Polls the connection until it ends by itself or by a deadline.
///
/// Cancel safe: yes; dropping it drops the connection with its requests.
pub(super) async fn run<C>(mut connection: Pin<&mut C>, line: &Arc<Line>, options: &Options, stop: &Stop)
where
    C: GracefulConnection,
{
    let mut stopped = pin!(stop.token.cancelled());
    let mut wait = Wait::new();
    let mut timer = pin!(sleep_until(wait.since + options.idle_timeout));
    let mut is_heard = false;
    let mut is_stopping = false;
    let mut waker: Option<Waker> = None;
    // The timer knows whom to wake.
    let mut is_set = false;
    poll_fn(|cx| {
        // The task of a connection stays the same. Should it not, it is woken without detours.
        if waker.is_none() || !line.is_driven_by(cx.waker()) {
            waker = Some(line.waker(cx.waker()).unwrap_or_else(|| cx.waker().clone()));
            is_set = false;
        }
        let waker = waker.as_ref().unwrap_or(cx.waker());
        // Registers our waker, which stays the same as long as the task lives. From here on a wake-up
        // and the flag are enough.
        if !is_heard {
            is_heard = true;
            let _ = stopped.as_mut().poll(cx);
        }
        loop {
            if !is_stopping && stop.has_begun() {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            // An error is the peer's, or hyper's word for a peer that is gone. Neither is ours to tell.
            if connection.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                return Poll::Ready(());
            }
            wait.look(line);
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
            if tick() < deadline {
                continue;
            }
            match wait.phase {
                // Closes an idle HTTP/1 connection; says goodbye on HTTP/2, and a second is enough for it.
                Phase::Idle => {
                    connection.as_mut().graceful_shutdown();
                    line.set_closing();
                }
                _ => return Poll::Ready(()),
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wake_up_is_kept_back_on_its_own_thread_and_line_only() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let woken = || count.0.load(Ordering::SeqCst);
        let task = Waker::from(Arc::clone(&count));
        let lines = [Arc::new(Line::default()), Arc::new(Line::default())];
        let [own, other] = lines.each_ref().map(|line| line.waker(&task).unwrap());
        assert!(lines[0].is_driven_by(&task));

        assert!(lines[0].without_waking(|| own.wake_by_ref()).1, "it would have been woken");
        assert_eq!(woken(), 0);
        assert!(!lines[0].without_waking(|| other.wake_by_ref()).1);
        assert_eq!(woken(), 1, "another connection is");
        let elsewhere = || std::thread::scope(|scope| scope.spawn(|| own.wake_by_ref()).join().unwrap());
        assert!(!lines[0].without_waking(elsewhere).1);
        assert_eq!(woken(), 2, "and this one by others");
        own.wake_by_ref();
        lines[0].wake_task();
        assert_eq!(woken(), 4);
    }

    #[test]
    fn a_line_has_one_task() {
        let line = Arc::new(Line::default());
        let [first, second] = [(); 2].map(|()| Waker::from(Arc::new(Count(AtomicUsize::new(0)))));
        assert!(line.waker(&first).is_some());
        assert!(line.waker(&second).is_none() && !line.is_driven_by(&second));
    }
}
