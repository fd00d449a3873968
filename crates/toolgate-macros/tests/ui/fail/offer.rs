use toolgate::prelude::*;

fn unmarked() {}

#[complete(unmarked.name)]
fn names() -> Vec<String> {
    Vec::new()
}

struct Kit;

fn main() {
    let _ = Server::new("a", "1").add(items![unmarked]);
    let _ = Server::new("a", "1").add(Kit);
}
