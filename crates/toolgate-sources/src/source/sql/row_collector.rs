//! Collects rows up to a limit.
//!
//! Only one row is in memory in addition to the collected ones. A reading query is abandoned once it has returned
//! enough; a writing query is read to its end, since it will be committed.

use std::collections::HashSet;

use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};
use sqlx::{Column as _, Database, Either, Row};

use super::error::QueryError;
use super::statement::AccessMode;

/// The limits of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowLimits {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// How many excess rows are skipped before the connection is abandoned.
const MAX_SKIPPED_ROWS: usize = 256;

/// The result of a query.
#[derive(Debug, Default)]
pub(super) struct RowSet {
    pub(super) rows: Vec<Map<String, Value>>,
    /// There were more rows than collected.
    pub(super) is_truncated: bool,
    pub(super) rows_affected: u64,
    /// The query was abandoned, and its connection still has unread rows.
    pub(super) has_unread_rows: bool,
}

/// Why collecting failed: a database error or an unsupported value.
pub(super) enum CollectError {
    Sqlx(sqlx::Error),
    Query(QueryError),
}

impl From<sqlx::Error> for CollectError {
    fn from(error: sqlx::Error) -> Self {
        CollectError::Sqlx(error)
    }
}

/// A database whose rows can be decoded.
pub(super) trait DecodeRow: Database {
    fn decode_value(row: &Self::Row, index: usize) -> Result<Value, String>;
    fn rows_affected(result: &Self::QueryResult) -> u64;
}

type ResultStream<'a, D> =
    BoxStream<'a, Result<Either<<D as Database>::QueryResult, <D as Database>::Row>, sqlx::Error>>;

pub(super) async fn collect_rows<D: DecodeRow>(
    mut results: ResultStream<'_, D>,
    limits: RowLimits,
    access: AccessMode,
) -> Result<RowSet, CollectError> {
    let mut row_set = RowSet::default();
    let (mut n_bytes, mut n_skipped) = (0, 0);
    let mut names = Vec::new();
    while let Some(result) = results.try_next().await? {
        let row = match result {
            Either::Left(result) => {
                row_set.rows_affected += D::rows_affected(&result);
                continue;
            }
            Either::Right(row) => row,
        };
        if !row_set.is_truncated && row_set.rows.len() < limits.rows {
            if names.is_empty() {
                names = unique_names(row.columns().iter().map(|column| column.name()));
            }
            let decoded = decode_row::<D>(&row, &names)
                .map_err(|message| CollectError::Query(QueryError::UnsupportedColumn(message)))?;
            n_bytes += json_size(&decoded);
            if n_bytes <= limits.bytes {
                row_set.rows.push(decoded);
                continue;
            }
        }
        row_set.is_truncated = true;
        n_skipped += 1;
        if access == AccessMode::Read && n_skipped > MAX_SKIPPED_ROWS {
            row_set.has_unread_rows = true;
            break;
        }
    }
    Ok(row_set)
}

fn decode_row<D: DecodeRow>(row: &D::Row, names: &[String]) -> Result<Map<String, Value>, String> {
    let members = names.iter().enumerate().map(|(index, name)| match D::decode_value(row, index) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error) => Err(format!("column {name}: {error}")),
    });
    members.collect()
}

/// Makes column names unique: the second `id` becomes `id_2`.
pub(super) fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut used = HashSet::new();
    let mut unique = Vec::new();
    for name in names {
        let mut candidate = name.to_owned();
        let mut n = 1_u32;
        while !used.insert(candidate.clone()) {
            n += 1;
            candidate = format!("{name}_{n}");
        }
        unique.push(candidate);
    }
    unique
}

/// The size of a row as JSON, in bytes.
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
    // Neither counting nor serializing fails here.
    let _ = serde_json::to_writer(&mut count, row);
    count.0
}
