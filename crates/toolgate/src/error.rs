//! Errors of building and serving, for the operator. They are never sent to a client; see `ProtocolError` for those.

use std::fmt;

/// Why a server could not be built, started or continued.
///
/// ```
/// # use toolgate::Server;
/// # use toolgate::error::ErrorKind;
/// let twice = Server::new("shop", "1.0.0").tool("a", || async { "" }).tool("a", || async { "" });
/// let error = twice.build().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidConfig);
/// assert!(error.to_string().contains("tool `a`: there are two of them"));
/// ```
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    detail: String,
    problems: Vec<BuildProblem>,
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

/// One reason why a server cannot be built, and the item or setting it is about. See [`Error::problems`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildProblem {
    kind: ProblemKind,
    name: String,
    message: String,
    is_duplicate: bool,
}

/// The kind of item that a [`BuildProblem`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A tool, by its name.
    Tool,
    /// A resource, by its URI.
    Resource,
    /// A resource template, by its URI template.
    Template,
    /// A prompt, by its name.
    Prompt,
    /// A setting, by the name of the builder method.
    Setting,
    /// The server as a whole; the name is empty.
    General,
}

impl BuildProblem {
    pub(crate) fn new(kind: ProblemKind, name: &str, message: impl Into<String>) -> BuildProblem {
        BuildProblem { kind, name: name.to_owned(), message: message.into(), is_duplicate: false }
    }

    pub(crate) fn duplicate(kind: ProblemKind, name: &str) -> BuildProblem {
        BuildProblem { is_duplicate: true, ..BuildProblem::new(kind, name, "there are two of them") }
    }

    pub(crate) fn setting(name: &str, message: impl Into<String>) -> BuildProblem {
        BuildProblem::new(ProblemKind::Setting, name, message)
    }

    pub(crate) fn general(message: String) -> BuildProblem {
        BuildProblem::new(ProblemKind::General, "", message)
    }

    /// The kind of item that the problem is about.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The name or URI of the item, or the name of the setting; empty for [`ProblemKind::General`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problem, without the name of the item.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the problem is that two items have the same name or URI.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }
}

impl fmt::Display for BuildProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BuildProblem { kind, name, message, .. } = self;
        match kind {
            ProblemKind::Tool => write!(f, "tool `{name}`: {message}"),
            ProblemKind::Resource => write!(f, "resource `{name}`: {message}"),
            ProblemKind::Template => write!(f, "template `{name}`: {message}"),
            ProblemKind::Prompt => write!(f, "prompt `{name}`: {message}"),
            ProblemKind::Setting => write!(f, "{name}: {message}"),
            ProblemKind::General => f.write_str(message),
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error(Box::new(Repr { kind, detail: detail.into(), problems: Vec::new(), source: None }))
    }

    pub(crate) fn io(detail: impl Into<String>, source: std::io::Error) -> Error {
        let source: Box<dyn std::error::Error + Send + Sync> = Box::new(source);
        Error(Box::new(Repr { source: Some(source), ..*Error::new(ErrorKind::Io, detail).0 }))
    }

    /// Lists the problems below a headline, one in a line.
    pub(crate) fn invalid_config(headline: &str, problems: Vec<BuildProblem>) -> Error {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let detail = format!("{headline}:\n  {}", lines.join("\n  "));
        Error(Box::new(Repr { problems, ..*Error::new(ErrorKind::InvalidConfig, detail).0 }))
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The problems that kept a server from being built, one for each item or setting; empty for other errors.
    ///
    /// ```
    /// # use toolgate::Server;
    /// # use toolgate::error::ProblemKind;
    /// let error = Server::new("shop", "1.0.0").tool("a b", || async { "" }).build().unwrap_err();
    /// assert_eq!(error.problems()[0].kind(), ProblemKind::Tool);
    /// assert_eq!(error.problems()[0].name(), "a b");
    /// ```
    #[must_use]
    pub fn problems(&self) -> &[BuildProblem] {
        &self.0.problems
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
