//! Packs the small models that the C programs of `tests/c` use into a folder, and writes the program that calls every
//! function there.

use serde_json::{Map, Value, json};
use siskin::file::{AtomicFile, File};
use siskin::{Adapter, Error, LoraMatrix, Result};
use siskin_tests::chat_model::{self, ChatModel};
use siskin_tests::{every, header};
use std::path::Path;
use std::process::ExitCode;

/// A model's name, its source in `tests/data`, and its tokenizer.
type Recipe = (&'static str, &'static str, fn() -> Value);

const MODELS: [Recipe; 7] = [
    ("chat", "golden/llama", bytes),
    ("vectors", "golden-texts/bert", letters),
    ("classes", "golden-texts/bert-classes", letters),
    ("exits", "golden-exits/pabee", letters),
    ("labels", "golden-texts/bert-labels", letters),
    ("answers", "golden-texts/bert-answer", letters),
    ("translates", "golden-texts/marian", letters),
];

const CHAT: &str = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: c_models FOLDER");
        return ExitCode::from(2);
    };
    let folder = Path::new(&folder);
    let program = || {
        let path = folder.join("every.c");
        let written = std::fs::write(&path, every::program(&header::generated()));
        written.map_err(|error| Error::io(path.display().to_string(), &error))
    };
    let models = MODELS.iter().try_for_each(|model| make(folder, model));
    match models.and_then(|()| adapter(folder)).and_then(|()| program()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a LoRA adapter for the query matrices of `chat`.
fn adapter(folder: &Path) -> Result<()> {
    let base = File::open(folder.join("chat.siskin"))?;
    let tensor = "blk.0.attn_q.weight";
    let shape = base.tensor(tensor).map(|tensor| (tensor.rows, tensor.columns));
    let (rows, columns) = shape.ok_or_else(|| Error::argument("chat", "has no queries"))?;
    let numbers = |count: usize| (0..count).map(|i| (i * 5 % 7) as f32 - 3.0).collect();
    let (a, b) = (numbers(2 * columns), numbers(rows * 2));
    let part = LoraMatrix {
        tensor: tensor.to_owned(),
        rows,
        columns,
        rank: 2,
        scale: 1.0,
        a,
        b,
        magnitudes: Vec::new(),
    };
    let architecture = base.metadata().architecture.clone();
    let adapter = Adapter { architecture, base: Some(base.digest()), parts: vec![part] };
    adapter.write(None, Map::new(), AtomicFile::create(folder.join("adapter.siskin"))?)?.commit()
}

fn make(folder: &Path, (name, source, tokenizer): &Recipe) -> Result<()> {
    let template = (*name == "chat").then_some(CHAT);
    let model = ChatModel { source, tokenizer: tokenizer(), template, max_positions: None };
    chat_model::pack(folder, name, &model).map(drop)
}

fn bytes() -> Value {
    chat_model::byte_tokenizer(&[])
}

/// Builds a tokenizer with one token per letter, at the start of a word and inside.
fn letters() -> Value {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let all = special.iter().map(|text| (*text).to_owned());
    let all = all.chain(('a'..='z').map(String::from)).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let vocabulary: Map<String, Value> = all.zip(0_u32..).map(|(text, id)| (text, id.into())).collect();
    let added = |(id, text): (usize, &&str)| {
        json!({
            "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        })
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": special.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2] },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary
        }
    })
}
