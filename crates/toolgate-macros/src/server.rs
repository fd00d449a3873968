//! `#[server]`: an impl block whose marked methods are items.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::{Attribute, Error, ImplItem, ItemImpl, Path, Result};

use crate::attr::{AttributeOptions, attribute_tokens, is_named};
use crate::function::{Function, strip_attributes};
use crate::item::{ItemKind, reject_second_attribute};

pub(crate) fn expand_impl(options: TokenStream, mut block: ItemImpl) -> TokenStream {
    let kit = expand_items(options, &block).unwrap_or_else(Error::into_compile_error);
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item
            && marker_position(&method.attrs).is_some()
        {
            method.attrs.retain(|attribute| kind_of(attribute).is_none());
            strip_attributes(&mut method.attrs, &mut method.sig);
        }
    }
    quote!(#block #kit)
}

/// A marked method.
struct Method<'a> {
    kind: ItemKind,
    attribute: &'a Attribute,
    function: Function,
}

/// A possible target of a completer.
struct Completable {
    name: String,
    kind: ItemKind,
    arguments: Vec<String>,
}

fn expand_items(options: TokenStream, block: &ItemImpl) -> Result<TokenStream> {
    let mut options = AttributeOptions::read("server", options, &["instructions", "version"])?;
    options.reject_text("write `#[server(instructions = \"…\")]`")?;
    if let Some((path, _)) = &block.trait_ {
        return Err(Error::new_spanned(path, "`#[server]` is for the impl block of a type, not of a trait"));
    }
    let mut texts = Vec::new();
    for key in ["instructions", "version"] {
        if let Some(text) = options.take_expression(key)? {
            let function = format_ident!("{key}");
            texts.push(quote! {
                fn #function() -> ::toolgate::__private::std::option::Option<::toolgate::__private::std::string::String> {
                    ::toolgate::__private::std::option::Option::Some(::toolgate::__private::std::convert::Into::into(#text))
                }
            });
        }
    }
    let methods = read_methods(block)?;
    if methods.is_empty() {
        return Err(Error::new_spanned(
            &block.self_ty,
            "no method is marked: mark methods with `#[tool]`, `#[resource]`, `#[template]` or `#[prompt]`",
        ));
    }
    let targets: Vec<Completable> = methods.iter().map(Completable::from_method).collect();
    let self_type = &block.self_ty;
    let type_path = self_type.to_token_stream().to_string().replace(' ', "");
    let items = methods.into_iter().map(|method| add_item_statement(method, &targets, &type_path));
    let items = items.collect::<Result<Vec<_>>>()?;
    let (generics, _, bounds) = block.generics.split_for_impl();
    Ok(quote_spanned! {Span::mixed_site()=>
        #[allow(deprecated)]
        impl #generics ::toolgate::__private::ServerItems for #self_type #bounds {
            fn items(
                __this: &::toolgate::__private::std::sync::Arc<Self>,
            ) -> ::toolgate::__private::std::vec::Vec<::toolgate::__private::Item> {
                let mut __items = ::toolgate::__private::std::vec::Vec::new();
                #(#items)*
                __items
            }

            #(#texts)*
        }
    })
}

impl Completable {
    fn from_method(method: &Method<'_>) -> Completable {
        Completable {
            name: method.function.name(),
            kind: method.kind,
            arguments: method
                .function
                .parameters
                .iter()
                .filter(|parameter| parameter.may_be_argument())
                .map(|parameter| parameter.argument.name.clone())
                .collect(),
        }
    }
}

/// Generates the statement that adds the item of a method.
fn add_item_statement(method: Method<'_>, targets: &[Completable], type_path: &str) -> Result<TokenStream> {
    let Method { kind, attribute: marker, function } = method;
    let origin = |name: &str| {
        let tail = format!("::{type_path}::{name}");
        quote!(::toolgate::__private::std::concat!(::toolgate::__private::std::module_path!(), #tail))
    };
    let conditions = function.cfg_attributes.clone();
    let own = origin(&function.name());
    let made = kind.item(attribute_tokens(marker)?, function, |path, argument| {
        let name = path.get_ident().map(|ident| ident.unraw().to_string()).unwrap_or_default();
        let target = targets.iter().find(|target| {
            target.name == name && matches!(target.kind, ItemKind::Template | ItemKind::Prompt)
        });
        let wanted = argument.unraw().to_string();
        match target {
            None => Err(Error::new_spanned(
                path,
                format!("this impl block has no `#[template]` or `#[prompt]` called `{}`", path_string(path)),
            )),
            Some(target) if !target.arguments.contains(&wanted) => {
                Err(Error::new_spanned(argument, format!("`{name}` has no argument `{wanted}`")))
            }
            Some(_) => Ok(origin(&name)),
        }
    })?;
    Ok(quote_spanned! {Span::mixed_site()=>
        #(#conditions)*
        {
            let __this = ::toolgate::__private::std::sync::Arc::clone(__this);
            __items.push(#made.with_origin(#own));
        }
    })
}

fn path_string(path: &Path) -> String {
    path.to_token_stream().to_string().replace(' ', "")
}

fn kind_of(attribute: &Attribute) -> Option<ItemKind> {
    ItemKind::ALL.into_iter().find(|kind| is_named(attribute, kind.attribute()))
}

/// Returns the index of the first marking attribute.
fn marker_position(attributes: &[Attribute]) -> Option<usize> {
    attributes.iter().position(|attribute| kind_of(attribute).is_some())
}

fn read_methods(block: &ItemImpl) -> Result<Vec<Method<'_>>> {
    let mut methods = Vec::new();
    for item in &block.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(index) = marker_position(&method.attrs) else { continue };
        let marker = &method.attrs[index];
        let Some(kind) = kind_of(marker) else { continue };
        reject_second_attribute(kind, &method.attrs[index + 1..])?;
        let function = Function::read(&method.attrs, &method.sig)?.into_associated();
        methods.push(Method { kind, attribute: marker, function });
    }
    Ok(methods)
}
