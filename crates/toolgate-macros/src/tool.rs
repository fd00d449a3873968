//! `#[tool]`.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{Error, Result};

use crate::attr::AttributeOptions;
use crate::function::{Function, HandlerKind};

const KEYS: [&str; 13] = [
    "name",
    "description",
    "version",
    "title",
    "read_only",
    "destructive",
    "idempotent",
    "closed_world",
    "timeout",
    "task",
    "resumable",
    "allow_unknown",
    "inline",
];

pub(crate) fn spec(inside: TokenStream, function: &Function) -> Result<TokenStream> {
    let mut options = AttributeOptions::read("tool", inside, &KEYS)?;
    let name = options.take_string("name")?.map_or_else(|| function.name(), |name| name.value());
    let mut calls = TokenStream::new();
    let text = options.take_text();
    calls.extend(description_call(
        options.take_expression("description")?.map_or_else(
            || text.map(|text| text.to_token_stream()),
            |expression| Some(expression.to_token_stream()),
        ),
        function,
    ));
    for key in ["title", "version"] {
        if let Some(value) = options.take_expression(key)? {
            let method = quote::format_ident!("{key}");
            calls.extend(quote!(.#method(#value)));
        }
    }
    for hint in ["read_only", "destructive", "idempotent", "closed_world", "resumable"] {
        if options.take_flag(hint)? {
            let method = quote::format_ident!("{hint}");
            calls.extend(quote!(.#method()));
        }
    }
    if options.take_flag("allow_unknown")? {
        calls.extend(quote!(.allow_unknown_arguments()));
    }
    if let Some(millis) = options.take_duration("timeout")? {
        calls.extend(quote!(.timeout(::toolgate::__private::std::time::Duration::from_millis(#millis))));
    }
    if let Some(task) = options.take_string("task")? {
        let support = quote!(::toolgate::__private::TaskSupport);
        let call = match task.value().as_str() {
            "optional" => quote!(.task(#support::Optional)),
            "required" => quote!(.task(#support::Required)),
            "later" => quote!(.task_deferrable()),
            _ => {
                let message = "`task` is `\"optional\"`, `\"required\"` or `\"later\"`";
                return Err(Error::new_spanned(&task, message));
            }
        };
        calls.extend(call);
    }
    let handler = function.handler(HandlerKind::Tool, options.take_inline(function)?);
    Ok(quote!(::toolgate::__private::ToolSpec::new(#name, #handler) #calls))
}

/// Generates the `describe` call, from the attribute or else from the doc comment.
pub(crate) fn description_call(given: Option<TokenStream>, function: &Function) -> TokenStream {
    let text = &function.docs.text;
    match given {
        Some(given) => quote!(.describe(#given)),
        None if text.is_empty() => TokenStream::new(),
        None => quote!(.describe(#text)),
    }
}
