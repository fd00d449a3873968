//! `#[toolgate::test]`: a normal test around an async function, for each revision.
//!
//! Which revisions there are is not known here: dates become constants that the compiler checks.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprArray, ExprLit, FnArg, Ident, ItemFn, Lit, LitStr, Result, Token};

const KEYS: &str = "`server = …`, `revisions = [\"…\"]`, `all_revisions` and `http`";

/// What stands in the brackets.
#[derive(Default)]
struct TestOptions {
    server: Option<Expr>,
    versions: Option<Vec<LitStr>>,
    http: bool,
    /// The last one that needs a client, for complaints.
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

/// The test; or the function as it was, and what is wrong with it.
pub(crate) fn expand(options: TokenStream, item: &TokenStream) -> TokenStream {
    match try_expand(options, item.clone()) {
        Ok(written) => written,
        Err(error) => {
            let error = error.into_compile_error();
            quote! { #error #item }
        }
    }
}

fn try_expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = read_options(options)?;
    let function: ItemFn = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), "`#[toolgate::test]` stands above a function"))?;
    check_signature(&function, &options)?;
    Ok(expand_test(function, &options))
}

fn read_options(options: TokenStream) -> Result<TestOptions> {
    let keys = Punctuated::<TestKey, Token![,]>::parse_terminated.parse2(options)?;
    let (mut read, mut all, mut seen) = (TestOptions::default(), false, Vec::new());
    for TestKey { name, value } in keys {
        let word = name.to_string();
        if seen.contains(&word) {
            return Err(Error::new(name.span(), format!("`{word}` is given twice")));
        }
        match (word.as_str(), value) {
            ("server", Some(value)) => read.server = Some(value),
            ("server", None) => return Err(Error::new(name.span(), "`server` needs a value: `server = …`")),
            ("revisions", Some(value)) => read.versions = Some(version_literals(&value)?),
            ("revisions", None) => {
                return Err(Error::new(name.span(), "`revisions` needs dates: `revisions = [\"…\"]`"));
            }
            ("all_revisions", None) => all = true,
            ("http", None) => read.http = true,
            ("all_revisions" | "http", Some(value)) => {
                return Err(Error::new(value.span(), format!("`{word}` stands alone, without a value")));
            }
            _ => return Err(Error::new(name.span(), format!("there is no `{word}` here, but {KEYS}"))),
        }
        if all && read.versions.is_some() {
            return Err(Error::new(name.span(), "all revisions, or these: not both"));
        }
        seen.push(word);
        read.needs_client = Some(name);
    }
    Ok(read)
}

fn version_literals(value: &Expr) -> Result<Vec<LitStr>> {
    let wrong = |place| Error::new(place, "`revisions` is a list of dates: `revisions = [\"…\"]`");
    let Expr::Array(ExprArray { elems, .. }) = value else { return Err(wrong(value.span())) };
    if elems.is_empty() {
        return Err(Error::new(value.span(), "without a revision there is no test"));
    }
    let date = |element: &Expr| match element {
        Expr::Lit(ExprLit { lit: Lit::Str(date), .. }) => Ok(date.clone()),
        other => Err(wrong(other.span())),
    };
    elems.iter().map(date).collect()
}

fn check_signature(function: &ItemFn, options: &TestOptions) -> Result<()> {
    let signature = &function.sig;
    let is_test = |attribute: &&syn::Attribute| attribute.path().is_ident("test");
    if let Some(attribute) = function.attrs.iter().find(is_test) {
        return Err(Error::new(attribute.span(), "`#[toolgate::test]` makes a test; remove `#[test]`"));
    }
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span, "a `#[toolgate::test]` is an `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(signature.generics.span(), "a test has no generic parameters"));
    }
    match (signature.inputs.first(), signature.inputs.get(1), &options.needs_client) {
        (_, Some(second), _) => {
            Err(Error::new(second.span(), "a test takes a `TestClient`, or nothing; never two things"))
        }
        (Some(FnArg::Receiver(receiver)), ..) => {
            Err(Error::new(receiver.span(), "a test is a function, not a method"))
        }
        (None, None, Some(key)) => Err(Error::new(
            key.span(),
            format!("`{key}` is about the client, but the function takes none: `(client: TestClient)`"),
        )),
        _ => Ok(()),
    }
}

fn expand_test(mut function: ItemFn, options: &TestOptions) -> TokenStream {
    let attributes = std::mem::take(&mut function.attrs);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let name = &function.sig.ident;
    // Errors about the result, or about a type that is no client, point at the function.
    let run = match function.sig.inputs.first() {
        None => quote_spanned! { name.span() => ::toolgate::__private::test_once(#name) },
        Some(client) => {
            let revisions = version_list(options);
            let server = server_expression(options);
            let over_http = options.http.then(|| quote! { .over_http() });
            let call = quote_spanned! { client.span() =>
                |client: ::toolgate::testing::TestClient| #name(client #over_http)
            };
            quote_spanned! { name.span() =>
                ::toolgate::__private::test_each_version(#revisions, || async { #server }, #call)
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
    fn what_cannot_be_a_test_is_told_why() {
        let rows = [
            ("", "struct A;", "stands above a function"),
            ("", "fn a() {}", "is an `async fn`"),
            ("", "async fn a(c: TestClient, d: u8) {}", "never two things"),
            ("", "async fn a(&self) {}", "not a method"),
            ("", "async fn a<T>(c: T) {}", "no generic parameters"),
            ("", "#[test] async fn a() {}", "remove `#[test]`"),
            ("http", "async fn a() {}", "`http` is about the client, but the function takes none"),
            ("revision = []", "async fn a(c: C) {}", "there is no `revision` here, but `server = …`"),
            ("revisions", "async fn a(c: C) {}", "`revisions` needs dates"),
            ("revisions = []", "async fn a(c: C) {}", "without a revision there is no test"),
            ("revisions = \"x\"", "async fn a(c: C) {}", "is a list of dates"),
            ("revisions = [1]", "async fn a(c: C) {}", "is a list of dates"),
            ("revisions = [\"x\"], all_revisions", "async fn a(c: C) {}", "not both"),
            ("all_revisions, revisions = [\"x\"]", "async fn a(c: C) {}", "not both"),
            ("server", "async fn a(c: C) {}", "`server` needs a value"),
            ("http = true", "async fn a(c: C) {}", "stands alone"),
            ("http, http", "async fn a(c: C) {}", "given twice"),
        ];
        for (options, item, wanted) in rows {
            let (options, item) = (options.parse().unwrap(), item.parse().unwrap());
            let error = try_expand(options, item).expect_err(wanted).to_string();
            assert!(error.contains(wanted), "expected {wanted:?}, got {error:?}");
        }
    }

    #[test]
    fn attributes_stay_and_the_function_is_inside() {
        let options = quote! { server = make().await, revisions = ["a"], http };
        let item = quote! {
            /// Words
            #[should_panic]
            pub async fn greets(c: TestClient) -> Result<(), E> { body() }
        };
        let written = expand(options, &item).to_string();
        for part in
            ["# [doc", "# [should_panic]", "pub fn greets ()", "async fn greets (c : TestClient) -> Result"]
        {
            assert!(written.contains(part), "{part} is missing in {written}");
        }
        assert_eq!(written.matches("should_panic").count(), 1, "not on the function inside");
    }
}
