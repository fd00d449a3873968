//! The state that handlers keep in a shared session: a part of its record, so that it expires and ends with it.

use std::sync::atomic::{AtomicBool, Ordering};

use toolgate_wire::{ProtocolError, RawJson};

use super::record::SessionRecord;
use super::{SessionReplica, record_key, store_unavailable, update_record};
use crate::cluster_bus::with_store_timeout;
use crate::protocol::session::{Session, session_not_found, set_value};

impl SessionReplica {
    /// Returns a value of the state. The store is asked each time, because another node may have changed it.
    pub(in crate::protocol) async fn state_value(
        &self,
        session: &Session,
        key: &str,
    ) -> Result<Option<RawJson>, ProtocolError> {
        let record_key = record_key(&self.bus, &session.id);
        let found = with_store_timeout(self.bus.scoped_store.backend.get(&record_key))
            .await
            .map_err(store_unavailable)?
            .ok_or_else(session_not_found)?;
        let mut record = SessionRecord::decode(&found.value).ok_or_else(session_not_found)?;
        Ok(record.state.remove(key))
    }

    /// Sets or removes a value of the state. Returns whether there was one before.
    pub(in crate::protocol) async fn set_state_value(
        &self,
        session: &Session,
        key: &str,
        value: Option<&RawJson>,
    ) -> Result<bool, ProtocolError> {
        let existed = AtomicBool::new(false);
        let change = |record: &mut SessionRecord| {
            existed.store(set_value(&mut record.state, key, value)?, Ordering::Relaxed);
            Ok(())
        };
        update_record(&self.bus, session, &change).await?;
        Ok(existed.load(Ordering::Relaxed))
    }
}
