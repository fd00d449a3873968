//! Collects rows until there are enough of them.
//!
//! One row at a time is in memory besides those that are kept. A query that reads is left when it has given enough; one
//! that writes is heard to its end, since it is to be committed.

use std::collections::HashSet;

use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};
use sqlx::{Column as _, Database, Either, Row};

use super::error::QueryError;
use super::statement::AccessMode;

/// How much a query may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowLimits {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// How many rows too many are looked past before a connection is given up for them.
const MAX_SKIPPED_ROWS: usize = 256;

/// What a query gave.
#[derive(Debug, Default)]
pub(super) struct RowSet {
    pub(super) rows: Vec<Map<String, Value>>,
    /// There were more.
    pub(super) is_truncated: bool,
    pub(super) rows_affected: u64,
    /// The query was left before its end, and its connection still holds the rest.
    pub(super) has_unread_rows: bool,
}

/// Why collecting ended early: the database, or a value.
pub(super) enum CollectError {
    Sqlx(sqlx::Error),
    Query(QueryError),
}

impl From<sqlx::Error> for CollectError {
    fn from(error: sqlx::Error) -> Self {
        CollectError::Sqlx(error)
    }
}

/// A database whose rows can be read.
pub(super) trait DecodeRow: Database {
    fn decode_value(row: &Self::Row, index: usize) -> Result<Value, String>;
    fn rows_affected(result: &Self::QueryResult) -> u64;
}

type ResultStream<'a, D> =
    BoxStream<'a, Result<Either<<D as Database>::QueryResult, <D as Database>::Row>, sqlx::Error>>;

pub(super) async fn collect_rows<D: DecodeRow>(
    mut results: ResultStream<'_, D>,
    limits: RowLimits,
    may: AccessMode,
) -> Result<RowSet, CollectError> {
    let mut found = RowSet::default();
    let (mut n_bytes, mut n_past) = (0, 0);
    let mut names = Vec::new();
    while let Some(result) = results.try_next().await? {
        let row = match result {
            Either::Left(result) => {
                found.rows_affected += D::rows_affected(&result);
                continue;
            }
            Either::Right(row) => row,
        };
        if !found.is_truncated && found.rows.len() < limits.rows {
            if names.is_empty() {
                names = unique_names(row.columns().iter().map(|column| column.name()));
            }
            let read = decode_row::<D>(&row, &names)
                .map_err(|words| CollectError::Query(QueryError::UnsupportedColumn(words)))?;
            n_bytes += json_size(&read);
            if n_bytes <= limits.bytes {
                found.rows.push(read);
                continue;
            }
        }
        found.is_truncated = true;
        n_past += 1;
        if may == AccessMode::Read && n_past > MAX_SKIPPED_ROWS {
            found.has_unread_rows = true;
            break;
        }
    }
    Ok(found)
}

fn decode_row<D: DecodeRow>(row: &D::Row, names: &[String]) -> Result<Map<String, Value>, String> {
    let members = names.iter().enumerate().map(|(index, name)| match D::decode_value(row, index) {
        Ok(value) => Ok((name.clone(), value)),
        Err(why) => Err(format!("column {name}: {why}")),
    });
    members.collect()
}

/// Two columns of one name would be one member: the second is `id_2`.
pub(super) fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut distinct = Vec::new();
    for name in names {
        let mut free = name.to_owned();
        let mut n = 1_u32;
        while !taken.insert(free.clone()) {
            n += 1;
            free = format!("{name}_{n}");
        }
        distinct.push(free);
    }
    distinct
}

/// How long a row is as JSON.
fn json_size(row: &Map<String, Value>) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter(1);
    // Counting does not fail, and names are texts.
    let _ = serde_json::to_writer(&mut count, row);
    count.0
}
