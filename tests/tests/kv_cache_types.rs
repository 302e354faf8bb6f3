//! Models with each element type of the KV cache: close to exact attention, and the same bits on every path.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use siskin::encoder::EncoderInput;
use siskin::{
    CacheType, CpuFeatures, DeviceKind, EncoderOptions, Model, OutputRows, SessionOptions, StreamingWindow,
};
use siskin_tests::golden::{LEVELS, emulate, load, model, relative_error};
use siskin_tests::texts;

/// The quantized types, with the largest relative error of logits that is allowed.
const TYPES: [(CacheType, f32); 3] =
    [(CacheType::Int8, 0.1), (CacheType::Int14, 2e-3), (CacheType::F16, 2e-3)];

/// Causal attention, windows, grouped queries, sinks, ALiBi, softcaps, and heads whose size is no power of two.
const DECODERS: [&str; 8] =
    ["llama", "gpt2", "gemma2", "gemma3", "gpt-oss", "bloom", "starcoder2", "qwen3-next"];

fn logits(model: &Model, cache: CacheType, ids: &[u32], batch: usize) -> Vec<f32> {
    let options = SessionOptions { batch, cache: Some(cache), ..SessionOptions::default() };
    let mut all = Vec::new();
    model.session(options).unwrap().score(ids, &mut |_, logits| all.extend_from_slice(logits)).unwrap();
    all
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn decoders_are_close_to_pytorch_with_the_same_bits_everywhere() {
    emulate();
    for name in DECODERS {
        let golden = load(name);
        let ids = &golden.ids[0];
        for (cache, limit) in TYPES {
            let reference = model(&golden.file, DeviceKind::Reference, 1, CpuFeatures::NONE);
            let want = logits(&reference, cache, ids, 64);
            let error = relative_error(&want, &golden.logits[0]);
            assert!(error < limit, "{name}, {cache:?}: {error:.1e}");
            for (without, (threads, batch)) in
                LEVELS.into_iter().zip([(1, 1), (2, 7), (4, 64), (3, 5), (2, 3)])
            {
                let model = model(&golden.file, DeviceKind::Cpu, threads, without);
                let got = logits(&model, cache, ids, batch);
                assert!(bits(&got) == bits(&want), "{name}, {cache:?}, without {without}");
            }
        }
    }
}

#[test]
fn cross_attention_and_encoders_are_close_to_f32_with_the_same_bits_everywhere() {
    emulate();
    for name in ["t5", "whisper", "bert", "modernbert", "longformer"] {
        let golden = texts::load(name, None);
        for (cache, _) in TYPES {
            let run = |cache, device, threads, without| {
                let model = model(&golden.file, device, threads, without);
                match golden.written.first() {
                    Some(written) => decoded(&model, cache, &golden.texts[0], written),
                    None => encoded(&model, cache, &golden.texts),
                }
            };
            let exact = run(CacheType::F32, DeviceKind::Cpu, 2, CpuFeatures::NONE);
            let want = run(cache, DeviceKind::Reference, 1, CpuFeatures::NONE);
            let limit = if cache == CacheType::Int8 { 0.2 } else { 5e-3 };
            let error = relative_error(&want, &exact);
            assert!(error < limit, "{name}, {cache:?}: {error:.1e}");
            for (threads, without) in [1, 2, 3].into_iter().zip(LEVELS) {
                assert!(
                    bits(&run(cache, DeviceKind::Cpu, threads, without)) == bits(&want),
                    "{name}, {cache:?}, without {without}"
                );
            }
        }
    }
}

fn decoded(model: &Model, cache: CacheType, text: &EncoderInput, written: &[u32]) -> Vec<f32> {
    let options = SessionOptions { context: 32, cache: Some(cache), ..SessionOptions::default() };
    let mut session = model.session(options).unwrap();
    session.encode(text).unwrap();
    let mut all = Vec::new();
    session.score(written, &mut |_, scores| all.extend_from_slice(scores)).unwrap();
    all
}

fn encoded(model: &Model, cache: CacheType, texts: &[EncoderInput]) -> Vec<f32> {
    let options = EncoderOptions { head: false, cache: Some(cache), ..EncoderOptions::default() };
    texts::rows(&mut model.encoder(options).unwrap(), texts, OutputRows::All).concat()
}

#[test]
fn sessions_are_restored_with_their_cache_type() {
    let golden = load("llama");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    for &(cache, name) in CacheType::NAMES {
        let window = Some(StreamingWindow { window: 12, sinks: 2 });
        for window in [None, window] {
            let options =
                SessionOptions { cache: Some(cache), context: 64, window, ..SessionOptions::default() };
            let mut first = model.session(options.clone()).unwrap();
            first.prefill(&golden.ids[0]).unwrap();
            let mut second = model.session(options).unwrap();
            second.restore(&first.save().unwrap()).unwrap();
            for id in [5, 6, 7] {
                first.prefill(&[id]).unwrap();
                second.prefill(&[id]).unwrap();
                assert!(bits(first.logits()) == bits(second.logits()), "{name}");
            }
            for &(other, _) in CacheType::NAMES.iter().filter(|(other, _)| *other != cache) {
                let options = SessionOptions { cache: Some(other), context: 64, ..SessionOptions::default() };
                assert!(model.session(options).unwrap().restore(&first.save().unwrap()).is_err(), "{name}");
            }
        }
    }
}
