//! Matches patterns by backtracking, and remembers failed branches.

use super::class::is_word;
use super::{Direction, Instruction, Pattern, StepLimitExceeded};

/// The number of steps after which failed branches are remembered.
const MEMO_START_STEPS: u64 = 2_000;
/// The maximum size of the memo, in bits.
const MAX_MEMO_BITS: usize = 1 << 24;
/// The maximum number of pending branches, in addition to two for each byte of the text.
const MAX_PENDING_BRANCHES: usize = 1 << 20;
/// Marks an unset register.
const NO_POSITION: usize = usize::MAX;

struct Matcher<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    steps: &'a mut u64,
    registers: Vec<usize>,
    /// One bit for each instruction at each position. Empty until failed branches are remembered.
    memo: Vec<u64>,
    memo_start: u64,
}

/// A branch that remains to be tried.
enum Branch {
    /// Continue with an instruction at a position.
    Continue(u32, usize),
    /// A repetition that may end at any position from `from` to `to`; the end `to` has been tried.
    ShorterRepeat { step: u32, from: usize, to: usize },
    /// Restore the previous value of a register.
    RestoreRegister(u32, usize),
}

pub(super) fn is_match(pattern: &Pattern, text: &str, steps: &mut u64) -> Result<bool, StepLimitExceeded> {
    let is_small = pattern.program.len().saturating_mul(text.len() + 1) <= MAX_MEMO_BITS;
    let memo_start = match !pattern.has_back_references && is_small {
        true => steps.saturating_sub(MEMO_START_STEPS),
        false => 0,
    };
    let registers = vec![NO_POSITION; pattern.n_registers];
    let mut matcher = Matcher { pattern, text, steps, registers, memo: Vec::new(), memo_start };
    if matches!(pattern.program.first(), Some(Instruction::Start)) {
        return matcher.matches_at(0, 0, Direction::Forward, true);
    }
    let mut at = 0;
    loop {
        if matcher.matches_at(0, at, Direction::Forward, true)? {
            return Ok(true);
        }
        match next_char(text, at) {
            Some(character) => at += character.len_utf8(),
            None => return Ok(false),
        }
    }
}

