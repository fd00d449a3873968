//! The writer thread, which puts all queued changes into one transaction.
//!
//! After an error, the in-memory state of the database is not trusted: the file is closed and opened again, which
//! restores the last state on the disk. Until that succeeds, operations fail with the error.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use redb::Database;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::tables::{self, WriteOp, WriteResult};
use super::{State, StoreError, closed, to_store_error};
use crate::util::clock::timer_now;
use crate::util::lock;

/// Limit of the changes in one transaction.
const MAX_BATCH_WRITES: usize = 512;

/// Approximate limit of the bytes in one transaction. A single change always fits.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// How often an idle writer removes expired rows and checks the file.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum delay between two attempts to open the file.
const REOPEN_DELAY: Duration = Duration::from_millis(250);

/// Opens the file.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, StoreError> + Send>;

/// A command for the writer thread.
pub(super) enum WriterCommand {
    Write(WriteRequest),
    Close(oneshot::Sender<()>),
}

/// A queued change, and the channel for its result.
pub(super) struct WriteRequest {
    pub(super) op: WriteOp,
    pub(super) reply: oneshot::Sender<Result<WriteResult, StoreError>>,
    /// The place in the queue, released when the change is done.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The writer thread. See the module documentation.
pub(super) struct RedbWriter {
    state: Arc<State>,
    opener: Opener,
    commands: Receiver<WriterCommand>,
    /// When the file was last opened, or failed.
    last_attempt: Option<Instant>,
}

impl RedbWriter {
    pub(super) fn new(state: Arc<State>, opener: Opener, commands: Receiver<WriterCommand>) -> RedbWriter {
        RedbWriter { state, opener, commands, last_attempt: None }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.commands.recv_timeout(IDLE_INTERVAL) {
                Ok(WriterCommand::Write(request)) => {
                    if let Some(reply) = self.write_batch(request) {
                        return self.close(reply);
                    }
                }
                Ok(WriterCommand::Close(reply)) => return self.close(reply),
                Err(RecvTimeoutError::Timeout) => self.remove_expired(),
                // The store was dropped. All queued changes have been written.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes all queued changes, starting with `first`. Returns the reply channel of a close command.
    fn write_batch(&mut self, first: WriteRequest) -> Option<oneshot::Sender<()>> {
        let mut n_bytes = first.op.bytes();
        let mut requests = vec![first];
        let mut close = None;
        while requests.len() < MAX_BATCH_WRITES && n_bytes < MAX_BATCH_BYTES && close.is_none() {
            match self.commands.try_recv() {
                Ok(WriterCommand::Write(request)) => {
                    n_bytes += request.op.bytes();
                    requests.push(request);
                }
                Ok(WriterCommand::Close(reply)) => close = Some(reply),
                Err(_) => break,
            }
        }
        // Callers that timed out got an error, so their changes are better not made.
        requests.retain(|request| !request.reply.is_closed());
        let ops: Vec<&WriteOp> = requests.iter().map(|request| &request.op).collect();
        match self.apply(&ops) {
            Ok(results) => {
                for (request, result) in requests.into_iter().zip(results) {
                    let _ = request.reply.send(Ok(result));
                }
            }
            Err(error) => {
                for request in requests {
                    let _ = request.reply.send(Err(error.clone()));
                }
            }
        }
        close
    }

    fn apply(&mut self, ops: &[&WriteOp]) -> Result<Vec<WriteResult>, StoreError> {
        let database = self.database()?;
        let now = self.state.clock.unix_millis();
        let applied = std::panic::catch_unwind(AssertUnwindSafe(|| tables::apply(&database, ops, now)));
        let error = match applied {
            Ok(Ok(results)) => return Ok(results),
            Ok(Err(error)) => to_store_error(&error),
            Err(_) => StoreError::Corrupt("the database panicked during a write".to_owned()),
        };
        self.mark_failed(&error);
        Err(error)
    }

    /// Removes expired rows while the writer is idle, which also detects a damaged file.
    fn remove_expired(&mut self) {
        let Ok(database) = self.database() else { return };
        let now = self.state.clock.unix_millis();
        match tables::has_expired(&database, now) {
            Ok(false) => {}
            Ok(true) => drop(self.apply(&[])),
            Err(error) => self.mark_failed(&to_store_error(&error)),
        }
    }

    /// Returns the database. If it failed, opens it again, unless the last attempt was too recent.
    fn database(&mut self) -> Result<Arc<Database>, StoreError> {
        let error = match self.state.database() {
            Ok(database) => return Ok(database),
            Err(error) => error,
        };
        if self.last_attempt.is_some_and(|attempt| attempt.elapsed() < REOPEN_DELAY) {
            return Err(error);
        }
        self.last_attempt = Some(timer_now());
        // Fails while a reader still holds the old database; then a later attempt succeeds.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| (self.opener)()));
        match opened.unwrap_or_else(|_| Err(StoreError::Corrupt("it cannot be opened again".to_owned()))) {
            Ok(database) => {
                tracing::info!("the store was opened again");
                let database = Arc::new(database);
                self.state.set_database(Ok(Arc::clone(&database)));
                Ok(database)
            }
            Err(error) => {
                self.state.set_database(Err(error.clone()));
                Err(error)
            }
        }
    }

    fn mark_failed(&mut self, error: &StoreError) {
        tracing::error!(%error, "the store failed and will be opened again");
        self.state.set_database(Err(error.clone()));
        self.last_attempt = Some(timer_now());
    }

    fn close(self, reply: oneshot::Sender<()>) {
        // Queued requests are dropped with the channel, which makes their callers fail with `closed`.
        let database = std::mem::replace(&mut *lock(&self.state.database), Err(closed()));
        drop(self.commands);
        if let Ok(database) = database {
            // Readers may still use it for a moment.
            let deadline = timer_now() + REOPEN_DELAY;
            while Arc::strong_count(&database) > 1 && timer_now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = reply.send(());
    }
}
