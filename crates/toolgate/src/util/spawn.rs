//! Spawning of tokio tasks, counted so that their owner can wait for the last one.
//!
//! Spawned futures are boxed. A runtime instantiates a dozen functions for every type of future that it runs, for each kind of
//! runtime; with one type for all of them, a task costs one small allocation more and the binary is smaller.

use std::cell::OnceCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::lock;

/// The future of any task.
type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

const CLOSED_BIT: usize = 1;
const TASK_UNIT: usize = 2;

/// Counts tasks. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of running tasks times [`TASK_UNIT`], plus [`CLOSED_BIT`] if it is closed.
    state: AtomicUsize,
    notify: Notify,
}

impl Tracker {
    pub(crate) fn new() -> Tracker {
        Tracker::default()
    }

    /// Spawns a task that is counted until it ends or is dropped with its runtime.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(TrackedTask { future: Box::pin(future), _token: Some(self.token()) });
    }

    /// Spawns a background task of the server on the main runtime (see `set_main_runtime`).
    pub(crate) fn spawn_main(&self, future: impl Future<Output = ()> + Send + 'static) {
        spawn_on_main(TrackedTask { future: Box::pin(future), _token: Some(self.token()) });
    }

    /// Counts something that is not a task, until the token is dropped.
    pub(crate) fn token(&self) -> TrackerToken {
        self.0.state.fetch_add(TASK_UNIT, Ordering::Relaxed);
        TrackerToken(Arc::clone(&self.0))
    }

    /// The number of running tasks.
    pub(crate) fn len(&self) -> usize {
        self.0.state.load(Ordering::Relaxed) / TASK_UNIT
    }

    /// Lets [`Tracker::wait`] return as soon as no task runs. Tasks may still be spawned.
    pub(crate) fn close(&self) {
        if self.0.state.fetch_or(CLOSED_BIT, Ordering::AcqRel) == 0 {
            self.0.notify.notify_waiters();
        }
    }

    /// Waits until it is closed and no task runs.
    ///
    /// Cancel safe: yes, it changes nothing.
    pub(crate) async fn wait(&self) {
        // Created before the count is read, so that a task that ends afterwards wakes it.
        let notified = self.0.notify.notified();
        if self.0.state.load(Ordering::Acquire) != CLOSED_BIT {
            notified.await;
        }
    }
}

/// Counts as a task of its tracker until it is dropped.
#[derive(Debug)]
pub(crate) struct TrackerToken(Arc<Inner>);

impl Drop for TrackerToken {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(TASK_UNIT, Ordering::AcqRel) == TASK_UNIT | CLOSED_BIT {
            self.0.notify.notify_waiters();
        }
    }
}

/// Spawns a background task of the server on the main runtime (see `set_main_runtime`), without counting it.
pub(crate) fn spawn_main(future: impl Future<Output = ()> + Send + 'static) {
    spawn_on_main(TrackedTask { future: Box::pin(future), _token: None });
}

thread_local! {
    static MAIN_RUNTIME: OnceCell<Handle> = const { OnceCell::new() };
}

/// Lets background tasks that this thread spawns run on another runtime. The runtime of this thread serves connections, may be
/// kept busy by their calls, and ends with their listener.
#[cfg(feature = "http")]
pub(crate) fn set_main_runtime(handle: Handle) {
    MAIN_RUNTIME.with(|main| {
        let _ = main.set(handle);
    });
}

fn spawn_on_main(task: TrackedTask) {
    MAIN_RUNTIME.with(|main| match main.get() {
        Some(main) => drop(main.spawn(task)),
        None => drop(tokio::spawn(task)),
    });
}

/// The only type of future that is spawned. Its fields are dropped in order: the future before the token, so that everything that
/// the task held is dropped when it counts as ended.
struct TrackedTask {
    future: BoxedTask,
    _token: Option<TrackerToken>,
}

impl Future for TrackedTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(cx)
    }
}

/// The handle of a task with an output. Resolves to `None` if the task panicked or was aborted.
#[derive(Debug)]
pub(crate) struct SpawnHandle<T> {
    task: JoinHandle<()>,
    /// Whether dropping the handle aborts the task.
    aborts_on_drop: bool,
    /// Separate from the task, because all tasks have the same type.
    output: Arc<Mutex<Option<T>>>,
}

/// Spawns a task with an output on a runtime.
pub(crate) fn spawn_on<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> SpawnHandle<T> {
    let output = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&output);
    let future = Box::pin(async move {
        let value = future.await;
        *lock(&slot) = Some(value);
    });
    SpawnHandle { task: runtime.spawn(TrackedTask { future, _token: None }), aborts_on_drop: false, output }
}

