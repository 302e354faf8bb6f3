//! The four Unicode normalization forms, with the offsets of every character in the input.

use super::super::fallible_alloc;
use super::{combining_class, composition, decomposition};
use siskin_format::Result;

/// A normalization form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum NormalizationForm {
    /// Canonical composition.
    Nfc,
    /// Canonical decomposition.
    Nfd,
    /// Compatibility composition.
    Nfkc,
    /// Compatibility decomposition.
    Nfkd,
}

/// The maximum length of a decomposition, in characters.
const MAX_DECOMPOSITION: usize = 18;
/// Longer runs of combining marks are sorted by counting sort.
const MAX_SMALL_SORT: usize = 1 << 12;

const L_BASE: u32 = 0x1100;
const V_BASE: u32 = 0x1161;
const T_BASE: u32 = 0x11A7;
const S_BASE: u32 = 0xAC00;
const L_COUNT: u32 = 19;
const V_COUNT: u32 = 21;
const T_COUNT: u32 = 28;
const S_COUNT: u32 = L_COUNT * V_COUNT * T_COUNT;

/// A character and the range of the input that it came from.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct SourceChar {
    pub(in super::super) character: char,
    pub(in super::super) start: u32,
    pub(in super::super) end: u32,
    class: u8,
}

impl SourceChar {
    pub(in super::super) fn new(character: char, start: u32, end: u32) -> Self {
        Self { character, start, end, class: 0 }
    }
}

/// Replaces `characters` by their normal form. `spare` is scratch.
pub(in super::super) fn normalize(
    form: NormalizationForm,
    characters: &mut Vec<SourceChar>,
    spare: &mut Vec<SourceChar>,
) -> Result<()> {
    spare.clear();
    let compatible = matches!(form, NormalizationForm::Nfkc | NormalizationForm::Nfkd);
    for placed in characters.iter() {
        fallible_alloc::reserve(spare, MAX_DECOMPOSITION)?;
        decompose(*placed, compatible, spare);
    }
    order(spare)?;
    if matches!(form, NormalizationForm::Nfc | NormalizationForm::Nfkc) {
        compose(spare);
    }
    std::mem::swap(characters, spare);
    Ok(())
}

fn decompose(placed: SourceChar, compatible: bool, out: &mut Vec<SourceChar>) {
    let mut push = |character: char| {
        out.push(SourceChar { character, class: combining_class(character), ..placed });
    };
    let index = (placed.character as u32).wrapping_sub(S_BASE);
    if index < S_COUNT {
        let parts = [
            L_BASE + index / (V_COUNT * T_COUNT),
            V_BASE + index % (V_COUNT * T_COUNT) / T_COUNT,
            T_BASE + index % T_COUNT,
        ];
        let count = if index.is_multiple_of(T_COUNT) { 2 } else { 3 };
        parts.iter().take(count).filter_map(|&point| char::from_u32(point)).for_each(push);
    } else if let Some(text) = decomposition(placed.character, compatible) {
        text.chars().for_each(push);
    } else {
        push(placed.character);
    }
}

/// Sorts every run of combining marks by combining class (stable).
fn order(characters: &mut [SourceChar]) -> Result<()> {
    let mut start = 0;
    while start < characters.len() {
        if characters[start].class == 0 {
            start += 1;
            continue;
        }
        let length = characters[start..].iter().take_while(|placed| placed.class != 0).count();
        match &mut characters[start..start + length] {
            // The standard library's stable sort allocates memory for long runs, and cannot report a failure.
            run if length > MAX_SMALL_SORT => sort_long(run)?,
            run => run.sort_by_key(|placed| placed.class),
        }
        start += length;
    }
    Ok(())
}

/// Sorts by combining class with a stable counting sort.
fn sort_long(run: &mut [SourceChar]) -> Result<()> {
    let mut sorted = Vec::new();
    fallible_alloc::reserve(&mut sorted, run.len())?;
    sorted.extend_from_slice(run);
    let mut places = [0usize; 257];
    for placed in &sorted {
        places[usize::from(placed.class) + 1] += 1;
    }
    for class in 1..places.len() {
        places[class] += places[class - 1];
    }
    for placed in sorted {
        let location = &mut places[usize::from(placed.class)];
        run[*location] = placed;
        *location += 1;
    }
    Ok(())
}

