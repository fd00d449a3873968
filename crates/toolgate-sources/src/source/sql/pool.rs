//! The connection pools of a database.
//!
//! Connections are opened when the first query needs one. A database that is down therefore does not prevent the
//! start of the program, and is used again when it comes back. A query runs in its own task: if the caller stops
//! waiting, the task still cancels the query on the server. Waiting is bounded by a queue and by a timeout.

mod outcome;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlPool};
use sqlx::pool::{PoolConnection, PoolOptions};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgPool};
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqlitePool;
use sqlx::{Connection as _, Database, Pool};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::QueryError;
#[cfg(feature = "mysql")]
use super::mysql::{self, Flavor};
#[cfg(feature = "postgres")]
use super::postgres;
use super::query_job::{PlanCache, QueryJob};
use super::row_collector::{CollectError, RowSet};
#[cfg(feature = "sqlite")]
use super::sqlite;
use super::statement::{AccessMode, Statement};
use super::value::ColumnType;
use super::{Driver, SqlPoolSpec};
use crate::source::Problem;
use crate::source::call_observer::CallObserver;
use outcome::{ActiveQuery, PooledConnectionGuard, RunOutcome};

/// How long cancelling a query on the server may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

enum Pools {
    #[cfg(feature = "sqlite")]
    Sqlite { read: SqlitePool, write: Option<SqlitePool> },
    #[cfg(feature = "postgres")]
    Postgres { read: PgPool, write: Option<PgPool>, options: Box<PgConnectOptions> },
    #[cfg(feature = "mysql")]
    MySql {
        read: MySqlPool,
        write: Option<MySqlPool>,
        options: Box<MySqlConnectOptions>,
        flavor: Arc<OnceLock<Flavor>>,
    },
}

/// Usage of the connections of a database.
#[derive(Clone, Copy, Debug)]
pub struct PoolStats {
    pub max: usize,
    pub open: usize,
    pub idle: usize,
    /// Queries that hold a connection.
    pub in_use: usize,
    /// Queries that wait for a connection.
    pub waiting: usize,
    /// How long a query waits at most.
    pub acquire_timeout: Duration,
    pub read_only: bool,
    pub is_closed: bool,
}

/// The connection pools of one database, shared by its tools.
pub struct SqlPool {
    pub(super) name: String,
    pub(super) driver: Driver,
    pub(super) read_only: bool,
    max_connections: usize,
    acquire_timeout: Duration,
    pools: Pools,
    /// Permits for queries that run or wait. If none is left, a query is rejected at once.
    permits: Arc<Semaphore>,
    n_permits: usize,
    n_active: AtomicUsize,
    tasks: TaskTracker,
    observer: Option<Arc<dyn CallObserver>>,
}

impl SqlPool {
    /// Creates the pools without connecting.
    pub fn new(spec: SqlPoolSpec) -> Result<Arc<SqlPool>, Vec<Problem>> {
        SqlPool::open(spec, None)
    }

