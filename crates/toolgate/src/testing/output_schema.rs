//! Validates structured output against the announced output schema, as the clients of the official SDKs do.

use serde_json::Value;
use toolgate_schema::Schema;
use toolgate_wire::model::{Call, Outcome, ToolOutput};
use toolgate_wire::{ProtocolVersion, RawJson, StructuredContent};

use super::client::TestClient;
use super::request::TestCall;

/// Checks that the result of a tool matches the output schema that the tool announces.
///
/// # Panics
/// If it does not, with the schema and the violation.
pub(super) async fn check_output(client: &TestClient, tool: &str, output: &ToolOutput) {
    let version = client.setup.version;
    if output.is_error || version.behavior().structured_content == StructuredContent::Never {
        return;
    }
    let Some(schema) = announced_schema(client, tool, output).await else { return };
    let schema = schema.to_value();
    let Some(structured) = &output.structured_content else {
        panic!(
            "`{tool}` announces an output schema in {version}, but its result has no `structuredContent`: {schema}"
        );
    };
    let compiled = match Schema::with_formats(&schema) {
        Ok(compiled) => compiled,
        Err(error) => panic!("`{tool}` announces an output schema that is wrong: {error}\n{schema}"),
    };
    let structured = structured.to_value();
    let errors = compiled.errors(&structured, 10);
    let errors: Vec<String> =
        errors.iter().map(|error| format!("  at `{}`: {error}", error.pointer())).collect();
    assert!(
        errors.is_empty(),
        "the output of `{tool}` does not match the output schema that it announces in {version}, so clients reject it:\n{}\n\
         output: {structured}\nschema: {schema}",
        errors.join("\n")
    );
}

/// Returns the output schema that the server announces to this client.
async fn announced_schema(client: &TestClient, tool: &str, output: &ToolOutput) -> Option<RawJson> {
    if let Some(server) = client.setup.target.server() {
        // Read from the registry: a request would be counted, limited and observed like one of the test.
        return server.output_schema_of(tool).filter(|schema| is_announced(client.setup.version, schema));
    }
    // Another service, of which only the list of tools is known. Tools with a schema have structured output.
    output.structured_content.as_ref()?;
    let mut cursor = None;
    loop {
        let list = TestCall::new(client, Call::ListTools { cursor }, |outcome| match outcome {
            Outcome::Tools(page) => Some(page),
            _ => None,
        });
        // A client that may call a tool need not be able to list it.
        let page = list.await.outcome.ok()?;
        if let Some(listed) = page.items.iter().find(|listed| listed.name == tool) {
            return listed.output_schema.clone();
        }
        cursor = Some(page.next_cursor?);
    }
}

/// Returns whether a client of this version is sent the schema. Versions that restrict structured content to objects do not
/// announce other schemas.
fn is_announced(version: ProtocolVersion, schema: &RawJson) -> bool {
    match version.behavior().structured_content {
        StructuredContent::Never => false,
        StructuredContent::Object => schema.to_value().get("type").and_then(Value::as_str) == Some("object"),
        StructuredContent::Any => true,
    }
}
