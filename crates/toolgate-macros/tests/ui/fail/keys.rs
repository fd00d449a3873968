use toolgate::prelude::*;

#[tool(readonly)]
fn unknown() {}

#[tool(price = "1")]
fn unheard_of() {}

#[tool(name = "a", name = "b")]
fn twice() {}

#[tool(name)]
fn no_value() {}

#[tool(read_only = true)]
fn no_flag() {}

#[tool(timeout = "30")]
fn no_unit() {}

#[tool(name = 5)]
fn no_text() {}

#[tool("one", "two")]
fn two_texts() {}

#[tool(name = "a", "text")]
fn late_text() {}

#[tool(task = "sometimes")]
fn no_task() {}

#[tool(inline)]
async fn not_plain() {}

#[tool = "text"]
fn wrong_shape() {}

fn main() {}
