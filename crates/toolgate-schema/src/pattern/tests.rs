//! Patterns with texts that match and texts that do not.

use super::*;

fn check(pattern: &str, matching: &[&str], not_matching: &[&str]) {
    let compiled = Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    for (texts, expected) in [(matching, true), (not_matching, false)] {
        for text in texts {
            assert_eq!(compiled.is_match(text), Ok(expected), "{pattern} and {text:?}");
        }
    }
}

#[test]
fn patterns_match() {
    for (pattern, matching, not_matching) in [
        ("", &["", "a"][..], &[][..]),
        ("^$", &[""], &["a", "\n"]),
        ("a", &["a", "bab"], &["", "b"]),
        ("^a*$", &["", "aaa"], &["b", "aab", "aaa\n"]),
        ("^[a-z]+$", &["abc"], &["", "aB", "ä"]),
        ("^[^a-z]+?$", &["ABC", "ä€"], &["", "aB"]),
        ("^(a|bc|)d$", &["ad", "bcd", "d"], &["abcd", "cd"]),
        ("^(?:ab){2,3}$", &["abab", "ababab"], &["ab", "abababab"]),
        ("^[0-9]{3}-[0-9]{2,}$", &["123-45", "123-456789"], &["12-45", "123-4"]),
        ("^.{1,65535}$", &["x", "äöü"], &["", "a\nb"]),
        ("^[\\s\\S]{2}$", &["a\n", "€𝄞"], &["a", "abc"]),
        ("^\\d\\D\\w\\W\\s\\S$", &["1a_- x"], &["aa_- x", "१a_- x"]),
        ("^\\S(|(.|\\n)*\\S)\\Z", &["a b", "a"], &[" a", "a "]),
        ("\\bfoo\\b", &["a foo b", "foo"], &["afoo", "foob"]),
        ("\\Bo\\B", &["xox"], &["o x"]),
        ("^(?=.*[A-Z])(?=.*\\d).{4,}$", &["aA1b", "1xxA"], &["aaaa", "A1", "AAAA"]),
        ("^(?!foo|bar$).*$", &["fo", "bars"], &["foo", "foox", "bar"]),
        ("(?<=\\$)\\d+(?<!0)$", &["$12", "x$31"], &["12", "$10"]),
        ("^(?<=^|x)a", &["a"], &["xa"]),
        ("(?<=(\\d+)x)a", &["12xa"], &["xa"]),
        ("^(['\"]).*\\1$", &["'a'", "\"\""], &["'a\"", "a"]),
        ("^(?<q>a|b)\\k<q>$", &["aa", "bb"], &["ab"]),
        ("^(?:(a)|b)*\\1$", &["ab", "baa"], &["x"]),
        ("^\\1(a)$", &["a"], &["aa"]),
        ("^(?=(a+))\\1b$", &["aab"], &["aa"]),
        ("^(a*)*$", &["", "aaa"], &["b"]),
        ("^(a*|b)*c$", &["c", "abac"], &["ab"]),
        ("^(|a)+$", &["", "aa"], &["b"]),
        ("^\\u00e9\\x41\\cA\\0\\u{1d11e}\\ud834\\udd1e$", &["éA\u{1}\0𝄞𝄞"], &["e"]),
        ("^\\p{L}+\\p{Nd}\\p{Lu}\\P{Ll}$", &["été१ÉX"], &["étéxÉX", "a1ax"]),
        ("^[\\p{L}\\p{M}\\p{S}\\p{N}\\p{P}\\p{Z}]+$", &["a b-c+d é€"], &["a\n"]),
        ("^[]$", &[], &["", "a"]),
        ("^[^]$", &["a", "\n"], &[""]),
        ("^[\\w-.]+$", &["a-b.c"], &["a b"]),
        ("^[a\\]b-]+$", &["]-a"], &["\\"]),
        ("^a{,2}$", &["a{,2}"], &["aa"]),
        ("^{a}$", &["{a}"], &["a"]),
        ("(?i)^straße$", &["STRAßE", "strasSe"][..1], &["x"]),
        ("^(?i:a)b$", &["Ab", "ab"], &["AB"]),
        ("^x-", &["x-a"], &["ax-"]),
        ("^é", &["é"], &["e"]),
        ("a|^b", &["b", "xa"], &["xb"]),
    ] {
        check(pattern, matching, not_matching);
    }
}

