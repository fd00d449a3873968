use super::*;

const TTL: Duration = Duration::from_secs(60);

fn key(name: &str) -> Key {
    Key::new("space", name)
}

#[tokio::test(start_paused = true)]
async fn removed_and_expired_cells_free_their_bytes() {
    let store = MemoryStore::new();
    let value = Bytes::from(vec![7; 1000]);
    for round in 0..50 {
        let name = format!("n{}", round % 7);
        store.put(&key(&name), value.slice(..round * 10), Some(TTL), Expect::Anything).await.unwrap();
        store.append(&key(&name), value.slice(..round * 5), TTL, 3).await.unwrap();
        store.increment(&key(&name), 2, TTL).await.unwrap();
        store.touch(&key(&name), TTL * 2).await.unwrap();
    }
    assert!(store.used_bytes() > 1000);
    for name in 0..3 {
        assert!(store.delete(&key(&format!("n{name}")), Expect::Anything).await.unwrap());
    }
    tokio::time::advance(TTL * 3).await;
    assert!(store.get(&key("n5")).await.unwrap().is_none());
    assert_eq!(store.used_bytes(), 0);
    let shards = store.shards.iter().map(|shard| lock(shard));
    assert!(shards.into_iter().all(|shard| shard.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_full_store_changes_nothing_until_something_expires() {
    let store = MemoryStore::with_limit(4500);
    let kilobyte = Bytes::from(vec![1; 1000]);
    store.put(&key("a"), kilobyte.clone(), None, Expect::Absent).await.unwrap();
    for number in 1..=2 {
        assert_eq!(store.append(&key("log"), kilobyte.clone(), TTL, 9).await, Ok(number));
    }
    let used = store.used_bytes();
    let other_key = Key::new("other space", "b");
    assert_eq!(store.append(&key("log"), kilobyte.clone(), TTL, 9).await, Err(StoreError::Full));
    assert_eq!(store.put(&other_key, kilobyte.clone(), None, Expect::Absent).await, Err(StoreError::Full));
    let double = Bytes::from(vec![1; 2000]);
    assert_eq!(store.put(&key("a"), double, None, Expect::Anything).await, Err(StoreError::Full));
    assert_eq!(store.used_bytes(), used);
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, kilobyte);
    assert_eq!(store.read(&key("log"), 0, 9).await.unwrap().entries.len(), 2, "the log is unchanged");
    tokio::time::advance(TTL * 2).await;
    assert!(store.put(&other_key, kilobyte, None, Expect::Absent).await.unwrap().is_some());
}

#[tokio::test]
async fn the_longest_ttl_does_not_overflow() {
    let store = MemoryStore::new();
    store.put(&key("a"), "a".into(), Some(Duration::MAX), Expect::Absent).await.unwrap();
    assert!(store.touch(&key("a"), Duration::MAX).await.unwrap());
    store.append(&key("a"), "a".into(), Duration::MAX, 1).await.unwrap();
    store.increment(&key("a"), u64::MAX, Duration::MAX).await.unwrap();
    assert_eq!(store.increment(&key("a"), 1, Duration::MAX).await, Ok(u64::MAX));
    assert!(store.get(&key("a")).await.unwrap().is_some());
}

#[tokio::test]
async fn the_limit_holds_under_concurrent_writers() {
    let store = Arc::new(MemoryStore::with_limit(100_000));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = Arc::clone(&store);
        writers.spawn_blocking(move || {
            for number in 0..200 {
                let key = Key::new(format!("space {writer}"), format!("{number}"));
                let _ = store.put_now(&key, Bytes::from(vec![0; 500]), None, Expect::Anything);
                assert!(store.used_bytes() <= 100_000);
            }
        });
    }
    while let Some(result) = writers.join_next().await {
        result.unwrap();
    }
    assert!(store.used_bytes() > 90_000);
}
