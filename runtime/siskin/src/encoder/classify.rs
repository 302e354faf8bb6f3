//! Text classification, token classification and reranking.

use serde_json::Value;

use super::text::numbered;
use super::{Encoder, EncoderInput, OverflowMode, TextWindow};
use crate::model::Model;
use crate::{Error, Result};
use siskin_backend::context::OutputRows;
use siskin_graph::OutputHead;

/// A class or label with its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Its name.
    pub label: String,
    /// Its probability; for regression models (`problem_type` is `regression`), the predicted value.
    pub probability: f32,
}

/// How the outputs of a classification head are interpreted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClassOutputs {
    /// Mutually exclusive classes (softmax).
    Exclusive,
    /// Independent labels (sigmoid).
    Apart,
    /// Regression: values, not probabilities.
    Numbers,
}

impl ClassOutputs {
    /// Returns the interpretation for a model with `count` outputs.
    pub(super) fn of(model: &Model, count: usize) -> Self {
        let kind = model.file().metadata().config.get("problem_type");
        Self::named(kind.and_then(Value::as_str), count)
    }

    fn named(kind: Option<&str>, count: usize) -> Self {
        match kind {
            Some("regression") => Self::Numbers,
            Some("multi_label_classification") => Self::Apart,
            _ if count == 1 => Self::Apart,
            _ => Self::Exclusive,
        }
    }
}

/// An entity: a span of a text with one label.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    /// The label, without its tagging prefix (BIO, BIOES, BILOU).
    pub label: String,
    /// The mean probability of its tokens.
    pub probability: f32,
    /// The first byte of the span.
    pub start: usize,
    /// The byte after the span.
    pub end: usize,
}

/// The most likely label of a token.
#[derive(Clone, Copy)]
struct Labeled {
    best: usize,
    probability: f32,
    span: (usize, usize),
}

impl Labeled {
    fn of(row: &[f32], span: (usize, usize)) -> Self {
        let row = softmax(row);
        let best = (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        Self { best, probability: row.get(best).copied().unwrap_or(0.0), span }
    }
}

impl Encoder {
    fn needs(&self, head: OutputHead, what: &str) -> Result<()> {
        match self.head() == head {
            true => Ok(()),
            false => Err(Error::unsupported("model", format!("it has no head for {what}"))),
        }
    }

    /// Returns the name of class or label `index`.
    fn label(&self, index: usize) -> String {
        let names = self.model().file().metadata().config.get("id2label");
        let name = names.and_then(|names| names.get(index.to_string())).and_then(Value::as_str);
        name.map_or_else(|| format!("LABEL_{index}"), str::to_owned)
    }

    /// Returns the classes of each text, most likely or largest first.
    pub fn classify<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        overflow: OverflowMode,
    ) -> Result<Vec<Vec<Scored>>> {
        self.needs(OutputHead::Class, "classes")?;
        let inputs = self.first_parts(texts, overflow)?;
        let scores = self.first_rows(&inputs)?;
        let classes = |row: Vec<f32>| {
            let probabilities = match ClassOutputs::of(self.model(), row.len()) {
                ClassOutputs::Exclusive => softmax(&row),
                ClassOutputs::Apart => logistic(&row),
                ClassOutputs::Numbers => row,
            };
            let named = probabilities.into_iter().enumerate();
            let mut classes: Vec<Scored> =
                named.map(|(index, probability)| Scored { label: self.label(index), probability }).collect();
            classes.sort_by(|a, b| b.probability.total_cmp(&a.probability));
            classes
        };
        Ok(scores.into_iter().map(classes).collect())
    }

    /// Returns the relevance score of each text for the question, as computed by a cross-encoder. Only the order of
    /// scores is meaningful.
    pub fn rerank<T: AsRef<str>>(
        &mut self,
        question: &str,
        texts: &[T],
        overflow: OverflowMode,
    ) -> Result<Vec<f32>> {
        self.needs(OutputHead::Class, "pairs of texts")?;
        let pair = |(index, text): (usize, &T)| {
            let pairs = self.pairs(question, text.as_ref(), overflow);
            pairs.map_err(|error| error.within(&format!("text {index}")))
        };
        let pairs = texts.iter().enumerate().map(pair).collect::<Result<Vec<_>>>()?;
        let inputs: Vec<EncoderInput> = pairs.into_iter().flatten().map(|pair| pair.tokens).collect();
        if inputs.len() != texts.len() {
            let message = "windows are not supported: each text has one score; use error or truncate";
            return Err(Error::argument("overflow", message));
        }
        // Of two classes the second one means "relevant".
        Ok(self.first_rows(&inputs)?.into_iter().filter_map(|row| row.last().copied()).collect())
    }

