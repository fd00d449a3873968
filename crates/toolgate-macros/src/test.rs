//! `#[toolgate::test]`: runs an async function as a `#[test]`, once per protocol version.
//!
//! This crate has no list of protocol versions: each date becomes a `const` expression that calls the library and does
//! not compile if the date is unknown.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprArray, ExprLit, FnArg, Ident, ItemFn, Lit, LitStr, Result, Token};

const KEYS: &str = "`server = …`, `versions = [\"…\"]`, `all_versions` and `http`";

/// The arguments of the attribute.
#[derive(Default)]
struct TestOptions {
    server: Option<Expr>,
    versions: Option<Vec<LitStr>>,
    http: bool,
    /// The last key that needs a client, for error messages.
    needs_client: Option<Ident>,
}

struct TestKey {
    name: Ident,
    value: Option<Expr>,
}

impl Parse for TestKey {
    fn parse(input: ParseStream<'_>) -> Result<TestKey> {
        let name = input.parse()?;
        let value = match input.parse::<Option<Token![=]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        Ok(TestKey { name, value })
    }
}

/// Expands to the test, or to the unchanged function and a compile error.
pub(crate) fn expand(options: TokenStream, item: &TokenStream) -> TokenStream {
    match try_expand(options, item.clone()) {
        Ok(expanded) => expanded,
        Err(error) => {
            let error = error.into_compile_error();
            quote! { #error #item }
        }
    }
}

fn try_expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = read_options(options)?;
    let function: ItemFn = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), "`#[toolgate::test]` can only be applied to a function"))?;
    check_signature(&function, &options)?;
    Ok(expand_test(function, &options))
}

fn read_options(options: TokenStream) -> Result<TestOptions> {
    let keys = Punctuated::<TestKey, Token![,]>::parse_terminated.parse2(options)?;
    let (mut parsed, mut all, mut seen) = (TestOptions::default(), false, Vec::new());
    for TestKey { name, value } in keys {
        let key = name.to_string();
        if seen.contains(&key) {
            return Err(Error::new(name.span(), format!("`{key}` is given twice")));
        }
        match (key.as_str(), value) {
            ("server", Some(value)) => parsed.server = Some(value),
            ("server", None) => return Err(Error::new(name.span(), "`server` needs a value: `server = …`")),
            ("versions", Some(value)) => parsed.versions = Some(version_literals(&value)?),
            ("versions", None) => {
                return Err(Error::new(name.span(), "`versions` needs dates: `versions = [\"…\"]`"));
            }
            ("all_versions", None) => all = true,
            ("http", None) => parsed.http = true,
            ("all_versions" | "http", Some(value)) => {
                return Err(Error::new(value.span(), format!("`{key}` takes no value")));
            }
            _ => return Err(Error::new(name.span(), format!("unknown key `{key}`; the keys are {KEYS}"))),
        }
        if all && parsed.versions.is_some() {
            return Err(Error::new(name.span(), "`versions` and `all_versions` cannot be used together"));
        }
        seen.push(key);
        parsed.needs_client = Some(name);
    }
    Ok(parsed)
}

fn version_literals(value: &Expr) -> Result<Vec<LitStr>> {
    let error = |span| Error::new(span, "`versions` is a list of dates: `versions = [\"…\"]`");
    let Expr::Array(ExprArray { elems, .. }) = value else { return Err(error(value.span())) };
    if elems.is_empty() {
        return Err(Error::new(value.span(), "`versions` must not be empty"));
    }
    let date = |element: &Expr| match element {
        Expr::Lit(ExprLit { lit: Lit::Str(date), .. }) => Ok(date.clone()),
        other => Err(error(other.span())),
    };
    elems.iter().map(date).collect()
}

fn check_signature(function: &ItemFn, options: &TestOptions) -> Result<()> {
    let signature = &function.sig;
    let is_test = |attribute: &&syn::Attribute| attribute.path().is_ident("test");
    if let Some(attribute) = function.attrs.iter().find(is_test) {
        return Err(Error::new(
            attribute.span(),
            "`#[toolgate::test]` generates the test attribute; remove `#[test]`",
        ));
    }
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span, "a `#[toolgate::test]` function must be `async`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(signature.generics.span(), "a test has no generic parameters"));
    }
    match (signature.inputs.first(), signature.inputs.get(1), &options.needs_client) {
        (_, Some(second), _) => {
            Err(Error::new(second.span(), "a test takes one `TestClient` or no parameter"))
        }
        (Some(FnArg::Receiver(receiver)), ..) => {
            Err(Error::new(receiver.span(), "a test is a function, not a method"))
        }
        (None, None, Some(key)) => Err(Error::new(
            key.span(),
            format!("`{key}` needs a client, but the function takes none: `(client: TestClient)`"),
        )),
        _ => Ok(()),
    }
}

