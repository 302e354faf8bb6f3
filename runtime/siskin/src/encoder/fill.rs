//! Fill-mask and extractive question answering.

use super::classify::softmax;
use super::text::Pair;
use super::{Encoder, EncoderInput, OverflowMode, TextOutputs};
use crate::{Error, ErrorKind, Result};
use siskin_backend::context::OutputRows;
use siskin_graph::OutputHead;
use siskin_tokenizer::EncodeOptions;

/// A prediction for a masked token.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskPrediction {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub text: String,
    /// Its probability.
    pub probability: f32,
}

/// A span of a text that answers a question.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerSpan {
    /// The first byte of the span.
    pub start: usize,
    /// The byte after the span.
    pub end: usize,
    /// The product of the probabilities of its start and its end.
    pub probability: f32,
}

/// The maximum length of an answer, in tokens.
const MAX_ANSWER_TOKENS: usize = 30;

impl Encoder {
    /// Returns the `count` most likely tokens for each occurrence of the mask token in `text`.
    pub fn fill_mask(&mut self, text: &str, count: usize) -> Result<Vec<Vec<MaskPrediction>>> {
        if self.head() != OutputHead::Token {
            return Err(Error::unsupported("model", "it has no head for masked tokens"));
        }
        let model = self.model().clone();
        let tokenizer = model.tokenizer()?;
        let mask =
            tokenizer.mask().ok_or_else(|| Error::new(ErrorKind::Missing, "tokenizer", "no mask token"))?;
        let ids = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true })?;
        let places: Vec<usize> = (0..ids.len()).filter(|&place| ids[place] == mask).collect();
        if places.is_empty() {
            let spelling = String::from_utf8_lossy(tokenizer.token_text(mask)?).into_owned();
            return Err(Error::argument("text", format!("no mask token; insert {spelling}")));
        }
        let mut rows = Vec::new();
        self.encode(&[ids.into()], OutputRows::At(&places), &mut |_, outputs| {
            rows = outputs.rows().map(softmax).collect();
            Ok(())
        })?;
        let fillings = |row: Vec<f32>| {
            // Padding rows of the head correspond to no token.
            let choices = (row.len() as u32).min(tokenizer.vocabulary_size());
            let mut order: Vec<u32> = (0..choices).collect();
            order.sort_unstable_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]).then(a.cmp(&b)));
            let filling = |&id: &u32| {
                let text = tokenizer.piece(id, true)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                Ok(MaskPrediction { id, text, probability: row[id as usize] })
            };
            order.iter().take(count).map(filling).collect::<Result<Vec<_>>>()
        };
        rows.into_iter().map(fillings).collect()
    }

    /// Returns the most likely span of `text` that answers `question`; `overflow` says how a long text is handled. Each
    /// window is preceded by the question, and the most likely answer of all windows is returned.
    pub fn answer(&mut self, question: &str, text: &str, overflow: OverflowMode) -> Result<AnswerSpan> {
        if self.head() != OutputHead::Span {
            return Err(Error::unsupported("model", "it has no head for extractive question answering"));
        }
        let mut pairs = self.pairs(question, text, overflow)?;
        if self.facts.marks {
            // Longformer models were trained with global attention on the question, special tokens before it included.
            pairs
                .iter_mut()
                .for_each(|pair| pair.tokens.global_positions = (0..pair.places[0].end).collect());
        }
        let inputs: Vec<EncoderInput> =
            pairs.iter_mut().map(|pair| std::mem::take(&mut pair.tokens)).collect();
        let mut found = vec![None; pairs.len()];
        self.encode(&inputs, OutputRows::All, &mut |index, outputs| {
            found[index] = best_answer(&pairs[index], outputs);
            Ok(())
        })?;
        let better = |best: AnswerSpan, answer: AnswerSpan| {
            if answer.probability > best.probability { answer } else { best }
        };
        found.into_iter().flatten().reduce(better).ok_or_else(|| Error::argument("text", "empty"))
    }
}

/// Returns the most likely answer in a window of a text.
fn best_answer(pair: &Pair, outputs: TextOutputs<'_>) -> Option<AnswerSpan> {
    let Pair { spans, places: [_, second], .. } = pair;
    let span = |index: usize| spans[index - second.start];
    let inside = |index: &usize| span(*index).0 < span(*index).1;
    let scores = |column: usize| softmax(&outputs.rows().map(|row| row[column]).collect::<Vec<_>>());
    let (begins, ends) = (scores(0), scores(1));
    let mut best: Option<AnswerSpan> = None;
    for begin in second.clone().filter(inside) {
        for end in (begin..second.end.min(begin + MAX_ANSWER_TOKENS)).filter(inside) {
            let probability = begins[begin] * ends[end];
            if best.as_ref().is_none_or(|best| probability > best.probability) {
                let (start, end) = (span(begin).0, span(end).1);
                best = Some(AnswerSpan { start, end, probability });
            }
        }
    }
    best
}
