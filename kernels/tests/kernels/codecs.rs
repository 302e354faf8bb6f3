//! Codecs against the `gguf` Python package: `tests/data/codecs/` holds its output.

use siskin_kernels::quant::*;
use std::collections::HashMap;

/// Returns the tensors of a safetensors file of golden data, as bytes.
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

/// Returns the types that have golden blocks: all but the floats.
pub(crate) fn block_types() -> impl Iterator<Item = BlockType> {
    BlockType::ALL.iter().copied().filter(|ty| ty.codec().elements > 1)
}

#[test]
fn blocks_decode_to_the_reference_values() {
    for ty in block_types() {
        let data = golden(ty.name());
        let values = floats(&data["values"]);
        let mut decoded = vec![f32::NAN; values.len()];
        assert!(ty.dequantize_row(&data["blocks"], &mut decoded), "{}", ty.name());
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
    assert!(BlockType::F16.dequantize_row(&[0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x7b], &mut out));
    assert_eq!(out, [1.0, -2.0, 5.960_464_5e-8, 65504.0]);
    assert!(BlockType::BF16.dequantize_row(&[0x80, 0x3f, 0x49, 0xc0, 0x01, 0x00, 0x7f, 0x7f], &mut out));
    assert_eq!(bits(&out), [0x3f80_0000, 0xc049_0000, 0x0001_0000, 0x7f7f_0000]);
    assert!(BlockType::F32.dequantize_row(&[0, 0, 0x80, 0x3f, 1, 2, 3, 4], &mut out[..2]));
    assert_eq!(bits(&out[..2]), [0x3f80_0000, 0x0403_0201]);
}

#[test]
fn wrong_lengths_are_rejected() {
    for &ty in BlockType::ALL {
        let codec = ty.codec();
        let (mut out, row) = (vec![7.0; 2 * codec.elements], vec![0; 2 * codec.bytes]);
        assert!(!ty.dequantize_row(&row[1..], &mut out), "{}", ty.name());
        assert!(!ty.dequantize_row(&row, &mut out[1..]), "{}", ty.name());
        assert!(!codec.dequantize(&row, &mut out), "{}", ty.name());
        assert!(out.iter().all(|&value| value == 7.0));
        let mut row = row;
        assert!(!ty.quantize_row(&out, None, &mut row[1..]), "{}", ty.name());
        assert!(!ty.quantize_row(&out, Some(&[1.0]), &mut row), "{}", ty.name());
    }
}

#[test]
fn any_bytes_decode() {
    for &ty in BlockType::ALL {
        let codec = ty.codec();
        let mut out = vec![0.0; codec.elements];
        for byte in [0xff, 0x80, 0x7f, 0x7c, 0xfc, 0x01] {
            assert!(codec.dequantize(&vec![byte; codec.bytes], &mut out), "{}", ty.name());
        }
    }
}

/// Returns the mean squared error of decoded blocks.
fn mean_error(ty: BlockType, blocks: &[u8], values: &[f32]) -> f64 {
    let mut decoded = vec![0.0; values.len()];
    assert!(ty.dequantize_row(blocks, &mut decoded));
    let squares = decoded.iter().zip(values).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>() / values.len() as f64
}

fn encode(ty: BlockType, values: &[f32], weights: Option<&[f32]>) -> Vec<u8> {
    let mut blocks = vec![0xff; ty.row_bytes(values.len()).unwrap()];
    assert!(ty.quantize_row(values, weights, &mut blocks), "{}", ty.name());
    blocks
}

fn encoders() -> impl Iterator<Item = BlockType> {
    BlockType::ALL.iter().copied().filter(|ty| ty.codec().can_quantize())
}

#[test]
fn encoding_is_no_worse_than_the_reference() {
    let data = golden("encoded");
    let values = floats(&data["values"]);
    for (name, blocks) in data.iter().filter(|(name, _)| *name != "values") {
        let ty = BlockType::from_name(name).unwrap();
        let size = ty.row_bytes(256).unwrap();
        for (i, (values, blocks)) in values.chunks(256).zip(blocks.chunks(size)).enumerate() {
            let ours = mean_error(ty, &encode(ty, values, None), values);
            let theirs = mean_error(ty, blocks, values);
            assert!(ours <= theirs * 1.000_001, "{name} row {i}: {ours:e} against {theirs:e}");
        }
    }
    assert_eq!(encode(BlockType::BF16, &values, None), data["BF16"]);
}

#[test]
fn more_bits_leave_less_error() {
    let values = floats(&golden("encoded")["values"]);
    // Minimum signal-to-noise ratio in dB over the ten rows, half a dB below what the search reaches.
    let ladder = [
        (BlockType::TQ2_0, 10.8),
        (BlockType::Q2_K, 16.9),
        (BlockType::Q3_K, 20.7),
        (BlockType::Q4_0, 24.8),
        (BlockType::IQ4_XS, 26.0),
        (BlockType::IQ4_NL, 26.1),
        (BlockType::Q4_K, 28.0),
        (BlockType::Q5_K, 34.0),
        (BlockType::Q6_K, 38.9),
        (BlockType::Q8_0, 48.9),
    ];
    let power = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64;
    for (ty, least) in ladder {
        let noise = mean_error(ty, &encode(ty, &values, None), &values);
        let ratio = 10.0 * (power / noise).log10();
        assert!(ratio > least, "{} {ratio}", ty.name());
    }
}

#[test]
fn weights_move_the_error_to_where_they_are_small() {
    let values = floats(&golden("encoded")["values"]);
    let weights: Vec<f32> = (0..values.len()).map(|i| if i % 4 == 0 { 50.0 } else { 1.0 }).collect();
    for ty in encoders().filter(|ty| ty.codec().elements > 1) {
        let heavy = |weights: Option<&[f32]>| {
            let mut decoded = vec![0.0; values.len()];
            assert!(ty.dequantize_row(&encode(ty, &values, weights), &mut decoded));
            (0..values.len()).step_by(4).map(|i| f64::from(decoded[i] - values[i]).powi(2)).sum::<f64>()
        };
        let (with, without) = (heavy(Some(&weights)), heavy(None));
        assert!(with < without, "{}: {with:e} {without:e}", ty.name());
    }
}

#[test]
fn exact_values_come_back() {
    let mut ternary = vec![0.0; 512];
    for (i, value) in ternary.iter_mut().enumerate() {
        *value = 0.37109375 * ((i * i / 3 % 3) as f32 - 1.0);
    }
    for ty in [BlockType::TQ1_0, BlockType::TQ2_0, BlockType::F16, BlockType::F32] {
        assert_eq!(mean_error(ty, &encode(ty, &ternary, None), &ternary), 0.0, "{}", ty.name());
    }
    for ty in encoders() {
        let zeros = [0.0; 256];
        assert_eq!(mean_error(ty, &encode(ty, &zeros, None), &zeros), 0.0, "{}", ty.name());
    }
}

#[test]
fn any_numbers_encode() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -0.0, 1.0];
    for ty in encoders() {
        for pick in 0..odd.len() {
            let mut values: Vec<f32> = (0..256).map(|i| odd[(i * (pick + 1) / 3) % odd.len()]).collect();
            encode(ty, &values, None);
            encode(ty, &values, Some(&values.clone()));
            values.fill(odd[pick]);
            encode(ty, &values, None);
            encode(ty, &values, Some(&[odd[pick]; 256]));
        }
    }
}
