//! GGUF files of models that read whole texts: their vectors beside PyTorch's, and what becomes of them elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use siskin::encoder::{EmbedOptions, EncoderOptions, Pooling};
use siskin::file::Bytes;
use siskin::{Model, ModelOptions};
use siskin_convert::export::{self, ExportOptions};
use siskin_convert::import::safetensors;
use siskin_convert::{Cache, OpenOptions, open_any};
use siskin_tests::golden::relative_error;
use siskin_tests::paths;

const TEXTS: [&str; 2] = ["w10 w20 w30", "w40 w5"];

fn open(path: impl AsRef<Path>) -> Model {
    let options = OpenOptions { cache: Cache::Off, ..OpenOptions::default() };
    Model::from_file(open_any(path, &options).unwrap(), &ModelOptions::default()).unwrap()
}

fn vectors(model: &Model) -> Vec<Vec<f32>> {
    let options = EmbedOptions::of(model).unwrap();
    let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
    encoder.embed(&TEXTS, &options).unwrap()
}

fn folder(name: &str) -> PathBuf {
    paths::data("golden-gguf").join(name)
}

fn expected(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(folder(name).join("vectors.safetensors")).unwrap();
    let tensors = safetensors::parse(Bytes::new(bytes)).unwrap();
    tensors["vectors"].data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn vectors_are_those_of_pytorch() {
    for (name, way) in [("nomic-bert", Pooling::First), ("gemma-embedding", Pooling::Mean)] {
        let model = open(folder(name).join("model.gguf"));
        assert_eq!(EmbedOptions::of(&model).unwrap().pooling, way, "{name}");
        assert!(model.graphs().decoder.is_none(), "{name}");
        let error = relative_error(&vectors(&model).concat(), &expected(name));
        assert!(error <= 1e-4, "{name}: {error:.1e}");
    }
}

#[test]
fn exports_make_the_same_vectors() {
    let exports = [("nomic-bert", "gguf"), ("nomic-bert", "safetensors"), ("gemma-embedding", "safetensors")];
    for (name, format) in exports {
        let options = OpenOptions { cache: Cache::Off, ..OpenOptions::default() };
        let file = open_any(folder(name).join("model.gguf"), &options).unwrap();
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{format}"));
        let options = ExportOptions { force: true, ..ExportOptions::default() };
        export::export(&file, export::format_for(Some(format), &to).unwrap(), &to, &options).unwrap();
        let error = relative_error(&vectors(&open(&to)).concat(), &expected(name));
        assert!(error <= 1e-4, "{name} as {format}: {error:.1e}");
    }
}
