//! Hygiene of the generated code.

use serde_json::json;
use toolgate::{Server, items};

use super::{call_text, complete};

/// Generated code must not depend on the names in scope.
mod shadowed {
    #![allow(dead_code, non_camel_case_types, non_upper_case_globals, reason = "to be in the way")]

    pub(crate) struct Result;
    pub(crate) struct String;
    pub(crate) struct Vec;
    pub(crate) struct Option;
    pub(crate) struct Box;
    pub(crate) struct Ok;
    pub(crate) struct Err;
    pub(crate) trait Into {}
    pub(crate) trait Default {}
    pub(crate) trait Send {}
    pub(crate) mod std {}
    pub(crate) mod core {}
    pub(crate) mod serde {}
    pub(crate) mod schemars {}
    pub(crate) const given: u8 = 1;
    pub(crate) const returned: u8 = 2;
    pub(crate) const kit: u8 = 3;
    pub(crate) const p0: u8 = 4;

    #[toolgate::tool]
    pub(crate) async fn shout(
        /// What
        #[arg(min_len = 1, pattern = "^.", default = "x")]
        text: ::std::string::String,
        #[arg(range = 1..=3, default = returned)] times: u8,
        _headers: toolgate::Headers,
    ) -> ::core::result::Result<::std::string::String, toolgate::HandlerError> {
        ::core::result::Result::Ok(text.to_uppercase().repeat(times.into()))
    }

    #[toolgate::prompt]
    pub(crate) fn say(word: ::std::string::String) -> ::std::string::String {
        word
    }

    #[toolgate::complete(say.word)]
    pub(crate) fn words(so_far: ::std::string::String) -> [::std::string::String; 1] {
        [so_far]
    }

    pub(crate) struct Tin;

    #[toolgate::server]
    impl Tin {
        #[toolgate::tool]
        pub(crate) fn open(&self, tin: ::std::string::String) -> ::std::string::String {
            tin
        }
    }
}

#[tokio::test]
async fn macros_are_hygienic() {
    let server = Server::new("shadowed", "1")
        .add(items![shadowed::shout, shadowed::say, shadowed::words])
        .add(shadowed::Tin)
        .build()
        .unwrap();
    assert_eq!(call_text(&server, "shout", json!({ "text": "hi" })).await, "HIHI");
    assert_eq!(call_text(&server, "shout", json!({})).await, "XX");
    assert_eq!(call_text(&server, "open", json!({ "tin": "k" })).await, "k");
    let prompt = json!({ "type": "ref/prompt", "name": "say" });
    assert_eq!(complete(&server, prompt, "word", "w").await, json!(["w"]));
}
