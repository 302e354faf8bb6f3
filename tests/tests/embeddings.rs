//! Sentence embeddings of all-MiniLM-L6-v2, if downloaded by `cargo xtask model minilm`, compared to PyTorch's.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use siskin::encoder::{EmbedOptions, Encoder, EncoderInput, EncoderOptions, OverflowMode, Pooling, Prompt};
use siskin::file::{Bytes, File};
use siskin::{ErrorKind, Model, ModelOptions, Result};
use siskin_convert::export::{self, ExportOptions};
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_tests::paths;
use siskin_trainer::run::{OpenedBase, RunConfig, RunSetup};

/// Returns the cosine similarities of the re-encoded model's sentence embeddings with PyTorch's.
fn cosines(recipe: Option<&str>) -> Option<Vec<f64>> {
    let recipe = recipe.map(|recipe| recipe.parse().expect("the recipe is one"));
    let options = OpenOptions { cache: PackedCache::Off, recipe, ..OpenOptions::default() };
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

const LAYERS: &[&str] = &[
    "modules.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "3_Dense/config.json",
    "3_Dense/model.safetensors",
];

/// Creates a folder of the tiny model with dense layers after pooling.
fn layered(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layers").join(name);
    let copy = |from: PathBuf, to: &str| {
        let to = folder.join(to);
        std::fs::create_dir_all(to.parent().expect("it has a folder")).expect("a folder is made");
        std::fs::copy(from, to).expect("a copy is made");
    };
    LAYERS.iter().for_each(|name| copy(paths::data("embeddings/layers").join(name), name));
    ["config.json", "model.safetensors"]
        .iter()
        .for_each(|name| copy(paths::data("golden-texts/bert").join(name), name));
    copy(paths::data("golden-exits/words.json"), "tokenizer.json");
    folder
}

/// Modifies a file of a folder.
fn change(folder: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(name);
    let mut value = serde_json::from_slice(&std::fs::read(&path).expect("it is there")).expect("it is JSON");
    change(&mut value);
    std::fs::write(path, value.to_string()).expect("it is written");
}

fn packed(folder: &Path) -> Result<File> {
    open_any(folder, &OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() })
}

fn embedder(file: &File) -> Encoder {
    let model = Model::from_file(file.clone(), &ModelOptions::default()).expect("the model opens");
    model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).expect("the model reads")
}

#[test]
fn layers_behind_pooling_are_those_of_pytorch() {
    let truth = std::fs::read(paths::data("embeddings/layers/vectors.json")).expect("the truth is there");
    let truth: Value = serde_json::from_slice(&truth).expect("it is JSON");
    let ids: Vec<Vec<u32>> = serde_json::from_value(truth["ids"].clone()).expect("ids are lists");
    let want: Vec<Vec<f32>> = serde_json::from_value(truth["vectors"].clone()).expect("vectors are lists");
    let texts: Vec<EncoderInput> = ids.into_iter().map(EncoderInput::from).collect();
    let check = |file: &File| {
        let mut encoder = embedder(file);
        assert_eq!((encoder.embedding_dimensions(), encoder.columns()), (12, 32));
        let options = EmbedOptions::of(encoder.model()).expect("the model says how");
        for (got, want) in encoder.embed_tokens(&texts, &options).expect("the model runs").iter().zip(&want) {
            let apart = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            assert!(got.len() == want.len() && apart < 1e-5, "{apart}");
        }
        let cut = EmbedOptions { dimensions: 13, ..options };
        assert_eq!(encoder.embed_tokens(&texts, &cut).expect_err("there are 12").kind(), ErrorKind::Argument);
    };
    let folder = layered("plain");
    let file = packed(&folder).expect("the model packs");
    check(&file);
    let out = folder.join("out");
    let format = export::format_for(None, &out).expect("a folder");
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    export::export(&file, format, &out, &options).expect("it is written");
    check(&packed(&out).expect("it comes back"));
}

