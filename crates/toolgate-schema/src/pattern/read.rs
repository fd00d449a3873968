//! Reading: a text becomes a tree, and the tree becomes steps.

use super::class::{Class, Kind, Part};
use super::{Pattern, Step, Unread};

/// How deep groups may be nested.
const DEEPEST: usize = 64;
/// How many steps a pattern may have.
pub(super) const LARGEST: usize = 20_000;
/// How many parts of a tree may be written, however often each of them. Some become no steps.
const WRITTEN: usize = 16 * LARGEST;
/// The most groups that have names: each is looked for among all.
const NAMED: usize = 1000;

/// How much of the name of a group is noted. References to longer ones lead nowhere.
const LONGEST_NAME: usize = 128;

enum Tree {
    Empty,
    Char(char),
    Class(u32),
    Sequence(Vec<Tree>),
    Either(Vec<Tree>),
    /// `groups`: the numbers of those that are in it, from and to.
    Repeat {
        what: Box<Tree>,
        min: u32,
        max: u32,
        groups: (u32, u32),
    },
    Group {
        what: Box<Tree>,
        number: u32,
    },
    Start,
    End,
    Edge(bool),
    Look {
        what: Box<Tree>,
        is_behind: bool,
        is_wanted: bool,
    },
    Again(u32),
}

struct Reader {
    letters: Vec<char>,
    at: usize,
    classes: Vec<Class>,
    n_groups: u32,
    /// Names of groups, found before anything is read: a reference may stand before its group.
    names: Vec<(String, u32)>,
    n_groups_in_all: u32,
    is_backward: bool,
    is_caseless: bool,
}

pub(super) fn read(text: &str) -> Result<Pattern, Unread> {
    let mut reader = Reader {
        letters: text.chars().collect(),
        at: 0,
        classes: Vec::new(),
        n_groups: 0,
        names: Vec::new(),
        n_groups_in_all: 0,
        is_backward: false,
        is_caseless: false,
    };
    if reader.letters.len() > WRITTEN {
        return Err(foreign(format!("it has more than {WRITTEN} letters")));
    }
    reader.find_groups();
    if reader.names.len() > NAMED {
        return Err(foreign(format!("it has more than {NAMED} groups with names")));
    }
    let tree = reader.either(0)?;
    if reader.at < reader.letters.len() {
        return Err(wrong("a `)` that closes nothing"));
    }
    let n_registers = if reader.is_backward { 2 * reader.n_groups_in_all } else { 0 };
    let mut writer = Writer {
        steps: Vec::new(),
        n_written: 0,
        n_registers,
        is_backward: reader.is_backward,
        classes: reader.classes,
        letters: Vec::new(),
    };
    writer.write(&tree, false)?;
    writer.push(Step::Done)?;
    Ok(Pattern {
        text: text.into(),
        steps: writer.steps.into(),
        classes: writer.classes.into(),
        n_registers: writer.n_registers as usize,
        is_backward: writer.is_backward,
    })
}

fn wrong(why: impl Into<String>) -> Unread {
    Unread::Wrong(why.into())
}

