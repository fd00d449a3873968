use toolgate::prelude::*;

struct Opaque;

#[tool]
fn tool() -> Opaque {
    Opaque
}

#[tool]
async fn fallible_tool() -> Result<Opaque, ToolError> {
    Ok(Opaque)
}

#[resource]
fn resource() -> Opaque {
    Opaque
}

#[prompt]
fn prompt() -> u8 {
    1
}

#[template("x://{id}")]
fn one(id: String) -> String {
    id
}

#[complete(one.id)]
fn suggestions() -> u8 {
    1
}

fn main() {}
