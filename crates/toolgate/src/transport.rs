//! Transports: read messages from sockets and pipes, and write the replies.
//!
//! Transports know headers and sockets. They know no methods, no tools, no permissions and no protocol versions.

pub(crate) mod signal;
pub(crate) mod stdio;

#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod listen;
#[cfg(feature = "http")]
mod request_head;

#[cfg(feature = "http")]
pub(crate) use request_head::RequestHead;

/// Serves HTTP on a listener until the process is asked to terminate or `shutdown` is cancelled. `begin_shutdown` is
/// called on the first signal; `drain` waits for the calls of disconnected clients. A second signal, or calls that
/// take longer than `timeout`, end it without waiting further.
#[cfg(feature = "http")]
pub(crate) async fn run(
    listener: tokio::net::TcpListener,
    service: impl listen::Serve,
    options: listen::Options,
    shutdown: tokio_util::sync::CancellationToken,
    timeout: std::time::Duration,
    begin_shutdown: impl Fn(),
    drain: impl Future<Output = ()>,
) -> std::io::Result<()> {
    const SHUTDOWN_GRACE: std::time::Duration = std::time::Duration::from_secs(1);
    let first_signal = signal::shutdown_signal();
    // The workers exist until everything has ended, because the calls of disconnected clients may run on them.
    let workers = listen::Workers::new(options.n_threads())?;
    let serving = async {
        let served = listen::serve(listener, service, options, &workers, shutdown.clone()).await;
        drain.await;
        served
    };
    let second_signal = async {
        first_signal.await;
        let next_signal = signal::shutdown_signal();
        begin_shutdown();
        next_signal.await;
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    let out_of_time = async {
        shutdown.cancelled().await;
        tokio::time::sleep(timeout + SHUTDOWN_GRACE).await;
    };
    let served = tokio::select! {
        biased;
        served = serving => served,
        () = second_signal => Ok(()),
        () = out_of_time => Ok(()),
    };
    workers.shutdown().await;
    served
}
