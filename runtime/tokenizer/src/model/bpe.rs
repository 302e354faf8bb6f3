//! Byte-pair encoding (BPE, arXiv:1508.07909).
//!
//! Short pieces are merged by scanning for the best pair, long ones with a heap in O(n log n).

use super::super::fallible_alloc;
use super::super::section::{NONE, SectionView, flag};
use super::{TokenSpan, characters, push_bytes, push_unknown};
use siskin_format::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pieces of more symbols than this are merged with a heap.
const MAX_LINEAR_SCAN: usize = 48;

/// A symbol of the piece being merged.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    start: u32,
    end: u32,
    /// Rank and result of merging with the following symbol; the rank is [`NONE`] if they do not merge. (Scanning
    /// only.)
    rank: u32,
    merged: u32,
    /// Neighbors. (Heap only.)
    previous: u32,
    next: u32,
}

/// A candidate merge: rank, position of the left symbol, both symbols, the result.
type Candidate = Reverse<(u32, u32, u32, u32, u32)>;

/// Reusable buffers.
#[derive(Debug, Default)]
pub(in super::super) struct BpeBuffers {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Candidate>,
}

pub(super) fn encode(
    view: &SectionView<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    buffers: &mut BpeBuffers,
    floor: usize,
    out: &mut Vec<TokenSpan>,
) -> Result<()> {
    let Some(bytes) = text.get(start..end) else { return Ok(()) };
    buffers.symbols.clear();
    fallible_alloc::reserve(&mut buffers.symbols, bytes.len())?;
    if view.has(flag::BYTE_LEVEL) {
        byte_symbols(view, bytes, start, &mut buffers.symbols);
    } else {
        char_symbols(view, bytes, start, &mut buffers.symbols);
    }
    if buffers.symbols.len() <= MAX_LINEAR_SCAN {
        merge_by_scanning(view, &mut buffers.symbols);
        for symbol in &buffers.symbols {
            emit(view, text, symbol, floor, out);
        }
    } else {
        merge_by_heap(view, buffers)?;
        let mut at = 0;
        while let Some(symbol) = buffers.symbols.get(at as usize) {
            emit(view, text, symbol, floor, out);
            // Links must point forward, so that the loop terminates even with corrupt tables.
            if symbol.next <= at {
                break;
            }
            at = symbol.next;
        }
    }
    Ok(())
}

fn new_symbol(id: u32, start: usize, end: usize) -> Symbol {
    Symbol { id, start: start as u32, end: end as u32, rank: NONE, merged: NONE, previous: NONE, next: NONE }
}

fn byte_symbols(view: &SectionView<'_>, bytes: &[u8], start: usize, symbols: &mut Vec<Symbol>) {
    for (index, &byte) in bytes.iter().enumerate() {
        symbols.push(new_symbol(view.byte_symbol(byte), start + index, start + index + 1));
    }
}

fn char_symbols(view: &SectionView<'_>, bytes: &[u8], start: usize, symbols: &mut Vec<Symbol>) {
    for (from, to) in characters(bytes) {
        symbols.push(new_symbol(character_symbol(view, &bytes[from..to]), start + from, start + to));
    }
}

fn character_symbol(view: &SectionView<'_>, character: &[u8]) -> u32 {
    match *character {
        [byte] if byte.is_ascii() => view.byte_symbol(byte),
        ref several => view.find_ordinary(several).unwrap_or(NONE),
    }
}

/// Merges the best pair, the leftmost of equals, until no pair merges.
fn merge_by_scanning(view: &SectionView<'_>, symbols: &mut Vec<Symbol>) {
    let look = |left: &Symbol, right: Option<&Symbol>| {
        let merge = right.and_then(|right| view.merge(left.id, right.id));
        merge.map_or((NONE, NONE), |merge| (merge.rank, merge.symbol))
    };
    for index in 0..symbols.len() {
        let (rank, merged) = look(&symbols[index], symbols.get(index + 1));
        (symbols[index].rank, symbols[index].merged) = (rank, merged);
    }
    loop {
        let best = symbols.iter().enumerate().min_by_key(|(_, symbol)| symbol.rank);
        let Some((at, _)) = best.filter(|(_, symbol)| symbol.rank != NONE) else { return };
        if at + 1 >= symbols.len() {
            return;
        }
        symbols[at].id = symbols[at].merged;
        symbols[at].end = symbols[at + 1].end;
        symbols.remove(at + 1);
        let (rank, merged) = look(&symbols[at], symbols.get(at + 1));
        (symbols[at].rank, symbols[at].merged) = (rank, merged);
        if at > 0 {
            let (rank, merged) = look(&symbols[at - 1], symbols.get(at));
            (symbols[at - 1].rank, symbols[at - 1].merged) = (rank, merged);
        }
    }
}

