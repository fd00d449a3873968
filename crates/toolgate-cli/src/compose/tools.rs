//! What tools, templates and prompts need beside what they are made of.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::{Builder, Context, Principal, Profile, Token, ToolSpec};

use super::memory::Whom;
use crate::config::{
    Argument, Arguments, BackendAuth, Config, ConnectionKind, Credential, Does, Frame, Server, Task, Tool,
};
use crate::source::Act;
use crate::source::sql::SqlAct;

/// How a value could go on.
pub(super) type Complete =
    Arc<dyn Fn(String, Context) -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> + Send + Sync>;

/// What a program that was stopped needs to end and to be told of.
const SPARE: Duration = Duration::from_secs(5);

/// How long a call of a tool may take, where it says so. A program is stopped by its own source, which knows how.
pub(crate) fn patience(tool: &Tool, frame: &Frame) -> Option<Duration> {
    match &tool.does {
        // As a task it may run as long as that is kept; a call that waits has the time of all calls.
        Does::Command(_) if tool.task.is_some() && !says_timeout(tool) => None,
        Does::Command(spec) => Some(spec.timeout + SPARE),
        _ => tool.timeout.filter(|timeout| *timeout != frame.timeout),
    }
}

fn says_timeout(tool: &Tool) -> bool {
    tool.timeout.is_some() || tool.node.get("command").is_some_and(|command| command.get("timeout").is_some())
}

/// How calls of a tool become tasks.
pub(super) fn as_task(spec: ToolSpec, task: Option<Task>) -> ToolSpec {
    let Some(task) = task else { return spec };
    let spec = if task.is_required { spec.task_required() } else { spec.task_optional() };
    let spec = if task.is_resumable { spec.resumable() } else { spec };
    match task.ttl {
        Some(ttl) => spec.task_ttl(ttl),
        None => spec,
    }
}

/// The arguments of a tool that are put right before they are checked, with their schemas.
pub(super) fn cleaned(tool: &Tool) -> Vec<(String, Value)> {
    let arguments = tool.arguments.list.iter();
    let wanted = arguments.filter(|argument| argument.from.is_none() && argument.clean.unwrap_or(tool.clean));
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
    match seen(credential, server) {
        Some(profile) => token.profile(profile),
        None => token,
    }
}

/// What the holder of a credential sees, where that is not everything.
fn seen(credential: &Credential, server: &Server) -> Option<Profile> {
    let lacks = |tool: &&Tool| !tool.scopes.iter().all(|scope| credential.scopes.contains(scope));
    let hidden: Vec<&str> = server.tools.iter().filter(lacks).map(|tool| tool.name.as_str()).collect();
    match (&credential.profile, hidden.is_empty()) {
        (None, true) => None,
        (None, false) => Some(Profile::new("scopes").exclude_tools(hidden)),
        (Some(profile), _) => Some(profile.clone().exclude_tools(hidden)),
    }
}

/// Somebody with a password, and all that is known of them.
pub(super) fn user(builder: Builder, user: &Credential, server: &Server) -> Builder {
    let name = user.subject.as_deref().unwrap_or_default();
    let id = format!("user:{name}");
    let mut principal = Principal::new(id.as_str()).with_attribute("scopes", user.scopes.clone());
    for (name, value) in &user.attributes {
        principal = principal.with_attribute(name, value.clone());
    }
    if let Some(profile) = seen(user, server) {
        principal = principal.with_profile(profile);
    }
    let builder = builder.basic_user(name, &user.secret, principal);
    match user.quota {
        Some(rate) => builder.rate_of(&id, rate),
        None => builder,
    }
}

/// Of whom the results of a tool depend.
pub(super) fn whom(tool: &Tool, config: &Config) -> Whom {
    let auth = match &tool.does {
        Does::Text(_) | Does::Template(_) | Does::Command(_) | Does::Sql(_) => None,
        // Nobody knows what it looks at. It has no cache; that was told.
        Does::Builtin(_) => return Whom::default(),
        Does::Http(http) => http.auth.as_ref().or_else(|| {
            let named = config.connections.iter().find(|known| known.name == http.on)?;
            match &named.kind {
                ConnectionKind::Http(connection) => connection.auth.as_ref(),
                ConnectionKind::Sql(_) => None,
            }
        }),
    };
    let (headers, attributes) = match auth {
        Some(BackendAuth::Forward) => (vec!["authorization".to_owned()], Vec::new()),
        Some(BackendAuth::Headers(names)) => (names.clone(), Vec::new()),
        Some(BackendAuth::Attribute { attribute, .. }) => (Vec::new(), vec![attribute.clone()]),
        // What comes from the caller is among the arguments already; their name beside it does no harm.
        None if tool.arguments.list.iter().any(|argument| argument.from.is_some()) => {
            (Vec::new(), Vec::new())
        }
        None => return Whom::anybody(),
    };
    Whom { is_anybody: false, headers, attributes }
}

/// What a source of values is given: what is written so far.
pub(super) fn prefix() -> Arguments {
    let schema = json!({ "type": "string" });
    let prefix =
        Argument { name: "prefix".into(), schema, default: None, is_required: true, from: None, clean: None };
    Arguments { list: vec![prefix] }
}

pub(super) fn complete_list(values: Vec<String>) -> Complete {
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
pub(super) fn complete_sql(act: Arc<SqlAct>) -> Complete {
    Arc::new(move |prefix, _| {
        let act = Arc::clone(&act);
        Box::pin(async move {
            let arguments = Map::from_iter([("prefix".to_owned(), Value::from(prefix))]);
            // Nobody is helped by an error while they type.
            act.complete(&arguments).await.unwrap_or_default()
        })
    })
}

pub(super) fn complete_act(act: Arc<dyn Act>) -> Complete {
    Arc::new(move |prefix, cx| {
        let act = Arc::clone(&act);
        Box::pin(async move {
            let arguments = Map::from_iter([("prefix".to_owned(), Value::from(prefix))]);
            match act.act(&cx, &arguments).await {
                Ok(output) if !output.is_error => match &output.structured_content {
                    Some(structured) => values(&structured.to_value()),
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
fn values(structured: &Value) -> Vec<String> {
    match structured {
        Value::Array(items) => items.iter().filter_map(first).collect(),
        Value::Object(object) => match object.values().find(|value| value.is_array()) {
            Some(list) => values(list),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn first(item: &Value) -> Option<String> {
    match item {
        Value::Object(row) => row.values().next().and_then(first),
        Value::Array(row) => row.first().and_then(first),
        other => crate::source::holes::said(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_what_sources_give() {
        let check = |structured: Value| values(&structured);
        assert_eq!(check(json!(["a", 1])), ["a", "1"]);
        assert_eq!(check(json!({ "rows": [{ "sku": "x", "n": 1 }, { "sku": "y" }] })), ["x", "y"]);
        assert_eq!(check(json!([["p", "q"]])), ["p"]);
        assert!(check(json!({ "a": 1 })).is_empty() && check(json!(null)).is_empty());
    }
}
