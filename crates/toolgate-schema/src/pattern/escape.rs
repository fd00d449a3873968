//! Parses escapes (`\d`, `\u0041`, `\1`, `\p{L}`) and character classes (`[a-z]`).

use super::PatternError;
use super::class::{CharCategory, ClassItem};
use super::parse::{PatternNode, PatternParser};

impl PatternParser {
    pub(super) fn parse_atom_escape(&mut self) -> Result<PatternNode, PatternError> {
        let Some(character) = self.peek() else {
            return Err(PatternError::invalid("trailing `\\`"));
        };
        if let Some(item) = self.parse_class_escape()? {
            return self.class_node(vec![item], false);
        }
        match character {
            'b' | 'B' => {
                self.position += 1;
                Ok(PatternNode::WordBoundary(character == 'b'))
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
                    return Err(PatternError::invalid("back reference without a group name"));
                }
                let name = self.parse_group_name()?;
                let group =
                    self.group_names.iter().find(|(known, _)| *known == name).map(|(_, group)| *group);
                self.back_reference(group)
            }
            _ => {
                let character = self.parse_character_escape()?;
                self.char_node(character)
            }
        }
    }

    fn back_reference(&mut self, group: Option<u32>) -> Result<PatternNode, PatternError> {
        self.has_back_references = true;
        match group {
            Some(group) if !self.ignores_case => Ok(PatternNode::BackReference(group)),
            Some(_) => Err(PatternError::unsupported("case-insensitive back references are not supported")),
            None => Err(PatternError::invalid("back reference to a group that does not exist")),
        }
    }

    /// Parses a class escape such as `\d`, after the backslash. Returns `None` and reads nothing if the text is not a
    /// class escape.
    fn parse_class_escape(&mut self) -> Result<Option<ClassItem>, PatternError> {
        let item = match self.peek() {
            Some('d') => ClassItem::Category(CharCategory::Digit),
            Some('D') => ClassItem::NotCategory(CharCategory::Digit),
            Some('w') => ClassItem::Category(CharCategory::Word),
            Some('W') => ClassItem::NotCategory(CharCategory::Word),
            Some('s') => ClassItem::Category(CharCategory::Space),
            Some('S') => ClassItem::NotCategory(CharCategory::Space),
            Some(character @ ('p' | 'P')) => {
                self.position += 1;
                let kind = self.parse_property()?;
                return Ok(Some(if character == 'p' {
                    ClassItem::Category(kind)
                } else {
                    ClassItem::NotCategory(kind)
                }));
            }
            _ => return Ok(None),
        };
        self.position += 1;
        Ok(Some(item))
    }

    fn parse_property(&mut self) -> Result<CharCategory, PatternError> {
        let name: String = match self.next() {
            Some('{') => {
                self.chars[self.position..].iter().take_while(|character| **character != '}').collect()
            }
            Some(character) if character.is_ascii_alphabetic() => {
                return CharCategory::from_property_name(&character.to_string()).ok_or_else(|| {
                    PatternError::unsupported(format!(
                        "the character property `{character}` is not supported"
                    ))
                });
            }
            _ => return Err(PatternError::invalid("character property without a name")),
        };
        self.position += name.chars().count();
        if !self.eat("}") {
            return Err(PatternError::invalid("unclosed name of a character property"));
        }
        CharCategory::from_property_name(&name).ok_or_else(|| {
            PatternError::unsupported(format!("the character property `{name}` is not supported"))
        })
    }

    /// Parses an escape of a single character, after the backslash.
    fn parse_character_escape(&mut self) -> Result<char, PatternError> {
        let character = self.next().ok_or_else(|| PatternError::invalid("trailing `\\`"))?;
        Ok(match character {
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            '0' if !self.peek().is_some_and(|character| character.is_ascii_digit()) => '\0',
            'c' => match self.next() {
                Some(character) if character.is_ascii_alphabetic() => char::from(character as u8 % 32),
                _ => return Err(PatternError::invalid("`\\c` without a letter")),
            },
            'x' => self
                .parse_hex(2)
                .and_then(char::from_u32)
                .ok_or_else(|| PatternError::invalid("`\\x` without two hex digits"))?,
            'u' => self.parse_code_point()?,
            character if character.is_ascii_alphanumeric() => {
                return Err(PatternError::unsupported(format!(
                    "the escape `\\{character}` is not supported"
                )));
            }
            character => character,
        })
    }

    fn parse_code_point(&mut self) -> Result<char, PatternError> {
        let error = || PatternError::invalid("`\\u` without the hex digits of a character");
        if self.eat("{") {
            let digits: String =
                self.chars[self.position..].iter().take_while(|character| **character != '}').collect();
            self.position += digits.chars().count();
            if !self.eat("}") {
                return Err(error());
            }
            let code = u32::from_str_radix(&digits, 16).map_err(|_| error())?;
            return char::from_u32(code).ok_or_else(error);
        }
        let first = self.parse_hex(4).ok_or_else(error)?;
        if (0xd800..0xdc00).contains(&first) && self.eat("\\u") {
            let second =
                self.parse_hex(4).filter(|code| (0xdc00..0xe000).contains(code)).ok_or_else(error)?;
            return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(error);
        }
        // A Rust string never contains an unpaired surrogate.
        char::from_u32(first)
            .ok_or_else(|| PatternError::unsupported("unpaired surrogates are not supported"))
    }

    fn parse_hex(&mut self, n_digits: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..n_digits {
            code = code * 16 + self.peek()?.to_digit(16)?;
            self.position += 1;
        }
        Some(code)
    }

    pub(super) fn parse_class(&mut self) -> Result<PatternNode, PatternError> {
        let is_negated = self.eat("^");
        let mut items = Vec::new();
        loop {
            if self.eat("]") {
                return self.class_node(items, is_negated);
            }
            let from = self.parse_class_item()?;
            let is_range = self.peek() == Some('-')
                && self.chars.get(self.position + 1).is_some_and(|then| *then != ']');
            if !is_range {
                items.push(from);
                continue;
            }
            self.position += 1;
            match (from, self.parse_class_item()?) {
                (ClassItem::Range(from, _), ClassItem::Range(to, _)) if from <= to => {
                    items.push(ClassItem::Range(from, to))
                }
                (ClassItem::Range(..), ClassItem::Range(..)) => {
                    return Err(PatternError::invalid("the ends of a range are out of order"));
                }
                // `\d-x`: a category cannot be the end of a range, so the hyphen is literal.
                (one, other) => items.extend([one, ClassItem::Range('-', '-'), other]),
            }
        }
    }

    fn parse_class_item(&mut self) -> Result<ClassItem, PatternError> {
        let character = match self.next() {
            None => return Err(PatternError::invalid("unclosed `[`")),
            Some('\\') => match self.parse_class_escape()? {
                Some(item) => return Ok(item),
                None if self.eat("b") => '\u{8}',
                None => self.parse_character_escape()?,
            },
            Some(character) => character,
        };
        Ok(ClassItem::Range(character, character))
    }
}
