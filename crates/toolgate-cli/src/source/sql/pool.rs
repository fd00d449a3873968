//! A database and the connections to it.
//!
//! Connections are made when the first query wants one, so a database that is down does not keep the program from
//! starting, and one that comes back is used again. A query runs in a task of its own: whoever asked may leave, and
//! the task still sees to it that the database stops working on it. Waiting is bounded twice, by a queue and by time.

mod outcome;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPool};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::SqlitePool;
use sqlx::{Connection as _, Database, Pool};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::QueryError;
use super::mysql::{self, Flavor};
use super::postgres;
use super::query_job::{PlanCache, QueryJob};
use super::row_collector::{CollectError, RowSet};
use super::statement::{AccessMode, Statement};
use super::value::ColumnType;
use super::{Driver, SqlPoolSpec, sqlite};
use crate::source::Problem;
use outcome::{ActiveQuery, PooledConnectionGuard, RunOutcome};

/// How long the end of a query may take, once nobody waits for it any more.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

enum Pools {
    Sqlite {
        read: SqlitePool,
        write: Option<SqlitePool>,
    },
    Postgres {
        read: PgPool,
        write: Option<PgPool>,
        options: Box<PgConnectOptions>,
    },
    MySql {
        read: MySqlPool,
        write: Option<MySqlPool>,
        options: Box<MySqlConnectOptions>,
        flavor: Arc<OnceLock<Flavor>>,
    },
}

/// How the connections of a database are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolStats {
    pub(crate) max: usize,
    pub(crate) open: usize,
    pub(crate) idle: usize,
    /// Queries that have a connection.
    pub(crate) in_use: usize,
    /// Those that wait for one.
    pub(crate) waiting: usize,
    /// How long they wait.
    pub(crate) acquire_timeout: Duration,
    pub(crate) read_only: bool,
    pub(crate) is_closed: bool,
}

/// A database that tools share.
pub(crate) struct SqlPool {
    pub(super) name: String,
    pub(super) driver: Driver,
    pub(super) read_only: bool,
    max_connections: usize,
    acquire_timeout: Duration,
    pools: Pools,
    /// Places for queries that run or wait. When there is none, a query is refused at once.
    permits: Arc<Semaphore>,
    n_permits: usize,
    n_active: AtomicUsize,
    tasks: TaskTracker,
}

