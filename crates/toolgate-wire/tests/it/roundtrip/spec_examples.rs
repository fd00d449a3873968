//! Messages as printed in the protocol specification: each reads as expected, and is written again as printed, up to the
//! order of its members.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::{read_client_info, read_meta, to_raw};

const V2025_11_25: ProtocolVersion = ProtocolVersion::V2025_11_25;
const V2026_07_28: ProtocolVersion = ProtocolVersion::V2026_07_28;

/// The value of `M`.
const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"cli","version":"0.1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{"tools":{}}}}"#;

fn frame(text: &str) -> Frame {
    let text =
        text.replace(r#""_meta":"M""#, r#""_meta":M"#).replace(r#""_meta":M"#, &format!(r#""_meta":{META}"#));
    match read_message(&Bytes::from(text.clone()), &Limits::default()) {
        Ok(Message::Single(frame)) => frame,
        other => panic!("{other:?}: {text}"),
    }
}

fn call(version: ProtocolVersion, text: &str) -> Call {
    let Frame::Request { method, params, .. } = frame(text) else { panic!("no request: {text}") };
    let call = read_call(version, &method, params.as_ref()).unwrap();
    assert_eq!(call.method(), &*method);
    // Compares with what a client would write, except for the client information.
    let meta = read_meta(params.as_ref()).unwrap();
    let again = to_raw(|out| write_call_params(out, version, &call, None, &meta)).to_value();
    assert_eq!(again, params.map_or(json!({}), |params| params.to_value()));
    call
}

fn outcome(version: ProtocolVersion, call: &Call, text: &str) -> Outcome {
    let Frame::Response { outcome: Ok(result), .. } = frame(text) else { panic!("no result: {text}") };
    let outcome = read_outcome(version, call, &result).unwrap();
    let again = to_raw(|out| write_outcome(out, version, &outcome, None)).to_value();
    assert_eq!(again, result.to_value(), "{text}");
    outcome
}

fn notification(version: ProtocolVersion, text: &str) -> (Notification, Option<RequestId>) {
    let Frame::Notification { method, params } = frame(text) else { panic!("no notification: {text}") };
    let (notice, tag) = read_notification(version, &method, params.as_ref()).unwrap();
    let again = to_raw(|out| assert!(write_notification(out, version, &notice, tag.as_ref()))).to_value();
    assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
    (notice, tag)
}

fn raw(value: Value) -> RawJson {
    RawJson::from(value)
}

fn tool_call(name: &str, arguments: Value) -> Call {
    let (arguments, retry) = (Some(raw(arguments)), Retry::default());
    Call::CallTool { name: name.into(), arguments, retry, task: None }
}

fn form(message: &str, schema: Value) -> ServerRequest {
    ServerRequest::Elicitation(ElicitRequest::Form(ElicitForm {
        message: message.into(),
        schema: raw(schema),
    }))
}

#[test]
fn a_plain_call() {
    let text = r#"{"jsonrpc":"2.0","id":"c-7","method":"tools/call","params":{"name":"stock.lookup","arguments":{"region":"eu-north","sku":"A17"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":41}}}"#;
    let asked = call(V2026_07_28, text);
    assert_eq!(asked, tool_call("stock.lookup", json!({ "region": "eu-north", "sku": "A17" })));
    let Frame::Request { params, .. } = frame(text) else { panic!() };
    assert_eq!(read_meta(params.as_ref()).unwrap().progress_token, Some(ProgressToken::from(41)));
    let client_info = (V2026_07_28.as_str().to_owned(), ClientCapabilities::default(), None);
    assert_eq!(read_client_info(params.as_ref()).unwrap(), client_info);

    let (written, tag) = notification(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":41,"progress":0.5,"total":1,"message":"asking warehouse"}}"#,
    );
    assert_eq!(tag, None);
    assert_eq!(
        written,
        Notification::Progress {
            token: ProgressToken::from(41),
            progress: 0.5,
            total: Some(1.0),
            message: Some("asking warehouse".into()),
        }
    );

    let text = r#"{"jsonrpc":"2.0","id":"c-7","result":{"resultType":"complete","content":[{"type":"text","text":"[3,9]"}],"structuredContent":[3,9],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"stock","version":"2.1.0"}}}}"#;
    let Outcome::Tool(output) = outcome(V2026_07_28, &asked, text) else { panic!() };
    assert_eq!(output.content, [Content::text("[3,9]")]);
    assert_eq!(output.structured_content, Some(raw(json!([3, 9]))));
    assert!(!output.is_error);

    // When we write it, the server info is passed separately.
    let Frame::Response { outcome: Ok(printed), .. } = frame(text) else { panic!() };
    let server =
        Implementation { name: "stock".into(), version: "2.1.0".into(), ..Implementation::default() };
    let ours = Outcome::Tool(ToolOutput { meta: None, ..output });
    let again = to_raw(|out| write_outcome(out, V2026_07_28, &ours, Some(&server)));
    assert_eq!(again.to_value(), printed.to_value());
    let older = to_raw(|out| write_outcome(out, V2025_11_25, &ours, Some(&server)));
    assert_eq!(older.as_str(), r#"{"content":[{"type":"text","text":"[3,9]"}]}"#);
}

#[test]
fn rejections() {
    let sampling =
        ClientCapabilities { sampling: Some(SamplingCapability::default()), ..ClientCapabilities::default() };
    let incomplete = raw(json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } }));
    let cases = [
        (
            3,
            400,
            read_client_info(Some(&incomplete)).unwrap_err(),
            r#"{"code":-32602,"message":"params._meta lacks io.modelcontextprotocol/clientCapabilities"}"#,
        ),
        (
            4,
            400,
            ProtocolError::new(
                ProtocolErrorKind::HeaderMismatch,
                "Mcp-Name header is missing for tools/call",
            ),
            r#"{"code":-32020,"message":"Mcp-Name header is missing for tools/call"}"#,
        ),
        (
            5,
            400,
            ProtocolError::missing_capability(&sampling, "this tool needs sampling"),
            r#"{"code":-32021,"message":"this tool needs sampling","data":{"requiredCapabilities":{"sampling":{}}}}"#,
        ),
        (
            6,
            400,
            ProtocolError::unsupported_version("2031-01-01"),
            r#"{"code":-32022,"message":"protocol version 2031-01-01 is not supported","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2031-01-01"}}"#,
        ),
        (
            7,
            404,
            read_call(V2026_07_28, "ping", None).unwrap_err(),
            r#"{"code":-32601,"message":"no such method: ping"}"#,
        ),
        (
            8,
            200,
            ProtocolError::resource_not_found("test://nope"),
            r#"{"code":-32602,"message":"no such resource: test://nope","data":{"uri":"test://nope"}}"#,
        ),
    ];
    for (id, status, error, expected) in cases {
        assert_eq!(error.status(V2026_07_28), status, "{error}");
        let message =
            to_raw(|out| write_protocol_error(out, V2026_07_28, Some(&RequestId::from(id)), &error));
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{expected}}}"#);
        assert_eq!(message.to_value(), serde_json::from_str::<Value>(&expected).unwrap());
        let Frame::Response { outcome: Err(remote), .. } = frame(message.as_str()) else { panic!() };
        let back = ProtocolError::from_remote(remote, V2026_07_28);
        assert_eq!(
            (back.code(V2026_07_28), back.message(), back.data()),
            (error.code(V2026_07_28), error.message(), error.data())
        );
    }
}

