//! What every store promises, as tests (feature `testing`): a backend of your own proves itself with one line.
//!
//! ```test_harness
//! use toolgate::store::MemoryStore;
//!
//! toolgate::store_contract!(|_place| async { MemoryStore::new() });
//! ```
//!
//! `place` is another name for each test. Whoever opens the same place twice must find the same data, unless the store
//! is one whose [`Visibility`] is the process alone; what is kept in different places may be kept together, since every test
//! uses spaces of its own. For a store in a file, a place is a file; for a server, nothing or a prefix.
//!
//! What goes wrong here is a panic, because that is how a test fails. Time is real: what expires does so within tenths
//! of a second, and no test depends on being fast. It must not know any backend.

mod entries;
mod messages;
mod numbers;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Entry, EntryVersion, Expect, Key, Listener, Store, Visibility};
use crate::util::clock::timer_now;

/// How long something that must come may take. Reached only by failures.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// A life that no test outlives.
const LONG_TTL: Duration = Duration::from_secs(600);

/// A life that ends while a test looks.
const SHORT_TTL: Duration = Duration::from_millis(150);

type OpenFuture = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

type CheckFn = fn(Backend) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A table of checks, each under its own name.
macro_rules! checks {
    ($($module:ident::$name:ident,)*) => {
        &[$((stringify!($name), |backend| Box::pin($module::$name(backend)))),*]
    };
}

const CHECKS: &[(&str, CheckFn)] = checks![
    entries::what_is_put_is_found_until_it_is_deleted,
    entries::a_change_happens_only_to_what_was_expected,
    entries::one_of_many_writers_wins,
    entries::no_update_is_lost,
    entries::versions_never_come_back,
    entries::what_expires_is_gone_and_never_early,
    entries::a_touch_prolongs_a_life,
    entries::a_listing_is_in_order_and_in_pages,
    entries::large_values_come_back_whole,
    entries::names_may_be_odd,
    entries::an_abandoned_operation_harms_nobody,
    entries::another_handle_sees_the_same,
    numbers::counters_lose_nothing,
    numbers::a_counter_lives_from_its_beginning,
    numbers::a_log_is_numbered_without_holes,
    numbers::a_log_keeps_the_newest,
    numbers::a_log_expires_and_can_be_forgotten,
    numbers::entries_counters_and_logs_share_no_names,
    messages::listeners_hear_everything_in_order,
    messages::a_slow_listener_knows_that_it_missed_something,
    messages::channels_do_not_mix,
    messages::whoever_leaves_is_not_missed,
];

/// The names of all promises.
pub fn check_names() -> Vec<&'static str> {
    CHECKS.iter().map(|(name, _)| *name).collect()
}

/// Checks all promises, one after the other.
///
/// # Panics
///
/// Where one is broken.
pub async fn run<O, F, S>(open: O)
where
    O: Fn(String) -> F + Send + Sync + 'static,
    F: Future<Output = S> + Send + 'static,
    S: Store,
{
    let backend = Backend::new("all", open);
    for (name, check) in CHECKS {
        check(Backend { instance: format!("{}-{name}", backend.instance), open: Arc::clone(&backend.open) })
            .await;
    }
}

/// Checks one promise on a runtime of its own.
///
/// # Panics
///
/// Where it is broken.
pub fn run_check<O, F, S>(promise: &str, open: O)
where
    O: Fn(String) -> F + Send + Sync + 'static,
    F: Future<Output = S> + Send + 'static,
    S: Store,
{
    let found = CHECKS.iter().find(|(name, _)| *name == promise);
    let (_, check) = found.unwrap_or_else(|| panic!("no promise is called `{promise}`"));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime starts");
    let backend = Backend::new(promise, open);
    runtime.block_on(async { with_timeout(CHECK_TIMEOUT * 4, check(backend)).await });
}

