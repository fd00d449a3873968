//! The porch: bytes in, bytes out.
//!
//! Transports know headers and sockets. They know no methods, no tools, no rights and no editions.

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

/// Serves HTTP on a listener until the process is asked to end or `over` falls. `end` is called when it is asked to;
/// `settle` waits for what clients left behind. Whoever asks twice, or waits longer than `drain`, is not kept.
#[cfg(feature = "http")]
pub(crate) async fn run(
    listener: tokio::net::TcpListener,
    service: impl listen::Serve,
    options: listen::Options,
    over: tokio_util::sync::CancellationToken,
    drain: std::time::Duration,
    end: impl Fn(),
    settle: impl Future<Output = ()>,
) -> std::io::Result<()> {
    const SHUTDOWN_GRACE: std::time::Duration = std::time::Duration::from_secs(1);
    let asked = signal::shutdown_signal();
    // They are there until everything has ended: what clients left behind may run on them.
    let cores = listen::Workers::new(options.n_threads())?;
    let serving = async {
        let served = listen::serve(listener, service, options, &cores, over.clone()).await;
        settle.await;
        served
    };
    let asked_twice = async {
        asked.await;
        let again = signal::shutdown_signal();
        end();
        again.await;
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    let out_of_time = async {
        over.cancelled().await;
        tokio::time::sleep(drain + SHUTDOWN_GRACE).await;
    };
    let served = tokio::select! {
        biased;
        served = serving => served,
        () = asked_twice => Ok(()),
        () = out_of_time => Ok(()),
    };
    cores.shutdown().await;
    served
}
