//! The contrastive loss (InfoNCE, arXiv:1807.03748) with in-batch negatives.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{Loss, LossRows, LossSum, Targets};
use crate::batch::{BatchSequences, TrainingBatch};
use crate::gemm::{MatrixOutput, MatrixView, multiply};
use crate::real::Real;

/// The pooling of a sequence's rows into an embedding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossPooling {
    /// Mean pooling.
    #[default]
    Mean,
    /// The first row.
    Cls,
    /// The last row.
    Last,
}

/// InfoNCE (arXiv:1807.03748): cross-entropy of similarities within the batch. Sequences are anchor and match, and
/// then hard negatives if an example has some. Each anchor is compared with the matches and negatives of all
/// examples. Anchors have the weight 1, all other sequences 0.
///
/// With several widths the loss is the mean over embeddings truncated to each (Matryoshka representation learning,
/// arXiv:2205.13147).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contrastive {
    /// The factor on cosine similarities (inverse temperature).
    pub scale: f64,
    /// How a sequence becomes an embedding.
    pub pooling: LossPooling,
    /// Sequences of each example; 0: all up to the next anchor.
    pub group_size: usize,
    /// The widths that embeddings are truncated to; empty: all columns.
    pub matryoshka_dims: Vec<usize>,
}

impl Default for Contrastive {
    fn default() -> Self {
        Self { scale: 20.0, pooling: LossPooling::Mean, group_size: 0, matryoshka_dims: Vec::new() }
    }
}

impl<T: Real> Loss<T> for Contrastive {
    fn by_rows(&self) -> bool {
        false
    }

    fn weight(&self, batch: &TrainingBatch, targets: &Targets) -> f64 {
        self.anchors(texts_of(batch).sequences.len(), targets).len() as f64
    }

    fn add(
        &self,
        outputs: &LossRows<'_, T>,
        targets: &Targets,
        scale: f64,
        gradient: &mut [T],
    ) -> Result<LossSum> {
        let (sequences, columns) = (texts_of(outputs.batch), outputs.columns);
        let ContrastiveExamples { anchors, widths } = self.examples(outputs.batch, targets, columns)?;
        gradient.fill(T::ZERO);
        let pooled: Vec<T> = sequences
            .spans()
            .flat_map(|span| self.pool(&outputs.numbers[span.start * columns..span.end * columns], columns))
            .collect();
        let mut pooled_gradient = vec![T::ZERO; pooled.len()];
        let mut sum = LossSum::default();
        for &width in &widths {
            let row_weight = scale / widths.len() as f64;
            let part = self.width(
                Embeddings { rows: &pooled, columns, width },
                &anchors,
                row_weight,
                &mut pooled_gradient,
            );
            sum.loss += part.loss / widths.len() as f64;
            sum.weight += part.weight / widths.len() as f64;
            sum.correct += part.correct / widths.len() as f64;
        }
        for (span, pooled_gradient) in sequences.spans().zip(pooled_gradient.chunks(columns)) {
            self.unpool(span.clone(), pooled_gradient, gradient);
        }
        Ok(sum)
    }
}

/// The examples of a batch.
pub(crate) struct ContrastiveExamples {
    /// The sequences that are anchors.
    pub(crate) anchors: Vec<usize>,
    /// The widths that embeddings are truncated to.
    pub(crate) widths: Vec<usize>,
}

/// The embeddings of all sequences, truncated to the first columns.
#[derive(Clone, Copy)]
struct Embeddings<'a, T> {
    rows: &'a [T],
    columns: usize,
    /// The columns that are left.
    width: usize,
}

/// Returns the sequences that become embeddings.
pub(crate) fn texts_of(batch: &TrainingBatch) -> &BatchSequences {
    if batch.decoder.rows.is_empty() { &batch.encoder } else { &batch.decoder }
}

/// Rejects examples without a match.
fn check(anchors: &[usize], sequences: usize) -> Result<()> {
    let ends = anchors.iter().skip(1).copied().chain([sequences]);
    let alone = anchors.iter().zip(ends).find(|(anchor, end)| **anchor + 1 >= *end);
    match (anchors.first(), alone) {
        (Some(0), None) => Ok(()),
        (None, _) if sequences == 0 => Ok(()),
        (_, Some((anchor, _))) => {
            let message = format!("sequence {anchor} is an anchor without a positive after it");
            Err(Error::argument("batch", message))
        }
        _ => {
            let message = "the first sequence is not an anchor: anchors have weight 1, all others 0; the task \
                           `contrastive` makes such batches";
            Err(Error::argument("batch", message))
        }
    }
}

impl Contrastive {
    /// Returns the examples of a batch.
    ///
    /// # Errors
    /// If rows are missing, an example has no match, or embeddings are narrower than a width.
    pub(crate) fn examples(
        &self,
        batch: &TrainingBatch,
        targets: &Targets,
        columns: usize,
    ) -> Result<ContrastiveExamples> {
        let sequences = texts_of(batch);
        if sequences.output_rows.len() != sequences.rows.len() {
            return Err(Error::argument("batch", "embeddings need all rows of a sequence as output rows"));
        }
        let anchors = self.anchors(sequences.sequences.len(), targets);
        check(&anchors, sequences.sequences.len())?;
        let widths =
            if self.matryoshka_dims.is_empty() { vec![columns] } else { self.matryoshka_dims.clone() };
        match widths.iter().find(|&&width| width == 0 || width > columns) {
            Some(width) => {
                let message = format!("{width} is out of range for embeddings of {columns} dimensions");
                Err(Error::argument("loss.matryoshka_dims", message))
            }
            None => Ok(ContrastiveExamples { anchors, widths }),
        }
    }

