//! `#[prompt]`.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{Error, Expr, Result};

use crate::attr::AttributeOptions;
use crate::function::{Function, HandlerKind};
use crate::tool::description_call;

const KEYS: [&str; 5] = ["name", "description", "title", "arguments", "inline"];

pub(crate) fn spec(inside: TokenStream, mut function: Function) -> Result<TokenStream> {
    let mut options = AttributeOptions::read("prompt", inside, &KEYS)?;
    let name = options.take_string("name")?.map_or_else(|| function.name(), |name| name.value());
    let text = options.take_text().map(|text| text.to_token_stream());
    let given = options.take_expression("description")?.map(|expression| expression.to_token_stream());
    let mut calls = description_call(given.or(text), &function);
    if let Some(title) = options.take_expression("title")? {
        calls.extend(quote!(.title(#title)));
    }
    if let Some(list) = options.take_expression("arguments")? {
        describe_arguments(list, &mut function)?;
    }
    let handler = function.handler(HandlerKind::Prompt, options.take_inline(&function)?);
    Ok(quote!(::toolgate::__private::PromptSpec::new(#name, #handler) #calls))
}

/// `arguments = [language = "The language", code]`: descriptions. The type of an argument determines whether it is
/// required.
fn describe_arguments(list: Expr, function: &mut Function) -> Result<()> {
    let shape = "`arguments` is a list: `arguments = [language = \"The language\", code = \"The code\"]`";
    let Expr::Array(list) = list else {
        return Err(Error::new_spanned(&list, shape));
    };
    for entry in list.elems {
        let (name, text) = match entry {
            Expr::Assign(assign) => (*assign.left, Some(*assign.right)),
            name => (name, None),
        };
        let Expr::Path(path) = &name else { return Err(Error::new_spanned(&name, shape)) };
        let Some(ident) = path.path.get_ident() else { return Err(Error::new_spanned(&name, shape)) };
        let known = ident.to_string();
        let is_known = match text {
            Some(text) => function.describe(&known, text.to_token_stream()),
            None => function.may_have_argument(&known),
        };
        if !is_known {
            return Err(Error::new_spanned(ident, format!("the function has no argument `{known}`")));
        }
    }
    Ok(())
}
