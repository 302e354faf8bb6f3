//! Early exit: when a sequence has passed enough layers.

use super::classify::softmax;
use super::{Encoder, EncoderInput};
use crate::{Error, Result};
use siskin_backend::context::{OutputRows, SequenceInput, encode_with_early_exit};

/// The early-exit criterion, for models with heads on intermediate layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExitCriterion {
    /// Exits when the most likely class has at least this probability.
    Confidence(f32),
    /// Exits when the entropy of the classes is below this, in nats (DeeBERT, arXiv:2004.12993).
    Entropy(f32),
    /// Exits when this many consecutive heads agree with the one before them (PABEE, arXiv:2006.04152).
    Patience(usize),
}

/// The predictions of the heads for a sequence so far.
#[derive(Clone, Copy, Debug, Default)]
struct ExitPredictions {
    class: Option<usize>,
    /// How many consecutive heads agreed with the one before them.
    again: usize,
}

impl ExitCriterion {
    /// Rejects values that are out of range.
    pub(super) fn check(self) -> Result<()> {
        let message = match self {
            Self::Confidence(least) if !(0.0..=1.0).contains(&least) => {
                format!("the confidence {least} is out of range; expected a probability from 0 to 1")
            }
            Self::Entropy(max_entropy) if max_entropy.is_nan() || max_entropy < 0.0 => {
                format!("the entropy {max_entropy} is out of range; expected at least 0")
            }
            Self::Patience(0) => "the patience 0 is out of range; expected at least 1".to_owned(),
            _ => return Ok(()),
        };
        Err(Error::argument("early", message))
    }

    /// Returns whether a sequence with these scores exits.
    fn is_enough(self, scores: &[f32], said: &mut ExitPredictions) -> bool {
        match self {
            Self::Confidence(least) => softmax(scores).into_iter().any(|probability| probability >= least),
            Self::Entropy(max_entropy) => {
                let nats = |p: f32| if p > 0.0 { -f64::from(p) * libm::log(f64::from(p)) } else { 0.0 };
                softmax(scores).into_iter().map(nats).sum::<f64>() < f64::from(max_entropy)
            }
            Self::Patience(count) => {
                let best =
                    |best: usize, class: usize| if scores[class] > scores[best] { class } else { best };
                let class = (0..scores.len()).reduce(best);
                let again = if said.class.is_some() && said.class == class { said.again + 1 } else { 0 };
                *said = ExitPredictions { class, again };
                again >= count
            }
        }
    }
}

impl Encoder {
    /// Returns the number of layers that each text of the last call of [`Encoder::classify`] or [`Encoder::rerank`]
    /// passed, if early exit is enabled.
    pub fn layers(&self) -> &[usize] {
        &self.layers
    }

    /// Returns the class scores of each text, from the head at which it exited.
    pub(super) fn read_early(
        &mut self,
        texts: &[EncoderInput],
        early: ExitCriterion,
    ) -> Result<Vec<Vec<f32>>> {
        let lengths = self.lengths(texts)?;
        let mut all = vec![Vec::new(); texts.len()];
        self.layers = vec![0; texts.len()];
        for batch in self.batches(&lengths) {
            let rows = batch.iter().map(|&index| lengths[index]).sum();
            self.make_room(rows, batch.len())?;
            self.make_sequences(batch.len());
            let Some(context) = &mut self.context else { continue };
            let text =
                |(&index, &sequence): (&usize, &usize)| text(&texts[index], sequence, OutputRows::First);
            let pieces: Vec<SequenceInput<'_>> = batch.iter().zip(&self.sequences).map(text).collect();
            let mut said = vec![ExitPredictions::default(); batch.len()];
            let layers = &mut self.layers;
            encode_with_early_exit(context, &pieces, &mut |look| {
                let leaves = early.is_enough(look.scores, &mut said[look.text]) || look.last;
                if leaves {
                    all[batch[look.text]] = look.scores.to_vec();
                    layers[batch[look.text]] = look.layers;
                }
                !leaves
            })?;
            self.work.batches += 1;
            self.work.rows += rows;
        }
        Ok(all)
    }
}

/// Returns the encoder input of a sequence.
pub(super) fn text<'a>(
    tokens: &'a EncoderInput,
    sequence: usize,
    outputs: OutputRows<'a>,
) -> SequenceInput<'a> {
    let EncoderInput { ids, token_type_ids, features, global_positions, padding_token, adapter } = tokens;
    SequenceInput {
        sequence,
        tokens: ids,
        token_type_ids,
        features,
        global_positions,
        padding_token: *padding_token,
        adapter: *adapter,
        outputs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_counts_heads_that_agree() {
        let leaves_at = |early: ExitCriterion, scores: &[[f32; 2]]| {
            let mut said = ExitPredictions::default();
            scores.iter().position(|scores| early.is_enough(scores, &mut said))
        };
        let (a, b) = ([1.0, 0.0], [0.0, 1.0]);
        assert_eq!(leaves_at(ExitCriterion::Patience(1), &[a, b, a, a, b]), Some(3));
        assert_eq!(leaves_at(ExitCriterion::Patience(2), &[a, a, b, b, b]), Some(4));
        assert_eq!(leaves_at(ExitCriterion::Patience(3), &[a, a, a]), None);
        // exp(1) / (exp(1) + 1) is 0.731; the entropy is 0.582.
        assert_eq!(leaves_at(ExitCriterion::Confidence(0.73), &[[0.5, 0.0], a]), Some(1));
        assert_eq!(leaves_at(ExitCriterion::Confidence(0.74), &[[0.5, 0.0], a]), None);
        assert_eq!(leaves_at(ExitCriterion::Entropy(0.59), &[[0.5, 0.0], a]), Some(1));
        assert_eq!(leaves_at(ExitCriterion::Entropy(0.58), &[[0.5, 0.0], a]), None);
        assert!(
            ExitCriterion::Patience(0).check().is_err() && ExitCriterion::Confidence(1.5).check().is_err()
        );
        assert!(
            ExitCriterion::Entropy(f32::NAN).check().is_err() && ExitCriterion::Entropy(0.1).check().is_ok()
        );
    }
}
