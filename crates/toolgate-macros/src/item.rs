//! Generates the expression that makes the item of a marked function.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::{Error, Ident, ItemFn, Path, Result};

use crate::function::{Function, strip_attributes};
use crate::{complete, prompt, resource, tool};

/// The attributes that mark functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Tool,
    Resource,
    Template,
    Prompt,
    Complete,
}

impl ItemKind {
    pub(crate) const ALL: [ItemKind; 5] =
        [ItemKind::Tool, ItemKind::Resource, ItemKind::Template, ItemKind::Prompt, ItemKind::Complete];

    pub(crate) fn attribute(self) -> &'static str {
        match self {
            ItemKind::Tool => "tool",
            ItemKind::Resource => "resource",
            ItemKind::Template => "template",
            ItemKind::Prompt => "prompt",
            ItemKind::Complete => "complete",
        }
    }

    /// Generates the expression of the item. `find` returns the origin of a completer's target.
    pub(crate) fn item(
        self,
        inside: TokenStream,
        function: Function,
        find: impl Fn(&Path, &Ident) -> Result<TokenStream>,
    ) -> Result<TokenStream> {
        match self {
            ItemKind::Tool => tool::spec(inside, &function),
            ItemKind::Resource => resource::resource(inside, function),
            ItemKind::Template => resource::template(inside, function),
            ItemKind::Prompt => prompt::spec(inside, function),
            ItemKind::Complete => complete::spec(inside, function, find),
        }
        .map(|spec| quote!(::toolgate::__private::Item::from(#spec)))
    }
}

/// Expands a free function: the function itself, the function that makes its item, and its registration.
pub(crate) fn expand_function(kind: ItemKind, inside: TokenStream, mut item: ItemFn) -> TokenStream {
    let beside = expand_item(kind, inside, &item).unwrap_or_else(Error::into_compile_error);
    // The function is kept even if there is an error, to avoid follow-up errors.
    strip_attributes(&mut item.attrs, &mut item.sig);
    quote!(#item #beside)
}

fn expand_item(kind: ItemKind, inside: TokenStream, item: &ItemFn) -> Result<TokenStream> {
    reject_second_attribute(kind, &item.attrs)?;
    let function = Function::read(&item.attrs, &item.sig)?;
    function.reject_self(&item.sig)?;
    let conditions = function.cfg_attributes.clone();
    let name = function.name();
    let made = kind.item(inside, function, |path, _| {
        let maker = item_fn_path(path);
        Ok(quote!(#maker().origin()))
    })?;
    let maker = item_fn_ident(&item.sig.ident);
    let vis = &item.vis;
    Ok(quote! {
        #(#conditions)*
        #[doc(hidden)]
        #[allow(deprecated)]
        #vis fn #maker() -> ::toolgate::__private::Item {
            #made.with_origin(::toolgate::__private::std::concat!(
                ::toolgate::__private::std::module_path!(), "::", #name
            ))
        }

        #(#conditions)*
        ::toolgate::__private::inventory::submit! {
            ::toolgate::__private::ItemRegistration::new(
                ::toolgate::__private::std::module_path!(),
                ::toolgate::__private::std::line!(),
                #maker,
            )
        }
    })
}

/// Checks that a function has only one of the attributes.
pub(crate) fn reject_second_attribute(kind: ItemKind, attributes: &[syn::Attribute]) -> Result<()> {
    let second = attributes.iter().find(|attribute| {
        ItemKind::ALL.iter().any(|other| crate::attr::is_named(attribute, other.attribute()))
    });
    match second {
        Some(second) => Err(Error::new_spanned(
            second,
            format!("this function is a `#[{}]` already: write another that calls it", kind.attribute()),
        )),
        None => Ok(()),
    }
}

/// Returns the name of the function that makes the item. The compiler shows it when the function has no attribute.
fn item_fn_ident(ident: &Ident) -> Ident {
    format_ident!("__toolgate_attribute_of_{}", ident.unraw(), span = ident.span())
}

/// Returns the path of the function that makes the item, from the path of the marked function.
pub(crate) fn item_fn_path(path: &Path) -> Path {
    let mut path = path.clone();
    if let Some(last) = path.segments.last_mut() {
        last.ident = item_fn_ident(&last.ident);
    }
    path
}
