//! Repacking a `.siskin` file with other matrix types gives the same as packing its source.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, data};
use siskin::ErrorKind;
use siskin::file::{File, SectionKind, Tensor};
use siskin_convert::{PackOptions, Recipe, pack_file};
use std::path::{Path, PathBuf};

fn packed(from: &Path, to: &Path, recipe: Option<&str>) -> siskin::Result<File> {
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
