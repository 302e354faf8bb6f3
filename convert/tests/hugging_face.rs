//! Hugging Face folders: packed values equal those of the safetensors, in the layout of our graphs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, bits, floats, golden, packed, row};
use serde_json::{Value, json};
use siskin_convert::{PackOptions, Recipe, pack_file};
use siskin_format::ErrorKind;
use siskin_format::file::File;
use std::collections::HashMap;
use std::path::Path;

/// A shape and the values.
type Values = (Vec<usize>, Vec<f32>);
type Floats = HashMap<String, Values>;

fn model(family: &str, folder: &Folder) -> (File, Floats) {
    let path = golden(family);
    (packed(&path, folder), floats(&path.join("model.safetensors")))
}

/// Returns the value at row and column of a matrix.
fn at((shape, values): &Values, row: usize, column: usize) -> f32 {
    assert_eq!(shape.len(), 2);
    values[row * shape[1] + column]
}

fn assert_matrix(file: &File, name: &str, rows: usize, columns: usize, value: impl Fn(usize, usize) -> f32) {
    let tensor = file.tensor(name).unwrap_or_else(|| panic!("{name} is absent"));
    assert_eq!((tensor.rows, tensor.columns), (rows, columns), "{name}");
    for i in 0..rows {
        let expected: Vec<f32> = (0..columns).map(|j| value(i, j)).collect();
        assert_eq!(bits(&row(tensor, i)), bits(&expected), "{name} row {i}");
    }
}

fn assert_vector(file: &File, name: &str, expected: impl IntoIterator<Item = f32>) {
    let expected: Vec<f32> = expected.into_iter().collect();
    let tensor = file.tensor(name).unwrap_or_else(|| panic!("{name} is absent"));
    assert_eq!(bits(&tensor.floats()), bits(&expected), "{name}");
}

