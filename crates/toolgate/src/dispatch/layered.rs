//! Starting handlers: directly, or at the end of the server's layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolgate_wire::model::{PromptArgument, PromptOutput, ToolOutput};
use toolgate_wire::{ProtocolError, RawJson};

use super::arguments::{Coercion, find_unknown};
use crate::handler::layer::{Call, CallArguments, CallOutput, CallResult, LayerError, Layers};
use crate::handler::{CompleteFn, Context, ExtractError, HandlerFailure, ReadFn, ReadOutcome};
use crate::registry::{PromptEntry, Roots, ToolEntry, read_in_roots};
use crate::request::BoxFuture;
use crate::seal::error_reference;

/// The future of a handler.
type HandlerFuture<T> = BoxFuture<'static, Result<T, HandlerFailure>>;

/// Starts the handler of a tool. Without layers, coercion is left to the caller.
pub(super) fn run_tool(
    entry: &Arc<ToolEntry>,
    cx: &Context,
    arguments: &RawJson,
    coercion: Coercion,
) -> HandlerFuture<ToolOutput> {
    match cx.layers() {
        None => (entry.run)(cx, arguments),
        Some(layers) => run_layered_tool(layers, entry, cx, arguments.clone(), coercion),
    }
}

#[cold]
fn run_layered_tool(
    layers: &Layers,
    entry: &Arc<ToolEntry>,
    cx: &Context,
    arguments: RawJson,
    coercion: Coercion,
) -> HandlerFuture<ToolOutput> {
    let (name, entry) = (&entry.tool.name, Arc::clone(entry));
    let handler = move |call: Call| -> BoxFuture<'static, CallResult> {
        let entry = Arc::clone(&entry);
        Box::pin(async move {
            let is_changed = call.is_changed();
            let (cx, arguments) = call.into_parts();
            let result = run_checked_tool(&entry, &cx, arguments.into_json(), is_changed, coercion).await;
            result.map(CallOutput::Tool).map_err(|failure| LayerError::from_handler(failure, &cx))
        })
    };
    let run = layers.run("tools/call", name, CallArguments::Json(arguments), cx.clone(), handler);
    Box::pin(async move {
        match run.await {
            Ok(CallOutput::Tool(output)) => Ok(output),
            other => Err(failure_of(other)),
        }
    })
}

/// Runs the handler of a tool with arguments that a layer may have changed, which must be validated then.
async fn run_checked_tool(
    entry: &ToolEntry,
    cx: &Context,
    arguments: RawJson,
    is_changed: bool,
    coercion: Coercion,
) -> Result<ToolOutput, HandlerFailure> {
    if is_changed && let Some(errors) = find_unknown(entry, &arguments, cx.caller()) {
        return Err(HandlerFailure::Extract(ExtractError::Arguments(errors.joined())));
    }
    if is_changed
        && entry.validator.is_precheck_required()
        && let Some(errors) = entry.validator.find_errors(&arguments)
    {
        return match coercion.coerce(entry, &arguments) {
            Some(coerced) => (entry.run)(cx, &coerced).await,
            None => Err(HandlerFailure::Extract(ExtractError::Arguments(errors.joined()))),
        };
    }
    match (entry.run)(cx, &arguments).await {
        // Deserialization rejected the arguments, so the handler has not run.
        Err(HandlerFailure::Extract(ExtractError::Arguments(error))) => {
            match coercion.coerce(entry, &arguments) {
                Some(coerced) => (entry.run)(cx, &coerced).await,
                None => Err(HandlerFailure::Extract(ExtractError::Arguments(error))),
            }
        }
        result => result,
    }
}

