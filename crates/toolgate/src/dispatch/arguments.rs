//! Validates the arguments of a tool call against the schema, and coerces them where that is allowed.

use std::panic::AssertUnwindSafe;

use toolgate_wire::model::{ClientCapabilities, ToolOutput};
use toolgate_wire::{ProtocolError, RawJson};

use super::guarded::{check_replay_state, panic_message};
use crate::handler::ClientChannel;
use crate::registry::{ToolEntry, validate_header_params};
use crate::request::{ArgumentErrors, CallError, Caller, ToolFailure};
use crate::seal::error_reference;

/// Whether arguments of the wrong type are coerced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coercion {
    /// Arguments of the wrong type are rejected.
    Never,
    /// Strings are parsed as the expected type.
    Strings,
    /// Like `Strings`, and any JSON is accepted where a string is expected.
    All,
}

impl Coercion {
    pub(super) fn new(is_strict: bool, caller: &Caller) -> Coercion {
        match (is_strict, caller.is_lenient) {
            (true, _) => Coercion::Never,
            (false, false) => Coercion::Strings,
            (false, true) => Coercion::All,
        }
    }

    /// Coerces invalid arguments. Returns `None` if the result is not valid either.
    pub(super) fn coerce(self, entry: &ToolEntry, arguments: &RawJson) -> Option<RawJson> {
        match self {
            Coercion::Never => None,
            Coercion::Strings => entry.validator.coerce(arguments, false),
            Coercion::All => entry.validator.coerce(arguments, true),
        }
    }
}

/// Validates the arguments of a tool call, and whether the client may call the tool. Returns the arguments, prepared and
/// coerced.
pub(super) fn prepare_arguments(
    entry: &ToolEntry,
    arguments: Option<RawJson>,
    coercion: Coercion,
    caller: &Caller,
    channel: &dyn ClientChannel,
) -> Result<RawJson, CallError> {
    let mut arguments = arguments.unwrap_or_else(RawJson::empty_object);
    if caller.requires_header_params && !entry.header_params.is_empty() {
        validate_header_params(&entry.header_params, &arguments, &caller.headers)?;
    }
    check_required_capabilities(entry, caller)?;
    check_replay_state(channel)?;
    if let Some(prepare) = &entry.prepare {
        let value = arguments.to_value();
        let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| prepare(value)));
        arguments = RawJson::from(prepared.map_err(|panic| {
            let (reference, panic) = (error_reference(), panic_message(panic.as_ref()));
            tracing::error!(tool = %entry.tool.name, reference, panic, "preparing the arguments panicked");
            let message = format!("the tool failed unexpectedly, ref {reference}");
            let failure = ToolFailure::Internal { reference: Some(reference.into()) };
            CallError::Tool(failure, Box::new(ToolOutput::error(message)))
        })?);
    }
    if entry.validator.is_precheck_required()
        && let Some(errors) = entry.validator.find_errors(&arguments)
    {
        match coercion.coerce(entry, &arguments) {
            Some(coerced) => arguments = coerced,
            None => {
                let mut all = find_unknown(entry, &arguments, caller).unwrap_or_default();
                all.0.extend(errors.0);
                return Err(invalid_arguments(all));
            }
        }
    }
    Ok(arguments)
}

/// Returns the unknown arguments, if the tool rejects them. Costs a pass over the arguments, so a call that runs at once notices
/// them when they are deserialized instead.
pub(super) fn find_unknown(
    entry: &ToolEntry,
    arguments: &RawJson,
    caller: &Caller,
) -> Option<ArgumentErrors> {
    let known = entry.known_arguments.as_ref().filter(|_| rejects_unknown(entry, caller))?;
    known.has_unknown(arguments).then(|| known.find_errors(arguments))
}

/// Whether a tool rejects arguments that it does not know. A lenient dialect ignores them.
pub(super) fn rejects_unknown(entry: &ToolEntry, caller: &Caller) -> bool {
    entry.known_arguments.is_some() && !caller.is_lenient
}

/// Returns the errors of arguments that could not be deserialized. Those of the schema are better than the `message` of serde,
/// because they name the parameter.
pub(super) fn deserialization_errors(
    entry: &ToolEntry,
    arguments: &RawJson,
    caller: &Caller,
    message: String,
) -> ArgumentErrors {
    let mut errors = find_unknown(entry, arguments, caller).unwrap_or_default();
    errors.0.extend(entry.validator.find_errors(arguments).unwrap_or_default().0);
    if errors.0.is_empty() { message.into() } else { errors }
}

pub(super) fn invalid_arguments(errors: ArgumentErrors) -> CallError {
    let output = Box::new(ToolOutput::error(errors.message()));
    CallError::Tool(ToolFailure::InvalidArguments(errors), output)
}

/// Checks that the client declares the capabilities that a tool requires.
fn check_required_capabilities(entry: &ToolEntry, caller: &Caller) -> Result<(), ProtocolError> {
    let mut missing = entry
        .required_capabilities
        .iter()
        .filter(|capability| !capability.is_supported_by(&caller.client.capabilities))
        .peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let mut capabilities = ClientCapabilities::default();
    missing.for_each(|capability| capability.add_to(&mut capabilities));
    let message = format!("tool `{}` needs capabilities that the client does not declare", entry.tool.name);
    Err(ProtocolError::missing_capability(&capabilities, message))
}
