//! A test suite for implementations of [`Store`] (feature `testing`).
//!
//! The suite checks every rule in the documentation of [`Store`]. One line runs it for your own store:
//!
//! ```test_harness
//! use toolgate::store::MemoryStore;
//!
//! toolgate::store_contract!(|_instance| async { MemoryStore::new() });
//! ```
//!
//! The argument opens a store. It is called with an instance name, which is different for each test. If it is called
//! twice with the same name, both stores must have the same data, unless the [`Visibility`] is [`Visibility::Process`].
//! Different instances may share their data, since every test uses spaces of its own. For a store in a file, an
//! instance can be a file name; for a database server, it can be a key prefix or be ignored.
//!
//! A broken rule is a panic, so that the test fails. The tests use real time: entries expire within tenths of a second,
//! and no test depends on the machine being fast. The suite knows no backend.

mod entries;
mod messages;
mod numbers;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Entry, EntryVersion, Expect, Key, Listener, Store, Visibility};
use crate::util::clock::timer_now;

/// Time limit for everything that must happen. Only failing tests reach it.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// A TTL that outlasts every test.
const LONG_TTL: Duration = Duration::from_secs(600);

/// A TTL that ends during a test.
const SHORT_TTL: Duration = Duration::from_millis(150);

type OpenFuture = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

type CheckFn = fn(Backend) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Builds the table of checks by name.
macro_rules! checks {
    ($($module:ident::$name:ident,)*) => {
        &[$((stringify!($name), |backend| Box::pin($module::$name(backend)))),*]
    };
}

const CHECKS: &[(&str, CheckFn)] = checks![
    entries::entries_are_found_until_they_are_deleted,
    entries::changes_require_the_expected_version,
    entries::exactly_one_concurrent_writer_wins,
    entries::no_update_is_lost,
    entries::versions_are_never_reused,
    entries::entries_expire_and_never_early,
    entries::touch_sets_the_ttl,
    entries::list_is_ordered_and_paged,
    entries::large_values_are_returned_unchanged,
    entries::unusual_names_are_distinct,
    entries::dropped_operations_leave_consistent_data,
    entries::a_second_handle_sees_the_same_data,
    numbers::no_increment_is_lost,
    numbers::a_counter_expires_after_its_first_increment,
    numbers::a_log_is_numbered_without_gaps,
    numbers::a_log_keeps_the_newest_entries,
    numbers::a_log_expires_and_can_be_deleted,
    numbers::entries_counters_and_logs_have_separate_names,
    messages::listeners_receive_messages_in_order,
    messages::a_slow_listener_is_told_that_it_lagged,
    messages::channels_are_separate,
    messages::dropped_listeners_do_not_affect_others,
];

/// Returns the names of all checks.
pub fn check_names() -> Vec<&'static str> {
    CHECKS.iter().map(|(name, _)| *name).collect()
}

/// Runs all checks, one after the other.
///
/// # Panics
///
/// If a check fails.
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

/// Runs one check, on a runtime of its own.
///
/// # Panics
///
/// If the check fails, or there is no check of this name.
pub fn run_check<O, F, S>(check_name: &str, open: O)
where
    O: Fn(String) -> F + Send + Sync + 'static,
    F: Future<Output = S> + Send + 'static,
    S: Store,
{
    let found = CHECKS.iter().find(|(name, _)| *name == check_name);
    let (_, check) = found.unwrap_or_else(|| panic!("there is no check named `{check_name}`"));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime starts");
    let backend = Backend::new(check_name, open);
    runtime.block_on(async { expect_within(CHECK_TIMEOUT * 4, check(backend)).await });
}

