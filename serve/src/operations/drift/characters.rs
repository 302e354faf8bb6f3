//! The kinds of characters in a text: scripts, digits, spaces, marks.

use std::ops::RangeInclusive;

/// The number of kinds.
pub(super) const KINDS: usize = 15;

/// The last kinds: any other letter, digits, spaces, punctuation of prose, other symbols.
const OTHER: usize = 10;
const DIGIT: usize = 11;
const SPACE: usize = 12;
const PUNCTUATION: usize = 13;
const SYMBOL: usize = 14;

/// Scripts, with the number of their kind.
const SCRIPTS: [(RangeInclusive<char>, usize); 20] = [
    ('a'..='z', 0),
    ('A'..='Z', 0),
    ('\u{c0}'..='\u{24f}', 0),
    ('\u{1e00}'..='\u{1eff}', 0),
    ('\u{370}'..='\u{3ff}', 1),
    ('\u{1f00}'..='\u{1fff}', 1),
    ('\u{400}'..='\u{52f}', 2),
    ('\u{590}'..='\u{5ff}', 3),
    ('\u{600}'..='\u{6ff}', 4),
    ('\u{750}'..='\u{77f}', 4),
    ('\u{8a0}'..='\u{8ff}', 4),
    ('\u{900}'..='\u{97f}', 5),
    ('\u{e00}'..='\u{e7f}', 6),
    ('\u{3040}'..='\u{30ff}', 7),
    ('\u{1100}'..='\u{11ff}', 8),
    ('\u{ac00}'..='\u{d7a3}', 8),
    ('\u{3400}'..='\u{4dbf}', 9),
    ('\u{4e00}'..='\u{9fff}', 9),
    ('\u{f900}'..='\u{faff}', 9),
    ('\u{20000}'..='\u{323af}', 9),
];

/// Returns the shares of the kinds in a text; `None` if it is empty.
pub(super) fn shares(text: &str) -> Option<[f64; KINDS]> {
    let mut counts = [0.0; KINDS];
    let mut total = 0.0;
    for character in text.chars() {
        counts[kind(character)] += 1.0;
        total += 1.0;
    }
    (total > 0.0).then(|| counts.map(|count| count / total))
}

fn kind(character: char) -> usize {
    match character {
        '0'..='9' => DIGIT,
        '.' | ',' | '!' | '?' | '\'' | '"' | '’' | '“' | '”' | '。' | '，' | '、' | '-' => {
            PUNCTUATION
        }
        _ if character.is_whitespace() => SPACE,
        _ => match SCRIPTS.iter().find(|(range, _)| range.contains(&character)) {
            Some((_, kind)) => *kind,
            None if character.is_alphabetic() => OTHER,
            None if character.is_numeric() => DIGIT,
            None => SYMBOL,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_kinds() {
        for (text, expected) in [
            ("aZéỹ", 0),
            ("αἀ", 1),
            ("ж", 2),
            ("א", 3),
            ("ع", 4),
            ("ह", 5),
            ("ไ", 6),
            ("あカ", 7),
            ("한", 8),
            ("漢", 9),
            ("Ա", OTHER),
            ("7½", DIGIT),
            (" \n\u{a0}", SPACE),
            (".,?", PUNCTUATION),
            ("{}=;_🐦", SYMBOL),
        ] {
            assert_eq!(shares(text).unwrap()[expected], 1.0, "{text}");
        }
        assert_eq!(shares("ab 1").unwrap()[0], 0.5);
        assert!(shares("").is_none());
    }
}