/// Makes one test of each promise, in a module of their own if you put them into one.
///
/// Takes what opens a store: a closure or a function from a `String` to a future of a store. See
/// [`store::contract`](crate::store::contract). Where the store needs a server that is not always there, a second
/// argument says whether it is: `store_contract!(open, if there())`. It should say so loudly if not.
#[macro_export]
macro_rules! store_contract {
    ($open:expr) => {
        $crate::store_contract!($open, if true);
    };
    ($open:expr, if $there:expr) => {
        $crate::store_contract! { @tests $open, $there;
            what_is_put_is_found_until_it_is_deleted
            a_change_happens_only_to_what_was_expected
            one_of_many_writers_wins
            no_update_is_lost
            versions_never_come_back
            what_expires_is_gone_and_never_early
            a_touch_prolongs_a_life
            a_listing_is_in_order_and_in_pages
            large_values_come_back_whole
            names_may_be_odd
            an_abandoned_operation_harms_nobody
            another_handle_sees_the_same
            counters_lose_nothing
            a_counter_lives_from_its_beginning
            a_log_is_numbered_without_holes
            a_log_keeps_the_newest
            a_log_expires_and_can_be_forgotten
            entries_counters_and_logs_share_no_names
            listeners_hear_everything_in_order
            a_slow_listener_knows_that_it_missed_something
            channels_do_not_mix
            whoever_leaves_is_not_missed
        }
    };
    (@tests $open:expr, $there:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            if !$there {
                return;
            }
            $crate::store::contract::run_check(stringify!($name), $open);
        })*

        #[test]
        fn every_check_has_a_test() {
            assert_eq!($crate::store::contract::check_names(), [$(stringify!($name)),*]);
        }
    };
}

/// What opens stores, and the place of one test.
#[derive(Clone)]
struct Backend {
    open: Arc<dyn Fn(String) -> OpenFuture + Send + Sync>,
    instance: String,
}

impl Backend {
    fn new<O, F, S>(name: &str, open: O) -> Backend
    where
        O: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = S> + Send + 'static,
        S: Store,
    {
        let open = move |place| -> OpenFuture {
            let opening = open(place);
            Box::pin(async move { Arc::new(opening.await) as Arc<dyn Store> })
        };
        Backend { open: Arc::new(open), instance: format!("{name}-{:016x}", random()) }
    }

    async fn store(&self) -> Arc<dyn Store> {
        with_timeout(CHECK_TIMEOUT, (self.open)(self.instance.clone())).await
    }

    /// A space that no other test has, nor any test before, in a store that remembers.
    fn space(&self) -> String {
        format!("contract/{:016x}", random())
    }
}

/// What a test does with a store most often. Every error is a failure.
#[derive(Clone)]
struct TestSpace {
    store: Arc<dyn Store>,
    space: String,
}

impl TestSpace {
    async fn new(backend: &Backend) -> TestSpace {
        TestSpace { store: backend.store().await, space: backend.space() }
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.space.as_str(), name)
    }

    async fn get(&self, name: &str) -> Option<Entry> {
        self.store.get(&self.key(name)).await.expect("get")
    }

    async fn value(&self, name: &str) -> Option<Bytes> {
        self.get(name).await.map(|entry| entry.value)
    }

    async fn put(&self, name: &str, value: impl Into<Bytes>, expect: Expect) -> Option<EntryVersion> {
        self.put_with_ttl(name, value, None, expect).await
    }

    async fn put_with_ttl(
        &self,
        name: &str,
        value: impl Into<Bytes>,
        life: Option<Duration>,
        expect: Expect,
    ) -> Option<EntryVersion> {
        self.store.put(&self.key(name), value.into(), life, expect).await.expect("put")
    }

    async fn delete(&self, name: &str, expect: Expect) -> bool {
        self.store.delete(&self.key(name), expect).await.expect("delete")
    }

    async fn list_names(&self, after: Option<&str>, most: usize) -> Vec<String> {
        let listed = self.store.list(&self.space, after, most).await.expect("list");
        listed.into_iter().map(|(name, _)| name.into()).collect()
    }

    async fn append(&self, name: &str, value: impl Into<Bytes>, life: Duration, most: usize) -> u64 {
        self.store.append(&self.key(name), value.into(), life, most).await.expect("append")
    }

    async fn count(&self, name: &str, by: u64, life: Duration) -> u64 {
        self.store.increment(&self.key(name), by, life).await.expect("count")
    }

    async fn subscribe(&self, channel: &str) -> Listener {
        self.store.subscribe(&format!("{}/{channel}", self.space)).await.expect("subscribe")
    }

    async fn publish(&self, channel: &str, message: impl Into<Bytes>) {
        let channel = format!("{}/{channel}", self.space);
        self.store.publish(&channel, message.into()).await.expect("publish");
    }
}

