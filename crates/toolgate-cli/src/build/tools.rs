//! What tools, templates and prompts need beside what they are made of.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::guard::Token;
use toolgate::model::TaskSupport;
use toolgate::{Builder, Context, Principal, Profile, ToolSpec};

use super::result_cache::VaryBy;
use crate::config::{
    Argument, Arguments, BackendConfig, Config, ConnectionKind, Credential, Server, ServerSettings, Task,
    Tool, UpstreamAuth,
};
use crate::source::ToolBackend;
use crate::source::sql::SqlBackend;

/// How a value could go on.
pub(super) type CompletionFn =
    Arc<dyn Fn(String, Context) -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> + Send + Sync>;

/// What a program that was stopped needs to end and to be told of.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// How long a call of a tool may take, where it says so. A program is stopped by its own source, which knows how.
pub(crate) fn call_timeout(tool: &Tool, frame: &ServerSettings) -> Option<Duration> {
    match &tool.backend {
        // As a task it may run as long as that is kept; a call that waits has the time of all calls.
        BackendConfig::Command(_) if tool.task.is_some() && !has_own_timeout(tool) => None,
        BackendConfig::Command(spec) => Some(spec.timeout + KILL_GRACE),
        _ => tool.timeout.filter(|timeout| *timeout != frame.timeout),
    }
}

fn has_own_timeout(tool: &Tool) -> bool {
    tool.timeout.is_some() || tool.node.get("command").is_some_and(|command| command.get("timeout").is_some())
}

/// How calls of a tool become tasks.
pub(super) fn apply_task(spec: ToolSpec, task: Option<Task>) -> ToolSpec {
    let Some(task) = task else { return spec };
    let spec =
        if task.is_required { spec.task(TaskSupport::Required) } else { spec.task(TaskSupport::Optional) };
    let spec = if task.is_resumable { spec.resumable() } else { spec };
    match task.ttl {
        Some(ttl) => spec.task_ttl(ttl),
        None => spec,
    }
}

/// The arguments of a tool that are put right before they are checked, with their schemas.
pub(super) fn arguments_to_clean(tool: &Tool) -> Vec<(String, Value)> {
    let arguments = tool.arguments.list.iter();
    let wanted =
        arguments.filter(|argument| argument.origin.is_none() && argument.clean.unwrap_or(tool.clean));
    wanted.map(|argument| (argument.name.clone(), argument.schema.clone())).collect()
}

/// A credential, whose holder sees no tool that they may not call.
pub(super) fn token(credential: &Credential, server: &Server) -> Token {
    let mut token = Token::new(&credential.secret).attribute("scopes", credential.scopes.clone());
    for (name, value) in &credential.attributes {
        token = token.attribute(name, value.clone());
    }
    if let Some(subject) = &credential.subject {
        token = token.subject(subject);
    }
    match visible_profile(credential, server) {
        Some(profile) => token.profile(profile),
        None => token,
    }
}

/// What the holder of a credential sees, where that is not everything.
fn visible_profile(credential: &Credential, server: &Server) -> Option<Profile> {
    let lacks = |tool: &&Tool| !tool.scopes.iter().all(|scope| credential.scopes.contains(scope));
    let hidden: Vec<&str> = server.tools.iter().filter(lacks).map(|tool| tool.name.as_str()).collect();
    match (&credential.profile, hidden.is_empty()) {
        (None, true) => None,
        (None, false) => Some(Profile::new("scopes").exclude_tools(hidden)),
        (Some(profile), _) => Some(profile.clone().exclude_tools(hidden)),
    }
}

/// Somebody with a password, and all that is known of them.
pub(super) fn add_user(builder: Builder, user: &Credential, server: &Server) -> Builder {
    let name = user.subject.as_deref().unwrap_or_default();
    let id = format!("user:{name}");
    let mut principal = Principal::new(id.as_str()).with_attribute("scopes", user.scopes.clone());
    for (name, value) in &user.attributes {
        principal = principal.with_attribute(name, value.clone());
    }
    if let Some(profile) = visible_profile(user, server) {
        principal = principal.with_profile(profile);
    }
    let builder = builder.basic_user(name, &user.secret, principal);
    match user.quota {
        Some(rate) => builder.rate_of(&id, rate),
        None => builder,
    }
}

