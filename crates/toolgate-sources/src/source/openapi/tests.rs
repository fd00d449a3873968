//! Imports documents of all versions, valid and broken, and serves and calls the result.

mod fuzz;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolgate::{Context, Server, ToolSpec};

use super::*;
use crate::source::ToolBackend as _;
use crate::source::egress::{EgressGuard, EgressSpec};
use crate::source::http::{BodySpec, HttpBackend, HttpClient, HttpClientSpec, OutboundContext};

fn data_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/openapi")
}

fn read_data(file: &str) -> String {
    std::fs::read_to_string(data_dir().join(file)).unwrap()
}

fn import_file(file: &str, spec: OpenApiSpec) -> ImportedApi {
    import(&read_data(file), &OpenApiSpec { folder: Some(data_dir()), ..spec }).unwrap()
}

fn operation_names(imported: &ImportedApi) -> Vec<&str> {
    imported.operations.iter().map(|operation| operation.name.as_str()).collect()
}

fn find_operation<'a>(imported: &'a ImportedApi, name: &str) -> &'a Operation {
    imported
        .operations
        .iter()
        .find(|operation| operation.name == name)
        .unwrap_or_else(|| panic!("{name} is missing: {:?}", imported.skipped))
}

fn connect(base: &str, allow: Vec<String>) -> Arc<HttpClient> {
    let outside = OutboundContext::new(EgressGuard::new(&EgressSpec { deny_private: true, allow }).unwrap());
    let spec = HttpClientSpec {
        base_url: base.into(),
        timeout: Duration::from_secs(5),
        ..HttpClientSpec::default()
    };
    HttpClient::new(&spec, &outside).unwrap()
}

/// A server with all imported operations. Any invalid tool fails here.
fn serve(imported: &ImportedApi, connection: &Arc<HttpClient>) -> Server {
    let mut builder = Server::new("imported", "1.0.0").add_tool(ToolSpec::new("first", || async { "" }));
    for operation in &imported.operations {
        let act = HttpBackend::new(operation.spec.clone(), Arc::clone(connection), &operation.input_schema);
        let act = Arc::new(act.unwrap_or_else(|problems| panic!("{}: {problems:?}", operation.route)));
        let run = move |arguments: Map<String, Value>, cx: Context| {
            let act = Arc::clone(&act);
            async move { act.execute(&cx, &arguments).await }
        };
        let mut tool = ToolSpec::new(&operation.name, run).input_schema(operation.input_schema.clone());
        if let Some(schema) = &operation.output_schema {
            tool = tool.output_schema(schema.clone());
        }
        builder = builder.add_tool(tool);
    }
    builder.build().unwrap()
}

/// The requests that a backend receives for these calls.
async fn received_requests(file: &str, calls: &[(&str, Value)]) -> Vec<Value> {
    let backend = crate::source::http::tests::mock_server::MockServer::start().await;
    let connection = connect(&format!("http://{}", backend.address), vec![backend.address.to_string()]);
    let client = serve(&import_file(file, OpenApiSpec::default()), &connection).test();
    for (name, arguments) in calls {
        let called = client.call(*name, arguments.clone()).await;
        assert!(!called.is_error(), "{name}: {}", called.text());
    }
    backend.requests()
}

