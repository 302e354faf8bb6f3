//! Which rows go to which experts, and how what they give becomes one row again.
//!
//! A row chooses some experts by its scores. Every choice is a slot; the slots of an expert stand side by side, in the
//! order of the rows, so that an expert's products are those of a run of rows.

use super::Batch;
use crate::graph::Routing;

/// No slot: the expert had no room left.
const NONE: i32 = -1;

/// Chooses experts by `scores`: the weights of the chosen, the likeliest first, then their numbers.
///
/// Weights are the softmax over all experts, in the order of the experts; with [`Routing::normalise`] they are divided
/// by their sum, in the order of choice. Of equal scores the first counts as larger.
pub(super) fn route(routing: &Routing, scores: &[f32], out: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum = scores.iter().fold(0.0, |sum, score| sum + libm::expf(score - largest));
    let (weights, numbers) = out.split_at_mut(routing.chosen);
    let mut total = 0.0;
    for choice in 0..routing.chosen {
        let free = |expert: &usize| !numbers[..choice].contains(&(*expert as f32));
        let better = |best: usize, expert: usize| if scores[expert] > scores[best] { expert } else { best };
        // A score that is not a number is never better; the output will not be finite either.
        let expert = (0..scores.len()).filter(free).reduce(better).unwrap_or(0);
        weights[choice] = libm::expf(scores[expert] - largest) / sum;
        numbers[choice] = expert as f32;
        total += weights[choice];
    }
    if routing.normalise {
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
}

/// Where the slots of a batch are: the first slot of each expert and the end of the last one's, how many rows of a
/// sequence chose each expert, the slot of each choice, and the row of each slot.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    words: &'a [i32],
    experts: usize,
    chosen: usize,
}

impl<'a> Slots<'a> {
    /// What [`arrange`] wrote.
    pub(super) fn new(routing: &Routing, words: &'a [i32]) -> Self {
        Self { words, experts: routing.experts, chosen: routing.chosen }
    }

    /// The slots of an expert.
    pub(super) fn of(self, expert: usize) -> std::ops::Range<usize> {
        self.words[expert] as usize..self.words[expert + 1] as usize
    }

    /// The slot of choice `choice` of row `row`.
    fn slot(self, row: usize, choice: usize) -> Option<usize> {
        usize::try_from(self.words[2 * self.experts + 1 + row * self.chosen + choice]).ok()
    }

    /// The row of a slot; nothing for those that are left over.
    pub(super) fn row(self, slot: usize) -> Option<usize> {
        let choices = 2 * self.experts + 1;
        let start = choices + (self.words.len() - choices) / 2;
        (slot < self.words[self.experts] as usize).then(|| self.words[start + slot] as usize)
    }

    /// The sum of what the chosen experts gave for row `row`, each times its weight, in the order of choice. `slot`
    /// gives the row of a slot.
    pub(super) fn combine<'b>(
        self,
        row: usize,
        weights: &[f32],
        given: impl Fn(usize) -> &'b [f32],
        out: &mut [f32],
    ) {
        out.fill(0.0);
        for (choice, weight) in weights.iter().enumerate().take(self.chosen) {
            let Some(slot) = self.slot(row, choice) else { continue };
            out.iter_mut().zip(given(slot)).for_each(|(sum, x)| *sum += weight * x);
        }
    }
}

/// Gives every choice its slot. `chosen` gives what [`route`] made of a row. An expert takes no more rows of a sequence
/// than it has room for.
pub(super) fn arrange<'b>(
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
    let number = |row: usize, choice: usize| chosen(row)[routing.chosen + choice] as usize;
    starts.fill(0);
    for row in 0..rows {
        if row == 0 || batch.rows[row].sequence != batch.rows[row - 1].sequence {
            taken.fill(0);
        }
        for choice in 0..routing.chosen {
            let expert = number(row, choice);
            let kept = routing.capacity.is_none_or(|most| (taken[expert] as usize) < most);
            taken[expert] += 1;
            slots[row * routing.chosen + choice] = if kept { 0 } else { NONE };
            starts[expert + 1] += i32::from(kept);
        }
    }
    for expert in 0..routing.experts {
        starts[expert + 1] += starts[expert];
    }
    for row in 0..rows {
        for choice in 0..routing.chosen {
            let slot = &mut slots[row * routing.chosen + choice];
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
    use crate::exec::Row;
    use crate::plan::slot_words;

    #[test]
    fn every_choice_has_a_slot_while_there_is_room() {
        let routing = Routing { experts: 3, chosen: 2, normalise: true, capacity: Some(2) };
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
            batch.rows.push(Row { sequence, position, token: 0, segment: 0, mark: None, length: 0 });
        }
        let mut words = vec![7; slot_words(&routing, 4)];
        arrange(&routing, &batch, |row| &routed[row], &mut words);
        let slots = Slots::new(&routing, &words);
        // The third row finds no room at the first expert.
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
