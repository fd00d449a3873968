use toolgate::prelude::*;

#[tool]
fn no_argument(#[arg(description = "The call")] cx: Context) {
    drop(cx);
}

fn main() {}