#[test]
fn swagger_2_becomes_tools() {
    let clinic = import_file("clinic-2.0.json", OpenApiSpec::default());
    assert_eq!(clinic.skipped, []);
    assert_eq!((clinic.title.as_str(), clinic.version.as_str()), ("Pet clinic", "1.0.7"));
    assert_eq!(clinic.server_url.as_deref(), Some("https://clinic.example.com/v2"));
    let wanted = [
        "listPets",
        "addPet",
        "getPet",
        "replacePet",
        "renamePet",
        "removePet",
        "addPhoto",
        "get_visits_visitId",
    ];
    assert_eq!(operation_names(&clinic), wanted);

    let list = find_operation(&clinic, "listPets");
    assert_eq!(list.title.as_deref(), Some("List pets"));
    assert_eq!(list.description.as_deref(), Some("List pets\n\nAll pets of the clinic, newest first."));
    let limit = json!({ "type": "integer", "format": "int32", "default": 20, "maximum": 100 });
    assert_eq!(list.input_schema["properties"]["limit"], limit);
    assert_eq!(list.input_schema["properties"].as_object().unwrap().len(), 4, "the key is no argument");
    assert_eq!(list.output_schema, None, "a list is no object");
    let hints = |name: &str| {
        let hints = &find_operation(&clinic, name).hints;
        (hints.read_only.unwrap(), hints.destructive.unwrap(), hints.idempotent.unwrap())
    };
    assert_eq!(hints("listPets"), (true, false, true));
    assert_eq!(hints("addPet"), (false, false, false));
    assert_eq!(hints("replacePet"), (false, true, true));
    assert_eq!(hints("removePet"), (false, true, true));

    let add = find_operation(&clinic, "addPet");
    assert_eq!(add.input_schema["required"], json!(["name"]), "the id is the backend's");
    let weight = json!({ "type": ["number", "null"], "exclusiveMinimum": 0 });
    assert_eq!(add.input_schema["properties"]["weight"], weight);
    assert!(add.input_schema["properties"]["name"].get("example").is_none());
    // Pets have parents, which are pets: the cycle is cut.
    let owner = &add.input_schema["properties"]["owner"]["properties"]["pets"]["items"];
    assert_eq!(*owner, json!({ "type": "object" }));
    assert_eq!(add.security, ["oauth"]);
    assert_eq!(find_operation(&clinic, "getPet").security, ["key"]);
    let visit = find_operation(&clinic, "get_visits_visitId").output_schema.clone().unwrap();
    assert!(visit["properties"].get("when").is_some() && visit["properties"].get("pet").is_some(), "{visit}");
    assert_eq!(find_operation(&clinic, "addPhoto").input_schema["required"], json!(["petId", "photo"]));
}

