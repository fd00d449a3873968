//! A database and the connections to it.
//!
//! Connections are made when the first query wants one, so a database that is down does not keep the program from
//! starting, and one that comes back is used again. A query runs in a task of its own: whoever asked may leave, and
//! the task still sees to it that the database stops working on it. Waiting is bounded twice, by a queue and by time.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::SqlitePool;
use sqlx::{Connection as _, Database, Pool};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fail::Failure;
use super::gather::{Broken, Found, Limits};
use super::mysql::{self, Flavor};
use super::postgres::{self, Plan};
use super::statement::{May, Statement};
use super::value::Holds;
use super::{Driver, SqlConnectionSpec, sqlite};
use crate::source::Problem;

/// How long the end of a query may take, once nobody waits for it any more.
const GOODBYE: Duration = Duration::from_secs(2);

/// What is to be run.
pub(super) struct Job {
    pub(super) statement: Arc<Statement>,
    pub(super) arguments: Map<String, Value>,
    pub(super) may: May,
    /// The statement came from the client.
    pub(super) free: bool,
    pub(super) limits: Limits,
    pub(super) timeout: Duration,
    pub(super) plan: Arc<Plans>,
}

impl Job {
    /// The value of an argument; one that was not given is nothing.
    pub(super) fn value(&self, name: &str) -> &Value {
        self.arguments.get(name).unwrap_or(&Value::Null)
    }

    /// The values of the statement's parameters, each once.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.statement.names().iter().map(|name| (name.as_str(), self.value(name)))
    }
}

/// What PostgreSQL said about a statement, kept between calls; and what the arguments say of themselves.
#[derive(Default)]
pub(super) struct Plans {
    plan: Mutex<Option<Arc<Plan>>>,
    hints: Map<String, Value>,
}

impl Plans {
    /// `properties` are those of the arguments' schema.
    pub(super) fn new(properties: &Map<String, Value>) -> Plans {
        Plans { plan: Mutex::default(), hints: properties.clone() }
    }

    pub(super) fn known(&self) -> Option<Arc<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn keep(&self, plan: &Arc<Plan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(plan));
    }

    pub(super) fn forget(&self) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A type of PostgreSQL for an argument, by its schema.
    pub(super) fn hint(&self, name: &str) -> &'static str {
        let kind = self.hints.get(name).and_then(|schema| schema.get("type"));
        match kind.and_then(Value::as_str) {
            Some("integer") => "bigint",
            Some("number") => "numeric",
            Some("boolean") => "boolean",
            Some("array" | "object") => "jsonb",
            _ => "text",
        }
    }
}

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
pub(crate) struct Pooled {
    pub(crate) max: usize,
    pub(crate) open: usize,
    pub(crate) idle: usize,
    /// Queries that have a connection.
    pub(crate) working: usize,
    /// Those that wait for one.
    pub(crate) waiting: usize,
    /// How long they wait.
    pub(crate) wait: Duration,
    pub(crate) read_only: bool,
    pub(crate) is_closed: bool,
}

/// A database that tools share.
pub(crate) struct SqlConnection {
    pub(super) name: String,
    pub(super) driver: Driver,
    pub(super) read_only: bool,
    max: usize,
    wait: Duration,
    pools: Pools,
    /// Places for queries that run or wait. When there is none, a query is refused at once.
    places: Arc<Semaphore>,
    n_places: usize,
    working: AtomicUsize,
    tasks: TaskTracker,
}

impl SqlConnection {
    /// Describes the connection; nothing is connected yet.
    pub(crate) fn new(spec: SqlConnectionSpec) -> Result<Arc<SqlConnection>, Vec<Problem>> {
        let key = spec.driver.key();
        let problem = |at: &str, said: String| vec![Problem { at: at.to_owned(), said }];
        if spec.max == 0 {
            return Err(problem("pool.max", "at least one connection is needed".to_owned()));
        }
        let misread = |said| problem(key, said);
        let pools = match spec.driver {
            Driver::Sqlite => {
                let options = sqlite::options(&spec.address).map_err(misread)?;
                let pool = |may| sqlite::pool(pool_options(&spec), options.clone(), may, spec.wait);
                Pools::Sqlite { read: pool(May::Read), write: (!spec.read_only).then(|| pool(May::Write)) }
            }
            Driver::Postgres => {
                let options = postgres::options(&spec.address).map_err(misread)?;
                let pool = |may| postgres::pool(pool_options(&spec), options.clone(), may);
                let (read, write) = (pool(May::Read), (!spec.read_only).then(|| pool(May::Write)));
                Pools::Postgres { read, write, options: Box::new(options) }
            }
            Driver::MySql => {
                let options = mysql::options(&spec.address).map_err(misread)?;
                let flavor = Arc::default();
                let pool = |may| mysql::pool(pool_options(&spec), options.clone(), may, &flavor);
                let (read, write) = (pool(May::Read), (!spec.read_only).then(|| pool(May::Write)));
                Pools::MySql { read, write, options: Box::new(options), flavor }
            }
        };
        let max = usize::try_from(spec.max).unwrap_or(1);
        Ok(Arc::new(SqlConnection {
            name: spec.name,
            driver: spec.driver,
            read_only: spec.read_only,
            max,
            wait: spec.wait,
            pools,
            places: Arc::new(Semaphore::new(max + spec.queue)),
            n_places: max + spec.queue,
            working: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
        }))
    }

