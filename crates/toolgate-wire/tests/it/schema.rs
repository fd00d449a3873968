//! Everything we write, judged by the official schemas: every sample of every
//! message, in every edition that has it.
//!
//! Each is judged twice: by the schema as it is, and by one that is closed, in
//! which a field too many is a mistake too. The schemas do not belong to this
//! repository; where they are not found the tests say so and pass.

// Helpers are tests too: they fail by panicking.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::samples;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/schema");

/// What others chose the shape of: no schema of the protocol closes it.
const FREE: [&str; 10] = [
    "_meta",
    "inputSchema",
    "outputSchema",
    "experimental",
    "extensions",
    "arguments",
    "metadata",
    "data",
    "input",
    "structuredContent",
];

/// Definitions that others build upon.
const BASES: [&str; 12] = [
    "Result",
    "Request",
    "Notification",
    "JSONRPCRequest",
    "JSONRPCNotification",
    "JSONRPCResponse",
    "JSONRPCResultResponse",
    "MetaObject",
    "RequestMetaObject",
    "ResultMetaObject",
    "NotificationMetaObject",
    "SubscriptionsListenResultMetaObject",
];

/// One official schema, as it is and closed, with what was judged by it.
struct Book {
    open: Value,
    closed: Value,
    /// `definitions` or `$defs`.
    shelf: &'static str,
    validators: RefCell<BTreeMap<(String, bool), Validator>>,
    used: RefCell<BTreeSet<String>>,
    /// `Definition.property` of all that was said.
    said: RefCell<BTreeSet<String>>,
}

impl Book {
    fn load(name: &str) -> Option<Book> {
        let path = format!("{FOLDER}/{name}.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            eprintln!("SKIPPED: official schemas not found at {path}");
            return None;
        };
        let mut open: Value = serde_json::from_str(&text).unwrap();
        let shelf = if open.get("$defs").is_some() { "$defs" } else { "definitions" };
        amend(name, &mut open[shelf]);
        let mut closed = open.clone();
        let definitions = open[shelf].as_object().unwrap();
        for (name, definition) in closed[shelf].as_object_mut().unwrap() {
            let base = BASES.contains(&name.as_str());
            close(definition, definitions, if base { Lid::Base } else { Lid::Shut });
        }
        let (validators, used, said) = Default::default();
        Some(Book { open, closed, shelf, validators, used, said })
    }

    fn has(&self, definition: &str) -> bool {
        self.open[self.shelf].get(definition).is_some()
    }

    /// The first complaint about `value`, if there is one.
    fn complaint(&self, definition: &str, closed: bool, value: &Value) -> Option<String> {
        assert!(self.has(definition), "no definition {definition}");
        self.used.borrow_mut().insert(definition.to_owned());
        let mut validators = self.validators.borrow_mut();
        let validator = validators.entry((definition.to_owned(), closed)).or_insert_with(|| {
            let mut schema = if closed { self.closed.clone() } else { self.open.clone() };
            schema["$ref"] = json!(format!("#/{}/{definition}", self.shelf));
            jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
        });
        let error = validator.iter_errors(value).next()?;
        Some(format!("{definition} (closed: {closed}): {error} at {}", error.instance_path()))
    }

