//! The hash functions of the section's tables. They are part of the file format.

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes a byte string.
#[inline]
pub(super) fn bytes(text: &[u8]) -> u64 {
    let mut hash = (text.len() as u64).wrapping_mul(MULTIPLIER);
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        hash = mix(hash ^ tail(rest));
    }
    mix(hash)
}

/// Returns fewer than eight bytes as a little-endian integer.
#[inline]
fn tail(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Hashes a pair of symbols.
#[inline]
pub(super) fn pair(left: u32, right: u32) -> u64 {
    mix(mix(u64::from(left) << 32 | u64::from(right)))
}

#[inline]
fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(MULTIPLIER);
    value ^ value >> 32
}

/// Returns the home slot of `hash` among `slots`.
#[inline]
pub(super) fn home(hash: u64, slots: usize) -> usize {
    ((hash >> 32).wrapping_mul(slots as u64) >> 32) as usize
}
