//! Matching: tries one way after the other, and remembers which are in vain.

use super::class::is_word;
use super::{Pattern, Step, TooLong};

/// From this many steps on, what was tried in vain is remembered.
const PATIENCE: u64 = 2_000;
/// The most bits that are spent on remembering.
const MEMORY: usize = 1 << 24;
/// How many ways may be left at once, besides two for each byte of the text.
const WAYS: usize = 1 << 20;
/// No place in a text.
const NOWHERE: usize = usize::MAX;

struct Run<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    steps: &'a mut u64,
    registers: Vec<usize>,
    /// One bit for each step at each place. Empty: nothing is remembered yet.
    seen: Vec<u64>,
    remember_at: u64,
}

/// What is left to be tried.
enum Left {
    /// Go on with a step at a place.
    At(u32, usize),
    /// A run that may end at any place from the first to the second, which was tried.
    Shorter { step: u32, from: usize, to: usize },
    /// What a register was before.
    Back(u32, usize),
}

pub(super) fn run(pattern: &Pattern, text: &str, steps: &mut u64) -> Result<bool, TooLong> {
    let is_small = pattern.steps.len().saturating_mul(text.len() + 1) <= MEMORY;
    let remember_at = match !pattern.is_backward && is_small {
        true => steps.saturating_sub(PATIENCE),
        false => 0,
    };
    let registers = vec![NOWHERE; pattern.n_registers];
    let mut run = Run { pattern, text, steps, registers, seen: Vec::new(), remember_at };
    if matches!(pattern.steps.first(), Some(Step::Start)) {
        return run.fits(0, 0, false, true);
    }
    let mut at = 0;
    loop {
        if run.fits(0, at, false, true)? {
            return Ok(true);
        }
        match next(text, at) {
            Some(letter) => at += letter.len_utf8(),
            None => return Ok(false),
        }
    }
}

