//! Keeping sessions alive in the store.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::replica::SessionReplica;
use super::{ClusterSessions, MAX_UPDATE_ATTEMPTS, session_ttl};
use crate::cluster_bus::{retry_delay, sleep_or_cancelled, with_store_timeout};
use crate::protocol::session::Session;
use crate::request::Principal;

impl ClusterSessions {
    /// Extends the TTL of a session in the store, in the background, at most eight times per idle timeout.
    pub(super) fn schedule_touch(self: &Arc<Self>, session: &Arc<Session>) {
        let Some(replica) = &session.replica else { return };
        if !replica.is_touch_due(self.clock.uptime(), session.limits.idle_timeout / 8) {
            return;
        }
        // If many touches are running, the next message tries again, unless the record would expire before.
        if self.touch_permits.available_permits() == 0 && !replica.is_unused() {
            return;
        }
        let before = replica.mark_touched(self.clock.uptime());
        let (cluster, permits) = (Arc::downgrade(self), Arc::clone(&self.touch_permits));
        let (session, shutdown) = (Arc::clone(session), self.shutdown.clone());
        self.tracker.spawn(async move {
            for _ in 0..MAX_UPDATE_ATTEMPTS {
                let Ok(permit) = permits.acquire().await else { return };
                let Some(cluster) = cluster.upgrade() else { return };
                if cluster.touch(&session).await {
                    return;
                }
                drop((cluster, permit));
                if session.closed.is_cancelled() || sleep_or_cancelled(retry_delay(), &shutdown).await {
                    return;
                }
            }
            // The next message tries again.
            session.replica.as_deref().inspect(|replica| replica.undo_touch(before));
        });
    }

    /// Extends the TTL of a session in the store. Returns false if the store failed.
    async fn touch(&self, session: &Session) -> bool {
        let key = self.record_key(&session.id);
        match with_store_timeout(self.bus.scoped_store.backend.touch(&key, session_ttl(&session.limits)))
            .await
        {
            Ok(true) => {}
            // A session that has ended in the store has ended everywhere.
            Ok(false) => self.sessions.close(session),
            Err(error) => {
                tracing::debug!(%error, "the life of a session in the store could not be prolonged");
                return false;
            }
        }
        true
    }

    /// Extends the TTL of active sessions whose clients send nothing, and reloads them when messages of other nodes may have
    /// been missed.
    pub(super) async fn keep_sessions_alive(
        cluster: Weak<ClusterSessions>,
        idle_timeout: Duration,
        shutdown: CancellationToken,
    ) {
        let interval = (idle_timeout / 8).clamp(Duration::from_millis(100), Duration::from_secs(60));
        let mut epoch = 0;
        loop {
            let Some(this) = cluster.upgrade() else { return };
            let now = this.epoch.load(Ordering::Relaxed);
            let is_stale = std::mem::replace(&mut epoch, now) != now;
            for session in this.sessions.active() {
                if is_stale && this.load_session(&session.id, &Principal::anonymous()).await.is_err() {
                    // The store failed again: the sessions stay stale.
                    epoch = now.wrapping_sub(1);
                }
                let is_due =
                    |replica: &&SessionReplica| replica.is_touch_due(this.clock.uptime(), idle_timeout / 8);
                if let Some(replica) = session.replica.as_deref().filter(is_due) {
                    let before = replica.mark_touched(this.clock.uptime());
                    if !this.touch(&session).await {
                        replica.undo_touch(before);
                    }
                }
            }
            let lagged = Arc::clone(&this.lagged);
            drop(this);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = lagged.notified() => {}
                () = tokio::time::sleep(interval) => {}
            }
        }
    }
}
