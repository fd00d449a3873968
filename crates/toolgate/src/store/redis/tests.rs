//! Tests against a real Redis: the contract, and a Redis that is killed, stopped or replaced.
//!
//! `cargo xtask test` starts one and sets its address in `TOOLGATE_TEST_REDIS`. Destructive tests start their own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Target;
use super::{RedisStore, Store as _};
use crate::store::{ChannelEvent, Expect, Key, Listener, ScopedStore, StoreError};

const ADDRESS_VAR: &str = "TOOLGATE_TEST_REDIS";
const TTL: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_millis(500);
const PASSWORD: &str = "hush-hush";

fn address() -> Option<String> {
    let address = std::env::var(ADDRESS_VAR).ok().filter(|address| !address.is_empty());
    if address.is_none() {
        eprintln!("SKIPPED: {ADDRESS_VAR} is not set; `cargo xtask tests` starts one");
    }
    address
}

mod contract {
    use super::super::RedisStore;
    use super::address;

    crate::store_contract!(
        |instance: String| async move {
            let url = address().expect("checked by the test");
            // A long deadline, because other tests keep the machine busy.
            RedisStore::connect(url)
                .prefix(format!("test:{instance}:"))
                .deadline(std::time::Duration::from_secs(10))
                .await
                .expect("a connection")
        },
        if address().is_some()
    );
}

/// A Redis server for one test.
struct RedisServer {
    program: &'static str,
    port: u16,
    directory: PathBuf,
    child: Child,
}

impl RedisServer {
    /// Returns `None`, and prints a notice, if Redis is not installed.
    fn start() -> Option<RedisServer> {
        RedisServer::start_with(&[])
    }