    /// How its connections are used.
    pub(crate) fn pooled(&self) -> Pooled {
        let (open, idle, is_closed) = match &self.pools {
            Pools::Sqlite { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
            Pools::Postgres { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
            Pools::MySql { read, .. } => (read.size(), read.num_idle(), read.is_closed()),
        };
        let open = usize::try_from(open).unwrap_or(usize::MAX);
        let working = self.working.load(Ordering::Relaxed);
        let under_way = self.n_places - self.places.available_permits().min(self.n_places);
        Pooled {
            max: self.max,
            open,
            idle,
            working,
            waiting: under_way.saturating_sub(working),
            wait: self.wait,
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
            Err(sqlx::Error::PoolTimedOut) => format!("no connection within {:?}", self.wait),
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
            Pools::Sqlite { read, write } => both(read, write.as_ref()).await,
            Pools::Postgres { read, write, .. } => both(read, write.as_ref()).await,
            Pools::MySql { read, write, .. } => both(read, write.as_ref()).await,
        }
    }

    /// The columns of a statement, as the database describes them.
    pub(super) async fn describe(
        &self,
        statement: &Statement,
        plans: &Plans,
        may: May,
    ) -> Result<Vec<(String, Holds, bool)>, String> {
        // A server may refuse to look at a statement that writes where nothing can be written.
        let described = async {
            match &self.pools {
                Pools::Sqlite { read, write } => {
                    let pool = pick(read, write.as_ref(), may);
                    sqlite::describe(&mut *pool.acquire().await?, statement).await
                }
                Pools::Postgres { read, write, .. } => {
                    let pool = pick(read, write.as_ref(), may);
                    postgres::describe(&mut *pool.acquire().await?, statement, |name| plans.hint(name)).await
                }
                Pools::MySql { read, write, .. } => {
                    let pool = pick(read, write.as_ref(), may);
                    mysql::describe(&mut *pool.acquire().await?, statement).await
                }
            }
        };
        described.await.map_err(|error| error.to_string())
    }

    /// Runs a query. Cancel safe: yes, the task ends the query when this future is dropped.
    pub(super) async fn run(self: &Arc<Self>, job: Job) -> Result<Found, Failure> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Failure::Busy)?;
        let stop = CancellationToken::new();
        let _leaving = stop.clone().drop_guard();
        let connection = Arc::clone(self);
        let task = self.tasks.spawn(async move {
            let _place = place;
            connection.work(&job, &stop).await
        });
        // It is never aborted, so it has panicked or the runtime ends.
        task.await.unwrap_or_else(|error| Err(Failure::Engine(error.to_string())))
    }

    async fn work(&self, job: &Job, stop: &CancellationToken) -> Result<Found, Failure> {
        match &self.pools {
            Pools::Sqlite { read, write } => {
                let mut connection = self.acquire(pool(read, write.as_ref(), job)?, job, stop).await?;
                let asked = Arc::new(AtomicBool::new(false));
                let ran = self.watch(job, stop, sqlite::run(&mut connection, job, &asked)).await;
                asked.store(true, Ordering::Relaxed);
                ran.found(self.driver, job.timeout)
            }
            Pools::Postgres { read, write, options } => {
                let connection = self.acquire(pool(read, write.as_ref(), job)?, job, stop).await?;
                let process = AtomicU64::new(0);
                let mut kept = Kept(Some(connection));
                let Some(connection) = kept.0.as_mut() else { return Err(Failure::Cancelled) };
                let ran = self.watch(job, stop, postgres::run(connection, job, &process)).await;
                if ran.is_unfinished() {
                    self.kill(process.into_inner(), |process| postgres::kill(options, process)).await;
                }
                kept.end(ran.is_clean());
                ran.found(self.driver, job.timeout)
            }
            Pools::MySql { read, write, options, flavor } => {
                let connection = self.acquire(pool(read, write.as_ref(), job)?, job, stop).await?;
                let thread = AtomicU64::new(0);
                let mut kept = Kept(Some(connection));
                let Some(connection) = kept.0.as_mut() else { return Err(Failure::Cancelled) };
                let flavor = mysql::known(flavor);
                let ran = self.watch(job, stop, mysql::run(connection, job, flavor, &thread)).await;
                if ran.is_unfinished() {
                    self.kill(thread.into_inner(), |thread| mysql::kill(options, thread)).await;
                }
                // A client's statement can leave variables and locks in its session, which nobody else is to find.
                kept.end(ran.is_clean() && !job.free);
                ran.found(self.driver, job.timeout)
            }
        }
    }

