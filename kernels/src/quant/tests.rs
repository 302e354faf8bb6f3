//! Codecs against the `gguf` Python package: `tests/data/codecs/` holds its answers.

use super::*;
use std::{collections::HashMap, format, string::String, vec, vec::Vec};

/// The tensors of a safetensors file of golden data, as bytes.
pub(crate) fn golden(name: &str) -> HashMap<String, Vec<u8>> {
    let path = format!("{}/tests/data/codecs/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: serde_json::Value = serde_json::from_slice(header).unwrap();
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    tensors
        .map(|(name, entry)| {
            let at = |i: usize| entry["data_offsets"][i].as_u64().unwrap() as usize;
            (name.clone(), data[at(0)..at(1)].to_vec())
        })
        .collect()
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The types that have golden blocks: all but the floats.
pub(crate) fn block_types() -> impl Iterator<Item = BlockType> {
    BlockType::ALL.iter().copied().filter(|ty| ty.codec().elements > 1)
}

#[test]
fn blocks_decode_to_the_reference_values() {
    for ty in block_types() {
        let data = golden(ty.name());
        let values = floats(&data["values"]);
        let mut decoded = vec![f32::NAN; values.len()];
        assert!(ty.decode_row(&data["blocks"], &mut decoded), "{}", ty.name());
        assert_eq!(bits(&decoded), bits(&values), "{}", ty.name());
    }
    assert_eq!(block_types().count(), 22);
}

#[test]
fn names_and_numbers_are_those_of_ggml() {
    let given = [
        ("F32", 0, 1, 4),
        ("F16", 1, 1, 2),
        ("Q4_0", 2, 32, 18),
        ("Q4_1", 3, 32, 20),
        ("Q5_0", 6, 32, 22),
        ("Q5_1", 7, 32, 24),
        ("Q8_0", 8, 32, 34),
        ("Q2_K", 10, 256, 84),
        ("Q3_K", 11, 256, 110),
        ("Q4_K", 12, 256, 144),
        ("Q5_K", 13, 256, 176),
        ("Q6_K", 14, 256, 210),
        ("IQ2_XXS", 16, 256, 66),
        ("IQ2_XS", 17, 256, 74),
        ("IQ3_XXS", 18, 256, 98),
        ("IQ1_S", 19, 256, 50),
        ("IQ4_NL", 20, 32, 18),
        ("IQ3_S", 21, 256, 110),
        ("IQ2_S", 22, 256, 82),
        ("IQ4_XS", 23, 256, 136),
        ("IQ1_M", 29, 256, 56),
        ("BF16", 30, 1, 2),
        ("TQ1_0", 34, 256, 54),
        ("TQ2_0", 35, 256, 66),
        ("MXFP4", 39, 32, 17),
    ];
    assert_eq!(given.len(), BlockType::ALL.len());
    for (name, id, elements, bytes) in given {
        let ty = BlockType::from_name(name).unwrap();
        assert_eq!(BlockType::from_gguf(id), Some(ty), "{name}");
        assert_eq!((ty.codec().elements, ty.codec().bytes), (elements, bytes), "{name}");
        assert_eq!(ty.row_bytes(3 * elements), Some(3 * bytes), "{name}");
    }
    assert_eq!(BlockType::from_gguf(4), None);
    assert_eq!(BlockType::from_name("Q4_2"), None);
    assert_eq!(BlockType::Q4_K.row_bytes(128), None);
    assert_eq!(BlockType::F32.row_bytes(usize::MAX), None);
}

#[test]
fn floats_decode() {
    let mut out = [0.0; 4];
    assert!(BlockType::F16.decode_row(&[0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x7b], &mut out));
    assert_eq!(out, [1.0, -2.0, 5.960_464_5e-8, 65504.0]);
    assert!(BlockType::BF16.decode_row(&[0x80, 0x3f, 0x49, 0xc0, 0x01, 0x00, 0x7f, 0x7f], &mut out));
    assert_eq!(bits(&out), [0x3f80_0000, 0xc049_0000, 0x0001_0000, 0x7f7f_0000]);
    assert!(BlockType::F32.decode_row(&[0, 0, 0x80, 0x3f, 1, 2, 3, 4], &mut out[..2]));
    assert_eq!(bits(&out[..2]), [0x3f80_0000, 0x0403_0201]);
}

#[test]
fn wrong_lengths_are_refused() {
    for &ty in BlockType::ALL {
        let codec = ty.codec();
        let (mut out, row) = (vec![7.0; 2 * codec.elements], vec![0; 2 * codec.bytes]);
        assert!(!ty.decode_row(&row[1..], &mut out), "{}", ty.name());
        assert!(!ty.decode_row(&row, &mut out[1..]), "{}", ty.name());
        assert!(!codec.decode(&row, &mut out), "{}", ty.name());
        assert!(out.iter().all(|&value| value == 7.0));
        let mut row = row;
        assert!(!ty.encode_row(&out, None, &mut row[1..]), "{}", ty.name());
        assert!(!ty.encode_row(&out, Some(&[1.0]), &mut row), "{}", ty.name());
    }
}

#[test]
fn any_bytes_decode() {
    for &ty in BlockType::ALL {
        let codec = ty.codec();
        let mut out = vec![0.0; codec.elements];
        for byte in [0xff, 0x80, 0x7f, 0x7c, 0xfc, 0x01] {
            assert!(codec.decode(&vec![byte; codec.bytes], &mut out), "{}", ty.name());
        }
    }
}