    /// Creates the pools without connecting, and reports every statement to an observer.
    pub fn observed(
        spec: SqlPoolSpec,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Arc<SqlPool>, Vec<Problem>> {
        SqlPool::open(spec, Some(observer))
    }

    fn open(
        spec: SqlPoolSpec,
        observer: Option<Arc<dyn CallObserver>>,
    ) -> Result<Arc<SqlPool>, Vec<Problem>> {
        let key = spec.driver.key();
        let problem = |at: &str, message: String| vec![Problem { path: at.to_owned(), message }];
        if spec.max_connections == 0 {
            return Err(problem("pool.max", "at least one connection is needed".to_owned()));
        }
        let invalid_url = |message| problem(key, message);
        let pools = match spec.driver {
            #[cfg(feature = "sqlite")]
            Driver::Sqlite => {
                let options = sqlite::parse_options(&spec.url).map_err(invalid_url)?;
                let pool =
                    |access| sqlite::pool(pool_options(&spec), options.clone(), access, spec.acquire_timeout);
                Pools::Sqlite {
                    read: pool(AccessMode::Read),
                    write: (!spec.read_only).then(|| pool(AccessMode::Write)),
                }
            }
            #[cfg(feature = "postgres")]
            Driver::Postgres => {
                let options = postgres::parse_options(&spec.url).map_err(invalid_url)?;
                let pool = |access| postgres::pool(pool_options(&spec), options.clone(), access);
                let (read, write) =
                    (pool(AccessMode::Read), (!spec.read_only).then(|| pool(AccessMode::Write)));
                Pools::Postgres { read, write, options: Box::new(options) }
            }
            #[cfg(feature = "mysql")]
            Driver::MySql => {
                let options = mysql::parse_options(&spec.url).map_err(invalid_url)?;
                let flavor = Arc::default();
                let pool = |access| mysql::pool(pool_options(&spec), options.clone(), access, &flavor);
                let (read, write) =
                    (pool(AccessMode::Read), (!spec.read_only).then(|| pool(AccessMode::Write)));
                Pools::MySql { read, write, options: Box::new(options), flavor }
            }
            #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
            _ => return Err(invalid_url(format!("the feature `{key}` of toolgate-sources is not enabled"))),
        };
        let max = usize::try_from(spec.max_connections).unwrap_or(1);
        Ok(Arc::new(SqlPool {
            name: spec.name,
            driver: spec.driver,
            read_only: spec.read_only,
            max_connections: max,
            acquire_timeout: spec.acquire_timeout,
            pools,
            permits: Arc::new(Semaphore::new(max + spec.max_queued)),
            n_permits: max + spec.max_queued,
            n_active: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            observer,
        }))
    }

    /// The observer, if it records calls at the moment.
    pub(super) fn observer(&self) -> Option<&dyn CallObserver> {
        self.observer.as_deref().filter(|observer| observer.is_enabled())
    }

    /// Whether the database rejects writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the current usage of the connections.
    pub fn stats(&self) -> PoolStats {
        let (open, idle, is_closed) = match &self.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
            #[cfg(feature = "postgres")]
            Pools::Postgres { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
            #[cfg(feature = "mysql")]
            Pools::MySql { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
        };
        let open = usize::try_from(open).unwrap_or(usize::MAX);
        let n_active = self.n_active.load(Ordering::Relaxed);
        let n_in_flight = self.n_permits - self.permits.available_permits().min(self.n_permits);
        PoolStats {
            max: self.max_connections,
            open,
            idle,
            in_use: n_active,
            waiting: n_in_flight.saturating_sub(n_active),
            acquire_timeout: self.acquire_timeout,
            read_only: self.read_only,
            is_closed,
        }
    }

    /// Tests the connection. The error includes advice.
    pub async fn ping(&self) -> Result<(), String> {
        let attempt = async {
            match &self.pools {
                #[cfg(feature = "sqlite")]
                Pools::Sqlite { read, .. } => read.acquire().await?.ping().await,
                #[cfg(feature = "postgres")]
                Pools::Postgres { read, .. } => read.acquire().await?.ping().await,
                #[cfg(feature = "mysql")]
                Pools::MySql { read, .. } => read.acquire().await?.ping().await,
            }
        };
        let error = match attempt.await {
            Ok(()) => return Ok(()),
            Err(sqlx::Error::PoolTimedOut) => format!("no connection within {:?}", self.acquire_timeout),
            Err(error) => error.to_string(),
        };
        let advice = match self.driver {
            Driver::Sqlite => "is the path right, and may this user read the file and its directory?",
            Driver::Postgres => {
                "is the server running, and are host, port, user, password and database right?"
            }
            Driver::MySql => "is the server running, and are host, port, user, password and database right?",
        };
        Err(format!("connection {}: {error}; {advice}", self.name))
    }

    /// Closes all connections after the running queries have ended.
    pub async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        match &self.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { read, write } => close_pools(read, write.as_ref()).await,
            #[cfg(feature = "postgres")]
            Pools::Postgres { read, write, .. } => close_pools(read, write.as_ref()).await,
            #[cfg(feature = "mysql")]
            Pools::MySql { read, write, .. } => close_pools(read, write.as_ref()).await,
        }
    }

    /// Returns the columns of a statement: name, type, and whether it may be NULL.
    pub(super) async fn describe(
        &self,
        statement: &Statement,
        plans: &PlanCache,
        access: AccessMode,
    ) -> Result<Vec<(String, ColumnType, bool)>, String> {
        // A server may reject describing a writing statement on a read-only connection.
        let columns = async {
            match &self.pools {
                #[cfg(feature = "sqlite")]
                Pools::Sqlite { read, write } => {
                    let pool = pool_for_access(read, write.as_ref(), access);
                    sqlite::describe(&mut *pool.acquire().await?, statement).await
                }
                #[cfg(feature = "postgres")]
                Pools::Postgres { read, write, .. } => {
                    let pool = pool_for_access(read, write.as_ref(), access);
                    postgres::describe(&mut *pool.acquire().await?, statement, |name| plans.type_hint(name))
                        .await
                }
                #[cfg(feature = "mysql")]
                Pools::MySql { read, write, .. } => {
                    let pool = pool_for_access(read, write.as_ref(), access);
                    mysql::describe(&mut *pool.acquire().await?, statement).await
                }
            }
        };
        columns.await.map_err(|error| error.to_string())
    }

