//! Runs a benchmark for every store.

use std::sync::Arc;

use toolgate::store::{MemoryStore, Store};

/// Calls `measure` with each store in turn. Redis is measured if `TOOLGATE_TEST_REDIS` is set to its URL.
pub(crate) async fn each(name: &str, measure: impl AsyncFn(&'static str, Arc<dyn Store>)) {
    let unique_name = format!("toolgate-{name}-{}", std::process::id());
    measure("memory", Arc::new(MemoryStore::new())).await;
    #[cfg(feature = "redb")]
    {
        let path = std::env::temp_dir().join(format!("{unique_name}.redb"));
        let store = toolgate::store::RedbStore::open(&path).await.unwrap();
        measure("redb", Arc::new(store.clone())).await;
        store.close().await;
        std::fs::remove_file(path).unwrap();
    }
    #[cfg(feature = "redis")]
    match std::env::var("TOOLGATE_TEST_REDIS") {
        Ok(url) => {
            let store =
                toolgate::store::RedisStore::connect(url).prefix(format!("{unique_name}:")).await.unwrap();
            measure("redis", Arc::new(store)).await;
        }
        Err(_) => println!("redis    TOOLGATE_TEST_REDIS is not set"),
    }
    #[cfg(not(any(feature = "redb", feature = "redis")))]
    let _ = unique_name;
}