#[test]
fn prompts_stand_before_texts() {
    let folder = layered("prompts");
    let mut encoder = embedder(&packed(&folder).expect("the model packs"));
    let usual = EmbedOptions::of(encoder.model()).expect("the model says how");
    let query = Prompt::named(encoder.model(), "query").expect("it is there");
    let error = Prompt::named(encoder.model(), "passage").expect_err("it is not there");
    assert!(error.kind() == ErrorKind::Argument && error.message().contains("query"), "{error}");
    let with = |prompt| EmbedOptions { prompt, ..usual };
    let mut embed = |text: &str, options: EmbedOptions| encoder.embed(&[text], &options);
    let spelled = embed("w5 w6 w7", usual).expect("it runs");
    assert_eq!(embed("w7", with(query)).expect("it runs"), spelled);
    assert_ne!(embed("w7", usual).expect("it runs"), spelled, "the model has no usual prompt");
    let parts = EmbedOptions { overflow: OverflowMode::Window { overlap: 0 }, ..with(query) };
    assert_eq!(embed("w7", parts).expect_err("parts lack it").kind(), ErrorKind::Unsupported);
    change(&folder, "config_sentence_transformers.json", |config| {
        config["default_prompt_name"] = json!("query")
    });
    let mut encoder = embedder(&packed(&folder).expect("the model packs"));
    assert_eq!(encoder.embed(&["w7"], &usual).expect("it runs"), spelled);
    assert_ne!(encoder.embed(&["w7"], &with(Prompt::None)).expect("it runs"), spelled);
    change(&folder, "1_Pooling/config.json", |config| config["include_prompt"] = json!(false));
    let mut encoder = embedder(&packed(&folder).expect("the model packs"));
    assert_eq!(encoder.embed(&["w7"], &usual).expect_err("not done").kind(), ErrorKind::Unsupported);
    assert!(encoder.embed(&["w7"], &with(Prompt::None)).is_ok());
}

#[test]
fn modules_that_would_be_wrong_are_rejected() {
    let rejected = |name: &str, file: &str, change_it: fn(&mut Value)| {
        let folder = layered(name);
        change(&folder, file, change_it);
        packed(&folder).expect_err("it is rejected").kind()
    };
    assert_eq!(
        rejected("order", "modules.json", |modules| modules.as_array_mut().expect("a list").swap(1, 2)),
        ErrorKind::Unsupported
    );
    assert_eq!(
        rejected("gelu", "2_Dense/config.json", |config| config["activation_function"] = json!("GELU")),
        ErrorKind::Unsupported
    );
    assert_eq!(
        rejected("tokens", "2_Dense/config.json", |config| config["module_input_name"] =
            json!("token_embeddings")),
        ErrorKind::Unsupported
    );
    assert_eq!(
        rejected("shape", "3_Dense/config.json", |config| config["in_features"] = json!(23)),
        ErrorKind::Shape
    );
    let folder = layered("lost");
    std::fs::remove_file(folder.join("2_Dense/model.safetensors")).expect("it is removed");
    assert_eq!(packed(&folder).expect_err("it is rejected").kind(), ErrorKind::Missing);
}

#[test]
fn pooling_is_read_as_every_version_writes_it() {
    let pooling = |name: &str, config: Value| -> Result<Pooling> {
        let folder = layered(name);
        change(&folder, "1_Pooling/config.json", |old| *old = config);
        let model = Model::from_file(packed(&folder)?, &ModelOptions::default())?;
        Ok(EmbedOptions::of(&model)?.pooling)
    };
    let known = [
        (
            json!({"embedding_dimension": 32, "pooling_mode": "lasttoken", "include_prompt": true}),
            Pooling::Last,
        ),
        (json!({"embedding_dimension": 32, "pooling_mode": ["cls"]}), Pooling::First),
        (json!({"pooling_mode": "weightedmean", "pooling_mode_cls_token": true}), Pooling::Weighted),
        (json!({"pooling_mode_max_tokens": true}), Pooling::Max),
        (json!({"word_embedding_dimension": 32, "pooling_mode_cls_token": false}), Pooling::Mean),
        (json!({"embedding_dimension": 32}), Pooling::Mean),
    ];
    for (config, way) in known {
        assert_eq!(pooling("way", config.clone()).expect("it is one way"), way, "{config}");
    }
    let unknown = [
        json!({"pooling_mode": ["cls", "mean"]}),
        json!({"pooling_mode": "mean_sqrt_len_tokens"}),
        json!({"pooling_mode": null}),
        json!({"pooling_mode_mean_sqrt_len_tokens": true}),
        json!({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}),
    ];
    for config in unknown {
        let error = pooling("no-way", config.clone()).expect_err("it is not one way");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{config}: {error}");
    }
}

