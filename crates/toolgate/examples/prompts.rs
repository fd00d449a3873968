//! Use this when people should choose a prepared text from a menu: a review, a report, a plan. The fields
//! of the argument type are the holes of the text.
//!
//! `cargo run --example prompts -- 127.0.0.1:8080`

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::Server;
use toolgate::model::{Content, Contents, PromptMessage, Role};

#[derive(Deserialize, JsonSchema)]
struct Review {
    /// The code to look at
    code: String,
    /// What to look for: bugs, style or speed
    focus: Option<Focus>,
}

// Arguments of prompts are texts on the wire; numbers, booleans and plain enums are read from them.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Focus {
    Bugs,
    Style,
    Speed,
}

/// A text alone is one message of the user.
async fn standup() -> &'static str {
    "Summarize what I did yesterday, what I plan today, and what is in my way."
}

async fn review(args: Review) -> Vec<PromptMessage> {
    let task = match args.focus {
        Some(Focus::Bugs) => "Find the bugs in this code.",
        Some(Focus::Style) => "Say what reads badly in this code.",
        Some(Focus::Speed) => "Say what is slow in this code.",
        None => "Review this code.",
    };
    let code = Contents::text("review://code", args.code).with_mime("text/plain");
    vec![
        PromptMessage { role: Role::User, content: Content::text(task) },
        PromptMessage { role: Role::User, content: Content::embedded(code) },
    ]
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Server::new("prompts", "1.0.0")
        .prompt("standup", standup)
        .describe("A short status report")
        .prompt("review", review)
        .title("Code review")
        .describe("Reviews a piece of code")
        .complete("focus", |prefix, _| async move {
            ["bugs", "style", "speed"]
                .into_iter()
                .filter(|focus| focus.starts_with(&prefix))
                .collect::<Vec<_>>()
        })
        .listen(address)
        .await
}