#[test]
fn llama_is_taken_as_it_is() {
    let folder = Folder::new("hf-llama");
    let (file, source) = model("llama", &folder);
    for (ours, theirs) in [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight"),
        ("blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight"),
        ("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
    ] {
        let theirs = &source[theirs];
        assert_matrix(&file, ours, theirs.0[0], theirs.0[1], |i, j| at(theirs, i, j));
    }
    assert_vector(
        &file,
        "blk.1.ffn_norm.weight",
        source["model.layers.1.post_attention_layernorm.weight"].1.clone(),
    );
    assert!(file.tokenizer().is_none() && file.template().is_none());
}

#[test]
fn gpt2_is_transposed() {
    let folder = Folder::new("hf-gpt2");
    let (file, source) = model("gpt2", &folder);
    for (ours, theirs) in [("blk.0.attn_qkv", "h.0.attn.c_attn"), ("blk.1.ffn_down", "h.1.mlp.c_proj")] {
        let weight = &source[&format!("transformer.{theirs}.weight")];
        assert_matrix(&file, &format!("{ours}.weight"), weight.0[1], weight.0[0], |i, j| at(weight, j, i));
        assert_vector(
            &file,
            &format!("{ours}.bias"),
            source[&format!("transformer.{theirs}.bias")].1.clone(),
        );
    }
}

#[test]
fn gemma_norms_gain_one() {
    let folder = Folder::new("hf-gemma3");
    let (file, source) = model("gemma3", &folder);
    for (ours, theirs) in [
        ("blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight"),
        ("blk.1.ffn_post_norm.weight", "model.layers.1.post_feedforward_layernorm.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ] {
        assert_vector(&file, ours, source[theirs].1.iter().map(|value| value + 1.0));
    }
    assert!(file.tensor("output.weight").is_none(), "the token table is the output");
}

/// GPT-NeoX and BLOOM store (head, q|k|v, column of the head); ours are all queries, all keys, all values.
#[test]
fn heads_of_three_are_sorted() {
    for (family, name) in [
        ("gpt-neox", "gpt_neox.layers.0.attention.query_key_value"),
        ("bloom", "transformer.h.0.self_attention.query_key_value"),
    ] {
        let folder = Folder::new(family);
        let (file, source) = model(family, &folder);
        let config = std::fs::read_to_string(golden(family).join("config.json")).unwrap();
        let config: Value = serde_json::from_str(&config).unwrap();
        let heads =
            ["num_attention_heads", "n_head"].iter().find_map(|key| config[key].as_u64()).unwrap() as usize;
        let (weight, bias) = (&source[&format!("{name}.weight")], &source[&format!("{name}.bias")].1);
        let (rows, width) = (weight.0[0], weight.0[1]);
        let size = width / heads;
        let mut order = Vec::new();
        for part in 0..3 {
            for head in 0..heads {
                order.extend((0..size).map(|column| (head * 3 + part) * size + column));
            }
        }
        assert_eq!(order.len(), rows);
        assert_matrix(&file, "blk.0.attn_qkv.weight", rows, width, |i, j| at(weight, order[i], j));
        assert_vector(&file, "blk.0.attn_qkv.bias", order.iter().map(|&row| bias[row]));
    }
}

/// Every decoder golden packs, and no tensor is left out except known non-weights.
#[test]
fn every_golden_packs() {
    let mut packed_families = 0;
    for entry in std::fs::read_dir(golden("")).unwrap() {
        let path = entry.unwrap().path();
        if !path.join("config.json").is_file() {
            continue;
        }
        let folder = Folder::new("hf-every");
        let to = folder.join("packed.siskin");
        // Its expansion ratio is not the one that its weights were made with.
        if path.ends_with("mpt") {
            continue;
        }
        pack_file(&path, &to, &PackOptions::default()).unwrap();
        let file = File::open(&to).unwrap();
        file.verify(&mut |_, _| true).unwrap();
        let source = floats(&path.join("model.safetensors"));
        let count = |values: usize, (shape, _): &Values| values + shape.iter().product::<usize>();
        let theirs = source.values().fold(0, count);
        let ours: usize = file.tensors().iter().map(|tensor| tensor.rows * tensor.columns).sum();
        assert_eq!(ours, theirs, "{}", path.display());
        packed_families += 1;
    }
    assert!(packed_families >= 15, "{packed_families}");
}

/// Writes a safetensors file of F32 tensors.
fn write(path: &Path, tensors: &[(&str, &Values)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, (shape, values)) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}

/// Shards, names with fewer or more wrapper prefixes, a nested configuration, a template, an unused integer tensor.
#[test]
fn other_layouts_of_a_folder_pack_alike() {
    let folder = Folder::new("hf-layouts");
    let (plain, source) = model("llama", &folder);
    let config = std::fs::read_to_string(golden("llama").join("config.json")).unwrap();
    let mut names: Vec<&String> = source.keys().collect();
    names.sort();

    let path = folder.join("sharded");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("config.json"), &config).unwrap();
    let template =
        json!({"chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]});
    std::fs::write(path.join("tokenizer_config.json"), template.to_string()).unwrap();
    let (first, second) = names.split_at(5);
    let mut places = serde_json::Map::new();
    for (shard, names) in [("a.safetensors", first), ("b.safetensors", second)] {
        let bare = |name: &&String| name.strip_prefix("model.").unwrap_or(name).to_owned();
        let tensors: Vec<_> = names.iter().map(|name| (bare(name), &source[*name])).collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), *tensor)).collect();
        write(&path.join(shard), &tensors);
        places.extend(tensors.iter().map(|(name, _)| ((*name).to_owned(), Value::from(shard))));
    }
    let index = path.join("model.safetensors.index.json");
    std::fs::write(&index, json!({"weight_map": places}).to_string()).unwrap();
    let sharded = packed(&path, &folder);
    assert_same_tensors(&sharded, &plain);
    assert_eq!(sharded.template(), Some("yes"));

    for bad in ["../a.safetensors", "/etc/passwd", ""] {
        std::fs::write(&index, json!({"weight_map": {"x": bad}}).to_string()).unwrap();
        let error = pack_file(&path, &folder.join("no.siskin"), &PackOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    std::fs::write(&index, json!({"weight_map": {"x": "c.safetensors"}}).to_string()).unwrap();
    let error = pack_file(&path, &folder.join("no.siskin"), &PackOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");

    let path = folder.join("nested");
    std::fs::create_dir(&path).unwrap();
    let text: Value = serde_json::from_str(&config).unwrap();
    let nested =
        json!({"model_type": "some_vision_model", "text_config": text, "vision_config": {"hidden_size": 1}});
    std::fs::write(path.join("config.json"), nested.to_string()).unwrap();
    std::fs::write(path.join("chat_template.jinja"), "own file").unwrap();
    let tensors: Vec<_> =
        names.iter().map(|name| (format!("language_model.{name}"), &source[*name])).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), *tensor)).collect();
    write(&path.join("model.safetensors"), &tensors);
    let nested = packed(&path, &folder);
    assert_same_tensors(&nested, &plain);
    assert_eq!(nested.template(), Some("own file"));
}

