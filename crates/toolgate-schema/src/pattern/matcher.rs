//! Matching: tries one way after the other, and remembers which are in vain.

use super::class::is_word;
use super::{Instruction, Pattern, StepLimitExceeded};

/// From this many steps on, what was tried in vain is remembered.
const MEMO_START_STEPS: u64 = 2_000;
/// The most bits that are spent on remembering.
const MAX_MEMO_BITS: usize = 1 << 24;
/// How many ways may be left at once, besides two for each byte of the text.
const MAX_PENDING_BRANCHES: usize = 1 << 20;
/// No place in a text.
const NO_POSITION: usize = usize::MAX;

struct Matcher<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    steps: &'a mut u64,
    registers: Vec<usize>,
    /// One bit for each step at each place. Empty: nothing is remembered yet.
    memo: Vec<u64>,
    memo_start: u64,
}

/// What is left to be tried.
enum Branch {
    /// Go on with a step at a place.
    Continue(u32, usize),
    /// A run that may end at any place from the first to the second, which was tried.
    ShorterRepeat { step: u32, from: usize, to: usize },
    /// What a register was before.
    RestoreRegister(u32, usize),
}

pub(super) fn is_match(pattern: &Pattern, text: &str, steps: &mut u64) -> Result<bool, StepLimitExceeded> {
    let is_small = pattern.program.len().saturating_mul(text.len() + 1) <= MAX_MEMO_BITS;
    let remember_at = match !pattern.has_back_references && is_small {
        true => steps.saturating_sub(MEMO_START_STEPS),
        false => 0,
    };
    let registers = vec![NO_POSITION; pattern.n_registers];
    let mut run = Matcher { pattern, text, steps, registers, memo: Vec::new(), memo_start: remember_at };
    if matches!(pattern.program.first(), Some(Instruction::Start)) {
        return run.matches_at(0, 0, false, true);
    }
    let mut at = 0;
    loop {
        if run.matches_at(0, at, false, true)? {
            return Ok(true);
        }
        match next_char(text, at) {
            Some(letter) => at += letter.len_utf8(),
            None => return Ok(false),
        }
    }
}

