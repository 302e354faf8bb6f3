//! Normalizers: rewriting steps before the text is split.

use super::aligned::Aligned;
use super::charsmap::{Charsmap, MAX_REPLACEMENT_BYTES};
use super::fallible_alloc;
use super::record::TokenizerRecord;
use super::regex::{Matcher, Pattern};
use super::unicode::{self, NormalizationForm, SourceChar, set};
use siskin_format::{Error, Result};

/// The maximum growth of a text by normalization, as a factor of its size.
const MAX_GROWTH: usize = 32;
/// SentencePiece's replacement of a space.
const MARK: &str = "\u{2581}";
/// Added to the size of a text when computing its maximum growth.
const SHORT: usize = 1024;

/// A normalization step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Normalizer {
    /// Unicode canonical composition.
    Nfc,
    /// Unicode canonical decomposition.
    Nfd,
    /// Unicode compatibility composition.
    Nfkc,
    /// Unicode compatibility decomposition.
    Nfkd,
    /// Converts to lower case.
    Lowercase,
    /// Removes nonspacing marks (accents).
    StripMarks {
        /// Also removes spacing and enclosing marks.
        all: bool,
    },
    /// Removes whitespace at the ends.
    Strip {
        /// At the start.
        left: bool,
        /// At the end.
        right: bool,
    },
    /// Replaces a text.
    Replace {
        /// The text to replace.
        from: String,
        /// The replacement.
        to: String,
    },
    /// Replaces what a pattern matches.
    ReplacePattern {
        /// The pattern to replace.
        pattern: String,
        /// The replacement.
        to: String,
    },
    /// Prepends a text to every non-empty segment.
    Prefix {
        /// The text.
        text: String,
        /// Only at the start of the input, not after special tokens.
        first_only: bool,
        /// Not if the segment already starts with the text.
        unless_there: bool,
    },
    /// Appends a text to every non-empty segment.
    Suffix(String),
    /// BERT's text cleaning: removes control characters, converts all whitespace to spaces.
    BertClean,
    /// Inserts spaces around Chinese characters, as BERT does.
    BertChinese,
    /// SentencePiece's precompiled character map (in the vocabulary's `charsmap`).
    Charsmap,
    /// Removes spaces at the ends and collapses runs of spaces.
    CollapseSpaces,
}

impl Normalizer {
    pub(super) fn record(&self) -> TokenizerRecord {
        let plain = |code| TokenizerRecord::new(code, 0, "", "");
        match self {
            Self::Nfc => plain(1),
            Self::Nfd => plain(2),
            Self::Nfkc => plain(3),
            Self::Nfkd => plain(4),
            Self::Lowercase => plain(5),
            Self::StripMarks { all } => TokenizerRecord::new(6, u32::from(*all), "", ""),
            Self::Strip { left, right } => {
                TokenizerRecord::new(7, u32::from(*left) | u32::from(*right) << 1, "", "")
            }
            Self::Replace { from, to } => TokenizerRecord::new(8, 0, from, to),
            Self::ReplacePattern { pattern, to } => TokenizerRecord::new(9, 0, pattern, to),
            Self::Prefix { text, first_only, unless_there } => {
                TokenizerRecord::new(10, u32::from(*first_only) | u32::from(*unless_there) << 1, text, "")
            }
            Self::Suffix(text) => TokenizerRecord::new(11, 0, text, ""),
            Self::BertClean => plain(12),
            Self::BertChinese => plain(13),
            Self::Charsmap => plain(14),
            Self::CollapseSpaces => plain(15),
        }
    }

    pub(super) fn from_record(record: TokenizerRecord) -> Result<Self> {
        let bit = |bit: u32| record.number >> bit & 1 == 1;
        let [first, second] = record.texts.clone();
        Ok(match record.code {
            1 => Self::Nfc,
            2 => Self::Nfd,
            3 => Self::Nfkc,
            4 => Self::Nfkd,
            5 => Self::Lowercase,
            6 => Self::StripMarks { all: bit(0) },
            7 => Self::Strip { left: bit(0), right: bit(1) },
            8 if first.is_empty() => {
                return Err(Error::corrupt("tokenizer.normalizer", "replaces an empty text"));
            }
            8 => Self::Replace { from: first, to: second },
            9 => Self::ReplacePattern { pattern: first, to: second },
            10 => Self::Prefix { text: first, first_only: bit(0), unless_there: bit(1) },
            11 => Self::Suffix(first),
            12 => Self::BertClean,
            13 => Self::BertChinese,
            14 => Self::Charsmap,
            15 => Self::CollapseSpaces,
            code => {
                return Err(Error::unsupported("tokenizer.normalizer", format!("step {code} is unknown")));
            }
        })
    }
}

