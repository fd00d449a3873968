use toolgate::prelude::*;

#[derive(Deserialize)]
struct NoSchema {}

#[derive(JsonSchema)]
struct NoDeserialize {}

struct Neither;

#[derive(Deserialize, JsonSchema)]
struct Order {}

#[tool]
fn no_schema(of: NoSchema) {
    drop(of);
}

#[tool]
fn no_deserialize(of: Option<NoDeserialize>) {
    drop(of);
}

#[tool]
fn neither(of: Neither) {
    drop(of);
}

#[tool]
fn no_extractor(#[extract] order: Order) {
    drop(order);
}

#[resource]
fn resource(order: Order) -> String {
    drop(order);
    String::new()
}

#[template("x://{id}")]
fn template(id: String, order: Order) -> String {
    drop(order);
    id
}

#[complete(template.id)]
fn completer(prefix: String, order: Order) -> Vec<String> {
    drop(order);
    vec![prefix]
}

fn main() {}
