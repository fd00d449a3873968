//! Why a query gave nothing, and who is told what.
//!
//! A client hears what it can act on: wait, ask for less, another argument. What the engine said stays here, in the
//! log, under a number that the client is told; only a tool with `expose_errors` hands it on.

use std::time::Duration;

use sqlx::error::DatabaseError;
use toolgate::HandlerError;

use super::Driver;
use super::postgres::ROW_TOO_LARGE;

/// Why there is no result.
#[derive(Debug)]
pub(super) enum QueryError {
    /// Every connection works, and the queue is full.
    Busy,
    /// No connection can be had.
    Unreachable(String),
    /// Ended by the database, or by us, at its time.
    Timeout(Duration),
    /// Nobody waits for the answer any more.
    Cancelled,
    /// The statement is not allowed; the words are ours.
    Rejected(String),
    /// An argument cannot be used; the words are ours.
    InvalidArgument(String),
    /// The database would have written.
    ReadOnly,
    /// A column has a type without a JSON form; the words are ours.
    UnsupportedColumn(String),
    /// A row was wanted, and there is none.
    NoRow,
    /// The engine's own words.
    Database(String),
}

impl QueryError {
    pub(super) fn from_sqlx(driver: Driver, error: sqlx::Error, timeout: Duration) -> QueryError {
        match error {
            sqlx::Error::Database(error) => from_database_error(driver, &*error, timeout),
            sqlx::Error::PoolTimedOut => QueryError::Busy,
            sqlx::Error::Io(error) => QueryError::Unreachable(error.to_string()),
            sqlx::Error::Tls(error) => QueryError::Unreachable(error.to_string()),
            error
            @ (sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Configuration(_)) => {
                QueryError::Unreachable(error.to_string())
            }
            error => QueryError::Database(error.to_string()),
        }
    }

    /// What the client is told. `connection` and the engine's words go to the log.
    pub(super) fn into_tool_error(self, connection: &str, expose: bool) -> HandlerError {
        HandlerError::new(match self {
            QueryError::Busy => "the database is busy; try again in a moment".to_owned(),
            QueryError::Timeout(limit) => {
                format!("timeout: the query was stopped after {limit:?}; ask for less")
            }
            QueryError::Cancelled => "cancelled".to_owned(),
            QueryError::Rejected(words)
            | QueryError::InvalidArgument(words)
            | QueryError::UnsupportedColumn(words) => words,
            QueryError::ReadOnly => "read-only: the statement would change the database".to_owned(),
            QueryError::NoRow => "there is no such row".to_owned(),
            QueryError::Unreachable(words) => {
                let reference = random_reference();
                tracing::error!(connection, reference, error = ?words, "the database cannot be reached; \
                    `toolgate check --live` tries it and says more");
                format!("the database cannot be reached, ref {reference}")
            }
            QueryError::Database(words) if expose => format!("query failed: {words}"),
            QueryError::Database(words) => {
                let reference = random_reference();
                tracing::error!(connection, reference, error = ?words, "a query failed");
                format!("query failed, ref {reference}")
            }
        })
    }
}

fn from_database_error(driver: Driver, error: &dyn DatabaseError, timeout: Duration) -> QueryError {
    let code = error.code().unwrap_or_default().into_owned();
    let words = error.message().to_owned();
    match driver {
        Driver::Postgres => match code.as_str() {
            "22P02" if words.contains(ROW_TOO_LARGE) => {
                QueryError::Rejected("a row is too large; ask for fewer or shorter columns".to_owned())
            }
            "25006" => QueryError::ReadOnly,
            "57014" => QueryError::Timeout(timeout),
            "53300" | "57P03" => QueryError::Busy,
            "57P01" | "57P02" => QueryError::Unreachable(words),
            // The form of a value. The words may quote data, so they are not told.
            "22P02" | "22003" | "22007" | "22008" | "22021" | "22P05" | "22023" => invalid_value(),
            code if code.starts_with("28") || code.starts_with("3D") => QueryError::Unreachable(words),
            _ => QueryError::Database(words),
        },
        Driver::MySql => match mysql_error_number(error) {
            1792 => QueryError::ReadOnly,
            1317 | 1969 | 3024 => QueryError::Timeout(timeout),
            1040 | 1203 => QueryError::Busy,
            1044 | 1045 | 1049 | 1053 | 1927 => QueryError::Unreachable(words),
            _ => QueryError::Database(words),
        },
        // The low byte is the class.
        Driver::Sqlite => match code.parse::<u32>().unwrap_or_default() & 0xff {
            5 | 6 => QueryError::Busy,
            8 => QueryError::ReadOnly,
            9 => QueryError::Timeout(timeout),
            14 => QueryError::Unreachable(words),
            _ => QueryError::Database(words),
        },
    }
}

fn invalid_value() -> QueryError {
    let words = "a value, of an argument or in a row, does not have the form that the database expects";
    QueryError::InvalidArgument(words.to_owned())
}

fn mysql_error_number(error: &dyn DatabaseError) -> u16 {
    let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    error.map_or(0, sqlx::mysql::MySqlDatabaseError::number)
}

fn random_reference() -> String {
    let mut random = [0; 4];
    // Without randomness the log has the time still.
    let _ = getrandom::fill(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