#[test]
fn a_session_with_an_elicitation_inside_a_call() {
    let hello = call(
        V2025_11_25,
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"cli","version":"0.1"}}}"#,
    );
    let printed = frame(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"cli","version":"0.1"}}}"#,
    );
    let Frame::Request { params, .. } = printed else { panic!() };
    // The empty object means forms.
    assert_eq!(read_call(V2025_11_25, "initialize", params.as_ref()).unwrap(), hello);
    assert_eq!(
        hello,
        Call::Initialize(InitializeParams {
            version: "2025-11-25".into(),
            capabilities: ClientCapabilities {
                elicitation: Some(ElicitationCapability { form: true, url: false }),
                ..ClientCapabilities::default()
            },
            client_info: Some(Implementation {
                name: "cli".into(),
                version: "0.1".into(),
                ..Implementation::default()
            }),
        })
    );
    let welcome = outcome(
        V2025_11_25,
        &hello,
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"stock","version":"2.1.0"}}}"#,
    );
    let Outcome::Initialize(welcome) = welcome else { panic!() };
    assert_eq!(
        welcome.capabilities,
        ServerCapabilities { tools: Some(true), ..ServerCapabilities::default() }
    );
    assert_eq!(
        notification(V2025_11_25, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        (Notification::Initialized, None)
    );
    let asked = call(
        V2025_11_25,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","arguments":{"env":"prod"}}}"#,
    );
    assert_eq!(asked, tool_call("deploy", json!({ "env": "prod" })));

    let text = r#"{"jsonrpc":"2.0","id":"srv-1","method":"elicitation/create","params":{"mode":"form","message":"Deploy to prod?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}"#;
    let Frame::Request { method, params: Some(params), .. } = frame(text) else { panic!() };
    let request = read_server_request(V2025_11_25, &method, Some(&params)).unwrap();
    let schema =
        json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] });
    assert_eq!(request, form("Deploy to prod?", schema));
    assert_eq!(
        to_raw(|out| write_server_request_params(out, V2025_11_25, &request)).to_value(),
        params.to_value()
    );
    let older =
        to_raw(|out| write_server_request_params(out, ProtocolVersion::V2025_06_18, &request)).to_value();
    assert_eq!(older.get("mode"), None);

    let Frame::Response { outcome: Ok(result), .. } =
        frame(r#"{"jsonrpc":"2.0","id":"srv-1","result":{"action":"accept","content":{"ok":true}}}"#)
    else {
        panic!()
    };
    let heard = read_client_result(V2025_11_25, &request, &result).unwrap();
    assert_eq!(heard, ClientResult::Elicitation(ElicitResult::Accept(Some(raw(json!({ "ok": true }))))));
    assert_eq!(to_raw(|out| write_client_result(out, V2025_11_25, &heard)), result);
    let done = outcome(
        V2025_11_25,
        &asked,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}"#,
    );
    assert_eq!(done, Outcome::Tool(ToolOutput::text("done")));
}

