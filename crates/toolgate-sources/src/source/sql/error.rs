//! Errors of queries, and the messages that clients receive for them.
//!
//! A client gets a message that it can act on: retry later, request less, change an argument. The database's own
//! message goes to the log, with a reference that the client gets; only a tool with `expose_errors` includes it in the
//! result.

use std::time::Duration;

use sqlx::error::DatabaseError;
use toolgate::HandlerError;

use super::Driver;

/// The error text for a row that is too large to send.
pub(super) const ROW_TOO_LARGE: &str = "toolgate: a row is too large";

/// Why a query failed.
#[derive(Debug)]
pub(super) enum QueryError {
    /// All connections are in use, and the queue is full.
    Busy,
    /// The database cannot be reached.
    Unreachable(String),
    /// Stopped at its timeout, by the database or by us.
    Timeout(Duration),
    /// The caller stopped waiting.
    Cancelled,
    /// The statement is not allowed; the message is ours.
    Rejected(String),
    /// An argument is invalid; the message is ours.
    InvalidArgument(String),
    /// The statement would write.
    ReadOnly,
    /// A column type has no JSON representation; the message is ours.
    UnsupportedColumn(String),
    /// One row was expected, but there is none.
    NoRow,
    /// The database's own message.
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

    /// The error for the client. `connection` and the database's message go to the log.
    pub(super) fn into_tool_error(self, connection: &str, expose: bool) -> HandlerError {
        HandlerError::new(match self {
            QueryError::Busy => "the database is busy; try again in a moment".to_owned(),
            QueryError::Timeout(limit) => {
                format!("timeout: the query was stopped after {limit:?}; request less data")
            }
            QueryError::Cancelled => "cancelled".to_owned(),
            QueryError::Rejected(message)
            | QueryError::InvalidArgument(message)
            | QueryError::UnsupportedColumn(message) => message,
            QueryError::ReadOnly => "read-only: the statement would change the database".to_owned(),
            QueryError::NoRow => "no such row".to_owned(),
            QueryError::Unreachable(message) => {
                let reference = random_reference();
                tracing::error!(connection, reference, error = ?message, "the database cannot be reached");
                format!("the database cannot be reached, ref {reference}")
            }
            QueryError::Database(message) if expose => format!("query failed: {message}"),
            QueryError::Database(message) => {
                let reference = random_reference();
                tracing::error!(connection, reference, error = ?message, "query failed");
                format!("query failed, ref {reference}")
            }
        })
    }
}

fn from_database_error(driver: Driver, error: &dyn DatabaseError, timeout: Duration) -> QueryError {
    let code = error.code().unwrap_or_default().into_owned();
    let message = error.message().to_owned();
    match driver {
        Driver::Postgres => match code.as_str() {
            "22P02" if message.contains(ROW_TOO_LARGE) => {
                QueryError::Rejected("a row is too large; request fewer or shorter columns".to_owned())
            }
            "25006" => QueryError::ReadOnly,
            "57014" => QueryError::Timeout(timeout),
            "53300" | "57P03" => QueryError::Busy,
            "57P01" | "57P02" => QueryError::Unreachable(message),
            // The message may quote data, so it is not passed on.
            "22P02" | "22003" | "22007" | "22008" | "22021" | "22P05" | "22023" => invalid_value(),
            code if code.starts_with("28") || code.starts_with("3D") => QueryError::Unreachable(message),
            _ => QueryError::Database(message),
        },
        #[cfg(not(feature = "mysql"))]
        Driver::MySql => QueryError::Database(message),
        #[cfg(feature = "mysql")]
        Driver::MySql => match mysql_error_number(error) {
            1792 => QueryError::ReadOnly,
            1317 | 1969 | 3024 => QueryError::Timeout(timeout),
            1040 | 1203 => QueryError::Busy,
            1044 | 1045 | 1049 | 1053 | 1927 => QueryError::Unreachable(message),
            _ => QueryError::Database(message),
        },
        // The low byte is the primary result code.
        Driver::Sqlite => match code.parse::<u32>().unwrap_or_default() & 0xff {
            5 | 6 => QueryError::Busy,
            8 => QueryError::ReadOnly,
            9 => QueryError::Timeout(timeout),
            14 => QueryError::Unreachable(message),
            _ => QueryError::Database(message),
        },
    }
}

fn invalid_value() -> QueryError {
    let message = "a value of an argument or a row does not have the format that the database expects";
    QueryError::InvalidArgument(message.to_owned())
}

#[cfg(feature = "mysql")]
fn mysql_error_number(error: &dyn DatabaseError) -> u16 {
    let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    error.map_or(0, sqlx::mysql::MySqlDatabaseError::number)
}

fn random_reference() -> String {
    let mut random = [0; 4];
    // Without randomness, the log entry still has its time.
    let _ = getrandom::fill(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
