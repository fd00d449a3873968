use toolgate::prelude::*;

#[prompt(arguments = "code")]
fn no_list(code: String) -> String {
    code
}

#[prompt(arguments = [cod = "What to review"])]
fn no_argument(code: String) -> String {
    code
}

#[prompt(arguments = ["code"])]
fn no_name(code: String) -> String {
    code
}

fn main() {}
