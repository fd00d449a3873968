//! The order desk on Toolgate.

#[path = "../../orders.rs"]
mod orders;

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::{Context, HandlerError, Server, server};

use orders::{Order, Orders, Page, Status};

const CHUNK: usize = 5;

struct OrderDesk {
    orders: Orders,
}

#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    /// Why the order is cancelled
    reason: String,
}

#[server(instructions = "The orders of a shop. `list_orders` shows all of them.")]
impl OrderDesk {
    /// Find the newest order of a customer
    #[tool(read_only)]
    async fn find_order(
        &self,
        /// The name of the customer
        customer: String,
        /// Only an order in this status
        status: Option<Status>,
    ) -> Result<Order, String> {
        self.orders.find(&customer, status)
    }

    /// List orders, oldest first
    #[tool(read_only)]
    async fn list_orders(
        &self,
        /// How many orders to skip
        #[arg(default = 0)]
        offset: usize,
        /// How many orders to return
        #[arg(default = 10, range = 1..=50)]
        limit: usize,
    ) -> Page {
        self.orders.page(offset, limit)
    }

    /// Cancel an order; the user is asked for the reason
    #[tool(destructive)]
    async fn cancel_order(
        &self,
        /// The number of the order
        id: u32,
        cx: Context,
    ) -> Result<String, HandlerError> {
        let order = self.orders.get(id).map_err(HandlerError::new)?;
        let question = format!("Cancel order {id} of {}?", order.customer);
        let answer = cx.elicit_as::<Confirmation>("confirm", &question).await?;
        let Some(confirmation) = answer.accepted() else {
            return Ok(format!("order {id} is kept"));
        };
        self.orders.cancel(id, confirmation.reason);
        Ok(format!("order {id} is cancelled"))
    }

    /// Export all orders as CSV
    #[tool(read_only)]
    async fn export_orders(&self, cx: Context) -> String {
        let orders = self.orders.all();
        let mut csv = String::from("id,customer,cents\n");
        for (done, order) in (1..).zip(&orders) {
            csv.push_str(&order.csv_row());
            if done % CHUNK == 0 {
                cx.progress_of(done as f64, orders.len() as f64, "exporting").await;
            }
        }
        csv
    }

    /// Summarize an order with the client's model
    #[tool(read_only)]
    async fn summarize(
        &self,
        /// The number of the order
        id: u32,
        cx: Context,
    ) -> Result<String, HandlerError> {
        let order = serde_json::to_string(&self.orders.get(id).map_err(HandlerError::new)?)?;
        let question = format!("Summarize this order in one sentence: {order}");
        Ok(cx.sample(question).max_tokens(200).await?.text())
    }

    /// One order
    #[template("order://{id}")]
    async fn order(&self, id: u32) -> Option<Order> {
        self.orders.get(id).ok()
    }

    /// Write to a customer about their orders
    #[prompt]
    async fn follow_up(
        &self,
        /// The name of the customer
        customer: String,
    ) -> String {
        format!("Write a short, friendly message to {customer} about the state of their orders.")
    }
}

toolgate::main!(
    Server::new("order-desk", env!("CARGO_PKG_VERSION")).add(OrderDesk { orders: Orders::sample() })
);
