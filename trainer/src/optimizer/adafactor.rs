//! Adafactor (arXiv:1804.04235): the second moment of a matrix is factored into averages of rows and of columns.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::Result;
use siskin_graph::WeightRole;

use super::{Settings, StepTensor, TableData, TensorShape, UpdateRule, lerp, zeros};
use crate::clip::sum_of_squares;
use crate::settings::{read, within};

/// Settings of `adafactor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdafactorOptions {
    /// The exponent of the second-moment decay: step n has the weight n to this power in the averages.
    pub beta2_decay: f64,
    /// The lower bounds of the root of an average, and of the tensor RMS that updates are scaled by.
    pub eps: [f64; 2],
    /// The maximum RMS of an update before its learning rate; larger updates are scaled down.
    pub clip_threshold: f64,
    /// The weight decay, times the learning rate.
    pub weight_decay: f64,
    /// Whether updates are scaled by the RMS of the tensor.
    pub scale_parameter: bool,
    /// Whether the learning rate of step n is 1 / √n, at most 0.01, in place of the given one.
    pub relative_step: bool,
}

impl Default for AdafactorOptions {
    fn default() -> Self {
        Self {
            beta2_decay: -0.8,
            eps: [f64::from(f32::EPSILON), 1e-3],
            clip_threshold: 1.0,
            weight_decay: 0.0,
            scale_parameter: true,
            relative_step: false,
        }
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    let options: AdafactorOptions = read("adafactor", settings)?;
    within("adafactor.beta2_decay", options.beta2_decay, -f64::MAX..=0.0)?;
    within("adafactor.eps[0]", options.eps[0], 0.0..=f64::MAX)?;
    within("adafactor.eps[1]", options.eps[1], 0.0..=f64::MAX)?;
    within("adafactor.clip_threshold", options.clip_threshold, f64::MIN_POSITIVE..=f64::MAX)?;
    within("adafactor.weight_decay", options.weight_decay, 0.0..=f64::MAX)?;
    Ok(Box::new(options))
}

/// The estimated second moments.
#[derive(Clone, Copy)]
enum SecondMoments<'a> {
    Each(&'a [f32]),
    Factors { rows: &'a [f32], columns: &'a [f32], mean: f32 },
}

impl SecondMoments<'_> {
    fn at(&self, row: usize, column: usize) -> f32 {
        match self {
            Self::Each(numbers) => numbers[column],
            Self::Factors { rows, columns, mean } => rows[row] * columns[column] / mean,
        }
    }
}

/// The maximum number of tasks for a matrix: fixed, so that sums do not depend on the number of threads.
const TASKS: usize = 64;

/// Returns the rows of one task.
fn rows_per_task(rows: usize) -> usize {
    rows.div_ceil(TASKS).max(16)
}

impl UpdateRule for AdafactorOptions {
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)> {
        match shape.role {
            WeightRole::Matrix => vec![("rows", zeros(shape.rows)), ("columns", zeros(shape.columns))],
            WeightRole::Vector => vec![("second", zeros(shape.count()))],
        }
    }

    fn step(&self, tensor: StepTensor<'_>, state: &mut [TableData]) {
        let gradient_weight = (tensor.step as f64).powf(self.beta2_decay) as f32;
        let least = (self.eps[0] * self.eps[0]) as f32;
        let (columns, factor) = (tensor.shape.columns.max(1), tensor.grad_factor);
        let squares = match state {
            [TableData::Numbers(second)] => {
                for (second, gradient) in second.iter_mut().zip(tensor.gradient) {
                    let gradient = gradient * factor;
                    *second = lerp(*second, gradient * gradient, gradient_weight);
                }
                SecondMoments::Each(second)
            }
            [TableData::Numbers(rows), TableData::Numbers(of_columns)] => {
                average(tensor.gradient, factor, gradient_weight, rows, of_columns);
                let mean = rows.iter().map(|row| f64::from(*row)).sum::<f64>() / rows.len().max(1) as f64;
                SecondMoments::Factors {
                    rows,
                    columns: of_columns,
                    mean: (mean as f32).max(self.eps[0] as f32),
                }
            }
            _ => unreachable!("one or two tables of values"),
        };
        let change = |row: usize, column: usize, gradient: f32| {
            gradient * factor * (1.0 / squares.at(row, column).max(least).sqrt())
        };
        let task = rows_per_task(tensor.shape.rows);
        let sums: Vec<f64> = tensor
            .gradient
            .par_chunks(task * columns)
            .enumerate()
            .map(|(index, gradient)| {
                let each = |(place, gradient): (usize, &f32)| {
                    f64::from(change(index * task + place / columns, place % columns, *gradient)).powi(2)
                };
                gradient.iter().enumerate().map(each).sum()
            })
            .collect();
        let count = tensor.numbers.len().max(1) as f64;
        let size = (sums.iter().sum::<f64>() / count).sqrt();
        let alpha = self.step_size(&tensor) / (size / self.clip_threshold).max(1.0);
        let rate =
            if self.relative_step { self.relative_step_size(tensor.step) } else { tensor.learning_rate };
        let keep = (1.0 - rate * self.weight_decay * tensor.weight_decay_factor) as f32;
        let alpha = alpha as f32;
        let chunks =
            tensor.numbers.par_chunks_mut(task * columns).zip(tensor.gradient.par_chunks(task * columns));
        chunks.enumerate().for_each(|(index, (numbers, gradient))| {
            for (place, (number, gradient)) in numbers.iter_mut().zip(gradient).enumerate() {
                let change = change(index * task + place / columns, place % columns, *gradient);
                *number = *number * keep - alpha * change;
            }
        });
    }
}

impl AdafactorOptions {
    fn relative_step_size(&self, count: u64) -> f64 {
        (count as f64).sqrt().recip().min(0.01)
    }

    /// Returns the step size for an update of RMS 1.
    fn step_size(&self, tensor: &StepTensor<'_>) -> f64 {
        let rate = match self.relative_step {
            true => self.relative_step_size(tensor.step),
            false => tensor.learning_rate.min((tensor.step as f64).sqrt().recip()),
        };
        let count = tensor.numbers.len().max(1) as f64;
        let size = if self.scale_parameter { (sum_of_squares(tensor.numbers) / count).sqrt() } else { 1.0 };
        size.max(self.eps[1]) * rate
    }
}

/// Updates the row and column averages with the squared gradient.
fn average(gradient: &[f32], factor: f32, gradient_weight: f32, rows: &mut [f32], columns: &mut [f32]) {
    let (height, width) = (rows.len(), columns.len().max(1));
    let task = rows_per_task(height);
    let parts = gradient.par_chunks(task * width).zip(rows.par_chunks_mut(task));
    let sums: Vec<Vec<f64>> = parts
        .map(|(gradient, rows)| {
            let mut sums = vec![0.0; width];
            for (gradient, row) in gradient.chunks_exact(width).zip(rows) {
                let mut sum = 0.0;
                for (gradient, column) in gradient.iter().zip(&mut sums) {
                    let square = f64::from(gradient * factor).powi(2);
                    sum += square;
                    *column += square;
                }
                *row = lerp(*row, (sum / width as f64) as f32, gradient_weight);
            }
            sums
        })
        .collect();
    for (index, column) in columns.iter_mut().enumerate() {
        let sum: f64 = sums.iter().map(|sums| sums[index]).sum();
        *column = lerp(*column, (sum / height.max(1) as f64) as f32, gradient_weight);
    }
}
