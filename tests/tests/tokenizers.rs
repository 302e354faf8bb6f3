//! Tokenizers against ids that other programs made.
#![allow(clippy::unwrap_used, reason = "tests")]

use flate2::read::GzDecoder;
use siskin::file::Bytes;
use siskin::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use siskin_convert::import::gguf::{Gguf, Part};
use siskin_convert::import::{tokenizer_gguf, tokenizer_json};
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

fn numbers(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

/// One golden case; what differs is described.
fn check_case(tokenizer: &Tokenizer, case: &serde_json::Value) -> Vec<String> {
    let text = case["text"].as_str().unwrap();
    let mut wrong = Vec::new();
    let mut compare = |what: &str, found: String, wanted: String| {
        if found != wanted {
            wrong.push(format!("{what} of {text:?}\n   found {found}\n  wanted {wanted}"));
        }
    };
    let parse = EncodeOptions { add_special: false, parse_special: true };
    let special = EncodeOptions { add_special: true, ..parse };
    let tokens = tokenizer.encode_with_offsets(text, parse).unwrap();
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    compare("ids", format!("{ids:?}"), format!("{:?}", numbers(&case["ids"])));
    compare("plain ids", format!("{:?}", tokenizer.encode(text, parse).unwrap()), format!("{ids:?}"));
    compare("special", format!("{:?}", tokenizer.encode(text, special).unwrap()), format!("{:?}", numbers(&case["special"])));
    let (pair, segments) = tokenizer.encode_pair(text, "second one", special).unwrap();
    let pair: Vec<u32> = pair.iter().map(|token| token.id).collect();
    compare("pair", format!("{pair:?}"), format!("{:?}", numbers(&case["pair"])));
    compare("segments", format!("{segments:?}"), format!("{:?}", numbers(&case["segments"])));
    let widen = |token: &siskin::tokenizer::Token| {
        let (mut start, mut end) = (token.start as usize, token.end as usize);
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        while !text.is_char_boundary(end) {
            end += 1;
        }
        vec![start as u32, end as u32]
    };
    let offsets: Vec<Vec<u32>> = tokens.iter().map(widen).collect();
    let wanted: Vec<Vec<u32>> = case["offsets"].as_array().unwrap().iter().map(numbers).collect();
    compare("offsets", format!("{offsets:?}"), format!("{wanted:?}"));
    let decoded = tokenizer.decode(&ids, DecodeOptions::default()).unwrap();
    compare("text", format!("{:?}", String::from_utf8_lossy(&decoded)), format!("{:?}", case["decoded"].as_str().unwrap()));
    wrong
}

#[test]
fn tokenizer_json_files_give_what_hugging_face_gives() {
    let mut wrong = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.to_str().unwrap().ends_with(".json.gz"));
    assert!(paths.len() >= 20, "goldens are missing");
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let golden: serde_json::Value = serde_json::from_slice(&unpack(&path)).unwrap();
        let section = tokenizer_json::vocabulary(golden["tokenizer"].to_string().as_bytes(), None)
            .and_then(|vocabulary| vocabulary.write())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let tokenizer = Tokenizer::open(Bytes::new(section)).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            wrong.extend(check_case(&tokenizer, case).into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
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
