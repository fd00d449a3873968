//! Against a real Redis: the contract, and what happens when it is killed, stopped or replaced.
//!
//! `cargo xtask test` starts one and says where in `TOOLGATE_TEST_REDIS`. Tests that do harm start one of their own.

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
        eprintln!("SKIPPED: {ADDRESS_VAR} does not say where a Redis is; `cargo xtask tests` starts one");
    }
    address
}

mod contract {
    use super::super::RedisStore;
    use super::address;

    crate::store_contract!(
        |place: String| async move {
            let url = address().expect("the test looked for it");
            // Other tests keep the machine busy; what is slow is not wrong.
            RedisStore::connect(url)
                .prefix(format!("test:{place}:"))
                .deadline(std::time::Duration::from_secs(10))
                .await
                .expect("a connection")
        },
        if address().is_some()
    );
}

/// A Redis of one test.
struct RedisServer {
    program: &'static str,
    port: u16,
    directory: PathBuf,
    child: Child,
}

impl RedisServer {
    /// None, loudly, where there is no Redis on this machine.
    fn start() -> Option<RedisServer> {
        RedisServer::start_with(&[])
    }

    fn start_with(more: &'static [&'static str]) -> Option<RedisServer> {
        let is_there = |program: &&str| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        let Some(program) = ["redis-server", "valkey-server"].into_iter().find(|program| is_there(program))
        else {
            assert!(std::env::var_os(ADDRESS_VAR).is_none(), "there is a Redis, but not its program");
            eprintln!("SKIPPED: no redis-server or valkey-server on this machine");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = std::env::temp_dir().join(format!("toolgate-redis-{port}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let child = RedisServer::spawn(program, port, &directory, more);
        Some(RedisServer { program, port, directory, child })
    }

    fn spawn(program: &str, port: u16, directory: &PathBuf, more: &[&str]) -> Child {
        let port = port.to_string();
        let child = Command::new(program)
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir"])
            .arg(directory)
            // With anything less, what was answered may be gone when it is killed.
            .args(["--appendfsync", "always", "--requirepass", PASSWORD])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "Redis did not start");
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
        let begun = Instant::now();
        loop {
            match RedisStore::connect(self.url()).deadline(DEADLINE).await {
                Ok(store) => return store,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
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

/// Everything that can be asked fails in time and says why.
async fn assert_unavailable(store: &RedisStore) {
    let key = key("a");
    let check = |error: StoreError, begun: Instant, what: &str| {
        assert!(begun.elapsed() < DEADLINE + Duration::from_millis(400), "{what} took {:?}", begun.elapsed());
        let StoreError::Unavailable(why) = &error else { panic!("{what}: {error:?}") };
        assert!(why.contains("Redis"), "{what}: {why}");
        assert!(!why.contains(PASSWORD), "{what}: {why}");
    };
    let begun = Instant::now();
    check(store.get(&key).await.unwrap_err(), begun, "get");
    let begun = Instant::now();
    check(store.put(&key, "x".into(), None, Expect::Anything).await.unwrap_err(), begun, "put");
    let begun = Instant::now();
    check(store.touch(&key, TTL).await.unwrap_err(), begun, "touch");
    let begun = Instant::now();
    check(store.delete(&key, Expect::Is(super::EntryVersion(1))).await.unwrap_err(), begun, "delete");
    let begun = Instant::now();
    check(store.list("space", None, 9).await.unwrap_err(), begun, "list");
    let begun = Instant::now();
    check(store.increment(&key, 1, TTL).await.unwrap_err(), begun, "count");
    let begun = Instant::now();
    check(store.append(&key, "x".into(), TTL, 9).await.unwrap_err(), begun, "append");
    let begun = Instant::now();
    check(store.read(&key, 0, 9).await.unwrap_err(), begun, "read");
    let begun = Instant::now();
    check(store.publish("channel", "x".into()).await.unwrap_err(), begun, "publish");
    let begun = Instant::now();
    check(store.subscribe("another").await.unwrap_err(), begun, "subscribe");
}

async fn assert_recovers(store: &RedisStore, listener: &mut Listener) -> Duration {
    let begun = Instant::now();
    while store.get(&key("kept")).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it did not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    let heard = tokio::time::timeout(Duration::from_secs(10), async {
        // What was said while it was stopped may come late; what counts is that a gap is told.
        while listener.next().await.expect("the store is open") != ChannelEvent::Lagged {}
        store.publish("channel", "again".into()).await.unwrap();
        while listener.next().await.expect("the store is open") != ChannelEvent::Message("again".into()) {}
    });
    heard.await.expect("a gap, and then what is said");
    assert_eq!(store.get(&key("kept")).await.unwrap().unwrap().value, "kept");
    store.put(&key("kept"), "kept".into(), None, Expect::Anything).await.unwrap();
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_is_an_error_at_once_and_comes_back_without_a_restart() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = server.store().await;
    store.put(&key("kept"), "kept".into(), None, Expect::Anything).await.unwrap();
    let mut listener = store.subscribe("channel").await.unwrap();
    for _ in 0..2 {
        server.kill();
        assert_unavailable(&store).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_unavailable(&store).await;
        server.restart();
        let took = assert_recovers(&store, &mut listener).await;
        assert!(took < Duration::from_secs(5), "it took {took:?} to come back");
    }
    // Scripts are forgotten by a new server, and known again.
    assert_eq!(store.append(&key("log"), "line".into(), TTL, 9).await, Ok(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_is_an_error_in_time_and_comes_back_without_a_restart() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store().await;
    store.put(&key("kept"), "kept".into(), None, Expect::Anything).await.unwrap();
    let mut listener = store.subscribe("channel").await.unwrap();
    server.signal("-STOP");
    let begun = Instant::now();
    assert_unavailable(&store).await;
    // Once it is known to be away, nobody waits for it.
    tokio::time::sleep(DEADLINE * 2).await;
    let asked = Instant::now();
    assert!(store.get(&key("kept")).await.is_err());
    assert!(asked.elapsed() < DEADLINE / 2, "it still took {:?}", asked.elapsed());
    tokio::time::sleep(Duration::from_secs(4).saturating_sub(begun.elapsed())).await;
    server.signal("-CONT");
    assert_recovers(&store, &mut listener).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_while_it_goes_away_all_get_an_answer() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = server.store().await;
    let mut askers = tokio::task::JoinSet::new();
    for asker in 0..64 {
        let store = store.clone();
        askers.spawn(async move {
            let (mut kept, mut refused) = (0_u64, 0_u64);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(3) {
                let asked = Instant::now();
                match store.append(&Key::new("space", format!("log {asker}")), "x".into(), TTL, 100_000).await
                {
                    Ok(number) => {
                        kept += 1;
                        assert!(number >= kept, "a line that was kept is gone");
                    }
                    Err(_) => {
                        refused += 1;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                assert!(asked.elapsed() < DEADLINE * 3, "an answer took {:?}", asked.elapsed());
            }
            let page = loop {
                if let Ok(page) = store.read(&Key::new("space", format!("log {asker}")), 0, usize::MAX).await
                {
                    break page;
                }
            };
            // What was answered is there; what was refused may be there too.
            assert!((kept..=kept + refused).contains(&page.newest), "{kept} kept, {} there", page.newest);
            (kept, refused)
        });
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.kill();
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.restart();
    let told = askers.join_all().await;
    assert!(told.iter().all(|(kept, refused)| *kept > 0 && *refused > 0), "{told:?}");
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
async fn addresses_are_understood_or_refused_in_words() {
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
    for (url, wanted) in rows {
        let Err(error) = Target::parse(url) else { panic!("{url} was taken") };
        let error = error.to_string();
        assert!(error.contains(wanted) && !error.contains("hush"), "{url}: {error}");
    }
    // Nobody is there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let begun = Instant::now();
    let error = RedisStore::connect(format!("redis://127.0.0.1:{port}")).await.unwrap_err().to_string();
    assert!(error.contains(&format!("Redis at 127.0.0.1:{port}")), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
}

/// What has expired leaves the index also of a space that nobody lists, and nothing stays behind in the end.
#[tokio::test]
async fn a_space_that_nobody_lists_does_not_grow() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store().await;
    let cellar = ScopedStore::new(Arc::new(store.clone()), "house");
    for number in 0..600 {
        let life = Duration::from_millis(if number < 500 { 20 } else { 1500 });
        assert!(cellar.consume_once(&number.to_string(), life).await.unwrap());
        assert!(!cellar.consume_once("once", TTL).await.unwrap() || number == 0);
        if number == 499 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let mut connection =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let index = "toolgate:{house/nonces}i";
    let held: usize = redis::cmd("ZCARD").arg(index).query_async(&mut connection).await.unwrap();
    assert!(held < 400, "{held} names for 101 entries");
    assert!(store.delete(&cellar.nonce_key("once"), Expect::Anything).await.unwrap());
    let lives: i64 = redis::cmd("PTTL").arg(index).query_async(&mut connection).await.unwrap();
    assert!(lives > 0, "the index ends by itself: {lives}");
    // A space whose entries are all gone leaves nothing but a number that ends by itself.
    let key = Key::new("short", "a");
    store.put(&key, "x".into(), Some(Duration::from_millis(20)), Expect::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("toolgate:{short}*").query_async(&mut connection).await.unwrap();
    assert_eq!(keys, ["toolgate:{short}v"]);
}

/// A Cluster refuses scripts whose keys do not belong together, also where it has one node only.
#[tokio::test(flavor = "multi_thread")]
async fn the_contract_is_kept_in_a_cluster() {
    let Some(server) = RedisServer::start_with(&["--cluster-enabled", "yes"]) else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec_async(&mut connection).await.unwrap();
    let begun = Instant::now();
    loop {
        let told: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.unwrap();
        if told.contains("cluster_state:ok") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{told}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let url = format!("redis-cluster://:{PASSWORD}@127.0.0.1:{}", server.port);
    crate::store::contract::run(move |place| {
        let store = RedisStore::connect(url.clone()).prefix(place).deadline(Duration::from_secs(10));
        async move { store.await.expect("a connection") }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_tell_where_the_master_is() {
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
    let begun = Instant::now();
    let store = loop {
        match RedisStore::connect(&url).await {
            Ok(store) => break Ok(store),
            Err(error) if begun.elapsed() > Duration::from_secs(10) => break Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let kept = async {
        let store = store?;
        let mut listener = store.subscribe("channel").await?;
        store.put(&key("a"), "b".into(), None, Expect::Absent).await?;
        store.publish("channel", "hello".into()).await?;
        let heard = tokio::time::timeout(Duration::from_secs(5), listener.next()).await;
        Ok::<_, StoreError>((store.get(&key("a")).await?.map(|entry| entry.value), heard))
    };
    let kept = kept.await;
    sentinel.kill().unwrap();
    sentinel.wait().unwrap();
    assert_eq!(kept, Ok((Some("b".into()), Ok(Some(ChannelEvent::Message("hello".into()))))));
    let wrong = RedisStore::connect(url.replace("/main", "/other")).await.unwrap_err();
    assert!(!wrong.to_string().contains(PASSWORD), "{wrong}");
}
