//! The pen: attribute macros that write builder calls and decide nothing.
//!
//! Everything written here could be written by hand with the `toolgate` crate, which exports these macros.
//! What is written refers to it by absolute paths only, so that it does not matter which names a program
//! has taken. `#[tool]`, `#[resource]`, `#[template]`, `#[prompt]` and `#[complete]` will live here too.

mod test;

use proc_macro::TokenStream;

/// Runs an async function as a test, once for each protocol revision.
///
/// ```test_harness
/// # use toolgate::Server;
/// # fn server() -> Result<Server, toolgate::Error> {
/// #     Server::new("hello", "1.0.0").tool("greet", || async { "Hello!" }).build()
/// # }
/// use serde_json::json;
/// use toolgate::testing::TestClient;
///
/// #[toolgate::test(server = server())]
/// async fn greets(client: TestClient) {
///     assert_eq!(client.call("greet", json!({})).await.text(), "Hello!");
/// }
/// ```
///
/// The function gets a `TestClient` of the revision, with a server of its own,
/// and may end with `()` or a `Result<(), _>`. All revisions are tried, and those that fail are named. A
/// function without a parameter just runs. It is a normal `#[test]` with a runtime of its own, on one thread:
/// the crate under test needs no other.
///
/// # Keys
///
/// | key | |
/// |---|---|
/// | `server = …` | a `Server`, a `Builder` or a `Result` of one; evaluated for each revision, may `.await` |
/// | `revisions = ["2025-11-25", "2026-07-28"]` | these only; one that does not exist is an error of the compiler |
/// | `all_revisions` | all of them, which is what happens anyway |
/// | `http` | the client speaks HTTP |
///
/// Without `server`, it is one with the name and version of the package and everything in it that is marked
/// with `#[tool]` and its like.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    test::write(options.into(), &item.into()).into()
}
