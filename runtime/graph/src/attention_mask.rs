//! The attention mask of a query as ranges of key positions.

use super::{Attention, AttentionMask};

/// The maximum number of key ranges of a query.
pub const RUNS: usize = 3;

/// The position of a query in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPosition {
    /// Its position.
    pub position: usize,
    /// Length of the sequence that is attended to, if it is encoded as a whole.
    pub encoded_length: usize,
    /// Length of the bidirectional prefix of a causal sequence (prefix LM).
    pub bidirectional_prefix: usize,
    /// The number of positions with global attention.
    pub global_tokens: usize,
}

impl QueryPosition {
    fn end(self) -> usize {
        self.encoded_length.saturating_sub(1)
    }
}

impl AttentionMask {
    /// Returns the BigBird block of a query that does not attend to its whole sequence.
    pub fn block(self, place: QueryPosition) -> Option<usize> {
        let Self::BigBird { size, random } = self else { return None };
        let block = place.position / size;
        let many = place.encoded_length > size.saturating_mul(5 + 2 * random);
        (many && block > 0 && block < place.end() / size).then_some(block)
    }
}

impl Attention {
    /// Returns the first and the last position that a query attends to.
    ///
    /// Global tokens are stored a second time after the sequence, one after the other. Rows that attend to global
    /// tokens read them there; at their own positions they are masked. See [`also_seen`](Self::also_seen).
    pub fn seen(&self, place: QueryPosition) -> (usize, usize) {
        let position = place.position;
        let last = place.bidirectional_prefix.saturating_sub(1).max(position);
        match self.attention_mask {
            AttentionMask::Causal(window) | AttentionMask::CausalEncoder(window) => {
                (window.map_or(0, |window| (position + 1).saturating_sub(window)), last)
            }
            AttentionMask::StreamingLlm { window, sinks: first } => {
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

    /// Returns the first and the last positions of the further key ranges of a query.
    pub fn also_seen(&self, place: QueryPosition) -> [Option<(usize, usize)>; RUNS - 1] {
        let (first, last) = self.seen(place);
        match self.attention_mask {
            AttentionMask::LongformerLocal(_) => {
                let global_tokens = place.global_tokens.checked_sub(1);
                [
                    global_tokens
                        .map(|global_tokens| (place.encoded_length, place.encoded_length + global_tokens)),
                    None,
                ]
            }
            AttentionMask::StreamingLlm { sinks: kept, .. } => {
                [Some((0, kept.saturating_sub(1))).filter(|_| first > 0 && kept > 0), None]
            }
            AttentionMask::BigBird { size, .. } => {
                let end = place.end();
                let before = (first > 0).then(|| (0, size - 1));
                let after = (last < end).then(|| (end / size * size, end));
                if before.is_some() { [before, after] } else { [after, None] }
            }
            AttentionMask::Causal(_)
            | AttentionMask::CausalEncoder(_)
            | AttentionMask::Full
            | AttentionMask::LocalWindow(_)
            | AttentionMask::LongformerGlobal
            | AttentionMask::Linformer
            | AttentionMask::CrossAttention => [None; RUNS - 1],
        }
    }
}
