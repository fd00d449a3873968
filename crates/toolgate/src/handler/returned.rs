//! What a marked function returned, as a handler's output, whatever it is.
//!
//! A macro sees words, not types, and cannot know whether `Hit` is text or a struct. So it writes a call
//! that the compiler resolves by the type: `(&&&&Returned::of(&value)).tool().give(value)`. Method lookup
//! takes the first of these traits that fits, the one behind the most references first. The last fits
//! everything, so that a type that fits nothing is refused by `IntoOutput` and its like, in their words.

use std::fmt::Display;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Serialize;

use super::output::failed;
use super::{Failed, IntoContents, IntoOutput, IntoPrompt, Json};

/// The type of a value, without the value.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Returned<T>(PhantomData<fn() -> T>);

impl<T> Returned<T> {
    pub fn of(_: &T) -> Returned<T> {
        Returned(PhantomData)
    }
}

/// Runs, wherever there is a thread: says which variable keeps it from that, if one does.
#[doc(hidden)]
pub fn sendable<F: Future + Send + 'static>(run: F) -> impl Future<Output = F::Output> + Send + 'static {
    run
}

/// A type that is taken out of a call: says so at its place, if it cannot be.
#[doc(hidden)]
pub fn extractable<E: super::Extract>() {}

/// Declares one way a value becomes an output, for those types that it fits.
macro_rules! ways {
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

ways! {
    ToolPlain tool Plain [T: IntoOutput] for &&&Returned<T>;
    ToolFallible tool FallibleJson [T: Serialize + JsonSchema, E: Display] for &&Returned<Result<T, E>>;
    ToolValue tool ValueJson [T: Serialize + JsonSchema] for &Returned<T>;
    ToolUnfit tool UnfitTool [T] for Returned<T>;

    ReadPlain read Plain [T: IntoContents] for &&&&&Returned<T>;
    ReadFallibleOption read FallibleOptionJson [T: Serialize, E: Display] for &&&&Returned<Result<Option<T>, E>>;
    ReadFallible read FallibleJson [T: Serialize, E: Display] for &&&Returned<Result<T, E>>;
    ReadOption read OptionJson [T: Serialize] for &&Returned<Option<T>>;
    ReadValue read ValueJson [T: Serialize] for &Returned<T>;
    ReadUnfit read UnfitRead [T] for Returned<T>;

    PromptPlain prompt Plain [T: IntoPrompt] for &Returned<T>;
    PromptUnfit prompt UnfitPrompt [T] for Returned<T>;

    SuggestFallible suggest FallibleWords [I: IntoIterator<Item: Into<String>>, E: Display]
        for &&Returned<Result<I, E>>;
    SuggestPlain suggest PlainWords [I: IntoIterator<Item: Into<String>>] for &Returned<I>;
    SuggestUnfit suggest PlainWords [T] for Returned<T>;
}

macro_rules! gives {
    ($($way:ident [$($generics:tt)*] $value:ident: $type:ty => $given:ty $give:block)*) => {$(
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug)]
        pub struct $way;

        impl $way {
            #[doc(hidden)]
            pub fn give<$($generics)*>(self, $value: $type) -> $given $give
        }
    )*};
}

gives! {
    Plain [T] value: T => T { value }
    ValueJson [T] value: T => Json<T> { Json(value) }
    OptionJson [T] value: Option<T> => Option<Json<T>> { value.map(Json) }
    FallibleJson [T, E] value: Result<T, E> => Result<Json<T>, E> { value.map(Json) }
    FallibleOptionJson [T, E] value: Result<Option<T>, E> => Result<Option<Json<T>>, E> {
        value.map(|value| value.map(Json))
    }
    // What these give is never run: their bounds are not met, and that is the point of them.
    UnfitTool [T: IntoOutput] value: T => () { drop(value) }
    UnfitRead [T: IntoContents] value: T => String {
        drop(value);
        String::new()
    }
    UnfitPrompt [T: IntoPrompt] value: T => String {
        drop(value);
        String::new()
    }
    PlainWords [I: IntoIterator<Item: Into<String>>] value: I => Result<Vec<String>, Failed> {
        Ok(value.into_iter().map(Into::into).collect())
    }
    FallibleWords [I: IntoIterator<Item: Into<String>>, E: Display] value: Result<I, E>
        => Result<Vec<String>, Failed> {
        match value {
            Ok(value) => PlainWords.give(value),
            Err(error) => Err(failed(&error)),
        }
    }
}
