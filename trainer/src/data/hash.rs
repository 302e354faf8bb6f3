//! A hash of text that is the same on every machine and in every version: splits and packed files depend on it.

/// The finalizer of SplitMix64: a bijection in which each output bit depends on all input bits.
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// Adds bytes to the hash `state`. The length is hashed too, so that two lists cannot run into each other.
pub(super) fn bytes(state: u64, bytes: &[u8]) -> u64 {
    let step = |state: u64, word: u64| mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ word);
    let mut state = step(mix(state), bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = step(state, u64::from_le_bytes(word));
    }
    state
}

/// Adds a number to the hash `state`.
pub(super) fn fold(state: u64, number: u64) -> u64 {
    mix(state.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number)
}

/// Adds tokens to the hash `state`.
pub(super) fn tokens(state: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(bytes(state, &(tokens.len() as u64).to_le_bytes()), |state, token| {
        fold(state, u64::from(*token))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_stable() {
        assert_eq!(
            mix(0x9E37_79B9_7F4A_7C15),
            0xE220_A839_7B1D_CDAF,
            "the first number of SplitMix64 from 0"
        );
        let of = |text: &str| bytes(0, text.as_bytes());
        assert_eq!(of("a text of more than eight bytes"), of("a text of more than eight bytes"));
        let all =
            [of(""), of("a"), of("a\0"), of("b"), bytes(1, b"a"), bytes(of("a"), b""), tokens(0, &[97])];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[place + 1..].contains(one), "hash {place} is another");
        }
    }
}
