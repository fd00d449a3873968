//! Errors for the operator; they are never sent to a peer.

use std::fmt;

/// Why a server could not start or continue.
/// ```
/// # use toolgate::{ErrorKind, Server};
/// let twice = Server::new("shop", "1.0.0").tool("a", || async { "" }).tool("a", || async { "" });
/// let error = twice.build().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidConfig);
/// assert!(error.to_string().contains("tool `a`: there are two of them"));
/// ```
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    detail: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration of a server is invalid. The message lists every problem.
    InvalidConfig,
    /// A call from within the process was rejected by the server.
    Rejected,
    /// No items were found where they were collected from.
    Scan,
    /// The operating system reported an error: an address in use, a broken pipe.
    Io,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error(Box::new(Repr { kind, detail: detail.into(), source: None }))
    }

    pub(crate) fn io(detail: impl Into<String>, source: std::io::Error) -> Error {
        Error(Box::new(Repr { kind: ErrorKind::Io, detail: detail.into(), source: Some(Box::new(source)) }))
    }

    /// The kind of the error.
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
    // `fn main() -> Result<(), Error>` prints the `Debug` form, which should be readable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
