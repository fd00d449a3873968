//! What outlives a call, and where it is kept. It outlives a change of the configuration too.

use toolgate::Builder;
use toolgate::store::{RedbStore, RedisStore, StoreError};

use super::upstreams::block_on;
use crate::config::Storage;

/// An open store.
#[derive(Clone)]
pub(super) enum OpenStore {
    File(RedbStore),
    Redis(RedisStore),
}

impl OpenStore {
    /// None for the memory, which needs nothing. Blocks; see `compose`.
    pub(super) fn open(storage: &Storage) -> Result<Option<OpenStore>, String> {
        block_on(OpenStore::open_async(storage))
    }

    async fn open_async(storage: &Storage) -> Result<Option<OpenStore>, String> {
        match storage {
            Storage::Memory => Ok(None),
            Storage::File(path) => RedbStore::open(path)
                .await
                .map(|store| Some(OpenStore::File(store)))
                .map_err(|error| store_error_message(&error)),
            Storage::Redis { url, prefix } => {
                let connecting = RedisStore::connect(url).prefix(prefix).await;
                connecting.map(|store| Some(OpenStore::Redis(store))).map_err(|error| {
                    format!(
                        "{}; start it, or keep everything in memory (`default = \"memory:\"`)",
                        store_error_message(&error)
                    )
                })
            }
        }
    }

    pub(super) fn attach_to(&self, builder: Builder) -> Builder {
        match self {
            OpenStore::File(store) => builder.store(store.clone()),
            OpenStore::Redis(store) => builder.store(store.clone()),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            OpenStore::File(store) => store.close().await,
            OpenStore::Redis(_) => {}
        }
    }
}

/// Whether things could be kept there. What is there already is left as it was.
pub(super) async fn probe(storage: &Storage) -> StoreProbe {
    let is_new = matches!(storage, Storage::File(path) if !path.exists());
    let opened = OpenStore::open_async(storage).await;
    if let Ok(Some(kept)) = &opened {
        kept.close().await;
    }
    if let (Storage::File(path), true) = (storage, is_new) {
        let _ = std::fs::remove_file(path);
    }
    match (opened, storage) {
        (Ok(_), _) => StoreProbe::Available,
        // Whoever has it may well be the program that serves this file.
        (Err(said), Storage::File(path)) if said.contains("in use by another process") => {
            StoreProbe::InUse(format!("{} is in use by another process", path.display()))
        }
        (Err(said), _) => StoreProbe::Unavailable(said),
    }
}

/// What looking gave.
pub(super) enum StoreProbe {
    Available,
    InUse(String),
    Unavailable(String),
}

fn store_error_message(error: &StoreError) -> String {
    let said = error.to_string();
    said.strip_prefix("the store cannot be reached: ").map_or(said.clone(), str::to_owned)
}
