//! [Muon](https://kellerjordan.github.io/posts/muon/): updates of matrices are orthogonalized; all other tensors use
//! AdamW.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::Result;
use siskin_graph::WeightRole;

use super::moments::{ALMOST_ONE, AdamSettings};
use super::{AdamWOptions, CHUNK, Settings, StepTensor, TableData, TensorShape, UpdateRule, lerp, zeros};
use crate::clip::sum_of_squares;
use crate::gemm::{MatrixOutput, MatrixView, multiply_parallel};
use crate::settings::{fits, read, within};

/// Settings of `muon`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MuonOptions {
    /// The decay rate of the momentum.
    pub momentum: f64,
    /// Whether Nesterov momentum is used.
    pub nesterov: bool,
    /// The weight decay, times the learning rate.
    pub weight_decay: f64,
    /// The lower bound of the norm in normalizations.
    pub eps: f64,
    /// The number of Newton–Schulz iterations.
    pub ns_steps: usize,
    /// The factor on the learning rate of a matrix.
    pub adjust_lr_fn: AdjustLearningRate,
    /// Matrices that use AdamW: names in which `*` matches any characters. By default embedding tables and heads.
    pub adamw_tensors: Vec<String>,
    /// The learning rate of AdamW, relative to that of Muon.
    pub adamw_lr_factor: f64,
    /// Settings of AdamW.
    pub adamw: AdamWOptions,
}

/// The factor on the learning rate of a matrix with R rows and C columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdjustLearningRate {
    /// √(R / C), at least 1.
    #[default]
    Original,
    /// 0.2 · √(max(R, C)): updates have the RMS of AdamW's, so that its learning rates fit.
    MatchRmsAdamw,
    /// √(R / C).
    SpectralUnclamped,
}

impl AdjustLearningRate {
    /// Returns the factor of a matrix.
    pub(crate) fn factor(self, rows: usize, columns: usize) -> f64 {
        let ratio = rows as f64 / columns.max(1) as f64;
        match self {
            Self::Original => ratio.max(1.0).sqrt(),
            Self::MatchRmsAdamw => 0.2 * (rows.max(columns) as f64).sqrt(),
            Self::SpectralUnclamped => ratio.sqrt(),
        }
    }
}

impl Default for MuonOptions {
    fn default() -> Self {
        let others = ["*embd*", "token_types*", "output.weight", "cls*"];
        Self {
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            eps: 1e-7,
            ns_steps: 5,
            adjust_lr_fn: AdjustLearningRate::Original,
            adamw_tensors: others.map(str::to_owned).to_vec(),
            adamw_lr_factor: 1.0,
            adamw: AdamWOptions::default(),
        }
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    let options: MuonOptions = read("muon", settings)?;
    within("muon.momentum", options.momentum, 0.0..=ALMOST_ONE)?;
    within("muon.weight_decay", options.weight_decay, 0.0..=f64::MAX)?;
    within("muon.eps", options.eps, f64::from(f32::MIN_POSITIVE)..=1.0)?;
    within("muon.ns_steps", options.ns_steps as f64, 1.0..=99.0)?;
    within("muon.adamw_lr_factor", options.adamw_lr_factor, 0.0..=f64::MAX)?;
    let moments = options.adamw.moments("muon.adamw")?;
    Ok(Box::new(Muon { options, moments }))
}

struct Muon {
    options: MuonOptions,
    moments: AdamSettings,
}

impl UpdateRule for Muon {
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)> {
        let other = self.options.adamw_tensors.iter().any(|pattern| fits(pattern, shape.name));
        if shape.role == WeightRole::Matrix && !other {
            return vec![("momentum", zeros(shape.count()))];
        }
        self.moments.slots(shape)
    }

    fn step(&self, mut tensor: StepTensor<'_>, state: &mut [TableData]) {
        let [TableData::Numbers(average)] = state else {
            tensor.learning_rate *= self.options.adamw_lr_factor;
            return UpdateRule::step(&self.moments, tensor, state);
        };
        let (rows, columns) = (tensor.shape.rows, tensor.shape.columns);
        let (factor, momentum) = (tensor.grad_factor, self.options.momentum as f32);
        let gradient_weight = (1.0 - self.options.momentum) as f32;
        let mut change = vec![0.0; rows * columns];
        let chunks = change.par_chunks_mut(CHUNK).zip(tensor.gradient.par_chunks(CHUNK));
        chunks.zip(average.par_chunks_mut(CHUNK)).for_each(|((change, gradient), average)| {
            for ((change, gradient), average) in change.iter_mut().zip(gradient).zip(average) {
                let gradient = gradient * factor;
                *average = lerp(*average, gradient, gradient_weight);
                *change = if self.options.nesterov { lerp(gradient, *average, momentum) } else { *average };
            }
        });
        let change = newton_schulz(change, rows, columns, self.options.ns_steps, self.options.eps);
        let rate = (tensor.learning_rate * self.options.adjust_lr_fn.factor(rows, columns)) as f32;
        let keep =
            (1.0 - tensor.learning_rate * self.options.weight_decay * tensor.weight_decay_factor) as f32;
        let chunks = tensor.numbers.par_chunks_mut(CHUNK).zip(change.par_chunks(CHUNK));
        chunks.for_each(|(numbers, change)| {
            numbers
                .iter_mut()
                .zip(change)
                .for_each(|(number, change)| *number = *number * keep - rate * change);
        });
    }
}

/// The coefficients of X, (XXᵀ)X and (XXᵀ)²X in a Newton–Schulz iteration: they increase small singular values
/// quickly, and bring all to between 0.7 and 1.2.
pub(crate) const NEWTON_SCHULZ: [f32; 3] = [3.4445, -4.7750, 2.0315];

/// Returns a matrix with the same singular vectors and singular values near 1.
fn newton_schulz(numbers: Vec<f32>, rows: usize, columns: usize, steps: usize, eps: f64) -> Vec<f32> {
    let tall = rows > columns;
    let (height, width) = if tall { (columns, rows) } else { (rows, columns) };
    let mut x = if tall { transposed(&numbers, rows, columns) } else { numbers };
    let length = sum_of_squares(&x).sqrt().max(eps) as f32;
    x.iter_mut().for_each(|number| *number /= length);
    let mut next = vec![0.0; x.len()];
    let (mut gram, mut update) = (vec![0.0; height * height], vec![0.0; height * height]);
    let [a, b, c] = NEWTON_SCHULZ;
    for _ in 0..steps {
        let wide = MatrixView::new(&x, height, width, width);
        multiply_parallel(1.0, wide, wide.transposed(), false, MatrixOutput::new(&mut gram, height));
        update.iter_mut().zip(&gram).for_each(|(update, gram)| *update = b * gram);
        let square = MatrixView::new(&gram, height, height, height);
        multiply_parallel(c, square, square, true, MatrixOutput::new(&mut update, height));
        next.iter_mut().zip(&x).for_each(|(next, x)| *next = a * x);
        let update = MatrixView::new(&update, height, height, height);
        multiply_parallel(1.0, update, wide, true, MatrixOutput::new(&mut next, width));
        std::mem::swap(&mut x, &mut next);
    }
    if tall { transposed(&x, height, width) } else { x }
}

/// Returns the transpose.
fn transposed(numbers: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut result = vec![0.0; numbers.len()];
    result.par_chunks_mut(rows.max(1)).enumerate().for_each(|(column, out)| {
        out.iter_mut().enumerate().for_each(|(row, out)| *out = numbers[row * columns + column]);
    });
    result
}
