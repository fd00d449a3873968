//! `#[complete]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, Path, Result, Token};

use crate::attr::call_site;
use crate::function::{Function, HandlerKind};

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
    function: &Function,
    find: impl Fn(&Path, &Ident) -> Result<TokenStream>,
) -> Result<TokenStream> {
    if inside.is_empty() {
        return Err(Error::new(call_site(), USAGE));
    }
    let mut arguments = function.arguments();
    let word = arguments.next().map_or_else(String::new, |(_, argument)| argument.name.clone());
    if let Some((second, _)) = arguments.next() {
        return Err(Error::new_spanned(
            &second.ident,
            "a completer takes one argument, the text typed so far; `Context::other_argument` returns the others",
        ));
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
