//! Character classes.

use super::super::unicode::{self, set};

const ALL_CATEGORIES: u32 = (1 << 30) - 1;

/// A set of characters: a bitmap of code points below 256, category sets and ranges above.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(in super::super) struct Class {
    low: [u64; 4],
    /// A character above 255 is in the set if all of these contain it.
    high: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Part {
    categories: u32,
    ranges: Vec<(u32, u32)>,
    negated: bool,
}

impl Part {
    fn has(&self, character: char) -> bool {
        let point = character as u32;
        let found = unicode::is_in(character, self.categories)
            || self.ranges.iter().any(|&(first, last)| (first..=last).contains(&point));
        found != self.negated
    }
}

impl Class {
    /// Returns an empty set.
    pub(super) fn empty() -> Self {
        Self { low: [0; 4], high: vec![Part::default()] }
    }

    /// Returns the characters of the general categories in the bit set.
    pub(super) fn categories(categories: u32) -> Self {
        let mut class = Self::empty();
        class.high[0].categories = categories & ALL_CATEGORIES;
        class.fill_low(|character| unicode::is_in(character, categories));
        class
    }

    /// Returns the whitespace characters.
    pub(super) fn space() -> Self {
        let mut class = Self::categories(set::SEPARATOR);
        class.add_range(0x09, 0x0D);
        class.add_range(0x85, 0x85);
        class
    }

    /// Returns the word characters: letters, marks, decimal and letter numbers, connector punctuation, enclosed
    /// letters.
    pub(super) fn word() -> Self {
        const ENCLOSED: [(u32, u32); 4] =
            [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)];
        let categories = set::LETTER | set::MARK | set::DECIMAL | set::LETTER_NUMBER | set::CONNECTOR;
        let mut class = Self::categories(categories);
        ENCLOSED.iter().for_each(|&(first, last)| class.add_range(first, last));
        class
    }

    /// Returns the characters of `ranges`.
    pub(super) fn ranges(ranges: &[(u32, u32)]) -> Self {
        let mut class = Self::empty();
        ranges.iter().for_each(|&(first, last)| class.add_range(first, last));
        class
    }

    fn fill_low(&mut self, mut wanted: impl FnMut(char) -> bool) {
        for point in 0..=255u8 {
            if wanted(char::from(point)) {
                self.low[usize::from(point >> 6)] |= 1 << (point & 63);
            }
        }
    }

    /// Adds the code points from `first` to `last`, inclusive.
    pub(super) fn add_range(&mut self, first: u32, last: u32) {
        for point in first..=last.min(255) {
            self.low[(point >> 6) as usize] |= 1 << (point & 63);
        }
        if last > 255
            && let Some(part) = self.high.first_mut()
        {
            part.ranges.push((first.max(256), last));
        }
    }

    /// Adds the characters of `other`; returns `false` if the union cannot be represented.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let ([mine], [theirs]) = (self.high.as_mut_slice(), other.high.as_slice()) else { return false };
        if mine.negated {
            return false;
        }
        if theirs.negated {
            if theirs.ranges.is_empty() {
                mine.categories |= !theirs.categories & ALL_CATEGORIES;
            } else if theirs.categories == 0 {
                mine.ranges.extend(complement(&theirs.ranges));
            } else if mine.categories == 0 && mine.ranges.is_empty() {
                // This set has no characters above 255 yet: copy those of the other set.
                *mine = theirs.clone();
            } else {
                return false;
            }
        } else {
            mine.categories |= theirs.categories;
            mine.ranges.extend_from_slice(&theirs.ranges);
        }
        self.low.iter_mut().zip(other.low).for_each(|(mine, theirs)| *mine |= theirs);
        true
    }

    /// Returns the complement; `None` if it cannot be represented.
    pub(super) fn negated(mut self) -> Option<Self> {
        let [part] = self.high.as_mut_slice() else { return None };
        part.negated = !part.negated;
        self.low.iter_mut().for_each(|bits| *bits = !*bits);
        Some(self)
    }

    /// Returns the intersection.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.low.iter_mut().zip(other.low).for_each(|(mine, theirs)| *mine &= theirs);
        self.high.extend_from_slice(&other.high);
        self
    }

    /// Returns whether `character` is in the set.
    #[inline]
    pub(in super::super) fn has(&self, character: char) -> bool {
        let point = character as u32;
        if point < 256 { self.has_low(point as u8) } else { self.has_high(character) }
    }

    #[inline]
    pub(super) fn has_low(&self, point: u8) -> bool {
        self.low[usize::from(point >> 6)] >> (point & 63) & 1 == 1
    }

    fn has_high(&self, character: char) -> bool {
        self.high.iter().all(|part| part.has(character))
    }

    /// Returns the bitmap of characters below 256.
    pub(super) fn low(&self) -> [u64; 4] {
        self.low
    }

    /// Returns the categories that contain all characters above 255 (a superset).
    pub(super) fn high_categories(&self) -> u32 {
        self.high.iter().fold(ALL_CATEGORIES, |all, part| {
            all & match (part.ranges.is_empty(), part.negated) {
                (true, true) => !part.categories,
                (true, false) => part.categories,
                (false, _) => ALL_CATEGORIES,
            }
        })
    }
}

fn complement(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let (mut out, mut next) = (Vec::new(), 256);
    for (first, last) in sorted {
        if first > next {
            out.push((next, first - 1));
        }
        next = next.max(last + 1);
    }
    if next <= 0x10_FFFF {
        out.push((next, 0x10_FFFF));
    }
    out
}
