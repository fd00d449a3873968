//! Threads with a runtime each, among which connections are distributed.
//!
//! A multi-threaded runtime moves tasks between threads, and looks for a sleeping thread with every wake-up. A
//! connection needs neither: it stays on the thread it was given to, with everything its calls spawn. The threads
//! share nothing but the server.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::CLOSE_TIMEOUT;
use crate::util::spawn::{self, Tracker};

/// The runtime that accepts, and further ones. Those end when this is dropped, with everything that runs on them.
pub(crate) struct Workers {
    current: Worker,
    others: Vec<Worker>,
    /// The threads that have not ended.
    threads: Tracker,
    shutdown: DropGuard,
}

/// One runtime, and a counter that each of its connections holds.
struct Worker {
    runtime: Handle,
    connections: Arc<()>,
}

impl Worker {
    fn new(runtime: Handle) -> Worker {
        Worker { runtime, connections: Arc::default() }
    }

    fn n_connections(&self) -> usize {
        Arc::strong_count(&self.connections) - 1
    }
}

impl Workers {
    /// The current runtime, and `n - 1` further ones.
    ///
    /// # Errors
    ///
    /// If the system has no threads or file descriptors left.
    pub(crate) fn new(n: usize) -> io::Result<Workers> {
        let (current, shutdown) = (Handle::current(), CancellationToken::new());
        if n > 1 && current.runtime_flavor() != RuntimeFlavor::CurrentThread {
            tracing::warn!("`threads` is set on a multi-threaded runtime: there are more threads than cores");
        }
        let mut workers = Workers {
            current: Worker::new(current.clone()),
            others: Vec::new(),
            threads: Tracker::new(),
            shutdown: shutdown.clone().drop_guard(),
        };
        for number in 1..n {
            // The thread is started first, because a runtime must not be dropped inside another one.
            let (sender, receiver) = oneshot::channel::<Runtime>();
            let (main, shutdown, token) = (current.clone(), shutdown.clone(), workers.threads.token());
            thread::Builder::new().name(format!("toolgate-{number}")).spawn(move || {
                let _alive = token;
                let Ok(runtime) = receiver.blocking_recv() else { return };
                spawn::set_main_runtime(main);
                runtime.block_on(shutdown.cancelled());
                // Does not wait for the blocking threads of handlers.
                runtime.shutdown_background();
            })?;
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.others.push(Worker::new(runtime.handle().clone()));
            // The thread waits for it.
            let _ = sender.send(runtime);
        }
        Ok(workers)
    }

    /// Ends the other threads, and waits for at most a second until their tasks are dropped.
    pub(crate) async fn shutdown(self) {
        drop(self.shutdown);
        self.threads.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.threads.wait()).await;
    }

    /// Serves a connection on the runtime with the fewest. The accepting runtime gets the smallest share.
    pub(super) fn spawn<F>(
        &self,
        tasks: &mut JoinSet<()>,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let other = self.others.iter().min_by_key(|worker| worker.n_connections());
        let other = other.filter(|worker| worker.n_connections() <= self.current.n_connections());
        // A stream belongs to the runtime that polls it.
        let stream = match other {
            None => Ok(stream),
            Some(_) => match stream.into_std() {
                Ok(stream) => Err(stream),
                // It can be served neither there nor here any more: it is closed.
                Err(error) => return log_handover_error(&error),
            },
        };
        let worker = other.unwrap_or(&self.current);
        let count = Arc::clone(&worker.connections);
        let serving = async move {
            let _counted = count;
            match stream.or_else(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => log_handover_error(&error),
            }
        };
        tasks.spawn_on(serving, &worker.runtime);
    }
}

#[cold]
fn log_handover_error(error: &io::Error) {
    tracing::debug!(%error, "cannot move a connection to another thread");
}
