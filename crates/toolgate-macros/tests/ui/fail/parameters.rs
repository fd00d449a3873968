use toolgate::prelude::*;

#[tool]
fn borrowed(name: &str) -> String {
    name.into()
}

#[tool]
fn slice(names: &[u8]) -> usize {
    names.len()
}

#[tool]
fn context(cx: &Context) -> bool {
    cx.is_cancelled()
}

#[tool]
fn pattern((a, b): (u8, u8)) -> u8 {
    a + b
}

#[tool]
fn opaque(name: impl Into<String>) -> String {
    name.into()
}

#[tool]
fn generic<T: ToString>(name: T) -> String {
    name.to_string()
}

#[tool]
unsafe fn dangerous() {}

#[tool]
fn no_argument(#[arg(default)] #[extract] cx: Context) {
    drop(cx);
}

struct Kit;

impl Kit {
    #[tool]
    fn method(&self) {}
}

#[tool]
fn same(#[arg(rename = "b")] a: u8, b: u8) -> u8 {
    a + b
}

#[tool]
struct NoFunction;

fn main() {}
