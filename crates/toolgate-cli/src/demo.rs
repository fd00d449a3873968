//! The demo server, which is served without a configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate::{Context, ElicitOutcome, Error, Field, Form, HandlerError, Json, Server};

const README: &str = "# The Toolgate demo

Tools: `echo`, `add`, `brew_tea` (slow, tells how far it is), `order_cake` (asks you something).
Resources: this text, and `demo://greetings/{language}`.
Prompt: `greet`, whose argument completes.
";

const GREETINGS: [(&str, &str); 6] = [
    ("english", "Hello"),
    ("french", "Bonjour"),
    ("german", "Guten Tag"),
    ("italian", "Buongiorno"),
    ("spanish", "Buenos días"),
    ("welsh", "Shwmae"),
];

/// Builds the demo server.
pub(crate) fn server() -> Result<Server, Error> {
    Server::new("toolgate-demo", env!("CARGO_PKG_VERSION"))
        .server_title("Toolgate demo")
        .instructions("A demonstration. Try every tool; `order_cake` asks the user before it answers.")
        .tool("echo", |args: Echo| async move { args.message })
        .title("Echo")
        .describe("Says a message again")
        .read_only()
        .closed_world()
        .tool("add", |args: Add| async move { Json(Sum { sum: args.a + args.b }) })
        .title("Add")
        .describe("Adds two numbers")
        .read_only()
        .closed_world()
        .tool("brew_tea", brew_tea)
        .title("Brew tea")
        .describe("Brews a cup of tea, which takes a few seconds, and tells how far it is")
        .idempotent()
        .closed_world()
        .tool("order_cake", order_cake)
        .title("Order cake")
        .describe("Orders a cake after asking the user which one")
        .closed_world()
        .resource("demo://readme", || async { README })
        .title("About this demo")
        .describe("What there is to try")
        .mime("text/markdown")
        .template("demo://greetings/{language}", |args: Language| async move { greeting(&args.language) })
        .title("Greetings")
        .describe("How to greet in a language")
        .mime("text/plain")
        .complete("language", |prefix, _| async move { complete_language(&prefix) })
        .prompt("greet", |args: Greet| async move {
            let word = greeting(args.language.as_deref().unwrap_or("english")).unwrap_or("Hello");
            format!("Write a short, warm message to {} that begins with \"{word}\".", args.name)
        })
        .title("Greet someone")
        .describe("Asks for a message of greeting")
        .complete("language", |prefix, _| async move { complete_language(&prefix) })
        .build()
}

async fn brew_tea(args: Tea, cx: Context) -> String {
    let minutes = args.minutes.unwrap_or(3);
    for minute in 1..=minutes {
        // The demo shortens each minute to a second.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let message = format!("minute {minute}");
        cx.progress_of(f64::from(minute), f64::from(minutes), message.as_str()).await;
    }
    format!("Your tea has drawn for {minutes} minutes.")
}

async fn order_cake(cx: Context) -> Result<String, HandlerError> {
    let form = Form::new("Which cake would you like?")
        .field("kind", Field::choice(["apple", "carrot", "chocolate"]).default("carrot"))
        .optional("candles", Field::integer().min(0).max(100).describe("How many candles"));
    Ok(match cx.elicit("cake", form).await? {
        ElicitOutcome::Accept(order) => {
            let kind = order["kind"].as_str().unwrap_or("plain");
            let candles = order["candles"].as_u64().unwrap_or(0);
            format!("One {kind} cake with {candles} candles is on its way.")
        }
        ElicitOutcome::Decline | ElicitOutcome::Cancel => "No cake, then.".into(),
    })
}

fn greeting(language: &str) -> Option<&'static str> {
    GREETINGS.iter().find(|(known, _)| *known == language).map(|(_, greeting)| *greeting)
}

fn complete_language(prefix: &str) -> Vec<&'static str> {
    GREETINGS.iter().map(|(language, _)| *language).filter(|language| language.starts_with(prefix)).collect()
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// What to say
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

#[derive(JsonSchema, Serialize)]
struct Sum {
    /// Both together
    sum: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Tea {
    /// How long it draws, 3 minutes unless given
    #[schemars(range(min = 1, max = 10))]
    minutes: Option<u8>,
}

#[derive(Deserialize, JsonSchema)]
struct Language {
    language: String,
}

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom to greet
    name: String,
    /// In which language, English unless given
    language: Option<String>,
}
