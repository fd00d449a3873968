//! Sets of characters.

/// A set of characters. Those of ASCII are worked out when it is made.
#[derive(Debug, Clone)]
pub(super) struct Class {
    ascii: u128,
    parts: Box<[Part]>,
    is_negated: bool,
    is_caseless: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Range(char, char),
    Kind(Kind),
    Not(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Any,
    /// What `.` does not match.
    LineEnd,
    Digit,
    Word,
    Space,
    Letter,
    Upper,
    Lower,
    /// Letters without a case.
    Caseless,
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

impl Class {
    pub(super) fn new(parts: Vec<Part>, is_negated: bool, is_caseless: bool) -> Class {
        let mut class = Class { ascii: 0, parts: parts.into(), is_negated, is_caseless };
        for letter in (0..128_u8).map(char::from) {
            class.ascii |= u128::from(class.is_listed(letter) != is_negated) << u32::from(letter);
        }
        class
    }

    #[inline]
    pub(super) fn has(&self, letter: char) -> bool {
        match u32::from(letter) {
            code @ 0..128 => self.ascii >> code & 1 == 1,
            _ => self.is_listed(letter) != self.is_negated,
        }
    }

    #[inline]
    pub(super) fn has_ascii(&self, byte: u8) -> bool {
        self.ascii >> (byte & 127) & 1 == 1
    }

    fn is_listed(&self, letter: char) -> bool {
        let is_in = |letter| self.parts.iter().any(|part| part.has(letter));
        is_in(letter) || self.is_caseless && cases(letter).any(is_in)
    }
}

/// The other ways to write a letter, where they are one letter too.
fn cases(letter: char) -> impl Iterator<Item = char> {
    single(letter.to_lowercase()).into_iter().chain(single(letter.to_uppercase()))
}

fn single(mut letters: impl Iterator<Item = char>) -> Option<char> {
    letters.next().filter(|_| letters.next().is_none())
}

impl Part {
    fn has(self, letter: char) -> bool {
        match self {
            Part::Range(from, to) => from <= letter && letter <= to,
            Part::Kind(kind) => kind.has(letter),
            Part::Not(kind) => !kind.has(letter),
        }
    }
}

impl Kind {
    /// The kind that a name in `\p{..}` stands for.
    pub(super) fn named(name: &str) -> Option<Kind> {
        let name =
            ["General_Category=", "gc="].iter().find_map(|start| name.strip_prefix(start)).unwrap_or(name);
        Some(match name {
            "Any" => Kind::Any,
            "ASCII" => Kind::Ascii,
            "ASCII_Hex_Digit" | "AHex" => Kind::HexDigit,
            "L" | "Letter" | "Alphabetic" | "Alpha" => Kind::Letter,
            "Lu" | "Uppercase_Letter" | "Uppercase" | "Upper" => Kind::Upper,
            "Ll" | "Lowercase_Letter" | "Lowercase" | "Lower" => Kind::Lower,
            "Lo" | "Other_Letter" => Kind::Caseless,
            "N" | "Number" => Kind::Number,
            "Nd" | "Decimal_Number" | "digit" => Kind::Decimal,
            "Cc" | "Control" | "cntrl" => Kind::Control,
            "Z" | "Separator" => Kind::Separator,
            "Zs" | "Space_Separator" => Kind::SpaceSeparator,
            "White_Space" | "space" => Kind::WhiteSpace,
            "P" | "Punctuation" | "punct" => Kind::Punctuation,
            "S" | "Symbol" => Kind::Symbol,
            "M" | "Mark" | "Combining_Mark" => Kind::Mark,
            _ => return None,
        })
    }

    fn has(self, letter: char) -> bool {
        match self {
            Kind::Any => true,
            Kind::LineEnd => matches!(letter, '\n' | '\r' | '\u{2028}' | '\u{2029}'),
            Kind::Digit => letter.is_ascii_digit(),
            Kind::Word => is_word(letter),
            Kind::Space => letter == '\u{feff}' || letter != '\u{85}' && letter.is_whitespace(),
            Kind::Letter => letter.is_alphabetic(),
            Kind::Upper => letter.is_uppercase(),
            Kind::Lower => letter.is_lowercase(),
            Kind::Caseless => letter.is_alphabetic() && !letter.is_uppercase() && !letter.is_lowercase(),
            Kind::Number => letter.is_numeric(),
            Kind::Decimal => is_decimal(letter),
            Kind::Control => letter.is_control(),
            Kind::Separator => letter.is_whitespace() && !letter.is_control(),
            Kind::SpaceSeparator => {
                letter.is_whitespace() && !letter.is_control() && !matches!(letter, '\u{2028}' | '\u{2029}')
            }
            Kind::WhiteSpace => letter.is_whitespace(),
            Kind::Punctuation => match letter.is_ascii() {
                true => letter.is_ascii_punctuation() && !SYMBOLS.contains(letter),
                false => is_odd(letter),
            },
            Kind::Symbol => match letter.is_ascii() {
                true => SYMBOLS.contains(letter),
                false => is_odd(letter),
            },
            Kind::Mark => !letter.is_ascii() && is_odd(letter),
            Kind::Ascii => letter.is_ascii(),
            Kind::HexDigit => letter.is_ascii_hexdigit(),
        }
    }
}

const SYMBOLS: &str = "$+<=>^`|~";

pub(super) fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Neither letter, number, space nor control. The library of Rust cannot tell more.
fn is_odd(letter: char) -> bool {
    !letter.is_alphanumeric() && !letter.is_whitespace() && !letter.is_control()
}

/// Decimal digits come in tens: these are the zeros. `python3 -c` with `unicodedata` lists them.
fn is_decimal(letter: char) -> bool {
    const ZEROS: [u32; 66] = [
        0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
        0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0,
        0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30,
        0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0,
        0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
        0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
    ];
    let code = u32::from(letter);
    let after = ZEROS.partition_point(|zero| *zero <= code);
    after > 0 && code - ZEROS[after - 1] < 10
}
