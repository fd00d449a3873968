//! Regular expressions as ECMA-262 has them, for `pattern` and `patternProperties`.
//!
//! A text is matched by trying, with everything that was tried in vain remembered as soon as there is much of it, so
//! that most patterns take time in proportion to the text. What is left is bounded by a number of steps: a text that
//! takes more is not matched, and the caller is told so. Neither reading nor matching uses the stack in proportion to
//! what it is given.
//!
//! What of ECMA-262 is there: everything with the flag `u`, which JSON Schema asks for, but for most of the properties
//! in `\p{..}`. Of those, letters, numbers, separators, cases and control characters are what the methods of `char` say.
//! `L` is therefore whatever is alphabetic, which is wider than the letters of Unicode: many vowel signs, Roman numerals
//! and circled letters are among it, and the same holds for `Lu`, `Ll` and `Lo`. `P`, `S` and `M` are exact within ASCII,
//! and beyond it stand for whatever is neither letter, number, space nor control. What other languages write and means
//! nothing here is read as it was meant: `(?i)`, `(?P<name>`, `\A`, `\z` and `\Z`.

mod class;
mod read;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;

use class::Class;

/// A regular expression that is ready to be matched.
pub struct Pattern {
    text: Box<str>,
    steps: Box<[Step]>,
    classes: Box<[Class]>,
    n_registers: usize,
    /// It has references to its groups: what was tried in vain may fit another time.
    is_backward: bool,
}

/// Why a text is no pattern that can be matched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// It is wrong in every language.
    Wrong(String),
    /// It may be right, and has something that is not known here, or is too large.
    Foreign(String),
}

/// A text takes too many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// One thing that a matcher does. Places are those of other steps.
#[derive(Debug, Clone)]
enum Step {
    Char(char),
    Class(u32),
    /// As many of a class as there are, and fewer if that does not do.
    Run {
        class: u32,
        min: u32,
        max: u32,
    },
    /// The first, and the second if that does not do.
    Fork(u32, u32),
    Jump(u32),
    /// Remembers the place in the text.
    Mark(u32),
    /// Goes on only if the text did since the mark was set.
    Moved(u32),
    /// Forgets what groups have matched.
    Forget {
        from: u32,
        to: u32,
    },
    Start,
    End,
    /// Between a word and something else, or not.
    Edge(bool),
    /// What follows must match, or must not; then it goes on at `end`.
    Look {
        is_behind: bool,
        is_wanted: bool,
        end: u32,
    },
    /// What a group has matched.
    Again(u32),
    Done,
}

/// How many steps one match may take at least.
const STEPS: u64 = 5_000_000;
/// How many it may take for each byte of a text that is long.
const STEPS_PER_BYTE: u64 = 32;

/// How many steps a match of a text may take.
pub(crate) fn most_steps(text: &str) -> u64 {
    STEPS.max(STEPS_PER_BYTE.saturating_mul(text.len() as u64))
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If it is none, or has something that is not known here.
    pub fn new(text: &str) -> Result<Pattern, Unread> {
        read::read(text)
    }

    /// The same, and what that cost.
    pub(crate) fn read(text: &str) -> (Result<Pattern, Unread>, u64) {
        let read = Pattern::new(text);
        // What was given up may have been written to the end.
        let n_steps = read.as_ref().map_or(read::LARGEST, |pattern| pattern.steps.len());
        // A letter may be a class, which is a table.
        (read, (16 * text.len() + 4 * n_steps) as u64)
    }

    /// What it was read from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it fits anywhere in a text.
    ///
    /// # Errors
    /// If that takes too many steps.
    pub fn is_match(&self, text: &str) -> Result<bool, TooLong> {
        self.is_match_within(text, &mut most_steps(text))
    }

    /// The same, with the steps that are left.
    pub(crate) fn is_match_within(&self, text: &str, steps: &mut u64) -> Result<bool, TooLong> {
        run::run(self, text, steps)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unread::Wrong(why) | Unread::Foreign(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Unread {}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it takes too many steps to match this text")
    }
}

impl std::error::Error for TooLong {}