/// Waits until something that looks every few milliseconds says yes, and tells how long that took.
async fn eventually<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) -> Duration {
    let begun = timer_now();
    while !look().await {
        assert!(begun.elapsed() < CHECK_TIMEOUT, "{what}: not within {CHECK_TIMEOUT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

async fn with_timeout<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(limit, future).await;
    ended.unwrap_or_else(|_| panic!("this should have ended within {limit:?}"))
}

/// Runs so many at the same time.
async fn run_concurrently<F>(n_tasks: u64, task: impl Fn(u64) -> F) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..n_tasks {
        tasks.spawn(task(number));
    }
    with_timeout(CHECK_TIMEOUT * 3, tasks.join_all()).await
}

fn random() -> u64 {
    getrandom::u64().expect("the machine has randomness")
}

#[cfg(test)]
mod tests {
    use crate::store::MemoryStore;

    crate::store_contract!(|_place| async { MemoryStore::new() });

    /// A suite that anything passes proves nothing: here is a store that forgets to compare.
    #[test]
    fn a_store_that_does_not_compare_is_found_out() {
        let kept = std::panic::catch_unwind(|| {
            super::run_check("one_of_many_writers_wins", |_place| async {
                super::non_comparing::NonComparingStore::default()
            });
        });
        assert!(kept.is_err());
    }
}

/// A store that breaks a promise, so that the suite itself can be tried.
#[cfg(test)]
mod non_comparing {
    use std::time::Duration;

    use bytes::Bytes;

    use crate::store::{
        Entry, EntryVersion, Expect, Key, Listener, LogPage, MemoryStore, Store, StoreFuture, Visibility,
    };

    #[derive(Debug, Default)]
    pub(super) struct NonComparingStore(MemoryStore);

    impl Store for NonComparingStore {
        fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Option<Entry>> {
            self.0.get(key)
        }
        fn put<'a>(
            &'a self,
            key: &'a Key,
            value: Bytes,
            life: Option<Duration>,
            _expect: Expect,
        ) -> StoreFuture<'a, Option<EntryVersion>> {
            self.0.put(key, value, life, Expect::Anything)
        }
        fn touch<'a>(&'a self, key: &'a Key, life: Duration) -> StoreFuture<'a, bool> {
            self.0.touch(key, life)
        }
        fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
            self.0.delete(key, expect)
        }
        fn list<'a>(
            &'a self,
            space: &'a str,
            after: Option<&'a str>,
            most: usize,
        ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
            self.0.list(space, after, most)
        }
        fn increment<'a>(&'a self, key: &'a Key, by: u64, life: Duration) -> StoreFuture<'a, u64> {
            self.0.increment(key, by, life)
        }
        fn append<'a>(
            &'a self,
            log: &'a Key,
            value: Bytes,
            life: Duration,
            most: usize,
        ) -> StoreFuture<'a, u64> {
            self.0.append(log, value, life, most)
        }
        fn read<'a>(&'a self, log: &'a Key, after: u64, most: usize) -> StoreFuture<'a, LogPage> {
            self.0.read(log, after, most)
        }
        fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StoreFuture<'a, ()> {
            self.0.publish(channel, message)
        }
        fn subscribe<'a>(&'a self, channel: &'a str) -> StoreFuture<'a, Listener> {
            self.0.subscribe(channel)
        }
        fn visibility(&self) -> Visibility {
            self.0.visibility()
        }
    }
}
