//! `#[complete]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, Path, Result, Token};

use crate::attr::call_site;
use crate::function::{Function, HandlerKind};
use crate::parameter::AcceptedTypes;

const USAGE: &str = "say what is completed: `#[complete(one.id)]` for the argument `id` of `one`";

/// `one.id`: an argument of a template or prompt.
struct CompletionTarget {
    item: Path,
    argument: Ident,
}

impl Parse for CompletionTarget {
    fn parse(input: ParseStream<'_>) -> Result<CompletionTarget> {
        let explained = |error: Error| Error::new(error.span(), USAGE);
        let of = input.call(Path::parse_mod_style).map_err(explained)?;
        input.parse::<Token![.]>().map_err(explained)?;
        Ok(CompletionTarget { item: of, argument: input.call(Ident::parse_any).map_err(explained)? })
    }
}

pub(crate) fn spec(
    inside: TokenStream,
    mut function: Function,
    find: impl Fn(&Path, &Ident) -> Result<TokenStream>,
) -> Result<TokenStream> {
    if inside.is_empty() {
        return Err(Error::new(call_site(), USAGE));
    }
    if let Some(second) = function.certain_arguments().nth(1) {
        return Err(Error::new_spanned(
            &second.ident,
            "a completer takes one argument, the text typed so far; `Context::other_argument` returns the others",
        ));
    }
    // The first parameter may be an extractor, which ignores the text.
    let prefix = function.certain_arguments().next().map_or(0, |parameter| parameter.place);
    let word = function.parameters.get(prefix).map_or_else(String::new, |one| one.argument.name.clone());
    for parameter in function.parameters.iter_mut().filter(|parameter| parameter.place != prefix) {
        parameter.restrict(AcceptedTypes::CompleterExtractors);
    }
    let targets = Punctuated::<CompletionTarget, Token![,]>::parse_terminated.parse2(inside)?;
    let targets = targets.iter().map(|CompletionTarget { item: of, argument }| {
        let origin = find(of, argument)?;
        let argument = argument.unraw().to_string();
        Ok(quote!((#origin, #argument)))
    });
    let targets = targets.collect::<Result<Vec<_>>>()?;
    let handler = function.handler(HandlerKind::Completion);
    Ok(quote! {
        ::toolgate::__private::Completer::new(
            ::toolgate::__private::std::vec![#(#targets),*], #word, #handler,
        )
    })
}
