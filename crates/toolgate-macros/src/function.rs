//! Parsing of a marked function, and its handler.
//!
//! Generates a struct of the parameters, with derives of serde and schemars, and a closure that takes the values of all
//! parameters. The types of the parameters decide which of them are arguments and which are extractors; see `parameter.rs`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, Expr, FnArg, Ident, LitStr, Pat, PatType, RangeLimits, ReceiverKind, Result,
    ReturnType, Safety, Signature, Type,
};

use crate::attr::{AttributeOptions, Docs, KeyValue, attribute_tokens, cfg_attributes, is_named};
use crate::parameter::{AcceptedTypes, Parameter, ParameterSource, is_std_argument};

const ARG_KEYS: [&str; 9] =
    ["default", "description", "rename", "range", "min_len", "max_len", "pattern", "example", "examples"];

/// The kind of handler to generate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandlerKind {
    Tool,
    Resource,
    Prompt,
    Completion,
}

impl HandlerKind {
    /// The function of the library that runs a plain function of this kind on the blocking pool.
    fn blocking_fn(self) -> TokenStream {
        match self {
            HandlerKind::Tool => quote!(run_blocking_tool),
            HandlerKind::Resource => quote!(run_blocking_read),
            HandlerKind::Prompt => quote!(run_blocking_prompt),
            HandlerKind::Completion => quote!(run_blocking),
        }
    }
}

/// A parsed function.
pub(crate) struct Function {
    pub(crate) ident: Ident,
    pub(crate) docs: Docs,
    pub(crate) cfg_attributes: Vec<Attribute>,
    pub(crate) parameters: Vec<Parameter>,
    is_async: bool,
    /// Takes `&self`.
    is_method: bool,
    /// Defined in an impl block.
    is_associated: bool,
    /// Span of the return type.
    return_span: Span,
    /// Returns a reference borrowed from `self`.
    returns_borrow: bool,
}

/// The `#[arg]` options and docs of an argument.
pub(crate) struct Argument {
    /// Name in the schema.
    pub(crate) name: String,
    description: Option<TokenStream>,
    default: Option<TokenStream>,
    minimum: Option<Expr>,
    maximum: Option<(Expr, RangeLimits)>,
    min_len: Option<Expr>,
    max_len: Option<Expr>,
    pattern: Option<LitStr>,
    examples: Vec<Expr>,
}

impl Argument {
    fn has_default_or_constraints(&self) -> bool {
        let Argument { default, minimum, maximum, min_len, max_len, pattern, .. } = self;
        let has_range = minimum.is_some() || maximum.is_some();
        default.is_some() || has_range || min_len.is_some() || max_len.is_some() || pattern.is_some()
    }
}