/// Runs a function that may block, on a thread for blocking work.
pub(crate) fn spawn_blocking<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> SpawnHandle<T> {
    let output = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&output);
    let boxed: Box<dyn FnOnce() + Send> = Box::new(move || {
        let value = function();
        *lock(&slot) = Some(value);
    });
    SpawnHandle { task: tokio::task::spawn_blocking(boxed), aborts_on_drop: false, output }
}

impl<T> SpawnHandle<T> {
    /// Aborts the task when the handle is dropped.
    pub(crate) fn abort_on_drop(mut self) -> SpawnHandle<T> {
        self.aborts_on_drop = true;
        self
    }

    pub(crate) fn abort(&self) {
        self.task.abort();
    }
}

impl<T> Future for SpawnHandle<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.task).poll(cx).map(|_| lock(&self.output).take())
    }
}

impl<T> Drop for SpawnHandle<T> {
    fn drop(&mut self) {
        if self.aborts_on_drop {
            self.abort();
        }
    }
}

/// A join handle that aborts its task when dropped.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

#[cfg(feature = "testing")]
impl<T> AbortOnDrop<T> {
    pub(crate) fn new(task: tokio::task::JoinHandle<T>) -> AbortOnDrop<T> {
        AbortOnDrop(task)
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

#[cfg(feature = "testing")]
impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

#[cfg(feature = "testing")]
impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn the_last_task_wakes_the_waiter() {
        let tracker = Tracker::new();
        assert!(timeout(SHORT_TIMEOUT, tracker.wait()).await.is_err(), "it is not closed");
        let (go, gone) = oneshot::channel::<()>();
        tracker.spawn(async move {
            let _ = gone.await;
        });
        let token = tracker.token();
        tracker.close();
        assert!(timeout(SHORT_TIMEOUT, tracker.wait()).await.is_err(), "two tasks run");
        drop(token);
        assert!(timeout(SHORT_TIMEOUT, tracker.wait()).await.is_err(), "one task runs");
        let waiting = tokio::spawn({
            let tracker = tracker.clone();
            async move { tracker.wait().await }
        });
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        timeout(SHORT_TIMEOUT, waiting).await.unwrap().unwrap();
        tracker.wait().await;
    }

    #[tokio::test(start_paused = true)]
    async fn closing_an_empty_tracker_wakes_the_waiter() {
        let tracker = Tracker::new();
        let waiting = tokio::spawn({
            let tracker = tracker.clone();
            async move { tracker.wait().await }
        });
        tokio::task::yield_now().await;
        tracker.close();
        timeout(SHORT_TIMEOUT, waiting).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_no_longer_counted() {
        let tracker = Tracker::new();
        tracker.spawn(async { panic!("on purpose") });
        tracker.close();
        timeout(SHORT_TIMEOUT, tracker.wait()).await.unwrap();
    }

    /// Everything that a task held is dropped when the wait is over.
    #[test]
    fn tasks_are_dropped_before_the_wait_is_over() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let held = Arc::new(());
        for _ in 0..2000 {
            let (tracker, mine) = (Tracker::new(), Arc::clone(&held));
            runtime.block_on(async {
                tracker.spawn(async move {
                    tokio::task::yield_now().await;
                    drop(mine);
                });
                tracker.close();
                tracker.wait().await;
            });
            assert_eq!(Arc::strong_count(&held), 1);
        }
        let (tracker, mine) = (Tracker::new(), Arc::clone(&held));
        runtime.block_on(async {
            tracker.spawn(async move {
                std::future::pending::<()>().await;
                drop(mine);
            });
        });
        drop(runtime);
        assert_eq!((Arc::strong_count(&held), tracker.0.state.load(Ordering::Relaxed)), (1, 0));
    }

    /// A thread that serves connections may end before the background tasks that it spawned.
    #[cfg(feature = "http")]
    #[tokio::test]
    async fn background_work_runs_on_the_main_runtime() {
        let (main, tracker) = (Handle::current(), Tracker::new());
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::spawn({
            let tracker = tracker.clone();
            move || {
                set_main_runtime(main);
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    tracker.spawn_main(async move {
                        tokio::task::yield_now().await;
                        let _ = sender.send(std::thread::current().id());
                    });
                });
            }
        });
        let found = timeout(Duration::from_secs(5), receiver).await.unwrap().unwrap();
        assert_eq!(found, std::thread::current().id());
        thread.join().unwrap();
        tracker.close();
        timeout(Duration::from_secs(5), tracker.wait()).await.unwrap();
    }
}