fn foreign(why: impl Into<String>) -> Unread {
    Unread::Foreign(why.into())
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(letter)
    }

    fn takes(&mut self, text: &str) -> bool {
        let fits = text.chars().enumerate().all(|(n, letter)| self.letters.get(self.at + n) == Some(&letter));
        if fits {
            self.at += text.chars().count();
        }
        fits
    }

    /// Counts groups, and notes their names.
    fn find_groups(&mut self) {
        let (mut at, mut is_class) = (0, false);
        while let Some(letter) = self.letters.get(at) {
            match letter {
                '\\' => at += 1,
                '[' => is_class = true,
                ']' => is_class = false,
                '(' if !is_class => {
                    let inside: String = self.letters[at + 1..].iter().take(3).collect();
                    let is_named = inside.starts_with("?P<")
                        || inside.starts_with("?<") && !inside.ends_with(['=', '!']);
                    if is_named {
                        let from = at + if inside.starts_with("?P") { 4 } else { 3 };
                        let letters = self.letters[from..].iter().take(LONGEST_NAME);
                        let name = letters.take_while(|letter| **letter != '>').collect();
                        self.names.push((name, self.n_groups_in_all));
                    }
                    self.n_groups_in_all += u32::from(is_named || !inside.starts_with('?'));
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn either(&mut self, depth: usize) -> Result<Tree, Unread> {
        if depth > DEEPEST {
            return Err(foreign(format!("groups are nested deeper than {DEEPEST}")));
        }
        let mut all = vec![self.sequence(depth)?];
        while self.takes("|") {
            all.push(self.sequence(depth)?);
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => Tree::Either(all),
        })
    }

    fn sequence(&mut self, depth: usize) -> Result<Tree, Unread> {
        let mut all = Vec::new();
        while let Some(letter) = self.peek() {
            if letter == '|' || letter == ')' {
                break;
            }
            let first_group = self.n_groups;
            let one = self.atom(depth)?;
            let one = self.repeated(one, (first_group, self.n_groups))?;
            if !matches!(one, Tree::Empty) {
                all.push(one);
            }
        }
        Ok(match all.len() {
            0 => Tree::Empty,
            1 => all.remove(0),
            _ => Tree::Sequence(all),
        })
    }

    fn repeated(&mut self, what: Tree, groups: (u32, u32)) -> Result<Tree, Unread> {
        let Some((min, max)) = self.quantifier()? else {
            return Ok(what);
        };
        // Lazy ones find the same texts.
        let _ = self.takes("?");
        if matches!(what, Tree::Start | Tree::End | Tree::Edge(_)) {
            return Err(wrong("nothing that could be repeated"));
        }
        match self.peek() {
            Some('+') => Err(foreign("a possessive quantifier")),
            Some('*' | '?') => Err(wrong("nothing that could be repeated")),
            _ => Ok(Tree::Repeat { what: Box::new(what), min, max, groups }),
        }
    }

    fn quantifier(&mut self) -> Result<Option<(u32, u32)>, Unread> {
        let found = match self.peek() {
            Some('*') => (0, u32::MAX),
            Some('+') => (1, u32::MAX),
            Some('?') => (0, 1),
            Some('{') => return self.counts(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(found))
    }

    /// `{2}`, `{2,}` or `{2,5}`. Anything else in braces is itself.
    fn counts(&mut self) -> Result<Option<(u32, u32)>, Unread> {
        let start = self.at;
        self.at += 1;
        let min = self.count();
        let max = match self.takes(",") {
            true if self.peek() == Some('}') => Some(u32::MAX),
            true => self.count(),
            false => min,
        };
        match (min, max) {
            (Some(min), Some(max)) if self.takes("}") => match min <= max {
                true => Ok(Some((min, max))),
                false => Err(wrong("a quantifier whose numbers are out of order")),
            },
            _ => {
                self.at = start;
                Ok(None)
            }
        }
    }

    fn count(&mut self) -> Option<u32> {
        let mut count = None;
        while let Some(digit) = self.peek().and_then(|letter| letter.to_digit(10)) {
            count = Some(count.unwrap_or(0_u32).saturating_mul(10).saturating_add(digit));
            self.at += 1;
        }
        count
    }

    fn atom(&mut self, depth: usize) -> Result<Tree, Unread> {
        match self.next() {
            Some('^') => Ok(Tree::Start),
            Some('$') => Ok(Tree::End),
            Some('(') => self.group(depth),
            Some('[') => self.class(),
            Some('.') => self.add(vec![Part::Kind(Kind::LineEnd)], true),
            Some('\\') => self.escape(),
            Some('*' | '+' | '?') => Err(wrong("nothing that could be repeated")),
            Some('{') => {
                self.at -= 1;
                if self.quantifier()?.is_some() {
                    return Err(wrong("nothing that could be repeated"));
                }
                self.at += 1;
                self.letter('{')
            }
            Some(letter) => self.letter(letter),
            None => Ok(Tree::Empty),
        }
    }

    fn letter(&mut self, letter: char) -> Result<Tree, Unread> {
        match self.is_caseless {
            true => self.add(vec![Part::Range(letter, letter)], false),
            false => Ok(Tree::Char(letter)),
        }
    }

    fn add(&mut self, parts: Vec<Part>, is_negated: bool) -> Result<Tree, Unread> {
        self.classes.push(Class::new(parts, is_negated, self.is_caseless));
        Ok(Tree::Class(place(self.classes.len() - 1)?))
    }

    fn group(&mut self, depth: usize) -> Result<Tree, Unread> {
        let was_caseless = self.is_caseless;
        let mut look = None;
        let mut number = None;
        if !self.takes("?") {
            number = Some(self.n_groups);
        } else if self.takes("=") {
            look = Some((false, true));
        } else if self.takes("!") {
            look = Some((false, false));
        } else if self.takes("<=") {
            look = Some((true, true));
        } else if self.takes("<!") {
            look = Some((true, false));
        } else if self.takes("<") || self.takes("P<") {
            number = Some(self.n_groups);
            self.name()?;
        } else if self.takes("i:") {
            self.is_caseless = true;
        } else if self.takes("-i:") {
            self.is_caseless = false;
        } else if self.takes("i)") {
            // For all that follows in the group around it, as in most languages; in ECMA-262 it is wrong.
            self.is_caseless = true;
            return Ok(Tree::Empty);
        } else if !self.takes(":") {
            let what: String = self.letters[self.at..].iter().take(2).collect();
            return Err(foreign(format!("a group that begins with `(?{what}`")));
        }
        self.n_groups += u32::from(number.is_some());
        let what = Box::new(self.either(depth + 1)?);
        if !self.takes(")") {
            return Err(wrong("a group that is not closed"));
        }
        self.is_caseless = was_caseless;
        Ok(match (look, number) {
            (Some((is_behind, is_wanted)), _) => Tree::Look { what, is_behind, is_wanted },
            (None, Some(number)) => Tree::Group { what, number },
            (None, None) => *what,
        })
    }

    fn name(&mut self) -> Result<String, Unread> {
        let mut name = String::new();
        loop {
            match self.next() {
                Some('>') if !name.is_empty() => return Ok(name),
                Some(letter) if letter.is_alphanumeric() || letter == '_' || letter == '$' => {
                    name.push(letter)
                }
                _ => return Err(wrong("a group whose name is none")),
            }
        }
    }

    fn escape(&mut self) -> Result<Tree, Unread> {
        let Some(letter) = self.peek() else {
            return Err(wrong("a `\\` at the end"));
        };
        if let Some(part) = self.kind()? {
            return self.add(vec![part], false);
        }
        match letter {
            'b' | 'B' => {
                self.at += 1;
                Ok(Tree::Edge(letter == 'b'))
            }
            'A' => {
                self.at += 1;
                Ok(Tree::Start)
            }
            'z' | 'Z' => {
                self.at += 1;
                Ok(Tree::End)
            }
            '1'..='9' => {
                let number = self.count().unwrap_or(u32::MAX);
                self.again(number.checked_sub(1).filter(|group| *group < self.n_groups_in_all))
            }
            'k' => {
                self.at += 1;
                if !self.takes("<") {
                    return Err(wrong("a reference without a name"));
                }
                let name = self.name()?;
                let group = self.names.iter().find(|(known, _)| *known == name).map(|(_, group)| *group);
                self.again(group)
            }
            _ => {
                let letter = self.escaped()?;
                self.letter(letter)
            }
        }
    }

    fn again(&mut self, group: Option<u32>) -> Result<Tree, Unread> {
        self.is_backward = true;
        match group {
            Some(group) if !self.is_caseless => Ok(Tree::Again(group)),
            Some(_) => Err(foreign("a reference to a group in any case")),
            None => Err(wrong("a reference to a group that is not there")),
        }
    }

    /// `\d` and its like, behind the backslash. Nothing is read if it is something else.
    fn kind(&mut self) -> Result<Option<Part>, Unread> {
        let part = match self.peek() {
            Some('d') => Part::Kind(Kind::Digit),
            Some('D') => Part::Not(Kind::Digit),
            Some('w') => Part::Kind(Kind::Word),
            Some('W') => Part::Not(Kind::Word),
            Some('s') => Part::Kind(Kind::Space),
            Some('S') => Part::Not(Kind::Space),
            Some(letter @ ('p' | 'P')) => {
                self.at += 1;
                let kind = self.property()?;
                return Ok(Some(if letter == 'p' { Part::Kind(kind) } else { Part::Not(kind) }));
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(part))
    }

    fn property(&mut self) -> Result<Kind, Unread> {
        let name: String = match self.next() {
            Some('{') => self.letters[self.at..].iter().take_while(|letter| **letter != '}').collect(),
            Some(letter) if letter.is_ascii_alphabetic() => {
                return Kind::named(&letter.to_string())
                    .ok_or_else(|| foreign(format!("the property `{letter}` of characters")));
            }
            _ => return Err(wrong("a property of characters without a name")),
        };
        self.at += name.chars().count();
        if !self.takes("}") {
            return Err(wrong("a property of characters whose name does not end"));
        }
        Kind::named(&name).ok_or_else(|| foreign(format!("the property `{name}` of characters")))
    }

    /// One character, behind the backslash.
    fn escaped(&mut self) -> Result<char, Unread> {
        let letter = self.next().ok_or_else(|| wrong("a `\\` at the end"))?;
        Ok(match letter {
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            '0' if !self.peek().is_some_and(|letter| letter.is_ascii_digit()) => '\0',
            'c' => match self.next() {
                Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
                _ => return Err(wrong("a `\\c` without a letter")),
            },
            'x' => self
                .hexadecimal(2)
                .and_then(char::from_u32)
                .ok_or_else(|| wrong("a `\\x` without two digits"))?,
            'u' => self.code_point()?,
            letter if letter.is_ascii_alphanumeric() => return Err(foreign(format!("`\\{letter}`"))),
            letter => letter,
        })
    }

    fn code_point(&mut self) -> Result<char, Unread> {
        let wrong = || wrong("a `\\u` without the digits of a character");
        if self.takes("{") {
            let digits: String =
                self.letters[self.at..].iter().take_while(|letter| **letter != '}').collect();
            self.at += digits.chars().count();
            if !self.takes("}") {
                return Err(wrong());
            }
            let code = u32::from_str_radix(&digits, 16).map_err(|_| wrong())?;
            return char::from_u32(code).ok_or_else(wrong);
        }
        let first = self.hexadecimal(4).ok_or_else(wrong)?;
        if (0xd800..0xdc00).contains(&first) && self.takes("\\u") {
            let second =
                self.hexadecimal(4).filter(|code| (0xdc00..0xe000).contains(code)).ok_or_else(wrong)?;
            return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(wrong);
        }
        // No text has half a character.
        char::from_u32(first).ok_or_else(|| foreign("half a character"))
    }

    fn hexadecimal(&mut self, n_digits: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..n_digits {
            code = code * 16 + self.peek()?.to_digit(16)?;
            self.at += 1;
        }
        Some(code)
    }

    fn class(&mut self) -> Result<Tree, Unread> {
        let is_negated = self.takes("^");
        let mut parts = Vec::new();
        loop {
            if self.takes("]") {
                return self.add(parts, is_negated);
            }
            let from = self.member()?;
            let is_range =
                self.peek() == Some('-') && self.letters.get(self.at + 1).is_some_and(|then| *then != ']');
            if !is_range {
                parts.push(from);
                continue;
            }
            self.at += 1;
            match (from, self.member()?) {
                (Part::Range(from, _), Part::Range(to, _)) if from <= to => parts.push(Part::Range(from, to)),
                (Part::Range(..), Part::Range(..)) => return Err(wrong("a range that is out of order")),
                // Nothing that a range could begin or end with, so the hyphen is itself.
                (one, other) => parts.extend([one, Part::Range('-', '-'), other]),
            }
        }
    }

    fn member(&mut self) -> Result<Part, Unread> {
        let letter = match self.next() {
            None => return Err(wrong("a `[` that is not closed")),
            Some('\\') => match self.kind()? {
                Some(part) => return Ok(part),
                None if self.takes("b") => '\u{8}',
                None => self.escaped()?,
            },
            Some(letter) => letter,
        };
        Ok(Part::Range(letter, letter))
    }
}

struct Writer {
    steps: Vec<Step>,
    n_written: usize,
    n_registers: u32,
    is_backward: bool,
    classes: Vec<Class>,
    /// Classes of one letter, made once for each.
    letters: Vec<(char, u32)>,
}

fn place(at: usize) -> Result<u32, Unread> {
    u32::try_from(at).map_err(|_| foreign("it is too large"))
}

impl Writer {
    fn push(&mut self, step: Step) -> Result<(), Unread> {
        if self.steps.len() >= LARGEST {
            return Err(foreign(format!("it has more than {LARGEST} steps")));
        }
        self.steps.push(step);
        Ok(())
    }

    fn here(&self) -> Result<u32, Unread> {
        place(self.steps.len())
    }

    /// A step that is known only when what follows is written.
    fn gap(&mut self) -> Result<usize, Unread> {
        self.push(Step::Done)?;
        Ok(self.steps.len() - 1)
    }

    /// `is_back`: what is found in a text from right to left.
    fn write(&mut self, tree: &Tree, is_back: bool) -> Result<(), Unread> {
        self.n_written += 1;
        if self.n_written > WRITTEN {
            return Err(foreign(format!("it has more than {WRITTEN} parts")));
        }
        match tree {
            Tree::Empty => Ok(()),
            Tree::Char(letter) => self.push(Step::Char(*letter)),
            Tree::Class(class) => self.push(Step::Class(*class)),
            Tree::Start => self.push(Step::Start),
            Tree::End => self.push(Step::End),
            Tree::Edge(is_wanted) => self.push(Step::Edge(*is_wanted)),
            Tree::Again(group) => self.push(Step::Again(*group)),
            Tree::Sequence(all) => match is_back {
                false => all.iter().try_for_each(|one| self.write(one, is_back)),
                true => all.iter().rev().try_for_each(|one| self.write(one, is_back)),
            },
            Tree::Either(all) => self.either(all, is_back),
            Tree::Group { what, number } if self.is_backward => {
                self.push(Step::Mark(2 * number))?;
                self.write(what, is_back)?;
                self.push(Step::Mark(2 * number + 1))
            }
            Tree::Group { what, .. } => self.write(what, is_back),
            Tree::Look { what, is_behind, is_wanted } => {
                let gap = self.gap()?;
                self.write(what, *is_behind)?;
                self.push(Step::Done)?;
                let end = self.here()?;
                self.steps[gap] = Step::Look { is_behind: *is_behind, is_wanted: *is_wanted, end };
                Ok(())
            }
            Tree::Repeat { what, min, max, groups } => self.repeat(what, *min, *max, *groups, is_back),
        }
    }

    fn either(&mut self, all: &[Tree], is_back: bool) -> Result<(), Unread> {
        let mut ends = Vec::new();
        for (n, one) in all.iter().enumerate() {
            if n + 1 == all.len() {
                self.write(one, is_back)?;
                break;
            }
            let fork = self.gap()?;
            self.write(one, is_back)?;
            ends.push(self.gap()?);
            self.steps[fork] = Step::Fork(place(fork + 1)?, self.here()?);
        }
        let end = self.here()?;
        for gap in ends {
            self.steps[gap] = Step::Jump(end);
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        what: &Tree,
        min: u32,
        max: u32,
        groups: (u32, u32),
        is_back: bool,
    ) -> Result<(), Unread> {
        match what {
            _ if max == 0 => return Ok(()),
            Tree::Class(class) => return self.push(Step::Run { class: *class, min, max }),
            Tree::Char(letter) => {
                let class = match self.letters.iter().find(|(known, _)| known == letter) {
                    Some((_, class)) => *class,
                    None => {
                        self.classes.push(Class::new(vec![Part::Range(*letter, *letter)], false, false));
                        let class = place(self.classes.len() - 1)?;
                        self.letters.push((*letter, class));
                        class
                    }
                };
                return self.push(Step::Run { class, min, max });
            }
            _ => {}
        }
        for _ in 0..min {
            let n_steps = self.steps.len();
            self.once(what, groups, is_back)?;
            if self.steps.len() == n_steps {
                // Nothing, however often.
                return Ok(());
            }
        }
        if max == u32::MAX {
            return self.forever(what, groups, is_back);
        }
        // Each may be the last: `(?:x(?:x(?:x)?)?)?`.
        let mut forks = Vec::new();
        for _ in min..max {
            forks.push(self.gap()?);
            self.once(what, groups, is_back)?;
        }
        let end = self.here()?;
        for fork in forks {
            self.steps[fork] = Step::Fork(place(fork + 1)?, end);
        }
        Ok(())
    }

    fn forever(&mut self, what: &Tree, groups: (u32, u32), is_back: bool) -> Result<(), Unread> {
        let fork = self.gap()?;
        match can_be_empty(what) {
            // One round that matches nothing is as good as a thousand.
            true => {
                let register = self.n_registers;
                self.n_registers += 1;
                self.push(Step::Mark(register))?;
                self.once(what, groups, is_back)?;
                self.push(Step::Moved(register))?;
            }
            false => self.once(what, groups, is_back)?,
        }
        self.push(Step::Jump(place(fork)?))?;
        self.steps[fork] = Step::Fork(place(fork + 1)?, self.here()?);
        Ok(())
    }

    /// One round of a repetition. Groups in it begin anew.
    fn once(&mut self, what: &Tree, (from, to): (u32, u32), is_back: bool) -> Result<(), Unread> {
        if self.is_backward && from < to {
            self.push(Step::Forget { from: 2 * from, to: 2 * to })?;
        }
        self.write(what, is_back)
    }
}

fn can_be_empty(tree: &Tree) -> bool {
    match tree {
        Tree::Char(_) | Tree::Class(_) => false,
        Tree::Sequence(all) => all.iter().all(can_be_empty),
        Tree::Either(all) => all.iter().any(can_be_empty),
        Tree::Repeat { what, min, .. } => *min == 0 || can_be_empty(what),
        Tree::Group { what, .. } => can_be_empty(what),
        _ => true,
    }
}
