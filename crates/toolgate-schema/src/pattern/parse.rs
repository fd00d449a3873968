//! Reading: a text becomes a tree, and the tree becomes steps.

use super::class::{CharCategory, CharClass, ClassItem};
use super::{Instruction, Pattern, PatternError};

/// How deep groups may be nested.
const MAX_GROUP_DEPTH: usize = 64;
/// How many steps a pattern may have.
pub(super) const MAX_INSTRUCTIONS: usize = 20_000;
/// How many parts of a tree may be written, however often each of them. Some become no steps.
const MAX_COMPILED_NODES: usize = 16 * MAX_INSTRUCTIONS;
/// The most groups that have names: each is looked for among all.
const MAX_NAMED_GROUPS: usize = 1000;

/// How much of the name of a group is noted. References to longer ones lead nowhere.
const MAX_GROUP_NAME_CHARS: usize = 128;

enum PatternNode {
    Empty,
    Char(char),
    Class(u32),
    Sequence(Vec<PatternNode>),
    Alternation(Vec<PatternNode>),
    /// `groups`: the numbers of those that are in it, from and to.
    Repeat {
        inner: Box<PatternNode>,
        min: u32,
        max: u32,
        groups: (u32, u32),
    },
    Group {
        inner: Box<PatternNode>,
        number: u32,
    },
    Start,
    End,
    WordBoundary(bool),
    LookAround {
        inner: Box<PatternNode>,
        is_behind: bool,
        is_positive: bool,
    },
    BackReference(u32),
}

struct PatternParser {
    chars: Vec<char>,
    position: usize,
    classes: Vec<CharClass>,
    n_groups: u32,
    /// Names of groups, found before anything is read: a reference may stand before its group.
    group_names: Vec<(String, u32)>,
    n_total_groups: u32,
    has_back_references: bool,
    ignores_case: bool,
}

pub(super) fn parse(text: &str) -> Result<Pattern, PatternError> {
    let mut reader = PatternParser {
        chars: text.chars().collect(),
        position: 0,
        classes: Vec::new(),
        n_groups: 0,
        group_names: Vec::new(),
        n_total_groups: 0,
        has_back_references: false,
        ignores_case: false,
    };
    if reader.chars.len() > MAX_COMPILED_NODES {
        return Err(unsupported(format!("it has more than {MAX_COMPILED_NODES} letters")));
    }
    reader.find_groups();
    if reader.group_names.len() > MAX_NAMED_GROUPS {
        return Err(unsupported(format!("it has more than {MAX_NAMED_GROUPS} groups with names")));
    }
    let tree = reader.parse_alternation(0)?;
    if reader.position < reader.chars.len() {
        return Err(invalid("a `)` that closes nothing"));
    }
    let n_registers = if reader.has_back_references { 2 * reader.n_total_groups } else { 0 };
    let mut writer = PatternCompiler {
        program: Vec::new(),
        n_compiled_nodes: 0,
        n_registers,
        has_back_references: reader.has_back_references,
        classes: reader.classes,
        char_classes: Vec::new(),
    };
    writer.compile(&tree, false)?;
    writer.push(Instruction::Match)?;
    Ok(Pattern {
        text: text.into(),
        program: writer.program.into(),
        classes: writer.classes.into(),
        n_registers: writer.n_registers as usize,
        has_back_references: writer.has_back_references,
    })
}

fn invalid(why: impl Into<String>) -> PatternError {
    PatternError::Invalid(why.into())
}

fn unsupported(why: impl Into<String>) -> PatternError {
    PatternError::Unsupported(why.into())
}

