//! Opens connections to backends: resolves the host through the egress guard, connects to one of its addresses, and
//! starts TLS for https.
//!
//! Nothing else resolves the name, so the address that was checked is the address that is used.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::source::call_observer::CallObserver;
use crate::source::egress::{EgressError, EgressGuard};

/// Shared by all outgoing connections: the egress guard and the root certificates of the system. The certificates are
/// read from disk when first needed, not at start.
#[derive(Debug)]
pub struct OutboundContext {
    pub egress: EgressGuard,
    roots: OnceLock<RootCertStore>,
    observer: Option<Arc<dyn CallObserver>>,
}

impl OutboundContext {
    pub fn new(egress: EgressGuard) -> Arc<OutboundContext> {
        Arc::new(OutboundContext { egress, roots: OnceLock::new(), observer: None })
    }

    /// A context that reports every request to an observer.
    pub fn observed(egress: EgressGuard, observer: Arc<dyn CallObserver>) -> Arc<OutboundContext> {
        Arc::new(OutboundContext { egress, roots: OnceLock::new(), observer: Some(observer) })
    }

    /// The observer, if it records calls at the moment.
    pub(super) fn observer(&self) -> Option<&dyn CallObserver> {
        self.observer.as_deref().filter(|observer| observer.is_enabled())
    }

    fn roots(&self) -> &RootCertStore {
        self.roots.get_or_init(|| {
            let loaded = rustls_native_certs::load_native_certs();
            for error in &loaded.errors {
                tracing::warn!(%error, "cannot read some system certificates");
            }
            let mut roots = RootCertStore::empty();
            let (_, n_invalid) = roots.add_parsable_certificates(loaded.certs);
            if n_invalid > 0 {
                tracing::debug!(n_invalid, "cannot parse some system certificates");
            }
            roots
        })
    }
}

/// The connector of one configured connection.
#[derive(Clone)]
pub(super) struct EgressConnector {
    outbound: Arc<OutboundContext>,
    /// Trusted in addition to the system's root certificates.
    extra_roots: Arc<[CertificateDer<'static>]>,
    tls: Arc<OnceLock<Result<TlsConnector, String>>>,
    connect_timeout: Duration,
}

/// Why connecting failed. The text is safe to show to callers.
#[derive(Debug)]
pub(super) enum ConnectError {
    Egress(EgressError),
    TimedOut,
    /// The host is unreachable or refused the connection.
    Unreachable(io::ErrorKind),
    /// The TLS handshake failed.
    Tls,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Egress(error) => error.fmt(f),
            ConnectError::TimedOut => f.write_str("connecting timed out"),
            ConnectError::Unreachable(kind) => write!(f, "cannot connect: {kind}"),
            ConnectError::Tls => f.write_str("TLS handshake failed: invalid certificate or protocol"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Parses CA certificates from PEM text.
pub(super) fn parse_ca_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => Err("it contains no certificate".into()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("this is not a list of certificates: {error}")),
    }
}

impl EgressConnector {
    pub(super) fn new(
        outbound: Arc<OutboundContext>,
        extra_roots: Vec<CertificateDer<'static>>,
        connect_timeout: Duration,
    ) -> EgressConnector {
        EgressConnector { outbound, extra_roots: extra_roots.into(), tls: Arc::default(), connect_timeout }
    }

    /// Connects to the host of a URI.
    ///
    /// Cancel safe: yes, because dropping it closes the connection.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<MaybeTlsStream, ConnectError> {
        match tokio::time::timeout(self.connect_timeout, self.connect_inner(uri)).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::TimedOut),
        }
    }

    async fn connect_inner(&self, uri: &Uri) -> Result<MaybeTlsStream, ConnectError> {
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let addresses = self.outbound.egress.resolve(host, port).await.map_err(ConnectError::Egress)?;
        let mut failure = io::ErrorKind::NotFound;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Without `TCP_NODELAY` the connection is only slower.
                    let _ = stream.set_nodelay(true);
                    return if is_tls {
                        self.connect_tls(host, stream).await
                    } else {
                        Ok(MaybeTlsStream::Plain(stream))
                    };
                }
                Err(error) => failure = error.kind(),
            }
        }
        Err(ConnectError::Unreachable(failure))
    }

    async fn connect_tls(&self, host: &str, stream: TcpStream) -> Result<MaybeTlsStream, ConnectError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::Tls)?;
        let connector = self.tls_connector().await?;
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(MaybeTlsStream::Tls(Box::new(stream))),
            Err(error) => {
                tracing::warn!(host, %error, "TLS handshake with a backend failed");
                Err(ConnectError::Tls)
            }
        }
    }

    async fn tls_connector(&self) -> Result<TlsConnector, ConnectError> {
        if self.tls.get().is_none() {
            let connector = self.clone();
            // Reads certificate files, which blocks.
            let result = tokio::task::spawn_blocking(move || {
                connector.tls.get_or_init(|| connector.build_tls_connector()).is_ok()
            });
            let _ = result.await;
        }
        let result = self.tls.get_or_init(|| self.build_tls_connector());
        result.clone().map_err(|error| {
            tracing::warn!(error, "cannot set up TLS");
            ConnectError::Tls
        })
    }

    fn build_tls_connector(&self) -> Result<TlsConnector, String> {
        let mut roots = self.outbound.roots().clone();
        for certificate in self.extra_roots.iter() {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

impl Service<Uri> for EgressConnector {
    type Response = TokioIo<MaybeTlsStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<MaybeTlsStream>, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map(TokioIo::new) })
    }
}

/// A TCP or TLS connection.
pub(super) enum MaybeTlsStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for MaybeTlsStream {
    fn connected(&self) -> Connected {
        let is_http2 = match self {
            MaybeTlsStream::Plain(_) => false,
            MaybeTlsStream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        };
        if is_http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
