//! CTranslate2 models that are packed and run, compared to PyTorch's results with the same rounded weights
//! (`tests/golden-scripts/make_ctranslate2.py`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, data, packed};
use siskin::encoder::EncoderInput;
use siskin::{EncoderOptions, Model, SessionOptions};
use siskin_backend::context::OutputRows;
use siskin_backend::loaded_model::ModelOptions;
use siskin_convert::import::{self, safetensors};
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_format::ErrorKind;
use siskin_format::file::{Bytes, File};

/// Model, family.
const MODELS: &[(&str, &str)] = &[
    ("whisper-int8", "whisper"),
    ("marian-int16", "bart"),
    ("bart-bfloat16", "bart"),
    ("t5-float32", "t5"),
    ("flan-t5-int8_float16", "t5"),
    ("bert-float16", "bert"),
];

struct Golden {
    text: EncoderInput,
    written: Vec<u32>,
    output: Vec<f32>,
}

fn golden(name: &str) -> Golden {
    let path = data(&format!("ctranslate2/{name}.io.safetensors"));
    let io = safetensors::parse(Bytes::new(std::fs::read(path).unwrap())).unwrap();
    let ids = |name: &str| -> Vec<u32> {
        let list = io.get(name).map(|tensor| tensor.data.as_chunks::<8>().0.to_vec()).unwrap_or_default();
        list.into_iter().map(|bytes| i64::from_le_bytes(bytes) as u32).collect()
    };
    let floats = |name: &str| -> Vec<f32> {
        let list = io.get(name).map(|tensor| tensor.data.as_chunks::<4>().0.to_vec()).unwrap_or_default();
        list.into_iter().map(f32::from_le_bytes).collect()
    };
    let mut features = floats("input_features");
    if let Some(tensor) = io.get("input_features") {
        let (bands, frames) = (tensor.shape[1] as usize, tensor.shape[2] as usize);
        features = (0..frames * bands).map(|i| features[i % bands * frames + i / bands]).collect();
    }
    let text = EncoderInput {
        ids: ids("input_ids"),
        token_type_ids: ids("token_type_ids"),
        features,
        ..EncoderInput::default()
    };
    Golden { text, written: ids("decoder_input_ids"), output: floats("output") }
}

fn run(file: File, golden: &Golden) -> Vec<f32> {
    let model = Model::from_file(file, &ModelOptions { threads: 1, ..ModelOptions::default() }).unwrap();
    let mut all = Vec::new();
    if golden.written.is_empty() {
        let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
        let texts = std::slice::from_ref(&golden.text);
        let mut each = |_, outputs: siskin::encoder::TextOutputs<'_>| {
            all = outputs.rows().flatten().copied().collect();
            Ok(())
        };
        encoder.encode(texts, OutputRows::All, &mut each).unwrap();
        return all;
    }
    let mut session = model.session(SessionOptions { context: 10, ..SessionOptions::default() }).unwrap();
    session.encode(&golden.text).unwrap();
    session.score(&golden.written, &mut |_, scores| all.extend_from_slice(scores)).unwrap();
    all
}

#[test]
fn outputs_are_those_of_pytorch() {
    for (name, family) in MODELS {
        let folder = Folder::new(name);
        let file = packed(&data(&format!("ctranslate2/{name}")), &folder);
        assert_eq!(file.metadata().architecture, *family, "{name}");
        let golden = golden(name);
        let mut found = run(file, &golden);
        if *name == "marian-int16" {
            // The start token, which the converter leaves out, comes last and is never generated.
            assert!(found.iter().skip(19).step_by(20).all(|score| *score < -1e8));
            found = found.chunks(20).flat_map(|scores| scores[..19].to_vec()).collect();
        }
        assert_eq!(found.len(), golden.output.len(), "{name}");
        let largest = golden.output.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let worst =
            found.iter().zip(&golden.output).fold(0.0_f32, |largest, (a, b)| largest.max((a - b).abs()));
        assert!(worst <= 1e-4 * largest, "{name}: {worst} of {largest}");
    }
}

#[test]
fn numbers_come_from_shapes_and_settings() {
    let config = |name: &str| {
        let source = import::open(&data(&format!("ctranslate2/{name}"))).unwrap();
        source.config().clone()
    };
    let whisper = config("whisper-int8");
    let count = |key: &str| whisper.count(&[key]).unwrap().unwrap();
    assert_eq!((count("num_mel_bins"), count("max_source_positions")), (5, 6));
    assert_eq!((count("max_target_positions"), count("vocab_size")), (10, 20));
    assert_eq!(whisper.numbers(&["begin_suppress_tokens"]).unwrap().unwrap(), [220.0, 50256.0]);
    let marian = config("marian-int16");
    assert_eq!(marian.count(&["decoder_start_token_id"]).unwrap(), Some(19));
    assert_eq!(marian.count(&["eos_token_id"]).unwrap(), Some(1));
}

#[test]
fn the_packed_form_is_kept() {
    let folder = Folder::new("ct2-cache");
    let options = OpenOptions { cache: PackedCache::Folder(folder.join("")), ..OpenOptions::default() };
    let open = || open_any(data("ctranslate2/whisper-int8"), &options).unwrap();
    assert_eq!(open().metadata().architecture, "whisper");
    let kept: Vec<_> = std::fs::read_dir(folder.join("")).unwrap().collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(open().metadata().architecture, "whisper");
}

#[test]
fn decoders_alone_are_rejected() {
    let error = import::open(&data("ctranslate2/llama-int8")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