impl PatternParser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.position).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.position += 1;
        Some(letter)
    }

    fn eat(&mut self, text: &str) -> bool {
        let fits =
            text.chars().enumerate().all(|(n, letter)| self.chars.get(self.position + n) == Some(&letter));
        if fits {
            self.position += text.chars().count();
        }
        fits
    }

    /// Counts groups, and notes their names.
    fn find_groups(&mut self) {
        let (mut at, mut is_class) = (0, false);
        while let Some(letter) = self.chars.get(at) {
            match letter {
                '\\' => at += 1,
                '[' => is_class = true,
                ']' => is_class = false,
                '(' if !is_class => {
                    let inside: String = self.chars[at + 1..].iter().take(3).collect();
                    let is_named = inside.starts_with("?P<")
                        || inside.starts_with("?<") && !inside.ends_with(['=', '!']);
                    if is_named {
                        let from = at + if inside.starts_with("?P") { 4 } else { 3 };
                        let letters = self.chars[from..].iter().take(MAX_GROUP_NAME_CHARS);
                        let name = letters.take_while(|letter| **letter != '>').collect();
                        self.group_names.push((name, self.n_total_groups));
                    }
                    self.n_total_groups += u32::from(is_named || !inside.starts_with('?'));
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn parse_alternation(&mut self, depth: usize) -> Result<PatternNode, PatternError> {
        if depth > MAX_GROUP_DEPTH {
            return Err(unsupported(format!("groups are nested deeper than {MAX_GROUP_DEPTH}")));
        }
        let mut all = vec![self.parse_sequence(depth)?];
        while self.eat("|") {
            all.push(self.parse_sequence(depth)?);
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => PatternNode::Alternation(all),
        })
    }

    fn parse_sequence(&mut self, depth: usize) -> Result<PatternNode, PatternError> {
        let mut all = Vec::new();
        while let Some(letter) = self.peek() {
            if letter == '|' || letter == ')' {
                break;
            }
            let first_group = self.n_groups;
            let one = self.parse_atom(depth)?;
            let one = self.parse_repetition(one, (first_group, self.n_groups))?;
            if !matches!(one, PatternNode::Empty) {
                all.push(one);
            }
        }
        Ok(match all.len() {
            0 => PatternNode::Empty,
            1 => all.remove(0),
            _ => PatternNode::Sequence(all),
        })
    }

    fn parse_repetition(
        &mut self,
        what: PatternNode,
        groups: (u32, u32),
    ) -> Result<PatternNode, PatternError> {
        let Some((min, max)) = self.parse_quantifier()? else {
            return Ok(what);
        };
        // Lazy ones find the same texts.
        let _ = self.eat("?");
        if matches!(what, PatternNode::Start | PatternNode::End | PatternNode::WordBoundary(_)) {
            return Err(invalid("nothing that could be repeated"));
        }
        match self.peek() {
            Some('+') => Err(unsupported("a possessive quantifier")),
            Some('*' | '?') => Err(invalid("nothing that could be repeated")),
            _ => Ok(PatternNode::Repeat { inner: Box::new(what), min, max, groups }),
        }
    }

    fn parse_quantifier(&mut self) -> Result<Option<(u32, u32)>, PatternError> {
        let found = match self.peek() {
            Some('*') => (0, u32::MAX),
            Some('+') => (1, u32::MAX),
            Some('?') => (0, 1),
            Some('{') => return self.parse_braces(),
            _ => return Ok(None),
        };
        self.position += 1;
        Ok(Some(found))
    }

    /// `{2}`, `{2,}` or `{2,5}`. Anything else in braces is itself.
    fn parse_braces(&mut self) -> Result<Option<(u32, u32)>, PatternError> {
        let start = self.position;
        self.position += 1;
        let min = self.parse_integer();
        let max = match self.eat(",") {
            true if self.peek() == Some('}') => Some(u32::MAX),
            true => self.parse_integer(),
            false => min,
        };
        match (min, max) {
            (Some(min), Some(max)) if self.eat("}") => match min <= max {
                true => Ok(Some((min, max))),
                false => Err(invalid("a quantifier whose numbers are out of order")),
            },
            _ => {
                self.position = start;
                Ok(None)
            }
        }
    }

    fn parse_integer(&mut self) -> Option<u32> {
        let mut count = None;
        while let Some(digit) = self.peek().and_then(|letter| letter.to_digit(10)) {
            count = Some(count.unwrap_or(0_u32).saturating_mul(10).saturating_add(digit));
            self.position += 1;
        }
        count
    }

    fn parse_atom(&mut self, depth: usize) -> Result<PatternNode, PatternError> {
        match self.next() {
            Some('^') => Ok(PatternNode::Start),
            Some('$') => Ok(PatternNode::End),
            Some('(') => self.parse_group(depth),
            Some('[') => self.parse_class(),
            Some('.') => self.class_node(vec![ClassItem::Category(CharCategory::LineEnd)], true),
            Some('\\') => self.parse_atom_escape(),
            Some('*' | '+' | '?') => Err(invalid("nothing that could be repeated")),
            Some('{') => {
                self.position -= 1;
                if self.parse_quantifier()?.is_some() {
                    return Err(invalid("nothing that could be repeated"));
                }
                self.position += 1;
                self.char_node('{')
            }
            Some(letter) => self.char_node(letter),
            None => Ok(PatternNode::Empty),
        }
    }

    fn char_node(&mut self, letter: char) -> Result<PatternNode, PatternError> {
        match self.ignores_case {
            true => self.class_node(vec![ClassItem::Range(letter, letter)], false),
            false => Ok(PatternNode::Char(letter)),
        }
    }

    fn class_node(&mut self, parts: Vec<ClassItem>, is_negated: bool) -> Result<PatternNode, PatternError> {
        self.classes.push(CharClass::new(parts, is_negated, self.ignores_case));
        Ok(PatternNode::Class(instruction_index(self.classes.len() - 1)?))
    }

    fn parse_group(&mut self, depth: usize) -> Result<PatternNode, PatternError> {
        let was_caseless = self.ignores_case;
        let mut look = None;
        let mut number = None;
        if !self.eat("?") {
            number = Some(self.n_groups);
        } else if self.eat("=") {
            look = Some((false, true));
        } else if self.eat("!") {
            look = Some((false, false));
        } else if self.eat("<=") {
            look = Some((true, true));
        } else if self.eat("<!") {
            look = Some((true, false));
        } else if self.eat("<") || self.eat("P<") {
            number = Some(self.n_groups);
            self.parse_group_name()?;
        } else if self.eat("i:") {
            self.ignores_case = true;
        } else if self.eat("-i:") {
            self.ignores_case = false;
        } else if self.eat("i)") {
            // For all that follows in the group around it, as in most languages; in ECMA-262 it is wrong.
            self.ignores_case = true;
            return Ok(PatternNode::Empty);
        } else if !self.eat(":") {
            let what: String = self.chars[self.position..].iter().take(2).collect();
            return Err(unsupported(format!("a group that begins with `(?{what}`")));
        }
        self.n_groups += u32::from(number.is_some());
        let what = Box::new(self.parse_alternation(depth + 1)?);
        if !self.eat(")") {
            return Err(invalid("a group that is not closed"));
        }
        self.ignores_case = was_caseless;
        Ok(match (look, number) {
            (Some((is_behind, is_wanted)), _) => {
                PatternNode::LookAround { inner: what, is_behind, is_positive: is_wanted }
            }
            (None, Some(number)) => PatternNode::Group { inner: what, number },
            (None, None) => *what,
        })
    }

    fn parse_group_name(&mut self) -> Result<String, PatternError> {
        let mut name = String::new();
        loop {
            match self.next() {
                Some('>') if !name.is_empty() => return Ok(name),
                Some(letter) if letter.is_alphanumeric() || letter == '_' || letter == '$' => {
                    name.push(letter)
                }
                _ => return Err(invalid("a group whose name is none")),
            }
        }
    }

    fn parse_atom_escape(&mut self) -> Result<PatternNode, PatternError> {
        let Some(letter) = self.peek() else {
            return Err(invalid("a `\\` at the end"));
        };
        if let Some(part) = self.parse_class_escape()? {
            return self.class_node(vec![part], false);
        }
        match letter {
            'b' | 'B' => {
                self.position += 1;
                Ok(PatternNode::WordBoundary(letter == 'b'))
            }
            'A' => {
                self.position += 1;
                Ok(PatternNode::Start)
            }
            'z' | 'Z' => {
                self.position += 1;
                Ok(PatternNode::End)
            }
            '1'..='9' => {
                let number = self.parse_integer().unwrap_or(u32::MAX);
                self.back_reference(number.checked_sub(1).filter(|group| *group < self.n_total_groups))
            }
            'k' => {
                self.position += 1;
                if !self.eat("<") {
                    return Err(invalid("a reference without a name"));
                }
                let name = self.parse_group_name()?;
                let group =
                    self.group_names.iter().find(|(known, _)| *known == name).map(|(_, group)| *group);
                self.back_reference(group)
            }
            _ => {
                let letter = self.parse_character_escape()?;
                self.char_node(letter)
            }
        }
    }

    fn back_reference(&mut self, group: Option<u32>) -> Result<PatternNode, PatternError> {
        self.has_back_references = true;
        match group {
            Some(group) if !self.ignores_case => Ok(PatternNode::BackReference(group)),
            Some(_) => Err(unsupported("a reference to a group in any case")),
            None => Err(invalid("a reference to a group that is not there")),
        }
    }

    /// `\d` and its like, behind the backslash. Nothing is read if it is something else.
    fn parse_class_escape(&mut self) -> Result<Option<ClassItem>, PatternError> {
        let part = match self.peek() {
            Some('d') => ClassItem::Category(CharCategory::Digit),
            Some('D') => ClassItem::NotCategory(CharCategory::Digit),
            Some('w') => ClassItem::Category(CharCategory::Word),
            Some('W') => ClassItem::NotCategory(CharCategory::Word),
            Some('s') => ClassItem::Category(CharCategory::Space),
            Some('S') => ClassItem::NotCategory(CharCategory::Space),
            Some(letter @ ('p' | 'P')) => {
                self.position += 1;
                let kind = self.parse_property()?;
                return Ok(Some(if letter == 'p' {
                    ClassItem::Category(kind)
                } else {
                    ClassItem::NotCategory(kind)
                }));
            }
            _ => return Ok(None),
        };
        self.position += 1;
        Ok(Some(part))
    }

    fn parse_property(&mut self) -> Result<CharCategory, PatternError> {
        let name: String = match self.next() {
            Some('{') => self.chars[self.position..].iter().take_while(|letter| **letter != '}').collect(),
            Some(letter) if letter.is_ascii_alphabetic() => {
                return CharCategory::from_property_name(&letter.to_string())
                    .ok_or_else(|| unsupported(format!("the property `{letter}` of characters")));
            }
            _ => return Err(invalid("a property of characters without a name")),
        };
        self.position += name.chars().count();
        if !self.eat("}") {
            return Err(invalid("a property of characters whose name does not end"));
        }
        CharCategory::from_property_name(&name)
            .ok_or_else(|| unsupported(format!("the property `{name}` of characters")))
    }

    /// One character, behind the backslash.
    fn parse_character_escape(&mut self) -> Result<char, PatternError> {
        let letter = self.next().ok_or_else(|| invalid("a `\\` at the end"))?;
        Ok(match letter {
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            '0' if !self.peek().is_some_and(|letter| letter.is_ascii_digit()) => '\0',
            'c' => match self.next() {
                Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
                _ => return Err(invalid("a `\\c` without a letter")),
            },
            'x' => self
                .parse_hex(2)
                .and_then(char::from_u32)
                .ok_or_else(|| invalid("a `\\x` without two digits"))?,
            'u' => self.parse_code_point()?,
            letter if letter.is_ascii_alphanumeric() => return Err(unsupported(format!("`\\{letter}`"))),
            letter => letter,
        })
    }

    fn parse_code_point(&mut self) -> Result<char, PatternError> {
        let wrong = || invalid("a `\\u` without the digits of a character");
        if self.eat("{") {
            let digits: String =
                self.chars[self.position..].iter().take_while(|letter| **letter != '}').collect();
            self.position += digits.chars().count();
            if !self.eat("}") {
                return Err(wrong());
            }
            let code = u32::from_str_radix(&digits, 16).map_err(|_| wrong())?;
            return char::from_u32(code).ok_or_else(wrong);
        }
        let first = self.parse_hex(4).ok_or_else(wrong)?;
        if (0xd800..0xdc00).contains(&first) && self.eat("\\u") {
            let second =
                self.parse_hex(4).filter(|code| (0xdc00..0xe000).contains(code)).ok_or_else(wrong)?;
            return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(wrong);
        }
        // No text has half a character.
        char::from_u32(first).ok_or_else(|| unsupported("half a character"))
    }

    fn parse_hex(&mut self, n_digits: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..n_digits {
            code = code * 16 + self.peek()?.to_digit(16)?;
            self.position += 1;
        }
        Some(code)
    }

    fn parse_class(&mut self) -> Result<PatternNode, PatternError> {
        let is_negated = self.eat("^");
        let mut parts = Vec::new();
        loop {
            if self.eat("]") {
                return self.class_node(parts, is_negated);
            }
            let from = self.parse_class_item()?;
            let is_range = self.peek() == Some('-')
                && self.chars.get(self.position + 1).is_some_and(|then| *then != ']');
            if !is_range {
                parts.push(from);
                continue;
            }
            self.position += 1;
            match (from, self.parse_class_item()?) {
                (ClassItem::Range(from, _), ClassItem::Range(to, _)) if from <= to => {
                    parts.push(ClassItem::Range(from, to))
                }
                (ClassItem::Range(..), ClassItem::Range(..)) => {
                    return Err(invalid("a range that is out of order"));
                }
                // Nothing that a range could begin or end with, so the hyphen is itself.
                (one, other) => parts.extend([one, ClassItem::Range('-', '-'), other]),
            }
        }
    }

    fn parse_class_item(&mut self) -> Result<ClassItem, PatternError> {
        let letter = match self.next() {
            None => return Err(invalid("a `[` that is not closed")),
            Some('\\') => match self.parse_class_escape()? {
                Some(part) => return Ok(part),
                None if self.eat("b") => '\u{8}',
                None => self.parse_character_escape()?,
            },
            Some(letter) => letter,
        };
        Ok(ClassItem::Range(letter, letter))
    }
}

struct PatternCompiler {
    program: Vec<Instruction>,
    n_compiled_nodes: usize,
    n_registers: u32,
    has_back_references: bool,
    classes: Vec<CharClass>,
    /// Classes of one letter, made once for each.
    char_classes: Vec<(char, u32)>,
}

fn instruction_index(at: usize) -> Result<u32, PatternError> {
    u32::try_from(at).map_err(|_| unsupported("it is too large"))
}

impl PatternCompiler {
    fn push(&mut self, step: Instruction) -> Result<(), PatternError> {
        if self.program.len() >= MAX_INSTRUCTIONS {
            return Err(unsupported(format!("it has more than {MAX_INSTRUCTIONS} steps")));
        }
        self.program.push(step);
        Ok(())
    }

    fn next_index(&self) -> Result<u32, PatternError> {
        instruction_index(self.program.len())
    }

    /// A step that is known only when what follows is written.
    fn push_placeholder(&mut self) -> Result<usize, PatternError> {
        self.push(Instruction::Match)?;
        Ok(self.program.len() - 1)
    }

    /// `is_back`: what is found in a text from right to left.
    fn compile(&mut self, tree: &PatternNode, is_back: bool) -> Result<(), PatternError> {
        self.n_compiled_nodes += 1;
        if self.n_compiled_nodes > MAX_COMPILED_NODES {
            return Err(unsupported(format!("it has more than {MAX_COMPILED_NODES} parts")));
        }
        match tree {
            PatternNode::Empty => Ok(()),
            PatternNode::Char(letter) => self.push(Instruction::Char(*letter)),
            PatternNode::Class(class) => self.push(Instruction::Class(*class)),
            PatternNode::Start => self.push(Instruction::Start),
            PatternNode::End => self.push(Instruction::End),
            PatternNode::WordBoundary(is_wanted) => self.push(Instruction::WordBoundary(*is_wanted)),
            PatternNode::BackReference(group) => self.push(Instruction::BackReference(*group)),
            PatternNode::Sequence(all) => match is_back {
                false => all.iter().try_for_each(|one| self.compile(one, is_back)),
                true => all.iter().rev().try_for_each(|one| self.compile(one, is_back)),
            },
            PatternNode::Alternation(all) => self.compile_alternation(all, is_back),
            PatternNode::Group { inner: what, number } if self.has_back_references => {
                self.push(Instruction::SavePosition(2 * number))?;
                self.compile(what, is_back)?;
                self.push(Instruction::SavePosition(2 * number + 1))
            }
            PatternNode::Group { inner: what, .. } => self.compile(what, is_back),
            PatternNode::LookAround { inner: what, is_behind, is_positive: is_wanted } => {
                let gap = self.push_placeholder()?;
                self.compile(what, *is_behind)?;
                self.push(Instruction::Match)?;
                let end = self.next_index()?;
                self.program[gap] =
                    Instruction::LookAround { is_behind: *is_behind, is_positive: *is_wanted, end };
                Ok(())
            }
            PatternNode::Repeat { inner: what, min, max, groups } => {
                self.compile_repeat(what, *min, *max, *groups, is_back)
            }
        }
    }

    fn compile_alternation(&mut self, all: &[PatternNode], is_back: bool) -> Result<(), PatternError> {
        let mut ends = Vec::new();
        for (n, one) in all.iter().enumerate() {
            if n + 1 == all.len() {
                self.compile(one, is_back)?;
                break;
            }
            let fork = self.push_placeholder()?;
            self.compile(one, is_back)?;
            ends.push(self.push_placeholder()?);
            self.program[fork] = Instruction::Split(instruction_index(fork + 1)?, self.next_index()?);
        }
        let end = self.next_index()?;
        for gap in ends {
            self.program[gap] = Instruction::Jump(end);
        }
        Ok(())
    }

    fn compile_repeat(
        &mut self,
        what: &PatternNode,
        min: u32,
        max: u32,
        groups: (u32, u32),
        is_back: bool,
    ) -> Result<(), PatternError> {
        match what {
            _ if max == 0 => return Ok(()),
            PatternNode::Class(class) => {
                return self.push(Instruction::RepeatClass { class: *class, min, max });
            }
            PatternNode::Char(letter) => {
                let class = match self.char_classes.iter().find(|(known, _)| known == letter) {
                    Some((_, class)) => *class,
                    None => {
                        self.classes.push(CharClass::new(
                            vec![ClassItem::Range(*letter, *letter)],
                            false,
                            false,
                        ));
                        let class = instruction_index(self.classes.len() - 1)?;
                        self.char_classes.push((*letter, class));
                        class
                    }
                };
                return self.push(Instruction::RepeatClass { class, min, max });
            }
            _ => {}
        }
        for _ in 0..min {
            let n_steps = self.program.len();
            self.compile_repeat_body(what, groups, is_back)?;
            if self.program.len() == n_steps {
                // Nothing, however often.
                return Ok(());
            }
        }
        if max == u32::MAX {
            return self.compile_unbounded(what, groups, is_back);
        }
        // Each may be the last: `(?:x(?:x(?:x)?)?)?`.
        let mut forks = Vec::new();
        for _ in min..max {
            forks.push(self.push_placeholder()?);
            self.compile_repeat_body(what, groups, is_back)?;
        }
        let end = self.next_index()?;
        for fork in forks {
            self.program[fork] = Instruction::Split(instruction_index(fork + 1)?, end);
        }
        Ok(())
    }

    fn compile_unbounded(
        &mut self,
        what: &PatternNode,
        groups: (u32, u32),
        is_back: bool,
    ) -> Result<(), PatternError> {
        let fork = self.push_placeholder()?;
        match can_be_empty(what) {
            // One round that matches nothing is as good as a thousand.
            true => {
                let register = self.n_registers;
                self.n_registers += 1;
                self.push(Instruction::SavePosition(register))?;
                self.compile_repeat_body(what, groups, is_back)?;
                self.push(Instruction::RequireProgress(register))?;
            }
            false => self.compile_repeat_body(what, groups, is_back)?,
        }
        self.push(Instruction::Jump(instruction_index(fork)?))?;
        self.program[fork] = Instruction::Split(instruction_index(fork + 1)?, self.next_index()?);
        Ok(())
    }

    /// One round of a repetition. Groups in it begin anew.
    fn compile_repeat_body(
        &mut self,
        what: &PatternNode,
        (from, to): (u32, u32),
        is_back: bool,
    ) -> Result<(), PatternError> {
        if self.has_back_references && from < to {
            self.push(Instruction::ClearGroups { from: 2 * from, to: 2 * to })?;
        }
        self.compile(what, is_back)
    }
}

fn can_be_empty(tree: &PatternNode) -> bool {
    match tree {
        PatternNode::Char(_) | PatternNode::Class(_) => false,
        PatternNode::Sequence(all) => all.iter().all(can_be_empty),
        PatternNode::Alternation(all) => all.iter().any(can_be_empty),
        PatternNode::Repeat { inner: what, min, .. } => *min == 0 || can_be_empty(what),
        PatternNode::Group { inner: what, .. } => can_be_empty(what),
        _ => true,
    }
}