    fn pool<T: Real>(&self, rows: &[T], columns: usize) -> Vec<T> {
        let count = rows.len() / columns;
        match self.pooling {
            LossPooling::Cls => rows[..columns].to_vec(),
            LossPooling::Last => rows[(count - 1) * columns..].to_vec(),
            LossPooling::Mean => {
                let mut sum = vec![T::ZERO; columns];
                for row in rows.chunks(columns) {
                    sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += *x);
                }
                sum.iter_mut().for_each(|sum| *sum /= T::of(count as f64));
                sum
            }
        }
    }

    fn unpool<T: Real>(&self, span: Range<usize>, pooled_gradient: &[T], gradient: &mut [T]) {
        let columns = pooled_gradient.len();
        let (rows, row_weight) = match self.pooling {
            LossPooling::Cls => (span.start..span.start + 1, T::ONE),
            LossPooling::Last => (span.end - 1..span.end, T::ONE),
            LossPooling::Mean => (span.clone(), T::ONE / T::of(span.len() as f64)),
        };
        for row in gradient[rows.start * columns..rows.end * columns].chunks_mut(columns) {
            row.iter_mut().zip(pooled_gradient).for_each(|(to, from)| *to += *from * row_weight);
        }
    }

    /// Returns the indices of the anchors.
    fn anchors(&self, sequences: usize, targets: &Targets) -> Vec<usize> {
        match self.group_size {
            0 => (0..sequences)
                .filter(|&sequence| targets.weights.get(sequence).is_some_and(|x| *x > 0.0))
                .collect(),
            group => (0..sequences).step_by(group).collect(),
        }
    }

    /// Computes the loss of truncated embeddings; adds the gradient of the embeddings.
    fn width<T: Real>(
        &self,
        Embeddings { rows: pooled, columns, width }: Embeddings<'_, T>,
        anchors: &[usize],
        scale: f64,
        pooled_gradient: &mut [T],
    ) -> LossSum {
        let sequences = pooled.len() / columns;
        let norms: Vec<T> = pooled
            .chunks(columns)
            .map(|x| x[..width].iter().map(|x| *x * *x).sum::<T>().sqrt().max(T::of(1e-12)))
            .collect();
        let units: Vec<T> = pooled
            .chunks(columns)
            .zip(&norms)
            .flat_map(|(x, norm)| x[..width].iter().map(|x| *x / *norm))
            .collect();
        let pick = |is_anchor: bool| -> (Vec<usize>, Vec<T>) {
            let wanted = |sequence: &usize| anchors.binary_search(sequence).is_ok() == is_anchor;
            let places: Vec<usize> = (0..sequences).filter(wanted).collect();
            let rows = places
                .iter()
                .flat_map(|&sequence| units[sequence * width..(sequence + 1) * width].iter().copied());
            let rows = rows.collect();
            (places, rows)
        };
        let ((anchors, left), (others, right)) = (pick(true), pick(false));
        let (rows, count) = (anchors.len(), others.len());
        let mut scores = vec![T::ZERO; rows * count];
        let (left, right) =
            (MatrixView::new(&left, rows, width, width), MatrixView::new(&right, count, width, width));
        multiply(T::of(self.scale), left, right.transposed(), false, MatrixOutput::new(&mut scores, count));
        let mut sum = LossSum::default();
        for (row, scores) in scores.chunks_mut(count).enumerate() {
            // The index of the match among the sequences that are not anchors.
            let own = anchors[row] - row;
            let maximum = scores.iter().copied().fold(scores[0], T::max);
            let total = maximum + scores.iter().map(|x| (*x - maximum).exp()).sum::<T>().ln();
            sum.loss += (total - scores[own]).f64();
            sum.weight += 1.0;
            sum.correct += f64::from(u8::from(scores[own] >= maximum));
            scores.iter_mut().for_each(|x| *x = (*x - total).exp() * T::of(scale));
            scores[own] -= T::of(scale);
        }
        let scores = MatrixView::new(&scores, rows, count, count);
        let mut of_units = vec![T::ZERO; sequences * width];
        let mut spread = |places: &[usize], from: Vec<T>| {
            for (place, from) in places.iter().zip(from.chunks(width)) {
                of_units[place * width..(place + 1) * width].copy_from_slice(from);
            }
        };
        let mut of_left = vec![T::ZERO; rows * width];
        multiply(T::of(self.scale), scores, right, false, MatrixOutput::new(&mut of_left, width));
        spread(&anchors, of_left);
        let mut of_right = vec![T::ZERO; count * width];
        multiply(
            T::of(self.scale),
            scores.transposed(),
            left,
            false,
            MatrixOutput::new(&mut of_right, width),
        );
        spread(&others, of_right);
        for sequence in 0..sequences {
            let (unit, g) = (
                &units[sequence * width..(sequence + 1) * width],
                &of_units[sequence * width..(sequence + 1) * width],
            );
            let inner: T = unit.iter().zip(g).map(|(u, g)| *u * *g).sum();
            for (i, to) in
                pooled_gradient[sequence * columns..sequence * columns + width].iter_mut().enumerate()
            {
                *to += (g[i] - unit[i] * inner) / norms[sequence];
            }
        }
        sum
    }
}