fn assert_same_tensors(a: &File, b: &File) {
    assert_eq!(a.tensors().len(), b.tensors().len());
    for (a, b) in a.tensors().iter().zip(b.tensors()) {
        assert!(a.name == b.name && a.data[..] == b.data[..], "{}", a.name);
    }
}

#[test]
fn a_tied_output_is_the_token_table_even_where_a_copy_is_stored() {
    let folder = Folder::new("hf-tied");
    let source = floats(&golden("llama").join("model.safetensors"));
    let config = std::fs::read_to_string(golden("llama").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let others = source.iter().filter(|(name, _)| *name != "lm_head.weight");
    let mut tensors: Vec<_> = others.map(|(name, tensor)| (name.as_str(), tensor)).collect();
    tensors.push(("lm_head.weight", &source["model.embed_tokens.weight"]));
    for tied in [true, false] {
        let path = folder.join(if tied { "tied" } else { "free" });
        std::fs::create_dir(&path).unwrap();
        config["tie_word_embeddings"] = tied.into();
        std::fs::write(path.join("config.json"), config.to_string()).unwrap();
        write(&path.join("model.safetensors"), &tensors);
        assert_eq!(packed(&path, &folder).tensor("output.weight").is_none(), tied);
    }
}

#[test]
fn what_is_absent_is_named() {
    let folder = Folder::new("hf-absent");
    let path = folder.join("model");
    std::fs::create_dir(&path).unwrap();
    let error = || pack_file(&path, &folder.join("no.siskin"), &PackOptions::default()).unwrap_err();
    assert_eq!(error().kind(), ErrorKind::Unsupported, "an empty folder is no known format");
    std::fs::write(path.join("config.json"), r#"{"hidden_size": 3}"#).unwrap();
    assert!(error().to_string().contains("config.model_type"));
    std::fs::write(path.join("config.json"), r#"{"model_type": "unheard-of"}"#).unwrap();
    assert_eq!(error().kind(), ErrorKind::Unsupported);
    std::fs::copy(golden("llama").join("config.json"), path.join("config.json")).unwrap();
    assert_eq!(error().kind(), ErrorKind::Missing);
    assert!(error().to_string().contains("model.safetensors"));
    let source = floats(&golden("llama").join("model.safetensors"));
    let without = "model.layers.1.mlp.up_proj.weight";
    let kept = source.iter().filter(|(name, _)| *name != without);
    let tensors: Vec<_> = kept.map(|(name, tensor)| (name.as_str(), tensor)).collect();
    write(&path.join("model.safetensors"), &tensors);
    assert_eq!(error().kind(), ErrorKind::Missing);
    assert!(error().to_string().contains(without), "{}", error());
    assert_eq!(
        pack_file(&folder.join("nowhere"), &path, &PackOptions::default()).unwrap_err().kind(),
        ErrorKind::Io
    );
}

#[test]
fn the_tokenizer_comes_along() {
    let folder = Folder::new("hf-tokenizer");
    let path = folder.join("model");
    std::fs::create_dir(&path).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("llama").join(file), path.join(file)).unwrap();
    }
    let tokenizer = golden("../fuzz/tokenizer_json/bpe.json");
    std::fs::copy(&tokenizer, path.join("tokenizer.json")).unwrap();
    let file = packed(&path, &folder);
    let opened = siskin_tokenizer::Tokenizer::open(file.tokenizer().unwrap()).unwrap();
    let source: Value = serde_json::from_slice(&std::fs::read(&tokenizer).unwrap()).unwrap();
    for (token, id) in source["model"]["vocab"].as_object().unwrap() {
        assert!(u64::from(opened.vocabulary_size()) > id.as_u64().unwrap(), "{token}");
    }
    std::fs::write(path.join("tokenizer.json"), "{}").unwrap();
    let error = pack_file(&path, &folder.join("no.siskin"), &PackOptions::default()).unwrap_err();
    assert!(error.location().contains("tokenizer.json"), "{error:?}");
    assert!(!folder.join("no.siskin").exists());
}

/// Copies a golden folder with its weights, applies `change` to its files and opens it.
fn changed(folder: &Folder, change: impl Fn(&Path)) -> siskin_format::Result<()> {
    let source = folder.join("source");
    let _ = std::fs::remove_dir_all(&source);
    std::fs::create_dir(&source).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("llama").join(name), source.join(name)).unwrap();
    }
    change(&source);
    pack_file(&source, &folder.join("packed.siskin"), &PackOptions::default())
}

