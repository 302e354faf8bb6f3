//! Tokenizer tables under the metadata keys of llama.cpp.

use super::value::MetadataValue;
use crate::export::model::ExportModel;
use crate::import::gguf::Gguf;
use crate::import::tokenizer_gguf::vocabulary;
use siskin_format::Result;
use siskin_format::file::Bytes;
use siskin_tokenizer::{
    EncodeOptions, Merges, ModelKind, Normalizer, TokenKind, Tokenizer, Vocabulary, VocabularyToken,
    pre_tokenizer_like, to_byte_level,
};
use std::collections::HashMap;
use std::path::Path;

/// SentencePiece's replacement of a space.
const SPACE: &str = "\u{2581}";

/// Returns the keys of the packed tokenizer, or no keys if there is no tokenizer.
pub(super) fn keys(model: &ExportModel<'_>, notes: &mut Vec<String>) -> Result<Vec<(String, MetadataValue)>> {
    let mut keys = Vec::new();
    if model.model_config.token_types > 0 {
        let token_types = MetadataValue::Unsigned(model.model_config.token_types as u32);
        keys.push(("tokenizer.ggml.token_type_count".to_owned(), token_types));
    }
    if let Some(template) = model.file.template() {
        keys.push(("tokenizer.chat_template".to_owned(), MetadataValue::Text(template.to_owned())));
    }
    let vocabulary = match model.file.tokenizer() {
        Some(section) => Some(Tokenizer::open(section)?.vocabulary()?),
        None => None,
    };
    if vocabulary.as_ref().is_some_and(|vocabulary| vocabulary.model == ModelKind::WordLevel) {
        notes.push("llama.cpp has no word-level tokenizer: the tokenizer is omitted".to_owned());
    }
    let vocabulary = vocabulary.filter(|vocabulary| vocabulary.model != ModelKind::WordLevel);
    let Some(vocabulary) = vocabulary else {
        keys.push(("tokenizer.ggml.model".to_owned(), MetadataValue::Text("no_vocab".to_owned())));
        return Ok(keys);
    };
    let mut add = |key: &str, value: MetadataValue| keys.push((format!("tokenizer.ggml.{key}"), value));
    let name = kind(&vocabulary);
    add("model", MetadataValue::Text(name.to_owned()));
    add("pre", MetadataValue::Text(pre(model, &vocabulary, name, notes)));
    add("tokens", MetadataValue::Texts(spellings(&vocabulary)));
    add("token_type", MetadataValue::Ints(vocabulary.tokens.iter().map(number_of_kind).collect()));
    match (&vocabulary.merges, name) {
        (Merges::Listed(pairs), "gpt2") => {
            let spell = |text: &[u8]| {
                if vocabulary.byte_level { to_byte_level(text).into_bytes() } else { spaced(text) }
            };
            let merge = |(left, right): &(Vec<u8>, Vec<u8>)| [spell(left), spell(right)].join(&b' ');
            add("merges", MetadataValue::Texts(pairs.iter().map(merge).collect()));
        }
        (Merges::Listed(pairs), "llama") => {
            add("scores", MetadataValue::Floats(scores_of(&vocabulary, pairs)))
        }
        (_, "llama" | "t5") => {
            add("scores", MetadataValue::Floats(vocabulary.tokens.iter().map(|token| token.score).collect()));
        }
        _ => {}
    }
    let special = &vocabulary.special;
    let class = special.class.filter(|class| special.bos != Some(*class) || name == "bert");
    let bos = if name == "bert" { special.class.or(special.bos) } else { special.bos };
    for (key, id) in [
        ("bos_token_id", bos),
        ("eos_token_id", special.eos),
        ("eot_token_id", special.eot),
        ("unknown_token_id", special.unknown),
        ("seperator_token_id", special.separator),
        ("padding_token_id", special.pad),
        ("mask_token_id", special.mask),
        ("cls_token_id", class),
    ] {
        if let Some(id) = id {
            add(key, MetadataValue::Unsigned(id));
        }
    }
    add("add_bos_token", MetadataValue::Bool(vocabulary.add_bos));
    add("add_eos_token", MetadataValue::Bool(vocabulary.add_eos));
    let has = |wanted: fn(&Normalizer) -> bool| vocabulary.normalizers.iter().any(wanted);
    if matches!(name, "llama" | "t5") {
        let prefix = has(|step| matches!(step, Normalizer::Prefix { .. }));
        add("add_space_prefix", MetadataValue::Bool(prefix));
    }
    if name == "t5" {
        add("remove_extra_whitespaces", MetadataValue::Bool(has(collapses)));
        if !vocabulary.charsmap.is_empty() {
            add("precompiled_charsmap", MetadataValue::Bytes(vocabulary.charsmap.clone()));
        }
    }
    if name == "bert" {
        add("normalizer.lowercase", MetadataValue::Bool(has(|step| *step == Normalizer::Lowercase)));
        add(
            "normalizer.strip_accents",
            MetadataValue::Bool(has(|step| matches!(step, Normalizer::StripMarks { .. }))),
        );
    }
    Ok(keys)
}

