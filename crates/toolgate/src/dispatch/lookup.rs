//! Lookup in the registry: which calls are supported, similar tool names, completers.

use toolgate_wire::ProtocolError;
use toolgate_wire::model::{Call, CompleteParams, CompletionReference};

use crate::handler::CompleteFn;
use crate::registry::{Registry, Snapshot, View};
use crate::request::truncate_chars;
use crate::util::similar::is_similar;

/// Whether the server has the capability that a call needs. Without it, the method does not exist.
pub(super) fn is_supported(registry: &Registry, call: &Call) -> bool {
    let features = registry.features();
    match call {
        Call::ListTools { .. } | Call::CallTool { .. } => features.tools,
        Call::ListResources { .. } | Call::ListTemplates { .. } | Call::ReadResource { .. } => {
            features.resources
        }
        Call::ListPrompts { .. } | Call::GetPrompt { .. } => features.prompts,
        Call::Complete(_) => features.completions,
        Call::GetTask { .. }
        | Call::UpdateTask { .. }
        | Call::CancelTask { .. }
        | Call::ListTasks { .. }
        | Call::TaskResult { .. }
        | Call::CreateTask { .. } => features.tasks,
        _ => true,
    }
}

/// The error for an unknown tool, with a similar name that the caller may see.
pub(super) fn unknown_tool(snapshot: &Snapshot, view: View<'_>, name: &str) -> ProtocolError {
    let visible = snapshot.tools.iter().filter(|entry| view.shows_tool(&entry.tool.name, &entry.tool.hints));
    let mut names = visible.map(|entry| entry.tool.name.as_str());
    ProtocolError::tool_not_found(name, names.find(|known| is_similar(known, name)))
}

/// Finds the completer of an argument. Returns `None` if the argument has none.
pub(super) fn find_completer(
    snapshot: &Snapshot,
    view: View<'_>,
    params: &CompleteParams,
) -> Result<Option<CompleteFn>, ProtocolError> {
    let CompleteParams { completion_ref: reference, argument, .. } = params;
    let completers = match reference {
        CompletionReference::Prompt(name) => {
            let entry = snapshot.prompts.get(name).filter(|_| view.shows_prompt(name));
            let entry = entry.ok_or_else(|| ProtocolError::prompt_not_found(name))?;
            &entry.completers
        }
        CompletionReference::Resource(uri) => {
            match snapshot.templates.get(uri).filter(|_| view.shows_resource(uri)) {
                Some(entry) => &entry.completers,
                None => match snapshot.resources.get(uri).filter(|_| view.shows_resource(uri)) {
                    Some(entry) => &entry.completers,
                    None => {
                        return Err(ProtocolError::invalid_params(format!(
                            "unknown resource template: {}",
                            truncate_chars(uri, 128)
                        )));
                    }
                },
            }
        }
        _ => return Err(ProtocolError::invalid_params("unknown kind of completion reference")),
    };
    Ok(completers.get(argument).cloned())
}
