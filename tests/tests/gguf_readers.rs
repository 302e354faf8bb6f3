//! GGUF files of encoders: embeddings compared to PyTorch's, and conversion to other formats.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use siskin::encoder::{EmbedOptions, EncoderInput, EncoderOptions, Pooling};
use siskin::file::{Bytes, File};
use siskin::{ErrorKind, Model, ModelOptions, Result};
use siskin_convert::export::{self, ExportOptions, ExportReport};
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_graph::{AttentionMask, Graph};
use siskin_tests::golden::relative_error;
use siskin_tests::paths;

const TEXTS: [&str; 2] = ["w10 w20 w30", "w40 w5"];

fn packed(path: impl AsRef<Path>) -> Result<File> {
    open_any(path, &OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() })
}

fn open(path: impl AsRef<Path>) -> Model {
    Model::from_file(packed(path).unwrap(), &ModelOptions::default()).unwrap()
}

/// Returns the output folder of these tests.
fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf-readers");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Exports into the folder of these tests, and returns the path and the report.
fn exported(file: &File, format: &str, name: &str) -> Result<(PathBuf, ExportReport)> {
    let to = place().join(name);
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    let report = export::export(file, export::format_for(Some(format), &to)?, &to, &options)?;
    Ok((to, report))
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
        let file = packed(folder(name).join("model.gguf")).unwrap();
        let (to, _) = exported(&file, format, &format!("{name}.{format}")).unwrap();
        let error = relative_error(&vectors(&open(&to)).concat(), &expected(name));
        assert!(error <= 1e-4, "{name} as {format}: {error:.1e}");
    }
}

#[test]
fn an_onnx_export_says_how_vectors_are_made() {
    let file = packed(folder("nomic-bert").join("model.gguf")).unwrap();
    let (beside, _) = exported(&file, "safetensors", "onnx-beside").unwrap();
    let (to, report) = exported(&file, "onnx", "nomic-bert.onnx").unwrap();
    assert!(report.notes.iter().any(|note| note.contains("pooling")), "{:?}", report.notes);
    let home = place().join("onnx-alone");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::copy(&to, home.join("model.onnx")).unwrap();
    ["config.json", "tokenizer.json", "tokenizer_config.json"].iter().for_each(|name| {
        std::fs::copy(beside.join(name), home.join(name)).unwrap();
    });
    let model = open(home.join("model.onnx"));
    assert_eq!(EmbedOptions::of(&model).unwrap().pooling, Pooling::First);
    let error = relative_error(&vectors(&model).concat(), &expected("nomic-bert"));
    assert!(error <= 1e-4, "{error:.1e}");
}

/// Writes a GGUF file of a golden decoder that is used as an encoder, with additional boolean and integer `keys` of its
/// architecture.
fn reader(name: &str, keys: &[(&str, Value)]) -> PathBuf {
    let (path, _) =
        exported(&packed(paths::data("golden").join(name)).unwrap(), "gguf", &format!("{name}.gguf"))
            .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut added: Vec<u8> = Vec::new();
    for (key, value) in keys {
        added.extend(text(&format!("{name}.{key}")));
        match value.as_bool() {
            Some(truth) => added.extend([&7u32.to_le_bytes()[..], &[truth.into()]].concat()),
            None => added.extend([4u32, value.as_u64().unwrap() as u32].iter().flat_map(|x| x.to_le_bytes())),
        }
    }
    // Padding keeps tensors aligned: the added length is a multiple of their alignment.
    added.extend([text("filler"), 8u32.to_le_bytes().to_vec()].concat());
    let filling = (added.len() + 8).next_multiple_of(32) - added.len() - 8;
    added.extend(text(&" ".repeat(filling)));
    let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + keys.len() as u64 + 1;
    let changed = [&bytes[..16], &count.to_le_bytes(), &added, &bytes[24..]].concat();
    let to = path.with_extension("reader.gguf");
    std::fs::write(&to, changed).unwrap();
    to
}

