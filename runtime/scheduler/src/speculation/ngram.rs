//! Draft tokens from the text itself (prompt lookup decoding): what followed the last tokens when they occurred before.

use super::{DraftBudget, Proposer};

/// The lengths of the runs of tokens that are looked up, longest first.
const LENGTHS: [usize; 3] = [4, 3, 2];
/// The maximum number of entries per length; a newer run of the same slot replaces an older one.
const MAX_SLOTS: usize = 1 << 16;

/// Proposes that the tokens go on as they did when their last ones occurred before. Good at repetition: edited code,
/// summaries, quotes, JSON.
pub struct NgramProposer {
    /// For each length: where a run that hashes to a slot ends, plus one; 0: nowhere.
    slots: [Vec<u32>; LENGTHS.len()],
    /// The number of tokens whose runs are in the slots.
    indexed: usize,
}

impl NgramProposer {
    /// Creates a proposer for texts of up to `max_tokens` tokens.
    pub fn new(max_tokens: usize) -> Self {
        let count = max_tokens.next_power_of_two().clamp(64, MAX_SLOTS);
        Self { slots: std::array::from_fn(|_| vec![0; count]), indexed: 0 }
    }

    /// Adds the runs that end before the last token: what follows them is known.
    fn index(&mut self, tokens: &[u32]) {
        if self.indexed > tokens.len() {
            self.slots.iter_mut().for_each(|slots| slots.fill(0));
            self.indexed = 0;
        }
        for end in self.indexed + 1..tokens.len() {
            for (slots, length) in self.slots.iter_mut().zip(LENGTHS) {
                if let Some(run) = end.checked_sub(length).map(|start| &tokens[start..end]) {
                    let slot = slot(run, slots.len());
                    slots[slot] = u32::try_from(end + 1).unwrap_or(0);
                }
            }
        }
        self.indexed = tokens.len().saturating_sub(1);
    }
}

impl Proposer for NgramProposer {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        self.index(tokens);
        for (slots, length) in self.slots.iter().zip(LENGTHS) {
            let Some(start) = tokens.len().checked_sub(length) else { continue };
            let run = &tokens[start..];
            let Some(end) = (slots[slot(run, slots.len())] as usize).checked_sub(1) else { continue };
            // A slot may hold another run.
            if tokens.get(end.saturating_sub(length)..end) != Some(run) {
                continue;
            }
            let first = drafts.len();
            for at in end..end + budget.limit {
                // Beyond the text the repetition goes on in the drafts.
                drafts.push(tokens.get(at).copied().unwrap_or_else(|| drafts[first + at - tokens.len()]));
            }
            return;
        }
    }
}

/// Returns the slot of a run (FNV-1a).
fn slot(run: &[u32], slots: usize) -> usize {
    let hash = run.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, token| {
        (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as usize & (slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(proposer: &mut NgramProposer, tokens: &[u32], limit: usize) -> Vec<u32> {
        let mut drafts = Vec::new();
        proposer.propose(tokens, &DraftBudget::unlimited(limit), &mut drafts);
        drafts
    }

    #[test]
    fn the_longest_run_that_occurred_before_is_continued() {
        let mut proposer = NgramProposer::new(100);
        assert_eq!(proposed(&mut proposer, &[1, 2, 3, 9, 8, 2, 3], 3), [9, 8, 2]);
        // 1 2 3 occurred before, and 2 3 later.
        assert_eq!(proposed(&mut proposer, &[1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3], 2), [9, 8]);
        assert_eq!(proposed(&mut proposer, &[1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3, 4], 2), [0; 0]);
        for short in [&[][..], &[1], &[1, 1]] {
            assert_eq!(proposed(&mut NgramProposer::new(0), short, 4), [0; 0]);
        }
    }

    #[test]
    fn repetition_goes_on_beyond_the_text() {
        let mut proposer = NgramProposer::new(100);
        assert_eq!(proposed(&mut proposer, &[5, 6, 5, 6, 5], 5), [6, 5, 6, 5, 6]);
        assert_eq!(proposed(&mut NgramProposer::new(100), &[7, 7, 7], 4), [7, 7, 7, 7]);
    }

    #[test]
    fn drafts_followed_the_same_tokens_before() {
        let (mut proposer, mut state, mut tokens) = (NgramProposer::new(4000), 1u32, Vec::new());
        for _ in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            tokens.push((state >> 24) % 7);
            let found = proposed(&mut proposer, &tokens, 1);
            let follows = |next: u32| {
                LENGTHS.iter().filter(|&&length| length <= tokens.len()).any(|&length| {
                    let run = &tokens[tokens.len() - length..];
                    (length..tokens.len()).any(|end| tokens[end - length..end] == *run && tokens[end] == next)
                })
            };
            assert!(found.iter().all(|&next| follows(next)), "{found:?} never followed these tokens");
        }
        assert!(!proposed(&mut proposer, &tokens, 1).is_empty());
    }
}