/// Removes the attributes of the macros from the parameters, even if there are errors. Silences the lint about parameters passed
/// by value, because arguments are always owned.
pub(crate) fn strip_attributes(attributes: &mut Vec<Attribute>, signature: &mut Signature) {
    attributes.push(syn::parse_quote!(#[allow(clippy::needless_pass_by_value)]));
    for input in &mut signature.inputs {
        if let FnArg::Typed(parameter) = input {
            parameter.attrs.retain(|attribute| !is_macro_attribute(attribute));
        }
    }
}

fn is_macro_attribute(attribute: &Attribute) -> bool {
    ["doc", "arg", "extract"].iter().any(|name| is_named(attribute, name))
}

impl Function {
    pub(crate) fn read(attributes: &[Attribute], signature: &Signature) -> Result<Function> {
        reject_generics(signature)?;
        let mut parameters = Vec::new();
        let mut is_method = false;
        for input in &signature.inputs {
            match input {
                FnArg::Typed(parameter) => parameters.push(read_parameter(parameter, parameters.len())?),
                FnArg::Receiver(receiver) => {
                    if !matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) {
                        return Err(Error::new_spanned(
                            receiver,
                            "callers share the value: take `&self`, and keep what changes in a `Mutex` or an atomic",
                        ));
                    }
                    is_method = true;
                }
            }
        }
        reject_equal_names(&parameters)?;
        let may_be_arguments = || parameters.iter().filter(|parameter| parameter.may_be_argument());
        let names: Vec<String> =
            may_be_arguments().map(|parameter| parameter.argument.name.clone()).collect();
        let docs = Docs::read(attributes, &names);
        for Parameter { argument, .. } in &mut parameters {
            if argument.description.is_none() {
                argument.description =
                    docs.argument_description(&argument.name).map(|text| text.to_token_stream());
            }
        }
        Ok(Function {
            ident: signature.ident.clone(),
            docs,
            cfg_attributes: cfg_attributes(attributes).into_iter().cloned().collect(),
            parameters,
            is_async: signature.asyncness.is_some(),
            is_method,
            is_associated: false,
            returns_borrow: matches!(&signature.output, ReturnType::Type(_, ty) if is_borrowed(ty)),
            return_span: match &signature.output {
                ReturnType::Default => signature.ident.span(),
                ReturnType::Type(_, ty) => ty.span(),
            },
        })
    }

    /// Fails for `&self` in functions outside of an impl block with `#[server]`.
    pub(crate) fn reject_self(&self, signature: &Signature) -> Result<()> {
        match signature.receiver() {
            Some(receiver) => Err(Error::new_spanned(
                receiver,
                "a method belongs to a value: put `#[toolgate::server]` on the impl block",
            )),
            None => Ok(()),
        }
    }

    /// Marks the function as one of an impl block.
    pub(crate) fn into_associated(self) -> Function {
        Function { is_associated: true, ..self }
    }

    /// Returns the name of the item.
    pub(crate) fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    /// Returns the parameters that are arguments whatever their types are.
    pub(crate) fn certain_arguments(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| parameter.is_certain_argument())
    }

    /// Returns whether a parameter with this name in the schema is, or can be, an argument.
    pub(crate) fn may_have_argument(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.may_be_argument() && parameter.argument.name == name)
    }

    /// Sets descriptions of arguments, which override those of the doc comment.
    pub(crate) fn describe(&mut self, name: &str, text: TokenStream) -> bool {
        let found = self.parameters.iter_mut().find(|one| one.may_be_argument() && one.argument.name == name);
        match found {
            Some(Parameter { argument, .. }) => {
                argument.description = Some(text);
                true
            }
            None => false,
        }
    }

    /// Fails for `inline` on an async function.
    pub(crate) fn reject_inline(&self, attribute: Option<&Ident>) -> Result<()> {
        match attribute {
            Some(inline) if self.is_async => Err(Error::new_spanned(
                inline,
                "`inline` is for functions that are not `async`: an async function always runs on the runtime",
            )),
            _ => Ok(()),
        }
    }

    /// Generates the handler: the struct of the parameters, and the closure. A function that is not `async` runs on the blocking
    /// pool unless it `is_inline`.
    pub(crate) fn handler(&self, output: HandlerKind, is_inline: bool) -> TokenStream {
        let site = Span::mixed_site();
        let passes: Vec<Ident> = self.parameters.iter().map(Parameter::variable).collect();
        let ident = &self.ident;
        let share = self.is_method.then(
            || quote_spanned!(site=> let __this = ::toolgate::__private::std::sync::Arc::clone(&__this);),
        );
        let kit = self.is_method.then(|| quote_spanned!(site=> &__this,));
        let owner = self.is_associated.then(|| quote!(Self::));
        let callee = quote!(#owner #ident(#kit #(#passes),*));
        let awaited = self.is_async.then(|| quote!(.await));
        let keep = self.returns_borrow.then(|| {
            quote_spanned!(site=> let __output = ::toolgate::__private::std::borrow::ToOwned::to_owned(__output);)
        });
        let convert = self.convert_output(output);
        let span = self.return_span.resolved_at(Span::mixed_site());
        let run = match self.is_async || is_inline {
            true => quote_spanned!(span=> ::toolgate::__private::require_send(async move {
                let __output = #callee #awaited;
                #keep
                #convert
            })),
            false => {
                let run_blocking = output.blocking_fn();
                quote_spanned!(span=> ::toolgate::__private::#run_blocking(move || {
                        let __output = #callee;
                    #keep
                    #convert
                }))
            }
        };
        if self.parameters.is_empty() {
            return quote!(move || { #share #run });
        }
        let types = self.parameters.iter().map(|parameter| &parameter.ty);
        let structure = parameters_struct(&self.parameters);
        let probes = self.parameters.iter().filter_map(Parameter::probe);
        let checks = self.parameters.iter().filter_map(Parameter::argument_check);
        quote_spanned! {site=> {
            #structure
            #[allow(unused_imports)]
            use ::toolgate::__private::{
                ArgumentKind, DeserializeOnlyKind, ExtractorKind, SchemaOnlyKind, UnsupportedKind,
            };
            #(#checks)*
            ::toolgate::__private::HandlerFn::new(
                __parameters((#(#probes,)*)),
                move |(#(#passes,)*): (#(#types,)*)| { #share #run },
            )
        }}
    }

    /// Generates the conversion of the return value by its type; see `handler/return_types.rs` of the library.
    fn convert_output(&self, output: HandlerKind) -> TokenStream {
        let (traits, method, references) = match output {
            HandlerKind::Tool => {
                (quote!(ToolPlain, ToolFallible, ToolValue, ToolUnsupported), quote!(tool), quote!(&&&&))
            }
            HandlerKind::Resource => (
                quote!(ReadPlain, ReadFallibleOption, ReadFallible, ReadOption, ReadValue, ReadUnsupported),
                quote!(read),
                quote!(&&&&&&),
            ),
            HandlerKind::Prompt => (quote!(PromptPlain, PromptUnsupported), quote!(prompt), quote!(&&)),
            HandlerKind::Completion => {
                (quote!(CompleteFallible, CompletePlain, CompleteUnsupported), quote!(complete), quote!(&&&))
            }
        };
        let span = self.return_span.resolved_at(Span::mixed_site());
        let convert = quote_spanned! {span=>
            (#references ::toolgate::__private::ReturnType::of(&__output)).#method().convert(__output)
        };
        quote! {
            #[allow(unused_imports)]
            use ::toolgate::__private::{#traits};
            #convert
        }
    }
}

fn reject_generics(signature: &Signature) -> Result<()> {
    let generics = &signature.generics;
    if let Some(parameter) = generics.params.first() {
        return Err(Error::new_spanned(
            parameter,
            "a function that callers name cannot be generic: they cannot say for which type",
        ));
    }
    if let Safety::Unsafe(token) = &signature.safety {
        return Err(Error::new_spanned(token, "callers are not trusted: the function must be safe to call"));
    }
    if let Some(token) = &signature.variadic {
        return Err(Error::new_spanned(token, "give every parameter a name"));
    }
    Ok(())
}

fn read_parameter(parameter: &PatType, place: usize) -> Result<Parameter> {
    let ident = match &*parameter.pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => pattern.ident.clone(),
        pattern => {
            return Err(Error::new_spanned(pattern, "give the parameter a name: callers know it by that"));
        }
    };
    let ty = (*parameter.ty).clone();
    let marks = |name: &str| parameter.attrs.iter().find(|attribute| is_named(attribute, name));
    if let (Some(_), Some(attribute)) = (marks("extract"), marks("arg")) {
        return Err(Error::new_spanned(
            attribute,
            format!("`{ident}` is taken out of the call and is no argument: it has no schema to change"),
        ));
    }
    reject_borrowed(&ident, &ty)?;
    let argument = read_argument(&ident, parameter)?;
    let source = if marks("extract").is_some() {
        ParameterSource::ByType(AcceptedTypes::Extractors)
    } else if is_std_argument(&ty) || argument.has_default_or_constraints() {
        ParameterSource::Arguments
    } else if marks("arg").is_some() {
        ParameterSource::ByType(AcceptedTypes::Arguments)
    } else {
        ParameterSource::ByType(AcceptedTypes::Any)
    };
    Ok(Parameter { ident, ty, source, argument, place })
}

fn reject_equal_names(parameters: &[Parameter]) -> Result<()> {
    for (place, parameter) in parameters.iter().enumerate() {
        let name = &parameter.argument.name;
        if parameters[..place].iter().any(|other| other.argument.name == *name) {
            return Err(Error::new_spanned(&parameter.ident, format!("two parameters are called `{name}`")));
        }
    }
    Ok(())
}

/// Returns whether a type is a reference that is not `'static`.
fn is_borrowed(ty: &Type) -> bool {
    match ty {
        Type::Reference(to) => to.lifetime.as_ref().is_none_or(|lifetime| lifetime.ident != "static"),
        _ => false,
    }
}

fn reject_borrowed(ident: &Ident, ty: &Type) -> Result<()> {
    match ty {
        Type::Reference(to) => {
            let inner = to.elem.to_token_stream().to_string();
            let owned = match &*to.elem {
                Type::Slice(slice) => format!("Vec<{}>", slice.elem.to_token_stream()),
                _ if inner == "str" => "String".into(),
                _ => inner,
            };
            Err(Error::new_spanned(ty, format!("a parameter is owned: `{ident}: {owned}`")))
        }
        Type::ImplTrait(_) => {
            Err(Error::new_spanned(ty, format!("`{ident}` needs a type: it says what callers may send")))
        }
        _ => Ok(()),
    }
}

fn read_argument(ident: &Ident, parameter: &PatType) -> Result<Argument> {
    let mut attributes = parameter.attrs.iter().filter(|attribute| is_named(attribute, "arg"));
    let mut options = match attributes.next() {
        Some(attribute) => AttributeOptions::read("arg", attribute_tokens(attribute)?, &ARG_KEYS)?,
        None => AttributeOptions::read("arg", TokenStream::new(), &ARG_KEYS)?,
    };
    if let Some(second) = attributes.next() {
        return Err(Error::new_spanned(second, "put everything into one `#[arg(…)]`"));
    }
    let text = options.take_text().map(|text| text.to_token_stream());
    let description = options.take_expression("description")?.map(|text| text.to_token_stream()).or(text);
    let docs = Docs::read(&parameter.attrs, &[]).text;
    let (minimum, maximum) = match options.take_expression("range")? {
        Some(range) => range_bounds(range)?,
        None => (None, None),
    };
    let mut examples: Vec<Expr> = options.take_expression("example")?.into_iter().collect();
    match options.take_expression("examples")? {
        Some(Expr::Array(array)) => examples.extend(array.elems),
        Some(other) => {
            return Err(Error::new_spanned(&other, "`examples` is a list: `examples = [\"a\", \"b\"]`"));
        }
        None => {}
    }
    Ok(Argument {
        name: options.take_string("rename")?.map_or_else(|| ident.unraw().to_string(), |name| name.value()),
        description: description.or_else(|| (!docs.is_empty()).then(|| docs.to_token_stream())),
        default: options.take_key("default").map(default_value),
        minimum,
        maximum,
        min_len: options.take_expression("min_len")?,
        max_len: options.take_expression("max_len")?,
        pattern: options.take_string("pattern")?,
        examples,
    })
}

/// Generates the default value. A string literal is converted with `Into`.
fn default_value(key: KeyValue) -> TokenStream {
    match key.value {
        None => quote!(::toolgate::__private::std::default::Default::default()),
        Some(value) => match crate::attr::string_literal(&value) {
            Some(text) => {
                let span = text.span().resolved_at(Span::mixed_site());
                quote_spanned!(span=> ::toolgate::__private::std::convert::Into::into(#text))
            }
            None => value.to_token_stream(),
        },
    }
}

type RangeBounds = (Option<Expr>, Option<(Expr, RangeLimits)>);

fn range_bounds(range: Expr) -> Result<RangeBounds> {
    match range {
        Expr::Range(range) => {
            let limits = range.limits;
            Ok((range.start.map(|start| *start), range.end.map(|end| (*end, limits))))
        }
        other => Err(Error::new_spanned(&other, "`range` is a range: `range = 1..=100`")),
    }
}

/// Generates the struct of the parameters, its constraints, and the function that infers the types of its fields.
fn parameters_struct(parameters: &[Parameter]) -> TokenStream {
    let site = Span::mixed_site();
    let mut fields = Vec::new();
    let mut defaults = Vec::new();
    let mut checks = Vec::new();
    let mut infos = Vec::new();
    let mut values = Vec::new();
    let mut sent = Vec::new();
    let (mut field_types, mut value_types, mut tuple) = (Vec::new(), Vec::new(), Vec::new());
    for parameter in parameters {
        let Parameter { ident, ty, argument, place, .. } = parameter;
        let name = &argument.name;
        let default = argument.default.as_ref().map(|value| {
            let function = format_ident!("__default_{place}");
            defaults.push(quote_spanned! {ty.span().resolved_at(Span::mixed_site())=>
                fn #function() -> #ty { #value }
            });
            let function = function.to_string();
            quote!(#[serde(default = #function)])
        });
        let schema = schema_attributes(argument);
        let (field_type, value_type) = match parameter.has_concrete_field() {
            true => (ty.to_token_stream(), ty.to_token_stream()),
            false => {
                let (field_type, value_type) = (parameter.field_type(), parameter.value_type());
                field_types.push(field_type.clone());
                value_types.push(value_type.clone());
                (field_type.into_token_stream(), value_type.into_token_stream())
            }
        };
        fields.push(quote! {
            #[serde(rename = #name)]
            #default
            #schema
            #ident: #field_type
        });
        checks.extend(limit_checks(parameter));
        infos.push(quote!(::toolgate::__private::ParameterInfo::new::<#field_type, #value_type>(#name)));
        values.push(match parameter.has_concrete_field() {
            true => quote_spanned!(site=> self.#ident),
            false => {
                sent.push(quote_spanned! {site=>
                    <#field_type as ::toolgate::__private::ParameterField<#value_type>>::is_sent_extractor(&self.#ident)
                });
                quote_spanned!(site=> ::toolgate::__private::ParameterField::into_value(self.#ident, __cx)?)
            }
        });
        tuple.push(value_type);
    }
    let std = quote!(::toolgate::__private::std);
    quote_spanned! {site=>
        #[derive(::toolgate::__private::serde::Deserialize, ::toolgate::__private::schemars::JsonSchema)]
        #[serde(crate = "::toolgate::__private::serde")]
        #[schemars(crate = "::toolgate::__private::schemars")]
        struct __Parameters<#(#field_types),*> {
            #(#fields),*
        }

        #(#defaults)*

        fn __parameters<#(#field_types),*>(
            _: (#(#std::marker::PhantomData<#field_types>,)*),
        ) -> #std::marker::PhantomData<__Parameters<#(#field_types),*>> {
            #std::marker::PhantomData
        }

        impl<#(#field_types,)* #(#value_types),*> ::toolgate::__private::Parameters<(#(#tuple,)*)>
            for __Parameters<#(#field_types),*>
        where
            #(#field_types: ::toolgate::__private::ParameterField<#value_types>),*
        {
            const PARAMETERS: &'static [::toolgate::__private::ParameterInfo] = &[#(#infos),*];

            fn validate(&self) -> #std::result::Result<(), #std::string::String> {
                #(#checks)*
                #std::result::Result::Ok(())
            }

            fn has_sent_extractor(&self) -> bool {
                false #(|| #sent)*
            }

            fn into_values(
                self,
                __cx: &::toolgate::__private::Context,
            ) -> #std::result::Result<(#(#tuple,)*), ::toolgate::__private::HandlerFailure> {
                #std::result::Result::Ok((#(#values,)*))
            }
        }
    }
}

/// Generates the schema attributes of an argument.
fn schema_attributes(argument: &Argument) -> TokenStream {
    let mut parts = Vec::new();
    if let Some(text) = &argument.description {
        parts.push(quote!(description = #text));
    }
    if let Some(minimum) = &argument.minimum {
        parts.push(quote!(extend("minimum" = #minimum)));
    }
    match &argument.maximum {
        Some((maximum, RangeLimits::Closed(_))) => parts.push(quote!(extend("maximum" = #maximum))),
        Some((end, RangeLimits::HalfOpen(_))) => parts.push(quote!(extend("exclusiveMaximum" = #end))),
        None => {}
    }
    match (&argument.min_len, &argument.max_len) {
        (Some(min), Some(max)) => parts.push(quote!(length(min = #min, max = #max))),
        (Some(min), None) => parts.push(quote!(length(min = #min))),
        (None, Some(max)) => parts.push(quote!(length(max = #max))),
        (None, None) => {}
    }
    if let Some(pattern) = &argument.pattern {
        parts.push(quote!(regex(pattern = #pattern)));
    }
    let examples = &argument.examples;
    if !examples.is_empty() {
        parts.push(quote!(extend("examples" = [#(#examples),*])));
    }
    match parts.is_empty() {
        true => TokenStream::new(),
        false => quote!(#[schemars(#(#parts),*)]),
    }
}

/// Generates the checks of an argument's constraints.
fn limit_checks(parameter: &Parameter) -> Vec<TokenStream> {
    let Parameter { ident, argument, .. } = parameter;
    let name = &argument.name;
    let span = parameter.ty.span().resolved_at(Span::mixed_site());
    let check = |function: TokenStream, limit: &Expr| quote_spanned!(span=> ::toolgate::__private::#function(#name, &self.#ident, #limit)?;);
    let mut checks = Vec::new();
    checks.extend(argument.minimum.as_ref().map(|minimum| check(quote!(at_least), minimum)));
    checks.extend(argument.maximum.as_ref().map(|(maximum, limits)| match limits {
        RangeLimits::Closed(_) => check(quote!(at_most), maximum),
        RangeLimits::HalfOpen(_) => check(quote!(below), maximum),
    }));
    checks.extend(argument.min_len.as_ref().map(|min| check(quote!(min_len), min)));
    checks.extend(argument.max_len.as_ref().map(|max| check(quote!(max_len), max)));
    checks.extend(argument.pattern.as_ref().map(|pattern| {
        quote_spanned! {span=>
            static PATTERN: ::toolgate::__private::ArgumentPattern = ::toolgate::__private::ArgumentPattern::new(#pattern);
            PATTERN.validate(#name, &self.#ident)?;
        }
    }));
    // Each in its own block, because each pattern is a static.
    checks.into_iter().map(|check| quote!({ #check })).collect()
}
