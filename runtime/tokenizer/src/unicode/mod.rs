//! Unicode data: general categories, case, decompositions and compositions.
//!
//! The data is in `tables.bin`, written by `generate.py`, which also specifies its layout.

mod normal;

pub(super) use normal::{NormalizationForm, SourceChar, normalize};

const TABLES: &[u8] = include_bytes!("tables.bin");
const STAGE_1: &[u8] = part(0);
const STAGE_2: &[u8] = part(1);
const STAGE_3: &[u8] = part(2);
const CANONICAL: Decompositions = Decompositions { runs: part(3), texts: part(4) };
const COMPATIBLE: Decompositions = Decompositions { runs: part(5), texts: part(6) };
const TEXT: &[u8] = part(7);
const CLASSES: &[u8] = part(8);
const COMPOSITIONS: &[u8] = part(9);

const fn header(index: usize) -> usize {
    let at = index * 4;
    u32::from_le_bytes([TABLES[at], TABLES[at + 1], TABLES[at + 2], TABLES[at + 3]]) as usize
}

const fn part(index: usize) -> &'static [u8] {
    TABLES.split_at(header(2 * index)).1.split_at(header(2 * index + 1)).0
}

/// Names of the general categories, in the order of their numbers.
pub(super) const CATEGORIES: [&str; 30] = [
    "Cc", "Cf", "Cn", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc",
    "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs",
];

/// Bit sets of category numbers.
pub(super) mod set {
    pub(in super::super) const LETTER: u32 = 0b11_1110_0000;
    pub(in super::super) const MARK: u32 = 0b111 << 10;
    pub(in super::super) const NONSPACING_MARK: u32 = 1 << 12;
    pub(in super::super) const DECIMAL: u32 = 1 << 13;
    pub(in super::super) const LETTER_NUMBER: u32 = 1 << 14;
    pub(in super::super) const CONNECTOR: u32 = 1 << 16;
    pub(in super::super) const PUNCTUATION: u32 = 0b111_1111 << 16;
    pub(in super::super) const SEPARATOR: u32 = 0b111 << 27;
    /// Control, format and private-use characters.
    pub(in super::super) const CONTROL: u32 = 0b1011;
}

/// Returns the general category of `character`, an index into [`CATEGORIES`].
#[inline]
pub(super) fn category(character: char) -> u8 {
    let point = character as usize;
    let block = STAGE_1.get(point >> 9).copied().unwrap_or(0) as usize;
    let leaf = half(STAGE_2, block << 5 | (point >> 4 & 31));
    STAGE_3.get(leaf << 4 | (point & 15)).copied().unwrap_or(2)
}

/// Returns whether the category of `character` is in the bit set `categories`.
#[inline]
pub(super) fn is_in(character: char, categories: u32) -> bool {
    categories >> category(character) & 1 == 1
}

/// The ranges of the script Han.
pub(super) const HAN: [(u32, u32); 21] = [
    (0x2E80, 0x2E99),
    (0x2E9B, 0x2EF3),
    (0x2F00, 0x2FD5),
    (0x3005, 0x3005),
    (0x3007, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFA6D),
    (0xFA70, 0xFAD9),
    (0x16FE2, 0x16FE3),
    (0x16FF0, 0x16FF1),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B739),
    (0x2B740, 0x2B81D),
    (0x2B820, 0x2CEA1),
    (0x2CEB0, 0x2EBE0),
    (0x2EBF0, 0x2EE5D),
    (0x2F800, 0x2FA1D),
    (0x30000, 0x323AF),
];

fn word(table: &[u8], index: usize) -> u32 {
    let at = index * 4;
    table.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn half(table: &[u8], index: usize) -> usize {
    let at = index * 2;
    table.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes).into()
}

/// Returns the index in the sorted `keys` whose low 24 bits are `point`.
fn find(keys: &[u8], point: u32) -> Option<usize> {
    let (mut low, mut high) = (0, keys.len() / 4);
    while low < high {
        let middle = (low + high) / 2;
        match (word(keys, middle) & 0xFF_FFFF).cmp(&point) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return Some(middle),
        }
    }
    None
}

/// Returns the canonical combining class.
pub(super) fn combining_class(character: char) -> u8 {
    if (character as u32) < 0x300 {
        return 0;
    }
    find(CLASSES, character as u32).map_or(0, |index| (word(CLASSES, index) >> 24) as u8)
}

/// The decompositions of one form.
struct Decompositions {
    /// Runs of successive characters that decompose: the first one, and the number of its text.
    runs: &'static [u8],
    texts: &'static [u8],
}