    fn start_with(extra_args: &'static [&'static str]) -> Option<RedisServer> {
        let is_installed = |program: &&str| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        let Some(program) =
            ["redis-server", "valkey-server"].into_iter().find(|program| is_installed(program))
        else {
            assert!(
                std::env::var_os(ADDRESS_VAR).is_none(),
                "a Redis is running, but its program is not installed"
            );
            eprintln!("SKIPPED: no redis-server or valkey-server on this machine");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = std::env::temp_dir().join(format!("toolgate-redis-{port}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let child = RedisServer::spawn(program, port, &directory, extra_args);
        Some(RedisServer { program, port, directory, child })
    }

    fn spawn(program: &str, port: u16, directory: &PathBuf, extra_args: &[&str]) -> Child {
        let port = port.to_string();
        let child = Command::new(program)
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir"])
            .arg(directory)
            // Anything less may lose acknowledged writes when the server is killed.
            .args(["--appendfsync", "always", "--requirepass", PASSWORD])
            .args(extra_args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err() {
            assert!(started.elapsed() < Duration::from_secs(10), "Redis did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    fn url(&self) -> String {
        format!("redis://:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = RedisServer::spawn(self.program, self.port, &self.directory, &[]);
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    async fn store(&self) -> RedisStore {
        let started = Instant::now();
        loop {
            match RedisStore::connect(self.url()).deadline(DEADLINE).await {
                Ok(store) => return store,
                Err(error) => assert!(started.elapsed() < Duration::from_secs(10), "{error}"),
            }
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn key(name: &str) -> Key {
    Key::new("space", name)
}

/// Asserts that every operation fails in time, with a reason.
async fn assert_unavailable(store: &RedisStore) {
    let key = key("a");
    let check = |error: StoreError, started: Instant, what: &str| {
        assert!(
            started.elapsed() < DEADLINE + Duration::from_millis(400),
            "{what} took {:?}",
            started.elapsed()
        );
        let StoreError::Unavailable(reason) = &error else { panic!("{what}: {error:?}") };
        assert!(reason.contains("Redis"), "{what}: {reason}");
        assert!(!reason.contains(PASSWORD), "{what}: {reason}");
    };
    let started = Instant::now();
    check(store.get(&key).await.unwrap_err(), started, "get");
    let started = Instant::now();
    check(store.put(&key, "x".into(), None, Expect::Anything).await.unwrap_err(), started, "put");
    let started = Instant::now();
    check(store.touch(&key, TTL).await.unwrap_err(), started, "touch");
    let started = Instant::now();
    check(store.delete(&key, Expect::Is(super::EntryVersion(1))).await.unwrap_err(), started, "delete");
    let started = Instant::now();
    check(store.list("space", None, 9).await.unwrap_err(), started, "list");
    let started = Instant::now();
    check(store.increment(&key, 1, TTL).await.unwrap_err(), started, "count");
    let started = Instant::now();
    check(store.append(&key, "x".into(), TTL, 9).await.unwrap_err(), started, "append");
    let started = Instant::now();
    check(store.read(&key, 0, 9).await.unwrap_err(), started, "read");
    let started = Instant::now();
    check(store.publish("channel", "x".into()).await.unwrap_err(), started, "publish");
    let started = Instant::now();
    check(store.subscribe("another").await.unwrap_err(), started, "subscribe");
}

async fn assert_recovers(store: &RedisStore, listener: &mut Listener) -> Duration {
    let started = Instant::now();
    while store.get(&key("stored")).await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(10), "it did not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let elapsed = started.elapsed();
    let received = tokio::time::timeout(Duration::from_secs(10), async {
        // Messages published while it was stopped may arrive late; what counts is the lag event.
        while listener.next().await.expect("the store is open") != ChannelEvent::Lagged {}
        store.publish("channel", "again".into()).await.unwrap();
        while listener.next().await.expect("the store is open") != ChannelEvent::Message("again".into()) {}
    });
    received.await.expect("a lag event and the next message");
    assert_eq!(store.get(&key("stored")).await.unwrap().unwrap().value, "stored");
    store.put(&key("stored"), "stored".into(), None, Expect::Anything).await.unwrap();
    elapsed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_fails_at_once_and_is_reconnected() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = server.store().await;
    store.put(&key("stored"), "stored".into(), None, Expect::Anything).await.unwrap();
    let mut listener = store.subscribe("channel").await.unwrap();
    for _ in 0..2 {
        server.kill();
        assert_unavailable(&store).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_unavailable(&store).await;
        server.restart();
        let elapsed = assert_recovers(&store, &mut listener).await;
        assert!(elapsed < Duration::from_secs(5), "reconnecting took {elapsed:?}");
    }
    // A new server does not know the scripts; they are sent again.
    assert_eq!(store.append(&key("log"), "line".into(), TTL, 9).await, Ok(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_fails_in_time_and_is_reconnected() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store().await;
    store.put(&key("stored"), "stored".into(), None, Expect::Anything).await.unwrap();
    let mut listener = store.subscribe("channel").await.unwrap();
    server.signal("-STOP");
    let started = Instant::now();
    assert_unavailable(&store).await;
    // Once it is known to be unavailable, operations fail at once.
    tokio::time::sleep(DEADLINE * 2).await;
    let requested = Instant::now();
    assert!(store.get(&key("stored")).await.is_err());
    assert!(requested.elapsed() < DEADLINE / 2, "it still took {:?}", requested.elapsed());
    tokio::time::sleep(Duration::from_secs(4).saturating_sub(started.elapsed())).await;
    server.signal("-CONT");
    assert_recovers(&store, &mut listener).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_operations_all_complete_while_redis_restarts() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = server.store().await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..64 {
        let store = store.clone();
        clients.spawn(async move {
            let (mut stored, mut failed) = (0_u64, 0_u64);
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(3) {
                let requested = Instant::now();
                match store
                    .append(&Key::new("space", format!("log {client}")), "x".into(), TTL, 100_000)
                    .await
                {
                    Ok(number) => {
                        stored += 1;
                        assert!(number >= stored, "a stored entry was lost");
                    }
                    Err(_) => {
                        failed += 1;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                assert!(requested.elapsed() < DEADLINE * 3, "an operation took {:?}", requested.elapsed());
            }
            let page = loop {
                if let Ok(page) = store.read(&Key::new("space", format!("log {client}")), 0, usize::MAX).await
                {
                    break page;
                }
            };
            // Acknowledged entries exist; failed ones may exist too.
            assert!(
                (stored..=stored + failed).contains(&page.newest),
                "{stored} stored, {} found",
                page.newest
            );
            (stored, failed)
        });
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.kill();
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.restart();
    let results = clients.join_all().await;
    assert!(results.iter().all(|(stored, failed)| *stored > 0 && *failed > 0), "{results:?}");
}

#[tokio::test]
async fn passwords_are_not_shown() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store().await;
    let shown = format!("{store:?} {:?}", RedisStore::connect(server.url()));
    assert!(shown.contains("127.0.0.1") && !shown.contains(PASSWORD), "{shown}");
    let wrong = server.url().replace(PASSWORD, "wrong-secret");
    let error = RedisStore::connect(wrong).await.unwrap_err().to_string();
    assert!(!error.contains("wrong-secret") && error.contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn addresses_are_parsed_or_rejected_with_a_reason() {
    let rows = [
        ("redis://127.0.0.1:7000/3", "127.0.0.1:7000"),
        ("valkey://user:hush@example.test", "example.test:6379"),
        ("redis-cluster://user:hush@a.test:1,b.test:2", "a.test:1,b.test:2"),
        ("redis+sentinel://user:hush@a.test:26379,b.test:26379/main/2", "main of a.test:26379,b.test:26379"),
    ];
    for (url, shown) in rows {
        let target = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(target.hosts(), shown);
    }
    let rows = [
        ("127.0.0.1:6379", "no `redis://` in front"),
        ("http://hush@127.0.0.1", "begins with none of"),
        ("rediss://hush@127.0.0.1", "TLS is not built in"),
        ("redis+sentinel://hush@127.0.0.1:26379", "host:port/service"),
        ("redis://hush@:x", "cannot be used"),
        ("redis-cluster://hush@", "cannot be used"),
    ];
    for (url, expected) in rows {
        let Err(error) = Target::parse(url) else { panic!("{url} was accepted") };
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains("hush"), "{url}: {error}");
    }
    // No server listens on this port.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let started = Instant::now();
    let error = RedisStore::connect(format!("redis://127.0.0.1:{port}")).await.unwrap_err().to_string();
    assert!(error.contains(&format!("Redis at 127.0.0.1:{port}")), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3));
}

/// Expired names leave the index even of a space that is never listed, and no key stays forever.
#[tokio::test]
async fn a_space_that_is_never_listed_does_not_grow() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store().await;
    let scoped = ScopedStore::new(Arc::new(store.clone()), "server");
    for number in 0..600 {
        let ttl = Duration::from_millis(if number < 500 { 20 } else { 1500 });
        assert!(scoped.consume_once(&number.to_string(), ttl).await.unwrap());
        assert!(!scoped.consume_once("once", TTL).await.unwrap() || number == 0);
        if number == 499 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let mut connection =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let index = "toolgate:{server/nonces}i";
    let n_names: usize = redis::cmd("ZCARD").arg(index).query_async(&mut connection).await.unwrap();
    assert!(n_names < 400, "{n_names} names for 101 entries");
    assert!(store.delete(&scoped.nonce_key("once"), Expect::Anything).await.unwrap());
    let ttl: i64 = redis::cmd("PTTL").arg(index).query_async(&mut connection).await.unwrap();
    assert!(ttl > 0, "the index expires by itself: {ttl}");
    // A space whose entries have all expired leaves only its last version, which expires too.
    let key = Key::new("short", "a");
    store.put(&key, "x".into(), Some(Duration::from_millis(20)), Expect::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("toolgate:{short}*").query_async(&mut connection).await.unwrap();
    assert_eq!(keys, ["toolgate:{short}v"]);
}

/// A Cluster rejects scripts whose keys are on different nodes, even if it has only one node.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_fulfills_the_contract() {
    let Some(server) = RedisServer::start_with(&["--cluster-enabled", "yes"]) else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec_async(&mut connection).await.unwrap();
    let started = Instant::now();
    loop {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.unwrap();
        if info.contains("cluster_state:ok") {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{info}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let url = format!("redis-cluster://:{PASSWORD}@127.0.0.1:{}", server.port);
    crate::store::contract::run(move |instance| {
        let store = RedisStore::connect(url.clone()).prefix(instance).deadline(Duration::from_secs(10));
        async move { store.await.expect("a connection") }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_locate_the_master() {
    let Some(server) = RedisServer::start() else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = server.directory.join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\nsentinel auth-pass main {PASSWORD}\n",
        server.port
    );
    std::fs::write(&file, text).unwrap();
    let mut sentinel =
        Command::new(server.program).arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
    let url = format!("redis+sentinel://:{PASSWORD}@127.0.0.1:{port}/main");
    let started = Instant::now();
    let store = loop {
        match RedisStore::connect(&url).await {
            Ok(store) => break Ok(store),
            Err(error) if started.elapsed() > Duration::from_secs(10) => break Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let result = async {
        let store = store?;
        let mut listener = store.subscribe("channel").await?;
        store.put(&key("a"), "b".into(), None, Expect::Absent).await?;
        store.publish("channel", "hello".into()).await?;
        let event = tokio::time::timeout(Duration::from_secs(5), listener.next()).await;
        Ok::<_, StoreError>((store.get(&key("a")).await?.map(|entry| entry.value), event))
    };
    let result = result.await;
    sentinel.kill().unwrap();
    sentinel.wait().unwrap();
    assert_eq!(result, Ok((Some("b".into()), Ok(Some(ChannelEvent::Message("hello".into()))))));
    let wrong = RedisStore::connect(url.replace("/main", "/other")).await.unwrap_err();
    assert!(!wrong.to_string().contains(PASSWORD), "{wrong}");
}
