//! The byte-level alphabet of GPT-2: a printable character for every byte.

use std::sync::LazyLock;

/// Returns the character for a byte: itself if it is printable Latin-1, otherwise one from U+0100 on.
fn character(byte: u8) -> char {
    const PRINTABLE: [(u8, u8); 3] = [(b'!', b'~'), (0xA1, 0xAC), (0xAE, 0xFF)];
    let is_printable = |byte: u8| PRINTABLE.iter().any(|&(first, last)| (first..=last).contains(&byte));
    match is_printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&byte| !is_printable(byte)).count() as u32;
            char::from_u32(0x100 + before).unwrap_or('\u{fffd}')
        }
    }
}

/// Decodes `text` from GPT-2's alphabet to bytes; `None` if it contains other characters.
pub fn from_byte_level(text: &str) -> Option<Vec<u8>> {
    static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
        let mut bytes = [None; 0x144];
        for byte in 0..=255u8 {
            if let Some(slot) = bytes.get_mut(character(byte) as usize) {
                *slot = Some(byte);
            }
        }
        bytes
    });
    text.chars().map(|wanted| *BYTES.get(wanted as usize)?).collect()
}

/// Encodes `bytes` in GPT-2's alphabet.
pub fn to_byte_level(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| character(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_like_gpt_2() {
        assert_eq!(to_byte_level(b" a\n\x00\xad\x7f"), "ĠaĊĀŃġ");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_byte_level(&to_byte_level(&all)), Some(all));
        assert_eq!(from_byte_level("a b"), None);
    }
}