/// Texts that trigger behavior in which tokenizers differ.
const PROBES: &[&str] = &[
    "Hello World",
    " two  spaces ",
    "na\u{ef}ve \u{c4}pfel",
    "A\u{308}b \u{fb01}ne \u{ff21}",
    "12345 3.14",
    "don't say a_b-c!?",
    "\u{6211}\u{4eec} \u{3042}\u{3044}",
    "line\n\n\tend\r\n",
];

/// Adds a note if the written file's tokenizer produces other token ids than the model's for a probe text.
pub(super) fn compare(model: &ExportModel<'_>, written: &Path, notes: &mut Vec<String>) -> Result<()> {
    let Some(section) = model.file.tokenizer() else { return Ok(()) };
    let own = Tokenizer::open(section)?;
    let read = || -> Result<Option<Tokenizer>> {
        let written = Gguf::open(written)?;
        match written.get("tokenizer.ggml.tokens") {
            Some(_) => Tokenizer::open(Bytes::new(vocabulary(&written)?.write()?)).map(Some),
            None => Ok(None),
        }
    };
    let read = match read() {
        Ok(Some(read)) => read,
        Ok(None) => return Ok(()),
        Err(error) => {
            notes.push(format!("the file's tokenizer cannot be read back: {error}"));
            return Ok(());
        }
    };
    let ids = |tokenizer: &Tokenizer, text| tokenizer.encode(text, EncodeOptions::default()).ok();
    if let Some(text) = PROBES.iter().find(|text| ids(&own, text) != ids(&read, text)) {
        let note = "GGUF cannot represent a tokenizer step";
        notes.push(format!("{note}: {text:?} is tokenized differently there"));
    }
    Ok(())
}

fn collapses(step: &Normalizer) -> bool {
    match step {
        Normalizer::CollapseSpaces => true,
        Normalizer::ReplacePattern { pattern, to } => to == " " && (pattern == " {2,}" || pattern == r"\s+"),
        _ => false,
    }
}

/// Returns llama.cpp's name of the tokenizer model.
fn kind(vocabulary: &Vocabulary) -> &'static str {
    match vocabulary.model {
        ModelKind::Unigram => "t5",
        ModelKind::WordPiece => "bert",
        ModelKind::Bpe if vocabulary.spells_spaces && !vocabulary.byte_level => "llama",
        _ => "gpt2",
    }
}

/// Returns the name of the pre-tokenizer: the source's, or one that splits text equivalently.
fn pre(model: &ExportModel<'_>, vocabulary: &Vocabulary, kind: &str, notes: &mut Vec<String>) -> String {
    let known = model.provenance("tokenizer.ggml.pre");
    if !known.is_empty() || kind != "gpt2" {
        return if known.is_empty() { "default".to_owned() } else { known.to_owned() };
    }
    pre_tokenizer_like(&vocabulary.pre_tokenizers, vocabulary.whole_first)
        .unwrap_or_else(|| {
            notes.push(
                "llama.cpp has no pre-tokenizer that splits text like this one; the file names gpt-2"
                    .to_owned(),
            );
            "gpt-2"
        })
        .to_owned()
}

fn number_of_kind(token: &VocabularyToken) -> i32 {
    match token.kind {
        _ if token.text.is_empty() => 5,
        TokenKind::Normal | TokenKind::Unreachable => 1,
        TokenKind::Unknown => 2,
        TokenKind::Control => 3,
        TokenKind::UserDefined | TokenKind::Added => 4,
        TokenKind::Unused => 5,
        TokenKind::Byte => 6,
    }
}

fn spaced(text: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(text) {
        Ok(text) => text.replace(' ', SPACE).into_bytes(),
        Err(_) => text.to_vec(),
    }
}

fn spellings(vocabulary: &Vocabulary) -> Vec<Vec<u8>> {
    let spell = |(id, token): (usize, &VocabularyToken)| {
        let is_text = matches!(token.kind, TokenKind::Normal | TokenKind::Unused);
        match vocabulary.model {
            _ if token.text.is_empty() => format!("[PAD{id}]").into_bytes(),
            // GGUF marks tokens that start a word with a space; tokens without it continue one.
            ModelKind::WordPiece if token.kind == TokenKind::Normal && !token.continues => {
                [SPACE.as_bytes(), &token.text].concat()
            }
            _ if is_text && vocabulary.byte_level => to_byte_level(&token.text).into_bytes(),
            _ if is_text && vocabulary.spells_spaces => spaced(&token.text),
            _ => token.text.clone(),
        }
    };
    vocabulary.tokens.iter().enumerate().map(spell).collect()
}

/// Returns scores in the order of the merges that create the tokens.
fn scores_of(vocabulary: &Vocabulary, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<f32> {
    let mut ranks: HashMap<Vec<u8>, usize> = HashMap::new();
    for (rank, (left, right)) in pairs.iter().enumerate() {
        ranks.entry([&left[..], right].concat()).or_insert(rank);
    }
    let last = pairs.len();
    let score = |token: &VocabularyToken| -(ranks.get(&token.text).copied().unwrap_or(last) as f32);
    vocabulary.tokens.iter().map(score).collect()
}
