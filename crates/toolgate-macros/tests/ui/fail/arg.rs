use toolgate::prelude::*;

#[tool]
fn unknown(#[arg(defualt = 1)] n: u8) -> u8 {
    n
}

#[tool]
fn no_range(#[arg(range = 5)] n: u8) -> u8 {
    n
}

#[tool]
fn no_list(#[arg(examples = 5)] n: u8) -> u8 {
    n
}

#[tool]
fn two(#[arg(default)] #[arg(range = 1..)] n: u8) -> u8 {
    n
}

fn main() {}