    /// Notes which properties a value has, by the definitions that list them.
    fn note(&self, owner: &str, schema: &Value, value: &Value) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.note(name, &self.open[self.shelf][name], value);
        }
        for branch in ["anyOf", "allOf"].iter().filter_map(|name| schema[name].as_array()).flatten() {
            if self.may_be(branch, value) {
                self.note(owner, branch, value);
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let owner = format!("{owner}.{name}");
            if let Some(value) = value.get(name) {
                self.note(&owner, property, value);
                self.said.borrow_mut().insert(owner);
            }
        }
        for item in value.as_array().into_iter().flatten() {
            self.note(owner, &schema["items"], item);
        }
        if schema["additionalProperties"].is_object() {
            for value in value.as_object().into_iter().flat_map(|members| members.values()) {
                self.note(owner, &schema["additionalProperties"], value);
            }
        }
    }

    /// Whether a value could be meant by one branch of a union.
    fn may_be(&self, schema: &Value, value: &Value) -> bool {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.may_be(&self.open[self.shelf][name], value);
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut constants = schema["properties"].as_object().into_iter().flatten();
        required.into_iter().all(|name| value.get(name).is_some())
            && constants.all(|(name, property)| match (property.get("const"), value.get(name)) {
                (Some(constant), Some(value)) => constant == value,
                _ => true,
            })
    }

    /// Every property that the definitions reachable from `schema` list.
    fn listed(&self, owner: &str, schema: &Value, seen: &mut BTreeSet<String>, out: &mut BTreeSet<String>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            if seen.insert(name.to_owned()) {
                self.listed(name, &self.open[self.shelf][name], seen, out);
            }
            return;
        }
        for branch in ["anyOf", "allOf"].iter().filter_map(|name| schema[name].as_array()).flatten() {
            self.listed(owner, branch, seen, out);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let owner = format!("{owner}.{name}");
            self.listed(&owner, property, seen, out);
            out.insert(owner);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                self.listed(owner, &schema[inner], seen, out);
            }
        }
    }

    fn judge(&self, edition: Edition, definition: &str, value: &Value) {
        self.note(definition, &self.open[self.shelf][definition], value);
        for closed in [false, true] {
            if let Some(complaint) = self.complaint(definition, closed, value) {
                panic!("{edition} {complaint}\n{value:#}");
            }
        }
    }
}

/// What is known to be said beyond the schemas.
fn amend(name: &str, definitions: &mut Value) {
    match name {
        // Extensions are declared in this edition too, since their own proposal (SEP-2133).
        "2025-11-25" => {
            for owner in ["ClientCapabilities", "ServerCapabilities"] {
                definitions[owner]["properties"]["extensions"] =
                    json!({ "type": "object", "additionalProperties": { "type": "object" } });
            }
        }
        // The tasks extension widens the filter of listenings.
        "2026-07-28" => {
            definitions["SubscriptionFilter"]["properties"]["taskIds"] =
                json!({ "type": "array", "items": { "type": "string" } });
        }
        _ => {}
    }
}

/// How an object is to be closed.
#[derive(Clone, Copy, PartialEq)]
enum Lid {
    Shut,
    /// Others add to it: only what is inside is closed.
    Base,
    /// The parameters of a message, which may always have `_meta`.
    Params,
}

fn close(schema: &mut Value, definitions: &Map<String, Value>, lid: Lid) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for union in ["anyOf", "oneOf"] {
        let members = schema.get_mut(union).and_then(Value::as_array_mut);
        members.into_iter().flatten().for_each(|member| close(member, definitions, lid));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner) {
            close(inner, definitions, Lid::Shut);
        }
    }
    if let Some(parts) = schema.get_mut("allOf").and_then(Value::as_array_mut) {
        for part in parts {
            // A closed part would forbid what its neighbor allows.
            if let Some(name) = part.get("$ref").and_then(Value::as_str) {
                *part = definitions[name.rsplit('/').next().unwrap()].clone();
            }
            // What is open to everything would count everything as known.
            part.as_object_mut().unwrap().remove("additionalProperties");
            close(part, definitions, Lid::Base);
        }
        if lid != Lid::Base {
            schema.insert("unevaluatedProperties".into(), json!(false));
        }
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    let message = properties.contains_key("method");
    for (name, property) in properties.iter_mut() {
        let lid = if message && name == "params" { Lid::Params } else { Lid::Shut };
        if !FREE.contains(&name.as_str()) {
            close(property, definitions, lid);
        }
    }
    if message {
        // Older schemas leave the envelope to another definition.
        properties.entry("jsonrpc").or_insert(json!({}));
        properties.entry("id").or_insert(json!({}));
    }
    if lid == Lid::Params {
        properties.entry("_meta").or_insert(json!({ "type": "object" }));
    }
    if lid != Lid::Base && !schema.contains_key("additionalProperties") {
        schema.insert("additionalProperties".into(), json!(false));
    }
}

