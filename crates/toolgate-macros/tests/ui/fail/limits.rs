use toolgate::prelude::*;

#[tool]
fn range_of_text(#[arg(range = 1..=5)] text: String) -> String {
    text
}

#[tool]
fn length_of_number(#[arg(max_len = 5)] n: u8) -> u8 {
    n
}

#[tool]
fn pattern_of_number(#[arg(pattern = "x")] n: u8) -> u8 {
    n
}

fn main() {}
