//! Lookup in the registry: which calls are supported, similar tool names, completers.

use toolgate_wire::ProtocolError;
use toolgate_wire::model::{Call, CompleteParams, CompletionReference};

use crate::handler::CompleteFn;
use crate::registry::{Registry, Snapshot, View};
use crate::request::truncate_chars;

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
    let names = snapshot.tools.iter().map(|entry| entry.tool.name.as_str());
    ProtocolError::tool_not_found(
        name,
        { names }.find(|known| view.shows_tool(known) && is_similar(known, name)),
    )
}

/// Whether two names differ only in case and separators, or in one character.
fn is_similar(known: &str, name: &str) -> bool {
    let normalize = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    if name.len() > 128 {
        return false;
    }
    let (known, name) = (normalize(known), normalize(name));
    let same_start = known.iter().zip(&name).take_while(|(a, b)| a == b).count();
    let rest = known.len().max(name.len()) - same_start;
    let same_end =
        known[same_start..].iter().rev().zip(name[same_start..].iter().rev()).take_while(|(a, b)| a == b);
    rest - same_end.count() <= 1 && same_start > 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_in_a_tool_name_is_recognized() {
        assert!(is_similar("add", "ad"));
        assert!(is_similar("echo_message", "echoMessage"));
        assert!(is_similar("search", "serch"));
        assert!(!is_similar("search", "delete"));
        assert!(!is_similar("add", "sub"));
    }
}
