//! Why a query gave nothing, and who is told what.
//!
//! A client hears what it can act on: wait, ask for less, another argument. What the engine said stays here, in the
//! log, under a number that the client is told; only a tool with `expose_errors` hands it on.

use std::time::Duration;

use sqlx::error::DatabaseError;
use toolgate::HandlerError;

use super::Driver;
use super::postgres::TOO_LARGE;

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// Every connection works, and the queue is full.
    Busy,
    /// No connection can be had.
    Unreachable(String),
    /// Ended by the database, or by us, at its time.
    Timeout(Duration),
    /// Nobody waits for the answer any more.
    Cancelled,
    /// The statement is not allowed; the words are ours.
    Refused(String),
    /// An argument cannot be used; the words are ours.
    Argument(String),
    /// The database would have written.
    ReadOnly,
    /// A column has a type without a JSON form; the words are ours.
    Column(String),
    /// A row was wanted, and there is none.
    NoRow,
    /// The engine's own words.
    Engine(String),
}

impl Failure {
    pub(super) fn of(driver: Driver, error: sqlx::Error, timeout: Duration) -> Failure {
        match error {
            sqlx::Error::Database(error) => of_engine(driver, &*error, timeout),
            sqlx::Error::PoolTimedOut => Failure::Busy,
            sqlx::Error::Io(error) => Failure::Unreachable(error.to_string()),
            sqlx::Error::Tls(error) => Failure::Unreachable(error.to_string()),
            error
            @ (sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Configuration(_)) => {
                Failure::Unreachable(error.to_string())
            }
            error => Failure::Engine(error.to_string()),
        }
    }

    /// What the client is told. `connection` and the engine's words go to the log.
    pub(super) fn tell(self, connection: &str, expose: bool) -> HandlerError {
        HandlerError::new(match self {
            Failure::Busy => "the database is busy; try again in a moment".to_owned(),
            Failure::Timeout(limit) => {
                format!("timeout: the query was stopped after {limit:?}; ask for less")
            }
            Failure::Cancelled => "cancelled".to_owned(),
            Failure::Refused(words) | Failure::Argument(words) | Failure::Column(words) => words,
            Failure::ReadOnly => "read-only: the statement would change the database".to_owned(),
            Failure::NoRow => "there is no such row".to_owned(),
            Failure::Unreachable(words) => {
                let reference = reference();
                tracing::error!(connection, reference, error = ?words, "the database cannot be reached; \
                    `toolgate check --live` tries it and says more");
                format!("the database cannot be reached, ref {reference}")
            }
            Failure::Engine(words) if expose => format!("query failed: {words}"),
            Failure::Engine(words) => {
                let reference = reference();
                tracing::error!(connection, reference, error = ?words, "a query failed");
                format!("query failed, ref {reference}")
            }
        })
    }
}

fn of_engine(driver: Driver, error: &dyn DatabaseError, timeout: Duration) -> Failure {
    let code = error.code().unwrap_or_default().into_owned();
    let words = error.message().to_owned();
    match driver {
        Driver::Postgres => match code.as_str() {
            "22P02" if words.contains(TOO_LARGE) => {
                Failure::Refused("a row is too large; ask for fewer or shorter columns".to_owned())
            }
            "25006" => Failure::ReadOnly,
            "57014" => Failure::Timeout(timeout),
            "53300" | "57P03" => Failure::Busy,
            "57P01" | "57P02" => Failure::Unreachable(words),
            // The form of a value. The words may quote data, so they are not told.
            "22P02" | "22003" | "22007" | "22008" | "22021" | "22P05" | "22023" => unfit(),
            code if code.starts_with("28") || code.starts_with("3D") => Failure::Unreachable(words),
            _ => Failure::Engine(words),
        },
        Driver::MySql => match number(error) {
            1792 => Failure::ReadOnly,
            1317 | 1969 | 3024 => Failure::Timeout(timeout),
            1040 | 1203 => Failure::Busy,
            1044 | 1045 | 1049 | 1053 | 1927 => Failure::Unreachable(words),
            _ => Failure::Engine(words),
        },
        // The low byte is the class.
        Driver::Sqlite => match code.parse::<u32>().unwrap_or_default() & 0xff {
            5 | 6 => Failure::Busy,
            8 => Failure::ReadOnly,
            9 => Failure::Timeout(timeout),
            14 => Failure::Unreachable(words),
            _ => Failure::Engine(words),
        },
    }
}

fn unfit() -> Failure {
    let words = "a value, of an argument or in a row, does not have the form that the database expects";
    Failure::Argument(words.to_owned())
}

fn number(error: &dyn DatabaseError) -> u16 {
    let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    error.map_or(0, sqlx::mysql::MySqlDatabaseError::number)
}

fn reference() -> String {
    let mut random = [0; 4];
    // Without randomness the log has the time still.
    let _ = getrandom::fill(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