/// Starts the handler of a resource or template.
pub(super) fn run_read(
    run: &ReadFn,
    roots: Option<Arc<Roots>>,
    cx: &Context,
    uri: &str,
    variables: Vec<(String, String)>,
) -> HandlerFuture<ReadOutcome> {
    let Some(layers) = cx.layers() else {
        return read_in_roots(roots, run, cx.clone(), uri.to_owned(), variables);
    };
    let (run, read_uri) = (Arc::clone(run), Arc::<str>::from(uri));
    let handler = move |call: Call| -> BoxFuture<'static, CallResult> {
        let (cx, variables) = call.into_parts();
        let read =
            read_in_roots(roots.clone(), &run, cx.clone(), (*read_uri).to_owned(), variables.into_text());
        let uri = Arc::clone(&read_uri);
        Box::pin(async move {
            match read.await {
                Ok(ReadOutcome::Contents(contents)) => Ok(CallOutput::Resource(contents)),
                Ok(ReadOutcome::NotFound) => Err(ProtocolError::resource_not_found(&uri).into()),
                Err(failure) => Err(LayerError::from_handler(failure, &cx)),
            }
        })
    };
    let run = layers.run("resources/read", uri, CallArguments::Text(variables), cx.clone(), handler);
    Box::pin(async move {
        match run.await {
            Ok(CallOutput::Resource(contents)) => Ok(ReadOutcome::Contents(contents)),
            other => Err(failure_of(other)),
        }
    })
}

/// Starts the handler of a prompt.
pub(super) fn run_prompt(
    entry: &Arc<PromptEntry>,
    cx: &Context,
    arguments: Vec<(String, String)>,
) -> HandlerFuture<PromptOutput> {
    let Some(layers) = cx.layers() else {
        return (entry.run)(cx.clone(), arguments);
    };
    let (name, entry) = (&entry.prompt.name, Arc::clone(entry));
    let handler = move |call: Call| -> BoxFuture<'static, CallResult> {
        let is_changed = call.is_changed();
        let (cx, arguments) = call.into_parts();
        let arguments = arguments.into_text();
        if is_changed && let Err(error) = check_prompt_arguments(&entry, &arguments.iter().cloned().collect())
        {
            return Box::pin(async move { Err(error.into()) });
        }
        let run = (entry.run)(cx.clone(), arguments);
        Box::pin(async move {
            run.await.map(CallOutput::Prompt).map_err(|failure| LayerError::from_handler(failure, &cx))
        })
    };
    let run = layers.run("prompts/get", name, CallArguments::Text(arguments), cx.clone(), handler);
    Box::pin(async move {
        match run.await {
            Ok(CallOutput::Prompt(output)) => Ok(output),
            other => Err(failure_of(other)),
        }
    })
}

/// Checks that required arguments of a prompt are there, and that its own validation accepts them all.
pub(super) fn check_prompt_arguments(
    entry: &PromptEntry,
    arguments: &BTreeMap<String, String>,
) -> Result<(), ProtocolError> {
    let is_missing = |known: &&PromptArgument| known.required && !arguments.contains_key(&known.name);
    if let Some(missing) = entry.prompt.arguments.iter().find(is_missing) {
        return Err(ProtocolError::missing_prompt_argument(&missing.name));
    }
    match &entry.validate {
        None => Ok(()),
        Some(validate) => validate(arguments).map_err(ProtocolError::invalid_params),
    }
}

/// Starts a completer. `argument`: the name of the argument, and the text typed so far.
pub(super) fn run_completer(
    completer: &CompleteFn,
    cx: &Context,
    name: &str,
    argument: (String, String),
) -> HandlerFuture<Vec<String>> {
    let Some(layers) = cx.layers() else {
        return completer(cx.clone(), argument.1);
    };
    let (completer, argument_name) = (Arc::clone(completer), argument.0.clone());
    let handler = move |call: Call| -> BoxFuture<'static, CallResult> {
        let (cx, arguments) = call.into_parts();
        let prefix = arguments.into_text().into_iter().find(|(name, _)| *name == argument_name);
        let run = completer(cx.clone(), prefix.map(|(_, text)| text).unwrap_or_default());
        Box::pin(async move {
            run.await.map(CallOutput::Completion).map_err(|failure| LayerError::from_handler(failure, &cx))
        })
    };
    let arguments = CallArguments::Text(vec![argument]);
    let run = layers.run("completion/complete", name, arguments, cx.clone(), handler);
    Box::pin(async move {
        match run.await {
            Ok(CallOutput::Completion(values)) => Ok(values),
            other => Err(failure_of(other)),
        }
    })
}

/// The failure of a call whose layers returned an error, or the output of another kind of call.
fn failure_of(result: CallResult) -> HandlerFailure {
    match result {
        Err(error) => error.into_failure(),
        Ok(_) => {
            let reference = error_reference();
            tracing::error!(
                reference,
                "a layer returned the wrong variant of `CallOutput` for the method of its call"
            );
            LayerError::from(ProtocolError::internal(&reference)).into_failure()
        }
    }
}