/// Of whom the results of a tool depend.
pub(super) fn vary_by(tool: &Tool, config: &Config) -> VaryBy {
    let auth = match &tool.backend {
        BackendConfig::Text(_)
        | BackendConfig::Template(_)
        | BackendConfig::Command(_)
        | BackendConfig::Sql(_) => None,
        // Nobody knows what it looks at. It has no cache; that was told.
        BackendConfig::Builtin(_) => return VaryBy::default(),
        BackendConfig::Http(http) => http.auth.as_ref().or_else(|| {
            let named = config.connections.iter().find(|known| known.name == http.connection)?;
            match &named.kind {
                ConnectionKind::Http(connection) => connection.auth.as_ref(),
                ConnectionKind::Sql(_) => None,
            }
        }),
    };
    let (headers, attributes) = match auth {
        Some(UpstreamAuth::Forward) => (vec!["authorization".to_owned()], Vec::new()),
        Some(UpstreamAuth::Headers(names)) => (names.clone(), Vec::new()),
        Some(UpstreamAuth::Attribute { attribute, .. }) => (Vec::new(), vec![attribute.clone()]),
        // What comes from the caller is among the arguments already; their name beside it does no harm.
        None if tool.arguments.list.iter().any(|argument| argument.origin.is_some()) => {
            (Vec::new(), Vec::new())
        }
        None => return VaryBy::public(),
    };
    VaryBy { is_public: false, headers, attributes }
}

/// What a source of values is given: what is written so far.
pub(super) fn prefix_argument() -> Arguments {
    let schema = json!({ "type": "string" });
    let prefix = Argument {
        name: "prefix".into(),
        schema,
        default: None,
        is_required: true,
        origin: None,
        clean: None,
    };
    Arguments { list: vec![prefix] }
}

pub(super) fn complete_list(values: Vec<String>) -> CompletionFn {
    let values = Arc::new(values);
    Arc::new(move |prefix, _| {
        let values = Arc::clone(&values);
        Box::pin(async move {
            let prefix = prefix.to_lowercase();
            values.iter().filter(|value| value.to_lowercase().starts_with(&prefix)).cloned().collect()
        })
    })
}

/// By a statement that knows the prefix.
pub(super) fn complete_sql(act: Arc<SqlBackend>) -> CompletionFn {
    Arc::new(move |prefix, _| {
        let act = Arc::clone(&act);
        Box::pin(async move {
            let arguments = Map::from_iter([("prefix".to_owned(), Value::from(prefix))]);
            // Nobody is helped by an error while they type.
            act.complete(&arguments).await.unwrap_or_default()
        })
    })
}

pub(super) fn complete_backend(act: Arc<dyn ToolBackend>) -> CompletionFn {
    Arc::new(move |prefix, cx| {
        let act = Arc::clone(&act);
        Box::pin(async move {
            let arguments = Map::from_iter([("prefix".to_owned(), Value::from(prefix))]);
            match act.execute(&cx, &arguments).await {
                Ok(output) if !output.is_error => match &output.structured_content {
                    Some(structured) => completion_values(&structured.to_value()),
                    None => {
                        let texts = output.content.iter().filter_map(|content| content.as_text());
                        texts
                            .flat_map(str::lines)
                            .filter(|line| !line.is_empty())
                            .map(str::to_owned)
                            .collect()
                    }
                },
                // Nobody is helped by an error while they type.
                _ => Vec::new(),
            }
        })
    })
}

/// The values in what a source gave: of a list each item, of a row its first column.
fn completion_values(structured: &Value) -> Vec<String> {
    match structured {
        Value::Array(items) => items.iter().filter_map(first_text).collect(),
        Value::Object(object) => match object.values().find(|value| value.is_array()) {
            Some(list) => completion_values(list),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn first_text(item: &Value) -> Option<String> {
    match item {
        Value::Object(row) => row.values().next().and_then(first_text),
        Value::Array(row) => row.first().and_then(first_text),
        other => crate::source::placeholders::argument_text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_what_sources_give() {
        let check = |structured: Value| completion_values(&structured);
        assert_eq!(check(json!(["a", 1])), ["a", "1"]);
        assert_eq!(check(json!({ "rows": [{ "sku": "x", "n": 1 }, { "sku": "y" }] })), ["x", "y"]);
        assert_eq!(check(json!([["p", "q"]])), ["p"]);
        assert!(check(json!({ "a": 1 })).is_empty() && check(json!(null)).is_empty());
    }
}
