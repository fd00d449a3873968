//! The order desk on rmcp.

// As in rmcp's own examples: it deprecates sampling, as the specification does.
#![allow(deprecated)]

#[path = "../../orders.rs"]
mod orders;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CreateMessageRequestParams, Implementation, ListResourceTemplatesResult, PaginatedRequestParams,
    ProgressNotificationParam, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResourceContents, ResourceTemplate, Role, SamplingMessage, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::{ElicitationError, RequestContext};
use rmcp::transport::stdio;
use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler, ServiceExt, elicit_safe, prompt, prompt_handler,
    prompt_router, tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::Deserialize;

use orders::{Order, Orders, Page, Status};

const CHUNK: usize = 5;

struct OrderDesk {
    orders: Orders,
}

#[derive(Deserialize, JsonSchema)]
struct FindOrder {
    /// The name of the customer
    customer: String,
    /// Only an order in this status
    status: Option<Status>,
}

#[derive(Deserialize, JsonSchema)]
struct ListOrders {
    /// How many orders to skip
    #[serde(default)]
    offset: usize,
    /// How many orders to return
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 50))]
    limit: usize,
}

fn default_limit() -> usize {
    10
}

#[derive(Deserialize, JsonSchema)]
struct OrderId {
    /// The number of the order
    id: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    /// Why the order is cancelled
    reason: String,
}

elicit_safe!(Confirmation);

#[derive(Deserialize, JsonSchema)]
struct FollowUp {
    /// The name of the customer
    customer: String,
}

#[tool_router]
impl OrderDesk {
    /// Find the newest order of a customer
    #[tool(annotations(read_only_hint = true))]
    async fn find_order(&self, Parameters(args): Parameters<FindOrder>) -> Result<Json<Order>, String> {
        self.orders.find(&args.customer, args.status).map(Json)
    }

    /// List orders, oldest first
    #[tool(annotations(read_only_hint = true))]
    async fn list_orders(&self, Parameters(args): Parameters<ListOrders>) -> Result<Json<Page>, String> {
        // The range is in the schema only.
        if !(1..=50).contains(&args.limit) {
            return Err(format!("`limit` must be 1 to 50, got {}", args.limit));
        }
        Ok(Json(self.orders.page(args.offset, args.limit)))
    }

    /// Cancel an order; the user is asked for the reason
    #[tool(annotations(destructive_hint = true))]
    async fn cancel_order(
        &self,
        Parameters(OrderId { id }): Parameters<OrderId>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, String> {
        let order = self.orders.get(id)?;
        let question = format!("Cancel order {id} of {}?", order.customer);
        match context.peer.elicit::<Confirmation>(question).await {
            Ok(Some(confirmation)) => {
                self.orders.cancel(id, confirmation.reason);
                Ok(format!("order {id} is cancelled"))
            }
            Ok(None) | Err(ElicitationError::UserDeclined | ElicitationError::UserCancelled) => {
                Ok(format!("order {id} is kept"))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Export all orders as CSV
    #[tool(annotations(read_only_hint = true))]
    async fn export_orders(&self, context: RequestContext<RoleServer>) -> Result<String, String> {
        let orders = self.orders.all();
        let token = context.meta.get_progress_token();
        let mut csv = String::from("id,customer,cents\n");
        for (done, order) in (1..).zip(&orders) {
            csv.push_str(&order.csv_row());
            if let Some(token) = token.clone().filter(|_| done % CHUNK == 0) {
                let progress = ProgressNotificationParam::new(token, done as f64)
                    .with_total(orders.len() as f64)
                    .with_message("exporting");
                context.peer.notify_progress(progress).await.map_err(|error| error.to_string())?;
            }
        }
        Ok(csv)
    }

    /// Summarize an order with the client's model
    #[tool(annotations(read_only_hint = true))]
    async fn summarize(
        &self,
        Parameters(OrderId { id }): Parameters<OrderId>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, String> {
        let order = serde_json::to_string(&self.orders.get(id)?).map_err(|error| error.to_string())?;
        let question = SamplingMessage::user_text(format!("Summarize this order in one sentence: {order}"));
        let request = CreateMessageRequestParams::new(vec![question], 200);
        let result = context.peer.create_message(request).await.map_err(|error| error.to_string())?;
        let text = result.message.content.first().and_then(|content| content.as_text());
        text.map(|text| text.text.clone()).ok_or_else(|| "the model returned no text".to_owned())
    }
}

#[prompt_router]
impl OrderDesk {
    /// Write to a customer about their orders
    #[prompt]
    async fn follow_up(&self, Parameters(FollowUp { customer }): Parameters<FollowUp>) -> Vec<PromptMessage> {
        vec![PromptMessage::new_text(
            Role::User,
            format!("Write a short, friendly message to {customer} about the state of their orders."),
        )]
    }
}

#[tool_handler]
#[prompt_handler]
impl ServerHandler for OrderDesk {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("order-desk", env!("CARGO_PKG_VERSION")))
            .with_instructions("The orders of a shop. `list_orders` shows all of them.")
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let order = ResourceTemplate::new("order://{id}", "order")
            .with_description("One order")
            .with_mime_type("application/json");
        Ok(ListResourceTemplatesResult::with_all_items(vec![order]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let id = request.uri.strip_prefix("order://").and_then(|id| id.parse().ok());
        let Some(order) = id.and_then(|id| self.orders.get(id).ok()) else {
            return Err(ErrorData::resource_not_found(format!("there is no {}", request.uri), None));
        };
        let json = serde_json::to_string(&order)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let contents = ResourceContents::text(json, request.uri).with_mime_type("application/json");
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = OrderDesk { orders: Orders::sample() }.serve(stdio()).await?;
    service.waiting().await?;
    Ok(())
}
