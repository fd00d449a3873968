//! Recognizes misspelled names, for "did you mean".

/// Maximum length of a name that is compared.
const MAX_NAME_BYTES: usize = 128;

/// Returns whether two names differ only in case and separators, in one character, or in the order of two.
pub(crate) fn is_similar(known: &str, name: &str) -> bool {
    let normalize = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    if name.len() > MAX_NAME_BYTES {
        return false;
    }
    let (known, name) = (normalize(known), normalize(name));
    let same_start = known.iter().zip(&name).take_while(|(a, b)| a == b).count();
    let (known, name) = (&known[same_start..], &name[same_start..]);
    let same_end = known.iter().rev().zip(name.iter().rev()).take_while(|(a, b)| a == b).count();
    let (known, name) = (&known[..known.len() - same_end], &name[..name.len() - same_end]);
    let is_swapped = matches!((known, name), ([a, b], [c, d]) if a == d && b == c);
    (known.len().max(name.len()) <= 1 || is_swapped) && same_start > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_in_a_name_is_recognized() {
        assert!(is_similar("add", "ad"));
        assert!(is_similar("echo_message", "echoMessage"));
        assert!(is_similar("search", "serch"));
        assert!(is_similar("message", "messgae"));
        assert!(!is_similar("search", "delete"));
        assert!(!is_similar("add", "sub"));
    }
}