/// The schema of an edition and, beside it, that of the tasks extension.
struct Shelf {
    edition: Edition,
    book: Book,
    tasks: Option<Book>,
}

impl Shelf {
    fn of(edition: Edition) -> Option<Shelf> {
        let book = Book::load(edition.date())?;
        let extension = edition.facts().tasks == Tasks::Extension;
        let tasks = extension.then(|| Book::load("ext-tasks-draft")).flatten();
        Some(Shelf { edition, book, tasks })
    }

    /// The book that has a definition, the edition's own first.
    fn with(&self, definition: &str) -> Option<&Book> {
        [Some(&self.book), self.tasks.as_ref()].into_iter().flatten().find(|book| book.has(definition))
    }

    fn judge(&self, definition: &str, value: &Value) {
        let book = self.with(definition).unwrap_or_else(|| panic!("{} {definition}", self.edition));
        book.judge(self.edition, definition, value);
    }

    fn judge_response(&self, definition: &str, result: &Value) {
        self.judge(definition, result);
        let response = json!({ "jsonrpc": "2.0", "id": 7, "result": result });
        let envelope =
            ["JSONRPCResultResponse", "JSONRPCResponse"].into_iter().find(|name| self.book.has(name));
        self.judge(envelope.unwrap(), &response);
    }
}

