//! Regular expressions in the syntax of ECMA-262, for `pattern` and `patternProperties`.
//!
//! Matching backtracks. After a number of steps it starts to remember failed branches, so that most patterns take time
//! proportional to the text. The rest is bounded by a step limit: a match that exceeds it fails with
//! [`StepLimitExceeded`]. Neither parsing nor matching uses stack space proportional to its input.
//!
//! All syntax of ECMA-262 with the flag `u`, which JSON Schema recommends, is supported, except most of the properties
//! in `\p{..}`. The supported ones (letters, numbers, separators, cases and control characters) follow the methods of
//! `char`. `L` is therefore `char::is_alphabetic`, which is wider than Unicode's letters: it includes many vowel signs,
//! Roman numerals and circled letters. The same holds for `Lu`, `Ll` and `Lo`. `P`, `S` and `M` are exact within ASCII;
//! beyond it they match every character that is neither letter, number, space nor control. Syntax of other regex
//! dialects that ECMA-262 does not have is accepted with its usual meaning: `(?i)`, `(?P<name>`, `\A`, `\z` and `\Z`.

mod class;
mod compile;
mod escape;
mod matcher;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use class::CharClass;

/// A compiled regular expression.
pub struct Pattern {
    text: Box<str>,
    program: Box<[Instruction]>,
    classes: Box<[CharClass]>,
    n_registers: usize,
    /// Whether the pattern refers back to its groups. Then a branch that failed once may match later, so failed
    /// branches are not remembered.
    has_back_references: bool,
}

/// Why a pattern cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// The pattern is invalid in every regex dialect.
    Invalid(String),
    /// The pattern may be valid, but uses an unsupported feature or exceeds a limit.
    Unsupported(String),
}

/// Error: matching a text took more steps than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimitExceeded;

/// One instruction of the matcher. Targets are indices of other instructions.
#[derive(Debug, Clone)]
enum Instruction {
    Char(char),
    Class(u32),
    /// Matches a class greedily, and gives characters back if the rest does not match.
    RepeatClass {
        class: u32,
        min: u32,
        max: u32,
    },
    /// Continues at the first target, and at the second if that fails.
    Split(u32, u32),
    Jump(u32),
    /// Saves the position in the text to a register.
    SavePosition(u32),
    /// Continues only if the position has moved since the register was saved.
    RequireProgress(u32),
    /// Clears registers of groups.
    ClearGroups {
        from: u32,
        to: u32,
    },
    Start,
    End,
    /// `\b` if true, `\B` if false.
    WordBoundary(bool),
    /// The instructions up to `end` must match, or must not match; then continues at `end`.
    LookAround {
        direction: Direction,
        is_positive: bool,
        end: u32,
    },
    /// Matches the text that a group has matched.
    BackReference(u32),
    Match,
}

/// The direction in which a part of a pattern is matched: look-behind runs from right to left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The maximum number of instructions of a pattern.
const MAX_INSTRUCTIONS: usize = 20_000;
/// The maximum number of tree nodes that are compiled, counting a node once per repetition. Some produce no instruction.
const MAX_NODES: usize = 16 * MAX_INSTRUCTIONS;
/// The maximum number of steps of all pattern matches of one validation, about 20 ms. It does not grow with the text:
/// matching blocks a thread that serves other requests too.
pub(crate) const STEP_LIMIT: u64 = 2_000_000;

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// If the pattern is invalid, uses an unsupported feature, or exceeds a limit.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        compile::compile(text, parse::parse(text)?)
    }

    /// Compiles a pattern, and returns the result and its cost in units of work.
    pub(crate) fn new_with_cost(text: &str) -> (Result<Pattern, PatternError>, u64) {
        let result = Pattern::new(text);
        // A rejected pattern may have been compiled up to the limit.
        let n_instructions = result.as_ref().map_or(MAX_INSTRUCTIONS, |pattern| pattern.program.len());
        // One character of the text may be a class, which has a table.
        (result, (16 * text.len() + 4 * n_instructions) as u64)
    }

    /// Returns the text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches anywhere in `text`.
    ///
    /// # Errors
    /// If that takes more steps than allowed.
    pub fn is_match(&self, text: &str) -> Result<bool, StepLimitExceeded> {
        self.is_match_with_steps(text, &mut STEP_LIMIT.clone())
    }

    /// Like [`is_match`](Self::is_match), with a budget of steps that is reduced by the steps taken.
    pub(crate) fn is_match_with_steps(&self, text: &str, steps: &mut u64) -> Result<bool, StepLimitExceeded> {
        matcher::is_match(self, text, steps)
    }
}

/// Converts a position in a program or a class table to the width that instructions store.
fn to_index(position: usize) -> Result<u32, PatternError> {
    u32::try_from(position).map_err(|_| PatternError::unsupported("it is too large"))
}

impl PatternError {
    fn invalid(detail: impl Into<String>) -> PatternError {
        PatternError::Invalid(detail.into())
    }

    fn unsupported(detail: impl Into<String>) -> PatternError {
        PatternError::Unsupported(detail.into())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PatternError::Invalid(detail) | PatternError::Unsupported(detail)) = self;
        f.write_str(detail)
    }
}

impl std::error::Error for PatternError {}

impl fmt::Display for StepLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("matching this text takes too many steps")
    }
}

impl std::error::Error for StepLimitExceeded {}
