//! Use this when users should choose a prepared text from a menu: a review, a report, a plan. The parameters are the
//! arguments of the prompt.
//!
//! `cargo run --example prompts -- --http :8080`

use toolgate::prelude::*;

// Prompt arguments are strings on the wire; numbers, booleans and plain enums are parsed from them.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Focus {
    Bugs,
    Style,
    Speed,
}

/// A short status report
// A string becomes a single user message.
#[prompt]
fn standup() -> &'static str {
    "Summarize what I did yesterday, what I plan today, and what is in my way."
}

/// Review a piece of code
#[prompt(title = "Code review")]
fn review(
    /// The code to look at
    code: String,
    /// What to look for: bugs, style or speed
    focus: Option<Focus>,
) -> Vec<PromptMessage> {
    let task = match focus {
        Some(Focus::Bugs) => "Find the bugs in this code.",
        Some(Focus::Style) => "Say what reads badly in this code.",
        Some(Focus::Speed) => "Say what is slow in this code.",
        None => "Review this code.",
    };
    let code = ResourceContents::text("review://code", code).with_mime("text/plain");
    vec![PromptMessage::user(task), PromptMessage::user(Content::embedded(code))]
}

#[complete(review.focus)]
fn focuses(prefix: String) -> Vec<&'static str> {
    ["bugs", "style", "speed"].into_iter().filter(|focus| focus.starts_with(&prefix)).collect()
}

toolgate::main!(Server::new("prompts", "1.0.0").collect());
