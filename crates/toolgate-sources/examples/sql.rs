//! Use this when MCP clients should query a database with statements that you wrote, and see only their results.
//!
//! `cargo run -p toolgate-sources --features sqlite --example sql -- shop.db`, where the file has a table
//! `customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT)`.

use std::error::Error;
use std::path::Path;

use toolgate::Server;
use toolgate::schemars::{self, JsonSchema};
use toolgate_sources::Database;

#[derive(JsonSchema)]
#[allow(dead_code, reason = "only the schema is used; the values are bound by their names")]
struct FindCustomer {
    /// The beginning of the name
    #[schemars(length(min = 2))]
    name: String,
    /// Only customers of this city
    city: Option<String>,
}

/// A server with two tools that query the file.
pub(crate) async fn server(path: &Path) -> Result<Server, Box<dyn Error>> {
    let shop = Database::sqlite(path)
        .query(
            "find_customer",
            "SELECT id, name, city FROM customer
             WHERE name LIKE :name || '%' AND (:city IS NULL OR city = :city) ORDER BY name LIMIT 20",
            |query| query.describe("Finds customers by the beginning of their name").args::<FindCustomer>(),
        )
        .query("count_customers", "SELECT count(*) FROM customer", |query| {
            query.describe("Returns the number of customers").one_value()
        });
    Ok(Server::new("shop", "1.0.0").add(shop.load().await?).build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: sql FILE")?;
    server(Path::new(&path)).await?.serve_stdio().await?;
    Ok(())
}
