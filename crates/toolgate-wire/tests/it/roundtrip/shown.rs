//! What an edition shows of a value that it cannot say as it is: exact bytes.

use serde_json::json;
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::{samples, written};

const FIRST: Edition = Edition::E2024_11_05;
const SECOND: Edition = Edition::E2025_03_26;
const THIRD: Edition = Edition::E2025_06_18;
const FOURTH: Edition = Edition::E2025_11_25;
const NEWEST: Edition = Edition::E2026_07_28;

fn outcome(edition: Edition, outcome: &Outcome) -> String {
    written(|out| write_outcome(out, edition, outcome, None)).to_string()
}

fn tool(edition: Edition, output: &ToolOutput) -> String {
    outcome(edition, &Outcome::Tool(output.clone()))
}

fn block(edition: Edition, content: Content) -> String {
    let output = ToolOutput { content: vec![content], ..ToolOutput::default() };
    let text = tool(edition, &output);
    let inner = text.split_once("\"content\":[").and_then(|(_, rest)| rest.rsplit_once(']'));
    inner.unwrap().0.to_owned()
}

#[test]
fn a_sound_is_named_where_it_cannot_be_heard() {
    let sound = || Content::audio(vec![0; 3], "audio/wav");
    assert_eq!(block(FIRST, sound()), r#"{"type":"text","text":"[audio: audio/wav, 3 bytes]"}"#);
    assert_eq!(block(SECOND, sound()), r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#);
}

#[test]
fn a_link_is_spelled_out_where_there_are_none() {
    let [rich, bare] = samples::resources().try_into().unwrap();
    for edition in [FIRST, SECOND] {
        assert_eq!(
            block(edition, Content::link(rich.clone())),
            r#"{"type":"text","text":"[resource: file:///a.txt, A]\nThe first"}"#,
        );
        assert_eq!(
            block(edition, Content::link(bare.clone())),
            r#"{"type":"text","text":"[resource: test://b, b]"}"#,
        );
    }
    assert_eq!(block(THIRD, Content::link(bare)), r#"{"type":"resource_link","uri":"test://b","name":"b"}"#,);
}

#[test]
fn structured_output_is_never_lost_without_a_word() {
    let output = |structured: serde_json::Value, content: Vec<Content>| ToolOutput {
        content,
        structured: Some(Raw::from(structured)),
        ..ToolOutput::default()
    };
    let list = || output(json!([3, 9]), vec![]);
    let in_words = r#"{"content":[{"type":"text","text":"[3,9]"}]}"#;
    for edition in [FIRST, SECOND, THIRD, FOURTH] {
        assert_eq!(tool(edition, &list()), in_words);
    }
    assert_eq!(tool(NEWEST, &list()), r#"{"resultType":"complete","content":[],"structuredContent":[3,9]}"#);
    let object = || output(json!({ "n": 1 }), vec![]);
    for edition in [FIRST, SECOND] {
        assert_eq!(tool(edition, &object()), r#"{"content":[{"type":"text","text":"{\"n\":1}"}]}"#);
    }
    for edition in [THIRD, FOURTH] {
        assert_eq!(tool(edition, &object()), r#"{"content":[],"structuredContent":{"n":1}}"#);
    }
    // With words of its own it needs no others.
    let said = output(json!([3, 9]), vec![Content::text("three, nine")]);
    for edition in [FIRST, SECOND, THIRD, FOURTH] {
        assert_eq!(tool(edition, &said), r#"{"content":[{"type":"text","text":"three, nine"}]}"#);
    }
}

#[test]
fn a_schema_that_is_no_object_is_kept_from_older_clients() {
    let page = |tools: Vec<Tool>| {
        let items = tools.into_iter().map(Into::into).collect();
        Outcome::Tools(Page { items, next: None, cache: CacheHint::default() })
    };
    for edition in Edition::ALL {
        let text = outcome(edition, &page(samples::list_tools()));
        assert_eq!(text.contains("outputSchema"), edition == NEWEST, "{text}");
        let text = outcome(edition, &page(samples::tools()));
        assert_eq!(text.contains("outputSchema"), edition >= THIRD, "{text}");
        let text = outcome(edition, &page(samples::task_tools()));
        assert_eq!(text.contains("execution"), edition == FOURTH, "{text}");
    }
}

#[test]
fn nothing_to_say_is_said_briefly() {
    let server = Implementation { name: "s".into(), version: "1".into(), ..Implementation::default() };
    for edition in Edition::ALL {
        let done = written(|out| write_outcome(out, edition, &Outcome::Done, Some(&server)));
        let expected = match edition == NEWEST {
            true => {
                r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#
            }
            false => "{}",
        };
        assert_eq!(done.as_str(), expected);
    }
    assert_eq!(outcome(NEWEST, &Outcome::Done), r#"{"resultType":"complete"}"#);
}

#[test]
fn every_answer_says_who_answers() {
    let server = Implementation { name: "s".into(), version: "1".into(), ..Implementation::default() };
    for (_, answer) in samples::outcomes() {
        let result = written(|out| write_outcome(out, NEWEST, &answer, Some(&server)));
        let said = result.view().get("_meta").and_then(|meta| meta.get(key::SERVER));
        let name = said.and_then(|server| server.get("name")).and_then(|name| name.as_text());
        // A discovery may know better.
        let expected = match &answer {
            Outcome::Discovery(discovery) => discovery.server.as_ref().unwrap_or(&server),
            _ => &server,
        };
        assert_eq!(name.as_deref(), Some(expected.name.as_str()), "{result}");
        for edition in
            [FIRST, SECOND, THIRD, FOURTH].into_iter().filter(|_| !matches!(answer, Outcome::Discovery(_)))
        {
            let result = written(|out| write_outcome(out, edition, &answer, Some(&server)));
            assert!(!result.as_str().contains(key::SERVER), "{result}");
        }
    }
}

#[test]
fn a_log_level_is_asked_for_in_one_edition() {
    let meta = Meta { log_level: Some(LogLevel::Info), ..Meta::default() };
    for edition in Edition::ALL {
        let params = written(|out| write_call_params(out, edition, &Call::Ping, None, &meta));
        let expected = match edition == NEWEST {
            true => r#"{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}"#,
            false => "{}",
        };
        assert_eq!(params.as_str(), expected);
    }
}

#[test]
fn only_answers_that_last_say_how_long() {
    for (_, answer) in samples::outcomes() {
        let text = outcome(NEWEST, &answer);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let lasts = matches!(
            answer,
            Outcome::Discovery(_)
                | Outcome::Tools(_)
                | Outcome::Resources(_)
                | Outcome::Templates(_)
                | Outcome::Prompts(_)
                | Outcome::Read { .. }
        );
        let task = matches!(answer, Outcome::TaskStarted(_) | Outcome::TaskStatus(_));
        // A list that this edition does not have.
        let listed = matches!(answer, Outcome::Tasks(_));
        assert_eq!(value.get("cacheScope").is_some(), lasts || listed, "{text}");
        // A task has one of its own.
        assert!(task || value.get("ttlMs").is_some() == (lasts || listed), "{text}");
        assert!(value.get("resultType").is_some(), "{text}");
        for edition in [FIRST, SECOND, THIRD, FOURTH] {
            let text = outcome(edition, &answer);
            assert!(!text.contains("cacheScope") && !text.contains("\"resultType\""), "{text}");
        }
    }
}

#[test]
fn forms_lose_what_their_first_edition_has_no_words_for() {
    let ask = |schema| Ask::Elicit(Elicit::Form(Form { message: "m".into(), schema: Raw::from(schema) }));
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
    assert!(can_ask(THIRD, &form));
    assert_eq!(
        written(|out| write_ask_params(out, THIRD, &form)).as_str(),
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
    assert_eq!(Edition::ALL.map(|edition| can_ask(edition, &many)), [false, false, false, true, true]);
    assert_eq!(Edition::ALL.map(|edition| can_ask(edition, &form)), [false, false, true, true, true]);
}

#[test]
fn a_link_to_open_has_an_id_in_one_edition() {
    let ask =
        Ask::Elicit(Elicit::Url { message: "m".into(), url: "https://x.example/".into(), id: "e".into() });
    assert_eq!(
        written(|out| write_ask_params(out, FOURTH, &ask)).as_str(),
        r#"{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"e"}"#,
    );
    assert_eq!(
        written(|out| write_ask_params(out, NEWEST, &ask)).as_str(),
        r#"{"mode":"url","message":"m","url":"https://x.example/"}"#,
    );
}

#[test]
fn a_turn_is_one_block_where_there_is_room_for_one() {
    let blocks = |content: Vec<Content>| {
        Ask::Sample(Box::new(Sample {
            messages: vec![SamplingMessage {
                role: Role::User,
                content: content.into_iter().map(SamplingBlock::Content).collect(),
                meta: None,
            }],
            max_tokens: 1,
            ..Sample::default()
        }))
    };
    let show = |edition, ask: &Ask| {
        let params = written(|out| write_ask_params(out, edition, ask));
        let message = params.view().get("messages").and_then(|messages| messages.items().next());
        message.and_then(|message| message.get("content")).unwrap().to_string()
    };
    let two = blocks(vec![Content::text("a"), Content::image(vec![0; 6], "image/png")]);
    for edition in [FIRST, SECOND, THIRD] {
        assert_eq!(show(edition, &two), r#"{"type":"text","text":"a\n[image: image/png, 6 bytes]"}"#);
    }
    assert!(show(FOURTH, &two).starts_with('['));
    let one = blocks(vec![Content::image(vec![0; 3], "image/png")]);
    for edition in Edition::ALL {
        assert_eq!(show(edition, &one), r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#);
    }
    let embedded = blocks(vec![Content::embedded(Contents::blob("test://x", vec![0; 5]))]);
    for edition in Edition::ALL {
        assert_eq!(show(edition, &embedded), r#"{"type":"text","text":"[resource: test://x, 5 bytes]"}"#);
    }
    let tools = Ask::Sample(Box::new(samples::new_samples().remove(0)));
    // What must not be put is not put half either; a choice among no tools is none.
    let choice = Sample { tool_choice: Some(ToolChoice::None), ..Sample::default() };
    let choice = Ask::Sample(Box::new(choice));
    for edition in [FIRST, SECOND, THIRD] {
        assert!(can_ask(edition, &choice));
        for ask in [&choice, &tools] {
            let params = written(|out| write_ask_params(out, edition, ask));
            assert!(params.view().get("tools").is_none() && params.view().get("toolChoice").is_none());
        }
    }
    assert_eq!(Edition::ALL.map(|edition| can_ask(edition, &tools)), [false, false, false, true, true]);
}

#[test]
fn capabilities_say_what_an_edition_knows() {
    let client = |edition, capabilities: &ClientCapabilities| {
        written(|out| write_client_capabilities(out, edition, capabilities)).to_string()
    };
    let form = ClientCapabilities {
        roots: Some(true),
        elicitation: Some(ElicitationCapability { form: true, url: false }),
        ..ClientCapabilities::default()
    };
    assert_eq!(client(SECOND, &form), r#"{"roots":{"listChanged":true}}"#);
    assert_eq!(client(THIRD, &form), r#"{"roots":{"listChanged":true},"elicitation":{}}"#);
    assert_eq!(client(FOURTH, &form), r#"{"roots":{"listChanged":true},"elicitation":{"form":{}}}"#);
    assert_eq!(client(NEWEST, &form), r#"{"roots":{},"elicitation":{"form":{}}}"#);
    let sampling = ClientCapabilities {
        sampling: Some(SamplingCapability { context: true, tools: true }),
        ..ClientCapabilities::default()
    };
    assert_eq!(client(THIRD, &sampling), r#"{"sampling":{}}"#);
    assert_eq!(client(FOURTH, &sampling), r#"{"sampling":{"context":{},"tools":{}}}"#);
    let url = ClientCapabilities {
        elicitation: Some(ElicitationCapability { form: false, url: true }),
        ..ClientCapabilities::default()
    };
    assert_eq!(client(THIRD, &url), "{}");
    assert_eq!(client(FOURTH, &url), r#"{"elicitation":{"url":{}}}"#);
}

#[test]
fn a_hello_names_someone() {
    let hello = Call::Hello(Hello { version: FOURTH.date().into(), ..Hello::default() });
    let params = written(|out| write_call_params(out, FOURTH, &hello, None, &Meta::default()));
    assert_eq!(
        params.as_str(),
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"unknown","version":"0"}}"#,
    );
}

#[test]
fn what_is_too_much_is_cut() {
    let values = (0..101).map(|n| n.to_string()).collect();
    let completion = Completion { values, total: Some(u64::MAX), has_more: Some(false) };
    let value: serde_json::Value =
        serde_json::from_str(&outcome(FOURTH, &Outcome::Completion(completion))).unwrap();
    assert_eq!(value["completion"]["values"].as_array().unwrap().len(), 100);
    assert_eq!(value["completion"]["hasMore"], true);
    assert_eq!(value["completion"]["total"], 9_007_199_254_740_991_u64);

    let loud = Content {
        annotations: Some(Annotations { priority: Some(7.0), ..Annotations::default() }),
        ..Content::text("x")
    };
    assert_eq!(block(FOURTH, loud), r#"{"type":"text","text":"x","annotations":{"priority":1}}"#);
    let unsaid = Content {
        annotations: Some(Annotations { priority: Some(f64::NAN), ..Annotations::default() }),
        ..Content::text("x")
    };
    assert_eq!(block(FOURTH, unsaid), r#"{"type":"text","text":"x","annotations":{}}"#);
    let lost = Notice::Progress {
        token: ProgressToken::from(1),
        progress: f64::INFINITY,
        total: None,
        message: None,
    };
    assert!(!write_notice(&mut Vec::new(), NEWEST, &lost, None));
}

#[test]
fn foreign_json_stays_on_one_line_and_in_its_place() {
    let spread = Raw::parse("{\n  \"a\": [1,\r\n 2]\n}".into()).unwrap();
    let output =
        ToolOutput { structured: Some(spread), meta: Some(Raw::text("no object")), ..ToolOutput::text("x") };
    assert_eq!(
        tool(FOURTH, &output),
        r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{   "a": [1,   2] }}"#,
    );
    let mut out = Vec::new();
    let data = Raw::parse("[\n1]".into()).unwrap();
    let log = Notice::Log { level: LogLevel::Info, logger: None, data };
    assert!(write_notice(&mut out, NEWEST, &log, None));
    assert!(!out.contains(&b'\n'));
}
