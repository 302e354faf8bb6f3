//! Which positions of a text a token sees, as runs.

use super::{Attention, AttentionMask};

/// Runs of positions that a token sees at most.
pub const RUNS: usize = 3;

/// Where a token stands in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPosition {
    /// Its position.
    pub position: usize,
    /// Positions of the text that is seen, where it is read at once.
    pub text: usize,
    /// The first positions of a text that is read token by token, which see each other both ways.
    pub prefix: usize,
    /// How many positions of the text are marked.
    pub marked: usize,
}

impl QueryPosition {
    fn end(self) -> usize {
        self.text.saturating_sub(1)
    }
}

impl AttentionMask {
    /// The block of a token that does not see its whole text.
    pub fn block(self, place: QueryPosition) -> Option<usize> {
        let Self::BigBird { size, random } = self else { return None };
        let block = place.position / size;
        let many = place.text > size.saturating_mul(5 + 2 * random);
        (many && block > 0 && block < place.end() / size).then_some(block)
    }
}

impl Attention {
    /// The first and the last position that a token sees.
    ///
    /// Marked tokens have a second place behind the text, one after the other; rows that see what is marked see it
    /// there, and at its own position it is hidden from them. See [`also_seen`](Self::also_seen).
    pub fn seen(&self, place: QueryPosition) -> (usize, usize) {
        let position = place.position;
        let last = place.prefix.saturating_sub(1).max(position);
        match self.attention_mask {
            AttentionMask::Causal(window) | AttentionMask::CausalEncoder(window) => {
                (window.map_or(0, |window| (position + 1).saturating_sub(window)), last)
            }
            AttentionMask::StreamingLlm { window, first } => {
                let start = (position + 1).saturating_sub(window);
                (if start <= first { 0 } else { start }, last)
            }
            AttentionMask::Full | AttentionMask::LongformerGlobal | AttentionMask::CrossAttention => {
                (0, place.end())
            }
            AttentionMask::LocalWindow(reach) | AttentionMask::LongformerLocal(reach) => {
                (position.saturating_sub(reach), place.end().min(position.saturating_add(reach)))
            }
            AttentionMask::BigBird { size, .. } => match self.attention_mask.block(place) {
                Some(block) => ((block - 1) * size, place.end().min((block + 2) * size - 1)),
                None => (0, place.end()),
            },
            AttentionMask::Linformer => {
                (0, self.projection.map_or(0, |projection| projection.count.saturating_sub(1)))
            }
        }
    }

    /// The first and the last places of what a token sees besides.
    pub fn also_seen(&self, place: QueryPosition) -> [Option<(usize, usize)>; RUNS - 1] {
        let (first, last) = self.seen(place);
        match self.attention_mask {
            AttentionMask::LongformerLocal(_) => {
                let marked = place.marked.checked_sub(1);
                [marked.map(|marked| (place.text, place.text + marked)), None]
            }
            AttentionMask::StreamingLlm { first: kept, .. } => {
                [Some((0, kept.saturating_sub(1))).filter(|_| first > 0 && kept > 0), None]
            }
            AttentionMask::BigBird { size, .. } => {
                let end = place.end();
                let before = (first > 0).then(|| (0, size - 1));
                let after = (last < end).then(|| (end / size * size, end));
                if before.is_some() { [before, after] } else { [after, None] }
            }
            _ => [None; RUNS - 1],
        }
    }
}
