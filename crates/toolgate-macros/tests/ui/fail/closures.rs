use std::rc::Rc;
use std::sync::Mutex;

use toolgate::prelude::*;

struct Opaque;

#[derive(Deserialize, JsonSchema)]
struct One {}

fn not_async(one: One) -> String {
    drop(one);
    String::new()
}

async fn opaque_argument(of: Opaque) {
    drop(of);
}

async fn opaque_result(one: One) -> Opaque {
    drop(one);
    Opaque
}

async fn held(one: One) {
    let rc = Rc::new(one);
    std::future::ready(()).await;
    drop(rc);
}

static COUNT: Mutex<u8> = Mutex::new(0);

async fn locked(_: One) {
    let mut count = COUNT.lock().unwrap();
    std::future::ready(()).await;
    *count += 1;
}

fn main() {
    let _ = Server::new("wrong", "1").tool("not_async", not_async);
    let _ = Server::new("wrong", "1").tool("opaque_argument", opaque_argument);
    let _ = Server::new("wrong", "1").tool("opaque_result", opaque_result);
    let _ = Server::new("wrong", "1").tool("held", held);
    let _ = Server::new("wrong", "1").tool("locked", locked);
    let _ = Server::new("wrong", "1").tool("called", opaque_result(One {}));
}
