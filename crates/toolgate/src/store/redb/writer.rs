//! The thread that writes: everything that waits goes into one transaction.
//!
//! After an error nothing of the file in memory is trusted any more: it is closed and opened again, which brings it back
//! to the last state that is on the disk. Until that succeeds, whoever asks is told why not.

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

/// Changes in one transaction.
const MAX_BATCH_WRITES: usize = 512;

/// Bytes in one transaction, roughly; one change is always taken.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// How often a thread without work looks for what has expired, and whether the file is still well.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after an attempt to open the file the next one is made.
const REOPEN_DELAY: Duration = Duration::from_millis(250);

/// Opens the file anew.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, StoreError> + Send>;

/// What the thread is told.
pub(super) enum WriterCommand {
    Write(WriteRequest),
    Close(oneshot::Sender<()>),
}

/// A change, and who waits for it.
pub(super) struct WriteRequest {
    pub(super) op: WriteOp,
    pub(super) reply: oneshot::Sender<Result<WriteResult, StoreError>>,
    /// The place in the queue, given back when this is done.
    pub(super) _permit: OwnedSemaphorePermit,
}

pub(super) struct RedbWriter {
    state: Arc<State>,
    opener: Opener,
    commands: Receiver<WriterCommand>,
    /// When opening was tried last.
    last_attempt: Option<Instant>,
}

impl RedbWriter {
    pub(super) fn new(state: Arc<State>, opener: Opener, commands: Receiver<WriterCommand>) -> RedbWriter {
        RedbWriter { state, opener, commands, last_attempt: None }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.commands.recv_timeout(IDLE_INTERVAL) {
                Ok(WriterCommand::Write(job)) => {
                    if let Some(reply) = self.write_batch(job) {
                        return self.close(reply);
                    }
                }
                Ok(WriterCommand::Close(reply)) => return self.close(reply),
                Err(RecvTimeoutError::Timeout) => self.remove_expired(),
                // Nobody is left who could ask. What waited before has been written.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes everything that waits, beginning with this. Returns whoever wants the file closed.
    fn write_batch(&mut self, first: WriteRequest) -> Option<oneshot::Sender<()>> {
        let mut n_bytes = first.op.bytes();
        let mut jobs = vec![first];
        let mut close = None;
        while jobs.len() < MAX_BATCH_WRITES && n_bytes < MAX_BATCH_BYTES && close.is_none() {
            match self.commands.try_recv() {
                Ok(WriterCommand::Write(job)) => {
                    n_bytes += job.op.bytes();
                    jobs.push(job);
                }
                Ok(WriterCommand::Close(reply)) => close = Some(reply),
                Err(_) => break,
            }
        }
        // Whoever has given up waiting was told that it failed; it is kinder if it did.
        jobs.retain(|job| !job.reply.is_closed());
        let changes: Vec<&WriteOp> = jobs.iter().map(|job| &job.op).collect();
        match self.apply(&changes) {
            Ok(done) => {
                for (job, done) in jobs.into_iter().zip(done) {
                    let _ = job.reply.send(Ok(done));
                }
            }
            Err(error) => {
                for job in jobs {
                    let _ = job.reply.send(Err(error.clone()));
                }
            }
        }
        close
    }

    fn apply(&mut self, changes: &[&WriteOp]) -> Result<Vec<WriteResult>, StoreError> {
        let database = self.database()?;
        let now = self.state.clock.unix_millis();
        let applied = std::panic::catch_unwind(AssertUnwindSafe(|| tables::apply(&database, changes, now)));
        let error = match applied {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => to_store_error(&error),
            Err(_) => StoreError::Corrupt("writing failed in a way that it must not".to_owned()),
        };
        self.mark_failed(&error);
        Err(error)
    }

    /// Clears away what has expired while nobody writes, and notices that the file has come to harm.
    fn remove_expired(&mut self) {
        let Ok(database) = self.database() else { return };
        let now = self.state.clock.unix_millis();
        match tables::has_expired(&database, now) {
            Ok(false) => {}
            Ok(true) => drop(self.apply(&[])),
            Err(error) => self.mark_failed(&to_store_error(&error)),
        }
    }

    /// The file, opened again if need be, and if it is time to try.
    fn database(&mut self) -> Result<Arc<Database>, StoreError> {
        let error = match self.state.database() {
            Ok(database) => return Ok(database),
            Err(error) => error,
        };
        if self.last_attempt.is_some_and(|tried| tried.elapsed() < REOPEN_DELAY) {
            return Err(error);
        }
        self.last_attempt = Some(timer_now());
        // A reader that still holds the old one makes this fail; then the next attempt will do.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| (self.opener)()));
        match opened.unwrap_or_else(|_| Err(StoreError::Corrupt("it cannot be opened again".to_owned()))) {
            Ok(database) => {
                tracing::info!("the store is back");
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
        tracing::error!(%error, "the store is opened again");
        self.state.set_database(Err(error.clone()));
        self.last_attempt = Some(timer_now());
    }

    fn close(self, reply: oneshot::Sender<()>) {
        // Those who still wait hear that it is closed when their jobs are dropped with the queue.
        let database = std::mem::replace(
            &mut *self.state.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
            Err(closed()),
        );
        drop(self.commands);
        if let Ok(database) = database {
            // A reader may need a moment.
            let until = timer_now() + REOPEN_DELAY;
            while Arc::strong_count(&database) > 1 && timer_now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = reply.send(());
    }
}

impl WriteOp {
    fn bytes(&self) -> usize {
        match self {
            WriteOp::Put { value, .. } | WriteOp::Append { value, .. } => value.len(),
            _ => 0,
        }
    }
}
