//! Texts that belong together nearer to each other than to all others of the batch.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use super::{Loss, Outputs, Sum, Targets};
use crate::batch::{Batch, Texts};
use crate::gemm::{Matrix, Target, multiply};
use crate::real::Real;

/// What one vector is made of from a text's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Their mean.
    #[default]
    Mean,
    /// The first.
    First,
    /// The last.
    Last,
}

/// Cross-entropy of similarities in the batch: the texts are anchor, match, anchor, match…, or with negatives anchor,
/// match, negative. Each anchor's match is told from the matches and negatives of all (van den Oord et al., 2018).
///
/// With several widths the loss is the mean over vectors cut to each (Kusupati et al., 2022).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contrastive {
    /// Factor on cosines.
    pub scale: f64,
    /// How a text becomes a vector.
    pub pooling: Pooling,
    /// Texts of a group: 2, or 3 with negatives.
    pub group: usize,
    /// Columns that count; empty: all.
    pub widths: Vec<usize>,
}

impl Default for Contrastive {
    fn default() -> Self {
        Self { scale: 20.0, pooling: Pooling::Mean, group: 2, widths: Vec::new() }
    }
}

impl<T: Real> Loss<T> for Contrastive {
    fn by_rows(&self) -> bool {
        false
    }

    fn weight(&self, batch: &Batch, _: &Targets) -> f64 {
        texts(batch).spans.len() as f64 / self.group.max(1) as f64
    }

    fn add(&self, outputs: &Outputs<'_, T>, _: &Targets, scale: f64, gradient: &mut [T]) -> Result<Sum> {
        let texts = texts(outputs.batch);
        if texts.wanted.len() != texts.rows.len()
            || !texts.spans.len().is_multiple_of(self.group)
            || self.group < 2
        {
            let message = format!("vectors are made of all rows of texts in groups of {}", self.group);
            return Err(Error::argument("batch", message));
        }
        let columns = outputs.columns;
        gradient.fill(T::ZERO);
        let pooled: Vec<T> = texts
            .spans
            .iter()
            .flat_map(|span| self.pool(&outputs.numbers[span.start * columns..span.end * columns], columns))
            .collect();
        let widths = if self.widths.is_empty() { vec![columns] } else { self.widths.clone() };
        if let Some(width) = widths.iter().find(|&&width| width == 0 || width > columns) {
            return Err(Error::argument(
                "loss.widths",
                format!("{width}, but vectors have {columns} columns"),
            ));
        }
        let mut steep = vec![T::ZERO; pooled.len()];
        let mut sum = Sum::default();
        for &width in &widths {
            let part = self.width(&pooled, columns, width, scale / widths.len() as f64, &mut steep);
            sum.loss += part.loss / widths.len() as f64;
            sum.weight += part.weight / widths.len() as f64;
            sum.right += part.right / widths.len() as f64;
        }
        for (span, steep) in texts.spans.iter().zip(steep.chunks(columns)) {
            self.unpool(span.clone(), steep, gradient);
        }
        Ok(sum)
    }
}

/// The texts that become vectors.
fn texts(batch: &Batch) -> &Texts {
    if batch.writer.rows.is_empty() { &batch.reader } else { &batch.writer }
}

impl Contrastive {
    fn pool<T: Real>(&self, rows: &[T], columns: usize) -> Vec<T> {
        let count = rows.len() / columns;
        match self.pooling {
            Pooling::First => rows[..columns].to_vec(),
            Pooling::Last => rows[(count - 1) * columns..].to_vec(),
            Pooling::Mean => {
                let mut sum = vec![T::ZERO; columns];
                for row in rows.chunks(columns) {
                    sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += *x);
                }
                sum.iter_mut().for_each(|sum| *sum /= T::of(count as f64));
                sum
            }
        }
    }

    fn unpool<T: Real>(&self, span: Range<usize>, steep: &[T], gradient: &mut [T]) {
        let columns = steep.len();
        let (rows, share) = match self.pooling {
            Pooling::First => (span.start..span.start + 1, T::ONE),
            Pooling::Last => (span.end - 1..span.end, T::ONE),
            Pooling::Mean => (span.clone(), T::ONE / T::of(span.len() as f64)),
        };
        for row in gradient[rows.start * columns..rows.end * columns].chunks_mut(columns) {
            row.iter_mut().zip(steep).for_each(|(to, from)| *to += *from * share);
        }
    }

    /// The loss of vectors cut to `width` columns; adds the gradient of the vectors.
    fn width<T: Real>(&self, pooled: &[T], columns: usize, width: usize, scale: f64, steep: &mut [T]) -> Sum {
        let texts = pooled.len() / columns;
        let lengths: Vec<T> = pooled
            .chunks(columns)
            .map(|x| x[..width].iter().map(|x| *x * *x).sum::<T>().sqrt().max(T::of(1e-12)))
            .collect();
        let units: Vec<T> = pooled
            .chunks(columns)
            .zip(&lengths)
            .flat_map(|(x, length)| x[..width].iter().map(|x| *x / *length))
            .collect();
        let pick = |wanted: fn(usize) -> bool| -> (Vec<usize>, Vec<T>) {
            let places: Vec<usize> = (0..texts).filter(|text| wanted(text % self.group)).collect();
            let rows =
                places.iter().flat_map(|&text| units[text * width..(text + 1) * width].iter().copied());
            let rows = rows.collect();
            (places, rows)
        };
        let ((anchors, left), (others, right)) = (pick(|place| place == 0), pick(|place| place > 0));
        let (rows, count) = (anchors.len(), others.len());
        let mut scores = vec![T::ZERO; rows * count];
        let (left, right) =
            (Matrix::new(&left, rows, width, width), Matrix::new(&right, count, width, width));
        multiply(T::of(self.scale), left, right.turned(), false, Target::new(&mut scores, count));
        let mut sum = Sum::default();
        for (row, scores) in scores.chunks_mut(count).enumerate() {
            let own = row * (self.group - 1);
            let most = scores.iter().copied().fold(scores[0], T::max);
            let total = most + scores.iter().map(|x| (*x - most).exp()).sum::<T>().ln();
            sum.loss += (total - scores[own]).f64();
            sum.weight += 1.0;
            sum.right += f64::from(u8::from(scores[own] >= most));
            scores.iter_mut().for_each(|x| *x = (*x - total).exp() * T::of(scale));
            scores[own] -= T::of(scale);
        }
        let scores = Matrix::new(&scores, rows, count, count);
        let mut of_units = vec![T::ZERO; texts * width];
        let mut spread = |places: &[usize], from: Vec<T>| {
            for (place, from) in places.iter().zip(from.chunks(width)) {
                of_units[place * width..(place + 1) * width].copy_from_slice(from);
            }
        };
        let mut of_left = vec![T::ZERO; rows * width];
        multiply(T::of(self.scale), scores, right, false, Target::new(&mut of_left, width));
        spread(&anchors, of_left);
        let mut of_right = vec![T::ZERO; count * width];
        multiply(T::of(self.scale), scores.turned(), left, false, Target::new(&mut of_right, width));
        spread(&others, of_right);
        for text in 0..texts {
            let (unit, g) =
                (&units[text * width..(text + 1) * width], &of_units[text * width..(text + 1) * width]);
            let along: T = unit.iter().zip(g).map(|(u, g)| *u * *g).sum();
            for (i, to) in steep[text * columns..text * columns + width].iter_mut().enumerate() {
                *to += (g[i] - unit[i] * along) / lengths[text];
            }
        }
        sum
    }
}
