//! Span corruption (T5, arXiv:1910.10683).

use std::ops::Range;
use std::sync::Arc;

use siskin_format::{Error, Result};
use siskin_graph::OutputHead;
use siskin_tokenizer::Tokenizer;

use super::{
    TaskBatch, TaskEntry, TaskSettings, TrainingTask, check_mlm_probability, check_parts, in_vocabulary,
    missing,
};
use crate::data::records::Records;
use crate::data::windows::Windows;
use crate::random::Random;

pub(super) const KIND: TaskEntry = TaskEntry {
    name: "span_corruption",
    fields: &[("text", false)],
    label: None,
    head: OutputHead::Next,
    sides: [true, true],
    make: |settings, tokenizer, records| {
        let end = tokenizer
            .eos()
            .ok_or_else(|| missing("end-of-text", "span corruption ends sequences with one"))?;
        let tokens = Sentinels::of(tokenizer)?;
        Ok(Arc::new(SpanCorruption::new(records, settings, tokens, end)?))
    },
};

/// Sentinel tokens, which replace masked spans: the first for the first span, then with falling ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentinels {
    /// The first.
    pub first: u32,
    /// The number of sentinels.
    pub count: u32,
}

impl Sentinels {
    /// Finds the tokens that a tokenizer spells `<extra_id_0>` and so on, with falling ids.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self> {
        let id = |number: u32| tokenizer.token_to_id(format!("<extra_id_{number}>").as_bytes());
        let first = id(0).ok_or_else(|| missing("sentinel (<extra_id_0>)", "use a T5 tokenizer"))?;
        let count = (0..=first).take_while(|&number| id(number) == first.checked_sub(number)).count();
        Ok(Self { first, count: count as u32 })
    }

    /// The tokens at the top of a vocabulary.
    pub fn top(vocabulary: u32, count: u32) -> Self {
        Self { first: vocabulary.saturating_sub(1), count }
    }
}

/// Encoder sequences in which each masked span is replaced by a sentinel, and decoder sequences with each masked span
/// after its sentinel. Both end with the end token.
///
/// The number of masked tokens and of spans follows from the length, their positions are random: a sequence starts
/// with kept tokens and ends with masked ones. A sequence of one token is not masked.
pub struct SpanCorruption {
    records: Arc<dyn Records>,
    windows: Windows,
    noise: NoiseSchedule,
    sentinels: Sentinels,
    start: u32,
    end: u32,
}

/// How much of a sequence is masked.
#[derive(Clone, Copy, Debug)]
struct NoiseSchedule {
    mlm_probability: f64,
    mean_noise_span_length: f64,
    most: usize,
}

impl NoiseSchedule {
    /// Returns the masked tokens and the spans of a sequence of this length.
    fn of(&self, length: usize) -> (usize, usize) {
        if length < 2 {
            return (0, 0);
        }
        let hidden = ((length as f64 * self.mlm_probability).round_ties_even() as usize).clamp(1, length - 1);
        let fewer = hidden.min(length - hidden);
        let spans = (fewer as f64 / self.mean_noise_span_length).round_ties_even() as usize;
        (hidden, spans.clamp(1, fewer.min(self.most)))
    }

    /// Returns the rows of the encoder and of the decoder sequence.
    fn rows(&self, length: usize) -> [usize; 2] {
        let (hidden, spans) = self.of(length);
        [length - hidden + spans + 1, hidden + spans + 1]
    }

    /// Returns the length of the longest text up to `limit` whose sequences fit.
    fn longest(&self, most: [usize; 2], limit: usize) -> usize {
        let fits = |length: &usize| self.rows(*length).iter().zip(most).all(|(rows, most)| *rows <= most);
        (1..=limit).take_while(fits).last().unwrap_or(0)
    }
}

impl SpanCorruption {
    /// Creates the task with the lengths in `settings`.
    pub fn new(
        records: Arc<dyn Records>,
        settings: &TaskSettings,
        sentinels: Sentinels,
        end: u32,
    ) -> Result<Self> {
        check_parts(&*records, 1..=1, "one")?;
        check_mlm_probability(settings.mlm_probability)?;
        let span = settings.mean_noise_span_length;
        if span.is_nan() || span < 1.0 {
            return Err(Error::argument(
                "mean_noise_span_length",
                format!("expected at least 1, got {span}"),
            ));
        }
        if sentinels.count == 0 || sentinels.count > sentinels.first.saturating_add(1) {
            let message = format!(
                "there are {} sentinel tokens from id {} downwards; at least one is needed, and ids \
                 cannot be negative",
                sentinels.count, sentinels.first
            );
            return Err(Error::argument("sentinels", message));
        }
        let vocabulary = records.vocabulary();
        in_vocabulary("sentinels", sentinels.first, vocabulary)?;
        let shape = NoiseSchedule {
            mlm_probability: settings.mlm_probability,
            mean_noise_span_length: settings.mean_noise_span_length,
            most: sentinels.count as usize,
        };
        let length = |record| records.length(record, 0);
        // A text of one token fits whenever any text fits.
        let limit = (0..records.count()).map(length).max().unwrap_or(0).max(1);
        let size = shape.longest([settings.max_length, settings.max_target_length()], limit);
        if size == 0 {
            let message = format!("{} is too short for a text; raise it", settings.max_length);
            return Err(Error::argument("max_length", message));
        }
        let windows = Windows::new(&*records, size, |record| records.length(record, 0));
        let start = settings.decoder_start_token_id(vocabulary)?;
        Ok(Self {
            windows,
            noise: shape,
            sentinels,
            start,
            end: in_vocabulary("end", end, vocabulary)?,
            records,
        })
    }

