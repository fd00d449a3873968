//! Failures that stay in the house: told to whoever runs it, never to a peer.

use std::fmt;

/// What kept a server from starting or from going on.
///
/// ```
/// # use toolgate::{ErrorKind, Server};
/// let twice = Server::new("shop", "1.0.0").tool("a", || async { "" }).tool("a", || async { "" });
/// let error = twice.build().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Description);
/// assert!(error.to_string().contains("tool `a`: there are two of them"));
/// ```
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    detail: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A server was described in a way that cannot work. The detail lists every fault at once.
    InvalidConfig,
    /// A server that was called from within its own process would not answer.
    Rejected,
    /// Nothing was found where things to offer were looked for.
    Scan,
    /// The operating system refused: an address in use, a pipe that broke.
    Io,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error(Box::new(Repr { kind, detail: detail.into(), source: None }))
    }

    pub(crate) fn io(detail: impl Into<String>, source: std::io::Error) -> Error {
        Error(Box::new(Repr { kind: ErrorKind::Io, detail: detail.into(), source: Some(Box::new(source)) }))
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    // `fn main() -> Result<(), Error>` prints this one: people should be able to read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
