//! Builds the backends of tools, resources, templates and completions.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_sources::source::command::CommandBackend;
use toolgate_sources::source::http::{ChainBackend, FIRST_RESULT_ARGUMENT, HttpBackend, HttpClient};
use toolgate_sources::source::sql::SqlBackend;
use toolgate_sources::source::text::{TemplateBackend, TextBackend};
use toolgate_sources::source::{Problem, ToolBackend};

use super::backend_cache::BackendInputs;
use super::upstreams::{DESCRIBE_TIMEOUT, block_on};
use super::{ServerBuild, requests};
use crate::config::{self, Arguments, BackendConfig, ConnectionKind, Node, OutputConfig};
use crate::pack;

impl ServerBuild<'_> {
    /// Builds the backend of a tool, or reuses the one of the previous configuration if its inputs are the same.
    pub(super) fn backend_for_tool(&mut self, tool: &config::Tool) -> Option<Arc<dyn ToolBackend>> {
        let connection = match &tool.backend {
            BackendConfig::Http(http) => {
                self.upstreams.http(&http.connection).map(|client| Arc::as_ptr(&client).addr())
            }
            BackendConfig::Sql(sql) => {
                self.upstreams.sql(&sql.connection).map(|pool| Arc::as_ptr(&pool).addr())
            }
            BackendConfig::Template(_) | BackendConfig::Command(_) => Some(0),
            BackendConfig::Text(_) | BackendConfig::Builtin(_) => None,
        };
        let Some(connection) = connection else {
            return self.build_backend(&tool.backend, &tool.arguments, &tool.output, &tool.node);
        };
        let statement = match &tool.backend {
            BackendConfig::Sql(sql) => Some(requests::statement_spec(
                sql,
                self.sql_connection_config(&sql.connection)?,
                &tool.output,
            )),
            _ => None,
        };
        let path = (self.server.name.clone(), tool.name.clone());
        let inputs = BackendInputs {
            backend: tool.backend.clone(),
            schema: tool.arguments.full_schema(),
            output: tool.output.clone(),
            statement,
            connection,
        };
        // A statement that could not be described is built again, so that its database is asked again.
        let is_complete = |backend: &Arc<dyn ToolBackend>| {
            !matches!(tool.backend, BackendConfig::Sql(_)) || backend.output_schema().is_some()
        };
        let backend = match self.upstreams.backend_cache.get(&path, &inputs).filter(is_complete) {
            Some(backend) => backend,
            None => self.build_backend(&tool.backend, &tool.arguments, &tool.output, &tool.node)?,
        };
        self.upstreams.backend_cache.insert(path, inputs, &backend);
        Some(backend)
    }

    /// Returns `None` after reporting why the backend cannot be built.
    pub(super) fn build_backend(
        &mut self,
        backend: &BackendConfig,
        arguments: &Arguments,
        output: &OutputConfig,
        node: &Node,
    ) -> Option<Arc<dyn ToolBackend>> {
        let schema = arguments.full_schema();
        let built: Result<Arc<dyn ToolBackend>, Vec<Problem>> = match backend {
            BackendConfig::Text(text) => Ok(Arc::new(TextBackend(text.clone()))),
            BackendConfig::Template(text) => TemplateBackend::new(text, &schema).map(into_dyn),
            BackendConfig::Command(spec) => CommandBackend::new((**spec).clone(), &schema).map(into_dyn),
            BackendConfig::Http(http) => {
                let client = self.upstreams.http(&http.connection)?;
                build_http_backend(http, output, &schema, client)
            }
            BackendConfig::Sql(sql) => {
                return self
                    .build_sql_backend(sql, &schema, output, node)
                    .map(|backend| backend as Arc<dyn ToolBackend>);
            }
            BackendConfig::Builtin(name) => {
                pack::builtin(name, self.server, self.runtime_state).ok_or_else(|| {
                    let message = format!("there is no built-in `{name}`");
                    vec![Problem { path: String::new(), message }]
                })
            }
        };
        built.map_err(|problems| self.report_problems(node, backend.kind(), problems)).ok()
    }

    fn sql_connection_config(&self, name: &str) -> Option<&config::SqlConnectionConfig> {
        self.config.connections.iter().find_map(|connection| match &connection.kind {
            ConnectionKind::Sql(config) if connection.name == name => Some(config),
            _ => None,
        })
    }

    /// Builds a statement and asks its database for the columns of the result. If the database does not answer, the
    /// statement is served without an output schema.
    pub(super) fn build_sql_backend(
        &mut self,
        sql: &config::Sql,
        schema: &Value,
        output: &OutputConfig,
        node: &Node,
    ) -> Option<Arc<SqlBackend>> {
        let pool = self.upstreams.sql(&sql.connection)?;
        let connection = self.sql_connection_config(&sql.connection)?;
        let spec = requests::statement_spec(sql, connection, output);
        let backend = match SqlBackend::new(spec, pool, schema) {
            Ok(backend) => Arc::new(backend),
            Err(problems) => {
                self.report_problems(node, "sql", problems);
                return None;
            }
        };
        if self.upstreams.is_offline() || self.unresponsive_databases.contains(&sql.connection) {
            self.has_missing_schema = true;
            return Some(backend);
        }
        let described = block_on(async { tokio::time::timeout(DESCRIBE_TIMEOUT, backend.describe()).await });
        let reason = match described {
            Ok(Ok(())) => return Some(backend),
            Ok(Err(reason)) => reason,
            Err(_) => {
                self.unresponsive_databases.insert(sql.connection.clone());
                format!("the database `{}` did not answer in time", sql.connection)
            }
        };
        self.has_missing_schema = true;
        self.warn(node.span_at("sql"), format!("the output schema is not known yet: {reason}"));
        Some(backend)
    }
}

fn into_dyn<B: ToolBackend + 'static>(backend: B) -> Arc<dyn ToolBackend> {
    Arc::new(backend)
}

fn build_http_backend(
    http: &config::Http,
    output: &OutputConfig,
    schema: &Value,
    client: Arc<HttpClient>,
) -> Result<Arc<dyn ToolBackend>, Vec<Problem>> {
    let first = HttpBackend::new(requests::request_spec(http, output), Arc::clone(&client), schema);
    let Some(then) = &http.follow_up else { return first.map(into_dyn) };
    if schema["properties"].get(FIRST_RESULT_ARGUMENT).is_some() {
        let message = format!(
            "the argument `{FIRST_RESULT_ARGUMENT}` has the name of the result of the first request; rename it"
        );
        return Err(vec![Problem { path: "then".into(), message }]);
    }
    let mut schema = schema.clone();
    schema["properties"][FIRST_RESULT_ARGUMENT] = json!({});
    match schema["required"].as_array_mut() {
        Some(required) => required.push(FIRST_RESULT_ARGUMENT.into()),
        None => schema["required"] = json!([FIRST_RESULT_ARGUMENT]),
    }
    let second = HttpBackend::new(requests::follow_up_spec(http, then, output), client, &schema);
    let in_then = |problem: Problem| Problem { path: format!("then.{}", problem.path), ..problem };
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(Arc::new(ChainBackend { first, second })),
        (first, second) => {
            let second = second.err().unwrap_or_default().into_iter().map(in_then);
            Err(first.err().unwrap_or_default().into_iter().chain(second).collect())
        }
    }
}
