//! The exact bytes that a version writes for a value that it cannot represent.

use serde_json::json;
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::{samples, to_raw};

const V2024_11_05: ProtocolVersion = ProtocolVersion::V2024_11_05;
const V2025_03_26: ProtocolVersion = ProtocolVersion::V2025_03_26;
const V2025_06_18: ProtocolVersion = ProtocolVersion::V2025_06_18;
const V2025_11_25: ProtocolVersion = ProtocolVersion::V2025_11_25;
const V2026_07_28: ProtocolVersion = ProtocolVersion::V2026_07_28;

fn outcome(version: ProtocolVersion, outcome: &Outcome) -> String {
    to_raw(|out| write_outcome(out, version, outcome, None)).to_string()
}

fn tool(version: ProtocolVersion, output: &ToolOutput) -> String {
    outcome(version, &Outcome::Tool(output.clone()))
}

fn block(version: ProtocolVersion, content: Content) -> String {
    let output = ToolOutput { content: vec![content], ..ToolOutput::default() };
    let text = tool(version, &output);
    let inner = text.split_once("\"content\":[").and_then(|(_, rest)| rest.rsplit_once(']'));
    inner.unwrap().0.to_owned()
}

#[test]
fn unsupported_audio_becomes_text() {
    let sound = || Content::audio(vec![0; 3], "audio/wav");
    assert_eq!(block(V2024_11_05, sound()), r#"{"type":"text","text":"[audio: audio/wav, 3 bytes]"}"#);
    assert_eq!(block(V2025_03_26, sound()), r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#);
}

#[test]
fn unsupported_links_become_text() {
    let [rich, bare] = samples::resources().try_into().unwrap();
    for version in [V2024_11_05, V2025_03_26] {
        assert_eq!(
            block(version, Content::link(rich.clone())),
            r#"{"type":"text","text":"[resource: file:///a.txt, A]\nThe first"}"#,
        );
        assert_eq!(
            block(version, Content::link(bare.clone())),
            r#"{"type":"text","text":"[resource: test://b, b]"}"#,
        );
    }
    assert_eq!(
        block(V2025_06_18, Content::link(bare)),
        r#"{"type":"resource_link","uri":"test://b","name":"b"}"#,
    );
}

#[test]
fn unsupported_structured_content_becomes_text() {
    let output = |structured: serde_json::Value, content: Vec<Content>| ToolOutput {
        content,
        structured_content: Some(RawJson::from(structured)),
        ..ToolOutput::default()
    };
    let list = || output(json!([3, 9]), vec![]);
    let in_words = r#"{"content":[{"type":"text","text":"[3,9]"}]}"#;
    for version in [V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25] {
        assert_eq!(tool(version, &list()), in_words);
    }
    assert_eq!(
        tool(V2026_07_28, &list()),
        r#"{"resultType":"complete","content":[],"structuredContent":[3,9]}"#
    );
    let object = || output(json!({ "n": 1 }), vec![]);
    for version in [V2024_11_05, V2025_03_26] {
        assert_eq!(tool(version, &object()), r#"{"content":[{"type":"text","text":"{\"n\":1}"}]}"#);
    }
    for version in [V2025_06_18, V2025_11_25] {
        assert_eq!(tool(version, &object()), r#"{"content":[],"structuredContent":{"n":1}}"#);
    }
    // If there is text, no text is added.
    let said = output(json!([3, 9]), vec![Content::text("three, nine")]);
    for version in [V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25] {
        assert_eq!(tool(version, &said), r#"{"content":[{"type":"text","text":"three, nine"}]}"#);
    }
}

#[test]
fn older_clients_get_object_schemas_only() {
    let page = |tools: Vec<Tool>| {
        let items = tools.into_iter().map(Into::into).collect();
        Outcome::Tools(Page { items, next_cursor: None, cache: CacheHint::default() })
    };
    for version in ProtocolVersion::ALL {
        let text = outcome(version, &page(samples::latest_version_tools()));
        assert_eq!(text.contains("outputSchema"), version == V2026_07_28, "{text}");
        let text = outcome(version, &page(samples::tools()));
        assert_eq!(text.contains("outputSchema"), version >= V2025_06_18, "{text}");
        let text = outcome(version, &page(samples::task_tools()));
        assert_eq!(text.contains("execution"), version == V2025_11_25, "{text}");
    }
}

#[test]
fn empty_values_are_written_briefly() {
    let server = Implementation { name: "s".into(), version: "1".into(), ..Implementation::default() };
    for version in ProtocolVersion::ALL {
        let done = to_raw(|out| write_outcome(out, version, &Outcome::Empty, Some(&server)));
        let expected = match version == V2026_07_28 {
            true => {
                r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#
            }
            false => "{}",
        };
        assert_eq!(done.as_str(), expected);
    }
    assert_eq!(outcome(V2026_07_28, &Outcome::Empty), r#"{"resultType":"complete"}"#);
}

#[test]
fn every_result_names_the_server() {
    let server = Implementation { name: "s".into(), version: "1".into(), ..Implementation::default() };
    for (_, answer) in samples::outcomes() {
        let result = to_raw(|out| write_outcome(out, V2026_07_28, &answer, Some(&server)));
        let said = result.view().get("_meta").and_then(|meta| meta.get(meta_key::SERVER_INFO));
        let name = said.and_then(|server| server.get("name")).and_then(|name| name.as_string());
        // A discovery result may name another server.
        let expected = match &answer {
            Outcome::Discover(discovery) => discovery.server_info.as_ref().unwrap_or(&server),
            _ => &server,
        };
        assert_eq!(name.as_deref(), Some(expected.name.as_str()), "{result}");
        for version in [V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25]
            .into_iter()
            .filter(|_| !matches!(answer, Outcome::Discover(_)))
        {
            let result = to_raw(|out| write_outcome(out, version, &answer, Some(&server)));
            assert!(!result.as_str().contains(meta_key::SERVER_INFO), "{result}");
        }
    }
}

#[test]
fn a_log_level_is_requested_in_one_version() {
    let meta = Meta { log_level: Some(LogLevel::Info), ..Meta::default() };
    for version in ProtocolVersion::ALL {
        let params = to_raw(|out| write_call_params(out, version, &Call::Ping, None, &meta));
        let expected = match version == V2026_07_28 {
            true => r#"{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}"#,
            false => "{}",
        };
        assert_eq!(params.as_str(), expected);
    }
}

#[test]
fn only_cacheable_results_have_a_ttl() {
    for (_, answer) in samples::outcomes() {
        let text = outcome(V2026_07_28, &answer);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let lasts = matches!(
            answer,
            Outcome::Discover(_)
                | Outcome::Tools(_)
                | Outcome::Resources(_)
                | Outcome::Templates(_)
                | Outcome::Prompts(_)
                | Outcome::ReadResource { .. }
        );
        let task = matches!(answer, Outcome::TaskStarted(_) | Outcome::TaskStatus(_));
        // A list that this version does not have.
        let listed = matches!(answer, Outcome::Tasks(_));
        assert_eq!(value.get("cacheScope").is_some(), lasts || listed, "{text}");
        // A task has a time to live of its own.
        assert!(task || value.get("ttlMs").is_some() == (lasts || listed), "{text}");
        assert!(value.get("resultType").is_some(), "{text}");
        for version in [V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25] {
            let text = outcome(version, &answer);
            assert!(!text.contains("cacheScope") && !text.contains("\"resultType\""), "{text}");
        }
    }
}

#[test]
fn forms_are_reduced_for_their_first_version() {
    let ask = |schema| {
        ServerRequest::Elicitation(ElicitRequest::Form(ElicitForm {
            message: "m".into(),
            schema: RawJson::from(schema),
        }))
    };
    let form = ask(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": { "type": "string", "default": "x", "minLength": 1, "format": "uuid", "pattern": "x" },
            "b": { "type": "integer", "default": 1, "minimum": 0, "multipleOf": 2 },
            "c": { "type": "boolean", "default": true },
            "d": { "type": "string", "default": "p",
                   "oneOf": [{ "const": "p", "title": "P" }, { "const": "q" }] },
        },
        "required": ["a"],
    }));
    assert!(supports_request(V2025_06_18, &form));
    assert_eq!(
        to_raw(|out| write_server_request_params(out, V2025_06_18, &form)).as_str(),
        concat!(
            r#"{"message":"m","requestedSchema":{"type":"object","properties":{"#,
            r#""a":{"type":"string","minLength":1},"#,
            r#""b":{"type":"integer","minimum":0},"#,
            r#""c":{"type":"boolean","default":true},"#,
            r#""d":{"type":"string","enum":["p","q"],"enumNames":["P","q"]}},"#,
            r#""required":["a"]}}"#,
        ),
    );
    let many = ask(json!({ "type": "object", "properties": {
        "m": { "type": "array", "items": { "type": "string", "enum": ["a"] } } } }));
    assert_eq!(
        ProtocolVersion::ALL.map(|version| supports_request(version, &many)),
        [false, false, false, true, true]
    );
    assert_eq!(
        ProtocolVersion::ALL.map(|version| supports_request(version, &form)),
        [false, false, true, true, true]
    );
}

#[test]
fn a_url_elicitation_has_an_id_in_one_version() {
    let ask = ServerRequest::Elicitation(ElicitRequest::Url {
        message: "m".into(),
        url: "https://x.example/".into(),
        id: "e".into(),
    });
    assert_eq!(
        to_raw(|out| write_server_request_params(out, V2025_11_25, &ask)).as_str(),
        r#"{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"e"}"#,
    );
    assert_eq!(
        to_raw(|out| write_server_request_params(out, V2026_07_28, &ask)).as_str(),
        r#"{"mode":"url","message":"m","url":"https://x.example/"}"#,
    );
}

#[test]
fn messages_are_joined_to_one_block_in_older_versions() {
    let blocks = |content: Vec<Content>| {
        ServerRequest::Sampling(Box::new(SamplingRequest {
            messages: vec![SamplingMessage {
                role: Role::User,
                content: content.into_iter().map(SamplingBlock::Content).collect(),
                meta: None,
            }],
            max_tokens: 1,
            ..SamplingRequest::default()
        }))
    };
    let show = |version, ask: &ServerRequest| {
        let params = to_raw(|out| write_server_request_params(out, version, ask));
        let message = params.view().get("messages").and_then(|messages| messages.items().next());
        message.and_then(|message| message.get("content")).unwrap().to_string()
    };
    let two = blocks(vec![Content::text("a"), Content::image(vec![0; 6], "image/png")]);
    for version in [V2024_11_05, V2025_03_26, V2025_06_18] {
        assert_eq!(show(version, &two), r#"{"type":"text","text":"a\n[image: image/png, 6 bytes]"}"#);
    }
    assert!(show(V2025_11_25, &two).starts_with('['));
    let one = blocks(vec![Content::image(vec![0; 3], "image/png")]);
    for version in ProtocolVersion::ALL {
        assert_eq!(show(version, &one), r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#);
    }
    let embedded = blocks(vec![Content::embedded(ResourceContents::blob("test://x", vec![0; 5]))]);
    for version in ProtocolVersion::ALL {
        assert_eq!(show(version, &embedded), r#"{"type":"text","text":"[resource: test://x, 5 bytes]"}"#);
    }
    let tools = ServerRequest::Sampling(Box::new(samples::new_sampling_requests().remove(0)));
    // An unsupported request is not written partially; a tool choice without tools is omitted.
    let choice = SamplingRequest { tool_choice: Some(ToolChoice::None), ..SamplingRequest::default() };
    let choice = ServerRequest::Sampling(Box::new(choice));
    for version in [V2024_11_05, V2025_03_26, V2025_06_18] {
        assert!(supports_request(version, &choice));
        for ask in [&choice, &tools] {
            let params = to_raw(|out| write_server_request_params(out, version, ask));
            assert!(params.view().get("tools").is_none() && params.view().get("toolChoice").is_none());
        }
    }
    assert_eq!(
        ProtocolVersion::ALL.map(|version| supports_request(version, &tools)),
        [false, false, false, true, true]
    );
}

#[test]
fn capabilities_are_limited_to_those_of_a_version() {
    let client = |version, capabilities: &ClientCapabilities| {
        to_raw(|out| write_client_capabilities(out, version, capabilities)).to_string()
    };
    let form = ClientCapabilities {
        roots: Some(true),
        elicitation: Some(ElicitationCapability { form: true, url: false }),
        ..ClientCapabilities::default()
    };
    assert_eq!(client(V2025_03_26, &form), r#"{"roots":{"listChanged":true}}"#);
    assert_eq!(client(V2025_06_18, &form), r#"{"roots":{"listChanged":true},"elicitation":{}}"#);
    assert_eq!(client(V2025_11_25, &form), r#"{"roots":{"listChanged":true},"elicitation":{"form":{}}}"#);
    assert_eq!(client(V2026_07_28, &form), r#"{"roots":{},"elicitation":{"form":{}}}"#);
    let sampling = ClientCapabilities {
        sampling: Some(SamplingCapability { context: true, tools: true }),
        ..ClientCapabilities::default()
    };
    assert_eq!(client(V2025_06_18, &sampling), r#"{"sampling":{}}"#);
    assert_eq!(client(V2025_11_25, &sampling), r#"{"sampling":{"context":{},"tools":{}}}"#);
    let url = ClientCapabilities {
        elicitation: Some(ElicitationCapability { form: false, url: true }),
        ..ClientCapabilities::default()
    };
    assert_eq!(client(V2025_06_18, &url), "{}");
    assert_eq!(client(V2025_11_25, &url), r#"{"elicitation":{"url":{}}}"#);
}

#[test]
fn initialize_always_names_the_client() {
    let hello = Call::Initialize(InitializeParams {
        version: V2025_11_25.as_str().into(),
        ..InitializeParams::default()
    });
    let params = to_raw(|out| write_call_params(out, V2025_11_25, &hello, None, &Meta::default()));
    assert_eq!(
        params.as_str(),
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"unknown","version":"0"}}"#,
    );
}

#[test]
fn values_over_limits_are_truncated() {
    let values = (0..101).map(|n| n.to_string()).collect();
    let completion = Completion { values, total: Some(u64::MAX), has_more: Some(false) };
    let value: serde_json::Value =
        serde_json::from_str(&outcome(V2025_11_25, &Outcome::Completion(completion))).unwrap();
    assert_eq!(value["completion"]["values"].as_array().unwrap().len(), 100);
    assert_eq!(value["completion"]["hasMore"], true);
    assert_eq!(value["completion"]["total"], 9_007_199_254_740_991_u64);

    let loud = Content {
        annotations: Some(Annotations { priority: Some(7.0), ..Annotations::default() }),
        ..Content::text("x")
    };
    assert_eq!(block(V2025_11_25, loud), r#"{"type":"text","text":"x","annotations":{"priority":1}}"#);
    let unsaid = Content {
        annotations: Some(Annotations { priority: Some(f64::NAN), ..Annotations::default() }),
        ..Content::text("x")
    };
    assert_eq!(block(V2025_11_25, unsaid), r#"{"type":"text","text":"x","annotations":{}}"#);
    let lost = Notification::Progress {
        token: ProgressToken::from(1),
        progress: f64::INFINITY,
        total: None,
        message: None,
    };
    assert!(!write_notification(&mut Vec::new(), V2026_07_28, &lost, None));
}

#[test]
fn foreign_json_is_written_on_one_line() {
    let spread = RawJson::parse("{\n  \"a\": [1,\r\n 2]\n}".into()).unwrap();
    let output = ToolOutput {
        structured_content: Some(spread),
        meta: Some(RawJson::string("no object")),
        ..ToolOutput::text("x")
    };
    assert_eq!(
        tool(V2025_11_25, &output),
        r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{   "a": [1,   2] }}"#,
    );
    let mut out = Vec::new();
    let data = RawJson::parse("[\n1]".into()).unwrap();
    let log = Notification::LogMessage { level: LogLevel::Info, logger: None, data };
    assert!(write_notification(&mut out, V2026_07_28, &log, None));
    assert!(!out.contains(&b'\n'));
}