impl Matcher<'_> {
    /// Whether the steps from one on fit at a place, read forwards or backwards. Only steps that no look around is made
    /// of may be remembered: the same ones may do for one look and not for another.
    fn matches_at(
        &mut self,
        first: u32,
        start: usize,
        is_back: bool,
        is_outer: bool,
    ) -> Result<bool, StepLimitExceeded> {
        let mut left = vec![];
        let most_left = MAX_PENDING_BRANCHES + 2 * self.text.len();
        let (mut step, mut at) = (first, start);
        loop {
            self.consume_steps(1)?;
            if left.len() > most_left {
                return Err(StepLimitExceeded);
            }
            let goes_on = match &self.pattern.program[step as usize] {
                Instruction::Match => {
                    return Ok(true);
                }
                Instruction::Char(wanted) => match self.char_at(at, is_back) {
                    Some((letter, then)) if letter == *wanted => {
                        (step, at) = (step + 1, then);
                        true
                    }
                    _ => false,
                },
                Instruction::Class(class) => match self.char_at(at, is_back) {
                    Some((letter, then)) if self.pattern.classes[*class as usize].contains(letter) => {
                        (step, at) = (step + 1, then);
                        true
                    }
                    _ => false,
                },
                // From a place within a run that was tried, nothing new is reached.
                Instruction::RepeatClass { max: u32::MAX, .. } if is_outer && !self.insert_memo(step, at) => {
                    false
                }
                Instruction::RepeatClass { class, min, max } => {
                    match self.repeat_class(step, (*class, *min, *max), at, is_back)? {
                        Some((least, most)) => {
                            if is_outer && *max == u32::MAX {
                                self.insert_memo_range(step, at, most);
                            }
                            // Where the text must end behind it, nothing shorter can do.
                            let is_last = !is_back
                                && matches!(self.pattern.program[step as usize + 1], Instruction::End);
                            if least != most && !is_last {
                                left.push(Branch::ShorterRepeat { step: step + 1, from: least, to: most });
                            }
                            (step, at) = (step + 1, most);
                            true
                        }
                        None => false,
                    }
                }
                Instruction::Split(one, other) => {
                    let is_new = !is_outer || self.insert_memo(step, at);
                    if is_new {
                        left.push(Branch::Continue(*other, at));
                        step = *one;
                    }
                    is_new
                }
                Instruction::Jump(to) => {
                    step = *to;
                    true
                }
                Instruction::SavePosition(register) => {
                    self.set_register(*register, at, &mut left);
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
                        self.set_register(register, NO_POSITION, &mut left);
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
                Instruction::WordBoundary(is_wanted) => {
                    let before = previous_char(self.text, at).is_some_and(is_word);
                    let after = next_char(self.text, at).is_some_and(is_word);
                    step += 1;
                    (before != after) == *is_wanted
                }
                Instruction::LookAround { is_behind, is_positive: is_wanted, end } => {
                    let (is_behind, is_wanted, end) = (*is_behind, *is_wanted, *end);
                    self.consume_steps(self.registers.len() as u64)?;
                    let before = self.registers.clone();
                    // Patterns are nested to a limit, so this is too.
                    let fits = self.matches_at(step + 1, at, is_behind, false)?;
                    let found = std::mem::replace(&mut self.registers, before);
                    if fits && is_wanted {
                        // What groups in it have found stays found, until another way is tried.
                        for (register, now) in (0..).zip(found) {
                            self.set_register(register, now, &mut left);
                        }
                    }
                    step = end;
                    fits == is_wanted
                }
                Instruction::BackReference(group) => match self.back_reference(*group, at, is_back)? {
                    Some(then) => {
                        (step, at) = (step + 1, then);
                        true
                    }
                    None => false,
                },
            };
            if goes_on {
                continue;
            }
            match self.backtrack(&mut left, is_back, is_outer)? {
                Some(found) => (step, at) = found,
                None => return Ok(false),
            }
        }
    }

    /// The last way that is left.
    fn backtrack(
        &mut self,
        left: &mut Vec<Branch>,
        is_back: bool,
        is_outer: bool,
    ) -> Result<Option<(u32, usize)>, StepLimitExceeded> {
        while let Some(way) = left.pop() {
            match way {
                Branch::RestoreRegister(register, was) => self.registers[register as usize] = was,
                Branch::Continue(step, at) => return Ok(Some((step, at))),
                Branch::ShorterRepeat { step, from, to } => {
                    let width = match is_back {
                        false => previous_char(self.text, to).map_or(0, char::len_utf8),
                        true => next_char(self.text, to).map_or(0, char::len_utf8),
                    };
                    let to = if is_back { to + width } else { to - width };
                    if to != from {
                        left.push(Branch::ShorterRepeat { step, from, to });
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

    /// The places where a run may end: the nearest and the farthest. Where it meets one that was tried, whatever lies
    /// behind was tried too.
    fn repeat_class(
        &mut self,
        step: u32,
        (class, min, max): (u32, u32, u32),
        start: usize,
        is_back: bool,
    ) -> Result<Option<(usize, usize)>, StepLimitExceeded> {
        let class = &self.pattern.classes[class as usize];
        let mut remembers = max == u32::MAX && !self.memo.is_empty();
        let (mut at, mut n_read, mut least, mut max) = (start, 0, start, max);
        while n_read < max {
            let then = match self.text.as_bytes().get(at) {
                Some(byte) if !is_back && byte.is_ascii() => class.contains_ascii(*byte).then_some(at + 1),
                _ => self
                    .char_at(at, is_back)
                    .filter(|(letter, _)| class.contains(*letter))
                    .map(|(_, then)| then),
            };
            let Some(then) = then else { break };
            if remembers && self.has_memo(step, then) {
                remembers = false;
                max = n_read.saturating_add(min);
                continue;
            }
            at = then;
            n_read += 1;
            if n_read == min {
                least = at;
            }
        }
        self.consume_steps(u64::from(n_read / 4))?;
        Ok((n_read >= min).then_some((least, at)))
    }

    fn back_reference(
        &mut self,
        group: u32,
        at: usize,
        is_back: bool,
    ) -> Result<Option<usize>, StepLimitExceeded> {
        let (one, other) = (self.registers[2 * group as usize], self.registers[2 * group as usize + 1]);
        // What did not match anything is found everywhere.
        if one == NO_POSITION || other == NO_POSITION {
            return Ok(Some(at));
        }
        let found = &self.text[one.min(other)..one.max(other)];
        self.consume_steps(found.len() as u64 / 64)?;
        Ok(match is_back {
            false => self.text[at..].starts_with(found).then(|| at + found.len()),
            true => self.text[..at].ends_with(found).then(|| at - found.len()),
        })
    }

    fn set_register(&mut self, register: u32, to: usize, left: &mut Vec<Branch>) {
        let was = std::mem::replace(&mut self.registers[register as usize], to);
        if was != to {
            left.push(Branch::RestoreRegister(register, was));
        }
    }

    #[inline]
    fn consume_steps(&mut self, n_steps: u64) -> Result<(), StepLimitExceeded> {
        *self.steps = self.steps.checked_sub(n_steps).ok_or(StepLimitExceeded)?;
        Ok(())
    }

    /// Whether a step was not yet tried at a place. True for all as long as nothing is remembered.
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

    /// Remembers a step at all places from one to another, if anything is remembered.
    fn insert_memo_range(&mut self, step: u32, from: usize, to: usize) {
        if !self.memo.is_empty() {
            let start = step as usize * (self.text.len() + 1);
            for bit in start + from..=start + to {
                self.memo[bit / 64] |= 1 << (bit % 64);
            }
        }
    }

    #[inline]
    fn char_at(&self, at: usize, is_back: bool) -> Option<(char, usize)> {
        match is_back {
            false => next_char(self.text, at).map(|letter| (letter, at + letter.len_utf8())),
            true => previous_char(self.text, at).map(|letter| (letter, at - letter.len_utf8())),
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