fn parse(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(!text.contains(['\n', '\r']), "more than one line: {text}");
    Raw::parse(bytes.to_vec().into()).unwrap_or_else(|error| panic!("{error}: {text}")).to_value()
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

/// None: the edition has no such answer.
fn outcome_definition(edition: Edition, call: &Call, outcome: &Outcome) -> Option<&'static str> {
    let facts = edition.facts();
    let newest = facts.result_type;
    Some(match outcome {
        Outcome::Done => match call {
            Call::UpdateTask { .. } => "UpdateTaskResult",
            Call::CancelTask { .. } if newest => "CancelTaskResult",
            Call::CancelTask { .. } => return None,
            _ => "EmptyResult",
        },
        Outcome::Welcome(_) => "InitializeResult",
        Outcome::Discovery(_) => "DiscoverResult",
        Outcome::Tools(_) => "ListToolsResult",
        Outcome::Tool(_) => "CallToolResult",
        Outcome::Resources(_) => "ListResourcesResult",
        Outcome::Templates(_) => "ListResourceTemplatesResult",
        Outcome::Read { .. } => "ReadResourceResult",
        Outcome::Prompts(_) => "ListPromptsResult",
        Outcome::Prompt(_) => "GetPromptResult",
        Outcome::Completion(_) => "CompleteResult",
        Outcome::InputRequired(_) => "InputRequiredResult",
        Outcome::Listened { .. } => "SubscriptionsListenResult",
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

fn ask_definition(ask: &Ask) -> &'static str {
    match ask {
        Ask::Elicit(_) => "ElicitRequest",
        Ask::Sample(_) => "CreateMessageRequest",
        _ => "ListRootsRequest",
    }
}

fn notice_definition(notice: &Notice) -> &'static str {
    match notice {
        Notice::Initialized => "InitializedNotification",
        Notice::Cancelled { .. } => "CancelledNotification",
        Notice::Progress { .. } => "ProgressNotification",
        Notice::Log { .. } => "LoggingMessageNotification",
        Notice::ToolsChanged => "ToolListChangedNotification",
        Notice::PromptsChanged => "PromptListChangedNotification",
        Notice::ResourcesChanged => "ResourceListChangedNotification",
        Notice::ResourceUpdated { .. } => "ResourceUpdatedNotification",
        Notice::RootsChanged => "RootsListChangedNotification",
        Notice::ElicitationDone { .. } => "ElicitationCompleteNotification",
        Notice::Task(_) => "TaskStatusNotification",
        Notice::Acknowledged(_) => "SubscriptionsAcknowledgedNotification",
        _ => panic!("no definition for {notice:?}"),
    }
}

fn check_calls(shelf: &Shelf) {
    let edition = shelf.edition;
    for call in samples::calls() {
        let method = call.method();
        let definition = call_definition(method);
        let known = shelf.with(definition).is_some();
        let read = read_call(edition, method, None);
        let refused = read.is_err_and(|fault| fault.kind() == FaultKind::Method);
        assert_eq!(refused, !known, "{edition} {method}");
        if !known {
            continue;
        }
        for (client, meta) in samples::clients(edition).iter().zip(samples::metas().iter().cycle()) {
            let mut out = Vec::new();
            write_call_params(&mut out, edition, &call, Some(client), meta);
            let request = json!({ "jsonrpc": "2.0", "id": "c-7", "method": method, "params": parse(&out) });
            shelf.judge(definition, &request);
            shelf.judge("JSONRPCRequest", &request);
        }
    }
}

fn check_outcomes(shelf: &Shelf) {
    let edition = shelf.edition;
    let server = samples::server();
    for (call, outcome) in samples::outcomes().into_iter().chain(samples::worded_outcomes()) {
        let Some(definition) = outcome_definition(edition, &call, &outcome) else {
            continue;
        };
        if shelf.with(definition).is_none() {
            continue;
        }
        for server in [None, Some(&server)] {
            let mut out = Vec::new();
            write_outcome(&mut out, edition, &outcome, server);
            let result = parse(&out);
            shelf.judge_response(definition, &result);
            let typed = format!("{definition}Response");
            if shelf.book.has(&typed) {
                shelf.judge(&typed, &json!({ "jsonrpc": "2.0", "id": 7, "result": result }));
            }
            if let Outcome::TaskPayload { .. } = outcome {
                shelf.judge_response("CallToolResult", &result);
            }
        }
    }
}

fn check_asks(shelf: &Shelf) {
    let edition = shelf.edition;
    let newer = edition >= Edition::E2025_11_25;
    let old = samples::asks().into_iter().chain(samples::worded_asks()).map(|ask| (ask, true));
    let new = samples::new_asks().into_iter().map(|ask| (ask, newer));
    for (ask, fits) in old.chain(new) {
        let definition = ask_definition(&ask);
        assert_eq!(can_ask(edition, &ask), fits && shelf.book.has(definition), "{edition} {ask:?}");
        if !can_ask(edition, &ask) {
            continue;
        }
        let mut out = Vec::new();
        write_ask_params(&mut out, edition, &ask);
        let params = parse(&out);
        let bare = json!({ "method": ask.method(), "params": params });
        match edition.facts().asking {
            Asking::Retry => shelf.judge(definition, &bare),
            Asking::Reverse => {
                let mut request = bare;
                request["jsonrpc"] = json!("2.0");
                request["id"] = json!(3);
                shelf.judge(definition, &request);
                shelf.judge("JSONRPCRequest", &request);
            }
        }
    }
}

fn check_answers(shelf: &Shelf) {
    let edition = shelf.edition;
    for (ask, answer) in
        samples::answers().into_iter().chain(samples::new_answers()).chain(samples::worded_answers())
    {
        if !can_ask(edition, &ask) {
            continue;
        }
        let mut out = Vec::new();
        write_answer(&mut out, edition, &answer);
        let definition = match answer {
            Answer::Elicit(_) => "ElicitResult",
            Answer::Sample(_) => "CreateMessageResult",
            _ => "ListRootsResult",
        };
        shelf.judge(definition, &parse(&out));
    }
}

fn check_notices(shelf: &Shelf) {
    let edition = shelf.edition;
    for notice in samples::notices() {
        let definition = notice_definition(&notice);
        let nameless = matches!(notice, Notice::Cancelled { request: None, .. });
        let known = shelf.with(definition).is_some() && !(nameless && edition != Edition::E2025_11_25);
        for subscription in [None, Some(RequestId::from("L1")), Some(RequestId::from(1))] {
            let mut out = b"before".to_vec();
            let said = write_notice(&mut out, edition, &notice, subscription.as_ref());
            assert_eq!(said, known, "{edition} {notice:?}");
            let Some(written) = out.strip_prefix(b"before").filter(|written| !written.is_empty()) else {
                assert!(!said);
                continue;
            };
            let message = parse(written);
            shelf.judge(definition, &message);
            shelf.judge("JSONRPCNotification", &message);
            let tag = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            let tagged = subscription.filter(|_| edition.facts().feeding == Feeding::Listen);
            assert_eq!(tag.is_null(), tagged.is_none(), "{message}");
        }
    }
}

fn check_faults(shelf: &Shelf) {
    let edition = shelf.edition;
    for fault in samples::faults() {
        let mut out = Vec::new();
        write_fault(&mut out, edition, Some(&RequestId::from(3)), &fault);
        let message = parse(&out);
        let newest = edition.facts().result_type;
        let special = match fault.kind() {
            FaultKind::UrlFirst if edition == Edition::E2025_11_25 => Some("URLElicitationRequiredError"),
            FaultKind::Header if newest => Some("HeaderMismatchError"),
            FaultKind::Capability if newest => Some("MissingRequiredClientCapabilityError"),
            FaultKind::Version if newest => Some("UnsupportedProtocolVersionError"),
            _ => None,
        };
        let general = ["JSONRPCErrorResponse", "JSONRPCError"].into_iter().find(|name| shelf.book.has(name));
        shelf.judge(special.or(general).unwrap(), &message);
        shelf.judge(general.unwrap(), &message);

        let mut out = Vec::new();
        write_fault(&mut out, edition, None, &fault);
        let nameless = parse(&out);
        match edition.facts().id_optional {
            true => shelf.judge(general.unwrap(), &nameless),
            // The schema knows no error without an id; JSON-RPC says null.
            false => assert_eq!(nameless.get("id"), Some(&Value::Null)),
        }
        assert_eq!(nameless["error"], message["error"]);
    }
}

/// Nothing that the schema lists may be left untried.
fn check_coverage(shelf: &Shelf) {
    let unions = [
        "ClientRequest",
        "ServerRequest",
        "ClientNotification",
        "ServerNotification",
        "ClientResult",
        "ServerResult",
    ];
    let definitions = &shelf.book.open[shelf.book.shelf];
    let members = unions.iter().filter_map(|union| definitions.get(union)?.get("anyOf")?.as_array());
    let names: BTreeSet<&str> = members
        .flatten()
        .filter_map(|member| member["$ref"].as_str()?.rsplit('/').next())
        .filter(|name| *name != "Result")
        .collect();
    assert!(names.len() > 15, "{}: {names:?}", shelf.edition);
    let used = shelf.book.used.borrow();
    let untried: Vec<_> = names.iter().filter(|name| !used.contains(**name)).collect();
    assert!(untried.is_empty(), "{}: untried {untried:?}", shelf.edition);

    let (mut seen, mut listed) = Default::default();
    for name in names {
        let schema = json!({ "$ref": format!("/{name}") });
        shelf.book.listed(name, &schema, &mut seen, &mut listed);
    }
    let said = shelf.book.said.borrow();
    let unsaid: Vec<_> = listed.difference(&said).filter(|name| !is_unsaid(name)).collect();
    assert!(unsaid.is_empty(), "{}: unsaid {unsaid:#?}", shelf.edition);
}

/// What the model has no place for, on purpose.
fn is_unsaid(name: &str) -> bool {
    // `_meta` of messages that have nothing else to say in it: lists, questions, notices.
    const BARE: [&str; 9] = [
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
        let notice = owner.ends_with("Notification.params") || owner.ends_with("NotificationParams");
        BARE.contains(&owner) || list || notice || owner == "NotificationParams"
    });
    // A name for people means nothing in a reference; nobody runs a question as a task.
    let dropped = [
        "PromptReference.title",
        "CreateMessageRequestParams.task",
        "ElicitRequestFormParams.task",
        "ElicitRequestURLParams.task",
    ];
    bare || name.ends_with("Notification.params") || dropped.contains(&name)
}

