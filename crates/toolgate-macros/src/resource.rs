//! `#[resource]` and `#[template]`.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{Error, LitStr, Result};

use crate::attr::{AttributeOptions, call_site};
use crate::function::{Function, HandlerKind};
use crate::parameter::{AcceptedTypes, Parameter};
use crate::tool::description_call;

const KEYS: [&str; 6] = ["uri", "name", "description", "mime", "title", "inline"];

pub(crate) fn resource(inside: TokenStream, mut function: Function) -> Result<TokenStream> {
    if let Some(Parameter { ident, argument, .. }) = function.certain_arguments().next() {
        return Err(Error::new_spanned(
            ident,
            format!("a resource has no arguments; `#[template(\"…://{{{}}}\")]` has", argument.name),
        ));
    }
    function.parameters.iter_mut().for_each(|one| one.restrict(AcceptedTypes::ResourceExtractors));
    let ResourceOptions { uri, calls, is_inline } = read_options("resource", inside, &function)?;
    let uri = uri.map_or_else(|| format!("resource://{}", function.name()), |uri| uri.value());
    let handler = function.handler(HandlerKind::Resource, is_inline);
    Ok(quote!(::toolgate::__private::resource(#uri, #handler) #calls))
}

pub(crate) fn template(inside: TokenStream, mut function: Function) -> Result<TokenStream> {
    let ResourceOptions { uri, calls, is_inline } = read_options("template", inside, &function)?;
    let Some(uri) = uri else {
        return Err(Error::new(
            call_site(),
            "a template needs a URI with variables: `#[template(\"notes://{id}\")]`",
        ));
    };
    let variables = template_variables(&uri.value());
    let is_other = |parameter: &Parameter| !variables.contains(&parameter.argument.name);
    for parameter in function.parameters.iter_mut().filter(|parameter| is_other(parameter)) {
        parameter.restrict(AcceptedTypes::TemplateExtractors);
        if parameter.is_certain_argument() {
            let Parameter { ident, argument, .. } = parameter;
            let known = variables.iter().map(|name| format!("`{{{name}}}`")).collect::<Vec<_>>().join(", ");
            return Err(Error::new_spanned(
                ident,
                match known.as_str() {
                    "" => format!("`{}` has no variables; add `{{{}}}`", uri.value(), argument.name),
                    _ => {
                        format!("`{}` is none of the variables of the URI, which are {known}", argument.name)
                    }
                },
            ));
        }
    }
    let handler = function.handler(HandlerKind::Resource, is_inline);
    Ok(quote!(::toolgate::__private::template(#uri, #handler) #calls))
}

/// The options of a resource or template.
struct ResourceOptions {
    uri: Option<LitStr>,
    /// The calls of setters.
    calls: TokenStream,
    is_inline: bool,
}

/// Reads the options. A string with `://` is a URI.
fn read_options(attribute: &str, inside: TokenStream, function: &Function) -> Result<ResourceOptions> {
    let mut options = AttributeOptions::read(attribute, inside, &KEYS)?;
    let text = options.take_text();
    let is_uri = text.as_ref().is_some_and(|text| text.value().contains("://"));
    let (first, text) = if is_uri { (text, None) } else { (None, text) };
    let uri = match (first, options.take_string("uri")?) {
        (Some(_), Some(second)) => return Err(Error::new_spanned(&second, "the URI is given twice")),
        (first, second) => first.or(second),
    };
    let name = options.take_string("name")?.map_or_else(|| function.name(), |name| name.value());
    let mut calls = quote!(.name(#name));
    let given = options.take_expression("description")?.map(|expression| expression.to_token_stream());
    calls.extend(description_call(given.or_else(|| text.map(|text| text.to_token_stream())), function));
    for key in ["mime", "title"] {
        if let Some(value) = options.take_expression(key)? {
            let method = quote::format_ident!("{key}");
            calls.extend(quote!(.#method(#value)));
        }
    }
    Ok(ResourceOptions { uri, calls, is_inline: options.take_inline(function)? })
}

/// Returns the variable names of a URI template.
pub(crate) fn template_variables(uri: &str) -> Vec<String> {
    let inside = uri.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(inside, _)| inside);
    inside
        .flat_map(|inside| inside.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']).split(','))
        .map(|variable| variable.split([':', '*']).next().unwrap_or_default().trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::template_variables;

    #[test]
    fn variables_are_found_whatever_stands_around_them() {
        assert_eq!(template_variables("notes://{id}"), ["id"]);
        assert_eq!(template_variables("file:///{+path}"), ["path"]);
        assert_eq!(template_variables("x://{a,b}/{c:3}{?d*,e}"), ["a", "b", "c", "d", "e"]);
        assert!(template_variables("x://none").is_empty() && template_variables("x://{broken").is_empty());
    }
}
