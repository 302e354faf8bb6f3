//! Malicious ONNX files give typed errors, from parsing to tract.
#![cfg(feature = "tract")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use siskin::external_model::{ExternalModel, NamedTensor, TensorElements};
use siskin::{Error, ErrorKind, Model, ModelOptions};
use siskin_benches::BenchRandom;
use siskin_convert::import::onnx::General;
use siskin_convert::{OpenOptions, PackedCache, open_model};
use siskin_tests::fuzz::mutate;
use siskin_tests::paths;

/// Builds a length-delimited field: bytes, a string, or a message.
fn bytes(number: u8, contents: impl AsRef<[u8]>) -> Vec<u8> {
    let contents = contents.as_ref();
    let mut field = vec![number << 3 | 2];
    varint(contents.len() as u64, &mut field);
    field.extend(contents);
    field
}

/// Builds a varint field.
fn number(number: u8, value: u64) -> Vec<u8> {
    let mut field = vec![number << 3];
    varint(value, &mut field);
    field
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7F {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tensor(name: &str, kind: u64, shape: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut tensor: Vec<u8> = shape.iter().flat_map(|&size| number(1, size)).collect();
    tensor.extend([number(2, kind), bytes(8, name), rest.to_vec()].concat());
    bytes(5, tensor)
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut node: Vec<u8> = inputs.iter().flat_map(|input| bytes(1, input)).collect();
    node.extend([bytes(2, output), bytes(4, operator), attributes.concat()].concat());
    bytes(1, node)
}

/// Builds a float input `x` with one dynamic dimension, or the output `y`.
fn port(place: u8, name: &str) -> Vec<u8> {
    let shape = bytes(2, bytes(1, bytes(2, "n")));
    bytes(place, [bytes(1, name), bytes(2, bytes(1, [number(1, 1), shape].concat()))].concat())
}

fn model(parts: &[Vec<u8>]) -> Vec<u8> {
    let graph = [parts.concat(), port(11, "x"), port(12, "y")].concat();
    [number(1, 8), bytes(7, graph), bytes(8, number(2, 17))].concat()
}

fn open(name: &str, file: &[u8]) -> Result<siskin::Model, Error> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("onnx-hostile").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("weights.bin"), [0; 16]).unwrap();
    std::fs::write(folder.join("model.onnx"), file).unwrap();
    let options = OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() };
    open_model(folder.join("model.onnx"), &options, &ModelOptions::default()).and_then(Model::new)
}

fn error(name: &str, parts: &[Vec<u8>]) -> Error {
    open(name, &model(parts)).err().unwrap_or_else(|| panic!("{name} opened"))
}

#[test]
fn a_whole_file_runs() {
    let file = model(&[tensor("w", 1, &[2], &bytes(9, [0; 8])), node("Add", &["x", "w"], "y", &[])]);
    let model = open("whole", &file).unwrap();
    let x = NamedTensor { name: "x".into(), shape: vec![2], numbers: TensorElements::Floats(vec![1.0, 2.0]) };
    assert_eq!(model.run(&[x]).unwrap()[0].numbers, TensorElements::Floats(vec![1.0, 2.0]));
}

