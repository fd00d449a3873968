//! Validates everything that we write against the official schemas: every sample of every message, in every version that has
//! it.
//!
//! Each is validated twice: against the schema as it is, and against a closed form of it, which rejects unknown properties.
//! The schemas are not part of this repository; if they are not found the tests print a note and pass.

// Helpers are tests too: they fail by panicking.
#![allow(clippy::unwrap_used)]

mod document;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use document::SchemaDocument;

use super::samples;

/// The schema of a version and that of the tasks extension.
struct VersionSchemas {
    version: ProtocolVersion,
    document: SchemaDocument,
    tasks: Option<SchemaDocument>,
}

impl VersionSchemas {
    fn load(version: ProtocolVersion) -> Option<VersionSchemas> {
        let document = SchemaDocument::load(version.as_str())?;
        let extension = version.behavior().tasks == TasksMode::Extension;
        let tasks = extension.then(|| SchemaDocument::load("ext-tasks-draft")).flatten();
        Some(VersionSchemas { version, document, tasks })
    }

    /// Returns the document that has a definition, the version's own first.
    fn document_with(&self, definition: &str) -> Option<&SchemaDocument> {
        [Some(&self.document), self.tasks.as_ref()]
            .into_iter()
            .flatten()
            .find(|document| document.has(definition))
    }

    fn check(&self, definition: &str, value: &Value) {
        let document =
            self.document_with(definition).unwrap_or_else(|| panic!("{} {definition}", self.version));
        document.check(self.version, definition, value);
    }

    fn check_response(&self, definition: &str, result: &Value) {
        self.check(definition, result);
        let response = json!({ "jsonrpc": "2.0", "id": 7, "result": result });
        let envelope =
            ["JSONRPCResultResponse", "JSONRPCResponse"].into_iter().find(|name| self.document.has(name));
        self.check(envelope.unwrap(), &response);
    }
}

fn parse(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(!text.contains(['\n', '\r']), "more than one line: {text}");
    RawJson::parse(bytes.to_vec().into()).unwrap_or_else(|error| panic!("{error}: {text}")).to_value()
}

fn call_definition(method: &str) -> &'static str {
    match method {
        "initialize" => "InitializeRequest",
        "server/discover" => "DiscoverRequest",
        "ping" => "PingRequest",
        "logging/setLevel" => "SetLevelRequest",
        "tools/list" => "ListToolsRequest",
        "tools/call" => "CallToolRequest",
        "resources/list" => "ListResourcesRequest",
        "resources/templates/list" => "ListResourceTemplatesRequest",
        "resources/read" => "ReadResourceRequest",
        "resources/subscribe" => "SubscribeRequest",
        "resources/unsubscribe" => "UnsubscribeRequest",
        "subscriptions/listen" => "SubscriptionsListenRequest",
        "prompts/list" => "ListPromptsRequest",
        "prompts/get" => "GetPromptRequest",
        "completion/complete" => "CompleteRequest",
        "tasks/list" => "ListTasksRequest",
        "tasks/get" => "GetTaskRequest",
        "tasks/result" => "GetTaskPayloadRequest",
        "tasks/update" => "UpdateTaskRequest",
        "tasks/cancel" => "CancelTaskRequest",
        other => panic!("no definition for {other}"),
    }
}

/// Returns `None` if the version has no such result.
fn outcome_definition(version: ProtocolVersion, call: &Call, outcome: &Outcome) -> Option<&'static str> {
    let facts = version.behavior();
    let newest = facts.result_type;
    Some(match outcome {
        Outcome::Empty => match call {
            Call::UpdateTask { .. } => "UpdateTaskResult",
            Call::CancelTask { .. } if newest => "CancelTaskResult",
            Call::CancelTask { .. } => return None,
            _ => "EmptyResult",
        },
        Outcome::Initialize(_) => "InitializeResult",
        Outcome::Discover(_) => "DiscoverResult",
        Outcome::Tools(_) => "ListToolsResult",
        Outcome::Tool(_) => "CallToolResult",
        Outcome::Resources(_) => "ListResourcesResult",
        Outcome::Templates(_) => "ListResourceTemplatesResult",
        Outcome::ReadResource { .. } => "ReadResourceResult",
        Outcome::Prompts(_) => "ListPromptsResult",
        Outcome::Prompt(_) => "GetPromptResult",
        Outcome::Completion(_) => "CompleteResult",
        Outcome::InputRequired(_) => "InputRequiredResult",
        Outcome::ListenEnded { .. } => "SubscriptionsListenResult",
        Outcome::TaskStarted(_) => "CreateTaskResult",
        Outcome::TaskStatus(_) => match call {
            Call::CancelTask { .. } if newest => return None,
            Call::CancelTask { .. } => "CancelTaskResult",
            _ => "GetTaskResult",
        },
        Outcome::Tasks(_) => "ListTasksResult",
        Outcome::TaskPayload { .. } => "GetTaskPayloadResult",
        _ => panic!("no definition for {outcome:?}"),
    })
}