    async fn acquire<D: Database>(
        &self,
        pool: &Pool<D>,
        job: &Job,
        stop: &CancellationToken,
    ) -> Result<PoolConnection<D>, Failure> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Failure::Cancelled),
            acquired = pool.acquire() => match acquired {
                Ok(connection) => Ok(connection),
                // A pool waits for a server that refuses connections, and then says the same as when all are in use.
                Err(sqlx::Error::PoolTimedOut) if self.working.load(Ordering::Relaxed) < self.max => {
                    Err(Failure::Unreachable(format!("no connection within {:?}", self.wait)))
                }
                Err(error) => Err(Failure::of(self.driver, error, job.timeout)),
            },
        }
    }

    /// Runs a query until it ends, nobody waits for it, or the database did not end it at its time.
    async fn watch(
        &self,
        job: &Job,
        stop: &CancellationToken,
        query: impl Future<Output = Result<Found, Broken>>,
    ) -> Ran {
        let _working = Working::new(&self.working);
        let late = match self.driver {
            // It has no clock of its own.
            Driver::Sqlite => job.timeout,
            _ => job.timeout + Duration::from_millis(500),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Ran::Left,
            ran = query => Ran::Ended(ran),
            () = tokio::time::sleep(late) => Ran::Late,
        }
    }

    async fn kill<F>(&self, id: u64, kill: impl FnOnce(u64) -> F)
    where
        F: Future<Output = Result<(), sqlx::Error>>,
    {
        if id == 0 {
            return;
        }
        match tokio::time::timeout(GOODBYE, kill(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(connection = self.name, error = ?error.to_string(), "a query could not be cancelled");
            }
            Err(_) => tracing::warn!(connection = self.name, "a query could not be cancelled in time"),
        }
    }
}

fn pool_options<D: Database>(spec: &SqlConnectionSpec) -> PoolOptions<D> {
    PoolOptions::new()
        .max_connections(spec.max)
        .idle_timeout(spec.idle)
        .acquire_timeout(spec.wait)
        .test_before_acquire(true)
}

/// A writing statement goes where it may write, and everything else where nothing can.
fn pool<'a, D: Database>(
    read: &'a Pool<D>,
    write: Option<&'a Pool<D>>,
    job: &Job,
) -> Result<&'a Pool<D>, Failure> {
    match job.may {
        May::Read => Ok(read),
        May::Write => write.ok_or(Failure::ReadOnly),
    }
}

fn pick<'a, D: Database>(read: &'a Pool<D>, write: Option<&'a Pool<D>>, may: May) -> &'a Pool<D> {
    write.filter(|_| may == May::Write).unwrap_or(read)
}

async fn both<D: Database>(read: &Pool<D>, write: Option<&Pool<D>>) {
    read.close().await;
    if let Some(write) = write {
        write.close().await;
    }
}

/// Counts a query while it has a connection.
struct Working<'a>(&'a AtomicUsize);

impl<'a> Working<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Working(count)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a query came to its end.
enum Ran {
    Ended(Result<Found, Broken>),
    /// Nobody waits any more.
    Left,
    /// The database did not keep its time.
    Late,
}

impl Ran {
    /// The database may still work on it.
    fn is_unfinished(&self) -> bool {
        matches!(self, Ran::Left | Ran::Late)
    }

    /// The connection can be used again: nothing is left in it, and no transaction is open.
    fn is_clean(&self) -> bool {
        match self {
            Ran::Ended(Ok(found)) => !found.unread,
            Ran::Ended(Err(Broken::Sqlx(error))) => matches!(error, sqlx::Error::Database(_)),
            Ran::Ended(Err(Broken::Failure(failure))) => matches!(failure, Failure::Argument(_)),
            Ran::Left | Ran::Late => false,
        }
    }

    fn found(self, driver: Driver, timeout: Duration) -> Result<Found, Failure> {
        match self {
            Ran::Ended(Ok(found)) => Ok(found),
            Ran::Ended(Err(Broken::Failure(failure))) => Err(failure),
            Ran::Ended(Err(Broken::Sqlx(error))) => Err(Failure::of(driver, error, timeout)),
            Ran::Left => Err(Failure::Cancelled),
            Ran::Late => Err(Failure::Timeout(timeout)),
        }
    }
}

/// A connection that goes back to its pool only if it is said to be clean; otherwise it is closed at once, and what
/// the server wanted to say on it is lost.
struct Kept<D: Database>(Option<PoolConnection<D>>);

impl<D: Database> Kept<D> {
    fn end(mut self, clean: bool) {
        if clean {
            self.0 = None;
        }
    }
}

impl<D: Database> Drop for Kept<D> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
