use toolgate::prelude::*;

struct Opaque;

#[tool]
fn tool(what: Opaque) {
    drop(what);
}

fn main() {}
