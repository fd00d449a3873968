//! The operating system asks the process to end.

use std::io;

/// Resolves when the process is asked to end: SIGTERM or SIGINT, on Windows Ctrl-C, close or shutdown.
///
/// Never resolves if the system lets us hear no signal; the process can then only be killed. Signals are heard from the
/// call on, not from the first poll: whoever is served may send one at once.
///
/// Cancel safe: yes; but a signal that comes while nobody waits is not seen by the next call.
pub(crate) fn shutdown_signal() -> impl Future<Output = ()> {
    let heard = listen_for_signals();
    async move {
        match heard {
            Ok(heard) => heard.await,
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
