//! Exports of PyTorch's two exporters compared to PyTorch, and other graphs compared to ONNX Runtime
//! (`tests/golden-scripts/make_onnx.py`).
#![cfg(feature = "tract")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use siskin::encoder::EncoderInput;
use siskin::external_model::{NamedTensor, TensorElements};
use siskin::file::Bytes;
use siskin::{EncoderOptions, ErrorKind, Model, ModelOptions, OutputRows, SessionOptions};
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, open_any, open_model};
use siskin_tests::golden::relative_error;
use siskin_tests::{paths, texts};

fn data(name: &str) -> PathBuf {
    paths::data("onnx").join(name)
}

fn options() -> OpenOptions<'static> {
    OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() }
}

fn open(path: &Path) -> Model {
    let options = (options(), ModelOptions { threads: 1, ..ModelOptions::default() });
    Model::new(open_model(path, &options.0, &options.1).unwrap()).unwrap()
}

/// Copies some files of a model to its own folder.
fn copy(name: &str, to: &str, files: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("onnx").join(to);
    std::fs::create_dir_all(&folder).unwrap();
    for file in files {
        std::fs::copy(data(name).join(file), folder.join(file)).unwrap();
    }
    folder
}

/// Reads the ids and the logits of a model's io.safetensors, row by row.
fn io(name: &str) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let tensors = tensors(&data(name).join("io.safetensors"));
    let (ids, logits) = (&tensors["input_ids"], &tensors["logits"]);
    let ids: Vec<u32> =
        ids.data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32).collect();
    let logits = floats(logits);
    let per_row = logits.len() / 2;
    (
        ids.chunks(ids.len() / 2).map(<[u32]>::to_vec).collect(),
        logits.chunks(per_row).map(<[f32]>::to_vec).collect(),
    )
}

fn tensors(path: &Path) -> std::collections::HashMap<String, safetensors::SafetensorsTensor> {
    safetensors::parse(Bytes::new(std::fs::read(path).unwrap())).unwrap()
}

