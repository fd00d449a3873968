use toolgate::prelude::*;

struct Tenant;

#[tool]
fn tool(#[extract] tenant: Tenant) {
    drop(tenant);
}

fn main() {}