#[test]
fn two_rounds_of_input_requests() {
    let first = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"ticket.close","arguments":{"ticket":4522},"_meta":"M"}}"#,
    );
    assert_eq!(first, tool_call("ticket.close", json!({ "ticket": 4522 })));
    let asked = outcome(
        V2026_07_28,
        &first,
        r#"{"jsonrpc":"2.0","id":10,"result":{"resultType":"input_required","inputRequests":{"why":{"method":"elicitation/create","params":{"mode":"form","message":"Reason for closing 4522?","requestedSchema":{"type":"object","properties":{"reason":{"type":"string","oneOf":[{"const":"fixed","title":"Fixed"},{"const":"dup","title":"Duplicate"}]}},"required":["reason"]}}}},"requestState":"v1.k3.AAAA"}}"#,
    );
    let Outcome::InputRequired(asked) = asked else { panic!() };
    assert_eq!(asked.request_state.as_deref(), Some("v1.k3.AAAA"));
    assert_eq!(asked.input_requests["why"].kind(), ServerRequestKind::ElicitForm);

    let second = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"ticket.close","arguments":{"ticket":4522},"inputResponses":{"why":{"action":"accept","content":{"reason":"dup"}}},"requestState":"v1.k3.AAAA","_meta":"M"}}"#,
    );
    let Call::CallTool { retry, .. } = &second else { panic!() };
    assert_eq!(retry.request_state.as_deref(), Some("v1.k3.AAAA"));
    let heard =
        read_client_result(V2026_07_28, &asked.input_requests["why"], &retry.input_responses["why"]).unwrap();
    assert_eq!(heard, ClientResult::Elicitation(ElicitResult::Accept(Some(raw(json!({ "reason": "dup" }))))));
    outcome(
        V2026_07_28,
        &second,
        r#"{"jsonrpc":"2.0","id":11,"result":{"resultType":"input_required","inputRequests":{"of":{"method":"elicitation/create","params":{"mode":"form","message":"Duplicate of which ticket?","requestedSchema":{"type":"object","properties":{"id":{"type":"integer","minimum":1}},"required":["id"]}}}},"requestState":"v1.k3.BBBB"}}"#,
    );
    let third = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"ticket.close","arguments":{"ticket":4522},"inputResponses":{"of":{"action":"accept","content":{"id":4301}}},"requestState":"v1.k3.BBBB","_meta":"M"}}"#,
    );
    let done = outcome(
        V2026_07_28,
        &third,
        r#"{"jsonrpc":"2.0","id":12,"result":{"resultType":"complete","content":[{"type":"text","text":"4522 closed as duplicate of 4301"}]}}"#,
    );
    assert_eq!(done, Outcome::Tool(ToolOutput::text("4522 closed as duplicate of 4301")));
    let cancelled =
        read_client_result(V2026_07_28, &asked.input_requests["why"], &raw(json!({ "action": "cancel" })))
            .unwrap();
    assert_eq!(cancelled, ClientResult::Elicitation(ElicitResult::Cancel));
}

