//! Character classes.

/// A set of characters. Membership of ASCII characters is precomputed.
#[derive(Debug, Clone)]
pub(super) struct CharClass {
    ascii: u128,
    items: Box<[ClassItem]>,
    is_negated: bool,
    ignores_case: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClassItem {
    Range(char, char),
    Category(CharCategory),
    NotCategory(CharCategory),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CharCategory {
    Any,
    /// Line terminators, which `.` does not match.
    LineEnd,
    Digit,
    Word,
    Space,
    Letter,
    Upper,
    Lower,
    /// Letters without case.
    UncasedLetter,
    Number,
    Decimal,
    Control,
    Separator,
    SpaceSeparator,
    WhiteSpace,
    Punctuation,
    Symbol,
    Mark,
    Ascii,
    HexDigit,
}

impl CharClass {
    pub(super) fn new(items: Vec<ClassItem>, is_negated: bool, ignores_case: bool) -> CharClass {
        let mut class = CharClass { ascii: 0, items: items.into(), is_negated, ignores_case };
        for character in (0..128_u8).map(char::from) {
            class.ascii |= u128::from(class.matches_item(character) != is_negated) << u32::from(character);
        }
        class
    }

    #[inline]
    pub(super) fn contains(&self, character: char) -> bool {
        match u32::from(character) {
            code @ 0..128 => self.ascii >> code & 1 == 1,
            _ => self.matches_item(character) != self.is_negated,
        }
    }

    #[inline]
    pub(super) fn contains_ascii(&self, byte: u8) -> bool {
        self.ascii >> (byte & 127) & 1 == 1
    }

    fn matches_item(&self, character: char) -> bool {
        let is_in_items = |character| self.items.iter().any(|item| item.contains(character));
        is_in_items(character) || self.ignores_case && case_variants(character).any(is_in_items)
    }
}

/// Returns the case variants of a character that are a single character.
fn case_variants(character: char) -> impl Iterator<Item = char> {
    single_char(character.to_lowercase()).into_iter().chain(single_char(character.to_uppercase()))
}

fn single_char(mut characters: impl Iterator<Item = char>) -> Option<char> {
    characters.next().filter(|_| characters.next().is_none())
}

impl ClassItem {
    fn contains(self, character: char) -> bool {
        match self {
            ClassItem::Range(from, to) => from <= character && character <= to,
            ClassItem::Category(category) => category.contains(character),
            ClassItem::NotCategory(category) => !category.contains(character),
        }
    }
}

impl CharCategory {
    /// Returns the category for a name in `\p{..}`.
    pub(super) fn from_property_name(name: &str) -> Option<CharCategory> {
        let name =
            ["General_Category=", "gc="].iter().find_map(|start| name.strip_prefix(start)).unwrap_or(name);
        Some(match name {
            "Any" => CharCategory::Any,
            "ASCII" => CharCategory::Ascii,
            "ASCII_Hex_Digit" | "AHex" => CharCategory::HexDigit,
            "L" | "Letter" | "Alphabetic" | "Alpha" => CharCategory::Letter,
            "Lu" | "Uppercase_Letter" | "Uppercase" | "Upper" => CharCategory::Upper,
            "Ll" | "Lowercase_Letter" | "Lowercase" | "Lower" => CharCategory::Lower,
            "Lo" | "Other_Letter" => CharCategory::UncasedLetter,
            "N" | "Number" => CharCategory::Number,
            "Nd" | "Decimal_Number" | "digit" => CharCategory::Decimal,
            "Cc" | "Control" | "cntrl" => CharCategory::Control,
            "Z" | "Separator" => CharCategory::Separator,
            "Zs" | "Space_Separator" => CharCategory::SpaceSeparator,
            "White_Space" | "space" => CharCategory::WhiteSpace,
            "P" | "Punctuation" | "punct" => CharCategory::Punctuation,
            "S" | "Symbol" => CharCategory::Symbol,
            "M" | "Mark" | "Combining_Mark" => CharCategory::Mark,
            _ => return None,
        })
    }

    fn contains(self, character: char) -> bool {
        match self {
            CharCategory::Any => true,
            CharCategory::LineEnd => matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}'),
            CharCategory::Digit => character.is_ascii_digit(),
            CharCategory::Word => is_word(character),
            CharCategory::Space => {
                character == '\u{feff}' || character != '\u{85}' && character.is_whitespace()
            }
            CharCategory::Letter => character.is_alphabetic(),
            CharCategory::Upper => character.is_uppercase(),
            CharCategory::Lower => character.is_lowercase(),
            CharCategory::UncasedLetter => {
                character.is_alphabetic() && !character.is_uppercase() && !character.is_lowercase()
            }
            CharCategory::Number => character.is_numeric(),
            CharCategory::Decimal => is_decimal(character),
            CharCategory::Control => character.is_control(),
            CharCategory::Separator => character.is_whitespace() && !character.is_control(),
            CharCategory::SpaceSeparator => {
                character.is_whitespace()
                    && !character.is_control()
                    && !matches!(character, '\u{2028}' | '\u{2029}')
            }
            CharCategory::WhiteSpace => character.is_whitespace(),
            CharCategory::Punctuation => match character.is_ascii() {
                true => character.is_ascii_punctuation() && !SYMBOLS.contains(character),
                false => is_other_symbol(character),
            },
            CharCategory::Symbol => match character.is_ascii() {
                true => SYMBOLS.contains(character),
                false => is_other_symbol(character),
            },
            CharCategory::Mark => !character.is_ascii() && is_other_symbol(character),
            CharCategory::Ascii => character.is_ascii(),
            CharCategory::HexDigit => character.is_ascii_hexdigit(),
        }
    }
}

const SYMBOLS: &str = "$+<=>^`|~";

pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Neither letter, number, space nor control. The standard library cannot distinguish these further.
fn is_other_symbol(character: char) -> bool {
    !character.is_alphanumeric() && !character.is_whitespace() && !character.is_control()
}

/// Decimal digits come in groups of ten, which begin at these zeros. `python3 -c` with `unicodedata` lists them.
fn is_decimal(character: char) -> bool {
    const ZEROS: [u32; 66] = [
        0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
        0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0,
        0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30,
        0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0,
        0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
        0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
    ];
    let code = u32::from(character);
    let after = ZEROS.partition_point(|zero| *zero <= code);
    after > 0 && code - ZEROS[after - 1] < 10
}