#[tokio::test]
async fn swagger_2_is_called() {
    let calls = [
        ("listPets", json!({ "limit": 5, "status": ["well", "ill"], "kind": ["a", "b"], "ids": [1, 2] })),
        ("replacePet", json!({ "petId": 7, "name": "Rex", "parents": [{ "name": "Max" }] })),
        ("renamePet", json!({ "petId": 7, "name": "R&D", "aliases": ["a", "b"] })),
        ("addPhoto", json!({ "petId": 7, "photo": "aGVsbG8=", "photo_filename": "rex.png" })),
        ("removePet", json!({ "petId": 7, "reason": "gone" })),
    ];
    let received = received_requests("clinic-2.0.json", &calls).await;
    assert_eq!(received[0]["query"], "limit=5&status=well&status=ill&kind=a%7Cb&ids=1,2");
    assert_eq!((&received[1]["method"], &received[1]["path"]), (&json!("PUT"), &json!("/pets/7")));
    assert_eq!(received[1]["body"], r#"{"name":"Rex","parents":[{"name":"Max"}]}"#);
    assert_eq!(received[2]["body"], "name=R%26D&aliases=a%20b");
    assert!(
        received[3]["body"].as_str().unwrap().contains("name=\"photo\"; filename=\"rex.png\""),
        "{}",
        received[3]["body"]
    );
    assert_eq!(received[4]["headers"]["reason"], "gone");
}

#[test]
fn every_style_of_3_0_is_parsed() {
    let styles = import_file("styles-3.0.yaml", OpenApiSpec::default());
    assert_eq!(styles.skipped, []);
    assert_eq!(styles.server_url.as_deref(), Some("https://eu.styles.example.com/v1"));
    let query = find_operation(&styles, "query");
    let arguments: Vec<&String> = query.input_schema["properties"].as_object().unwrap().keys().collect();
    let wanted =
        ["form", "joined", "space", "pipe", "deep", "page_size", "json", "id", "id_header", "id_cookie"];
    assert_eq!(arguments, wanted);
    let size = json!({ "type": ["integer", "null"], "enum": [10, 20, null] });
    assert_eq!(query.input_schema["properties"]["page_size"], size);
    assert_eq!(query.input_schema.get("required"), None, "a single value is a constant");

    let flat = find_operation(&styles, "flatJson");
    let arguments: Vec<&String> = flat.input_schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(arguments, ["name", "secret", "odd_name"]);
    assert_eq!(flat.input_schema["required"], json!(["name"]));
    let promised = json!({ "type": "object", "properties": { "name": {}, "tags": { "items": {} } } });
    assert_eq!(flat.output_schema, Some(promised));
    let union = &find_operation(&styles, "unionJson").input_schema["properties"]["body"]["oneOf"];
    assert_eq!(union[1]["type"], json!(["object", "null"]));
    assert!(matches!(find_operation(&styles, "raw").spec.body, BodySpec::Bytes { .. }));
}

#[tokio::test]
async fn every_style_of_3_0_is_serialized() {
    let query = json!({
        "form": ["a", "b"], "joined": ["a", "b"], "space": ["a", "b"], "pipe": ["a", "b"], "deep": { "a": 1 },
        "page_size": 10, "json": { "k": [1] }, "id": "q", "id_header": "h", "id_cookie": ["c", "d"],
    });
    let calls = [
        ("simple", json!({ "list": [1, 2], "object": { "a": 1, "b": 2 } })),
        ("label", json!({ "list": ["a", "b"] })),
        ("matrix", json!({ "the-list": ["a", "b"] })),
        ("query", query),
        ("flatJson", json!({ "name": "x", "odd_name": 5 })),
        ("unionJson", json!({})),
        ("formBody", json!({ "amount": 5, "expand": ["x", "y"], "metadata": { "k": "v" } })),
        ("upload", json!({ "file": "aGVsbG8=", "about": { "title": "t" } })),
        ("raw", json!({ "body": "aGVsbG8=" })),
        ("note", json!({ "body": "plain {words}" })),
    ];
    let received = received_requests("styles-3.0.yaml", &calls).await;
    let paths: Vec<&str> = received[..3].iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/simple/1,2/a=1,b=2", "/label/.a.b", "/matrix/;the-list=a,b"]);
    assert_eq!(
        received[3]["query"],
        "form=a&form=b&joined=a,b&space=a%20b&pipe=a%7Cb&deep%5Ba%5D=1&page%5Bsize%5D=10&json=%7B%22k%22%3A%5B1%5D%7D&version=2&id=q"
    );
    assert_eq!(
        (&received[3]["headers"]["id"], &received[3]["headers"]["cookie"]),
        (&json!("h"), &json!("id=c%2Cd"))
    );
    assert_eq!(received[4]["body"], r#"{"name":"x","odd name!":5}"#);
    assert_eq!(received[5]["body"], "");
    assert_eq!(received[6]["body"], "amount=5&expand=x&expand=y&metadata%5Bk%5D=v");
    let body = received[7]["body"].as_str().unwrap();
    assert!(
        body.contains("Content-Type: image/png\r\n\r\nhello") && body.contains(r#"{"title":"t"}"#),
        "{body}"
    );
    assert_eq!((&received[8]["body"], &received[9]["body"]), (&json!("hello"), &json!("plain {words}")));
}

#[test]
fn only_files_below_the_folder_of_the_document_are_read() {
    let origin = Some("https://library.example.com:8443/docs/openapi.yaml".to_owned());
    let library =
        import_file("library-3.1.yaml", OpenApiSpec { source_url: origin, ..OpenApiSpec::default() });
    assert_eq!(library.server_url.as_deref(), Some("https://library.example.com:8443/api"));
    assert_eq!(
        operation_names(&library),
        ["books_list", "books_add", "books_get", "books_remove", "shelves_get", "shelves_fill"]
    );
    assert_eq!(library.skipped.len(), 1);
    assert_eq!(library.skipped[0].subject, "GET /outside");
    assert!(library.skipped[0].reason.contains("cannot be read"), "{:?}", library.skipped);

    let list = &find_operation(&library, "books_list").input_schema["properties"];
    assert_eq!(list["since"]["type"], json!(["string", "null"]));
    assert_eq!(
        list["sort"],
        json!({ "type": "string", "enum": ["title", "year"], "description": "How they are ordered" })
    );
    let add = find_operation(&library, "books_add");
    assert_eq!(add.input_schema["required"], json!(["title"]));
    assert!(add.input_schema["properties"].get("id").is_none(), "{}", add.input_schema);
    let wrote = &add.input_schema["properties"]["authors"]["items"]["properties"]["wrote"]["items"];
    assert!(wrote.get("properties").is_none(), "the cycle through two files is cut: {wrote}");
    let isbn = &find_operation(&library, "books_get").input_schema["properties"]["isbn"];
    assert_eq!(
        *isbn,
        json!({ "type": "string", "pattern": "^(?=97)[0-9]+$" }),
        "what looks ahead is read too"
    );
    let rows = &find_operation(&library, "shelves_fill").input_schema["properties"]["rows"];
    assert_eq!(rows["items"]["properties"]["width"]["exclusiveMinimum"], 0, "{rows}");
    assert_eq!(find_operation(&library, "books_list").security, ["session"]);
    serve(&library, &connect("https://library.example.com", Vec::new()));

    let alone = import(&read_data("library-3.1.yaml"), &OpenApiSpec::default()).unwrap();
    let missing: Vec<&str> = alone.skipped.iter().map(|missing| missing.subject.as_str()).collect();
    assert_eq!(missing, ["POST /books", "GET /outside"], "without a folder no file is read");
}

#[tokio::test]
async fn a_billing_api_with_forms_is_served() {
    let billing = import_file("billing-3.0.json", OpenApiSpec::default());
    assert_eq!(operation_names(&billing), ["GetCharges", "PostCharges"]);
    assert_eq!(billing.skipped[0].reason, "it is on another server, https://files.billing.example.com/");
    assert!(find_operation(&billing, "GetCharges").output_schema.is_some());
    let calls = [
        ("GetCharges", json!({ "created": { "gt": 5 }, "expand": ["a", "b"], "limit": 3 })),
        (
            "PostCharges",
            json!({ "amount": 5, "metadata": { "k": "v" }, "shipping": { "address": { "city": "Bern" } } }),
        ),
    ];
    let received = received_requests("billing-3.0.json", &calls).await;
    assert_eq!(received[0]["query"], "created%5Bgt%5D=5&expand=a&expand=b&limit=3");
    assert_eq!(received[1]["body"], "amount=5&metadata%5Bk%5D=v&shipping%5Baddress%5D%5Bcity%5D=Bern");
}

#[test]
fn broken_operations_are_skipped_with_a_reason() {
    let broken = import_file("broken-3.0.yaml", OpenApiSpec::default());
    assert_eq!(operation_names(&broken), ["good", "alsoGood"]);
    let wanted = [
        ("GET /gone-ref", "`#/components/parameters/gone`, which does not exist"),
        ("GET /web-ref", "other servers are not contacted"),
        ("GET /file-ref", "other servers are not contacted"),
        ("GET /escape-ref", "cannot be read"),
        ("GET /circle", "form a cycle"),
        ("GET /nameless", "no `name` or no `in`"),
        ("GET /placeless", "`nowhere`, which is not a known location"),
        ("GET /brace/{id", "unbalanced brace"),
        ("GET /get-body", "required body"),
        ("GET /duplicate", "already used by GET /good"),
        ("GET /climb", "is not a valid name"),
        ("GET /script", "is not a valid name"),
        ("/number", "it is not an object"),
        ("GET /list", "it is not an object"),
        ("/path-ref", "which does not exist"),
        ("GET not-a-path", "its path is invalid"),
    ];
    assert_eq!(broken.skipped.len(), wanted.len(), "{:#?}", broken.skipped);
    for (missing, (what, reason)) in broken.skipped.iter().zip(wanted) {
        assert!(
            missing.subject == what && missing.reason.contains(reason),
            "{missing:?} is not {what}: {reason}"
        );
    }
    let odd = &find_operation(&broken, "alsoGood").input_schema;
    assert_eq!(odd["properties"]["id"], json!({ "type": "string" }), "undescribed, but a string");
    assert_eq!(odd["properties"]["q"], json!({ "items": {} }));
    serve(&broken, &connect("https://broken.example.com", Vec::new()));
}

/// Found by fuzzing; each of these would have broken the whole server.
#[test]
fn invalid_keywords_are_dropped() {
    for (schema, normalized) in [
        (json!({ "oneOf": [], "allOf": [], "prefixItems": [] }), json!({})),
        (
            json!({ "required": ["a", "a"], "type": ["string", "string"] }),
            json!({ "required": ["a"], "type": ["string"] }),
        ),
        (json!({ "$ref": "#/x", "description": [], "title": {} }), json!({ "type": "string" })),
        (json!({ "pattern": "x\\a" }), json!({})),
        (json!({ "pattern": "(?>a)b" }), json!({})),
        (json!({ "pattern": "((ab){1,1000}){1,1000}" }), json!({})),
        (
            json!({ "type": "wat", "enum": [], "minimum": "1", "multipleOf": 0, "maxLength": -1, "required": true }),
            json!({}),
        ),
        (
            json!({ "minimum": 1, "exclusiveMinimum": true, "maximum": 2, "exclusiveMaximum": "x" }),
            json!({ "exclusiveMinimum": 1, "maximum": 2 }),
        ),
        (json!(false), json!({ "not": {} })),
        (json!(7), json!({})),
    ] {
        let parameters = json!([{ "name": "p", "in": "query", "schema": schema }]);
        let text = json!({ "openapi": "3.0.0", "x": { "type": "string" }, "paths": { "/a": { "get": { "parameters": parameters } } } });
        let imported = import(&text.to_string(), &OpenApiSpec::default()).unwrap();
        assert_eq!(
            find_operation(&imported, "get_a").input_schema["properties"]["p"],
            normalized,
            "{schema}"
        );
        serve(&imported, &connect("https://slips.example.com", Vec::new()));
    }
}

#[test]
fn operations_are_selected_renamed_and_made_resources() {
    let spec = OpenApiSpec {
        prefix: "inv_".into(),
        include: ["GET /books/**", "tag:shelves", "tag:typo"].map(String::from).to_vec(),
        exclude: ["deprecated", "POST /**"].map(String::from).to_vec(),
        kinds: vec![
            ("GET /books/{isbn}".into(), OperationKind::Template),
            ("GET /books".into(), OperationKind::Resource),
            ("GET /nowhere".into(), OperationKind::Resource),
        ],
        rename: vec![("shelves/get".into(), "one_shelf".into()), ("typo".into(), "x".into())],
        ..OpenApiSpec::default()
    };
    let library = import_file("library-3.1.yaml", spec);
    assert_eq!(operation_names(&library), ["inv_books_list", "inv_books_get", "inv_one_shelf"]);
    let kinds: Vec<OperationKind> = library.operations.iter().map(|operation| operation.kind).collect();
    assert_eq!(kinds, [OperationKind::Resource, OperationKind::Template, OperationKind::Tool]);
    assert_eq!(find_operation(&library, "inv_books_get").uri("inventory"), "inventory:///books/{isbn}");
    assert_eq!(find_operation(&library, "inv_books_list").uri("inventory"), "inventory:///books");
    let unused: Vec<&str> = library.skipped.iter().map(|missing| missing.subject.as_str()).collect();
    assert_eq!(unused, ["include `tag:typo`", "as `GET /nowhere`", "rename `typo`"]);

    let spec = OpenApiSpec {
        prefix: "a b".into(),
        include: vec!["books list".into()],
        exclude: vec!["FETCH /x".into()],
        rename: vec![("a".into(), "b c".into())],
        ..OpenApiSpec::default()
    };
    let problems = import(&read_data("library-3.1.yaml"), &spec).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["include", "exclude", "prefix", "rename.a"]);
}

#[test]
fn only_unused_patterns_are_reported() {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
    let spec = OpenApiSpec {
        // The second selects nothing new, and the third excludes what was not included.
        include: texts(&["/books/**", "tag:books", "tag:boks"]),
        exclude: texts(&["POST /shelves/*"]),
        ..OpenApiSpec::default()
    };
    let imported = import_file("library-3.1.yaml", spec);
    let unmatched = imported.skipped.iter().filter(|missing| missing.reason == "it matches no operation");
    assert_eq!(unmatched.map(|missing| missing.subject.as_str()).collect::<Vec<_>>(), ["include `tag:boks`"]);
}

/// A generated document: hundreds of operations with shared and cyclic schemas.
fn large_document(n_resources: usize) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for number in 0..n_resources {
        let name = format!("Resource{number}");
        let next = format!("#/components/schemas/Resource{}", (number + 1) % n_resources);
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        let fields =
            (0..12).map(|field| (format!("field{field}"), json!({ "type": "string", "maxLength": 100 })));
        let mut properties: Map<String, Value> = fields.collect();
        properties.insert("next".into(), json!({ "$ref": next }));
        properties.insert("others".into(), json!({ "type": "array", "items": { "$ref": next } }));
        schemas.insert(name.clone(), json!({ "type": "object", "properties": properties }));
        let body = json!({ "required": true, "content": { "application/json": { "schema": reference } } });
        let answer = json!({ "200": { "description": "ok", "content": { "application/json": { "schema": reference } } } });
        let operation = |verb: &str| json!({ "operationId": format!("{verb}{name}"), "tags": [name], "responses": answer });
        let with_body = |verb: &str| {
            let mut operation = operation(verb);
            operation["requestBody"] = body.clone();
            operation
        };
        let all = json!({ "get": operation("list"), "post": with_body("create") });
        paths.insert(format!("/v1/resources{number}"), all);
        let one =
            json!({ "get": operation("get"), "put": with_body("replace"), "delete": operation("delete") });
        paths.insert(format!("/v1/resources{number}/{{id}}"), one);
    }
    json!({ "openapi": "3.0.3", "info": {}, "paths": paths, "components": { "schemas": schemas } })
}

#[test]
fn a_large_document_is_served() {
    let imported = import(&large_document(104).to_string(), &OpenApiSpec::default()).unwrap();
    assert_eq!((imported.operations.len(), imported.skipped.len()), (520, 0));
    let sizes = imported.operations.iter().map(|operation| operation.input_schema.to_string().len());
    assert!(sizes.max().unwrap() < 40_000);
    serve(&imported, &connect("https://large.example.com", Vec::new()));
}

#[test]
fn oversized_documents_are_rejected() {
    let import_error = |text: &str| import(text, &OpenApiSpec::default()).unwrap_err()[0].message.clone();
    let many = |number| {
        (0..number)
            .map(|number| (format!("/p{number}"), json!({ "get": {}, "put": {} })))
            .collect::<Map<_, _>>()
    };
    let many_operations = json!({ "openapi": "3.0.0", "paths": many(25_000) }).to_string();
    assert!(import_error(&many_operations).contains("more than 2000 operations"));
    assert!(
        import_error(&many_operations.replace("{}", "7")).contains("more than 2000 operations"),
        "also if all of them are broken"
    );
    let few = OpenApiSpec { include: vec!["GET /p1*".into()], ..OpenApiSpec::default() };
    assert_eq!(
        import(&json!({ "openapi": "3.0.0", "paths": many(1100) }).to_string(), &few)
            .unwrap()
            .operations
            .len(),
        211
    );
    assert!(
        import_error(&format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_DOCUMENT_BYTES))).contains("larger than")
    );
    assert!(import_error(&"[".repeat(100_000)).contains("not valid JSON"));
    assert!(import_error(&"- ".repeat(10_000)).contains("not valid YAML"));
    let mut bomb = "openapi: 3.0.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let below = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", ")));
    }
    assert!(import_error(&bomb).contains("not valid YAML"), "{}", import_error(&bomb));

    // A schema that grows thirtyfold with every level is cut; one that is too wide to be cut is skipped.
    let mut schemas = Map::new();
    for level in 0..24 {
        let next = json!({ "$ref": format!("#/components/schemas/L{}", level + 1) });
        let all: Map<String, Value> = (0..30).map(|number| (format!("p{number}"), next.clone())).collect();
        schemas.insert(format!("L{level}"), json!({ "type": "object", "properties": all }));
    }
    schemas.insert("L24".into(), json!({ "type": "string" }));
    let wide: Map<String, Value> = (0..1000).map(|number| (format!("p{number}"), json!({}))).collect();
    schemas.insert("Wide".into(), json!({ "properties": wide }));
    let body = |name: &str| json!({ "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } } });
    let bomb = json!({
        "openapi": "3.0.0", "components": { "schemas": schemas },
        "paths": { "/deep": { "post": { "requestBody": body("L0") } }, "/wide": { "post": { "requestBody": body("Wide") } } },
    });
    let imported = import(&bomb.to_string(), &OpenApiSpec::default()).unwrap();
    assert_eq!(
        (operation_names(&imported), imported.skipped[0].reason.as_str()),
        (vec!["post_deep"], "its schema is too large")
    );
    assert_eq!(imported.operations[0].input_schema["properties"]["p7"], json!({ "type": "object" }));
    for (text, wanted) in [
        ("", "`openapi` or `swagger` is missing"),
        ("{}", "`openapi` or `swagger` is missing"),
        ("openapi: 4.0.0", "version 4.0.0 is not supported"),
        ("openapi: 3.0.0", "`paths` is missing"),
        ("{\"openapi\":\"3.0.0\",\"paths\":{},}", "line 1"),
        ("<html>", "is missing"),
    ] {
        assert!(import_error(text).contains(wanted), "{text}: {}", import_error(text));
    }
}

/// Imports real documents from the folder `TOOLGATE_SPECS`, if it is set. They are not part of the repository.
#[test]
fn real_documents_are_served() {
    let Ok(folder) = std::env::var("TOOLGATE_SPECS") else {
        println!("skipped: TOOLGATE_SPECS names no folder with descriptions");
        return;
    };
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension().and_then(|end| end.to_str()) {
                _ if entry.is_dir() => folders.push(entry),
                Some("json" | "yaml" | "yml") => found.push(entry),
                _ => {}
            }
        }
    }
    found.sort();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let folder = path.parent().map(Path::to_path_buf);
        let start = std::time::Instant::now();
        let Ok(imported) = import(&text, &OpenApiSpec { folder, ..OpenApiSpec::default() }) else { continue };
        let time = start.elapsed();
        let (n_served, n_missing) = (imported.operations.len(), imported.skipped.len());
        println!("{}: {n_served} operations, {n_missing} missing, {time:?}", path.display());
        for missing in imported.skipped.iter().take(10) {
            println!("    {}: {}", missing.subject, missing.reason);
        }
        serve(&imported, &connect("https://world.example.com", Vec::new()));
    }
}