fn expand_test(mut function: ItemFn, options: &TestOptions) -> TokenStream {
    let attributes = std::mem::take(&mut function.attrs);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let name = &function.sig.ident;
    // Spans: errors about the return type or the parameter type point at the function.
    let run = match function.sig.inputs.first() {
        None => quote_spanned! { name.span() => ::toolgate::__private::test_once(#name) },
        Some(client) => {
            let versions = version_list(options);
            let server = server_expression(options);
            let over_http = options.http.then(|| quote! { .over_http() });
            let call = quote_spanned! { client.span() =>
                |client: ::toolgate::testing::TestClient| #name(client #over_http)
            };
            quote_spanned! { name.span() =>
                ::toolgate::__private::test_each_version(#versions, || async { #server }, #call)
            }
        }
    };
    quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        #visibility fn #name() {
            #function
            #run
        }
    }
}

fn version_list(options: &TestOptions) -> TokenStream {
    let Some(dates) = &options.versions else {
        return quote! { &::std::vec::Vec::from_iter(::toolgate::testing::TestVersion::all()) };
    };
    let known = dates.iter().map(|date| {
        quote_spanned! { date.span() => const { ::toolgate::testing::TestVersion::known(#date) } }
    });
    quote! { &[#(#known),*] }
}

fn server_expression(options: &TestOptions) -> TokenStream {
    match &options.server {
        Some(server) => quote! { #server },
        None => quote! {
            ::toolgate::testing::collected_server(
                ::core::env!("CARGO_PKG_NAME"),
                ::core::env!("CARGO_PKG_VERSION"),
            )
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tests_are_rejected() {
        let rows = [
            ("", "struct A;", "only be applied to a function"),
            ("", "fn a() {}", "must be `async`"),
            ("", "async fn a(c: TestClient, d: u8) {}", "one `TestClient` or no parameter"),
            ("", "async fn a(&self) {}", "not a method"),
            ("", "async fn a<T>(c: T) {}", "no generic parameters"),
            ("", "#[test] async fn a() {}", "remove `#[test]`"),
            ("http", "async fn a() {}", "`http` needs a client, but the function takes none"),
            ("version = []", "async fn a(c: C) {}", "unknown key `version`; the keys are `server = …`"),
            ("versions", "async fn a(c: C) {}", "`versions` needs dates"),
            ("versions = []", "async fn a(c: C) {}", "`versions` must not be empty"),
            ("versions = \"x\"", "async fn a(c: C) {}", "is a list of dates"),
            ("versions = [1]", "async fn a(c: C) {}", "is a list of dates"),
            ("versions = [\"x\"], all_versions", "async fn a(c: C) {}", "cannot be used together"),
            ("all_versions, versions = [\"x\"]", "async fn a(c: C) {}", "cannot be used together"),
            ("server", "async fn a(c: C) {}", "`server` needs a value"),
            ("http = true", "async fn a(c: C) {}", "takes no value"),
            ("http, http", "async fn a(c: C) {}", "given twice"),
        ];
        for (options, item, wanted) in rows {
            let (options, item) = (options.parse().unwrap(), item.parse().unwrap());
            let error = try_expand(options, item).expect_err(wanted).to_string();
            assert!(error.contains(wanted), "expected {wanted:?}, got {error:?}");
        }
    }

    #[test]
    fn attributes_move_to_the_generated_test() {
        let options = quote! { server = make().await, versions = ["a"], http };
        let item = quote! {
            /// Docs
            #[should_panic]
            pub async fn greets(c: TestClient) -> Result<(), E> { body() }
        };
        let expanded = expand(options, &item).to_string();
        for part in
            ["# [doc", "# [should_panic]", "pub fn greets ()", "async fn greets (c : TestClient) -> Result"]
        {
            assert!(expanded.contains(part), "{part} is missing in {expanded}");
        }
        assert_eq!(expanded.matches("should_panic").count(), 1, "not on the inner function");
    }
}
