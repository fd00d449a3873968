use std::rc::Rc;

use toolgate::prelude::*;

#[tool]
async fn tool() -> String {
    let kept = Rc::new(1);
    std::future::ready(()).await;
    kept.to_string()
}

fn main() {}