#[test]
fn tensors_that_would_be_too_large_are_rejected() {
    let shape: Vec<u8> = [1_u64 << 16, 1].iter().flat_map(|size| size.to_le_bytes()).collect();
    let axes = bytes(5, [bytes(1, "axes"), number(8, 0), vec![0xA0, 1, 7]].concat());
    let keep = bytes(5, [bytes(1, "keepdims"), number(3, 0), vec![0xA0, 1, 2]].concat());
    let file = model(&[
        tensor("s", 7, &[2], &bytes(9, shape)),
        node("Expand", &["x", "s"], "w", &[]),
        node("ReduceMax", &["w"], "y", &[axes, keep]),
    ]);
    let model = open("large", &file).unwrap();
    let x = |count: usize| NamedTensor {
        name: "x".into(),
        shape: vec![count],
        numbers: TensorElements::Floats(vec![1.0; count]),
    };
    assert_eq!(model.run(&[x(2)]).unwrap()[0].numbers, TensorElements::Floats(vec![1.0; 2]));
    let error = model.run(&[x(1 << 16)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    // Errors name their model.
    assert!(error.location().contains("onnx-hostile/large/model.onnx: "), "{error}");
}

#[test]
fn lies_about_sizes_are_found() {
    let add = || node("Add", &["x", "w"], "y", &[]);
    let four = bytes(9, [0; 4]);
    for (name, shape) in
        [("huge", &[1 << 40, 1 << 40][..]), ("more", &[2]), ("minus", &[u64::MAX]), ("none", &[0])]
    {
        let error = error(name, &[tensor("w", 1, shape, &four), add()]);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("initializer[0]"), "{error}");
    }
    assert_eq!(error("odd", &[tensor("w", 99, &[1], &four), add()]).kind(), ErrorKind::Unsupported);
    let shape = tensor("s", 7, &[2], &bytes(9, [0, 0, 0, 0, 1, 0, 0, 0].repeat(2)));
    let made = [shape, node("ConstantOfShape", &["s"], "w", &[]), add()];
    assert_eq!(error("made", &made).kind(), ErrorKind::Corrupt);
}

#[test]
fn files_beside_the_graph_stay_in_its_folder() {
    let beside = |location: &str, offset: &str| {
        let entry = |key: &str, value: &str| bytes(13, [bytes(1, key), bytes(2, value)].concat());
        let rest = [entry("location", location), entry("offset", offset), number(14, 1)].concat();
        [tensor("w", 1, &[2], &rest), node("Add", &["x", "w"], "y", &[])]
    };
    assert!(open("beside", &model(&beside("weights.bin", "8"))).is_ok());
    for (location, offset, kind) in [
        ("../beside/weights.bin", "0", ErrorKind::Corrupt),
        ("/etc/hostname", "0", ErrorKind::Corrupt),
        ("a/../../weights.bin", "0", ErrorKind::Corrupt),
        ("..\\weights.bin", "0", ErrorKind::Corrupt),
        ("weights.bin", "9", ErrorKind::Corrupt),
        ("weights.bin", "18446744073709551615", ErrorKind::Corrupt),
        ("weights.bin", "-1", ErrorKind::Corrupt),
        ("no.bin", "0", ErrorKind::Missing),
        ("", "0", ErrorKind::Corrupt),
    ] {
        let error = error("beside", &beside(location, offset));
        assert_eq!(error.kind(), kind, "{location} {offset}: {error}");
    }
}

#[test]
fn graphs_that_do_not_hold_together_are_rejected() {
    let cycle = [
        node("Add", &["x", "b"], "a", &[]),
        node("Add", &["x", "a"], "b", &[]),
        node("Tanh", &["a"], "y", &[]),
    ];
    assert_eq!(error("cycle", &cycle).kind(), ErrorKind::Corrupt);
    let twice = [node("Tanh", &["x"], "y", &[]), node("Tanh", &["x"], "y", &[])];
    assert_eq!(error("twice", &twice).kind(), ErrorKind::Corrupt);
    assert_eq!(error("nothing", &[]).kind(), ErrorKind::Corrupt);
    let unknown = error("unknown", &[node("Frobnicate", &["x"], "y", &[])]);
    assert!(
        unknown.kind() == ErrorKind::Unsupported && unknown.to_string().contains("Frobnicate"),
        "{unknown}"
    );
    let mut inner = Vec::new();
    for _ in 0..100 {
        inner = node(
            "If",
            &["x"],
            "y",
            &[bytes(5, [bytes(1, "then_branch"), bytes(6, inner), number(20, 5)].concat())],
        );
    }
    assert_eq!(error("deep", &[inner]).kind(), ErrorKind::Corrupt);
}

#[test]
fn cuts_and_changes_end_in_errors() {
    let seed = std::fs::read(paths::data("onnx").join("mlp/model.onnx")).unwrap();
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for length in 0..seed.len() {
        assert!(General::of_bytes(seed[..length].to_vec(), here).is_err(), "cut at {length}");
    }
    let x =
        NamedTensor { name: "x".into(), shape: vec![2, 3], numbers: TensorElements::Floats(vec![0.5; 6]) };
    let (mut ran, mut random) = (0, BenchRandom::new(1));
    for _ in 0..400 {
        let Ok(general) = General::of_bytes(mutate(&seed, &seed, &mut random), here) else { continue };
        ran += usize::from(general.run(std::slice::from_ref(&x)).is_ok());
    }
    assert!(ran > 20, "only {ran} of 400 ran");
}