fn server_request_definition(request: &ServerRequest) -> &'static str {
    match request {
        ServerRequest::Elicitation(_) => "ElicitRequest",
        ServerRequest::Sampling(_) => "CreateMessageRequest",
        _ => "ListRootsRequest",
    }
}

fn notification_definition(notification: &Notification) -> &'static str {
    match notification {
        Notification::Initialized => "InitializedNotification",
        Notification::Cancelled { .. } => "CancelledNotification",
        Notification::Progress { .. } => "ProgressNotification",
        Notification::LogMessage { .. } => "LoggingMessageNotification",
        Notification::ToolsChanged => "ToolListChangedNotification",
        Notification::PromptsChanged => "PromptListChangedNotification",
        Notification::ResourcesChanged => "ResourceListChangedNotification",
        Notification::ResourceUpdated { .. } => "ResourceUpdatedNotification",
        Notification::RootsChanged => "RootsListChangedNotification",
        Notification::ElicitationComplete { .. } => "ElicitationCompleteNotification",
        Notification::TaskStatus(_) => "TaskStatusNotification",
        Notification::SubscriptionAcknowledged(_) => "SubscriptionsAcknowledgedNotification",
    }
}

fn check_calls(schemas: &VersionSchemas) {
    let version = schemas.version;
    for call in samples::calls() {
        let method = call.method();
        let definition = call_definition(method);
        let known = schemas.document_with(definition).is_some();
        let read = read_call(version, method, None);
        let refused = read.is_err_and(|error| error.kind() == ProtocolErrorKind::MethodNotFound);
        assert_eq!(refused, !known, "{version} {method}");
        if !known {
            continue;
        }
        for (client, meta) in samples::clients(version).iter().zip(samples::metas().iter().cycle()) {
            let mut out = Vec::new();
            write_call_params(&mut out, version, &call, Some(client), meta);
            let request = json!({ "jsonrpc": "2.0", "id": "c-7", "method": method, "params": parse(&out) });
            schemas.check(definition, &request);
            schemas.check("JSONRPCRequest", &request);
        }
    }
}

fn check_outcomes(schemas: &VersionSchemas) {
    let version = schemas.version;
    let server = samples::server();
    for (call, outcome) in samples::outcomes().into_iter().chain(samples::downgraded_outcomes()) {
        let Some(definition) = outcome_definition(version, &call, &outcome) else {
            continue;
        };
        if schemas.document_with(definition).is_none() {
            continue;
        }
        for server in [None, Some(&server)] {
            let mut out = Vec::new();
            write_outcome(&mut out, version, &outcome, server);
            let result = parse(&out);
            schemas.check_response(definition, &result);
            let typed = format!("{definition}Response");
            if schemas.document.has(&typed) {
                schemas.check(&typed, &json!({ "jsonrpc": "2.0", "id": 7, "result": result }));
            }
            if let Outcome::TaskPayload { .. } = outcome {
                schemas.check_response("CallToolResult", &result);
            }
        }
    }
}

fn check_server_requests(schemas: &VersionSchemas) {
    let version = schemas.version;
    let newer = version >= ProtocolVersion::V2025_11_25;
    let old = samples::server_requests()
        .into_iter()
        .chain(samples::downgraded_server_requests())
        .map(|request| (request, true));
    let new = samples::new_server_requests().into_iter().map(|request| (request, newer));
    for (request, fits) in old.chain(new) {
        let definition = server_request_definition(&request);
        assert_eq!(
            supports_request(version, &request),
            fits && schemas.document.has(definition),
            "{version} {request:?}"
        );
        if !supports_request(version, &request) {
            continue;
        }
        let mut out = Vec::new();
        write_server_request_params(&mut out, version, &request);
        let params = parse(&out);
        let bare = json!({ "method": request.method(), "params": params });
        match version.behavior().server_requests {
            ServerRequestMode::Retry => schemas.check(definition, &bare),
            ServerRequestMode::Reverse => {
                let mut request = bare;
                request["jsonrpc"] = json!("2.0");
                request["id"] = json!(3);
                schemas.check(definition, &request);
                schemas.check("JSONRPCRequest", &request);
            }
        }
    }
}

