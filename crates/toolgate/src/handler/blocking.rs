//! Plain functions as handlers: they run on a thread of the runtime's blocking pool, where they may block.
//!
//! Their results are converted on that thread too, because they need not be `Send`.

use std::future::pending;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use schemars::Schema;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use toolgate_wire::model::{PromptOutput, ToolOutput};

use super::{HandlerFailure, IntoContents, IntoOutput, IntoPrompt, ReadOutcome};
use crate::util::spawn;

/// Maximum number of functions that run at the same time, in all servers of the process; further calls wait. A function runs
/// on when its call is cancelled, so without a limit, cancelled calls could take all threads of the blocking pool (512 by
/// default), which also verify passwords and access files.
const MAX_RUNNING: usize = 256;

static RUNNING: Semaphore = Semaphore::const_new(MAX_RUNNING);

/// A return value of type `T` that was converted on the thread of its function.
#[doc(hidden)]
#[derive(Debug)]
pub struct BlockingOutput<T, O> {
    output: Result<O, HandlerFailure>,
    of: PhantomData<fn() -> T>,
}

/// Runs a plain function as the handler of a tool.
#[doc(hidden)]
pub async fn run_blocking_tool<T: IntoOutput>(
    function: impl FnOnce() -> T + Send + 'static,
) -> BlockingOutput<T, ToolOutput> {
    BlockingOutput { output: run_blocking(move || function().into_output()).await, of: PhantomData }
}

/// Runs a plain function as the handler of a resource or template.
#[doc(hidden)]
pub async fn run_blocking_read<T: IntoContents>(
    function: impl FnOnce() -> T + Send + 'static,
) -> BlockingOutput<T, ReadOutcome> {
    // The URI is filled in afterwards.
    BlockingOutput { output: run_blocking(move || function().into_contents("")).await, of: PhantomData }
}

/// Runs a plain function as the handler of a prompt.
#[doc(hidden)]
pub async fn run_blocking_prompt<T: IntoPrompt>(
    function: impl FnOnce() -> T + Send + 'static,
) -> BlockingOutput<T, PromptOutput> {
    BlockingOutput { output: run_blocking(move || function().into_prompt()).await, of: PhantomData }
}

/// Runs a function on a thread of the blocking pool, in the current `tracing` span. A panic is propagated. Without a runtime,
/// the function runs here.
///
/// Cancel safe: yes. If it is dropped before the function has started, the function does not run; otherwise its result is
/// dropped.
#[doc(hidden)]
pub async fn run_blocking<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> T {
    if Handle::try_current().is_err() {
        return function();
    }
    // Never closed. Without a permit, the function would only lose its limit.
    let permit = RUNNING.acquire().await.ok();
    let span = tracing::Span::current();
    let run = move || {
        let _permit = permit;
        span.in_scope(|| catch_unwind(AssertUnwindSafe(function)))
    };
    match spawn::spawn_blocking(run).abort_on_drop().await {
        Some(Ok(output)) => output,
        Some(Err(panic)) => resume_unwind(panic),
        // The runtime shuts down, and drops this future.
        None => pending().await,
    }
}

#[diagnostic::do_not_recommend]
impl<T: IntoOutput> IntoOutput for BlockingOutput<T, ToolOutput> {
    fn schema() -> Option<Schema> {
        T::schema()
    }

    fn into_output(self) -> Result<ToolOutput, HandlerFailure> {
        self.output
    }
}

#[diagnostic::do_not_recommend]
impl<T: IntoContents> IntoContents for BlockingOutput<T, ReadOutcome> {
    fn mime() -> Option<&'static str> {
        T::mime()
    }

    fn into_contents(self, uri: &str) -> Result<ReadOutcome, HandlerFailure> {
        let mut outcome = self.output?;
        if let ReadOutcome::Contents(contents) = &mut outcome {
            contents.iter_mut().filter(|one| one.uri.is_empty()).for_each(|one| one.uri = uri.to_owned());
        }
        Ok(outcome)
    }
}

#[diagnostic::do_not_recommend]
impl<T: IntoPrompt> IntoPrompt for BlockingOutput<T, PromptOutput> {
    fn into_prompt(self) -> Result<PromptOutput, HandlerFailure> {
        self.output
    }
}
