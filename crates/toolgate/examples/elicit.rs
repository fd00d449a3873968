//! Use this when a tool needs something from the user during a call: a confirmation, a choice, a missing value. The
//! same code serves clients that respond while the call waits and clients that repeat the call.
//!
//! `cargo run --example elicit -- 127.0.0.1:8080`

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::{ClientCapability, Context, ElicitOutcome, Field, Form, HandlerError, Server};

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// What to order
    dish: String,
}

// A type can describe a form: strings, numbers, booleans and plain enums.
#[derive(Deserialize, JsonSchema)]
struct Address {
    /// Street and number
    street: String,
}

async fn order(args: Order, cx: Context) -> Result<String, HandlerError> {
    // Runs once, however often this function runs: clients that repeat the call run it from the start each time, and
    // everything outside of a step is repeated.
    let number = cx.step("reserve", || async { reserve(&args.dish) }).await?;

    let form = Form::new(format!("Order {} for 12 euros?", args.dish))
        .field("portions", Field::integer().min(1).max(9).default(1))
        .optional("spicy", Field::choice(["mild", "medium", "hot"]));
    // `?` returns early if the response will come with a later attempt. Never turn that error into a result.
    let ElicitOutcome::Accept(answer) = cx.elicit("confirm", form).await? else {
        return Ok(format!("order {number} was dropped"));
    };

    let address = cx.elicit_as::<Address>("address", "Where to?").await?;
    let place = address.accepted().map_or("the counter".into(), |to| to.street);
    // Side effects that need all responses and must not repeat come last.
    let portions = &answer["portions"];
    Ok(format!("order {number}: {portions} of {}, to {place}", args.dish))
}

async fn suggest(cx: Context) -> Result<String, HandlerError> {
    let form = Form::new("How hungry are you?").field("hunger", Field::choice(["a little", "very"]));
    let answer = match cx.elicit("hunger", form).await {
        // This client does not support forms: continue without a response.
        Err(error) if error.is_unsupported() => None,
        other => other?.accepted(),
    };
    let hungry = answer.is_some_and(|answer| answer["hunger"] == "very");
    Ok(if hungry { "lasagna" } else { "soup" }.into())
}

/// Represents a side effect that must happen once.
fn reserve(dish: &str) -> Result<u32, HandlerError> {
    eprintln!("reserving a table for {dish}");
    Ok(4711)
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Server::new("kitchen", "1.0.0")
        .tool("order", order)
        .describe("Orders a dish")
        // Clients without form support are rejected before the handler starts.
        .requires(ClientCapability::Elicitation)
        .tool("suggest", suggest)
        .describe("Suggests a dish")
        .read_only()
        .listen(address)
        .await
}
