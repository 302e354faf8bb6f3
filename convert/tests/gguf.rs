//! GGUF files written by the `gguf` package (`tests/golden-scripts/make_gguf.py`), compared to the values that it reads
//! from them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, bits, data, floats, packed, packed_with, row};
use siskin_convert::import;
use siskin_convert::import::gguf::Gguf;
use siskin_convert::{PackOptions, Recipe, pack_file};
use siskin_format::file::File;
use siskin_format::{ErrorKind, Result};
use siskin_graph::arch::ConfigReader;
use siskin_kernels::panel::PanelType;
use siskin_kernels::quant::BlockType;

fn check_values(file: &File) {
    let expected = floats(&data("gguf/expected.safetensors"));
    let mut checked = 0;
    for tensor in file.tensors() {
        let (shape, values) = &expected[&tensor.name];
        if shape.len() == 1 {
            assert_eq!(bits(&tensor.floats()), bits(values), "{}", tensor.name);
        } else {
            for (values, at) in values.chunks_exact(shape[1]).zip([0, 1, 17, tensor.rows - 1]) {
                assert_eq!(bits(&row(tensor, at)), bits(values), "{} row {at}", tensor.name);
            }
        }
        checked += 1;
    }
    assert_eq!(checked, 23, "every tensor but the rope factors");
}

#[test]
fn values_are_those_of_the_gguf_package() {
    let folder = Folder::new("gguf-values");
    let file = packed(&data("gguf/tiny.gguf"), &folder);
    check_values(&file);
    let panel = |name: &str| file.tensor(name).unwrap().panel;
    assert_eq!(panel("blk.0.attn_q.weight"), PanelType::Q4K);
    assert_eq!(panel("blk.1.ffn_up.weight"), PanelType::TERNARY);
    assert_eq!(panel("blk.1.attn_v.weight"), PanelType::BF16);
    assert_eq!(panel("token_embd.weight"), PanelType::Q8);
}

#[test]
fn a_split_model_packs_to_the_same_tensors() {
    let folder = Folder::new("gguf-split");
    check_values(&packed(&data("gguf/tiny-00001-of-00003.gguf"), &folder));
}

#[test]
fn metadata_and_template_come_over() {
    let folder = Folder::new("gguf-metadata");
    let file = packed(&data("gguf/tiny.gguf"), &folder);
    let metadata = file.metadata();
    let config = ConfigReader::new(metadata.config.clone());
    assert_eq!(metadata.architecture, "llama");
    assert_eq!(metadata.name.as_deref(), Some("Tiny"));
    assert_eq!(metadata.license.as_deref(), Some("mit"));
    assert_eq!(file.template(), Some("{{ messages }}"));
    assert_eq!(config.count(&["vocab_size"]).unwrap(), Some(40));
    assert_eq!(config.count(&["block_count"]).unwrap(), Some(2));
    assert_eq!(config.get("some.flags"), Some(&serde_json::json!([true, false])));
    let factors = config.numbers(&["rope.factors"]).unwrap().unwrap();
    assert_eq!((factors.len(), factors[0], factors[15]), (16, 1.0, 8.0));
    assert_eq!(metadata.provenance["format"], "GGUF");
    assert_eq!(metadata.provenance["files"][0]["name"], "tiny.gguf");
    assert_eq!(metadata.quantization["types"]["Q4_K"], 1);
    assert_eq!(metadata.quantization["types"]["vector"], 7);
}

#[test]
fn packing_is_reproducible() {
    let folder = Folder::new("gguf-again");
    let bytes = || packed(&data("gguf/tiny.gguf"), &folder).bytes().to_vec();
    assert_eq!(bytes(), bytes());
}

