//! Tokenizers against ids that other programs made.
#![allow(clippy::unwrap_used, reason = "tests")]

use flate2::read::GzDecoder;
use siskin::file::Bytes;
use siskin::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use siskin_convert::import::gguf::{Gguf, Part};
use siskin_convert::import::tokenizer_gguf;
use std::io::Read;
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/tokenizers")
}

fn unpack(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn open_gguf(bytes: Vec<u8>) -> Tokenizer {
    let part = Part::parse(&Bytes::new(bytes)).unwrap();
    let gguf = Gguf { metadata: part.metadata, tensors: part.tensors };
    let section = tokenizer_gguf::vocabulary(&gguf).unwrap().write().unwrap();
    Tokenizer::open(Bytes::new(section)).unwrap()
}

/// Texts and the ids that the model's own tokenizer gives them.
fn vectors(folder: &Path, name: &str) -> Vec<(String, Vec<u32>)> {
    let texts = std::fs::read_to_string(folder.join(format!("{name}.gguf.inp"))).unwrap();
    let ids = std::fs::read_to_string(folder.join(format!("{name}.gguf.out"))).unwrap();
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let last = texts.len() - 1;
    let lines = ids.split('\n').map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect());
    let trim = |(index, text): (usize, &str)| {
        let text = if index == last { text.strip_suffix('\n').unwrap_or(text) } else { text };
        text.to_owned()
    };
    texts.iter().copied().enumerate().map(trim).zip(lines).collect()
}

fn check(folder: &Path, name: &str, tokenizer: &Tokenizer) -> Vec<String> {
    let mut wrong = Vec::new();
    for (text, wanted) in vectors(folder, name) {
        let found = tokenizer.encode(&text, EncodeOptions::default()).unwrap();
        if found != wanted {
            wrong.push(format!("{name}: {text:?}\n   found {found:?}\n  wanted {wanted:?}"));
        }
    }
    wrong
}

#[test]
fn given_vocabularies_give_the_given_ids() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = file.strip_suffix(".gguf.gz") else { continue };
        if data().join(format!("{name}.gguf.inp")).exists() {
            wrong.extend(check(&data(), name, &open_gguf(unpack(&path))));
            seen += 1;
        }
    }
    assert!(seen >= 3, "no vocabularies found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs over a folder of other vocabularies: `SISKIN_VOCABULARIES=folder cargo test -- --ignored`.
#[test]
#[ignore = "needs a folder of GGUF vocabularies"]
fn other_vocabularies_give_the_given_ids() {
    let Some(folder) = std::env::var_os("SISKIN_VOCABULARIES").map(PathBuf::from) else { return };
    let mut wrong = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "gguf")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let start = std::time::Instant::now();
        let gguf = Gguf::open(path).unwrap();
        let section = tokenizer_gguf::vocabulary(&gguf).unwrap().write().unwrap();
        let written = start.elapsed();
        let size = section.len();
        let start = std::time::Instant::now();
        let tokenizer = Tokenizer::open(Bytes::new(section)).unwrap();
        println!("{name}: {size} bytes, written in {written:?}, opened in {:?}", start.elapsed());
        if folder.join(format!("{name}.gguf.inp")).exists() {
            let found = check(&folder, name, &tokenizer);
            println!("{name}: {} wrong", found.len());
            wrong.extend(found);
        }
        let _ = tokenizer.decode(&[1, 2], DecodeOptions::default());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Prints the speed of encoding: `SISKIN_VOCABULARIES=folder SISKIN_TEXT=file cargo test --release -- --ignored speed`.
#[test]
#[ignore = "needs a folder of GGUF vocabularies and a text"]
fn speed_of_encoding() {
    let (Some(folder), Some(text)) = (std::env::var_os("SISKIN_VOCABULARIES"), std::env::var_os("SISKIN_TEXT")) else {
        return;
    };
    let text = std::fs::read_to_string(text).unwrap();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "gguf")) {
        let section = tokenizer_gguf::vocabulary(&Gguf::open(path).unwrap()).unwrap().write().unwrap();
        let bytes = Bytes::new(section);
        let start = std::time::Instant::now();
        let tokenizer = Tokenizer::open(bytes).unwrap();
        let opened = start.elapsed();
        let (mut scratch, mut tokens) = (Default::default(), Vec::new());
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = std::time::Instant::now();
            tokenizer.encode_into(&text, EncodeOptions::default(), &mut scratch, &mut tokens).unwrap();
            best = best.min(start.elapsed().as_secs_f64());
        }
        let speed = text.len() as f64 / best / 1e6;
        let name = path.file_stem().unwrap().to_str().unwrap();
        println!("{name}: {speed:.1} MB/s, {} tokens, opened in {opened:?}", tokens.len());
    }
}