fn floats(tensor: &safetensors::SafetensorsTensor) -> Vec<f32> {
    tensor.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn assert_close(what: &str, got: &[f32], want: &[f32], tolerance: f32) {
    let error = relative_error(got, want);
    assert!(error <= tolerance, "{what}: {error:.1e}");
}

#[test]
fn exports_of_families_become_their_graphs() {
    for (name, golden, family, tolerance) in [
        ("bert", "bert", "bert", 1e-4),
        ("bert-labels-dynamo", "bert-labels", "bert", 1e-4),
        ("distilbert-dynamo", "distilbert", "distilbert", 1e-4),
        ("t5", "t5", "t5", 1e-4),
        ("bert-f16", "bert-classes", "bert", 2e-3),
        ("bert-bf16", "bert-classes", "bert", 2e-2),
    ] {
        let model = open(&data(name));
        assert_eq!((model.family(), model.notes()), (family, &[][..]), "{name}");
        let golden = texts::load(golden, None);
        for (got, want) in texts::read(&model, &golden.texts, 64).iter().zip(&golden.read) {
            assert_close(name, got, want, tolerance);
        }
        for ((text, written), want) in golden.texts.iter().zip(&golden.written).zip(&golden.scores) {
            assert_close(name, &texts::score(&model, text, written, 16), want, tolerance);
        }
    }
}

#[test]
fn exports_of_decoders_become_their_graphs() {
    for (name, family) in [("gpt2", "gpt2"), ("llama", "llama")] {
        let model = open(&data(name).join("model.onnx"));
        assert_eq!((model.family(), model.notes()), (family, &[][..]), "{name}");
        let (ids, logits) = io(name);
        for (ids, want) in ids.iter().zip(&logits) {
            assert_close(name, &siskin_tests::golden::score(&model, ids, 8), want, 1e-4);
        }
    }
}

#[test]
fn what_computes_something_else_runs_as_it_is() {
    let model = open(&data("bert-tanh"));
    assert_eq!(model.family(), "general");
    let note = &model.notes()[0];
    assert!(
        note.contains("general graph through tract") && note.contains("differ from those of the family bert"),
        "{note}"
    );
    let (ids, logits) = io("bert-tanh");
    let ids: Vec<EncoderInput> = ids.into_iter().map(EncoderInput::from).collect();
    for (got, want) in texts::read(&model, &ids, 64).iter().zip(&logits) {
        assert_close("bert-tanh", got, want, 1e-4);
    }
    let error = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = open_any(data("bert-tanh"), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("without conversion"), "{error}");
}

#[test]
fn graphs_that_nothing_describes_read_and_write() {
    let model = open(&copy("gpt2", "bare-gpt2", &["model.onnx"]));
    assert_eq!(model.family(), "general");
    let golden = texts::load("t5", None);
    let model = open(&copy("t5", "bare-t5", &["encoder_model.onnx", "decoder_model.onnx"]));
    assert!(model.notes()[0].contains("config.json"), "{:?}", model.notes());
    for ((text, written), want) in golden.texts.iter().zip(&golden.written).zip(&golden.scores) {
        assert_close("t5", &texts::score(&model, text, written, 16), want, 1e-4);
    }
    for (got, want) in texts::read(&model, &golden.texts, 64).iter().zip(&golden.read) {
        assert_close("t5", got, want, 1e-4);
    }
}

#[test]
fn sessions_go_on_with_general_graphs() {
    let folder = copy("gpt2", "odd-gpt2", &["model.onnx"]);
    std::fs::write(folder.join("config.json"), r#"{"architectures": ["GPT2LMHeadModel"]}"#).unwrap();
    let model = open(&folder);
    assert_eq!(model.family(), "general");
    let (ids, logits) = io("gpt2");
    let mut session = model.session(SessionOptions::default()).unwrap();
    session.prefill(&ids[0][..7]).unwrap();
    let row = |index: usize| &logits[0][index * 80..(index + 1) * 80];
    assert_close("prefill", session.logits(), row(6), 1e-4);
    let mut fork = session.fork().unwrap();
    session.prefill(&ids[0][7..]).unwrap();
    assert_close("goes on", session.logits(), row(18), 1e-4);
    fork.prefill(&ids[0][7..8]).unwrap();
    assert_close("fork", fork.logits(), row(7), 1e-4);
}

#[test]
fn tensors_go_in_and_out_by_name() {
    let model = open(&data("mlp"));
    let io = tensors(&data("mlp").join("io.safetensors"));
    let x = NamedTensor {
        name: "x".into(),
        shape: vec![6, 3],
        numbers: TensorElements::Floats(floats(&io["x"])),
    };
    let outputs = model.run(std::slice::from_ref(&x)).unwrap();
    let TensorElements::Floats(y) = &outputs[0].numbers else { panic!("y is no float") };
    assert_eq!((outputs[0].name.as_str(), &outputs[0].shape[..]), ("y", &[6, 5][..]));
    assert_close("mlp", y, &floats(&io["y"]), 1e-5);
    let best = io["best"].data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
    assert_eq!(outputs[1].numbers, TensorElements::Integers(best));
    assert!(
        model.encoder(EncoderOptions::default()).is_err()
            && model.session(SessionOptions::default()).is_err()
    );
    assert_eq!(model.run(&[]).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(model.run(&[NamedTensor { shape: vec![9, 2], ..x }]).unwrap_err().kind(), ErrorKind::Shape);
}

#[test]
fn packed_models_take_no_tensors_by_name() {
    let model = open(&data("bert"));
    assert_eq!(model.run(&[]).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
    encoder.encode(&[EncoderInput::from(vec![5, 6])], OutputRows::All, &mut |_, _| Ok(())).unwrap();
}
