//! Errors of loading a source.

use std::error::Error;
use std::fmt;

use crate::source::Problem;

/// Why a source cannot be served: an invalid setting, an unreadable document, a wrong statement.
///
/// The message lists every problem. [`SourceError::problems`] returns them separately.
///
/// ```
/// # #[cfg(feature = "openapi")]
/// # async fn run() {
/// use toolgate_sources::{OpenApi, SourceErrorKind};
///
/// let error = OpenApi::from_file("no-such-file.yaml").load().await.unwrap_err();
/// assert_eq!(error.kind(), SourceErrorKind::Unavailable);
/// # }
/// # #[cfg(feature = "openapi")]
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run());
/// ```
pub struct SourceError(Box<Repr>);

struct Repr {
    kind: SourceErrorKind,
    problems: Vec<SourceProblem>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of a [`SourceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// A setting is invalid or missing. The subject of the problem is the method that sets it.
    InvalidSetting,
    /// A document is not a valid OpenAPI description, or has no operation that can be served.
    InvalidDocument,
    /// A SQL statement or its arguments are invalid. The subject of the problem is the name of the tool.
    InvalidQuery,
    /// A document cannot be read or fetched, or a database cannot be reached.
    Unavailable,
}

/// One reason why a source cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceProblem {
    subject: String,
    message: String,
}

impl SourceProblem {
    pub(crate) fn new(subject: impl Into<String>, message: impl Into<String>) -> SourceProblem {
        SourceProblem { subject: subject.into(), message: message.into() }
    }

    /// The setting, document or tool that the problem is about.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The problem and how to solve it, without the subject.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}

impl SourceError {
    pub(crate) fn new(
        kind: SourceErrorKind,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> SourceError {
        SourceError::from_problems(kind, vec![SourceProblem::new(subject, message)])
    }

    pub(crate) fn from_problems(kind: SourceErrorKind, problems: Vec<SourceProblem>) -> SourceError {
        SourceError(Box::new(Repr { kind, problems, source: None }))
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> SourceError {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> SourceErrorKind {
        self.0.kind
    }

    /// All problems; there is at least one.
    #[must_use]
    pub fn problems(&self) -> &[SourceProblem] {
        &self.0.problems
    }
}

/// Names the method that sets what a problem of a description is about.
pub(crate) fn setting_problems(
    problems: Vec<Problem>,
    method_of: impl Fn(&str) -> String,
) -> Vec<SourceProblem> {
    problems
        .into_iter()
        .map(|problem| SourceProblem::new(method_of(&problem.path), problem.message))
        .collect()
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SourceError {
    // `fn main() -> Result<(), SourceError>` prints the `Debug` form, which should be readable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
