//! Word-level model: whole words only.

use super::super::section::SectionView;
use super::{TokenSpan, push_unknown};

pub(super) fn encode(
    view: &SectionView<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    out: &mut Vec<TokenSpan>,
) {
    let word = text.get(start..end).unwrap_or_default();
    match view.find_ordinary(word).filter(|&id| id < view.tokens) {
        Some(id) => out.push(TokenSpan { id, start: start as u32, end: end as u32 }),
        None => push_unknown(view, (start, end), false, out, out.len()),
    }
}