#[test]
fn json_of_too_many_values_is_rejected() {
    let folder = Folder::new("hf-values");
    let many = |count: usize| format!("[{}[]]", "[],".repeat(count));
    let config = std::fs::read_to_string(golden("llama").join("config.json")).unwrap();
    let config = |count: usize| config.replacen('{', &format!("{{\"x\": {},", many(count)), 1);
    changed(&folder, |source| std::fs::write(source.join("config.json"), config(1000)).unwrap()).unwrap();
    let file = format!("{{\"x\": {}}}", many(3 << 20));
    for (name, text) in [("config.json", config(1 << 18)), ("tokenizer_config.json", file.clone())] {
        let error = changed(&folder, |source| std::fs::write(source.join(name), &text).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.location().ends_with(name) && error.message().contains("values"), "{error}");
    }
    let tokenizer = folder.join("tokenizer.json");
    std::fs::write(&tokenizer, file).unwrap();
    let error = siskin_convert::open_tokenizer(&tokenizer).unwrap_err();
    assert!(error.message().contains("values"), "{error}");
}

#[cfg(unix)]
#[test]
fn what_has_no_end_is_not_read() {
    let folder = Folder::new("hf-endless");
    for name in ["tokenizer.json", "chat_template.jinja", "model.safetensors"] {
        let error = changed(&folder, |source| {
            let _ = std::fs::remove_file(source.join(name));
            std::os::unix::fs::symlink("/dev/zero", source.join(name)).unwrap();
        });
        let error = error.unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn numbers_that_are_not_finite_are_kept_or_rejected() {
    let folder = Folder::new("not-finite");
    let source = folder.join("model");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::copy(golden("llama").join("config.json"), source.join("config.json")).unwrap();
    let mut bytes = std::fs::read(golden("llama").join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8(bytes[8..header].to_vec()).unwrap();
    let at = text.find("model.layers.0.mlp.down_proj.weight").unwrap();
    let start = text[at..].split_once("\"data_offsets\":[").unwrap().1.split(',').next().unwrap();
    let start = header + start.trim().parse::<usize>().unwrap();
    bytes[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(source.join("model.safetensors"), bytes).unwrap();
    packed(&source, &folder);
    for recipe in ["w8r,always", "w4i,always", "q8_0"] {
        let options =
            PackOptions { recipe: Some(recipe.parse::<Recipe>().unwrap()), ..PackOptions::default() };
        let error = pack_file(&source, &folder.join("other.siskin"), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{recipe}");
    }
}

#[test]
fn how_a_model_is_meant_to_write_comes_along() {
    let folder = Folder::new("generation");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("llama").join(name), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("generation_config.json"), r#"{"suppress_tokens": [1, 2]}"#).unwrap();
    let file = packed(&folder.join(""), &folder);
    assert_eq!(file.metadata().config["generation"]["suppress_tokens"], serde_json::json!([1, 2]));
}
