//! Threads with a runtime of their own each, among which connections are shared out.
//!
//! A runtime that several threads work for moves tasks between them, and with every wake-up it looks for one that sleeps.
//! A connection needs neither: it stays where it was put, and what its calls begin stays with it. All that the threads
//! have in common is the house.

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

/// One runtime, and what each of its connections holds.
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
    /// The runtime of whoever calls, and so many more that there are `n`.
    ///
    /// # Errors
    ///
    /// If there are no threads or descriptors left for one.
    pub(crate) fn new(n: usize) -> io::Result<Workers> {
        let (here, end) = (Handle::current(), CancellationToken::new());
        if n > 1 && here.runtime_flavor() != RuntimeFlavor::CurrentThread {
            tracing::warn!("`threads` beside a runtime that has several already: more threads than cores");
        }
        let mut cores = Workers {
            current: Worker::new(here.clone()),
            others: Vec::new(),
            threads: Tracker::new(),
            shutdown: end.clone().drop_guard(),
        };
        for number in 1..n {
            // The thread comes first: a runtime must not be dropped here, where another one runs.
            let (give, take) = oneshot::channel::<Runtime>();
            let (home, end, alive) = (here.clone(), end.clone(), cores.threads.token());
            thread::Builder::new().name(format!("toolgate-{number}")).spawn(move || {
                let _alive = alive;
                let Ok(runtime) = take.blocking_recv() else { return };
                spawn::set_main_runtime(home);
                runtime.block_on(end.cancelled());
                // What a handler has moved to a thread of its own keeps nobody.
                runtime.shutdown_background();
            })?;
            let runtime = Builder::new_current_thread().enable_all().build()?;
            cores.others.push(Worker::new(runtime.handle().clone()));
            // The thread waits for it.
            let _ = give.send(runtime);
        }
        Ok(cores)
    }

    /// Ends the other threads, and waits until what ran there is dropped; no longer than a moment.
    pub(crate) async fn shutdown(self) {
        drop(self.shutdown);
        self.threads.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.threads.wait()).await;
    }

    /// Begins to serve a connection, where the fewest are. Whoever accepts has the smallest share.
    pub(super) fn spawn<F>(
        &self,
        tasks: &mut JoinSet<()>,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let elsewhere = self.others.iter().min_by_key(|core| core.n_connections());
        let elsewhere = elsewhere.filter(|core| core.n_connections() <= self.current.n_connections());
        // A stream belongs to the runtime that waits for it.
        let stream = match elsewhere {
            None => Ok(stream),
            Some(_) => match stream.into_std() {
                Ok(stream) => Err(stream),
                // It cannot be served there, and nowhere else any more: it is closed.
                Err(error) => return log_handover_error(&error),
            },
        };
        let core = elsewhere.unwrap_or(&self.current);
        let counted = Arc::clone(&core.connections);
        let serving = async move {
            let _counted = counted;
            match stream.or_else(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => log_handover_error(&error),
            }
        };
        tasks.spawn_on(serving, &core.runtime);
    }
}

#[cold]
fn log_handover_error(error: &io::Error) {
    tracing::debug!(%error, "a connection cannot be handed to another thread");
}
