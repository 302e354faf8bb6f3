//! Base64 decoding.

use siskin::{Error, Result};

/// Decodes base64 (RFC 4648), with or without `=` padding.
pub(super) fn decode(text: &str) -> Result<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let wrong = |at: usize| Error::argument("transcribe", format!("is not base64 at byte {at}"));
    if digits.len() % 4 == 1 || text.len() - digits.len() > 2 {
        return Err(wrong(digits.len()));
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut held, mut bits) = (0_u32, 0);
    for (at, &digit) in digits.iter().enumerate() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(wrong(at)),
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    if held == 0 { Ok(bytes) } else { Err(wrong(digits.len() - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
            assert_eq!(decode(text.trim_end_matches('=')).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        for wrong in ["Z", "Zm9vY", "Zg===", "Z g=", "Zh==", "Zm9", "Zm-v"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}