fn compose(characters: &mut Vec<SourceChar>) {
    let mut kept = 0;
    let mut starter: Option<usize> = None;
    for index in 0..characters.len() {
        let placed = characters[index];
        if let Some(at) = starter {
            // A mark is blocked by a mark of the same or a higher class between it and the starter.
            let blocked = kept > at + 1 && (characters[kept - 1].class >= placed.class);
            let composed = (!blocked).then(|| pair(characters[at].character, placed.character)).flatten();
            if let Some(character) = composed {
                let first = &mut characters[at];
                first.character = character;
                first.start = first.start.min(placed.start);
                first.end = first.end.max(placed.end);
                continue;
            }
        }
        characters[kept] = placed;
        if placed.class == 0 {
            starter = Some(kept);
        }
        kept += 1;
    }
    characters.truncate(kept);
}

fn pair(first: char, second: char) -> Option<char> {
    let (l, v) = ((first as u32).wrapping_sub(L_BASE), (second as u32).wrapping_sub(V_BASE));
    if l < L_COUNT && v < V_COUNT {
        return char::from_u32(S_BASE + (l * V_COUNT + v) * T_COUNT);
    }
    let (s, t) = ((first as u32).wrapping_sub(S_BASE), (second as u32).wrapping_sub(T_BASE));
    if s < S_COUNT && s % T_COUNT == 0 && (1..T_COUNT).contains(&t) {
        return char::from_u32(first as u32 + t);
    }
    composition(first, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(form: NormalizationForm, text: &str) -> String {
        let mut characters: Vec<SourceChar> = text.chars().map(|c| SourceChar::new(c, 0, 0)).collect();
        normalize(form, &mut characters, &mut Vec::new()).unwrap();
        characters.iter().map(|placed| placed.character).collect()
    }

    #[test]
    fn forms_agree_with_the_standard() {
        // Each row: text, NFC, NFD, NFKC, NFKD, as returned by Python's unicodedata.normalize.
        for (text, nfc, nfd, nfkc, nfkd) in [
            ("é", "é", "e\u{301}", "é", "e\u{301}"),
            ("e\u{301}", "é", "e\u{301}", "é", "e\u{301}"),
            ("ﬁ①", "ﬁ①", "ﬁ①", "fi1", "fi1"),
            ("각", "각", "\u{1100}\u{1161}\u{11a8}", "각", "\u{1100}\u{1161}\u{11a8}"),
            ("\u{1100}\u{1161}\u{11a8}", "각", "\u{1100}\u{1161}\u{11a8}", "각", "\u{1100}\u{1161}\u{11a8}"),
            ("q\u{307}\u{323}", "q\u{323}\u{307}", "q\u{323}\u{307}", "q\u{323}\u{307}", "q\u{323}\u{307}"),
            ("\u{212b}", "Å", "A\u{30a}", "Å", "A\u{30a}"),
            ("ệ", "ệ", "e\u{323}\u{302}", "ệ", "e\u{323}\u{302}"),
            ("\u{958}", "\u{915}\u{93c}", "\u{915}\u{93c}", "\u{915}\u{93c}", "\u{915}\u{93c}"),
            ("ｱﾞ", "ｱﾞ", "ｱﾞ", "ア\u{3099}", "ア\u{3099}"),
        ] {
            assert_eq!(apply(NormalizationForm::Nfc, text), nfc, "NFC {text:?}");
            assert_eq!(apply(NormalizationForm::Nfd, text), nfd, "NFD {text:?}");
            assert_eq!(apply(NormalizationForm::Nfkd, text), nfkd, "NFKD {text:?}");
            assert_eq!(apply(NormalizationForm::Nfkc, text), nfkc, "NFKC {text:?}");
        }
    }

    #[test]
    fn long_runs_of_marks_are_in_order() {
        // As returned by Python's unicodedata.normalize: class 220 first, then 230 in the original order.
        let (text, count) = ("\u{301}\u{300}\u{323}", 3000);
        let wanted = ["\u{323}".repeat(count), "\u{301}\u{300}".repeat(count)].concat();
        assert_eq!(apply(NormalizationForm::Nfd, &text.repeat(count)), wanted);
    }

    #[test]
    fn no_decomposition_is_longer_than_said() {
        let length = |point| char::from_u32(point).and_then(|character| decomposition(character, true));
        let longest = (0..=0x10_FFFF).filter_map(length).map(|text| text.chars().count()).max();
        assert_eq!(longest, Some(MAX_DECOMPOSITION));
    }
}