#[test]
fn a_model_that_calls_tools() {
    let risk = tool_call("risk", json!({}));
    let asked = outcome(
        V2026_07_28,
        &risk,
        r#"{"jsonrpc":"2.0","id":21,"result":{"resultType":"input_required","inputRequests":{"llm/0":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"Summarize stock risk"}}],"tools":[{"name":"qty","inputSchema":{"type":"object","properties":{"sku":{"type":"string"}},"required":["sku"]}}],"toolChoice":{"mode":"auto"},"maxTokens":400}}},"requestState":"v1.k3.CC"}}"#,
    );
    let Outcome::InputRequired(asked) = asked else { panic!() };
    let ServerRequest::Sampling(sample) = &asked.input_requests["llm/0"] else { panic!() };
    assert_eq!((sample.max_tokens, sample.tool_choice), (400, Some(ToolChoice::Auto)));
    assert_eq!(sample.tools[0].name, "qty");

    let again = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":22,"method":"tools/call","params":{"name":"risk","arguments":{},"inputResponses":{"llm/0":{"role":"assistant","model":"m","stopReason":"toolUse","content":[{"type":"tool_use","id":"t1","name":"qty","input":{"sku":"A17"}}]}},"requestState":"v1.k3.CC","_meta":"M"}}"#,
    );
    let Call::CallTool { retry, .. } = &again else { panic!() };
    let heard =
        read_client_result(V2026_07_28, &asked.input_requests["llm/0"], &retry.input_responses["llm/0"])
            .unwrap();
    let ClientResult::Sampling(sampled) = &heard else { panic!() };
    assert_eq!(sampled.stop_reason.as_deref(), Some("toolUse"));
    assert_eq!(
        sampled.content,
        [SamplingBlock::ToolUse {
            id: "t1".into(),
            name: "qty".into(),
            input: raw(json!({ "sku": "A17" })),
            meta: None,
        }]
    );
    let written = to_raw(|out| write_client_result(out, V2026_07_28, &heard));
    assert_eq!(written.to_value(), retry.input_responses["llm/0"].to_value());
    outcome(
        V2026_07_28,
        &again,
        r#"{"jsonrpc":"2.0","id":22,"result":{"resultType":"input_required","inputRequests":{"llm/1":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"Summarize stock risk"}},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"qty","input":{"sku":"A17"}}]},{"role":"user","content":[{"type":"tool_result","toolUseId":"t1","content":[{"type":"text","text":"3"}]}]}],"maxTokens":400}}},"requestState":"v1.k3.DD"}}"#,
    );
}

fn task(status: TaskStatus, updated_at: &str) -> Task {
    Task {
        id: "t-8c1f".into(),
        status,
        status_message: None,
        created_at: "2026-08-30T10:00:00Z".into(),
        last_updated_at: updated_at.into(),
        ttl_ms: Some(600_000),
        poll_interval_ms: None,
        input_requests: Default::default(),
        outcome: None,
    }
}

