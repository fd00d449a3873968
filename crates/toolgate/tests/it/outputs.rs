//! Structured output matches the output schema that was announced. The test client checks it on every call, as the clients of
//! the official SDKs do; `cargo xtask interop` calls the same tools with those.

#[path = "../../examples/shapes/values.rs"]
mod values;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use toolgate::testing::{TestClient, TestVersion};
use toolgate::{Json, Server, ToolSpec};

/// Returns the message of the panic of a call.
async fn panic_of_call(client: TestClient, tool: &'static str) -> String {
    let call = tokio::spawn(async move { client.call(tool, json!({})).await });
    let panic = call.await.expect_err("the call must panic").into_panic();
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

fn has_output_schemas(version: TestVersion) -> bool {
    version.to_string().as_str() >= "2025-06-18"
}

#[tokio::test]
async fn every_shape_matches_the_schema_that_is_announced() {
    let server = values::shapes().build().unwrap();
    for version in TestVersion::all() {
        for client in [TestClient::new(&server, version), TestClient::new(&server, version).over_http()] {
            let tools = client.tools().await;
            assert!(tools.len() > 40);
            for tool in &tools {
                let response = client.call(&tool.name, json!({})).await;
                assert!(!response.is_error(), "{version} {}: {}", tool.name, response.message());
                // Other values of these types are no objects, which only the newest version announces.
                let is_mixed = ["external_root", "root_option_present"].contains(&tool.name.as_str());
                let is_object = response.json().is_object() && !is_mixed;
                assert_eq!(
                    tool.output_schema.is_some(),
                    has_output_schemas(version) && (is_object || version == TestVersion::newest()),
                    "{version} {}",
                    tool.name
                );
            }
        }
    }
}

/// A service whose server the client does not know is asked for its list of tools.
#[tokio::test]
async fn every_shape_of_a_service_matches_the_schema_that_is_listed() {
    let server = values::shapes().page_size(7).build().unwrap();
    for version in TestVersion::all() {
        let client = TestClient::service(server.clone().into_service(), version);
        for name in ["options_absent", "external_struct", "untagged_unit", "recursive"] {
            assert!(!client.call(name, json!({})).await.is_error());
        }
    }
}

#[derive(Clone, Serialize, JsonSchema)]
struct Mislabeled {
    #[schemars(with = "u32")]
    id: String,
}

#[tokio::test]
async fn the_test_client_rejects_output_that_does_not_match() {
    let tool = || async { Json(Mislabeled { id: "seven".into() }) };
    let server = Server::new("s", "1").tool("look", tool).build().unwrap();
    for version in TestVersion::all() {
        let client = TestClient::new(&server, version);
        let service = TestClient::service(server.clone().into_service(), version);
        for client in [client.clone(), client.over_http(), service] {
            if !has_output_schemas(version) {
                assert_eq!(client.call("look", json!({})).await.json(), json!({ "id": "seven" }));
                continue;
            }
            let message = panic_of_call(client, "look").await;
            assert!(
                message.starts_with(&format!(
                    "the output of `look` does not match the output schema that it announces in {version}, so clients reject \
                     it:\n  at `/id`: \"seven\" is not of type \"integer\"\noutput: {{\"id\":\"seven\"}}\nschema: {{"
                )),
                "{message}"
            );
        }
    }
}

#[derive(Clone, Serialize, JsonSchema)]
struct Measured {
    value: f64,
    previous: Option<f64>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Rated {
    #[schemars(range(max = 5))]
    stars: u32,
}

/// serde writes `null` for a number that is not finite, and knows nothing of limits.
#[tokio::test]
async fn output_that_its_schema_does_not_allow_is_not_sent() {
    let measured = |value| move || std::future::ready(Json(Measured { value, previous: None }));
    let rated = |stars| move || std::future::ready(Json(Rated { stars }));
    let server = Server::new("s", "1")
        .tool("finite", measured(0.5))
        .tool("infinite", measured(f64::INFINITY))
        .tool("nan", measured(f64::NAN))
        .tool("few", rated(5))
        .tool("many", rated(6))
        .build()
        .unwrap();
    for version in TestVersion::all() {
        let client = TestClient::new(&server, version);
        assert_eq!(client.call("finite", json!({})).await.json(), json!({ "value": 0.5, "previous": null }));
        assert_eq!(client.call("few", json!({})).await.json(), json!({ "stars": 5 }));
        for tool in ["infinite", "nan", "many"] {
            let response = client.call(tool, json!({})).await;
            assert!(response.is_error(), "{tool}");
            let text = response.text();
            assert!(
                text.starts_with("the tool returned a result that does not match its output schema, ref "),
                "{text}"
            );
        }
    }
}

/// A record of everything that may be absent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase"))]
struct Record {
    plain_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_number: Option<i64>,
    nested_option: Option<Option<u64>>,
    #[serde(default)]
    pairs: Vec<(u8, Option<bool>)>,
    by_name: BTreeMap<String, Option<Choice>>,
    choice: Option<Choice>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", content = "of")]
enum Choice {
    Nothing,
    Number(Option<u32>),
    Fields { text: Option<String> },
}

mod random {
    use proptest::collection::{btree_map, vec};
    use proptest::option::of;
    use proptest::prelude::*;

    use super::{Choice, Record};

    fn choice() -> impl Strategy<Value = Choice> {
        prop_oneof![
            Just(Choice::Nothing),
            of(any::<u32>()).prop_map(Choice::Number),
            of(".{0,5}").prop_map(|text| Choice::Fields { text }),
        ]
    }

    pub(super) fn record() -> impl Strategy<Value = Record> {
        let pairs = vec(any::<(u8, Option<bool>)>(), 0..3);
        let numbers = (of(any::<i64>()), of(of(any::<u64>())));
        (of(".{0,5}"), numbers, pairs, btree_map("[a-c]", of(choice()), 0..3), of(choice())).prop_map(
            |(plain_text, (skipped_number, nested_option), pairs, by_name, choice)| Record {
                plain_text,
                skipped_number,
                nested_option,
                pairs,
                by_name,
                choice,
            },
        )
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn a_random_record_matches_the_schema_that_is_announced(record in random::record()) {
        let expected = serde_json::to_value(&record).unwrap();
        let tool = ToolSpec::new("record", move || std::future::ready(Json(record.clone())));
        let server = Server::new("s", "1").add_tool(tool).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output: Value = runtime.block_on(async { server.test().call("record", json!({})).await.json() });
        proptest::prop_assert_eq!(output, expected);
    }
}