    /// Runs a query.
    ///
    /// Cancel safe: yes, because the task cancels the query when this future is dropped.
    pub(super) async fn run(self: &Arc<Self>, job: QueryJob) -> Result<RowSet, QueryError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| QueryError::Busy)?;
        let stop = CancellationToken::new();
        let _cancel_on_drop = stop.clone().drop_guard();
        let connection = Arc::clone(self);
        let task = self.tasks.spawn(async move {
            let _permit = permit;
            connection.execute(&job, &stop).await
        });
        // The task is never aborted, so it panicked or the runtime is shutting down.
        task.await.unwrap_or_else(|error| Err(QueryError::Database(error.to_string())))
    }

    async fn execute(&self, job: &QueryJob, stop: &CancellationToken) -> Result<RowSet, QueryError> {
        match &self.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { read, write } => {
                let mut connection =
                    self.acquire(pool_for_job(read, write.as_ref(), job)?, job, stop).await?;
                let stop_requested = Arc::new(AtomicBool::new(false));
                let outcome = self
                    .run_until_deadline(job, stop, sqlite::run(&mut connection, job, &stop_requested))
                    .await;
                stop_requested.store(true, Ordering::Relaxed);
                outcome.into_result(self.driver, job.timeout)
            }
            #[cfg(feature = "postgres")]
            Pools::Postgres { read, write, options } => {
                let connection = self.acquire(pool_for_job(read, write.as_ref(), job)?, job, stop).await?;
                let process = AtomicU64::new(0);
                let mut guard = PooledConnectionGuard(Some(connection));
                let Some(connection) = guard.0.as_mut() else { return Err(QueryError::Cancelled) };
                let outcome =
                    self.run_until_deadline(job, stop, postgres::run(connection, job, &process)).await;
                if outcome.is_unfinished() {
                    self.cancel_query(process.into_inner(), |process| postgres::kill(options, process)).await;
                }
                guard.release(outcome.is_clean());
                outcome.into_result(self.driver, job.timeout)
            }
            #[cfg(feature = "mysql")]
            Pools::MySql { read, write, options, flavor } => {
                let connection = self.acquire(pool_for_job(read, write.as_ref(), job)?, job, stop).await?;
                let thread = AtomicU64::new(0);
                let mut guard = PooledConnectionGuard(Some(connection));
                let Some(connection) = guard.0.as_mut() else { return Err(QueryError::Cancelled) };
                let flavor = mysql::flavor_or_default(flavor);
                let outcome =
                    self.run_until_deadline(job, stop, mysql::run(connection, job, flavor, &thread)).await;
                if outcome.is_unfinished() {
                    self.cancel_query(thread.into_inner(), |thread| mysql::kill(options, thread)).await;
                }
                // A client's statement can leave variables and locks in its session, which later queries must not
                // see.
                guard.release(outcome.is_clean() && !job.is_client_statement);
                outcome.into_result(self.driver, job.timeout)
            }
        }
    }

    async fn acquire<D: Database>(
        &self,
        pool: &Pool<D>,
        job: &QueryJob,
        stop: &CancellationToken,
    ) -> Result<PoolConnection<D>, QueryError> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(QueryError::Cancelled),
            acquired = pool.acquire() => match acquired {
                Ok(connection) => Ok(connection),
                // sqlx reports the same error for an unreachable server and for a pool that is fully in use.
                Err(sqlx::Error::PoolTimedOut) if self.n_active.load(Ordering::Relaxed) < self.max_connections => {
                    Err(QueryError::Unreachable(format!("no connection within {:?}", self.acquire_timeout)))
                }
                Err(error) => Err(QueryError::from_sqlx(self.driver, error, job.timeout)),
            },
        }
    }

    /// Runs a query until it ends, is cancelled, or exceeds its timeout without the database stopping it.
    async fn run_until_deadline(
        &self,
        job: &QueryJob,
        stop: &CancellationToken,
        query: impl Future<Output = Result<RowSet, CollectError>>,
    ) -> RunOutcome {
        let _active = ActiveQuery::new(&self.n_active);
        let deadline = match self.driver {
            // SQLite has no timeout of its own.
            Driver::Sqlite => job.timeout,
            _ => job.timeout + Duration::from_millis(500),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => RunOutcome::Cancelled,
            outcome = query => RunOutcome::Finished(outcome),
            () = tokio::time::sleep(deadline) => RunOutcome::TimedOut,
        }
    }

    async fn cancel_query<F>(&self, id: u64, kill: impl FnOnce(u64) -> F)
    where
        F: Future<Output = Result<(), sqlx::Error>>,
    {
        if id == 0 {
            return;
        }
        match tokio::time::timeout(CANCEL_TIMEOUT, kill(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(connection = self.name, error = ?error.to_string(), "cannot cancel a query");
            }
            Err(_) => tracing::warn!(connection = self.name, "cancelling a query timed out"),
        }
    }
}

fn pool_options<D: Database>(spec: &SqlPoolSpec) -> PoolOptions<D> {
    PoolOptions::new()
        .max_connections(spec.max_connections)
        .idle_timeout(spec.idle_timeout)
        .acquire_timeout(spec.acquire_timeout)
        .test_before_acquire(true)
}

/// Writing statements use the writable pool, all others the read-only one.
fn pool_for_job<'a, D: Database>(
    read: &'a Pool<D>,
    write: Option<&'a Pool<D>>,
    job: &QueryJob,
) -> Result<&'a Pool<D>, QueryError> {
    match job.access {
        AccessMode::Read => Ok(read),
        AccessMode::Write => write.ok_or(QueryError::ReadOnly),
    }
}

fn pool_for_access<'a, D: Database>(
    read: &'a Pool<D>,
    write: Option<&'a Pool<D>>,
    access: AccessMode,
) -> &'a Pool<D> {
    write.filter(|_| access == AccessMode::Write).unwrap_or(read)
}

async fn close_pools<D: Database>(read: &Pool<D>, write: Option<&Pool<D>>) {
    read.close().await;
    if let Some(write) = write {
        write.close().await;
    }
}
