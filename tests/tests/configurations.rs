//! Unusual configurations and files: those that are supported give the results of Transformers, others are rejected.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use siskin::OutputHead;
use siskin::file::{Bytes, File};
use siskin::tokenizer::Tokenizer;
use siskin::{CpuFeatures, Error, ErrorKind, Model, ModelOptions, Result};
use siskin_convert::export::{self, ExportOptions};
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_tests::extent::cases;
use siskin_tests::golden::devices;
use siskin_tests::{golden, paths, texts};

/// Encoders with their output heads, and encoder–decoders.
const READERS: &[(&str, OutputHead)] = &[
    ("modernbert-classes", OutputHead::Class),
    ("modernbert-labels", OutputHead::Label),
    ("bert-old-labels", OutputHead::Label),
    ("bert-untied", OutputHead::Token),
    ("roberta-relu", OutputHead::Token),
    ("bigbird-answer", OutputHead::Span),
    ("longformer-labels", OutputHead::Label),
    ("longformer-classes", OutputHead::Class),
    ("t5-encoder", OutputHead::Hidden),
    ("t5-own-head", OutputHead::Hidden),
    ("umt5", OutputHead::Hidden),
    ("mt5", OutputHead::Hidden),
    ("bart-untied", OutputHead::Hidden),
];
/// Decoders.
const WRITERS: &[&str] = &[
    "phi-norms",
    "phi-tied",
    "olmo3",
    "qwen2-moe-window",
    "qwen3-moe-window",
    "falcon-one-norm",
    "lfm2-published",
    "gemma2-short",
];
/// Models with operations that have no ONNX form.
const WITHOUT_ONNX: &[&str] = &["lfm2-published"];

fn folder(name: &str) -> PathBuf {
    paths::data("golden-configurations").join(name)
}

fn packed(path: impl AsRef<Path>) -> Result<File> {
    open_any(path, &OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() })
}

#[test]
fn readers_are_those_of_pytorch() {
    let mut report = String::new();
    for &(name, head) in READERS {
        let golden = texts::load_from(&folder(name), None);
        for device in devices() {
            let model = golden::model(&golden.file, device, 2, CpuFeatures::NONE);
            assert_eq!(model.graphs().encoder.as_ref().unwrap().head, head, "{name}");
            let mut check = |what: &str, got: &[f32], want: &[f32]| {
                let error = golden::relative_error(got, want);
                if error.is_nan() || error > 1e-4 {
                    report += &format!("{name} on {device:?}, {what}: {error:.1e}\n");
                }
            };
            for (got, want) in texts::read(&model, &golden.texts, 64).iter().zip(&golden.read) {
                check("read", got, want);
            }
            for ((text, written), want) in golden.texts.iter().zip(&golden.written).zip(&golden.scores) {
                check("written", &texts::score(&model, text, written, 16), want);
            }
        }
    }
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
}

#[test]
fn writers_are_those_of_pytorch() {
    for name in WRITERS {
        let golden = golden::load_from(&folder(name), None);
        for device in devices() {
            let model = golden::model(&golden.file, device, 2, CpuFeatures::NONE);
            for (ids, want) in golden.ids.iter().zip(&golden.logits) {
                let error = golden::relative_error(&golden::score(&model, ids, 64), want);
                assert!(error <= 1e-4, "{name} on {device:?}: {error:.1e}");
            }
        }
    }
}

/// Returns the output folder of these tests.
fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("configurations");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Copies a folder of `tests/data` with a modified configuration, and without some tensors.
fn changed(from: &str, to: &str, config: Value, without: &[&str]) -> PathBuf {
    let (from, to) = (paths::data(from), place().join(to));
    std::fs::create_dir_all(&to).unwrap();
    let mut all: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    std::fs::write(to.join("config.json"), all.to_string()).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let mut text = String::from_utf8_lossy(&bytes[8..]).into_owned();
    text.truncate(usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap());
    let mut names: Value = serde_json::from_str(text.trim_end()).unwrap();
    for name in without {
        // Renamed to an unknown name, so that the data offsets stay valid.
        let tensor = names.as_object_mut().unwrap().remove(*name).unwrap();
        names[format!("unused.{name}")] = tensor;
    }
    let mut text = names.to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let data = &bytes[8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap()..];
    let whole = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), data].concat();
    assert!(safetensors::parse(Bytes::new(whole.clone())).is_ok(), "the copy is whole");
    std::fs::write(to.join("model.safetensors"), whole).unwrap();
    to
}

