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
mod matcher;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use class::CharClass;

/// A regular expression that is ready to be matched.
pub struct Pattern {
    text: Box<str>,
    program: Box<[Instruction]>,
    classes: Box<[CharClass]>,
    n_registers: usize,
    /// It has references to its groups: what was tried in vain may fit another time.
    has_back_references: bool,
}

/// Why a text is no pattern that can be matched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// It is wrong in every language.
    Invalid(String),
    /// It may be right, and has something that is not known here, or is too large.
    Unsupported(String),
}

/// A text takes too many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimitExceeded;

/// One thing that a matcher does. Places are those of other steps.
#[derive(Debug, Clone)]
enum Instruction {
    Char(char),
    Class(u32),
    /// As many of a class as there are, and fewer if that does not do.
    RepeatClass {
        class: u32,
        min: u32,
        max: u32,
    },
    /// The first, and the second if that does not do.
    Split(u32, u32),
    Jump(u32),
    /// Remembers the place in the text.
    SavePosition(u32),
    /// Goes on only if the text did since the mark was set.
    RequireProgress(u32),
    /// Forgets what groups have matched.
    ClearGroups {
        from: u32,
        to: u32,
    },
    Start,
    End,
    /// Between a word and something else, or not.
    WordBoundary(bool),
    /// What follows must match, or must not; then it goes on at `end`.
    LookAround {
        is_behind: bool,
        is_positive: bool,
        end: u32,
    },
    /// What a group has matched.
    BackReference(u32),
    Match,
}

/// How many steps one match may take at least.
const MIN_STEP_LIMIT: u64 = 5_000_000;
/// How many it may take for each byte of a text that is long.
const STEPS_PER_BYTE: u64 = 32;

/// How many steps a match of a text may take.
pub(crate) fn step_limit(text: &str) -> u64 {
    MIN_STEP_LIMIT.max(STEPS_PER_BYTE.saturating_mul(text.len() as u64))
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If it is none, or has something that is not known here.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        parse::parse(text)
    }

    /// The same, and what that cost.
    pub(crate) fn new_with_cost(text: &str) -> (Result<Pattern, PatternError>, u64) {
        let read = Pattern::new(text);
        // What was given up may have been written to the end.
        let n_steps = read.as_ref().map_or(parse::MAX_INSTRUCTIONS, |pattern| pattern.program.len());
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
    pub fn is_match(&self, text: &str) -> Result<bool, StepLimitExceeded> {
        self.is_match_with_steps(text, &mut step_limit(text))
    }

    /// The same, with the steps that are left.
    pub(crate) fn is_match_with_steps(&self, text: &str, steps: &mut u64) -> Result<bool, StepLimitExceeded> {
        matcher::is_match(self, text, steps)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PatternError::Invalid(why) | PatternError::Unsupported(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for PatternError {}

impl fmt::Display for StepLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it takes too many steps to match this text")
    }
}

impl std::error::Error for StepLimitExceeded {}
