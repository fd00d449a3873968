//! Duplex connections: stdio, and HTTP+SSE of the first protocol version.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::Protocol;
use super::in_flight::InFlight;
use super::session::Session;
use crate::stream::Stream;

/// Maximum number of calls in flight on one duplex connection.
const MAX_CONNECTION_CALLS: usize = 1024;

/// A duplex connection: all messages of one client in both directions. Its session is found through the connection, not by
/// an id.
#[derive(Debug)]
pub(crate) struct DuplexConnection {
    session: OnceLock<Arc<Session>>,
    /// Cancelled as soon as there is a session.
    initialized: CancellationToken,
    /// Cancelled when no more input will come from the client.
    pub(crate) input_closed: CancellationToken,
    /// Cancelled when the client sends `shutdown`. `None` where clients must not stop the process.
    shutdown: Option<CancellationToken>,
    /// Set once the client has sent a stateless request, which carries the client info itself.
    is_stateless: AtomicBool,
    pub(crate) in_flight: InFlight,
    pub(crate) out: Arc<Stream>,
}

impl DuplexConnection {
    /// Creates a connection that writes to `out`. `shutdown` is cancelled when the client sends `shutdown`.
    pub(crate) fn new(out: Arc<Stream>, shutdown: Option<CancellationToken>) -> Arc<DuplexConnection> {
        Arc::new(DuplexConnection {
            session: OnceLock::new(),
            initialized: CancellationToken::new(),
            input_closed: CancellationToken::new(),
            shutdown,
            is_stateless: AtomicBool::new(false),
            in_flight: InFlight::default(),
            out,
        })
    }

    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.get().cloned()
    }

    /// Notes that the client sends stateless requests, so a message without client info is from such a client too.
    pub(super) fn mark_stateless(&self) {
        self.is_stateless.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stateless(&self) -> bool {
        self.is_stateless.load(Ordering::Relaxed)
    }

    /// Starts the shutdown that the client requests. Returns false if clients must not request one.
    pub(super) fn request_shutdown(&self) -> bool {
        self.shutdown.as_ref().inspect(|shutdown| shutdown.cancel()).is_some()
    }

    pub(super) fn set_session(&self, session: Arc<Session>) {
        // Of two `initialize` requests at once, the second was rejected before or loses here.
        let _ = self.session.set(session);
        self.initialized.cancel();
    }

    /// Rejects a call if too many are in flight.
    pub(super) fn check_call_limit(&self) -> Result<(), ProtocolError> {
        if self.in_flight.len() < MAX_CONNECTION_CALLS {
            return Ok(());
        }
        Err(ProtocolError::new(
            ProtocolErrorKind::Busy,
            "too many calls are in flight; wait for some of them to finish",
        ))
    }

    /// Marks the end of the input: the client sends no response and no `initialize` any more. Calls in flight may still
    /// end.
    pub(crate) fn close_input(&self) {
        self.input_closed.cancel();
        if let Some(session) = self.session.get() {
            session.drop_pending_requests();
        }
    }

    /// Ends everything that belongs to the connection, which is gone.
    pub(crate) fn end(&self) {
        self.close_input();
        self.in_flight.cancel_all();
        if let Some(session) = self.session.get() {
            session.end();
        }
    }
}

impl Protocol {
    /// Sends change notifications on a connection, starting when its client has initialized.
    pub(crate) async fn send_connection_changes(&self, connection: &DuplexConnection) {
        let changes = async {
            connection.initialized.cancelled().await;
            if let Some(session) = connection.session() {
                self.send_session_changes(&session, &connection.out).await;
            }
        };
        tokio::select! {
            biased;
            () = connection.input_closed.cancelled() => {}
            () = self.drain.cancelled() => {}
            () = changes => {}
        }
    }
}
