//! WordPiece: greedy longest match inside a word, as in BERT.
//!
//! The trie holds tokens that start words by their text, and tokens that continue words by the byte 0xFF and their text
//! (0xFF does not occur in UTF-8).

use super::{ModelTables, TokenSpan, characters, is_start, push_unknown};

/// The first byte of keys of tokens that continue words.
pub(in super::super) const CONTINUES: u8 = 0xFF;

pub(super) fn encode(
    tables: &ModelTables<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    out: &mut Vec<TokenSpan>,
) {
    let Some(word) = text.get(start..end) else { return };
    let floor = out.len();
    if characters(word).count() > tables.longest_word {
        return push_unknown(&tables.view, (start, end), false, out, floor);
    }
    let continues = tables.trie.child(0, CONTINUES);
    let mut at = 0;
    while at < word.len() {
        let root = if at == 0 { Some(0) } else { continues };
        let mut longest = None;
        if let Some(root) = root {
            tables.trie.prefixes(&word[at..], root, |length, id| {
                if word.get(at + length).is_none_or(|&byte| is_start(byte)) && id < tables.view.tokens {
                    longest = Some((length, id));
                }
            });
        }
        let Some((length, id)) = longest else {
            out.truncate(floor);
            return push_unknown(&tables.view, (start, end), false, out, floor);
        };
        let from = (start + at) as u32;
        out.push(TokenSpan { id, start: from, end: from + length as u32 });
        at += length;
    }
}
