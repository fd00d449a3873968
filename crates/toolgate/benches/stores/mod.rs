//! Every store that there is, one after the other, for what measures them.

use std::sync::Arc;

use toolgate::store::{MemoryStore, Store};

/// Measures each store. Redis is measured where `TOOLGATE_TEST_REDIS` says that one is.
pub(crate) async fn each(name: &str, measure: impl AsyncFn(&'static str, Arc<dyn Store>)) {
    let place = format!("toolgate-{name}-{}", std::process::id());
    measure("memory", Arc::new(MemoryStore::new())).await;
    #[cfg(feature = "redb")]
    {
        let path = std::env::temp_dir().join(format!("{place}.redb"));
        let store = toolgate::store::RedbStore::open(&path).await.unwrap();
        measure("redb", Arc::new(store.clone())).await;
        store.close().await;
        std::fs::remove_file(path).unwrap();
    }
    #[cfg(feature = "redis")]
    match std::env::var("TOOLGATE_TEST_REDIS") {
        Ok(url) => {
            let store = toolgate::store::RedisStore::connect(url).prefix(format!("{place}:")).await.unwrap();
            measure("redis", Arc::new(store)).await;
        }
        Err(_) => println!("redis    TOOLGATE_TEST_REDIS is not set"),
    }
    #[cfg(not(any(feature = "redb", feature = "redis")))]
    let _ = place;
}