#[test]
fn a_key_that_a_family_passes_over_is_passed_over() {
    for name in ["distilbert", "mpnet"] {
        let folder = changed(
            &format!("golden-texts/{name}"),
            &format!("over-{name}"),
            json!({"type_vocab_size": 2, "architectures": [null]}),
            &[],
        );
        assert!(packed(folder).is_ok(), "{name}");
    }
}

#[test]
fn what_would_be_computed_otherwise_is_rejected() {
    use ErrorKind::{Corrupt, Missing, Unsupported};
    let bert = "golden-texts/bert";
    let nomic = "golden-texts/nomic-bert";
    let cases: &[(&str, Value, &[&str], ErrorKind, &str)] = &[
        (bert, json!({"is_decoder": true}), &[], Unsupported, "config.is_decoder"),
        (
            bert,
            json!({"position_embedding_type": "relative_key"}),
            &[],
            Unsupported,
            "config.position_embedding_type",
        ),
        (bert, json!({"layer_norm_eps": 1e300}), &[], Corrupt, "config (epsilon of norms)"),
        (bert, json!({}), &["bert.embeddings.token_type_embeddings.weight"], Missing, "token_types.weight"),
        (bert, json!({}), &["bert.encoder.layer.1.output.dense.bias"], Missing, "blk.1.ffn_down.bias"),
        (nomic, json!({"prenorm": true}), &[], Unsupported, "config.prenorm"),
        (nomic, json!({"rotary_emb_fraction": 0.5}), &[], Unsupported, "config.rotary_emb_fraction"),
        (
            "golden-texts/modernbert",
            json!({}),
            &["model.layers.1.attn_norm.weight"],
            Missing,
            "blk.1.attn_norm.weight",
        ),
        ("golden-texts/switch", json!({"router_dtype": "bfloat16"}), &[], Unsupported, "config.router_dtype"),
        ("golden/llama", json!({"rope_parameters": "none"}), &[], Corrupt, "config.rope_parameters"),
        (
            "golden/llama",
            json!({"tie_word_embeddings": false}),
            &["lm_head.weight"],
            Missing,
            "output.weight",
        ),
        (
            "golden/llama",
            json!({"architectures": ["LlamaForSequenceClassification"]}),
            &[],
            Unsupported,
            "config.architectures",
        ),
        (
            "golden-texts/bart",
            json!({"architectures": ["BartForSequenceClassification"]}),
            &[],
            Unsupported,
            "config.architectures",
        ),
        (bert, json!({"architectures": ["BertForMultipleChoice"]}), &[], Unsupported, "config.architectures"),
    ];
    for (number, (from, config, without, kind, place)) in cases.iter().enumerate() {
        let error =
            packed(changed(from, &format!("rejected-{number}"), config.clone(), without)).unwrap_err();
        assert_eq!(error.kind(), *kind, "{from}, {config}: {error}");
        assert!(error.location().ends_with(place), "{from}, {config}: {error}");
    }
}

fn written(file: &File, format: &str, name: &str) -> Result<PathBuf> {
    let to = place().join(name);
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    export::export(file, export::format_for(Some(format), &to)?, &to, &options)?;
    Ok(to)
}

#[test]
fn keys_that_gguf_lacks_are_rejected() {
    let cases = [
        ("golden/llama", json!({"hidden_act": "gelu"}), "Gelu"),
        ("golden/mpt", json!({"attn_config": {"softmax_scale": 0.5}}), "scale: 0.5"),
        ("golden/gpt2", json!({"scale_attn_by_inverse_layer_idx": true}), "scale"),
        ("golden/qwen3-moe", json!({"norm_topk_prob": false}), "normalize: false"),
        (
            "golden-texts/modernbert",
            json!({"layer_types": ["sliding_attention", "full_attention"]}),
            "rope: 1",
        ),
        ("golden-texts/bert", json!({"hidden_act": "relu"}), "Relu"),
    ];
    for (number, (from, config, word)) in cases.into_iter().enumerate() {
        let file = packed(changed(from, &format!("keys-{number}"), config.clone(), &[])).unwrap();
        let error: Error = written(&file, "gguf", &format!("keys-{number}.gguf")).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Unsupported, "gguf"), "{from}: {error}");
        assert!(error.to_string().contains(word), "{from}, {config}: {error}");
    }
}

