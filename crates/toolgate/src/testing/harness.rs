//! Entry points for the code that `#[toolgate::test]` generates: one runtime per run, one combined result.

use std::any::Any;
use std::fmt::{Debug, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{IntoServer, TestClient, TestVersion};

/// Return type of a test function.
#[diagnostic::on_unimplemented(
    message = "a test cannot return `{Self}`",
    note = "return nothing, or a `Result<(), _>` whose error implements `Debug`"
)]
pub trait TestOutcome {
    #[doc(hidden)]
    fn into_failure(self) -> Option<String>;
}

impl TestOutcome for () {
    fn into_failure(self) -> Option<String> {
        None
    }
}

impl<E: Debug> TestOutcome for Result<(), E> {
    fn into_failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Runs a test once per protocol version, each time with a new server, client and runtime.
///
/// # Panics
/// If a run fails. The message lists the versions that failed.
#[track_caller]
pub fn test_each_version<M, S, F>(
    versions: &[TestVersion],
    server: impl Fn() -> M,
    test: impl Fn(TestClient) -> F,
) where
    M: Future<Output = S>,
    S: IntoServer,
    F: Future<Output: TestOutcome>,
{
    let mut failures = Vec::new();
    for version in versions {
        let run = || block_on(async { test(TestClient::new(server().await, *version)).await.into_failure() });
        let failure =
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Some(panic_message(&*panic)));
        if let Some(failure) = failure {
            // The panic hook has printed its message without the version.
            eprintln!("... in protocol version {version}");
            failures.push((version, failure));
        }
    }
    if failures.is_empty() {
        return;
    }
    let report = failures.iter().fold(String::new(), |mut report, (version, failure)| {
        let _ = write!(report, "\n  {version}: {}", failure.replace('\n', "\n    "));
        report
    });
    panic!("failed in {} of {} protocol versions:{report}", failures.len(), versions.len());
}

/// Runs a test that takes no client.
///
/// # Panics
/// If the test returns an error.
#[track_caller]
pub fn test_once<F: Future<Output: TestOutcome>>(test: impl FnOnce() -> F) {
    if let Some(failure) = block_on(async { test().await.into_failure() }) {
        panic!("{failure}");
    }
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(test),
        Err(error) => panic!("cannot build a tokio runtime: {error}"),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