fn merge_by_heap(view: &SectionView<'_>, buffers: &mut BpeBuffers) -> Result<()> {
    let BpeBuffers { symbols, heap } = buffers;
    heap.clear();
    let count = symbols.len();
    for (index, symbol) in symbols.iter_mut().enumerate() {
        symbol.previous = if index == 0 { NONE } else { index as u32 - 1 };
        symbol.next = if index + 1 == count { NONE } else { index as u32 + 1 };
    }
    for index in 0..count as u32 {
        consider(view, symbols, heap, index)?;
    }
    while let Some(Reverse((_, at, left, right, merged))) = heap.pop() {
        let first = symbols[at as usize];
        let Some(second) = symbols.get(first.next as usize).copied() else { continue };
        // Skips stale candidates: a merged symbol has an empty range, a changed one another id.
        if first.id != left || second.id != right || first.start == first.end {
            continue;
        }
        let gone = first.next as usize;
        symbols[gone].end = symbols[gone].start;
        symbols[gone].id = NONE;
        let kept = &mut symbols[at as usize];
        (kept.id, kept.end, kept.next) = (merged, second.end, second.next);
        if let Some(after) = symbols.get_mut(second.next as usize) {
            after.previous = at;
        }
        consider(view, symbols, heap, at)?;
        consider(view, symbols, heap, first.previous)?;
    }
    Ok(())
}

/// Pushes the pair that starts at `at` to the heap if it merges.
fn consider(
    view: &SectionView<'_>,
    symbols: &[Symbol],
    heap: &mut BinaryHeap<Candidate>,
    at: u32,
) -> Result<()> {
    let Some(left) = symbols.get(at as usize) else { return Ok(()) };
    let Some(right) = symbols.get(left.next as usize) else { return Ok(()) };
    if let Some(merge) = view.merge(left.id, right.id)
        && merge.rank != NONE
    {
        heap.try_reserve(1).map_err(|_| fallible_alloc::short())?;
        heap.push(Reverse((merge.rank, at, left.id, right.id, merge.symbol)));
    }
    Ok(())
}

/// Emits a final symbol: its token, or tokens for text without one.
fn emit(view: &SectionView<'_>, text: &[u8], symbol: &Symbol, floor: usize, out: &mut Vec<TokenSpan>) {
    if symbol.id < view.tokens {
        out.push(TokenSpan { id: symbol.id, start: symbol.start, end: symbol.end });
        return;
    }
    let (start, end) = (symbol.start as usize, symbol.end as usize);
    let bytes = text.get(start..end).unwrap_or_default();
    let fuse = view.has(flag::FUSE_UNKNOWN);
    if view.has(flag::BYTE_LEVEL) {
        for (index, &byte) in bytes.iter().enumerate() {
            match view.byte_symbol(byte) {
                id if id < view.tokens => {
                    let at = (start + index) as u32;
                    out.push(TokenSpan { id, start: at, end: at + 1 });
                }
                _ => push_unknown(view, (start + index, start + index + 1), fuse, out, floor),
            }
        }
        return;
    }
    for (from, to) in characters(bytes) {
        // The result of merges may have no token although its characters have.
        let id = character_symbol(view, &bytes[from..to]);
        if id < view.tokens {
            out.push(TokenSpan { id, start: (start + from) as u32, end: (start + to) as u32 });
        } else if !view.has(flag::BYTE_FALLBACK) || !push_bytes(view, &bytes[from..to], start + from, out) {
            push_unknown(view, (start + from, start + to), fuse, out, floor);
        }
    }
}
