//! Layer skipping and early exit, compared to PyTorch.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use serde_json::Value;
use siskin::encoder::{EncoderInput, ExitCriterion, OverflowMode, Scored};
use siskin::file::Bytes;
use siskin::{EncoderOptions, ErrorKind, LayerSet, Model, ModelOptions, OutputRows};
use siskin_convert::import::safetensors;
use siskin_tests::golden::{self, devices, relative_error, score};
use siskin_tests::{paths, texts};

/// Models with a head on each layer.
const EARLY: [&str; 3] = ["deebert", "pabee", "pabee-albert"];

fn expected(name: &str) -> Value {
    let path = paths::data("golden-exits").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Returns probabilities in the order of the classes.
fn in_order(mut classes: Vec<Scored>) -> Vec<f32> {
    classes.sort_by(|a, b| a.label.cmp(&b.label));
    classes.into_iter().map(|class| class.probability).collect()
}

#[test]
fn texts_leave_where_pytorch_lets_them() {
    for name in EARLY {
        let file = texts::with_words(&format!("golden-exits/{name}"));
        let expected = expected(&format!("{name}/expected.json"));
        let texts = words(&expected["texts"]);
        for device in devices() {
            let options = ModelOptions { threads: 2, device, ..ModelOptions::default() };
            let model = Model::from_file(file.clone(), &options).unwrap();
            for run in expected["runs"].as_array().unwrap() {
                let (rule, value) = (run["rule"].as_str().unwrap(), run["value"].as_f64().unwrap());
                let early = match rule {
                    "entropy" => ExitCriterion::Entropy(value as f32),
                    "confidence" => ExitCriterion::Confidence(value as f32),
                    _ => ExitCriterion::Patience(value as usize),
                };
                let layers: Vec<usize> = run["layers"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|layers| layers.as_u64().unwrap() as usize)
                    .collect();
                let mut bits = Vec::new();
                for batch in [1, 60, 1000] {
                    let options = EncoderOptions { batch, early: Some(early), ..EncoderOptions::default() };
                    let mut encoder = model.encoder(options).unwrap();
                    let got = encoder.classify(&texts, OverflowMode::Error).unwrap();
                    assert_eq!(encoder.layers(), layers, "{name}: {early:?}, {batch} rows, {device:?}");
                    for (got, want) in got.iter().zip(run["probabilities"].as_array().unwrap()) {
                        let want: Vec<f32> =
                            want.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
                        let error = relative_error(&in_order(got.clone()), &want);
                        assert!(error < 1e-4, "{name}: {early:?}, {batch} rows, {device:?}: {error}");
                    }
                    bits.push(got);
                }
                assert!(bits.iter().all(|other| *other == bits[0]), "neighbors change nothing");
            }
        }
    }
}

#[test]
fn texts_that_never_leave_early_have_the_bits_of_a_plain_run() {
    for name in EARLY {
        let model =
            Model::from_file(texts::with_words(&format!("golden-exits/{name}")), &ModelOptions::default());
        let model = model.unwrap();
        let expected = expected(&format!("{name}/expected.json"));
        let texts = words(&expected["texts"]);
        let classify = |early| {
            let mut encoder = model.encoder(EncoderOptions { early, ..EncoderOptions::default() }).unwrap();
            (encoder.classify(&texts, OverflowMode::Error).unwrap(), encoder.layers().to_vec())
        };
        let (plain, none) = classify(None);
        let (patient, layers) = classify(Some(ExitCriterion::Patience(5)));
        assert_eq!(patient, plain);
        assert_eq!((none, layers), (vec![], vec![5; texts.len()]));
    }
}

#[test]
fn models_without_heads_on_their_layers_say_so() {
    let early = Some(ExitCriterion::Patience(1));
    let open = |name: &str, options| {
        let file = texts::with_words(name);
        Model::from_file(file, &ModelOptions::default())
            .unwrap()
            .encoder(options)
            .err()
            .map(|error| error.kind())
    };
    let options = EncoderOptions { early, ..EncoderOptions::default() };
    assert_eq!(open("golden-texts/bert-classes", options), Some(ErrorKind::Unsupported));
    assert_eq!(open("golden-exits/pabee", options), None);
    let hidden = EncoderOptions { head: false, ..options };
    assert_eq!(open("golden-exits/pabee", hidden), Some(ErrorKind::Unsupported));
    let never = EncoderOptions { early: Some(ExitCriterion::Patience(0)), ..options };
    assert_eq!(open("golden-exits/pabee", never), Some(ErrorKind::Argument));
}

/// Reads PyTorch's results without a layer.
fn skipped() -> std::collections::HashMap<String, Vec<f32>> {
    let bytes = std::fs::read(paths::data("golden-exits").join("skipped.safetensors")).unwrap();
    let numbers = |tensor: &safetensors::SafetensorsTensor| {
        tensor.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let tensors = safetensors::parse(Bytes::new(bytes)).unwrap();
    tensors.iter().map(|(name, tensor)| (name.clone(), numbers(tensor))).collect()
}

#[test]
fn models_without_a_layer_are_those_of_pytorch() {
    let mut report = String::new();
    let expected = skipped();
    let mut names: Vec<&String> = expected.keys().collect();
    names.sort();
    let mut checked = 0;
    for key in names {
        let (name, layer) = key.split_once('.').unwrap();
        let skip = LayerSet::of(&[layer.parse().unwrap()]).unwrap();
        let options = |device| ModelOptions { threads: 2, device, skip, ..ModelOptions::default() };
        for device in devices() {
            let got = if golden::NAMES.contains(&name) {
                let golden = golden::load(name);
                let model = Model::from_file(golden.file, &options(device)).unwrap();
                let all = score(&model, &golden.ids[0], 16);
                all[all.len() - expected[key].len()..].to_vec()
            } else {
                let golden = texts::load(name, None);
                hidden(&Model::from_file(golden.file, &options(device)).unwrap(), &golden.texts[0])
            };
            let error = relative_error(&got, &expected[key]);
            if error.is_nan() || error > 1e-4 {
                report += &format!("{key} on {device:?}: {error:.1e}\n");
            }
            checked += 1;
        }
    }
    assert!(report.is_empty() && checked > 100, "beyond 1e-4:\n{report}");
}

fn hidden(model: &Model, text: &EncoderInput) -> Vec<f32> {
    let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
    let mut all = Vec::new();
    let each = &mut |_: usize, outputs: siskin::encoder::TextOutputs<'_>| {
        all = outputs.rows().flatten().copied().collect();
        Ok(())
    };
    encoder.encode(std::slice::from_ref(text), OutputRows::All, each).unwrap();
    all
}

#[test]
fn layers_that_are_not_there_cannot_be_left_out() {
    let open = |name: &str, layers: &[usize]| {
        let file = if golden::NAMES.contains(&name) {
            golden::load(name).file
        } else {
            texts::load(name, None).file
        };
        let skip = LayerSet::of(layers).unwrap();
        Model::from_file(file, &ModelOptions { skip, ..ModelOptions::default() })
            .err()
            .map(|error| error.kind())
    };
    assert_eq!(open("llama", &[2]), Some(ErrorKind::Argument));
    assert_eq!(open("llama", &[0, 1]), Some(ErrorKind::Argument), "one has to stay");
    assert_eq!(open("bart", &[0]), Some(ErrorKind::Unsupported));
    // With two kinds of layers, removing one is ambiguous.
    assert_eq!(open("modernbert", &[0]), Some(ErrorKind::Unsupported));
    assert_eq!(open("llama", &[]), None);
}
