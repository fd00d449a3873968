use toolgate::prelude::*;

#[template]
fn no_uri(id: String) -> String {
    id
}

#[template("notes://{id}/{part}")]
fn no_variable(note: String) -> String {
    note
}

#[template("notes://all")]
fn no_variables(note: String) -> String {
    note
}

#[template("notes://{id}", uri = "notes://{id}")]
fn two_uris(id: String) -> String {
    id
}

#[resource("notes://all")]
fn arguments(id: String) -> String {
    id
}

fn main() {}
