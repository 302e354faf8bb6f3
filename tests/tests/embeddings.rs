//! Sentence embeddings of all-MiniLM-L6-v2, where `cargo xtask model minilm` has brought it, beside PyTorch's.

use siskin::encoder::{EmbedOptions, EncoderOptions};
use siskin::file::Bytes;
use siskin::{Model, ModelOptions};
use siskin_convert::import::safetensors;
use siskin_convert::{Cache, OpenOptions, open_any};
use siskin_tests::paths;

/// The cosines of what the model, re-encoded by `recipe`, makes of the sentences, with what PyTorch makes of them.
fn cosines(recipe: Option<&str>) -> Option<Vec<f64>> {
    let recipe = recipe.map(|recipe| recipe.parse().expect("the recipe is one"));
    let options = OpenOptions { cache: Cache::Off, recipe, ..OpenOptions::default() };
    let file = open_any(paths::model("minilm")?, &options).expect("the model packs");
    let model = Model::from_file(file, &ModelOptions::default()).expect("the model opens");
    let sentences = std::fs::read(paths::data("embeddings/minilm.json")).expect("the sentences are there");
    let sentences: Vec<String> = serde_json::from_slice(&sentences).expect("they are a list");
    let truth = std::fs::read(paths::data("embeddings/minilm.safetensors")).expect("the truth is there");
    let truth = safetensors::parse(Bytes::new(truth)).expect("it is read");
    let truth = &truth["embeddings"].data.as_chunks::<4>().0;
    let options = EmbedOptions::of(&model).expect("the model says how vectors are made");
    let mut encoder = model.encoder(EncoderOptions::default()).expect("the model reads");
    let vectors = encoder.embed(&sentences, &options).expect("the model runs");
    let cosine = |(index, ours): (usize, &Vec<f32>)| {
        let theirs = truth[index * ours.len()..][..ours.len()].iter().map(|bytes| f32::from_le_bytes(*bytes));
        let pairs: Vec<_> = ours.iter().zip(theirs).map(|(a, b)| (f64::from(*a), f64::from(b))).collect();
        let sum = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>();
        sum(|(a, b)| a * b) / (sum(|(a, _)| a * a) * sum(|(_, b)| b * b)).sqrt()
    };
    Some(vectors.iter().enumerate().map(cosine).collect())
}

#[test]
fn embeddings_are_those_of_pytorch() {
    let Some(exact) = cosines(None) else { return };
    assert!(exact.iter().all(|cosine| *cosine > 0.999_99), "{exact:?}");
    for (recipe, least) in [("w8r", 0.999), ("q8_0", 0.999)] {
        let cosines = cosines(Some(recipe)).expect("the model is still there");
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        println!("{recipe}: {mean:.6}");
        assert!(mean > least, "{recipe}: {cosines:?}");
    }
}