impl Matcher<'_> {
    /// Returns whether the instructions from `first` on match at a position, forward or backward. Only instructions outside
    /// of lookarounds may be remembered: inside, the same instruction may fail in one lookaround and match in another.
    fn matches_at(
        &mut self,
        first: u32,
        start: usize,
        direction: Direction,
        is_outer: bool,
    ) -> Result<bool, StepLimitExceeded> {
        let mut pending = vec![];
        let max_pending = MAX_PENDING_BRANCHES + 2 * self.text.len();
        let (mut step, mut at) = (first, start);
        loop {
            self.consume_steps(1)?;
            if pending.len() > max_pending {
                return Err(StepLimitExceeded);
            }
            let advances = match &self.pattern.program[step as usize] {
                Instruction::Match => {
                    return Ok(true);
                }
                Instruction::Char(expected) => match self.char_at(at, direction) {
                    Some((character, next)) if character == *expected => {
                        (step, at) = (step + 1, next);
                        true
                    }
                    _ => false,
                },
                Instruction::Class(class) => match self.char_at(at, direction) {
                    Some((character, next)) if self.pattern.classes[*class as usize].contains(character) => {
                        (step, at) = (step + 1, next);
                        true
                    }
                    _ => false,
                },
                // From a position inside a repetition that was tried, nothing new is reached.
                Instruction::RepeatClass { max: u32::MAX, .. } if is_outer && !self.insert_memo(step, at) => {
                    false
                }
                Instruction::RepeatClass { class, min, max } => {
                    match self.repeat_class(step, (*class, *min, *max), at, direction)? {
                        Some((nearest, farthest)) => {
                            if is_outer && *max == u32::MAX {
                                self.insert_memo_range(step, at, farthest);
                            }
                            // If the text must end after the repetition, a shorter one cannot match.
                            let is_last = direction == Direction::Forward
                                && matches!(self.pattern.program[step as usize + 1], Instruction::End);
                            if nearest != farthest && !is_last {
                                pending.push(Branch::ShorterRepeat {
                                    step: step + 1,
                                    from: nearest,
                                    to: farthest,
                                });
                            }
                            (step, at) = (step + 1, farthest);
                            true
                        }
                        None => false,
                    }
                }
                Instruction::Split(one, other) => {
                    let is_new = !is_outer || self.insert_memo(step, at);
                    if is_new {
                        pending.push(Branch::Continue(*other, at));
                        step = *one;
                    }
                    is_new
                }
                Instruction::Jump(to) => {
                    step = *to;
                    true
                }
                Instruction::SavePosition(register) => {
                    self.set_register(*register, at, &mut pending);
                    step += 1;
                    true
                }
                Instruction::RequireProgress(register) => {
                    step += 1;
                    self.registers[*register as usize] != at
                }
                Instruction::ClearGroups { from, to } => {
                    self.consume_steps(u64::from(to - from))?;
                    for register in *from..*to {
                        self.set_register(register, NO_POSITION, &mut pending);
                    }
                    step += 1;
                    true
                }
                Instruction::Start => {
                    step += 1;
                    at == 0
                }
                Instruction::End => {
                    step += 1;
                    at == self.text.len()
                }
                Instruction::WordBoundary(is_boundary) => {
                    let before = previous_char(self.text, at).is_some_and(is_word);
                    let after = next_char(self.text, at).is_some_and(is_word);
                    step += 1;
                    (before != after) == *is_boundary
                }
                Instruction::LookAround { direction, is_positive, end } => {
                    let (direction, is_positive, end) = (*direction, *is_positive, *end);
                    self.consume_steps(self.registers.len() as u64)?;
                    let before = self.registers.clone();
                    // The recursion is bounded by the nesting limit of patterns.
                    let matches = self.matches_at(step + 1, at, direction, false)?;
                    let found = std::mem::replace(&mut self.registers, before);
                    if matches && is_positive {
                        // Positions of groups inside the lookaround are kept until another branch is tried.
                        for (register, position) in (0..).zip(found) {
                            self.set_register(register, position, &mut pending);
                        }
                    }
                    step = end;
                    matches == is_positive
                }
                Instruction::BackReference(group) => match self.back_reference(*group, at, direction)? {
                    Some(next) => {
                        (step, at) = (step + 1, next);
                        true
                    }
                    None => false,
                },
            };
            if advances {
                continue;
            }
            match self.backtrack(&mut pending, direction, is_outer)? {
                Some(found) => (step, at) = found,
                None => return Ok(false),
            }
        }
    }

    /// Returns the most recent pending branch.
    fn backtrack(
        &mut self,
        pending: &mut Vec<Branch>,
        direction: Direction,
        is_outer: bool,
    ) -> Result<Option<(u32, usize)>, StepLimitExceeded> {
        while let Some(branch) = pending.pop() {
            match branch {
                Branch::RestoreRegister(register, previous) => self.registers[register as usize] = previous,
                Branch::Continue(step, at) => return Ok(Some((step, at))),
                Branch::ShorterRepeat { step, from, to } => {
                    let width = match direction {
                        Direction::Forward => previous_char(self.text, to).map_or(0, char::len_utf8),
                        Direction::Backward => next_char(self.text, to).map_or(0, char::len_utf8),
                    };
                    let to = match direction {
                        Direction::Forward => to - width,
                        Direction::Backward => to + width,
                    };
                    if to != from {
                        pending.push(Branch::ShorterRepeat { step, from, to });
                    }
                    let next = &self.pattern.program[step as usize];
                    let remembers_itself = matches!(
                        next,
                        Instruction::Split(..) | Instruction::RepeatClass { max: u32::MAX, .. }
                    );
                    if !is_outer || remembers_itself || self.insert_memo(step, to) {
                        return Ok(Some((step, to)));
                    }
                    self.consume_steps(1)?;
                }
            }
        }
        Ok(None)
    }

    /// Returns the nearest and the farthest position where a repetition may end. If it reaches a position that was tried,
    /// all positions after it were tried too.
    fn repeat_class(
        &mut self,
        step: u32,
        (class, min, max): (u32, u32, u32),
        start: usize,
        direction: Direction,
    ) -> Result<Option<(usize, usize)>, StepLimitExceeded> {
        let class = &self.pattern.classes[class as usize];
        let mut remembers = max == u32::MAX && !self.memo.is_empty();
        let (mut at, mut n_read, mut nearest, mut max) = (start, 0, start, max);
        while n_read < max {
            let next = match self.text.as_bytes().get(at) {
                Some(byte) if direction == Direction::Forward && byte.is_ascii() => {
                    class.contains_ascii(*byte).then_some(at + 1)
                }
                _ => self
                    .char_at(at, direction)
                    .filter(|(character, _)| class.contains(*character))
                    .map(|(_, next)| next),
            };
            let Some(next) = next else { break };
            if remembers && self.has_memo(step, next) {
                remembers = false;
                max = n_read.saturating_add(min);
                continue;
            }
            at = next;
            n_read += 1;
            if n_read == min {
                nearest = at;
            }
        }
        // A character of a class takes less time than an instruction.
        self.consume_steps(u64::from(n_read / 8))?;
        Ok((n_read >= min).then_some((nearest, at)))
    }

    fn back_reference(
        &mut self,
        group: u32,
        at: usize,
        direction: Direction,
    ) -> Result<Option<usize>, StepLimitExceeded> {
        let (one, other) = (self.registers[2 * group as usize], self.registers[2 * group as usize + 1]);
        // A group that did not match anything matches everywhere.
        if one == NO_POSITION || other == NO_POSITION {
            return Ok(Some(at));
        }
        let found = &self.text[one.min(other)..one.max(other)];
        self.consume_steps(found.len() as u64 / 64)?;
        Ok(match direction {
            Direction::Forward => self.text[at..].starts_with(found).then(|| at + found.len()),
            Direction::Backward => self.text[..at].ends_with(found).then(|| at - found.len()),
        })
    }

    fn set_register(&mut self, register: u32, to: usize, pending: &mut Vec<Branch>) {
        let previous = std::mem::replace(&mut self.registers[register as usize], to);
        if previous != to {
            pending.push(Branch::RestoreRegister(register, previous));
        }
    }

    #[inline]
    fn consume_steps(&mut self, n_steps: u64) -> Result<(), StepLimitExceeded> {
        *self.steps = self.steps.checked_sub(n_steps).ok_or(StepLimitExceeded)?;
        Ok(())
    }

    /// Records an instruction at a position. Returns whether it is new; always true before failed branches are remembered.
    fn insert_memo(&mut self, step: u32, at: usize) -> bool {
        if *self.steps > self.memo_start || self.memo_start == 0 {
            return true;
        }
        let n_places = self.text.len() + 1;
        if self.memo.is_empty() {
            self.memo = vec![0; (self.pattern.program.len() * n_places).div_ceil(64)];
        }
        let bit = step as usize * n_places + at;
        let (word, bit) = (&mut self.memo[bit / 64], 1 << (bit % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn has_memo(&self, step: u32, at: usize) -> bool {
        let bit = step as usize * (self.text.len() + 1) + at;
        self.memo[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Records an instruction at a range of positions, if failed branches are remembered.
    fn insert_memo_range(&mut self, step: u32, from: usize, to: usize) {
        if !self.memo.is_empty() {
            let start = step as usize * (self.text.len() + 1);
            for bit in start + from..=start + to {
                self.memo[bit / 64] |= 1 << (bit % 64);
            }
        }
    }

    #[inline]
    fn char_at(&self, at: usize, direction: Direction) -> Option<(char, usize)> {
        match direction {
            Direction::Forward => {
                next_char(self.text, at).map(|character| (character, at + character.len_utf8()))
            }
            Direction::Backward => {
                previous_char(self.text, at).map(|character| (character, at - character.len_utf8()))
            }
        }
    }
}

#[inline]
fn next_char(text: &str, at: usize) -> Option<char> {
    match text.as_bytes().get(at) {
        Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
        _ => text[at..].chars().next(),
    }
}

#[inline]
fn previous_char(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}
