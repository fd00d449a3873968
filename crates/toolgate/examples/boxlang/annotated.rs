//! The server `annotated`: a value whose annotated methods are tools, resources and prompts, in each of the three possible
//! styles.

use toolgate::prelude::*;
use toolgate::{Error, Servers};

pub(crate) fn register(servers: &Servers) -> Result<(), Error> {
    let library = Library { books: vec!["Dune", "Emma", "Ulysses"] };
    servers.server("annotated").add(library)?;
    Ok(())
}

struct Library {
    books: Vec<&'static str>,
}

impl Library {
    fn matching_books(&self, query: &str) -> Vec<&'static str> {
        self.books.iter().copied().filter(|book| book.contains(query)).collect()
    }
}

#[server]
impl Library {
    /// Echo a message
    #[tool]
    fn echo_message(message: String) -> String {
        format!("Echo: {message}")
    }

    /// Search for documents
    /// @query The search query
    #[tool]
    fn search(&self, query: String) -> Vec<&'static str> {
        self.matching_books(&query)
    }

    /// @query The query to search
    #[tool("Search for documents in the knowledge base")]
    async fn search_docs(&self, query: String) -> Vec<&'static str> {
        self.matching_books(&query)
    }

    #[tool(name = "calculator", description = "Perform calculations", version = "2.0.0")]
    fn calculate(a: f64, b: f64) -> f64 {
        a + b
    }

    /// Returns the README file
    #[resource]
    fn readme() -> &'static str {
        "# Library\n"
    }

    #[resource("API documentation for developers")]
    fn api_docs() -> &'static str {
        "There is a tool for everything."
    }

    #[resource(
        uri = "config://app",
        name = "App Config",
        description = "Application settings",
        mime = "application/json"
    )]
    fn get_config(&self) -> serde_json::Value {
        json!({ "books": self.books.len() })
    }

    /// Generate a greeting message
    /// @name The person's name
    #[prompt]
    fn greeting(name: String) -> Vec<PromptMessage> {
        prompt_messages("You are a friendly assistant.", &format!("Say hello to {name}"))
    }

    #[prompt("Generate code based on a description")]
    fn code_gen(description: String, #[arg(default = "java")] language: String) -> Vec<PromptMessage> {
        prompt_messages(&format!("You are a code generator for {language}."), &description)
    }

    #[prompt(name = "reviewer", description = "Code review prompt", arguments = [code = "What to review"])]
    fn review_code(code: String) -> Vec<PromptMessage> {
        prompt_messages("Review this code for issues.", &code)
    }
}

fn prompt_messages(system: &str, user: &str) -> Vec<PromptMessage> {
    vec![PromptMessage::new(Role::System, Content::text(system)), PromptMessage::user(user)]
}
