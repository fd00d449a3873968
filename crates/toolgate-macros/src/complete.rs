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

/// One element of the attribute's arguments.
enum CompleteOption {
    /// `one.id`: an argument of a template or prompt.
    Target { item: Path, argument: Ident },
    /// `inline`, unless it is the name of a template or prompt.
    Inline(Ident),
}

impl Parse for CompleteOption {
    fn parse(input: ParseStream<'_>) -> Result<CompleteOption> {
        let explained = |error: Error| Error::new(error.span(), USAGE);
        let item = input.call(Path::parse_mod_style).map_err(explained)?;
        match item.get_ident() {
            Some(ident) if ident == "inline" && !input.peek(Token![.]) => {
                return Ok(CompleteOption::Inline(ident.clone()));
            }
            _ => input.parse::<Token![.]>().map_err(explained)?,
        };
        Ok(CompleteOption::Target { item, argument: input.call(Ident::parse_any).map_err(explained)? })
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
    let (mut targets, mut is_inline) = (Vec::new(), false);
    for option in Punctuated::<CompleteOption, Token![,]>::parse_terminated.parse2(inside)? {
        match option {
            CompleteOption::Target { item, argument } => {
                let origin = find(&item, &argument)?;
                let argument = argument.unraw().to_string();
                targets.push(quote!((#origin, #argument)));
            }
            CompleteOption::Inline(ident) => {
                function.reject_inline(Some(&ident))?;
                is_inline = true;
            }
        }
    }
    if targets.is_empty() {
        return Err(Error::new(call_site(), USAGE));
    }
    let handler = function.handler(HandlerKind::Completion, is_inline);
    Ok(quote! {
        ::toolgate::__private::Completer::new(
            ::toolgate::__private::std::vec![#(#targets),*], #word, #handler,
        )
    })
}
