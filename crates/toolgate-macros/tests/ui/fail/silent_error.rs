use toolgate::prelude::*;

struct Silent;

#[tool]
async fn tool() -> Result<String, Silent> {
    Err(Silent)
}

fn main() {}