impl Run<'_> {
    /// Whether the steps from one on fit at a place, read forwards or backwards. Only steps that no look around is made
    /// of may be remembered: the same ones may do for one look and not for another.
    fn fits(&mut self, first: u32, start: usize, is_back: bool, is_outer: bool) -> Result<bool, TooLong> {
        let mut left = vec![];
        let most_left = WAYS + 2 * self.text.len();
        let (mut step, mut at) = (first, start);
        loop {
            self.spend(1)?;
            if left.len() > most_left {
                return Err(TooLong);
            }
            let goes_on = match &self.pattern.steps[step as usize] {
                Step::Done => {
                    return Ok(true);
                }
                Step::Char(wanted) => match self.read(at, is_back) {
                    Some((letter, then)) if letter == *wanted => {
                        (step, at) = (step + 1, then);
                        true
                    }
                    _ => false,
                },
                Step::Class(class) => match self.read(at, is_back) {
                    Some((letter, then)) if self.pattern.classes[*class as usize].has(letter) => {
                        (step, at) = (step + 1, then);
                        true
                    }
                    _ => false,
                },
                // From a place within a run that was tried, nothing new is reached.
                Step::Run { max: u32::MAX, .. } if is_outer && !self.is_new(step, at) => false,
                Step::Run { class, min, max } => match self.run(step, (*class, *min, *max), at, is_back)? {
                    Some((least, most)) => {
                        if is_outer && *max == u32::MAX {
                            self.cover(step, at, most);
                        }
                        // Where the text must end behind it, nothing shorter can do.
                        let is_last = !is_back && matches!(self.pattern.steps[step as usize + 1], Step::End);
                        if least != most && !is_last {
                            left.push(Left::Shorter { step: step + 1, from: least, to: most });
                        }
                        (step, at) = (step + 1, most);
                        true
                    }
                    None => false,
                },
                Step::Fork(one, other) => {
                    let is_new = !is_outer || self.is_new(step, at);
                    if is_new {
                        left.push(Left::At(*other, at));
                        step = *one;
                    }
                    is_new
                }
                Step::Jump(to) => {
                    step = *to;
                    true
                }
                Step::Mark(register) => {
                    self.set(*register, at, &mut left);
                    step += 1;
                    true
                }
                Step::Moved(register) => {
                    step += 1;
                    self.registers[*register as usize] != at
                }
                Step::Forget { from, to } => {
                    self.spend(u64::from(to - from))?;
                    for register in *from..*to {
                        self.set(register, NOWHERE, &mut left);
                    }
                    step += 1;
                    true
                }
                Step::Start => {
                    step += 1;
                    at == 0
                }
                Step::End => {
                    step += 1;
                    at == self.text.len()
                }
                Step::Edge(is_wanted) => {
                    let before = previous(self.text, at).is_some_and(is_word);
                    let after = next(self.text, at).is_some_and(is_word);
                    step += 1;
                    (before != after) == *is_wanted
                }
                Step::Look { is_behind, is_wanted, end } => {
                    let (is_behind, is_wanted, end) = (*is_behind, *is_wanted, *end);
                    self.spend(self.registers.len() as u64)?;
                    let before = self.registers.clone();
                    // Patterns are nested to a limit, so this is too.
                    let fits = self.fits(step + 1, at, is_behind, false)?;
                    let found = std::mem::replace(&mut self.registers, before);
                    if fits && is_wanted {
                        // What groups in it have found stays found, until another way is tried.
                        for (register, now) in (0..).zip(found) {
                            self.set(register, now, &mut left);
                        }
                    }
                    step = end;
                    fits == is_wanted
                }
                Step::Again(group) => match self.again(*group, at, is_back)? {
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
            match self.other_way(&mut left, is_back, is_outer)? {
                Some(found) => (step, at) = found,
                None => return Ok(false),
            }
        }
    }

    /// The last way that is left.
    fn other_way(
        &mut self,
        left: &mut Vec<Left>,
        is_back: bool,
        is_outer: bool,
    ) -> Result<Option<(u32, usize)>, TooLong> {
        while let Some(way) = left.pop() {
            match way {
                Left::Back(register, was) => self.registers[register as usize] = was,
                Left::At(step, at) => return Ok(Some((step, at))),
                Left::Shorter { step, from, to } => {
                    let width = match is_back {
                        false => previous(self.text, to).map_or(0, char::len_utf8),
                        true => next(self.text, to).map_or(0, char::len_utf8),
                    };
                    let to = if is_back { to + width } else { to - width };
                    if to != from {
                        left.push(Left::Shorter { step, from, to });
                    }
                    let next = &self.pattern.steps[step as usize];
                    let remembers_itself = matches!(next, Step::Fork(..) | Step::Run { max: u32::MAX, .. });
                    if !is_outer || remembers_itself || self.is_new(step, to) {
                        return Ok(Some((step, to)));
                    }
                    self.spend(1)?;
                }
            }
        }
        Ok(None)
    }

    /// The places where a run may end: the nearest and the farthest. Where it meets one that was tried, whatever lies
    /// behind was tried too.
    fn run(
        &mut self,
        step: u32,
        (class, min, max): (u32, u32, u32),
        start: usize,
        is_back: bool,
    ) -> Result<Option<(usize, usize)>, TooLong> {
        let class = &self.pattern.classes[class as usize];
        let mut remembers = max == u32::MAX && !self.seen.is_empty();
        let (mut at, mut n_read, mut least, mut max) = (start, 0, start, max);
        while n_read < max {
            let then = match self.text.as_bytes().get(at) {
                Some(byte) if !is_back && byte.is_ascii() => class.has_ascii(*byte).then_some(at + 1),
                _ => self.read(at, is_back).filter(|(letter, _)| class.has(*letter)).map(|(_, then)| then),
            };
            let Some(then) = then else { break };
            if remembers && self.is_seen(step, then) {
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
        self.spend(u64::from(n_read / 4))?;
        Ok((n_read >= min).then_some((least, at)))
    }

    fn again(&mut self, group: u32, at: usize, is_back: bool) -> Result<Option<usize>, TooLong> {
        let (one, other) = (self.registers[2 * group as usize], self.registers[2 * group as usize + 1]);
        // What did not match anything is found everywhere.
        if one == NOWHERE || other == NOWHERE {
            return Ok(Some(at));
        }
        let found = &self.text[one.min(other)..one.max(other)];
        self.spend(found.len() as u64 / 64)?;
        Ok(match is_back {
            false => self.text[at..].starts_with(found).then(|| at + found.len()),
            true => self.text[..at].ends_with(found).then(|| at - found.len()),
        })
    }

    fn set(&mut self, register: u32, to: usize, left: &mut Vec<Left>) {
        let was = std::mem::replace(&mut self.registers[register as usize], to);
        if was != to {
            left.push(Left::Back(register, was));
        }
    }

    #[inline]
    fn spend(&mut self, n_steps: u64) -> Result<(), TooLong> {
        *self.steps = self.steps.checked_sub(n_steps).ok_or(TooLong)?;
        Ok(())
    }

    /// Whether a step was not yet tried at a place. True for all as long as nothing is remembered.
    fn is_new(&mut self, step: u32, at: usize) -> bool {
        if *self.steps > self.remember_at || self.remember_at == 0 {
            return true;
        }
        let n_places = self.text.len() + 1;
        if self.seen.is_empty() {
            self.seen = vec![0; (self.pattern.steps.len() * n_places).div_ceil(64)];
        }
        let bit = step as usize * n_places + at;
        let (word, bit) = (&mut self.seen[bit / 64], 1 << (bit % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn is_seen(&self, step: u32, at: usize) -> bool {
        let bit = step as usize * (self.text.len() + 1) + at;
        self.seen[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Remembers a step at all places from one to another, if anything is remembered.
    fn cover(&mut self, step: u32, from: usize, to: usize) {
        if !self.seen.is_empty() {
            let start = step as usize * (self.text.len() + 1);
            for bit in start + from..=start + to {
                self.seen[bit / 64] |= 1 << (bit % 64);
            }
        }
    }

    #[inline]
    fn read(&self, at: usize, is_back: bool) -> Option<(char, usize)> {
        match is_back {
            false => next(self.text, at).map(|letter| (letter, at + letter.len_utf8())),
            true => previous(self.text, at).map(|letter| (letter, at - letter.len_utf8())),
        }
    }
}

#[inline]
fn next(text: &str, at: usize) -> Option<char> {
    match text.as_bytes().get(at) {
        Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
        _ => text[at..].chars().next(),
    }
}

#[inline]
fn previous(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}
