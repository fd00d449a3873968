//! Opens the store of a configuration. It stays open across reloads.

use toolgate::Builder;
use toolgate::store::{RedbStore, RedisStore, StoreError};

use super::upstreams::block_on;
use crate::config::{self, Storage};

/// An open store.
#[derive(Clone)]
pub(super) enum OpenStore {
    File(RedbStore),
    Redis(RedisStore),
}

impl OpenStore {
    /// Opens the store of a configuration; `None` for memory. Blocks; see [`super::build_servers`].
    pub(super) fn open(storage: &Storage) -> Result<Option<OpenStore>, String> {
        block_on(OpenStore::open_async(storage)).map_err(|error| open_error_message(storage, &error))
    }

    async fn open_async(storage: &Storage) -> Result<Option<OpenStore>, StoreError> {
        match storage {
            Storage::Memory => Ok(None),
            Storage::File(path) => Ok(Some(OpenStore::File(RedbStore::open(path).await?))),
            Storage::Redis { url, prefix } => {
                Ok(Some(OpenStore::Redis(RedisStore::connect(url).prefix(prefix).await?)))
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

/// Checks whether the store can be opened. A store file that did not exist before is removed again.
pub(super) async fn probe(storage: &Storage) -> StoreProbe {
    let is_new = matches!(storage, Storage::File(path) if !path.exists());
    let opened = OpenStore::open_async(storage).await;
    if let Ok(Some(store)) = &opened {
        store.close().await;
    }
    if let (Storage::File(path), true) = (storage, is_new) {
        let _ = std::fs::remove_file(path);
    }
    match (opened, storage) {
        (Ok(_), _) => StoreProbe::Available,
        // That process may well be the one that serves this configuration.
        (Err(StoreError::InUse(_)), Storage::File(path)) => {
            StoreProbe::InUse(format!("{} is in use by another process", path.display()))
        }
        (Err(error), _) => StoreProbe::Unavailable(open_error_message(storage, &error)),
    }
}

/// The result of [`probe`].
pub(super) enum StoreProbe {
    Available,
    InUse(String),
    Unavailable(String),
}

fn open_error_message(storage: &Storage, error: &StoreError) -> String {
    let message = config::store_error_message(error);
    match storage {
        Storage::Redis { .. } => {
            format!("{message}; start Redis, or use memory: `default = \"memory:\"`")
        }
        Storage::Memory | Storage::File(_) => message,
    }
}