/// A step with its compiled pattern.
#[derive(Clone, Debug)]
struct Step {
    normalizer: Normalizer,
    pattern: Option<Pattern>,
}

/// The compiled steps of a tokenizer.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    steps: Vec<Step>,
    /// The number of steps at the end that belong to the pre-tokenizer.
    late: usize,
}

/// Which steps run. Added tokens that are matched in normalized text are matched before the pre-tokenizer's steps,
/// which run on the text between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    All,
    /// The steps before the pre-tokenizer's.
    Normalizers,
    /// The pre-tokenizer's steps.
    PreTokenizer,
}

/// Reusable buffers of rewriting.
#[derive(Debug, Default)]
pub(super) struct Rewriting {
    pub(super) current: Aligned,
    spare: Aligned,
    characters: Vec<SourceChar>,
    more_characters: Vec<SourceChar>,
}

#[cfg(test)]
impl Rewriting {
    pub(super) fn longest_text(&self) -> usize {
        self.current.text.capacity().max(self.spare.text.capacity())
    }
}

/// Inputs of the steps besides the text.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub(super) charsmap: &'a [u8],
    /// Whether the segment is the start of the input.
    pub(super) is_first: bool,
    /// Whether prefixes and suffixes are skipped.
    pub(super) bare: bool,
}

impl Steps {
    pub(super) fn open(table: &[u8]) -> Result<Self> {
        let mut steps = Vec::new();
        for record in TokenizerRecord::read_all(table, "normalizer")? {
            steps.push(Step::new(Normalizer::from_record(record)?)?);
        }
        Ok(Self::new(steps))
    }

    pub(super) fn of(normalizers: &[Normalizer]) -> Result<Self> {
        normalizers.iter().cloned().map(Step::new).collect::<Result<_>>().map(Self::new)
    }

    fn new(steps: Vec<Step>) -> Self {
        let is_mark =
            |step: &Normalizer| matches!(step, Normalizer::Replace { from, to } if from == MARK && to == " ");
        let is_run = |step: &Normalizer| matches!(step, Normalizer::ReplacePattern { pattern, to } if pattern == r"\s+" && to == " ");
        let normalizers: Vec<&Normalizer> = steps.iter().map(|step| &step.normalizer).collect();
        let late = match normalizers[..] {
            // Words are split at whitespace, and each is prefixed with U+2581.
            [
                ..,
                before,
                Normalizer::Strip { left: true, right: true },
                run,
                mark,
                Normalizer::Prefix { unless_there: true, .. },
            ] if is_mark(before) && is_run(run) && is_mark(mark) => 4,
            [.., Normalizer::Prefix { unless_there: true, .. }] => 1,
            _ => 0,
        };
        Self { steps, late }
    }

    /// Returns whether there are steps of this stage.
    pub(super) fn have(&self, stage: Stage) -> bool {
        !self.of_stage(stage).is_empty()
    }

    fn of_stage(&self, stage: Stage) -> &[Step] {
        let (early, late) = self.steps.split_at(self.steps.len() - self.late);
        match stage {
            Stage::All => &self.steps,
            Stage::Normalizers => early,
            Stage::PreTokenizer => late,
        }
    }

    /// Rewrites `text`, which starts at `base` of the input. Returns `false` if nothing changes; the contents of
    /// `rewriting` are unspecified then.
    pub(super) fn run(
        &self,
        stage: Stage,
        (text, base): (&str, usize),
        track: bool,
        circumstances: Circumstances<'_>,
        (rewriting, matcher): (&mut Rewriting, &mut Matcher),
    ) -> Result<bool> {
        let mut changed = false;
        let max_bytes = MAX_GROWTH.saturating_mul(text.len() + SHORT);
        for step in self.of_stage(stage) {
            let now = if changed { &rewriting.current.text } else { text };
            if step.changes_nothing(now, circumstances) {
                continue;
            }
            if !changed {
                rewriting.current.fill(text, base, track, max_bytes);
                rewriting.current.check()?;
                changed = true;
            }
            rewriting.spare.reset(track, max_bytes);
            step.apply(rewriting, matcher, circumstances)?;
            rewriting.current.check()?;
        }
        Ok(changed)
    }
}

