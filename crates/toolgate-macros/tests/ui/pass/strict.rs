//! The macros compile without warnings under the strictest lints.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![deny(rust_2018_idioms, single_use_lifetimes, unused_results, let_underscore_drop)]

/// Tools of a library.
pub mod tools {
    use toolgate::prelude::*;

    /// Greets
    #[tool]
    pub async fn greet(
        /// Whom
        #[arg(min_len = 1)]
        name: String,
        #[arg(default = 1, range = 1..=3)] times: u8,
        mut cx: Context,
    ) -> String {
        cx = cx.clone();
        drop(cx);
        format!("Hello, {name}!").repeat(times.into())
    }

    /// Reads
    #[template("x://{id}")]
    pub fn read(id: String) -> String {
        id
    }

    /// Completes
    #[complete(read.id)]
    pub fn ids(prefix: String) -> Vec<String> {
        vec![prefix]
    }

    /// A box
    #[derive(Debug)]
    pub struct Kit;

    #[server(instructions = concat!("A", " box"))]
    impl Kit {
        /// Opens
        #[tool]
        pub fn open(&self, #[arg(default)] wide: bool) -> bool {
            wide
        }

        /// Shut
        #[prompt]
        pub async fn shut(&self) -> &'static str {
            "shut"
        }
    }
}

fn main() {
    use toolgate::{Server, items};

    let built = Server::new("strict", "1").add(items![tools::greet, tools::read, tools::ids]).add(tools::Kit).build();
    assert!(built.is_ok());
    // Functions may be nested in functions.
    #[toolgate::tool]
    fn inner() -> u8 {
        1
    }
    assert!(Server::new("inner", "1").add(items![inner]).build().is_ok());
    assert!(Server::new("none", "1").add(items![]).build().is_ok());
    assert!(Server::new("all", "1").collect().build().is_ok());
}
