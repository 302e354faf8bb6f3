//! 8-bit AdamW (arXiv:2110.02861): both moments take a byte per element.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::dynamic_codebook::{BLOCK, DynamicCodebook};
use super::moments::AdamSettings;
use super::{AdamWOptions, Settings, StepTensor, TableData, TensorShape, UpdateRule, zeros};
use crate::settings::read;

/// Settings of `adamw_8bit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamW8bitOptions {
    /// The decay rates of both moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// The weight decay, times the learning rate.
    pub weight_decay: f64,
    /// Tensors with fewer elements keep f32 moments.
    pub min_8bit_size: usize,
}

impl Default for AdamW8bitOptions {
    fn default() -> Self {
        let AdamWOptions { betas, eps, weight_decay } = AdamWOptions::default();
        Self { betas, eps, weight_decay, min_8bit_size: 4096 }
    }
}

impl AdamW8bitOptions {
    pub(crate) fn moments(&self) -> Result<AdamSettings> {
        let Self { betas, eps, weight_decay, .. } = *self;
        AdamWOptions { betas, eps, weight_decay }.moments("adamw_8bit")
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    let options: AdamW8bitOptions = read("adamw_8bit", settings)?;
    let (moments, min_8bit_size) = (options.moments()?, options.min_8bit_size);
    Ok(Box::new(AdamW8bit {
        moments,
        min_8bit_size,
        first: DynamicCodebook::new(true),
        second: DynamicCodebook::new(false),
    }))
}

struct AdamW8bit {
    moments: AdamSettings,
    min_8bit_size: usize,
    first: DynamicCodebook,
    second: DynamicCodebook,
}

/// Blocks of one task.
const BLOCKS: usize = 64;

impl UpdateRule for AdamW8bit {
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)> {
        let count = shape.count();
        if count < self.min_8bit_size {
            return self.moments.slots(shape);
        }
        let bytes = || TableData::Bytes(vec![0; count]);
        let scales = || zeros(count.div_ceil(BLOCK));
        vec![("first", bytes()), ("second", bytes()), ("first_scales", scales()), ("second_scales", scales())]
    }

    fn step(&self, tensor: StepTensor<'_>, state: &mut [TableData]) {
        let [
            TableData::Bytes(first),
            TableData::Bytes(second),
            TableData::Numbers(first_scales),
            TableData::Numbers(second_scales),
        ] = state
        else {
            return UpdateRule::step(&self.moments, tensor, state);
        };
        let scalars = self.moments.scalars(&tensor);
        let size = BLOCK * BLOCKS;
        let numbers = tensor.numbers.par_chunks_mut(size).zip(tensor.gradient.par_chunks(size));
        let first = first.par_chunks_mut(size).zip(first_scales.par_chunks_mut(BLOCKS));
        let second = second.par_chunks_mut(size).zip(second_scales.par_chunks_mut(BLOCKS));
        numbers.zip(first.zip(second)).for_each(|((numbers, gradient), (first, second))| {
            let numbers = numbers.chunks_mut(BLOCK).zip(gradient.chunks(BLOCK));
            let first = first.0.chunks_mut(BLOCK).zip(first.1);
            let second = second.0.chunks_mut(BLOCK).zip(second.1);
            for ((numbers, gradient), ((first, first_scale), (second, second_scale))) in
                numbers.zip(first.zip(second))
            {
                let mut averages = [[0.0; BLOCK]; 2];
                let [one, two] = &mut averages;
                let (one, two) = (&mut one[..first.len()], &mut two[..second.len()]);
                self.first.dequantize(first, *first_scale, one);
                self.second.dequantize(second, *second_scale, two);
                scalars.apply(numbers, gradient, one, two);
                *first_scale = self.first.quantize(one, first);
                *second_scale = self.second.quantize(two, second);
            }
        });
    }
}