impl Step {
    fn new(normalizer: Normalizer) -> Result<Self> {
        if let Normalizer::Replace { to: text, .. }
        | Normalizer::ReplacePattern { to: text, .. }
        | Normalizer::Prefix { text, .. }
        | Normalizer::Suffix(text) = &normalizer
            && text.len() > MAX_REPLACEMENT_BYTES
        {
            let message = format!("a replacement is longer than {MAX_REPLACEMENT_BYTES} bytes");
            return Err(Error::unsupported("tokenizer.normalizer", message));
        }
        let pattern = match &normalizer {
            Normalizer::ReplacePattern { pattern, .. } => Some(Pattern::new(pattern)?),
            _ => None,
        };
        Ok(Self { normalizer, pattern })
    }

    /// Returns whether the step certainly leaves `text` unchanged.
    fn changes_nothing(&self, text: &str, circumstances: Circumstances<'_>) -> bool {
        if text.is_empty() {
            return true;
        }
        let below = |limit: char| text.is_ascii() || text.chars().all(|character| character < limit);
        match &self.normalizer {
            Normalizer::Nfc => below('\u{300}'),
            Normalizer::Nfd => below('\u{c0}'),
            Normalizer::Nfkc | Normalizer::Nfkd => below('\u{a0}'),
            Normalizer::StripMarks { .. } => below('\u{300}'),
            Normalizer::BertChinese => below('\u{3400}'),
            Normalizer::Lowercase => text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()),
            Normalizer::Replace { from, .. } => !contains(text, from),
            Normalizer::Prefix { text: prefix, first_only, unless_there } => {
                circumstances.bare
                    || (*first_only && !circumstances.is_first)
                    || (*unless_there && text.starts_with(prefix.as_str()))
            }
            Normalizer::Suffix(_) => circumstances.bare,
            Normalizer::CollapseSpaces => {
                !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  ")
            }
            Normalizer::BertClean => text.bytes().all(|byte| matches!(byte, 0x20..=0x7E)),
            Normalizer::Charsmap => circumstances.charsmap.is_empty(),
            Normalizer::Strip { .. } | Normalizer::ReplacePattern { .. } => false,
        }
    }

    /// Rewrites `current`, with the empty `spare` as the target.
    fn apply(
        &self,
        rewriting: &mut Rewriting,
        matcher: &mut Matcher,
        circumstances: Circumstances<'_>,
    ) -> Result<()> {
        let Rewriting { current, spare, .. } = rewriting;
        match &self.normalizer {
            Normalizer::Nfc => return recompose(rewriting, NormalizationForm::Nfc),
            Normalizer::Nfd => return recompose(rewriting, NormalizationForm::Nfd),
            Normalizer::Nfkc => return recompose(rewriting, NormalizationForm::Nfkc),
            Normalizer::Nfkd => return recompose(rewriting, NormalizationForm::Nfkd),
            Normalizer::Lowercase => each(current, spare, |character, source, out| {
                character.to_lowercase().for_each(|lower| out.push(lower, source));
            }),
            Normalizer::StripMarks { all } => {
                let marks = if *all { set::MARK } else { set::NONSPACING_MARK };
                each(current, spare, |character, source, out| {
                    if !unicode::is_in(character, marks) {
                        out.push(character, source);
                    }
                });
            }
            Normalizer::Strip { left, right } => {
                let start = if *left { current.text.len() - current.text.trim_start().len() } else { 0 };
                let end = if *right { current.text.trim_end().len() } else { current.text.len() };
                spare.copy(current, start..end.max(start));
            }
            Normalizer::Replace { from, to } => replace_text(current, spare, from, to),
            Normalizer::ReplacePattern { to, .. } => {
                replace_pattern(current, spare, self.pattern.as_ref(), to, matcher)?;
            }
            Normalizer::Prefix { text, .. } => {
                // Added text gets the offsets of the character that it is added to.
                let first = current.text.chars().next().map_or(0, char::len_utf8);
                spare.push_str(text, current.source(0..first));
                spare.copy(current, 0..current.text.len());
            }
            Normalizer::Suffix(text) => {
                let length = current.text.len();
                let last = current.text.chars().next_back().map_or(0, char::len_utf8);
                spare.copy(current, 0..length);
                spare.push_str(text, current.source(length - last..length));
            }
            Normalizer::BertClean => each(current, spare, bert_clean),
            Normalizer::BertChinese => {
                each(current, spare, |character, source, out| match is_chinese(character) {
                    true => {
                        out.push(' ', (source.0, source.0));
                        out.push(character, source);
                        out.push(' ', (source.1, source.1));
                    }
                    false => out.push(character, source),
                })
            }
            Normalizer::Charsmap => apply_charsmap(current, spare, Charsmap::open(circumstances.charsmap)?),
            Normalizer::CollapseSpaces => collapse_spaces(current, spare),
        }
        std::mem::swap(current, spare);
        Ok(())
    }
}