#[test]
fn core_tasks() {
    let build = call(
        V2025_11_25,
        r#"{"jsonrpc":"2.0","id":30,"method":"tools/call","params":{"name":"build","arguments":{},"task":{"ttl":600000}}}"#,
    );
    assert!(matches!(build, Call::CallTool { task: Some(Some(600_000)), .. }));
    let started = outcome(
        V2025_11_25,
        &build,
        r#"{"jsonrpc":"2.0","id":30,"result":{"task":{"taskId":"t-8c1f","status":"working","createdAt":"2026-08-30T10:00:00Z","lastUpdatedAt":"2026-08-30T10:00:00Z","ttl":600000,"pollInterval":2000}}}"#,
    );
    let working = Task { poll_interval_ms: Some(2000), ..task(TaskStatus::Working, "2026-08-30T10:00:00Z") };
    assert_eq!(started, Outcome::TaskStarted(working));
    let result = call(
        V2025_11_25,
        r#"{"jsonrpc":"2.0","id":31,"method":"tasks/result","params":{"taskId":"t-8c1f"}}"#,
    );
    assert_eq!(result, Call::TaskResult { id: "t-8c1f".into() });
    let text = r#"{"jsonrpc":"2.0","id":31,"result":{"content":[{"type":"text","text":"ok"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-8c1f"}}}}"#;
    let Outcome::TaskPayload { id, output } = outcome(V2025_11_25, &result, text) else { panic!() };
    assert_eq!(id, "t-8c1f");
    assert!(matches!(&*output, Outcome::Tool(output) if output.content == [Content::text("ok")]));
    // When we write it, the task id is added.
    let ours = Outcome::TaskPayload { id, output: Arc::new(Outcome::Tool(ToolOutput::text("ok"))) };
    let Frame::Response { outcome: Ok(printed), .. } = frame(text) else { panic!() };
    assert_eq!(to_raw(|out| write_outcome(out, V2025_11_25, &ours, None)), printed);
}

#[test]
fn tasks_of_the_extension() {
    let build = tool_call("build", json!({}));
    let get = Call::GetTask { id: "t-8c1f".into() };
    let started = outcome(
        V2026_07_28,
        &build,
        r#"{"jsonrpc":"2.0","id":40,"result":{"resultType":"task","taskId":"t-8c1f","status":"working","createdAt":"2026-08-30T10:00:00Z","lastUpdatedAt":"2026-08-30T10:00:00Z","ttlMs":600000,"pollIntervalMs":2000}}"#,
    );
    let working = Task { poll_interval_ms: Some(2000), ..task(TaskStatus::Working, "2026-08-30T10:00:00Z") };
    assert_eq!(started, Outcome::TaskStarted(working));

    // Printed without `mode`, which we write.
    let waiting = outcome(
        V2026_07_28,
        &get,
        r#"{"jsonrpc":"2.0","id":41,"result":{"resultType":"complete","taskId":"t-8c1f","status":"input_required","createdAt":"2026-08-30T10:00:00Z","lastUpdatedAt":"2026-08-30T10:01:00Z","ttlMs":600000,"inputRequests":{"go":{"method":"elicitation/create","params":{"mode":"form","message":"Publish?","requestedSchema":{"type":"object","properties":{"yes":{"type":"boolean"}}}}}}}}"#,
    );
    let Frame::Response { outcome: Ok(printed), .. } = frame(
        r#"{"jsonrpc":"2.0","id":41,"result":{"resultType":"complete","taskId":"t-8c1f","status":"input_required","createdAt":"2026-08-30T10:00:00Z","lastUpdatedAt":"2026-08-30T10:01:00Z","ttlMs":600000,"inputRequests":{"go":{"method":"elicitation/create","params":{"message":"Publish?","requestedSchema":{"type":"object","properties":{"yes":{"type":"boolean"}}}}}}}}"#,
    ) else {
        panic!()
    };
    assert_eq!(read_outcome(V2026_07_28, &get, &printed).unwrap(), waiting);
    let Outcome::TaskStatus(waiting) = waiting else { panic!() };
    let schema = json!({ "type": "object", "properties": { "yes": { "type": "boolean" } } });
    assert_eq!(waiting.input_requests["go"], form("Publish?", schema));

    let update = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":42,"method":"tasks/update","params":{"taskId":"t-8c1f","inputResponses":{"go":{"action":"accept","content":{"yes":true}}},"_meta":"M"}}"#,
    );
    let Call::UpdateTask { input_responses: answers, .. } = &update else { panic!() };
    assert_eq!(answers["go"].to_value(), json!({ "action": "accept", "content": { "yes": true } }));
    assert_eq!(
        outcome(V2026_07_28, &update, r#"{"jsonrpc":"2.0","id":42,"result":{"resultType":"complete"}}"#),
        Outcome::Empty
    );

    let done = outcome(
        V2026_07_28,
        &get,
        r#"{"jsonrpc":"2.0","id":43,"result":{"resultType":"complete","taskId":"t-8c1f","status":"completed","createdAt":"2026-08-30T10:00:00Z","lastUpdatedAt":"2026-08-30T10:02:00Z","ttlMs":600000,"result":{"content":[{"type":"text","text":"ok"}]}}}"#,
    );
    let end = TaskOutcome::Result(Arc::new(Outcome::Tool(ToolOutput::text("ok"))));
    let completed = Task { outcome: Some(end), ..task(TaskStatus::Completed, "2026-08-30T10:02:00Z") };
    assert_eq!(done, Outcome::TaskStatus(Box::new(completed)));

    let failed = outcome(
        V2026_07_28,
        &get,
        r#"{"jsonrpc":"2.0","id":44,"result":{"resultType":"complete","taskId":"t-8c1f","status":"failed","statusMessage":"worker died","createdAt":"2026-08-30T10:00:00Z","lastUpdatedAt":"2026-08-30T10:02:00Z","ttlMs":600000,"error":{"code":-32603,"message":"worker died"}}}"#,
    );
    assert_eq!(
        failed,
        Outcome::TaskStatus(Box::new(Task {
            status_message: Some("worker died".into()),
            outcome: Some(TaskOutcome::Error(ProtocolError::new(ProtocolErrorKind::Internal, "worker died"))),
            ..task(TaskStatus::Failed, "2026-08-30T10:02:00Z")
        }))
    );
}

