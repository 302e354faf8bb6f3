//! Repacking a `.siskin` file with other matrix types gives the same as packing its source.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, data};
use siskin_convert::{PackOptions, Recipe, pack_file};
use siskin_format::ErrorKind;
use siskin_format::file::{File, SectionKind, Tensor};
use siskin_kernels::panel::PanelType;
use std::path::{Path, PathBuf};

fn packed(from: &Path, to: &Path, recipe: Option<&str>) -> siskin_format::Result<File> {
    let recipe = recipe.map(|recipe| recipe.parse::<Recipe>().unwrap());
    pack_file(from, to, &PackOptions { recipe, ..PackOptions::default() })?;
    File::open(to)
}

/// Returns names, types and bytes of all tensors.
fn tensors(file: &File) -> Vec<(String, String, Vec<u8>)> {
    let part = |tensor: &Tensor| (tensor.name.clone(), format!("{:?}", tensor.panel), tensor.data.to_vec());
    file.tensors().iter().map(part).collect()
}

#[test]
fn a_packed_file_is_made_smaller_as_its_source_is() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden");
    let sources: [(PathBuf, &str); 3] =
        [(data("gguf/tiny.gguf"), "tiny"), (goldens.join("llama"), "llama"), (goldens.join("gpt2"), "gpt2")];
    for (source, name) in sources {
        let folder = Folder::new(&format!("packed-{name}"));
        let exact = folder.join("exact.siskin");
        packed(&source, &exact, None).unwrap();
        for recipe in ["w8r,tables=w8r,always", "q4_0,tables=q8_0,always", "q8_0"] {
            let want = packed(&source, &folder.join("want.siskin"), Some(recipe)).unwrap();
            let got = packed(&exact, &folder.join("got.siskin"), Some(recipe)).unwrap();
            assert!(tensors(&got) == tensors(&want), "{name}: {recipe}");
            let tokenizer = |file: &File| file.section(SectionKind::Tokenizer).map(|bytes| bytes.to_vec());
            assert_eq!(tokenizer(&got), tokenizer(&want));
            assert_eq!(got.metadata().architecture, want.metadata().architecture);
            let base = got.metadata().provenance.get("base").cloned();
            let provenance = File::open(&exact).unwrap().metadata().provenance.clone();
            assert_eq!(base, Some(serde_json::Value::Object(provenance)), "it says where it came from");
        }
    }
}

#[test]
fn without_other_types_there_is_nothing_to_pack() {
    let folder = Folder::new("packed-again");
    let exact = folder.join("exact.siskin");
    packed(&data("gguf/tiny.gguf"), &exact, None).unwrap();
    let error = packed(&exact, &folder.join("again.siskin"), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.to_string().contains("--quant"), "{error}");
    assert!(packed(&exact, &exact, Some("w8r")).is_err(), "the source stays");
}

#[test]
fn a_mix_gives_sensitive_matrices_more_bits() {
    let folder = Folder::new("packed-mix");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/shakespeare.siskin");
    let pack = |recipe: &str| packed(&source, &folder.join("mix.siskin"), Some(recipe)).unwrap();
    let file = pack("q4_k_m,always");
    assert_eq!(file.metadata().quantization["recipe"], "q4_k_m,always");
    let panels = |file: &File, part: &str| -> Vec<PanelType> {
        (0..5).map(|layer| file.tensor(&format!("blk.{layer}.{part}.weight")).unwrap().panel).collect()
    };
    let (q4, q6) = (PanelType::Q4K, PanelType::Q6K);
    assert_eq!(panels(&file, "attn_v"), [q4, q4, q6, q4, q6]);
    assert_eq!(panels(&file, "attn_q"), [q4; 5]);
    // 640 columns are not whole blocks of 256: Q5_0 in place of Q4_K, and Q8_0 in place of Q6_K.
    let (q5, q8) = (PanelType::Q5, PanelType::Q8);
    assert_eq!(panels(&file, "ffn_down"), [q5, q5, q8, q5, q8]);
    assert_eq!(file.tensor("token_embd.weight").unwrap().panel, q6, "also the output matrix");
    let file = pack("q4_k_m,always,tables=q8_0");
    assert_eq!(file.tensor("token_embd.weight").unwrap().panel, q8);
    assert_eq!(panels(&pack("q4_k,always"), "attn_v"), [q4; 5]);
    assert!("q4_k_x".parse::<Recipe>().unwrap_err().to_string().contains("q4_k_m"));
}