fn contains(text: &str, wanted: &str) -> bool {
    match wanted.as_bytes() {
        [byte] => text.as_bytes().contains(byte),
        // ASCII text cannot contain a text that starts with a non-ASCII byte.
        [first, ..] if *first >= 128 && text.is_ascii() => false,
        _ => text.contains(wanted),
    }
}

/// Rewrites character by character.
fn each(from: &Aligned, to: &mut Aligned, mut rewrite: impl FnMut(char, (u32, u32), &mut Aligned)) {
    for (at, character) in from.text.char_indices() {
        let source = if from.tracks() { from.source(at..at + character.len_utf8()) } else { (0, 0) };
        rewrite(character, source, to);
    }
}

fn recompose(rewriting: &mut Rewriting, form: NormalizationForm) -> Result<()> {
    let Rewriting { current, spare, characters, more_characters } = rewriting;
    characters.clear();
    fallible_alloc::reserve(characters, current.text.chars().count())?;
    for (at, character) in current.text.char_indices() {
        let (start, end) =
            if current.tracks() { current.source(at..at + character.len_utf8()) } else { (0, 0) };
        characters.push(SourceChar::new(character, start, end));
    }
    unicode::normalize(form, characters, more_characters)?;
    for placed in characters.iter() {
        spare.push(placed.character, (placed.start, placed.end));
    }
    std::mem::swap(current, spare);
    Ok(())
}

fn replace_text(current: &Aligned, spare: &mut Aligned, from: &str, to: &str) {
    let mut done = 0;
    for (at, _) in current.text.match_indices(from) {
        spare.copy(current, done..at);
        spare.push_str(to, current.source(at..at + from.len()));
        done = at + from.len();
    }
    spare.copy(current, done..current.text.len());
}

fn replace_pattern(
    current: &Aligned,
    spare: &mut Aligned,
    pattern: Option<&Pattern>,
    to: &str,
    matcher: &mut Matcher,
) -> Result<()> {
    let mut done = 0;
    if let Some(pattern) = pattern {
        matcher.allow(current.text.len());
        while let Some((start, end)) = matcher.find(pattern, &current.text, done)? {
            spare.copy(current, done..start);
            spare.push_str(to, current.source(start..end));
            done = end;
        }
    }
    spare.copy(current, done..current.text.len());
    Ok(())
}

fn bert_clean(character: char, source: (u32, u32), out: &mut Aligned) {
    match character {
        '\t' | '\n' | '\r' => out.push(' ', source),
        '\0' | '\u{fffd}' => {}
        _ if unicode::is_in(character, set::CONTROL) => {}
        _ if character.is_whitespace() => out.push(' ', source),
        _ => out.push(character, source),
    }
}

/// Returns whether BERT treats the character as Chinese. The start of the second last range is that of BERT's
/// tokenizer, not that of the Unicode block.
fn is_chinese(character: char) -> bool {
    matches!(
        character as u32,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

fn apply_charsmap(current: &Aligned, spare: &mut Aligned, map: Charsmap<'_>) {
    let text = current.text.as_str();
    let mut at = 0;
    while let Some(character) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let found =
            map.longest(&text.as_bytes()[at..]).filter(|&(length, _)| text.is_char_boundary(at + length));
        match found {
            Some((length, replacement)) => {
                spare.push_str(replacement, current.source(at..at + length));
                at += length;
            }
            None => {
                spare.copy(current, at..at + character.len_utf8());
                at += character.len_utf8();
            }
        }
    }
}

fn collapse_spaces(current: &Aligned, spare: &mut Aligned) {
    let text = current.text.as_str();
    let mut at = text.len() - text.trim_start_matches(' ').len();
    let end = text.trim_end_matches(' ').len();
    while at < end {
        let word = text[at..end].find(' ').map_or(end, |length| at + length);
        let next = word + (text[word..end].len() - text[word..end].trim_start_matches(' ').len());
        spare.copy(current, at..word);
        if next < end {
            spare.push(' ', current.source(word..next));
        }
        at = next;
    }
}