#[test]
fn two_subscriptions() {
    let first = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":"L1","method":"subscriptions/listen","params":{"_meta":M,"notifications":{"toolsListChanged":true}}}"#,
    );
    let tools = SubscriptionFilter { tools: true, ..SubscriptionFilter::default() };
    assert_eq!(first, Call::Listen(tools.clone()));
    let second = call(
        V2026_07_28,
        r#"{"jsonrpc":"2.0","id":"L2","method":"subscriptions/listen","params":{"_meta":M,"notifications":{"resourceSubscriptions":["test://w"],"promptsListChanged":true}}}"#,
    );
    let filter =
        SubscriptionFilter { prompts: true, uris: vec!["test://w".into()], ..SubscriptionFilter::default() };
    assert_eq!(second, Call::Listen(filter));
    let one = Some(RequestId::from("L1"));
    assert_eq!(
        notification(
            V2026_07_28,
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L1"},"notifications":{"toolsListChanged":true}}}"#
        ),
        (Notification::SubscriptionAcknowledged(tools), one.clone())
    );
    assert_eq!(
        notification(
            V2026_07_28,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L1"}}}"#
        ),
        (Notification::ToolsChanged, one)
    );
    let uris = SubscriptionFilter { uris: vec!["test://w".into()], ..SubscriptionFilter::default() };
    assert_eq!(
        notification(
            V2026_07_28,
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L2"},"notifications":{"resourceSubscriptions":["test://w"]}}}"#
        ),
        (Notification::SubscriptionAcknowledged(uris), Some(RequestId::from("L2")))
    );
    let cancelled = Notification::Cancelled { request: Some(RequestId::from("L1")), reason: None };
    assert_eq!(
        notification(
            V2026_07_28,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"L1"}}"#
        ),
        (cancelled, None)
    );
    let ended = outcome(
        V2026_07_28,
        &first,
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
    );
    assert_eq!(ended, Outcome::ListenEnded { subscription_id: RequestId::from(1) });
}

#[test]
fn a_discovery() {
    let text = r#"{"jsonrpc":"2.0","id":"d1","result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}}},"instructions":"be kind","ttlMs":3600000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"stock","version":"2.1.0"}}}}"#;
    let Outcome::Discover(discovery) = outcome(V2026_07_28, &Call::Discover, text) else { panic!() };
    assert_eq!(discovery.versions, ["2026-07-28", "2025-11-25"]);
    assert_eq!(discovery.cache, CacheHint { ttl_ms: 3_600_000, scope: CacheScope::Public });
    assert_eq!(discovery.server_info.unwrap().name, "stock");
}
