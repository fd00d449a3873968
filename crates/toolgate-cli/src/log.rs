//! The log: to standard error, so that it never meets the protocol on standard output.

use std::io;

/// From here on what goes wrong is told on standard error.
pub(crate) fn start() {
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_target(false).init();
}
