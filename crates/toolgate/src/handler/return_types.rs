//! What a marked function returned, as a handler's output, whatever it is.
//!
//! A macro sees words, not types, and cannot know whether `Hit` is text or a struct. So it writes a call
//! that the compiler resolves by the type: `(&&&&ReturnType::of(&value)).tool().give(value)`. Method lookup
//! takes the first of these traits that fits, the one behind the most references first. The last fits
//! everything, so that a type that fits nothing is refused by `IntoOutput` and its like, in their words.

use std::fmt::Display;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Serialize;

use super::output::handler_failure;
use super::{HandlerFailure, IntoContents, IntoOutput, IntoPrompt, Json};

/// The type of a value, without the value.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct ReturnType<T>(PhantomData<fn() -> T>);

impl<T> ReturnType<T> {
    pub fn of(_: &T) -> ReturnType<T> {
        ReturnType(PhantomData)
    }
}

/// Runs, wherever there is a thread: says which variable keeps it from that, if one does.
#[doc(hidden)]
pub fn require_send<F: Future + Send + 'static>(run: F) -> impl Future<Output = F::Output> + Send + 'static {
    run
}

/// A type that is taken out of a call: says so at its place, if it cannot be.
#[doc(hidden)]
pub fn require_extract<E: super::Extract>() {}

/// Declares one way a value becomes an output, for those types that it fits.
macro_rules! return_kinds {
    ($($fits:ident $method:ident $way:ident [$($generics:tt)*] for $type:ty;)*) => {$(
        #[doc(hidden)]
        pub trait $fits {
            fn $method(&self) -> $way {
                $way
            }
        }

        impl<$($generics)*> $fits for $type {}
    )*};
}

return_kinds! {
    ToolPlain tool Plain [T: IntoOutput] for &&&ReturnType<T>;
    ToolFallible tool FallibleJson [T: Serialize + JsonSchema, E: Display] for &&ReturnType<Result<T, E>>;
    ToolValue tool ValueJson [T: Serialize + JsonSchema] for &ReturnType<T>;
    ToolUnsupported tool UnsupportedTool [T] for ReturnType<T>;

    ReadPlain read Plain [T: IntoContents] for &&&&&ReturnType<T>;
    ReadFallibleOption read FallibleOptionJson [T: Serialize, E: Display] for &&&&ReturnType<Result<Option<T>, E>>;
    ReadFallible read FallibleJson [T: Serialize, E: Display] for &&&ReturnType<Result<T, E>>;
    ReadOption read OptionJson [T: Serialize] for &&ReturnType<Option<T>>;
    ReadValue read ValueJson [T: Serialize] for &ReturnType<T>;
    ReadUnsupported read UnsupportedRead [T] for ReturnType<T>;

    PromptPlain prompt Plain [T: IntoPrompt] for &ReturnType<T>;
    PromptUnsupported prompt UnsupportedPrompt [T] for ReturnType<T>;

    CompleteFallible complete FallibleStrings [I: IntoIterator<Item: Into<String>>, E: Display]
        for &&ReturnType<Result<I, E>>;
    CompletePlain complete PlainStrings [I: IntoIterator<Item: Into<String>>] for &ReturnType<I>;
    CompleteUnsupported complete PlainStrings [T] for ReturnType<T>;
}

macro_rules! conversions {
    ($($way:ident [$($generics:tt)*] $value:ident: $type:ty => $given:ty $convert:block)*) => {$(
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug)]
        pub struct $way;

        impl $way {
            #[doc(hidden)]
            pub fn convert<$($generics)*>(self, $value: $type) -> $given $convert
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
    // What these give is never run: their bounds are not met, and that is the point of them.
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
    FallibleStrings [I: IntoIterator<Item: Into<String>>, E: Display] value: Result<I, E>
        => Result<Vec<String>, HandlerFailure> {
        match value {
            Ok(value) => PlainStrings.convert(value),
            Err(error) => Err(handler_failure(&error)),
        }
    }
}
