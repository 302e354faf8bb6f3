//! MoE routing: which rows go to which experts, and how expert outputs are combined.
//!
//! Each row selects its top-k experts by score. Every selection gets a slot; the slots of an expert are contiguous and
//! in row order, so that an expert's matmul runs over consecutive rows.

use super::Batch;
use siskin_graph::Routing;

/// Returns the words of the slot table of `rows` rows: the first slot of each expert and the end of the last one's, how
/// many rows of a sequence selected each expert, the slot of each selection, the row of each slot.
pub(crate) const fn slot_words(routing: &Routing, rows: usize) -> usize {
    2 * routing.experts + 1 + 2 * rows * routing.top_k
}

/// No slot: the expert was at capacity.
const NONE: i32 = -1;

/// Selects the top-k experts by `scores`: writes the weights of the selected, highest score first, then their indices.
///
/// Weights are the softmax over all experts, computed in expert order; with [`Routing::normalize`] they are divided by
/// their sum, computed in selection order. Of equal scores the first wins.
pub(super) fn route(routing: &Routing, scores: &[f32], out: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum = scores.iter().fold(0.0, |sum, score| sum + libm::expf(score - largest));
    let (weights, numbers) = out.split_at_mut(routing.top_k);
    let mut total = 0.0;
    for choice in 0..routing.top_k {
        let free = |expert: &usize| !numbers[..choice].contains(&(*expert as f32));
        let better = |best: usize, expert: usize| if scores[expert] > scores[best] { expert } else { best };
        // NaN never wins a comparison; the output will be non-finite as well.
        let expert = (0..scores.len()).filter(free).reduce(better).unwrap_or(0);
        weights[choice] = libm::expf(scores[expert] - largest) / sum;
        numbers[choice] = expert as f32;
        total += weights[choice];
    }
    if routing.normalize {
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
}

/// The slot table of a batch: the first slot of each expert and the end of the last one's, how many rows of a sequence
/// selected each expert, the slot of each selection, and the row of each slot.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    words: &'a [i32],
    experts: usize,
    top_k: usize,
}

impl<'a> Slots<'a> {
    /// Wraps the words that [`assign_slots`] wrote.
    pub(super) fn new(routing: &Routing, words: &'a [i32]) -> Self {
        Self { words, experts: routing.experts, top_k: routing.top_k }
    }

    /// Returns the slots of an expert.
    pub(super) fn of(self, expert: usize) -> std::ops::Range<usize> {
        self.words[expert] as usize..self.words[expert + 1] as usize
    }

    /// Returns the slot of selection `choice` of row `row`.
    fn slot(self, row: usize, choice: usize) -> Option<usize> {
        usize::try_from(self.words[2 * self.experts + 1 + row * self.top_k + choice]).ok()
    }

    /// Returns the row of a slot; `None` for unused slots.
    pub(super) fn row(self, slot: usize) -> Option<usize> {
        let choices = 2 * self.experts + 1;
        let start = choices + (self.words.len() - choices) / 2;
        (slot < self.words[self.experts] as usize).then(|| self.words[start + slot] as usize)
    }

    /// Writes the sum of the outputs of row `row`'s experts, each times its weight, in selection order. `slot` returns
    /// the row of a slot.
    pub(super) fn combine<'b>(
        self,
        row: usize,
        weights: &[f32],
        given: impl Fn(usize) -> &'b [f32],
        out: &mut [f32],
    ) {
        out.fill(0.0);
        for (choice, weight) in weights.iter().enumerate().take(self.top_k) {
            let Some(slot) = self.slot(row, choice) else { continue };
            out.iter_mut().zip(given(slot)).for_each(|(sum, x)| *sum += weight * x);
        }
    }
}

/// Assigns a slot to every selection. `chosen` returns the output of [`route`] for a row. An expert takes no more rows
/// of a sequence than its capacity.
pub(super) fn assign_slots<'b>(
    routing: &Routing,
    batch: &Batch,
    chosen: impl Fn(usize) -> &'b [f32],
    words: &mut [i32],
) {
    let rows = batch.rows.len();
    let (starts, rest) = words.split_at_mut(routing.experts + 1);
    let (taken, rest) = rest.split_at_mut(routing.experts);
    let middle = rest.len() / 2;
    let (slots, owners) = rest.split_at_mut(middle);
    let number = |row: usize, choice: usize| chosen(row)[routing.top_k + choice] as usize;
    starts.fill(0);
    for row in 0..rows {
        if row == 0 || batch.rows[row].sequence != batch.rows[row - 1].sequence {
            taken.fill(0);
        }
        for choice in 0..routing.top_k {
            let expert = number(row, choice);
            let kept = routing.capacity.is_none_or(|capacity| (taken[expert] as usize) < capacity);
            taken[expert] += 1;
            slots[row * routing.top_k + choice] = if kept { 0 } else { NONE };
            starts[expert + 1] += i32::from(kept);
        }
    }
    for expert in 0..routing.experts {
        starts[expert + 1] += starts[expert];
    }
    for row in 0..rows {
        for choice in 0..routing.top_k {
            let slot = &mut slots[row * routing.top_k + choice];
            if *slot != NONE {
                let start = &mut starts[number(row, choice)];
                *slot = *start;
                owners[*start as usize] = row as i32;
                *start += 1;
            }
        }
    }
    // Every start has become the end of its expert, which is the start of the next.
    starts.copy_within(..routing.experts, 1);
    starts[0] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenRow;
    use siskin_graph::AdapterSlot;

    #[test]
    fn every_choice_has_a_slot_while_there_is_room() {
        let routing = Routing { experts: 3, top_k: 2, normalize: true, capacity: Some(2) };
        let scores = [[3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.0]];
        let routed: Vec<Vec<f32>> = scores
            .iter()
            .map(|scores| {
                let mut out = vec![0.0; 4];
                route(&routing, scores, &mut out);
                out
            })
            .collect();
        assert_eq!(
            routed.iter().map(|row| row[2..].to_vec()).collect::<Vec<_>>(),
            [[0.0, 2.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
        );
        assert!((routed[0][0] - 0.731_058_6).abs() < 1e-6 && (routed[0][1] - 0.268_941_4).abs() < 1e-6);
        let mut batch = Batch::default();
        for (sequence, position) in [(0, 0), (0, 1), (0, 2), (1, 0)] {
            batch.rows.push(TokenRow {
                sequence,
                position,
                token: 0,
                token_type: 0,
                global_index: None,
                rope_length: 0,
                adapter: AdapterSlot::MODEL,
            });
        }
        let mut words = vec![7; slot_words(&routing, 4)];
        assign_slots(&routing, &batch, |row| &routed[row], &mut words);
        let slots = Slots::new(&routing, &words);
        // The third row exceeds the capacity of the first expert.
        assert_eq!([slots.of(0), slots.of(1), slots.of(2)], [0..3, 3..6, 6..7]);
        assert_eq!(
            (0..8).map(|slot| slots.row(slot)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(3), Some(1), Some(2), Some(3), Some(0), None]
        );
        let given: Vec<[f32; 1]> = (0..8).map(|slot| [slot as f32]).collect();
        let mut out = [9.0];
        slots.combine(2, &routed[2], |slot| &given[slot], &mut out);
        assert_eq!(out, [routed[2][1] * 4.0]);
    }
}