    /// Returns the entities of each text: spans with a label other than `O`. A span may extend over several windows of
    /// a long text.
    pub fn tag<T: AsRef<str>>(&mut self, texts: &[T], overflow: OverflowMode) -> Result<Vec<Vec<Entity>>> {
        self.needs(OutputHead::Label, "labels")?;
        let (owners, parts): (Vec<usize>, Vec<TextWindow>) =
            self.all_parts(&numbered(texts), overflow)?.into_iter().unzip();
        let (inputs, shown): (Vec<EncoderInput>, Vec<_>) =
            parts.into_iter().map(|part| (part.tokens, (part.own_tokens, part.spans))).unzip();
        let mut found = vec![Vec::new(); inputs.len()];
        self.encode(&inputs, OutputRows::All, &mut |index, outputs| {
            let (own_tokens, spans) = &shown[index];
            let labeled = |token: usize| Labeled::of(outputs.row(token), spans[token]);
            found[index] = own_tokens.clone().map(labeled).collect();
            Ok(())
        })?;
        // The labels of all windows of a text are concatenated before spans are built, as a span may cross windows.
        let mut all = vec![Vec::new(); texts.len()];
        owners.into_iter().zip(found).for_each(|(owner, labeled)| all[owner].extend(labeled));
        Ok(all.iter().map(|labeled| self.entities(labeled)).collect())
    }

    /// Merges consecutive tokens with the same label into a span, unless a tagging prefix (BIO, BIOES, BILOU) starts a
    /// new one.
    fn entities(&self, tokens: &[Labeled]) -> Vec<Entity> {
        let mut entities: Vec<(Entity, usize)> = Vec::new();
        let mut open = false;
        for &Labeled { best, probability, span: (start, end) } in tokens {
            let name = self.label(best);
            if name == "O" {
                open = false;
                continue;
            }
            let (mark, label) = match name.split_once('-') {
                Some((mark @ ("B" | "I" | "E" | "S" | "L" | "U"), label)) => (mark, label.to_owned()),
                _ => ("I", name),
            };
            match entities.last_mut() {
                Some((entity, count))
                    if open && entity.label == label && !matches!(mark, "B" | "S" | "U") =>
                {
                    entity.end = end;
                    entity.probability += probability;
                    *count += 1;
                }
                _ => entities.push((Entity { label, probability, start, end }, 1)),
            }
            open = !matches!(mark, "E" | "L" | "S" | "U");
        }
        let mean = |(entity, count): (Entity, usize)| {
            let probability = entity.probability / count as f32;
            Entity { probability, ..entity }
        };
        // A span of whitespace only may be empty after trimming.
        entities.into_iter().map(mean).filter(|entity| entity.start < entity.end).collect()
    }

    /// Returns the first window of each text.
    fn first_parts<T: AsRef<str>>(&self, texts: &[T], overflow: OverflowMode) -> Result<Vec<EncoderInput>> {
        let parts = self.all_parts(&numbered(texts), overflow)?;
        if parts.len() != texts.len() {
            let message = "windows are not supported: each text has one result; use error or truncate";
            return Err(Error::argument("overflow", message));
        }
        Ok(parts.into_iter().map(|(_, part)| part.tokens).collect())
    }

    /// Returns the output row of the first token of each text.
    fn first_rows(&mut self, texts: &[EncoderInput]) -> Result<Vec<Vec<f32>>> {
        if let Some(early) = self.options.early {
            return self.read_early(texts, early);
        }
        let mut rows = vec![Vec::new(); texts.len()];
        self.encode(texts, OutputRows::First, &mut |index, outputs| {
            rows[index] = outputs.row(0).to_vec();
            Ok(())
        })?;
        Ok(rows)
    }
}

/// Returns the probabilities of mutually exclusive classes.
pub(super) fn softmax(row: &[f32]) -> Vec<f32> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = row.iter().map(|&x| libm::exp(f64::from(x - largest))).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| (weight / sum) as f32).collect()
}

/// Returns the probabilities of independent labels (sigmoid).
fn logistic(row: &[f32]) -> Vec<f32> {
    row.iter().map(|&x| (1.0 / (1.0 + libm::exp(-f64::from(x)))) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_what_the_pipeline_of_transformers_takes_them_for() {
        for (kind, count, is) in [
            (Some("regression"), 1, ClassOutputs::Numbers),
            (Some("regression"), 3, ClassOutputs::Numbers),
            (Some("multi_label_classification"), 3, ClassOutputs::Apart),
            (Some("single_label_classification"), 3, ClassOutputs::Exclusive),
            (Some("single_label_classification"), 1, ClassOutputs::Apart),
            (None, 1, ClassOutputs::Apart),
            (None, 2, ClassOutputs::Exclusive),
        ] {
            assert!(ClassOutputs::named(kind, count) == is, "{kind:?}, {count}");
        }
    }
}
