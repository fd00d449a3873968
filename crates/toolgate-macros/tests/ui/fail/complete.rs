use toolgate::prelude::*;

#[template("notes://{id}")]
fn one(id: String) -> String {
    id
}

#[complete]
fn nothing(prefix: String) -> Vec<String> {
    vec![prefix]
}

#[complete(one)]
fn no_argument(prefix: String) -> Vec<String> {
    vec![prefix]
}

#[complete(one.id)]
fn two_arguments(prefix: String, other: String) -> Vec<String> {
    vec![prefix, other]
}

struct Wrong;

#[server]
impl Wrong {
    #[prompt]
    fn ask(&self, name: String) -> String {
        name
    }

    #[complete(aks.name)]
    fn names(&self, prefix: String) -> Vec<String> {
        vec![prefix]
    }
}

struct Other;

#[server]
impl Other {
    #[prompt]
    fn ask(&self, name: String) -> String {
        name
    }

    #[complete(ask.nam)]
    fn names(&self, prefix: String) -> Vec<String> {
        vec![prefix]
    }
}

fn main() {}
