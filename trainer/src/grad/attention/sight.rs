//! The positions that a query sees, as runs in order.

use std::ops::Range;

use siskin::graph::{Attention, Place, Sight};

use crate::batch::Texts;

/// What row `row` of a text sees of the positions of the keys' text.
pub(crate) fn runs(
    description: &Attention,
    queries: &Texts,
    keys: &Texts,
    text: usize,
    row: usize,
) -> Vec<Range<usize>> {
    let place = Place {
        position: row,
        text: keys.spans[text].len(),
        prefix: queries.prefixes.get(text).copied().unwrap_or(0),
        marked: 0,
    };
    let (first, last) = description.seen(place);
    let end = if description.projection.is_some() { usize::MAX } else { place.text };
    let window = first..(last + 1).min(end);
    if matches!(description.sight, Sight::Marked(_)) {
        let span = &keys.spans[text];
        let marked = |&position: &usize| keys.marked.get(span.start + position).copied().unwrap_or(false);
        let before = (0..window.start).filter(marked).map(|position| position..position + 1);
        let after = (window.end..place.text).filter(marked).map(|position| position..position + 1);
        return before.chain([window.clone()]).chain(after).collect();
    }
    let also = description.also_seen(place).into_iter().flatten().map(|(first, last)| first..last + 1);
    let mut runs: Vec<Range<usize>> = also.chain([window]).filter(|run| !run.is_empty()).collect();
    runs.sort_by_key(|run| run.start);
    runs
}
