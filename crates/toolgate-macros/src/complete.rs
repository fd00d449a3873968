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