#[test]
fn what_gguf_has_keys_for_comes_back() {
    let sliding = json!({"global_attn_every_n_layers": 1, "layer_types": null});
    let long = json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3, "beta_fast": 20.0}});
    // GGUF files have one RoPE base for both kinds of layers.
    let scaled = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 3e3});
    let kinds =
        json!({"full_attention": scaled, "sliding_attention": {"rope_type": "default", "rope_theta": 3e3}});
    let olmo = ("golden-configurations/olmo3", json!({ "rope_parameters": kinds }));
    for (from, config) in
        [("golden-texts/modernbert", sliding), ("golden/llama", long), ("golden-texts/t5", json!({})), olmo]
    {
        let name = from.rsplit('/').next().unwrap();
        let file = packed(changed(from, &format!("back-{name}"), config, &[])).unwrap();
        let gguf = packed(written(&file, "gguf", &format!("back-{name}.gguf")).unwrap()).unwrap();
        let again = packed(written(&gguf, "safetensors", &format!("back-{name}-again")).unwrap()).unwrap();
        let [first, second, third] = [&file, &gguf, &again].map(|file| {
            let model = Model::from_file(file.clone(), &ModelOptions::default()).unwrap();
            let graph = model.graphs().iter().next().unwrap().clone();
            (
                graph.ropes.clone(),
                graph
                    .attentions()
                    .map(|attention| (attention.attention_mask, attention.bias.map(|bias| bias.max_distance)))
                    .collect::<Vec<_>>(),
            )
        });
        for other in [second, third] {
            assert_eq!(first.1, other.1, "{from}");
            for (rope, other) in first.0.iter().zip(&other.0) {
                let apart = rope.frequencies.iter().zip(&other.frequencies).map(|(a, b)| (a / b - 1.0).abs());
                assert!(
                    apart.fold(0.0, f32::max) < 1e-5 && (rope.magnitude / other.magnitude - 1.0).abs() < 1e-6,
                    "{from}"
                );
            }
        }
    }
}

#[test]
fn our_own_onnx_models_become_their_graphs_again() {
    let usual = ["longformer", "whisper"].map(|name| (name, paths::data("golden-texts").join(name)));
    let writers = WRITERS.iter().copied().filter(|name| !WITHOUT_ONNX.contains(name));
    let names = READERS.iter().map(|(name, _)| *name).chain(writers);
    let all = names.map(|name| (name, folder(name))).chain(usual);
    // Two encoders, one of them with global attention, an encoder–decoder, two decoders, and audio.
    let stands =
        ["modernbert-labels", "longformer-classes", "t5-own-head", "olmo3", "qwen3-moe-window", "whisper"];
    for (name, folder) in cases("models", all, |(name, _)| stands.contains(name)) {
        let file = packed(&folder).unwrap();
        let onnx = written(&file, "onnx", &format!("{name}.onnx")).unwrap();
        let beside = place().join(format!("{name}-onnx"));
        std::fs::create_dir_all(&beside).unwrap();
        std::fs::rename(onnx, beside.join("model.onnx")).unwrap();
        std::fs::copy(folder.join("config.json"), beside.join("config.json")).unwrap();
        let again = packed(&beside).unwrap();
        assert_eq!(again.metadata().architecture, file.metadata().architecture, "{name}");
        for tensor in file.tensors() {
            let same = again.tensor(&tensor.name).is_some_and(|other| *other.data == *tensor.data);
            assert!(same, "{name}: {} differs", tensor.name);
        }
    }
}

#[test]
fn models_without_onnx_form_are_rejected() {
    for name in WITHOUT_ONNX {
        let error = written(&packed(folder(name)).unwrap(), "onnx", &format!("{name}.onnx")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        assert!(error.to_string().contains("cannot be exported to ONNX"), "{name}: {error}");
    }
}

#[test]
fn text_ends_where_the_configuration_of_generation_says() {
    let to = changed("golden/llama", "ends", json!({"eos_token_id": 7}), &[]);
    let words = paths::data("golden-exits").join("words.json");
    std::fs::copy(words, to.join("tokenizer.json")).unwrap();
    let ends = |place: &Path| {
        let file = packed(place).unwrap();
        Tokenizer::open(file.tokenizer().unwrap()).unwrap().end_ids().to_vec()
    };
    assert!(ends(&to).contains(&7));
    std::fs::write(to.join("generation_config.json"), r#"{"eos_token_id": [8, 9, 4000000]}"#).unwrap();
    let found = ends(&to);
    std::fs::remove_file(to.join("generation_config.json")).unwrap();
    assert!(
        found.contains(&8) && found.contains(&9) && !found.contains(&7) && !found.contains(&4_000_000),
        "{found:?}"
    );
}