/// Generates one test for each check of the store contract. Put it into a module of its own.
///
/// The argument opens a store: a closure or function from a `String` to a future of a store. See
/// [`store::contract`](crate::store::contract). If the store needs a server that may not be running, a second argument
/// tells whether it is: `store_contract!(open, if is_running())`. It should print a notice if it returns `false`,
/// because the tests then pass without checking anything.
#[macro_export]
macro_rules! store_contract {
    ($open:expr) => {
        $crate::store_contract!($open, if true);
    };
    ($open:expr, if $is_available:expr) => {
        $crate::store_contract! { @tests $open, $is_available;
            entries_are_found_until_they_are_deleted
            changes_require_the_expected_version
            exactly_one_concurrent_writer_wins
            no_update_is_lost
            versions_are_never_reused
            entries_expire_and_never_early
            touch_sets_the_ttl
            list_is_ordered_and_paged
            large_values_are_returned_unchanged
            unusual_names_are_distinct
            dropped_operations_leave_consistent_data
            a_second_handle_sees_the_same_data
            no_increment_is_lost
            a_counter_expires_after_its_first_increment
            a_log_is_numbered_without_gaps
            a_log_keeps_the_newest_entries
            a_log_expires_and_can_be_deleted
            entries_counters_and_logs_have_separate_names
            listeners_receive_messages_in_order
            a_slow_listener_is_told_that_it_lagged
            channels_are_separate
            dropped_listeners_do_not_affect_others
        }
    };
    (@tests $open:expr, $is_available:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            if !$is_available {
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

/// Opens stores for one test.
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
        let open = move |instance| -> OpenFuture {
            let opening = open(instance);
            Box::pin(async move { Arc::new(opening.await) as Arc<dyn Store> })
        };
        Backend { open: Arc::new(open), instance: format!("{name}-{:016x}", random()) }
    }

    async fn store(&self) -> Arc<dyn Store> {
        expect_within(CHECK_TIMEOUT, (self.open)(self.instance.clone())).await
    }

    /// Returns the name of a new space, unused even if the store has data of earlier runs.
    fn space(&self) -> String {
        format!("contract/{:016x}", random())
    }
}

/// Shorthands for operations on one space of a store. Every error fails the test.
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
        ttl: Option<Duration>,
        expect: Expect,
    ) -> Option<EntryVersion> {
        self.store.put(&self.key(name), value.into(), ttl, expect).await.expect("put")
    }

    async fn delete(&self, name: &str, expect: Expect) -> bool {
        self.store.delete(&self.key(name), expect).await.expect("delete")
    }

    async fn list_names(&self, after: Option<&str>, limit: usize) -> Vec<String> {
        let listed = self.store.list(&self.space, after, limit).await.expect("list");
        listed.into_iter().map(|(name, _)| name.into()).collect()
    }

    async fn append(&self, name: &str, value: impl Into<Bytes>, ttl: Duration, limit: usize) -> u64 {
        self.store.append(&self.key(name), value.into(), ttl, limit).await.expect("append")
    }

    async fn count(&self, name: &str, by: u64, ttl: Duration) -> u64 {
        self.store.increment(&self.key(name), by, ttl).await.expect("count")
    }

    async fn subscribe(&self, channel: &str) -> Listener {
        self.store.subscribe(&format!("{}/{channel}", self.space)).await.expect("subscribe")
    }

    async fn publish(&self, channel: &str, message: impl Into<Bytes>) {
        let channel = format!("{}/{channel}", self.space);
        self.store.publish(&channel, message.into()).await.expect("publish");
    }
}

/// Polls a condition every few milliseconds until it holds, and returns how long that took.
async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) -> Duration {
    let started = timer_now();
    while !condition().await {
        assert!(started.elapsed() < CHECK_TIMEOUT, "{what}: not within {CHECK_TIMEOUT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

async fn expect_within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("not finished within {limit:?}"))
}

/// Runs `n_tasks` tasks concurrently.
async fn run_concurrently<F>(n_tasks: u64, task: impl Fn(u64) -> F) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..n_tasks {
        tasks.spawn(task(number));
    }
    expect_within(CHECK_TIMEOUT * 3, tasks.join_all()).await
}

fn random() -> u64 {
    getrandom::u64().expect("the system provides random numbers")
}

#[cfg(test)]
mod tests {
    use crate::store::MemoryStore;

    crate::store_contract!(|_instance| async { MemoryStore::new() });

    /// Tests the suite itself with a store that ignores expected versions.
    #[test]
    fn a_store_that_ignores_versions_fails_the_suite() {
        let result = std::panic::catch_unwind(|| {
            super::run_check("exactly_one_concurrent_writer_wins", |_instance| async {
                super::non_comparing::NonComparingStore::default()
            });
        });
        assert!(result.is_err());
    }
}

/// A store that breaks a rule, for testing the suite itself.
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
            ttl: Option<Duration>,
            _expect: Expect,
        ) -> StoreFuture<'a, Option<EntryVersion>> {
            self.0.put(key, value, ttl, Expect::Anything)
        }
        fn touch<'a>(&'a self, key: &'a Key, ttl: Duration) -> StoreFuture<'a, bool> {
            self.0.touch(key, ttl)
        }
        fn delete<'a>(&'a self, key: &'a Key, expect: Expect) -> StoreFuture<'a, bool> {
            self.0.delete(key, expect)
        }
        fn list<'a>(
            &'a self,
            space: &'a str,
            after: Option<&'a str>,
            limit: usize,
        ) -> StoreFuture<'a, Vec<(Box<str>, Entry)>> {
            self.0.list(space, after, limit)
        }
        fn increment<'a>(&'a self, key: &'a Key, by: u64, ttl: Duration) -> StoreFuture<'a, u64> {
            self.0.increment(key, by, ttl)
        }
        fn append<'a>(
            &'a self,
            log: &'a Key,
            value: Bytes,
            ttl: Duration,
            limit: usize,
        ) -> StoreFuture<'a, u64> {
            self.0.append(log, value, ttl, limit)
        }
        fn read<'a>(&'a self, log: &'a Key, after: u64, limit: usize) -> StoreFuture<'a, LogPage> {
            self.0.read(log, after, limit)
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