fn on_each_shelf(check: impl Fn(&Shelf) + Send + Sync) {
    // A book may be read by one thread only, but five threads read five books.
    std::thread::scope(|scope| {
        for edition in Edition::ALL {
            let check = &check;
            scope.spawn(move || {
                if let Some(shelf) = Shelf::of(edition) {
                    check(&shelf);
                }
            });
        }
    });
}

#[test]
fn all_that_is_written_fits_the_official_schemas() {
    on_each_shelf(|shelf| {
        check_calls(shelf);
        check_outcomes(shelf);
        check_asks(shelf);
        check_answers(shelf);
        check_notices(shelf);
        check_faults(shelf);
        check_coverage(shelf);
    });
}

/// The judge can say no: a field too many, in each place where editions
/// differ, and a field too few.
#[test]
fn a_closed_schema_refuses_a_field_too_many() {
    let cases = [
        (Edition::E2024_11_05, "tools/list", "/tools/0", "annotations"),
        (Edition::E2025_03_26, "tools/list", "/tools/0", "title"),
        (Edition::E2025_06_18, "tools/list", "/tools/0", "icons"),
        (Edition::E2026_07_28, "tools/list", "/tools/0", "execution"),
        (Edition::E2025_11_25, "tools/list", "", "ttlMs"),
        (Edition::E2025_03_26, "tools/call", "", "structuredContent"),
        (Edition::E2025_03_26, "tools/call", "/content/0", "_meta"),
        (Edition::E2025_03_26, "tools/call", "/content/0/annotations", "lastModified"),
        (Edition::E2025_06_18, "initialize", "/serverInfo", "websiteUrl"),
        (Edition::E2024_11_05, "initialize", "/capabilities", "completions"),
        (Edition::E2026_07_28, "server/discover", "/capabilities", "tasks"),
        (Edition::E2026_07_28, "server/discover", "", "serverInfo"),
        (Edition::E2025_11_25, "tasks/get", "", "ttlMs"),
        (Edition::E2025_11_25, "resources/list", "/resources/0/icons/0", "alt"),
    ];
    for shelf in Edition::ALL.into_iter().filter_map(Shelf::of) {
        for (_, method, at, field) in cases.iter().filter(|case| case.0 == shelf.edition) {
            let (call, outcome) =
                samples::outcomes().into_iter().find(|(call, _)| call.method() == *method).unwrap();
            let definition = outcome_definition(shelf.edition, &call, &outcome).unwrap();
            let mut out = Vec::new();
            write_outcome(&mut out, shelf.edition, &outcome, None);
            let mut result = parse(&out);
            let target = result.pointer_mut(at).unwrap().as_object_mut().unwrap();
            assert_eq!(target.insert((*field).into(), json!({})), None, "{method} {field}");
            let complaint = shelf.with(definition).unwrap().complaint(definition, true, &result);
            assert!(complaint.is_some(), "{} {method} {at} {field}", shelf.edition);
        }
        let bare = json!({ "tools": [{ "name": "x" }], "resultType": "complete" });
        assert!(shelf.book.complaint("ListToolsResult", false, &bare).is_some());
    }
}
