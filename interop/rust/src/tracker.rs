//! The steps against the example `tracker`. rmcp does not validate results by their schemas, so these steps do.

use std::collections::HashMap;

use rmcp::ServiceError;
use rmcp::model::ReadResourceRequestParams;
use serde_json::{Value, json};

use crate::{Client, Outcome, call, expect, report, text_of};

/// The output schemas of the tools, by name.
type Schemas = HashMap<String, jsonschema::Validator>;

pub(crate) async fn run(client: &Client) -> bool {
    let mut schemas = Schemas::new();
    let mut id = 0;
    let mut passed = report("list tools", list_tools(client, &mut schemas)).await;
    passed &= report("empty options", async {
        let issue = structured(client, &schemas, "open_issue", json!({"title": "The door squeaks"})).await?;
        id = issue["id"].as_u64().ok_or("the issue has no id")?;
        let empty = issue.get("body") == Some(&Value::Null) && issue.get("dueDate").is_none();
        expect(empty, &issue)?;
        let page = structured(client, &schemas, "list_issues", json!({"limit": 1})).await?;
        expect(page["items"].as_array().is_some_and(|items| items.len() == 1), &page)
    })
    .await;
    passed &= report("all types", all_types(client, &schemas, id)).await;
    passed &= report("elicit", async {
        let issue = structured(client, &schemas, "assign_issue", json!({"id": id})).await?;
        expect(issue["assignedTo"] == "ada", &issue)
    })
    .await;
    passed &= report("sample", async {
        let result = call(client, "summarize_issue", json!({"id": id})).await?;
        expect(text_of(&result) == "It is broken.", &result)
    })
    .await;
    passed &= report("blocking", async {
        let result = call(client, "import_issues", json!({"titles": "One\nTwo\n\nThree"})).await?;
        expect(text_of(&result).contains('3'), &result)
    })
    .await;
    passed &= report("report", async {
        let result = call(client, "write_report", json!({})).await?;
        expect(text_of(&result).contains("The door squeaks"), &result)
    })
    .await;
    passed &= report("unknown argument", async {
        let result = call(client, "get_issue", json!({"id": id, "titel": "x"})).await?;
        expect(result.is_error == Some(true) && text_of(&result).contains("titel"), &result)
    })
    .await;
    passed &= report("protocol error", protocol_error(client)).await;
    passed &= report("read resource", async {
        let result = client.read_resource(ReadResourceRequestParams::new(format!("issue://{id}"))).await?;
        let value = serde_json::to_value(&result)?;
        expect(value["contents"][0]["text"].as_str().is_some_and(|text| text.contains("Oil it")), &value)
    })
    .await;
    passed &= report("delete", async {
        let result = call(client, "delete_issue", json!({"id": id})).await?;
        expect(text_of(&result).contains("true"), &result)
    })
    .await;
    passed
}

async fn list_tools(client: &Client, schemas: &mut Schemas) -> Outcome {
    let tools = client.list_all_tools().await?;
    for tool in &tools {
        if let Some(schema) = &tool.output_schema {
            let schema = Value::Object((**schema).clone());
            schemas.insert(tool.name.to_string(), jsonschema::validator_for(&schema)?);
        }
    }
    expect(tools.len() == 16, &tools)
}

async fn all_types(client: &Client, schemas: &Schemas, id: u64) -> Outcome {
    structured(client, schemas, "label_issue", json!({"id": id, "add": ["house"]})).await?;
    structured(client, schemas, "start_issue", json!({"id": id})).await?;
    let changes = json!({"id": id, "body": "Oil it", "due_date": "2026-12-31", "priority": "high"});
    let issue = structured(client, schemas, "update_issue", changes).await?;
    expect(issue["dueDate"] == "2026-12-31", &issue)?;
    structured(client, schemas, "add_comment", json!({"id": id, "text": "At night"})).await?;
    // Lists are structured content only in the newest version.
    for (name, arguments) in
        [("list_comments", json!({"id": id})), ("search_issues", json!({"text": "squeak"}))]
    {
        let result = call(client, name, arguments).await?;
        expect(text_of(&result).starts_with("[{"), &result)?;
    }
    let totals = structured(client, schemas, "count_issues", json!({})).await?;
    expect(totals["by_status"]["in_progress"].as_u64() >= Some(1), &totals)
}

async fn protocol_error(client: &Client) -> Outcome {
    let params = rmcp::model::CallToolRequestParams::new("list_comments")
        .with_arguments(crate::object(json!({"id": 999_999})));
    match client.call_tool(params).await {
        Err(ServiceError::McpError(error)) => expect(error.code.0 == -32602, &error),
        other => Err(format!("expected an error, got {other:?}").into()),
    }
}

/// Calls a tool and validates its structured result.
async fn structured(
    client: &Client,
    schemas: &Schemas,
    name: &'static str,
    arguments: Value,
) -> Result<Value, Box<dyn std::error::Error>> {
    let result = call(client, name, arguments).await?;
    let value =
        result.structured_content.clone().ok_or_else(|| format!("no structured result: {result:?}"))?;
    let schema = schemas.get(name).ok_or_else(|| format!("{name} has no output schema"))?;
    schema.validate(&value).map_err(|error| format!("{name}: {error} in {value}"))?;
    Ok(value)
}
