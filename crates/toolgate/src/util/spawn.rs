//! Tasks that are counted, so that who began them can wait for the last one.
//!
//! What is spawned here is boxed. A runtime makes a dozen functions for every type of future that it runs, and that
//! for each kind of runtime; so all of them are of one type, and a task costs one small allocation more.

use std::cell::OnceCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Any work that somebody waits for the end of.
type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

const CLOSED_BIT: usize = 1;
const TASK_UNIT: usize = 2;

/// Counts tasks. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// How many are under way, times two; and one if there will be no end of more.
    state: AtomicUsize,
    notify: Notify,
}

impl Tracker {
    pub(crate) fn new() -> Tracker {
        Tracker::default()
    }

    /// Begins a task that is counted until it ends or is dropped with its runtime.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(TrackedTask { future: Box::pin(work), _token: Some(self.token()) });
    }

    /// Begins a task of the whole house, see [`make_home`].
    pub(crate) fn spawn_main(&self, work: impl Future<Output = ()> + Send + 'static) {
        spawn_on_main(TrackedTask { future: Box::pin(work), _token: Some(self.token()) });
    }

    /// Counts something that is no task, until it is dropped.
    pub(crate) fn token(&self) -> TrackerToken {
        self.0.state.fetch_add(TASK_UNIT, Ordering::Relaxed);
        TrackerToken(Arc::clone(&self.0))
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.0.state.load(Ordering::Relaxed) / TASK_UNIT
    }

    /// From now on an empty count is the end. More may still be begun.
    pub(crate) fn close(&self) {
        if self.0.state.fetch_or(CLOSED_BIT, Ordering::AcqRel) == 0 {
            self.0.notify.notify_waiters();
        }
    }

    /// Waits until it is closed and nothing is under way.
    ///
    /// Cancel safe: yes.
    pub(crate) async fn wait(&self) {
        // Made before the look at the count: whoever is the last after that look wakes this one.
        let woken = self.0.notify.notified();
        if self.0.state.load(Ordering::Acquire) != CLOSED_BIT {
            woken.await;
        }
    }
}

/// One that is counted.
#[derive(Debug)]
pub(crate) struct TrackerToken(Arc<Inner>);

impl Drop for TrackerToken {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(TASK_UNIT, Ordering::AcqRel) == TASK_UNIT | CLOSED_BIT {
            self.0.notify.notify_waiters();
        }
    }
}

/// Begins a task of the whole house, see [`make_home`], that nobody waits for.
pub(crate) fn spawn_main(work: impl Future<Output = ()> + Send + 'static) {
    spawn_on_main(TrackedTask { future: Box::pin(work), _token: None });
}

thread_local! {
    static MAIN_RUNTIME: OnceCell<Handle> = const { OnceCell::new() };
}

/// From now on, tasks of the whole house that are begun on this thread run there: the runtime of this one serves
/// connections, may be kept busy by their calls, and ends with their listener.
#[cfg(feature = "http")]
pub(crate) fn set_main_runtime(home: Handle) {
    MAIN_RUNTIME.with(|cell| {
        let _ = cell.set(home);
    });
}

fn spawn_on_main(task: TrackedTask) {
    MAIN_RUNTIME.with(|home| match home.get() {
        Some(home) => drop(home.spawn(task)),
        None => drop(tokio::spawn(task)),
    });
}

/// The one type of future that the runtime is given. What it worked with is gone before it counts as ended.
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

/// A task that brings something back. `None` if it panicked or was ended.
#[derive(Debug)]
pub(crate) struct SpawnHandle<T> {
    task: JoinHandle<()>,
    /// It ends with whoever waits for it.
    aborts_on_drop: bool,
    /// Not the output of the task: all tasks are of one type.
    output: Arc<Mutex<Option<T>>>,
}

/// Sends somebody on an errand, on this runtime.
pub(crate) fn spawn_on<T: Send + 'static>(
    here: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> SpawnHandle<T> {
    let brought = Arc::new(Mutex::new(None));
    let place = Arc::clone(&brought);
    let work = Box::pin(async move {
        let found = work.await;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    });
    SpawnHandle {
        task: here.spawn(TrackedTask { future: work, _token: None }),
        aborts_on_drop: false,
        output: brought,
    }
}

/// Sends somebody on an errand that may block its thread.
pub(crate) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> SpawnHandle<T> {
    let brought = Arc::new(Mutex::new(None));
    let place = Arc::clone(&brought);
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        let found = work();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    });
    SpawnHandle { task: tokio::task::spawn_blocking(work), aborts_on_drop: false, output: brought }
}

impl<T> SpawnHandle<T> {
    /// The same, which ends with whoever waits for it.
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
        let ended = Pin::new(&mut self.task).poll(cx);
        ended.map(|_| self.output.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl<T> Drop for SpawnHandle<T> {
    fn drop(&mut self) {
        if self.aborts_on_drop {
            self.abort();
        }
    }
}

/// A task that ends with whoever holds this.
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
    async fn the_last_one_wakes_who_waits() {
        let tracker = Tracker::new();
        assert!(timeout(SHORT_TIMEOUT, tracker.wait()).await.is_err(), "it is not closed");
        let (go, gone) = oneshot::channel::<()>();
        tracker.spawn(async move {
            let _ = gone.await;
        });
        let token = tracker.token();
        tracker.close();
        assert!(timeout(SHORT_TIMEOUT, tracker.wait()).await.is_err(), "two are under way");
        drop(token);
        assert!(timeout(SHORT_TIMEOUT, tracker.wait()).await.is_err(), "one is under way");
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
    async fn closing_an_empty_one_wakes_too() {
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
    async fn one_that_panics_is_counted_off() {
        let tracker = Tracker::new();
        tracker.spawn(async { panic!("on purpose") });
        tracker.close();
        timeout(SHORT_TIMEOUT, tracker.wait()).await.unwrap();
    }

    /// What a task held is gone when the wait is over: an owner may count on it.
    #[test]
    fn nothing_of_a_task_is_left_when_the_wait_is_over() {
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

    /// A thread that serves connections hands on what belongs to the house, and may end before that does.
    #[cfg(feature = "http")]
    #[tokio::test]
    async fn background_work_runs_on_the_main_runtime() {
        let (home, tracker) = (Handle::current(), Tracker::new());
        let (say, said) = oneshot::channel();
        let thread = std::thread::spawn({
            let tracker = tracker.clone();
            move || {
                set_main_runtime(home);
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    tracker.spawn_main(async move {
                        tokio::task::yield_now().await;
                        let _ = say.send(std::thread::current().id());
                    });
                });
            }
        });
        let found = timeout(Duration::from_secs(5), said).await.unwrap().unwrap();
        assert_eq!(found, std::thread::current().id());
        thread.join().unwrap();
        tracker.close();
        timeout(Duration::from_secs(5), tracker.wait()).await.unwrap();
    }
}
