use toolgate::prelude::*;

#[tool]
#[resource]
fn both() -> &'static str {
    "x"
}

struct Kit;

#[server]
impl Kit {
    #[tool]
    #[prompt]
    fn both(&self) -> &'static str {
        "x"
    }
}

fn main() {}
