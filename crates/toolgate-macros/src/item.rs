//! From a marked function to the expression that makes its item, whatever it is marked as.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::{Error, Ident, ItemFn, Path, Result};

use crate::function::{Function, strip};
use crate::{complete, prompt, resource, tool};

/// What a function can be marked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tool,
    Resource,
    Template,
    Prompt,
    Complete,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Tool, Kind::Resource, Kind::Template, Kind::Prompt, Kind::Complete];

    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::Resource => "resource",
            Kind::Template => "template",
            Kind::Prompt => "prompt",
            Kind::Complete => "complete",
        }
    }

    /// The expression of the item. `find` gives the origin of the thing that a completer is for.
    pub(crate) fn item(
        self,
        inside: TokenStream,
        function: Function,
        find: impl Fn(&Path, &Ident) -> Result<TokenStream>,
    ) -> Result<TokenStream> {
        match self {
            Kind::Tool => tool::spec(inside, &function),
            Kind::Resource => resource::resource(inside, &function),
            Kind::Template => resource::template(inside, &function),
            Kind::Prompt => prompt::spec(inside, function),
            Kind::Complete => complete::spec(inside, &function, find),
        }
        .map(|spec| quote!(::toolgate::__private::Item::from(#spec)))
    }
}

/// A free function: itself, the function that makes its item, and a note for the collection.
pub(crate) fn free(kind: Kind, inside: TokenStream, mut item: ItemFn) -> TokenStream {
    let beside = beside(kind, inside, &item).unwrap_or_else(Error::into_compile_error);
    // Left in place even if something is wrong, so that there is one error and not many.
    strip(&mut item.attrs, &mut item.sig);
    quote!(#item #beside)
}

fn beside(kind: Kind, inside: TokenStream, item: &ItemFn) -> Result<TokenStream> {
    refuse_second(kind, &item.attrs)?;
    let function = Function::read(&item.attrs, &item.sig)?;
    function.refuse_self(&item.sig)?;
    let conditions = function.conditions.clone();
    let name = function.name();
    let made = kind.item(inside, function, |path, _| {
        let maker = maker_of(path);
        Ok(quote!(#maker().origin()))
    })?;
    let maker = maker(&item.sig.ident);
    let vis = &item.vis;
    Ok(quote! {
        #(#conditions)*
        #[doc(hidden)]
        #[allow(deprecated)]
        #vis fn #maker() -> ::toolgate::__private::Item {
            #made.made_from(::toolgate::__private::std::concat!(
                ::toolgate::__private::std::module_path!(), "::", #name
            ))
        }

        #(#conditions)*
        ::toolgate::__private::inventory::submit! {
            ::toolgate::__private::Marked::new(
                ::toolgate::__private::std::module_path!(),
                ::toolgate::__private::std::line!(),
                #maker,
            )
        }
    })
}

/// A function is one thing.
pub(crate) fn refuse_second(kind: Kind, attributes: &[syn::Attribute]) -> Result<()> {
    let second = attributes
        .iter()
        .find(|attribute| Kind::ALL.iter().any(|other| crate::attr::is_named(attribute, other.attribute())));
    match second {
        Some(second) => Err(Error::new_spanned(
            second,
            format!("this function is a `#[{}]` already: write another that calls it", kind.attribute()),
        )),
        None => Ok(()),
    }
}

/// The name of the function that makes the item of a function.
fn maker(ident: &Ident) -> Ident {
    format_ident!("__toolgate_{}", ident.unraw(), span = ident.span())
}

/// The path of that function, from the path of the marked one.
pub(crate) fn maker_of(path: &Path) -> Path {
    let mut path = path.clone();
    if let Some(last) = path.segments.last_mut() {
        last.ident = maker(&last.ident);
    }
    path
}