#[test]
fn recipes_re_encode_what_is_larger() -> Result<()> {
    let folder = Folder::new("gguf-recipe");
    let pack = |recipe: &str| {
        let recipe = Some(recipe.parse::<Recipe>().unwrap());
        packed_with(&data("gguf/tiny.gguf"), &folder, &PackOptions { recipe, ..PackOptions::default() })
    };
    let file = pack("q4_k");
    let panel = |file: &File, name: &str| file.tensor(name).unwrap().panel;
    assert_eq!(panel(&file, "blk.0.attn_v.weight"), PanelType::Q4K, "256 columns, from F16");
    assert_eq!(panel(&file, "blk.0.attn_output.weight"), PanelType::Q5, "64 columns are no whole K block");
    assert_eq!(panel(&file, "blk.0.ffn_down.weight"), PanelType::Q4, "smaller already than the fallback");
    assert_eq!(panel(&file, "token_embd.weight"), PanelType::Q8, "tables keep 8 bits");
    assert_eq!(panel(&pack("q4_k,tables=q4_k"), "token_embd.weight"), PanelType::Q4K);
    let quantization = &file.metadata().quantization;
    assert_eq!(quantization["recipe"], "q4_k");
    let error = quantization["relative_error"].as_f64().unwrap();
    assert!((0.001..0.1).contains(&error), "{error}");

    let exact = packed(&data("gguf/tiny.gguf"), &folder);
    for tensor in pack("q8_0").tensors() {
        let exact = exact.tensor(&tensor.name).unwrap();
        for at in 0..tensor.rows {
            let (found, exact) = (row(tensor, at), row(exact, at));
            let largest = exact.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let close = found.iter().zip(&exact).all(|(a, b)| (a - b).abs() <= largest / 100.0);
            assert!(close, "{} row {at}", tensor.name);
        }
    }
    assert_eq!("q9_x".parse::<Recipe>().unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!("q4_k,other=q4_k".parse::<Recipe>().unwrap_err().kind(), ErrorKind::Argument);
    Ok(())
}

#[test]
fn damaged_files_give_errors_and_no_output() {
    let folder = Folder::new("gguf-damaged");
    let whole = std::fs::read(data("gguf/tiny.gguf")).unwrap();
    let (from, to) = (folder.join("model.gguf"), folder.join("model.siskin"));
    for length in (0..4000).step_by(97).chain((4000..whole.len()).step_by(17_001)) {
        std::fs::write(&from, &whole[..length]).unwrap();
        assert!(pack_file(&from, &to, &PackOptions::default()).is_err(), "cut at {length}");
        assert!(!to.exists());
    }
    // The name of a required tensor, and the hidden size.
    let patched = |find: &[u8], with: &[u8]| {
        let at = whole.windows(find.len()).position(|window| window == find).unwrap();
        let mut bytes = whole.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        std::fs::write(&from, bytes).unwrap();
        pack_file(&from, &to, &PackOptions::default()).unwrap_err()
    };
    let error = patched(b"blk.1.ffn_up", b"blk.9");
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("blk.1.ffn_up.weight"), "{error}");
    let error = patched(b"llama.feed_forward_length", b"llama.feed_forwarD");
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.to_string().contains("blk.0.ffn_gate.weight"), "{error}");
    assert!(error.to_string().contains("96 x 256 values, expected 1024 x 256"), "{error}");
    let error = patched(
        b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
        b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0lamma",
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(!to.exists());
}

/// Checks the rows of real models, if `cargo xtask model` downloaded some: block by block as the codecs decode them.
#[test]
fn real_models_keep_their_values() {
    let models = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.models");
    let entries = std::fs::read_dir(models).into_iter().flatten().map(|entry| entry.unwrap().path());
    let paths: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "gguf")).collect();
    if paths.is_empty() {
        eprintln!("skipped: no GGUF file is there; `cargo xtask model smollm2` brings one");
    }
    let folder = Folder::new("gguf-real");
    for path in paths {
        let file = packed(&path, &folder);
        let gguf = Gguf::open(&path).unwrap();
        let tokenizer = siskin_tokenizer::Tokenizer::open(file.tokenizer().unwrap()).unwrap();
        let tokens = gguf.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!(tokenizer.vocabulary_size() as usize, tokens.len());
        let head = ConfigReader::new(file.metadata().config.clone())
            .count(&["rope.dimension_count", "attention.key_length"])
            .unwrap();
        for tensor in file.tensors() {
            let Some(source) = gguf.tensor(&tensor.name) else { continue };
            let block = BlockType::from_gguf(source.ggml_type).unwrap();
            let size = block.row_bytes(tensor.columns).unwrap();
            for at in [0, 5, tensor.rows / 2, tensor.rows - 1] {
                let at = at.min(tensor.rows - 1);
                let paired = file.metadata().architecture == "llama"
                    && (tensor.name.contains("attn_q.") || tensor.name.contains("attn_k."));
                let from = match head {
                    Some(head) if paired => {
                        at / head * head + at % head % (head / 2) * 2 + at % head / (head / 2)
                    }
                    _ => at,
                };
                let mut expected = vec![0.0; tensor.columns];
                assert!(block.dequantize_row(&source.data[from * size..][..size], &mut expected));
                assert_eq!(bits(&row(tensor, at)), bits(&expected), "{} row {at}", tensor.name);
            }
        }
    }
}

#[test]
fn keys_of_too_many_values_are_rejected() {
    let file = |arrays: u64| {
        let mut out = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &0u64.to_le_bytes()].concat();
        out.extend((arrays + 1).to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.as_bytes());
        };
        text(&mut out, "general.architecture");
        out.extend(8u32.to_le_bytes());
        text(&mut out, "llama");
        for index in 0..arrays {
            // An array of 4096 bytes.
            text(&mut out, &format!("llama.{index}"));
            out.extend([9u32, 0].iter().flat_map(|number| number.to_le_bytes()));
            out.extend(4096u64.to_le_bytes());
            out.resize(out.len() + 4096, 1);
        }
        out
    };
    let folder = Folder::new("gguf-values-in-words");
    let path = folder.join("many.gguf");
    let open = |arrays| {
        std::fs::write(&path, file(arrays)).unwrap();
        import::open(&path).map(|source| source.config().values().len())
    };
    assert_eq!(open(100).unwrap(), 100);
    let error = open(128).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("values"), "{error}");
}
