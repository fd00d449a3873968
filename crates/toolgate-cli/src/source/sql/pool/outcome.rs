//! How a query ended, and whether its connection can be reused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::Database;
use sqlx::pool::PoolConnection;

use crate::source::sql::Driver;
use crate::source::sql::error::QueryError;
use crate::source::sql::row_collector::{CollectError, RowSet};

/// Counts a query while it has a connection.
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

/// How a query came to its end.
pub(super) enum RunOutcome {
    Finished(Result<RowSet, CollectError>),
    /// Nobody waits any more.
    Cancelled,
    /// The database did not keep its time.
    TimedOut,
}

impl RunOutcome {
    /// The database may still work on it.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self, RunOutcome::Cancelled | RunOutcome::TimedOut)
    }

    /// The connection can be used again: nothing is left in it, and no transaction is open.
    pub(super) fn is_clean(&self) -> bool {
        match self {
            RunOutcome::Finished(Ok(found)) => !found.has_unread_rows,
            RunOutcome::Finished(Err(CollectError::Sqlx(error))) => matches!(error, sqlx::Error::Database(_)),
            RunOutcome::Finished(Err(CollectError::Query(failure))) => {
                matches!(failure, QueryError::InvalidArgument(_))
            }
            RunOutcome::Cancelled | RunOutcome::TimedOut => false,
        }
    }

    pub(super) fn into_result(self, driver: Driver, timeout: Duration) -> Result<RowSet, QueryError> {
        match self {
            RunOutcome::Finished(Ok(found)) => Ok(found),
            RunOutcome::Finished(Err(CollectError::Query(failure))) => Err(failure),
            RunOutcome::Finished(Err(CollectError::Sqlx(error))) => {
                Err(QueryError::from_sqlx(driver, error, timeout))
            }
            RunOutcome::Cancelled => Err(QueryError::Cancelled),
            RunOutcome::TimedOut => Err(QueryError::Timeout(timeout)),
        }
    }
}

/// A connection that goes back to its pool only if it is said to be clean; otherwise it is closed at once, and what
/// the server wanted to say on it is lost.
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
