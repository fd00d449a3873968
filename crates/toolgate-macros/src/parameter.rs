//! Parameters of a marked function: arguments, extractors, and those whose type decides.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{GenericArgument, Ident, PathArguments, Type};

use crate::function::Argument;

/// Types of std that are arguments.
const ARGUMENTS: [&str; 19] = [
    "bool", "char", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize",
    "f32", "f64", "String", "PathBuf", "Duration",
];

/// Types of std that are arguments if their type parameters are.
const CONTAINERS: [&str; 7] = ["Vec", "Option", "Box", "HashMap", "BTreeMap", "HashSet", "BTreeSet"];

pub(crate) struct Parameter {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) source: ParameterSource,
    /// Used if the parameter is an argument.
    pub(crate) argument: Argument,
    /// Position among the parameters.
    pub(crate) place: usize,
}

/// Where the value of a parameter comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterSource {
    /// Arguments, because it is of a type of std, or has a default or constraints. The field has the type of the parameter.
    Arguments,
    /// Decided by the type; see `handler/parameters.rs` of the library. The accepted types are those of a method there.
    ByType(AcceptedTypes),
}

/// The methods that accept the type of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedTypes {
    Any,
    /// `#[arg]`.
    Arguments,
    /// `#[extract]`.
    Extractors,
    ResourceExtractors,
    TemplateExtractors,
    CompleterExtractors,
}

impl AcceptedTypes {
    fn method(self) -> &'static str {
        match self {
            AcceptedTypes::Any => "parameter",
            AcceptedTypes::Arguments => "argument",
            AcceptedTypes::Extractors => "extractor",
            AcceptedTypes::ResourceExtractors => "resource_parameter",
            AcceptedTypes::TemplateExtractors => "template_parameter",
            AcceptedTypes::CompleterExtractors => "completer_parameter",
        }
    }
}

impl Parameter {
    /// Returns whether the parameter is an argument whatever its type is.
    pub(crate) fn is_certain_argument(&self) -> bool {
        matches!(self.source, ParameterSource::Arguments | ParameterSource::ByType(AcceptedTypes::Arguments))
    }

    /// Returns whether the parameter can be an argument.
    pub(crate) fn may_be_argument(&self) -> bool {
        self.is_certain_argument() || self.source == ParameterSource::ByType(AcceptedTypes::Any)
    }

    /// Returns whether the field has the type of the parameter. Otherwise it has a type parameter.
    pub(crate) fn has_concrete_field(&self) -> bool {
        self.source == ParameterSource::Arguments
    }

    /// Requires an extractor, unless the parameter is an argument whatever its type is.
    pub(crate) fn restrict(&mut self, accepted: AcceptedTypes) {
        if self.source == ParameterSource::ByType(AcceptedTypes::Any) {
            self.source = ParameterSource::ByType(accepted);
        }
    }

    /// The variable with the value of the parameter.
    pub(crate) fn variable(&self) -> Ident {
        format_ident!("__p{}", self.place, span = Span::mixed_site())
    }

    /// The type parameter for the type of the field.
    pub(crate) fn field_type(&self) -> Ident {
        format_ident!("__F{}", self.place, span = Span::mixed_site())
    }

    /// The type parameter for the type of the parameter.
    pub(crate) fn value_type(&self) -> Ident {
        format_ident!("__V{}", self.place, span = Span::mixed_site())
    }

    /// Generates the expression whose type tells the type of the field.
    pub(crate) fn probe(&self) -> Option<TokenStream> {
        match self.source {
            ParameterSource::ByType(accepted) => Some(self.probe_with(accepted.method())),
            ParameterSource::Arguments => None,
        }
    }

    /// Generates the statement that rejects `#[arg]` on a type that is no argument.
    pub(crate) fn argument_check(&self) -> Option<TokenStream> {
        let is_needed = self.has_concrete_field() && !is_std_argument(&self.ty);
        let probe = is_needed.then(|| self.probe_with("argument"))?;
        Some(quote_spanned!(Span::mixed_site()=> let _ = #probe;))
    }

    fn probe_with(&self, method: &str) -> TokenStream {
        let ty = &self.ty;
        let span = ty.span().resolved_at(Span::mixed_site());
        let method = Ident::new(method, span);
        quote_spanned! {span=>
            (&&&&&::toolgate::__private::Probe::<#ty>::new()).kind().#method(
                ::toolgate::__private::Probe::<#ty>::new()
            )
        }
    }
}

/// Returns whether a type is surely an argument: a type of std without types of the program in it.
pub(crate) fn is_std_argument(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| match &segment.arguments {
            PathArguments::None => ARGUMENTS.iter().any(|known| segment.ident == known),
            PathArguments::AngleBracketed(list) => {
                CONTAINERS.iter().any(|known| segment.ident == known)
                    && list
                        .args
                        .iter()
                        .all(|one| matches!(one, GenericArgument::Type(ty) if is_std_argument(ty)))
            }
            _ => false,
        }),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_std_argument),
        Type::Array(array) => is_std_argument(&array.elem),
        Type::Group(group) => is_std_argument(&group.elem),
        Type::Paren(paren) => is_std_argument(&paren.elem),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_std_argument;

    #[test]
    fn types_of_the_program_are_decided_by_type() {
        for ty in ["u8", "String", "::std::string::String", "Option<Vec<u8>>", "(u8, bool)", "[f64; 3]"] {
            assert!(is_std_argument(&syn::parse_str(ty).unwrap()), "{ty}");
        }
        for ty in
            ["State", "State<u8>", "Option<Principal>", "Vec<Order>", "(u8, Order)", "Self::Item", "Vec"]
        {
            assert!(!is_std_argument(&syn::parse_str(ty).unwrap()), "{ty}");
        }
    }
}
