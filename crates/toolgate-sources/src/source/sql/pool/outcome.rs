//! How a query ended, and whether its connection can be reused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::Database;
use sqlx::pool::PoolConnection;

use crate::source::sql::Driver;
use crate::source::sql::error::QueryError;
use crate::source::sql::row_collector::{CollectError, RowSet};

/// Counts a query while it holds a connection.
pub(super) struct ActiveQuery<'a>(&'a AtomicUsize);

impl<'a> ActiveQuery<'a> {
    pub(super) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        ActiveQuery(count)
    }
}

impl Drop for ActiveQuery<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a query ended.
pub(super) enum RunOutcome {
    Finished(Result<RowSet, CollectError>),
    /// The caller stopped waiting.
    Cancelled,
    /// The database did not stop it at its timeout.
    TimedOut,
}

impl RunOutcome {
    /// Whether the database may still be executing it.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self, RunOutcome::Cancelled | RunOutcome::TimedOut)
    }

    /// Whether the connection can be reused: no unread rows and no open transaction.
    pub(super) fn is_clean(&self) -> bool {
        match self {
            RunOutcome::Finished(Ok(row_set)) => !row_set.has_unread_rows,
            RunOutcome::Finished(Err(CollectError::Sqlx(error))) => matches!(error, sqlx::Error::Database(_)),
            RunOutcome::Finished(Err(CollectError::Query(error))) => {
                matches!(error, QueryError::InvalidArgument(_))
            }
            RunOutcome::Cancelled | RunOutcome::TimedOut => false,
        }
    }

    pub(super) fn into_result(self, driver: Driver, timeout: Duration) -> Result<RowSet, QueryError> {
        match self {
            RunOutcome::Finished(Ok(row_set)) => Ok(row_set),
            RunOutcome::Finished(Err(CollectError::Query(error))) => Err(error),
            RunOutcome::Finished(Err(CollectError::Sqlx(error))) => {
                Err(QueryError::from_sqlx(driver, error, timeout))
            }
            RunOutcome::Cancelled => Err(QueryError::Cancelled),
            RunOutcome::TimedOut => Err(QueryError::Timeout(timeout)),
        }
    }
}

/// Returns a connection to its pool only if it is clean. Otherwise the connection is closed at once, and unread data
/// is lost.
pub(super) struct PooledConnectionGuard<D: Database>(pub(super) Option<PoolConnection<D>>);

impl<D: Database> PooledConnectionGuard<D> {
    pub(super) fn release(mut self, clean: bool) {
        if clean {
            self.0 = None;
        }
    }
}

impl<D: Database> Drop for PooledConnectionGuard<D> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