    fn part(&self, example: usize) -> (usize, Range<usize>) {
        let (record, start) = self.windows.place(example);
        (record, start..self.records.length(record, 0).min(start.saturating_add(self.windows.size())))
    }
}

/// Splits `items` into `parts` non-empty parts, uniformly at random over all ways to do so.
fn cut(items: usize, parts: usize, random: &mut Random) -> Vec<usize> {
    let mut lengths = Vec::with_capacity(parts);
    let (mut cuts, mut length) = (parts.saturating_sub(1), 0);
    for item in 0..items {
        length += 1;
        let left = items - 1 - item;
        if left > 0 && random.below(left as u64) < cuts as u64 {
            lengths.push(length);
            (cuts, length) = (cuts - 1, 0);
        }
    }
    if items > 0 {
        lengths.push(length);
    }
    lengths
}

/// Returns a text with masked spans replaced by sentinels, and the masked spans. Kept and masked spans alternate.
fn corrupt(text: &[u32], stay: &[usize], hidden: &[usize], first: u32) -> [Vec<u32>; 2] {
    let (mut source, mut target) = (Vec::new(), Vec::new());
    let mut rest = text;
    for (number, (&stay, &hidden)) in stay.iter().zip(hidden).enumerate() {
        let sentinel = first - number as u32;
        let (kept, after) = rest.split_at(stay);
        let (left_out, after) = after.split_at(hidden);
        source.extend_from_slice(kept);
        source.push(sentinel);
        target.push(sentinel);
        target.extend_from_slice(left_out);
        rest = after;
    }
    source.extend_from_slice(rest);
    [source, target]
}

impl TrainingTask for SpanCorruption {
    fn count(&self) -> usize {
        self.windows.count()
    }

    fn rows(&self, example: usize) -> usize {
        self.noise.rows(self.part(example).1.len()).iter().sum()
    }

    fn add(&self, example: usize, random: &mut Random, made: &mut TaskBatch) -> Result<()> {
        let (record, part) = self.part(example);
        let mut text = Vec::new();
        self.records.read(record, 0, part, &mut text)?;
        let (hidden, spans) = self.noise.of(text.len());
        let (gone, stay) = (cut(hidden, spans, random), cut(text.len() - hidden, spans, random));
        let [mut source, mut target] = match spans {
            0 => [text, Vec::new()],
            _ => corrupt(&text, &stay, &gone, self.sentinels.first),
        };
        source.push(self.end);
        target.push(self.end);
        made.batch.encoder.push(&source, &[]);
        made.write(self.start, &target);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of T5's own code for these spans, worked out by hand.
    #[test]
    fn spans_are_replaced_by_sentinels() {
        let text: Vec<u32> = (1..=9).collect();
        let [source, target] = corrupt(&text, &[2, 4], &[2, 1], 99);
        assert_eq!(source, [1, 2, 99, 5, 6, 7, 8, 98]);
        assert_eq!(target, [99, 3, 4, 98, 9]);
    }

    /// With a masked fraction of 0.15 and spans of 3, T5 takes 568 tokens for 512 encoder rows, and has 114 decoder
    /// rows.
    #[test]
    fn noise_and_span_counts_match_t5() {
        let shape = NoiseSchedule { mlm_probability: 0.15, mean_noise_span_length: 3.0, most: 100 };
        assert_eq!(shape.longest([512, 512], 10_000), 568);
        assert_eq!(shape.longest([512, 512], 100), 100);
        assert_eq!(shape.rows(568), [512, 114]);
        assert_eq!(shape.of(512), (77, 26));
        assert_eq!((shape.of(0), shape.of(1), shape.of(2)), ((0, 0), (0, 0), (1, 1)));
    }

    #[test]
    fn segmentations_are_uniform() {
        let mut counts = std::collections::HashMap::new();
        let mut random = Random::new(1, &[]);
        for _ in 0..10_000 {
            let parts = cut(6, 3, &mut random);
            assert_eq!((parts.len(), parts.iter().sum::<usize>()), (3, 6));
            *counts.entry(parts).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 10, "five places, two cuts");
        assert!(counts.values().all(|&count| count.abs_diff(1000) < 200), "{counts:?}");
        assert_eq!(cut(3, 3, &mut random), [1, 1, 1]);
        assert!(cut(0, 0, &mut random).is_empty());
    }
}