#[test]
fn what_a_layer_or_the_texts_should_have_is_looked_at() {
    let write = |folder: &Path, name: &str, value: Value| {
        std::fs::write(folder.join(name), value.to_string()).expect("it is written");
    };
    let of_layer = |name: &str, key: &str, value: Value| {
        let folder = layered(name);
        change(&folder, "2_Dense/config.json", |config| config[key] = value);
        packed(&folder).expect_err("it is rejected").kind()
    };
    assert_eq!(of_layer("residual", "use_residual", json!(true)), ErrorKind::Unsupported);
    assert_eq!(of_layer("nothing", "activation_function", json!(null)), ErrorKind::Unsupported);
    let of_texts = |name: &str, config: Value| {
        let folder = layered(name);
        change(&folder, "tokenizer.json", |tokenizer| tokenizer["normalizer"] = json!(null));
        write(&folder, "sentence_bert_config.json", config);
        packed(&folder).map(drop).map_err(|error| error.kind())
    };
    for max in [json!("many"), json!(-5), json!(0), json!(1.5)] {
        assert_eq!(of_texts("most", json!({"max_seq_length": max})), Err(ErrorKind::Corrupt));
    }
    assert_eq!(of_texts("most", json!({"max_seq_length": null, "do_lower_case": false})), Ok(()));
    assert_eq!(of_texts("capitals", json!({"do_lower_case": true})), Err(ErrorKind::Unsupported));
    let folder = layered("small");
    write(&folder, "sentence_bert_config.json", json!({"do_lower_case": true}));
    change(&folder, "tokenizer.json", |tokenizer| tokenizer["normalizer"] = json!({"type": "Lowercase"}));
    packed(&folder).expect("the tokenizer does it");
    for (name, layer) in [("extra", "2_Dense"), ("lacking", "3_Dense")] {
        let folder = layered(name);
        change(&folder, &format!("{layer}/config.json"), |config| {
            let bias = config["bias"] == json!(true);
            config["bias"] = json!(!bias);
        });
        let error = packed(&folder).expect_err("it is rejected");
        assert!(error.location().contains("linear.bias"), "{error}");
    }
}

#[test]
fn training_keeps_layers_behind_pooling_and_rejects_tasks_that_do_not_fit() {
    let file = packed(&layered("trained")).expect("the model packs");
    let setup = |task: &str| {
        let config = format!("steps = 1\n[schedule]\nlearning_rate = 1e-3\n[data]\ntask = {task:?}\n");
        RunSetup::for_evaluation(
            &RunConfig::parse(&config).expect("it is a config"),
            OpenedBase::File(Box::new(file.clone())),
        )
    };
    for task in ["causal_lm", "sequence_classification", "contrastive", "span_corruption", "seq2seq"] {
        let error = setup(task).err().expect("it does not fit");
        assert!(
            error.location() == "data.task" && error.message().contains("tasks that fit: masked_lm"),
            "{error}"
        );
    }
    let setup = setup("masked_lm").expect("it fits");
    let parameters = setup.parameters(1).expect("the weights are read");
    let out = std::io::Cursor::new(Vec::new());
    let out = siskin_trainer::export::write(&setup.file_contents, &parameters, out)
        .expect("it is written")
        .into_inner();
    let vectors = |file: &File| {
        let mut encoder = embedder(file);
        let options = EmbedOptions::of(encoder.model()).expect("the model says how");
        encoder.embed(&["w7 w8"], &options).expect("it runs").concat()
    };
    let (got, want) = (vectors(&File::from_bytes(out).expect("it opens")), vectors(&file));
    let apart = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
    assert!(got.len() == want.len() && apart < 1e-5, "{apart}");
}

#[test]
fn a_prompt_that_is_null_is_empty() {
    let folder = layered("null");
    change(&folder, "config_sentence_transformers.json", |config| {
        config["prompts"]["document"] = json!(null)
    });
    let mut encoder = embedder(&packed(&folder).expect("the model packs"));
    let usual = EmbedOptions::of(encoder.model()).expect("the model says how");
    let document = Prompt::named(encoder.model(), "document").expect("it is there");
    let bare = encoder.embed(&["w7"], &EmbedOptions { prompt: Prompt::None, ..usual }).expect("it runs");
    let prompted = encoder.embed(&["w7"], &EmbedOptions { prompt: document, ..usual }).expect("it runs");
    assert_eq!(bare, prompted);
}
