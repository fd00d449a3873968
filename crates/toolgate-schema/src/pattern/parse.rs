//! Parses the text of a pattern into a tree. Escapes and character classes are in `escape.rs`.

use super::class::{CharCategory, CharClass, ClassItem};
use super::{Direction, MAX_NODES, PatternError, to_index};

/// The maximum nesting depth of groups.
const MAX_GROUP_DEPTH: usize = 64;
/// The maximum number of named groups. A reference searches all of them.
const MAX_NAMED_GROUPS: usize = 1000;

/// How many characters of a group's name are kept. References to longer names do not resolve.
const MAX_GROUP_NAME_CHARS: usize = 128;

/// A parsed pattern, before it is compiled.
pub(super) struct ParsedPattern {
    pub(super) tree: PatternNode,
    /// Indexed by [`PatternNode::Class`].
    pub(super) classes: Vec<CharClass>,
    pub(super) n_groups: u32,
    pub(super) has_back_references: bool,
}

/// One node of a pattern's tree.
pub(super) enum PatternNode {
    Empty,
    Char(char),
    Class(u32),
    Sequence(Vec<PatternNode>),
    Alternation(Vec<PatternNode>),
    Repeat {
        inner: Box<PatternNode>,
        min: u32,
        max: u32,
        /// The numbers of the groups inside: first, and one past the last.
        groups: (u32, u32),
    },
    Group {
        inner: Box<PatternNode>,
        number: u32,
    },
    Start,
    End,
    /// `\b` if true, `\B` if false.
    WordBoundary(bool),
    LookAround {
        inner: Box<PatternNode>,
        direction: Direction,
        is_positive: bool,
    },
    BackReference(u32),
}

pub(super) struct PatternParser {
    pub(super) chars: Vec<char>,
    pub(super) position: usize,
    classes: Vec<CharClass>,
    /// Groups opened so far.
    n_groups: u32,
    /// Names of all groups, collected before parsing: a reference may precede its group.
    pub(super) group_names: Vec<(String, u32)>,
    pub(super) n_total_groups: u32,
    pub(super) has_back_references: bool,
    pub(super) ignores_case: bool,
}

/// Parses the text of a pattern.
///
/// # Errors
/// If the text is not a valid pattern, or uses a feature that is not supported, or exceeds a limit.
pub(super) fn parse(text: &str) -> Result<ParsedPattern, PatternError> {
    let mut parser = PatternParser {
        chars: text.chars().collect(),
        position: 0,
        classes: Vec::new(),
        n_groups: 0,
        group_names: Vec::new(),
        n_total_groups: 0,
        has_back_references: false,
        ignores_case: false,
    };
    if parser.chars.len() > MAX_NODES {
        return Err(PatternError::unsupported(format!("it has more than {MAX_NODES} characters")));
    }
    parser.find_groups();
    if parser.group_names.len() > MAX_NAMED_GROUPS {
        return Err(PatternError::unsupported(format!("it has more than {MAX_NAMED_GROUPS} named groups")));
    }
    let tree = parser.parse_alternation(0)?;
    if parser.position < parser.chars.len() {
        return Err(PatternError::invalid("unmatched `)`"));
    }
    let PatternParser { classes, n_total_groups: n_groups, has_back_references, .. } = parser;
    Ok(ParsedPattern { tree, classes, n_groups, has_back_references })
}

