//! What outlives a call, and where it is kept. It outlives a change of the configuration too.

use toolgate::Builder;
use toolgate::store::{RedbStore, RedisStore, StoreError};

use super::backends::wait;
use crate::config::Storage;

/// An open store.
#[derive(Clone)]
pub(super) enum Kept {
    File(RedbStore),
    Redis(RedisStore),
}

impl Kept {
    /// None for the memory, which needs nothing. Blocks; see `compose`.
    pub(super) fn open(storage: &Storage) -> Result<Option<Kept>, String> {
        wait(Kept::opened(storage))
    }

    async fn opened(storage: &Storage) -> Result<Option<Kept>, String> {
        match storage {
            Storage::Memory => Ok(None),
            Storage::File(path) => {
                RedbStore::open(path).await.map(|store| Some(Kept::File(store))).map_err(|error| told(&error))
            }
            Storage::Redis { url, prefix } => {
                let connecting = RedisStore::connect(url).prefix(prefix).await;
                connecting.map(|store| Some(Kept::Redis(store))).map_err(|error| {
                    format!(
                        "{}; start it, or keep everything in memory (`default = \"memory:\"`)",
                        told(&error)
                    )
                })
            }
        }
    }

    pub(super) fn give(&self, builder: Builder) -> Builder {
        match self {
            Kept::File(store) => builder.store(store.clone()),
            Kept::Redis(store) => builder.store(store.clone()),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Kept::File(store) => store.close().await,
            Kept::Redis(_) => {}
        }
    }
}

/// Whether things could be kept there. What is there already is left as it was.
pub(super) async fn probe(storage: &Storage) -> Probed {
    let is_new = matches!(storage, Storage::File(path) if !path.exists());
    let opened = Kept::opened(storage).await;
    if let Ok(Some(kept)) = &opened {
        kept.close().await;
    }
    if let (Storage::File(path), true) = (storage, is_new) {
        let _ = std::fs::remove_file(path);
    }
    match (opened, storage) {
        (Ok(_), _) => Probed::There,
        // Whoever has it may well be the program that serves this file.
        (Err(said), Storage::File(path)) if said.contains("in use by another process") => {
            Probed::Held(format!("{} is in use by another process", path.display()))
        }
        (Err(said), _) => Probed::Missing(said),
    }
}

/// What looking gave.
pub(super) enum Probed {
    There,
    Held(String),
    Missing(String),
}

fn told(error: &StoreError) -> String {
    let said = error.to_string();
    said.strip_prefix("the store cannot be reached: ").map_or(said.clone(), str::to_owned)
}
