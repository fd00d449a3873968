//! Shutdown signals of the operating system.

use std::io;

/// Resolves when the process is asked to terminate: by SIGTERM or SIGINT, on Windows by Ctrl-C, close or shutdown.
///
/// Never resolves if no signal handler can be installed; the process can then only be killed. The handler is
/// installed by the call, not by the first poll, because a signal may follow at once.
///
/// Cancel safe: yes; but a signal that arrives while no future waits is not seen by the next call.
pub(crate) fn shutdown_signal() -> impl Future<Output = ()> {
    let signals = listen_for_signals();
    async move {
        match signals {
            Ok(signals) => signals.await,
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(unix)]
fn listen_for_signals() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(windows)]
fn listen_for_signals() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::windows::{ctrl_c, ctrl_close, ctrl_shutdown};
    let mut interrupt = ctrl_c()?;
    let mut close = ctrl_close()?;
    let mut shutdown = ctrl_shutdown()?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = close.recv() => {}
            _ = shutdown.recv() => {}
        }
    })
}