impl PatternParser {
    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.position).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += 1;
        Some(character)
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let fits = text
            .chars()
            .enumerate()
            .all(|(n, character)| self.chars.get(self.position + n) == Some(&character));
        if fits {
            self.position += text.chars().count();
        }
        fits
    }

    /// Counts all groups and collects their names.
    fn find_groups(&mut self) {
        let (mut at, mut is_class) = (0, false);
        while let Some(character) = self.chars.get(at) {
            match character {
                '\\' => at += 1,
                '[' => is_class = true,
                ']' => is_class = false,
                '(' if !is_class => {
                    let inside: String = self.chars[at + 1..].iter().take(3).collect();
                    let is_named = inside.starts_with("?P<")
                        || inside.starts_with("?<") && !inside.ends_with(['=', '!']);
                    if is_named {
                        let from = at + if inside.starts_with("?P") { 4 } else { 3 };
                        let characters = self.chars[from..].iter().take(MAX_GROUP_NAME_CHARS);
                        let name = characters.take_while(|character| **character != '>').collect();
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
            return Err(PatternError::unsupported(format!(
                "groups are nested deeper than {MAX_GROUP_DEPTH}"
            )));
        }
        let mut branches = vec![self.parse_sequence(depth)?];
        while self.eat("|") {
            branches.push(self.parse_sequence(depth)?);
        }
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => PatternNode::Alternation(branches),
        })
    }

    fn parse_sequence(&mut self, depth: usize) -> Result<PatternNode, PatternError> {
        let mut nodes = Vec::new();
        while let Some(character) = self.peek() {
            if character == '|' || character == ')' {
                break;
            }
            let first_group = self.n_groups;
            let node = self.parse_atom(depth)?;
            let node = self.parse_repetition(node, (first_group, self.n_groups))?;
            if !matches!(node, PatternNode::Empty) {
                nodes.push(node);
            }
        }
        Ok(match nodes.len() {
            0 => PatternNode::Empty,
            1 => nodes.remove(0),
            _ => PatternNode::Sequence(nodes),
        })
    }

    fn parse_repetition(
        &mut self,
        inner: PatternNode,
        groups: (u32, u32),
    ) -> Result<PatternNode, PatternError> {
        let Some((min, max)) = self.parse_quantifier()? else {
            return Ok(inner);
        };
        // A lazy quantifier accepts the same texts: only whether there is a match matters.
        let _ = self.eat("?");
        if matches!(inner, PatternNode::Start | PatternNode::End | PatternNode::WordBoundary(_)) {
            return Err(PatternError::invalid("nothing to repeat"));
        }
        match self.peek() {
            Some('+') => Err(PatternError::unsupported("possessive quantifiers are not supported")),
            Some('*' | '?') => Err(PatternError::invalid("nothing to repeat")),
            _ => Ok(PatternNode::Repeat { inner: Box::new(inner), min, max, groups }),
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

    /// Parses `{2}`, `{2,}` or `{2,5}`. Braces around anything else are literal characters.
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
                false => Err(PatternError::invalid("the numbers of a quantifier are out of order")),
            },
            _ => {
                self.position = start;
                Ok(None)
            }
        }
    }

    pub(super) fn parse_integer(&mut self) -> Option<u32> {
        let mut count = None;
        while let Some(digit) = self.peek().and_then(|character| character.to_digit(10)) {
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
            Some('*' | '+' | '?') => Err(PatternError::invalid("nothing to repeat")),
            Some('{') => {
                self.position -= 1;
                if self.parse_quantifier()?.is_some() {
                    return Err(PatternError::invalid("nothing to repeat"));
                }
                self.position += 1;
                self.char_node('{')
            }
            Some(character) => self.char_node(character),
            None => Ok(PatternNode::Empty),
        }
    }

    pub(super) fn char_node(&mut self, character: char) -> Result<PatternNode, PatternError> {
        match self.ignores_case {
            true => self.class_node(vec![ClassItem::Range(character, character)], false),
            false => Ok(PatternNode::Char(character)),
        }
    }

    pub(super) fn class_node(
        &mut self,
        items: Vec<ClassItem>,
        is_negated: bool,
    ) -> Result<PatternNode, PatternError> {
        self.classes.push(CharClass::new(items, is_negated, self.ignores_case));
        Ok(PatternNode::Class(to_index(self.classes.len() - 1)?))
    }

    fn parse_group(&mut self, depth: usize) -> Result<PatternNode, PatternError> {
        let outer_ignores_case = self.ignores_case;
        let mut look = None;
        let mut number = None;
        if !self.eat("?") {
            number = Some(self.n_groups);
        } else if self.eat("=") {
            look = Some((Direction::Forward, true));
        } else if self.eat("!") {
            look = Some((Direction::Forward, false));
        } else if self.eat("<=") {
            look = Some((Direction::Backward, true));
        } else if self.eat("<!") {
            look = Some((Direction::Backward, false));
        } else if self.eat("<") || self.eat("P<") {
            number = Some(self.n_groups);
            self.parse_group_name()?;
        } else if self.eat("i:") {
            self.ignores_case = true;
        } else if self.eat("-i:") {
            self.ignores_case = false;
        } else if self.eat("i)") {
            // Applies to the rest of the enclosing group, as in most regex dialects; ECMA-262 does not have it.
            self.ignores_case = true;
            return Ok(PatternNode::Empty);
        } else if !self.eat(":") {
            let start: String = self.chars[self.position..].iter().take(2).collect();
            return Err(PatternError::unsupported(format!(
                "groups that begin with `(?{start}` are not supported"
            )));
        }
        self.n_groups += u32::from(number.is_some());
        let inner = Box::new(self.parse_alternation(depth + 1)?);
        if !self.eat(")") {
            return Err(PatternError::invalid("unclosed group"));
        }
        self.ignores_case = outer_ignores_case;
        Ok(match (look, number) {
            (Some((direction, is_positive)), _) => PatternNode::LookAround { inner, direction, is_positive },
            (None, Some(number)) => PatternNode::Group { inner, number },
            (None, None) => *inner,
        })
    }

    pub(super) fn parse_group_name(&mut self) -> Result<String, PatternError> {
        let mut name = String::new();
        loop {
            match self.next() {
                Some('>') if !name.is_empty() => return Ok(name),
                Some(character) if character.is_alphanumeric() || character == '_' || character == '$' => {
                    name.push(character)
                }
                _ => return Err(PatternError::invalid("invalid group name")),
            }
        }
    }
}
