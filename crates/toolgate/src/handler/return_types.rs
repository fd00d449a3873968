//! Conversion of the return values of marked functions, by autoref specialization.
//!
//! A macro sees tokens, not types, and cannot know whether `Hit` implements `IntoOutput` or only `Serialize`. It generates a
//! call that the compiler resolves by type: `(&&&&ReturnType::of(&value)).tool().convert(value)`. Method lookup takes the
//! first trait that applies, starting with the one behind the most references. The last applies to every type, so that
//! unsupported types are rejected with the `on_unimplemented` message of `IntoOutput`, `IntoContents` or `IntoPrompt`.

use std::fmt::Display;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Serialize;

use super::{HandlerError, HandlerFailure, IntoContents, IntoOutput, IntoPrompt, Json};

/// The type of a value, without the value.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct ReturnType<T>(PhantomData<fn() -> T>);

impl<T> ReturnType<T> {
    pub fn of(_: &T) -> ReturnType<T> {
        ReturnType(PhantomData)
    }
}

/// Requires the future to be `Send`. The compiler error names the variable that is not.
#[doc(hidden)]
pub fn require_send<F: Future + Send + 'static>(run: F) -> impl Future<Output = F::Output> + Send + 'static {
    run
}

/// Declares traits that select a conversion, each for the types that it applies to.
macro_rules! return_kinds {
    ($($trait:ident $method:ident $conversion:ident [$($generics:tt)*] for $type:ty;)*) => {$(
        #[doc(hidden)]
        pub trait $trait {
            fn $method(&self) -> $conversion {
                $conversion
            }
        }

        impl<$($generics)*> $trait for $type {}
    )*};
}

return_kinds! {
    ToolPlain tool Plain [T: IntoOutput] for &&&ReturnType<T>;
    ToolFallible tool FallibleJson [T: Serialize + JsonSchema, E: Display + 'static] for &&ReturnType<Result<T, E>>;
    ToolValue tool ValueJson [T: Serialize + JsonSchema] for &ReturnType<T>;
    ToolUnsupported tool UnsupportedTool [T] for ReturnType<T>;

    ReadPlain read Plain [T: IntoContents] for &&&&&ReturnType<T>;
    ReadFallibleOption read FallibleOptionJson [T: Serialize, E: Display + 'static] for &&&&ReturnType<Result<Option<T>, E>>;
    ReadFallible read FallibleJson [T: Serialize, E: Display + 'static] for &&&ReturnType<Result<T, E>>;
    ReadOption read OptionJson [T: Serialize] for &&ReturnType<Option<T>>;
    ReadValue read ValueJson [T: Serialize] for &ReturnType<T>;
    ReadUnsupported read UnsupportedRead [T] for ReturnType<T>;

    PromptPlain prompt Plain [T: IntoPrompt] for &ReturnType<T>;
    PromptUnsupported prompt UnsupportedPrompt [T] for ReturnType<T>;

    CompleteFallible complete FallibleStrings [I: IntoIterator<Item: Into<String>>, E: Display + 'static]
        for &&ReturnType<Result<I, E>>;
    CompletePlain complete PlainStrings [I: IntoIterator<Item: Into<String>>] for &ReturnType<I>;
    CompleteUnsupported complete PlainStrings [T] for ReturnType<T>;
}

macro_rules! conversions {
    ($($conversion:ident [$($generics:tt)*] $value:ident: $type:ty => $output:ty $convert:block)*) => {$(
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug)]
        pub struct $conversion;

        impl $conversion {
            #[doc(hidden)]
            pub fn convert<$($generics)*>(self, $value: $type) -> $output $convert
        }
    )*};
}

conversions! {
    Plain [T] value: T => T { value }
    ValueJson [T] value: T => Json<T> { Json(value) }
    OptionJson [T] value: Option<T> => Option<Json<T>> { value.map(Json) }
    FallibleJson [T, E] value: Result<T, E> => Result<Json<T>, E> { value.map(Json) }
    FallibleOptionJson [T, E] value: Result<Option<T>, E> => Result<Option<Json<T>>, E> {
        value.map(|value| value.map(Json))
    }
    // Never executed: the unmet bounds of these produce the compiler error.
    UnsupportedTool [T: IntoOutput] value: T => () { drop(value) }
    UnsupportedRead [T: IntoContents] value: T => String {
        drop(value);
        String::new()
    }
    UnsupportedPrompt [T: IntoPrompt] value: T => String {
        drop(value);
        String::new()
    }
    PlainStrings [I: IntoIterator<Item: Into<String>>] value: I => Result<Vec<String>, HandlerFailure> {
        Ok(value.into_iter().map(Into::into).collect())
    }
    FallibleStrings [I: IntoIterator<Item: Into<String>>, E: Display + 'static] value: Result<I, E>
        => Result<Vec<String>, HandlerFailure> {
        match value {
            Ok(value) => PlainStrings.convert(value),
            Err(error) => Err(HandlerError::from_returned(error).into()),
        }
    }
}