fn check_client_results(schemas: &VersionSchemas) {
    let version = schemas.version;
    for (request, result) in samples::client_results()
        .into_iter()
        .chain(samples::new_client_results())
        .chain(samples::downgraded_client_results())
    {
        if !supports_request(version, &request) {
            continue;
        }
        let mut out = Vec::new();
        write_client_result(&mut out, version, &result);
        let definition = match result {
            ClientResult::Elicitation(_) => "ElicitResult",
            ClientResult::Sampling(_) => "CreateMessageResult",
            _ => "ListRootsResult",
        };
        schemas.check(definition, &parse(&out));
    }
}

fn check_notifications(schemas: &VersionSchemas) {
    let version = schemas.version;
    for notification in samples::notifications() {
        let definition = notification_definition(&notification);
        let nameless = matches!(notification, Notification::Cancelled { request: None, .. });
        let known = schemas.document_with(definition).is_some()
            && !(nameless && version != ProtocolVersion::V2025_11_25);
        for subscription in [None, Some(RequestId::from("L1")), Some(RequestId::from(1))] {
            let mut out = b"before".to_vec();
            let said = write_notification(&mut out, version, &notification, subscription.as_ref());
            assert_eq!(said, known, "{version} {notification:?}");
            let Some(written) = out.strip_prefix(b"before").filter(|written| !written.is_empty()) else {
                assert!(!said);
                continue;
            };
            let message = parse(written);
            schemas.check(definition, &message);
            schemas.check("JSONRPCNotification", &message);
            let tag = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            let tagged =
                subscription.filter(|_| version.behavior().change_delivery == ChangeDelivery::Listen);
            assert_eq!(tag.is_null(), tagged.is_none(), "{message}");
        }
    }
}

fn check_protocol_errors(schemas: &VersionSchemas) {
    let version = schemas.version;
    for error in samples::protocol_errors() {
        let mut out = Vec::new();
        write_protocol_error(&mut out, version, Some(&RequestId::from(3)), &error);
        let message = parse(&out);
        let newest = version.behavior().result_type;
        let special = match error.kind() {
            ProtocolErrorKind::UrlElicitationRequired if version == ProtocolVersion::V2025_11_25 => {
                Some("URLElicitationRequiredError")
            }
            ProtocolErrorKind::HeaderMismatch if newest => Some("HeaderMismatchError"),
            ProtocolErrorKind::MissingCapability if newest => Some("MissingRequiredClientCapabilityError"),
            ProtocolErrorKind::UnsupportedVersion if newest => Some("UnsupportedProtocolVersionError"),
            _ => None,
        };
        let general =
            ["JSONRPCErrorResponse", "JSONRPCError"].into_iter().find(|name| schemas.document.has(name));
        schemas.check(special.or(general).unwrap(), &message);
        schemas.check(general.unwrap(), &message);

        let mut out = Vec::new();
        write_protocol_error(&mut out, version, None, &error);
        let nameless = parse(&out);
        match version.behavior().error_id_optional {
            true => schemas.check(general.unwrap(), &nameless),
            // The schema has no error without an id; JSON-RPC requires null.
            false => assert_eq!(nameless.get("id"), Some(&Value::Null)),
        }
        assert_eq!(nameless["error"], message["error"]);
    }
}

/// Every property that the schema lists must have been validated.
fn check_coverage(schemas: &VersionSchemas) {
    let unions = [
        "ClientRequest",
        "ServerRequest",
        "ClientNotification",
        "ServerNotification",
        "ClientResult",
        "ServerResult",
    ];
    let definitions = &schemas.document.open[schemas.document.definitions_key];
    let members = unions.iter().filter_map(|union| definitions.get(union)?.get("anyOf")?.as_array());
    let names: BTreeSet<&str> = members
        .flatten()
        .filter_map(|member| member["$ref"].as_str()?.rsplit('/').next())
        .filter(|name| *name != "Result")
        .collect();
    assert!(names.len() > 15, "{}: {names:?}", schemas.version);
    let used = schemas.document.used_definitions.borrow();
    let untried: Vec<_> = names.iter().filter(|name| !used.contains(**name)).collect();
    assert!(untried.is_empty(), "{}: untried {untried:?}", schemas.version);

    let (mut seen, mut listed) = Default::default();
    for name in names {
        let schema = json!({ "$ref": format!("/{name}") });
        schemas.document.collect_properties(name, &schema, &mut seen, &mut listed);
    }
    let said = schemas.document.seen_properties.borrow();
    let unsaid: Vec<_> = listed.difference(&said).filter(|name| !is_not_modeled(name)).collect();
    assert!(unsaid.is_empty(), "{}: unsaid {unsaid:#?}", schemas.version);
}