impl Decompositions {
    fn of(&self, point: u32) -> Option<&'static str> {
        let (mut low, mut high) = (0, self.runs.len() / 8);
        while low < high {
            let middle = (low + high) / 2;
            match word(self.runs, 2 * middle) <= point {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let run = low.checked_sub(1)?;
        let number = word(self.runs, 2 * run + 1) + (point - word(self.runs, 2 * run));
        (number < word(self.runs, 2 * run + 3)).then(|| self.text(number as usize))
    }

    fn text(&self, number: usize) -> &'static str {
        let place = half(self.texts, number);
        let (start, characters) = (place & 0x3FFF, place >> 14);
        let text = match characters {
            0 => TEXT.get(start).and_then(|&length| TEXT.get(start + 1..start + 1 + usize::from(length))),
            _ => TEXT.get(start..).map(|rest| &rest[..end_of(rest, characters)]),
        };
        text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl Decompositions {
    /// Returns the character with the text `number`.
    fn character(&self, number: usize) -> Option<char> {
        let (mut low, mut high) = (0, self.runs.len() / 8);
        while low < high {
            let middle = (low + high) / 2;
            match word(self.runs, 2 * middle + 1) as usize <= number {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let run = low.checked_sub(1)?;
        let first = word(self.runs, 2 * run + 1) as usize;
        char::from_u32(word(self.runs, 2 * run) + (number - first) as u32)
    }
}

/// Returns the length in bytes of the first `count` characters of a text in UTF-8.
fn end_of(text: &[u8], count: usize) -> usize {
    let starts = (0..text.len()).filter(|&at| text[at] & 0xC0 != 0x80);
    starts.chain([text.len()]).nth(count).unwrap_or(text.len())
}

/// Returns the full decomposition of `character`; `None` if it does not decompose. Does not include Hangul syllables.
fn decomposition(character: char, compatible: bool) -> Option<&'static str> {
    let point = character as u32;
    if point < 0xA0 {
        return None;
    }
    match compatible {
        true => COMPATIBLE.of(point).or_else(|| CANONICAL.of(point)),
        false => CANONICAL.of(point),
    }
}

/// Returns the character that `first` and `second` compose to.
fn composition(first: char, second: char) -> Option<char> {
    // The second character of each composition is a mark.
    if !is_in(second, set::MARK) {
        return None;
    }
    let mut utf8 = [[0; 4]; 2];
    let [first_bytes, second_bytes] = &mut utf8;
    let second_text = second.encode_utf8(second_bytes);
    let first_text = decomposition(first, false).unwrap_or(first.encode_utf8(first_bytes));
    let (mut low, mut high) = (0, COMPOSITIONS.len() / 2);
    while low < high {
        let middle = (low + high) / 2;
        let number = half(COMPOSITIONS, middle);
        let parts = first_text.bytes().chain(second_text.bytes());
        match CANONICAL.text(number).bytes().cmp(parts) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return CANONICAL.character(number),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_follow_the_standard() {
        for (character, name) in [
            ('a', "Ll"),
            ('Z', "Lu"),
            ('ǅ', "Lt"),
            ('ʰ', "Lm"),
            ('我', "Lo"),
            ('\u{301}', "Mn"),
            ('٣', "Nd"),
            ('Ⅳ', "Nl"),
            ('½', "No"),
            ('_', "Pc"),
            ('~', "Sm"),
            ('\u{3000}', "Zs"),
            ('\u{85}', "Cc"),
            ('🦙', "So"),
            ('\u{10FFFF}', "Cn"),
        ] {
            assert_eq!(CATEGORIES[category(character) as usize], name, "{character:?}");
        }
        let bits = |prefix: &str| {
            CATEGORIES
                .iter()
                .enumerate()
                .filter(|(_, name)| name.starts_with(prefix))
                .map(|(bit, _)| 1 << bit)
                .sum::<u32>()
        };
        assert_eq!(set::LETTER, bits("L"));
        assert_eq!(set::MARK, bits("M"));
        assert_eq!(set::NONSPACING_MARK, bits("Mn"));
        assert_eq!(set::DECIMAL, bits("Nd"));
        assert_eq!(set::LETTER_NUMBER, bits("Nl"));
        assert_eq!(set::PUNCTUATION, bits("P"));
        assert_eq!(set::CONNECTOR, bits("Pc"));
        assert_eq!(set::SEPARATOR, bits("Z"));
        assert_eq!(set::CONTROL, bits("Cc") | bits("Cf") | bits("Co"));
    }
}
