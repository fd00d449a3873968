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
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

const CLOSED: usize = 1;
const ONE: usize = 2;

/// Counts tasks. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// How many are under way, times two; and one if there will be no end of more.
    state: AtomicUsize,
    waiting: Notify,
}

impl Tracker {
    pub(crate) fn new() -> Tracker {
        Tracker::default()
    }

    /// Begins a task that is counted until it ends or is dropped with its runtime.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(Task { work: Box::pin(work), _tracked: Some(self.token()) });
    }

    /// Begins a task of the whole house, see [`make_home`].
    pub(crate) fn spawn_home(&self, work: impl Future<Output = ()> + Send + 'static) {
        begin_home(Task { work: Box::pin(work), _tracked: Some(self.token()) });
    }

    /// Counts something that is no task, until it is dropped.
    pub(crate) fn token(&self) -> Tracked {
        self.0.state.fetch_add(ONE, Ordering::Relaxed);
        Tracked(Arc::clone(&self.0))
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.0.state.load(Ordering::Relaxed) / ONE
    }

    /// From now on an empty count is the end. More may still be begun.
    pub(crate) fn close(&self) {
        if self.0.state.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
            self.0.waiting.notify_waiters();
        }
    }

    /// Waits until it is closed and nothing is under way.
    ///
    /// Cancel safe: yes.
    pub(crate) async fn wait(&self) {
        // Made before the look at the count: whoever is the last after that look wakes this one.
        let woken = self.0.waiting.notified();
        if self.0.state.load(Ordering::Acquire) != CLOSED {
            woken.await;
        }
    }
}

/// One that is counted.
#[derive(Debug)]
pub(crate) struct Tracked(Arc<Inner>);

impl Drop for Tracked {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(ONE, Ordering::AcqRel) == ONE | CLOSED {
            self.0.waiting.notify_waiters();
        }
    }
}

/// Begins a task of the whole house, see [`make_home`], that nobody waits for.
pub(crate) fn spawn_home(work: impl Future<Output = ()> + Send + 'static) {
    begin_home(Task { work: Box::pin(work), _tracked: None });
}

thread_local! {
    static HOME: OnceCell<Handle> = const { OnceCell::new() };
}

/// From now on, tasks of the whole house that are begun on this thread run there: the runtime of this one serves
/// connections, may be kept busy by their calls, and ends with their listener.
#[cfg(feature = "http")]
pub(crate) fn make_home(home: Handle) {
    HOME.with(|cell| {
        let _ = cell.set(home);
    });
}

fn begin_home(task: Task) {
    HOME.with(|home| match home.get() {
        Some(home) => drop(home.spawn(task)),
        None => drop(tokio::spawn(task)),
    });
}

/// The one type of future that the runtime is given. What it worked with is gone before it counts as ended.
struct Task {
    work: Work,
    _tracked: Option<Tracked>,
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.work.as_mut().poll(cx)
    }
}

/// A task that brings something back. `None` if it panicked or was ended.
#[derive(Debug)]
pub(crate) struct Errand<T> {
    task: JoinHandle<()>,
    /// It ends with whoever waits for it.
    is_bound: bool,
    /// Not the output of the task: all tasks are of one type.
    brought: Arc<Mutex<Option<T>>>,
}

/// Sends somebody on an errand, on this runtime.
pub(crate) fn send_on<T: Send + 'static>(
    here: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Errand<T> {
    let brought = Arc::new(Mutex::new(None));
    let place = Arc::clone(&brought);
    let work = Box::pin(async move {
        let found = work.await;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    });
    Errand { task: here.spawn(Task { work, _tracked: None }), is_bound: false, brought }
}

/// Sends somebody on an errand that may block its thread.
pub(crate) fn send_aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Errand<T> {
    let brought = Arc::new(Mutex::new(None));
    let place = Arc::clone(&brought);
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        let found = work();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    });
    Errand { task: tokio::task::spawn_blocking(work), is_bound: false, brought }
}

impl<T> Errand<T> {
    /// The same, which ends with whoever waits for it.
    pub(crate) fn bound(mut self) -> Errand<T> {
        self.is_bound = true;
        self
    }

    pub(crate) fn end(&self) {
        self.task.abort();
    }
}

impl<T> Future for Errand<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let ended = Pin::new(&mut self.task).poll(cx);
        ended.map(|_| self.brought.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl<T> Drop for Errand<T> {
    fn drop(&mut self) {
        if self.is_bound {
            self.end();
        }
    }
}

/// A task that ends with whoever holds this.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub(crate) struct Leash<T>(tokio::task::JoinHandle<T>);

#[cfg(feature = "testing")]
impl<T> Leash<T> {
    pub(crate) fn new(task: tokio::task::JoinHandle<T>) -> Leash<T> {
        Leash(task)
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

#[cfg(feature = "testing")]
impl<T> Future for Leash<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

#[cfg(feature = "testing")]
impl<T> Drop for Leash<T> {
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

    const SOON: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn the_last_one_wakes_who_waits() {
        let tracker = Tracker::new();
        assert!(timeout(SOON, tracker.wait()).await.is_err(), "it is not closed");
        let (go, gone) = oneshot::channel::<()>();
        tracker.spawn(async move {
            let _ = gone.await;
        });
        let token = tracker.token();
        tracker.close();
        assert!(timeout(SOON, tracker.wait()).await.is_err(), "two are under way");
        drop(token);
        assert!(timeout(SOON, tracker.wait()).await.is_err(), "one is under way");
        let waiting = tokio::spawn({
            let tracker = tracker.clone();
            async move { tracker.wait().await }
        });
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        timeout(SOON, waiting).await.unwrap().unwrap();
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
        timeout(SOON, waiting).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_panics_is_counted_off() {
        let tracker = Tracker::new();
        tracker.spawn(async { panic!("on purpose") });
        tracker.close();
        timeout(SOON, tracker.wait()).await.unwrap();
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
    async fn work_of_the_house_runs_at_home() {
        let (home, tracker) = (Handle::current(), Tracker::new());
        let (say, said) = oneshot::channel();
        let thread = std::thread::spawn({
            let tracker = tracker.clone();
            move || {
                make_home(home);
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    tracker.spawn_home(async move {
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