impl SqlPool {
    /// Describes the connection; nothing is connected yet.
    pub(crate) fn new(spec: SqlPoolSpec) -> Result<Arc<SqlPool>, Vec<Problem>> {
        let key = spec.driver.key();
        let problem = |at: &str, message: String| vec![Problem { path: at.to_owned(), message }];
        if spec.max_connections == 0 {
            return Err(problem("pool.max", "at least one connection is needed".to_owned()));
        }
        let misread = |said| problem(key, said);
        let pools = match spec.driver {
            Driver::Sqlite => {
                let options = sqlite::parse_options(&spec.url).map_err(misread)?;
                let pool =
                    |may| sqlite::pool(pool_options(&spec), options.clone(), may, spec.acquire_timeout);
                Pools::Sqlite {
                    read: pool(AccessMode::Read),
                    write: (!spec.read_only).then(|| pool(AccessMode::Write)),
                }
            }
            Driver::Postgres => {
                let options = postgres::parse_options(&spec.url).map_err(misread)?;
                let pool = |may| postgres::pool(pool_options(&spec), options.clone(), may);
                let (read, write) =
                    (pool(AccessMode::Read), (!spec.read_only).then(|| pool(AccessMode::Write)));
                Pools::Postgres { read, write, options: Box::new(options) }
            }
            Driver::MySql => {
                let options = mysql::parse_options(&spec.url).map_err(misread)?;
                let flavor = Arc::default();
                let pool = |may| mysql::pool(pool_options(&spec), options.clone(), may, &flavor);
                let (read, write) =
                    (pool(AccessMode::Read), (!spec.read_only).then(|| pool(AccessMode::Write)));
                Pools::MySql { read, write, options: Box::new(options), flavor }
            }
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
        }))
    }

    /// How its connections are used.
    pub(crate) fn stats(&self) -> PoolStats {
        let (open, idle, is_closed) = match &self.pools {
            Pools::Sqlite { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
            Pools::Postgres { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
            Pools::MySql { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
        };
        let open = usize::try_from(open).unwrap_or(usize::MAX);
        let working = self.n_active.load(Ordering::Relaxed);
        let under_way = self.n_permits - self.permits.available_permits().min(self.n_permits);
        PoolStats {
            max: self.max_connections,
            open,
            idle,
            in_use: working,
            waiting: under_way.saturating_sub(working),
            acquire_timeout: self.acquire_timeout,
            read_only: self.read_only,
            is_closed,
        }
    }

    /// Tries the database, and says what to do if it does not answer.
    pub(crate) async fn ping(&self) -> Result<(), String> {
        let tried = async {
            match &self.pools {
                Pools::Sqlite { read, .. } => read.acquire().await?.ping().await,
                Pools::Postgres { read, .. } => read.acquire().await?.ping().await,
                Pools::MySql { read, .. } => read.acquire().await?.ping().await,
            }
        };
        let error = match tried.await {
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

    /// Ends every connection, after the queries that run.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        match &self.pools {
            Pools::Sqlite { read, write } => close_pools(read, write.as_ref()).await,
            Pools::Postgres { read, write, .. } => close_pools(read, write.as_ref()).await,
            Pools::MySql { read, write, .. } => close_pools(read, write.as_ref()).await,
        }
    }

    /// The columns of a statement, as the database describes them.
    pub(super) async fn describe(
        &self,
        statement: &Statement,
        plans: &PlanCache,
        may: AccessMode,
    ) -> Result<Vec<(String, ColumnType, bool)>, String> {
        // A server may refuse to look at a statement that writes where nothing can be written.
        let described = async {
            match &self.pools {
                Pools::Sqlite { read, write } => {
                    let pool = pool_for_access(read, write.as_ref(), may);
                    sqlite::describe(&mut *pool.acquire().await?, statement).await
                }
                Pools::Postgres { read, write, .. } => {
                    let pool = pool_for_access(read, write.as_ref(), may);
                    postgres::describe(&mut *pool.acquire().await?, statement, |name| plans.type_hint(name))
                        .await
                }
                Pools::MySql { read, write, .. } => {
                    let pool = pool_for_access(read, write.as_ref(), may);
                    mysql::describe(&mut *pool.acquire().await?, statement).await
                }
            }
        };
        described.await.map_err(|error| error.to_string())
    }

    /// Runs a query. Cancel safe: yes, the task ends the query when this future is dropped.
    pub(super) async fn run(self: &Arc<Self>, job: QueryJob) -> Result<RowSet, QueryError> {
        let place = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| QueryError::Busy)?;
        let stop = CancellationToken::new();
        let _leaving = stop.clone().drop_guard();
        let connection = Arc::clone(self);
        let task = self.tasks.spawn(async move {
            let _place = place;
            connection.execute(&job, &stop).await
        });
        // It is never aborted, so it has panicked or the runtime ends.
        task.await.unwrap_or_else(|error| Err(QueryError::Database(error.to_string())))
    }

    async fn execute(&self, job: &QueryJob, stop: &CancellationToken) -> Result<RowSet, QueryError> {
        match &self.pools {
            Pools::Sqlite { read, write } => {
                let mut connection =
                    self.acquire(pool_for_job(read, write.as_ref(), job)?, job, stop).await?;
                let asked = Arc::new(AtomicBool::new(false));
                let ran = self.run_until_deadline(job, stop, sqlite::run(&mut connection, job, &asked)).await;
                asked.store(true, Ordering::Relaxed);
                ran.into_result(self.driver, job.timeout)
            }
            Pools::Postgres { read, write, options } => {
                let connection = self.acquire(pool_for_job(read, write.as_ref(), job)?, job, stop).await?;
                let process = AtomicU64::new(0);
                let mut kept = PooledConnectionGuard(Some(connection));
                let Some(connection) = kept.0.as_mut() else { return Err(QueryError::Cancelled) };
                let ran = self.run_until_deadline(job, stop, postgres::run(connection, job, &process)).await;
                if ran.is_unfinished() {
                    self.cancel_query(process.into_inner(), |process| postgres::kill(options, process)).await;
                }
                kept.release(ran.is_clean());
                ran.into_result(self.driver, job.timeout)
            }
            Pools::MySql { read, write, options, flavor } => {
                let connection = self.acquire(pool_for_job(read, write.as_ref(), job)?, job, stop).await?;
                let thread = AtomicU64::new(0);
                let mut kept = PooledConnectionGuard(Some(connection));
                let Some(connection) = kept.0.as_mut() else { return Err(QueryError::Cancelled) };
                let flavor = mysql::flavor_or_default(flavor);
                let ran =
                    self.run_until_deadline(job, stop, mysql::run(connection, job, flavor, &thread)).await;
                if ran.is_unfinished() {
                    self.cancel_query(thread.into_inner(), |thread| mysql::kill(options, thread)).await;
                }
                // A client's statement can leave variables and locks in its session, which nobody else is to find.
                kept.release(ran.is_clean() && !job.is_client_statement);
                ran.into_result(self.driver, job.timeout)
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
                // A pool waits for a server that refuses connections, and then says the same as when all are in use.
                Err(sqlx::Error::PoolTimedOut) if self.n_active.load(Ordering::Relaxed) < self.max_connections => {
                    Err(QueryError::Unreachable(format!("no connection within {:?}", self.acquire_timeout)))
                }
                Err(error) => Err(QueryError::from_sqlx(self.driver, error, job.timeout)),
            },
        }
    }

    /// Runs a query until it ends, nobody waits for it, or the database did not end it at its time.
    async fn run_until_deadline(
        &self,
        job: &QueryJob,
        stop: &CancellationToken,
        query: impl Future<Output = Result<RowSet, CollectError>>,
    ) -> RunOutcome {
        let _working = ActiveQuery::new(&self.n_active);
        let late = match self.driver {
            // It has no clock of its own.
            Driver::Sqlite => job.timeout,
            _ => job.timeout + Duration::from_millis(500),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => RunOutcome::Cancelled,
            ran = query => RunOutcome::Finished(ran),
            () = tokio::time::sleep(late) => RunOutcome::TimedOut,
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
                tracing::warn!(connection = self.name, error = ?error.to_string(), "a query could not be cancelled");
            }
            Err(_) => tracing::warn!(connection = self.name, "a query could not be cancelled in time"),
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

/// A writing statement goes where it may write, and everything else where nothing can.
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
    may: AccessMode,
) -> &'a Pool<D> {
    write.filter(|_| may == AccessMode::Write).unwrap_or(read)
}

async fn close_pools<D: Database>(read: &Pool<D>, write: Option<&Pool<D>>) {
    read.close().await;
    if let Some(write) = write {
        write.close().await;
    }
}