/// Properties that the model omits on purpose.
fn is_not_modeled(name: &str) -> bool {
    // `_meta` of messages that have nothing else in it: lists, server requests, notifications.
    const FIELDLESS: [&str; 9] = [
        "CompleteResult",
        "InitializeResult",
        "ReadResourceResult",
        "ListRootsResult",
        "ElicitResult",
        "ListRootsRequest.params",
        "CreateMessageRequestParams",
        "ElicitRequestFormParams",
        "ElicitRequestURLParams",
    ];
    let owner = name.split_once("._meta").map(|(owner, _)| owner);
    let bare = owner.is_some_and(|owner| {
        let list = owner.starts_with("List") && owner.ends_with("Result");
        let notification = owner.ends_with("Notification.params") || owner.ends_with("NotificationParams");
        FIELDLESS.contains(&owner) || list || notification || owner == "NotificationParams"
    });
    // A display name has no use in a reference; server requests do not run as tasks.
    let dropped = [
        "PromptReference.title",
        "CreateMessageRequestParams.task",
        "ElicitRequestFormParams.task",
        "ElicitRequestURLParams.task",
    ];
    bare || name.ends_with("Notification.params") || dropped.contains(&name)
}

fn for_each_version(check: impl Fn(&VersionSchemas) + Send + Sync) {
    // A document is used by one thread only, but five threads can use five documents.
    std::thread::scope(|scope| {
        for version in ProtocolVersion::ALL {
            let check = &check;
            scope.spawn(move || {
                if let Some(schemas) = VersionSchemas::load(version) {
                    check(&schemas);
                }
            });
        }
    });
}

#[test]
fn all_written_messages_match_the_official_schemas() {
    for_each_version(|schemas| {
        check_calls(schemas);
        check_outcomes(schemas);
        check_server_requests(schemas);
        check_client_results(schemas);
        check_notifications(schemas);
        check_protocol_errors(schemas);
        check_coverage(schemas);
    });
}

/// Validation can fail: for an unknown property, in each place where versions differ, and for a missing one.
#[test]
fn a_closed_schema_rejects_unknown_fields() {
    let cases = [
        (ProtocolVersion::V2024_11_05, "tools/list", "/tools/0", "annotations"),
        (ProtocolVersion::V2025_03_26, "tools/list", "/tools/0", "title"),
        (ProtocolVersion::V2025_06_18, "tools/list", "/tools/0", "icons"),
        (ProtocolVersion::V2026_07_28, "tools/list", "/tools/0", "execution"),
        (ProtocolVersion::V2025_11_25, "tools/list", "", "ttlMs"),
        (ProtocolVersion::V2025_03_26, "tools/call", "", "structuredContent"),
        (ProtocolVersion::V2025_03_26, "tools/call", "/content/0", "_meta"),
        (ProtocolVersion::V2025_03_26, "tools/call", "/content/0/annotations", "lastModified"),
        (ProtocolVersion::V2025_06_18, "initialize", "/serverInfo", "websiteUrl"),
        (ProtocolVersion::V2024_11_05, "initialize", "/capabilities", "completions"),
        (ProtocolVersion::V2026_07_28, "server/discover", "/capabilities", "tasks"),
        (ProtocolVersion::V2026_07_28, "server/discover", "", "serverInfo"),
        (ProtocolVersion::V2025_11_25, "tasks/get", "", "ttlMs"),
        (ProtocolVersion::V2025_11_25, "resources/list", "/resources/0/icons/0", "alt"),
    ];
    for schemas in ProtocolVersion::ALL.into_iter().filter_map(VersionSchemas::load) {
        for (_, method, at, field) in cases.iter().filter(|case| case.0 == schemas.version) {
            let (call, outcome) =
                samples::outcomes().into_iter().find(|(call, _)| call.method() == *method).unwrap();
            let definition = outcome_definition(schemas.version, &call, &outcome).unwrap();
            let mut out = Vec::new();
            write_outcome(&mut out, schemas.version, &outcome, None);
            let mut result = parse(&out);
            let target = result.pointer_mut(at).unwrap().as_object_mut().unwrap();
            assert_eq!(target.insert((*field).into(), json!({})), None, "{method} {field}");
            let validation_error =
                schemas.document_with(definition).unwrap().validation_error(definition, true, &result);
            assert!(validation_error.is_some(), "{} {method} {at} {field}", schemas.version);
        }
        let bare = json!({ "tools": [{ "name": "x" }], "resultType": "complete" });
        assert!(schemas.document.validation_error("ListToolsResult", false, &bare).is_some());
    }
}