#[test]
fn invalid_and_unsupported_patterns_are_distinguished() {
    for invalid in [
        "(", ")", "[", "a**", "*", "(?<a", "\\", "a{2,1}", "[b-a]", "\\2(a)", "\\k<x>", "^*", "\\u12",
        "\\u{12",
    ] {
        assert!(matches!(Pattern::new(invalid), Err(PatternError::Invalid(_))), "{invalid}");
    }
    for unsupported in
        ["(?>a)", "\\p{Script=Han}", "a*+", "\\Qa\\E", "(?x) a", "\\ud800", "((a{99}){999}){99}"]
    {
        assert!(matches!(Pattern::new(unsupported), Err(PatternError::Unsupported(_))), "{unsupported}");
    }
    assert!(Pattern::new(&"(".repeat(100_000)).is_err());
    assert!(Pattern::new(&"(?<".repeat(100_000)).is_err());
    // The compilation of nodes that produce no instruction is limited too.
    let many = |nothing: &str| Pattern::new(&format!("(?:b{}){{9000}}", nothing.repeat(10_000)));
    assert!(many("(?:)").is_ok() && many("(?i)").is_ok());
    for nothing in ["()", "a{0}"] {
        assert!(matches!(many(nothing), Err(PatternError::Unsupported(_))), "{nothing}");
    }
}

/// Patterns that take exponential time elsewhere are handled by the memo or hit the step limit.
#[test]
fn no_pattern_takes_forever() {
    let text = format!("{}!", "a".repeat(3_000));
    for pattern in ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*)*x", "^(([a-z])+.)+[A-Z]$", "^(?:a?){60}a{60}b$"]
    {
        assert_eq!(Pattern::new(pattern).unwrap().is_match(&text), Ok(false), "{pattern}");
    }
    for pattern in ["^(a+)+\\1b$", "^(?=(a|aa)+$)"] {
        assert_eq!(Pattern::new(pattern).unwrap().is_match(&text), Err(StepLimitExceeded), "{pattern}");
    }
    assert_eq!(Pattern::new("^(?:a|b)*$").unwrap().is_match(&"ab".repeat(100_000)), Ok(true));
}

/// The number of pending branches is bounded, by steps and by a limit of its own.
#[test]
fn no_pattern_takes_all_memory() {
    // Every lookaround would save three thousand registers at each of ten thousand positions.
    let pattern = Pattern::new("^(?:(?=.).)*(?:(?:a?)*){3000}$").unwrap();
    assert_eq!(pattern.is_match(&"b".repeat(10_000)), Err(StepLimitExceeded));
    assert_eq!(pattern.is_match(&"b".repeat(100)), Ok(true));
    // Two branches at each position are within the limit. Four and more are not, however many steps there are.
    let pattern = Pattern::new("^(?:a|b)*$").unwrap();
    assert_eq!(pattern.is_match_with_steps(&"a".repeat(1_000_000), &mut u64::MAX.clone()), Ok(true));
    let pattern = Pattern::new("^(?:()(?:a|b)\\1)*$").unwrap();
    assert_eq!(
        pattern.is_match_with_steps(&"a".repeat(1_000_000), &mut u64::MAX.clone()),
        Err(StepLimitExceeded)
    );
}

/// Texts of ordinary size are matched by every pattern, and long ones by repetitions of a class.
#[test]
fn long_texts_are_matched() {
    let text = "ab".repeat(64 * 1024);
    for pattern in ["^(?:a|b)*$", "^(?:ab)+$", "^([ab][ab])*$", "^[a-z]*$"] {
        assert_eq!(Pattern::new(pattern).unwrap().is_match(&text), Ok(true), "{pattern}");
    }
    let text = "ab".repeat(2 << 20);
    for pattern in ["^[a-z]*$", "^[^<>]*$", "^.*$"] {
        assert_eq!(Pattern::new(pattern).unwrap().is_match(&text), Ok(true), "{pattern}");
    }
}

/// F6: the limit does not grow with the text.
#[test]
fn the_step_limit_is_the_same_for_every_text() {
    for length in [1 << 20, 4 << 20] {
        let text = format!("{}!", "a".repeat(length));
        for pattern in ["^(a+)+$", "^(a|a)*$"] {
            assert_eq!(Pattern::new(pattern).unwrap().is_match(&text), Err(StepLimitExceeded), "{pattern}");
        }
    }
}

/// The number of steps grows linearly with the text.
#[test]
fn steps_grow_with_the_text() {
    for pattern in ["(a+)+$", "^(a+)+$", "^(a|a)*$", "^(?:a*)*b", "a+b", "[a-z]*[0-9]"] {
        let pattern = Pattern::new(pattern).unwrap();
        let n_steps = |length: usize| {
            let mut remaining = STEP_LIMIT;
            assert_eq!(
                pattern.is_match_with_steps(&format!("{}!", "a".repeat(length)), &mut remaining),
                Ok(false)
            );
            STEP_LIMIT - remaining
        };
        let (few, many) = (n_steps(10_000), n_steps(50_000));
        assert!(many < 6 * few && many < 600_000, "{pattern:?}: {few}, {many}");
    }
}
