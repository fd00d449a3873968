use std::sync::Mutex;

use toolgate::prelude::*;

static COUNT: Mutex<u8> = Mutex::new(0);

#[tool]
async fn count() -> u8 {
    let mut count = COUNT.lock().unwrap();
    *count += 1;
    std::future::ready(()).await;
    *count
}

fn main() {}
