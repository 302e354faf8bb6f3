//! The attention masks of a batch's queries, as ordered runs of key positions.

use std::ops::Range;

use super::{Attention, AttentionMask, BatchSequences, QueryPosition};

impl Attention {
    /// Returns the runs of key positions that row `row` of a sequence attends to.
    pub fn key_runs(
        &self,
        queries: &BatchSequences,
        keys: &BatchSequences,
        sequence: usize,
        row: usize,
    ) -> Vec<Range<usize>> {
        let place = place(queries, keys, sequence, row);
        let window = window(self, place);
        if matches!(self.attention_mask, AttentionMask::LongformerLocal(_)) {
            let marked = |position: &usize| is_marked(keys, sequence, *position);
            let before = (0..window.start).filter(marked).map(|position| position..position + 1);
            let after =
                (window.end..place.encoded_length).filter(marked).map(|position| position..position + 1);
            return before.chain([window.clone()]).chain(after).collect();
        }
        let also = self.also_seen(place).into_iter().flatten().map(|(first, last)| first..last + 1);
        let mut runs: Vec<Range<usize>> = also.chain([window]).filter(|run| !run.is_empty()).collect();
        runs.sort_unstable_by_key(|run| run.start);
        runs
    }

    /// Returns the number of query–key pairs of a sequence, counted without building the runs.
    pub fn key_pairs(&self, queries: &BatchSequences, keys: &BatchSequences, sequence: usize) -> usize {
        let rows = 0..queries.sequences[sequence].rows.len();
        if !matches!(self.attention_mask, AttentionMask::LongformerLocal(_)) {
            let of_row = |row| {
                let place = place(queries, keys, sequence, row);
                let also = self.also_seen(place).into_iter().flatten();
                window(self, place).len() + also.map(|(first, last)| last + 1 - first).sum::<usize>()
            };
            return rows.map(of_row).sum();
        }
        let count = keys.sequences[sequence].rows.len();
        let mut marked_before = vec![0; count + 1];
        for position in 0..count {
            let marked = usize::from(is_marked(keys, sequence, position));
            marked_before[position + 1] = marked_before[position] + marked;
        }
        let of_row = |row| {
            let window = window(self, place(queries, keys, sequence, row));
            let [start, end] = [window.start, window.end].map(|position| position.min(count));
            window.len() + marked_before[start] + marked_before[count] - marked_before[end]
        };
        rows.map(of_row).sum()
    }
}

fn place(queries: &BatchSequences, keys: &BatchSequences, sequence: usize, row: usize) -> QueryPosition {
    QueryPosition {
        position: row,
        encoded_length: keys.sequences[sequence].rows.len(),
        bidirectional_prefix: queries.sequences[sequence].prefix,
        global_tokens: 0,
    }
}

fn window(description: &Attention, place: QueryPosition) -> Range<usize> {
    let (first, last) = description.seen(place);
    let end = if description.projection.is_some() { usize::MAX } else { place.encoded_length };
    first..(last + 1).min(end)
}

fn is_marked(keys: &BatchSequences, sequence: usize, position: usize) -> bool {
    keys.is_marked(keys.sequences[sequence].rows.start + position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_counts_match_the_visible_ranges() {
        let sights = [
            AttentionMask::Causal(None),
            AttentionMask::Causal(Some(5)),
            AttentionMask::StreamingLlm { window: 6, sinks: 2 },
            AttentionMask::Full,
            AttentionMask::LocalWindow(3),
            AttentionMask::LongformerLocal(2),
            AttentionMask::BigBird { size: 2, random: 0 },
        ];
        let mut texts = BatchSequences::default();
        for length in [1, 7, 40] {
            texts.push(&vec![9; length], &[]);
        }
        let mut marked = texts.clone();
        marked.rows.iter_mut().enumerate().for_each(|(index, row)| row.marked = index.is_multiple_of(6));
        marked.sequences[1].prefix = 3;
        for texts in [texts, marked] {
            for attention_mask in sights {
                let description = Attention { attention_mask, ..Attention::causal(1, 4) };
                for (text, span) in texts.spans().enumerate() {
                    let of_row = |row| description.key_runs(&texts, &texts, text, row);
                    let want: usize = (0..span.len()).flat_map(of_row).map(|run| run.len()).sum();
                    assert_eq!(
                        description.key_pairs(&texts, &texts, text),
                        want,
                        "{attention_mask:?}, text {text}"
                    );
                }
            }
        }
    }
}
