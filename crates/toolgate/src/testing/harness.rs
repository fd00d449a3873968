//! What `#[toolgate::test]` writes calls of: a runtime for each run, and a verdict over all of them.

use std::any::Any;
use std::fmt::{Debug, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{IntoServer, TestClient, TestVersion};

/// What a test function may end with.
#[diagnostic::on_unimplemented(
    message = "a test cannot end with `{Self}`",
    note = "end it with nothing, or with a `Result<(), _>` whose error can be shown by `{{:?}}`"
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

/// Runs a test once for each revision, each time with a server, a client and a runtime of its own.
///
/// # Panics
/// If it fails in one of them, with the names of those.
#[track_caller]
pub fn test_each_version<M, S, F>(
    revisions: &[TestVersion],
    server: impl Fn() -> M,
    test: impl Fn(TestClient) -> F,
) where
    M: Future<Output = S>,
    S: IntoServer,
    F: Future<Output: TestOutcome>,
{
    let mut faults = Vec::new();
    for revision in revisions {
        let run =
            || block_on(async { test(TestClient::new(server().await, *revision)).await.into_failure() });
        let fault = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Some(panic_message(&*panic)));
        if let Some(fault) = fault {
            // Beside the panic's own message, which knows of no revisions.
            eprintln!("... in revision {revision}");
            faults.push((revision, fault));
        }
    }
    if faults.is_empty() {
        return;
    }
    let told = faults.iter().fold(String::new(), |mut told, (revision, fault)| {
        let _ = write!(told, "\n  {revision}: {}", fault.replace('\n', "\n    "));
        told
    });
    panic!("failed in {} of {} revisions:{told}", faults.len(), revisions.len());
}

/// Runs a test that wants no client.
///
/// # Panics
/// If it ends with an error.
#[track_caller]
pub fn test_once<F: Future<Output: TestOutcome>>(test: impl FnOnce() -> F) {
    if let Some(fault) = block_on(async { test().await.into_failure() }) {
        panic!("{fault}");
    }
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(test),
        Err(error) => panic!("there is no runtime: {error}"),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}
