//! A trie in flat tables: the children of a node are adjacent, sorted by byte.

use super::section::{NONE, u32_at};
use siskin_format::{Error, Result};
use std::ops::Range;

/// The maximum size of a key in bytes, for writing and lookup. Without a limit, matching at every position of a text
/// would take quadratic time.
pub(super) const MAX_KEY_BYTES: usize = 1024;

/// A trie read in place. Table: `nodes` u32, then `nodes + 1` first children u32, `nodes` values u32, `nodes` bytes.
/// Node 0 is the root; the children of node n are the nodes from `first[n]` to `first[n + 1]`.
#[derive(Clone, Copy)]
pub(super) struct Trie<'a> {
    first: &'a [u8],
    values: &'a [u8],
    labels: &'a [u8],
}

impl<'a> Trie<'a> {
    /// The empty trie.
    pub(super) const EMPTY: Self = Self { first: &[], values: &[], labels: &[] };

    /// Locates the parts of the table; an empty table is an empty trie.
    pub(super) fn open(table: &'a [u8]) -> Option<Self> {
        if table.is_empty() {
            return Some(Self::EMPTY);
        }
        let nodes = u32_at(table, 0)? as usize;
        let rest = table.get(4..)?;
        let (first, rest) = rest.split_at_checked(nodes.checked_add(1)?.checked_mul(4)?)?;
        let (values, rest) = rest.split_at_checked(nodes.checked_mul(4)?)?;
        Some(Self { first, values, labels: rest.get(..nodes)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the child of `node` for `byte`. Children must have larger indices than their parents; others are
    /// ignored.
    #[inline]
    pub(super) fn child(&self, node: u32, byte: u8) -> Option<u32> {
        let start = u32_at(self.first, node as usize)? as usize;
        let end = u32_at(self.first, node as usize + 1)? as usize;
        let labels = self.labels.get(start..end)?;
        let index = match labels.len() {
            0..=16 => labels.iter().position(|&label| label == byte)?,
            256 => usize::from(byte),
            _ => labels.binary_search(&byte).ok()?,
        };
        Some((start + index) as u32).filter(|&child| child > node)
    }

    /// Returns the value at `node`.
    #[inline]
    pub(super) fn value(&self, node: u32) -> Option<u32> {
        u32_at(self.values, node as usize).filter(|&value| value != NONE)
    }

    /// Returns all values.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        (0..self.labels.len() as u32).filter_map(|node| self.value(node))
    }

    /// Calls `found` with the length and value of every key that is a prefix of `text`, shortest first. Reads at most
    /// [`MAX_KEY_BYTES`] bytes.
    #[inline]
    pub(super) fn prefixes(&self, text: &[u8], root: u32, mut found: impl FnMut(usize, u32)) {
        let mut node = root;
        for (index, &byte) in text.iter().take(MAX_KEY_BYTES).enumerate() {
            let Some(child) = self.child(node, byte) else { return };
            node = child;
            if let Some(value) = self.value(node) {
                found(index + 1, value);
            }
        }
    }
}

/// Serializes the trie of `entries`, whose values are tokens; of equal keys the first value is kept.
pub(super) fn build(entries: &mut [(&[u8], u32)]) -> Result<Vec<u8>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    if let Some((key, id)) = entries.iter().find(|(key, _)| key.len() > MAX_KEY_BYTES) {
        let message = format!("{} bytes long; at most {MAX_KEY_BYTES} are supported", key.len());
        return Err(Error::unsupported(format!("tokenizer.tokens[{id}]"), message));
    }
    entries.sort_by_key(|entry| entry.0);
    let (mut first, mut values, mut labels) = (Vec::new(), vec![NONE], vec![0u8]);
    // The nodes of one level: the range of entries below each, all equal up to `depth`.
    let mut level: Vec<Range<usize>> = std::iter::once(0..entries.len()).collect();
    let mut depth = 0;
    while !level.is_empty() {
        let mut next = Vec::new();
        for range in level {
            first.push(
                u32::try_from(labels.len()).map_err(|_| Error::unsupported("tokenizer.trie", "too large"))?,
            );
            let mut start = range.start
                + entries[range.clone()].iter().take_while(|entry| entry.0.len() == depth).count();
            while start < range.end {
                let byte = entries[start].0[depth];
                let end = start
                    + entries[start..range.end].iter().take_while(|entry| entry.0[depth] == byte).count();
                let ends_here = entries[start].0.len() == depth + 1;
                values.push(if ends_here { entries[start].1 } else { NONE });
                labels.push(byte);
                next.push(start..end);
                start = end;
            }
        }
        level = next;
        depth += 1;
    }
    first.push(labels.len() as u32);
    let mut out = (labels.len() as u32).to_le_bytes().to_vec();
    out.extend(first.iter().chain(&values).flat_map(|value| value.to_le_bytes()));
    out.extend(labels);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_prefix() {
        let mut entries: Vec<(&[u8], u32)> = vec![(b"abc", 3), (b"a", 1), (b"b", 9), (b"abd", 4), (b"a", 7)];
        let table = build(&mut entries).unwrap();
        let trie = Trie::open(&table).unwrap();
        let mut found = Vec::new();
        trie.prefixes(b"abcd", 0, |length, value| found.push((length, value)));
        assert_eq!(found, [(1, 1), (3, 3)]);
        assert!(Trie::open(&table[..table.len() - 1]).is_none());
        assert!(Trie::open(&[]).unwrap().is_empty());
    }

    #[test]
    fn walks_end() {
        let steps = |nodes: u32, first: &dyn Fn(u32) -> u32| {
            let mut table = nodes.to_le_bytes().to_vec();
            table.extend((0..=nodes).flat_map(|node| first(node).to_le_bytes()));
            table.extend((0..nodes).flat_map(|node| node.to_le_bytes()));
            table.resize(table.len() + nodes as usize, b'a');
            let mut steps = 0;
            Trie::open(&table).unwrap().prefixes(&[b'a'; 5000], 0, |_, _| steps += 1);
            steps
        };
        assert_eq!(steps(1, &|node| node), 0, "a node that is its own child");
        assert_eq!(steps(5001, &|node| (node + 1).min(5001)), MAX_KEY_BYTES);
        let key = [b'a'; MAX_KEY_BYTES + 1];
        assert!(build(&mut [(&key[..MAX_KEY_BYTES], 1)]).is_ok());
        assert!(build(&mut [(&key, 7)]).unwrap_err().location().contains("tokens[7]"));
    }
}
