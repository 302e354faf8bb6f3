//! Tests on handmade GGUF files, intact and corrupted.

use super::*;
use siskin_format::file::Bytes;

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Builds a file with two keys and `tensors` of (name, offset), each of 8 floats.
fn file(tensors: &[(&str, u64)]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(2u64.to_le_bytes());
    text(&mut out, "general.name");
    out.extend(8u32.to_le_bytes());
    text(&mut out, "tiny");
    text(&mut out, "some.list");
    out.extend(9u32.to_le_bytes());
    out.extend(8u32.to_le_bytes());
    out.extend(2u64.to_le_bytes());
    text(&mut out, "one");
    text(&mut out, "two");
    for (name, offset) in tensors {
        text(&mut out, name);
        out.extend(2u32.to_le_bytes());
        out.extend([4u64, 2].iter().flat_map(|size| size.to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend((0..16).flat_map(|value| (value as f32).to_le_bytes()));
    out
}

fn parse(bytes: Vec<u8>) -> Result<GgufPart> {
    GgufPart::parse(&Bytes::new(bytes))
}

#[test]
fn reads_what_was_written() {
    let part = parse(file(&[("a", 0), ("b", 32)])).unwrap();
    assert_eq!(part.get("general.name").unwrap().as_str(), Some("tiny"));
    let strings: Vec<&[u8]> = part.get("some.list").unwrap().as_strings().unwrap().iter().collect();
    assert_eq!(strings, [b"one", b"two"]);
    assert_eq!(part.tensors[1].dims, [4, 2]);
    assert_eq!(&part.tensors[1].data[..4], 8f32.to_le_bytes());
}

#[test]
fn the_head_ends_where_the_data_starts() {
    let whole = file(&[("a", 0), ("b", 32)]);
    let data = whole.len() as u64 - 64;
    let head = |length: usize, included: &dyn Fn(&str) -> bool| {
        GgufPart::head_bytes(&Bytes::new(whole[..length].to_vec()), included)
    };
    for length in 0..whole.len() {
        let found = head(length, &|_| false).unwrap();
        assert!(found.is_none_or(|end| end == data), "{length}: {found:?}");
        // Only the padding before the data may be missing.
        assert!(found.is_some() || length < data as usize && found.is_none(), "{length}");
    }
    assert_eq!(head(whole.len(), &|name| name == "a").unwrap(), Some(data + 32));
    assert_eq!(head(whole.len(), &|name| name == "b").unwrap(), Some(data + 64));
    assert!(GgufPart::head_bytes(&Bytes::new(b"GGML0000".to_vec()), &|_| false).is_err());
}

#[test]
fn rejects_what_is_wrong() {
    let mut big_endian = file(&[]);
    big_endian[4..8].copy_from_slice(&3u32.to_be_bytes());
    let huge = |at: usize| {
        let mut bytes = file(&[("a", 0)]);
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes
    };
    for (bytes, words) in [
        (b"GGML".to_vec(), "not a GGUF"),
        (big_endian, "big-endian"),
        (file(&[("a", 0), ("a", 32)]), "twice"),
        (file(&[("a", 0), ("b", 0)]), "overlaps"),
        (file(&[("a", 4)]), "aligned"),
        (file(&[("a", 64)]), "complete"),
        (huge(8), "declares"),
        (huge(16), "declares"),
        (huge(24), "declares"),
    ] {
        let error = parse(bytes).unwrap_err();
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn damage_never_panics() {
    let whole = file(&[("a", 0), ("b", 32)]);
    for length in 0..whole.len() {
        let _ = parse(whole[..length].to_vec());
    }
    for at in 0..whole.len() {
        for value in [0, 1, 9, 0x7F, 0x80, 0xFF] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            if let Ok(part) = parse(damaged) {
                part.tensors.iter().for_each(|tensor| drop(tensor.data.to_vec()));
            }
        }
    }
}

#[test]
fn deep_arrays_are_rejected() {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    text(&mut bytes, "k");
    bytes.extend(9u32.to_le_bytes());
    for _ in 0..10_000 {
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
    }
    assert!(parse(bytes).unwrap_err().message().contains("nested"));
}

#[test]
fn split_models_are_put_together() {
    let folder = std::env::temp_dir().join(format!("siskin-gguf-split-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let part = |number: u16, name: &str| {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend(1u64.to_le_bytes());
        out.extend(2u64.to_le_bytes());
        for (key, value) in [("split.no", number), ("split.count", 2)] {
            text(&mut out, key);
            out.extend(2u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        text(&mut out, name);
        out.extend(1u32.to_le_bytes());
        out.extend(2u64.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(0u64.to_le_bytes());
        out.resize(out.len().next_multiple_of(32) + 8, 0);
        out
    };
    let paths = [1, 2].map(|number| folder.join(format!("m-{number:05}-of-00002.gguf")));
    std::fs::write(&paths[0], part(0, "a")).unwrap();
    assert_eq!(Gguf::open(&paths[0]).unwrap_err().kind(), ErrorKind::Missing);
    std::fs::write(&paths[1], part(1, "b")).unwrap();
    let names: Vec<String> =
        Gguf::open(&paths[0]).unwrap().tensors.into_iter().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(Gguf::open(&paths[1]).unwrap_err().kind(), ErrorKind::Argument);
    std::fs::write(&paths[1], part(1, "a")).unwrap();
    assert!(Gguf::open(&paths[0]).unwrap_err().message().contains("two parts"));
    std::fs::remove_dir_all(&folder).unwrap();
}
