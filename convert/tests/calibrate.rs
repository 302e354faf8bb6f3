//! Calibration brings the outputs of a quantized model closer to the original's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, golden, packed_with};
use siskin::{Model, SessionOptions};
use siskin_backend::loaded_model::ModelOptions;
use siskin_convert::{Calibration, NoProgress, PackOptions, Recipe};
use siskin_format::ErrorKind;
use siskin_format::file::File;

const VOCABULARY: u32 = 100;

/// Returns random texts in which tokens depend on earlier ones.
fn texts(seed: u32, count: u32) -> Vec<Vec<u32>> {
    let text = |at: u32| {
        let mut state = seed.wrapping_mul(7919) + at * 31 + 1;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        (0..32).map(next).map(|bits| bits % VOCABULARY).collect()
    };
    (0..count).map(text).collect()
}

/// Returns the logits of every token of some texts.
fn logits(file: &File) -> Vec<f32> {
    let model = Model::from_file(file.clone(), &ModelOptions::default()).unwrap();
    let mut all = Vec::new();
    for text in texts(2, 4) {
        let mut session = model.session(SessionOptions { context: 32, ..SessionOptions::default() }).unwrap();
        session.score(&text, &mut |_, logits| all.extend_from_slice(logits)).unwrap();
    }
    all
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

#[test]
fn calibrated_models_are_closer() {
    let folder = Folder::new("calibrate");
    let source = golden("llama");
    let exact = logits(&packed_with(&source, &folder, &PackOptions::default()));
    let calibration = Calibration::collect_tokens(&source, &texts(1, 40), &NoProgress).unwrap();
    assert_eq!(calibration.tokens(), 40 * 32);
    for (recipe, max) in [("w4i,tables=w4i", 0.9), ("w8r,tables=w8r", 1.0), ("q4_0,tables=q4_0", 1.1)] {
        let pack = |calibration| {
            let recipe = Some(recipe.parse::<Recipe>().unwrap());
            packed_with(&source, &folder, &PackOptions { recipe, calibration, ..PackOptions::default() })
        };
        let (plain, calibrated) = (pack(None), pack(Some(&calibration)));
        let [plain_error, error] = [&plain, &calibrated].map(|file| distance(&logits(file), &exact));
        assert!(error < max * plain_error, "{recipe}: {error} against {plain_error}");
        let report = &calibrated.metadata().quantization;
        assert_eq!(report["calibration_tokens"], 40 * 32);
        assert_eq!(report.contains_key("relative_output_error"), recipe.starts_with('w'));
        assert!(!plain.metadata().quantization.contains_key("calibration_tokens"));
    }
}

#[test]
fn a_model_without_tokenizer_reads_no_text() {
    let error = Calibration::collect(&golden("llama"), "some text", &NoProgress).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Missing);
}

#[test]
fn a_text_without_tokens_adds_nothing() {
    let texts = [vec![], vec![1]];
    let calibration = Calibration::collect_tokens(&golden("llama"), &texts, &NoProgress).unwrap();
    assert_eq!(calibration.tokens(), 1);
}