#[test]
fn a_view_of_both_sides_stays_in_a_folder() {
    let keys = [("attention.causal", json!(false)), ("pooling_type", json!(1))];
    let file = packed(reader("llama", &keys)).unwrap();
    let (to, _) = exported(&file, "safetensors", "both-sides").unwrap();
    let config: Value = serde_json::from_slice(&std::fs::read(to.join("config.json")).unwrap()).unwrap();
    assert_eq!((&config["is_causal"], &config["use_bidirectional_attention"]), (&json!(false), &Value::Null));
    let vector = |file: File| {
        let model = Model::from_file(file, &ModelOptions::default()).unwrap();
        let options = EmbedOptions::of(&model).unwrap();
        let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
        encoder.embed_tokens(&[EncoderInput::from(vec![3, 4, 5])], &options).unwrap().concat()
    };
    let both = vector(file);
    assert!(relative_error(&vector(packed(&to).unwrap()), &both) <= 1e-5);
    let before = packed(reader("llama", &keys[1..])).unwrap();
    assert!(relative_error(&vector(before), &both) > 1e-3, "those before are not all");
    let error = packed(reader("starcoder2", &keys)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.location().contains("attention.causal"), "{error}");
}

/// Copies a folder of the test data with a modified configuration, as `name` in the output folder.
fn changed(from: &str, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let from = paths::data(from);
    let to = place().join(name);
    std::fs::create_dir_all(&to).unwrap();
    std::fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).unwrap();
    let config = std::fs::read(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    change(&mut config);
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    to
}

#[test]
fn layers_with_a_state_are_said_to_be_in_the_way() {
    let folder = changed("golden/qwen3-next", "states", |config| config["is_causal"] = json!(false));
    let error = packed(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        !error.location().contains("pooling") && error.message().contains("has recurrent layers"),
        "{error}"
    );
}

#[test]
fn what_llama_cpp_has_no_place_for_is_said() {
    let export_of = |pooling: &str, more: Value| {
        let from = "golden-texts/qwen3";
        let folder = changed(from, "no-place", |_| ());
        std::fs::create_dir_all(folder.join("1_Pooling")).unwrap();
        std::fs::copy(paths::data(from).join("modules.json"), folder.join("modules.json")).unwrap();
        std::fs::write(folder.join("1_Pooling/config.json"), json!({ "pooling_mode": pooling }).to_string())
            .unwrap();
        std::fs::write(folder.join("sentence_bert_config.json"), more.to_string()).unwrap();
        exported(&packed(&folder).unwrap(), "gguf", "no-place.gguf")
            .map(|(_, report)| report.notes.join("; "))
    };
    let notes = export_of("mean", json!({"max_seq_length": 40})).unwrap();
    for part in ["embeddings are not normalized", "at most 40 tokens", "without its sliding window"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    for pooling in ["max", "weightedmean"] {
        let error = export_of(pooling, json!({})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[test]
fn the_least_window_stays_one() {
    let folder = changed("golden-texts/gemma3", "least-window", |config| {
        config["sliding_window"] = json!(1);
        config["sentence_transformers"] = json!({"pooling": "mean"});
    });
    let (to, report) = exported(&packed(&folder).unwrap(), "gguf", "least-window.gguf").unwrap();
    assert!(report.notes.iter().any(|note| note.contains("attention scale")), "{:?}", report.notes);
    let sights = |path: &Path| -> Vec<AttentionMask> {
        let model = open(path);
        model
            .graphs()
            .encoder
            .iter()
            .flat_map(Graph::attentions)
            .map(|attention| attention.attention_mask)
            .collect()
    };
    assert_eq!(
        sights(&to),
        [AttentionMask::LocalWindow(0), AttentionMask::Full, AttentionMask::LocalWindow(0)]
    );
    assert_eq!(sights(&to), sights(&folder));
}
