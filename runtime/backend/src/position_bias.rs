//! Relative position biases, expanded to all distances.

use super::Weights;
use siskin_graph::{Attention, AttentionMask, RelativePositionBias};

/// The expanded biases of a graph.
#[derive(Debug, Default)]
pub struct Distances {
    /// The largest distance plus one.
    reach: usize,
    /// For each bias and head, a value for every distance from `1 − reach` to `reach − 1`.
    tables: Vec<(RelativePositionBias, Vec<f32>)>,
    /// For each kind of BigBird blocks (size, random), a value for every position.
    blocks: Vec<((usize, usize), Vec<f32>)>,
}

impl Distances {
    /// Expands the biases of `attentions` for positions below `reach`.
    pub fn new<'a>(attentions: impl Iterator<Item = &'a Attention>, weights: &Weights, reach: usize) -> Self {
        let mut tables: Vec<(RelativePositionBias, Vec<f32>)> = Vec::new();
        let mut blocks: Vec<((usize, usize), Vec<f32>)> = Vec::new();
        for attention in attentions {
            if let AttentionMask::BigBird { size, random } = attention.attention_mask
                && blocks.iter().all(|(known, _)| *known != (size, random))
            {
                // A key that counts n times has n times the softmax weight, hence log(n) in the score.
                let times = libm::log((1 + random) as f64) as f32;
                let number = |position: usize| if position < size { times } else { 0.0 };
                blocks.push(((size, random), (0..reach).map(number).collect()));
            }
            let Some(bias) = attention.bias else { continue };
            if tables.iter().any(|(known, _)| *known == bias) {
                continue;
            }
            let numbers = weights.vector(Some(bias.table));
            let number = |head: usize, index: usize| {
                let distance = index as i64 - (reach as i64 - 1);
                numbers.get(bias.bucket(distance) * attention.heads + head).copied().unwrap_or(0.0)
            };
            let spread = (0..attention.heads)
                .flat_map(|head| (0..(2 * reach).saturating_sub(1)).map(move |index| (head, index)))
                .map(|(head, index)| number(head, index));
            tables.push((bias, spread.collect()));
        }
        Self { reach, tables, blocks }
    }

    /// Returns the largest distance plus one.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// Returns the values of a bias, by head: one for every distance from `1 − reach` to `reach − 1`.
    pub fn table(&self, bias: &RelativePositionBias) -> Option<&[f32]> {
        self.tables.iter().find(|(known, _)| known == bias).map(|(_, numbers)| numbers.as_slice())
    }

    /// Returns the score bias of BigBird attention for the keys of a sequence of `text` tokens.
    pub fn of_blocks(&self, size: usize, random: usize, text: usize) -> &[f32] {
        let known = self.blocks.iter().find(|(known, _)| *known == (size, random));
        known.and_then(|(_, numbers)| numbers.get(..text)).unwrap_or(&[])
    }

    /// Returns the score bias for the keys from position 0 to `last`, for a query of `head` at `position`; empty
    /// without a bias.
    pub(crate) fn of(&self, attention: &Attention, head: usize, position: usize, last: usize) -> &[f32] {
        let table = attention.bias.and_then(|bias| self.tables.iter().find(|(known, _)| *known == bias));
        let Some((_, numbers)) = table else { return &[] };
        let start = head * (2 * self.reach - 1) + self.reach - 1 - position;
        &numbers[start..=start + last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: T5 in Hugging Face transformers 5.23.
    #[test]
    fn buckets_are_those_of_the_reference() {
        let both = RelativePositionBias { table: 0, buckets: 32, max_distance: 128, bidirectional: true };
        let got: Vec<usize> =
            [-200, -128, -127, -91, -64, -32, -16, -9, -8, -7, -1, 0, 1, 7, 8, 12, 16, 45, 46, 90, 91, 500]
                .map(|distance| both.bucket(distance))
                .to_vec();
        assert_eq!(got, [15, 15, 15, 15, 14, 12, 10, 8, 8, 7, 1, 0, 17, 23, 24, 25, 26, 28, 29, 30, 31, 31]);
        let back = RelativePositionBias { bidirectional: false, ..both };
        let got: Vec<usize> = [5, 0, -1, -15, -16, -17, -19, -31, -32, -64, -113, -127, -128, -1000]
            .map(|distance| back.bucket(distance))
            .to_vec();
        assert_eq!(got, [0, 0, 1, 15, 16, 16, 17, 21, 21, 26, 31, 31, 31, 31]);
    }

    #[test]
    fn no_configuration_leaves_the_table() {
        for buckets in [0, 1, 2, 3, 32] {
            for max_distance in [0, 1, 8, 16, 1 << 31] {
                for bidirectional in [false, true] {
                    let bias = RelativePositionBias { table: 0, buckets, max_distance, bidirectional };
                    for distance in [-32768, -17, -16, -1, 0, 1, 8, 9, 32768] {
                        assert!(bias.bucket(distance) <= buckets.saturating_sub(1), "{bias:?} {distance}");
                    }
                }
            }
        }
    }
}
