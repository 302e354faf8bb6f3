//! SentencePiece's precompiled character map: a double-array trie over bytes, whose leaves point to replacement
//! strings.

use super::section::u32_at;
use super::trie::MAX_KEY_BYTES;
use siskin_format::{Error, Result};

/// The maximum size of a replacement, in bytes.
pub(super) const MAX_REPLACEMENT_BYTES: usize = 128;

/// The map, read in place: the length of the array as u32, the array of u32 units, then the zero-terminated
/// replacements.
#[derive(Clone, Copy)]
pub(super) struct Charsmap<'a> {
    units: &'a [u8],
    replacements: &'a [u8],
}

impl<'a> Charsmap<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self> {
        let wrong = || Error::corrupt("tokenizer.charsmap", "the character map's length is wrong");
        let length = u32_at(bytes, 0).ok_or_else(wrong)? as usize;
        let (units, replacements) = bytes[4..].split_at_checked(length).ok_or_else(wrong)?;
        Ok(Self { units, replacements })
    }

    /// Returns the longest prefix of `text` that the map rewrites, up to [`MAX_KEY_BYTES`] bytes: its length and its
    /// replacement.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(usize, &'a str)> {
        let unit = |index: u32| u32_at(self.units, index as usize);
        let base = |unit: u32| (unit >> 10) << ((unit & 1 << 9) >> 6);
        let mut node = base(unit(0)?);
        let mut best = None;
        for (index, &byte) in text.iter().take(MAX_KEY_BYTES).enumerate() {
            if byte == 0 {
                break;
            }
            node ^= u32::from(byte);
            let Some(found) = unit(node) else { break };
            if found & (1 << 31 | 0xFF) != u32::from(byte) {
                break;
            }
            node ^= base(found);
            if found >> 8 & 1 == 1 {
                best = unit(node).map(|leaf| (index + 1, leaf & !(1 << 31)));
            }
        }
        let (length, offset) = best?;
        let replacement = self.replacements.get(offset as usize..)?;
        let end = replacement.iter().take(MAX_REPLACEMENT_BYTES).position(|&byte| byte == 0)?;
        Some((length, std::str::from_utf8(&replacement[..end]).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_end() {
        // Every unit is one for `a`, has a leaf, and its children are at the first unit again: an endless loop.
        let unit = u32::from(b'a') << 10 | 1 << 8 | u32::from(b'a');
        let mut bytes = 1024u32.to_le_bytes().to_vec();
        bytes.extend([unit; 256].iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.resize(bytes.len() + (1 << 17), 0);
        let map = Charsmap::open(&bytes).unwrap();
        assert_eq!(map.longest(&[b'a'; 5000]), Some((MAX_KEY_BYTES, "")));
    }
}
