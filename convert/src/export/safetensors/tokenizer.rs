//! Tokenizer tables as `tokenizer.json` and `tokenizer_config.json`.

use super::pipeline::{self, SPACE};
use crate::export::model::ExportModel;
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};
use siskin_tokenizer::to_byte_level;
use siskin_tokenizer::{
    Merges, ModelKind, TemplateItem, TokenKind, Tokenizer, Trim, Vocabulary, VocabularyToken,
};
use std::collections::{HashMap, HashSet};

/// Adds the tokenizer files that can be restored from the packed tokenizer.
pub(super) fn files(
    model: &ExportModel<'_>,
    add: &mut impl FnMut(&str, &Value),
    notes: &mut Vec<String>,
) -> Result<()> {
    let Some(section) = model.file.tokenizer() else { return Ok(()) };
    let vocabulary = Tokenizer::open(section)?.vocabulary()?;
    add("tokenizer.json", &tokenizer_json(&vocabulary, notes)?);
    add("tokenizer_config.json", &config(&vocabulary, model.model_config.context));
    Ok(())
}

/// Converts a tokenizer to `tokenizer.json`. Adds a note for everything that the format cannot express.
pub fn tokenizer_json(vocabulary: &Vocabulary, notes: &mut Vec<String>) -> Result<Value> {
    let spellings = spellings(vocabulary)?;
    let pipeline = pipeline::of(vocabulary, notes);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(vocabulary, &spellings),
        "normalizer": pipeline.normalizer,
        "pre_tokenizer": pipeline.pre_tokenizer,
        "post_processor": template(vocabulary, &spellings),
        "decoder": pipeline::decoder(vocabulary),
        "model": model(vocabulary, &spellings, notes)?,
    }))
}

/// Returns the spelling of each token, or `None` for unused ids.
fn spellings(vocabulary: &Vocabulary) -> Result<Vec<Option<String>>> {
    let spell = |(id, token): (usize, &VocabularyToken)| {
        let text = || {
            std::str::from_utf8(&token.text).map(str::to_owned).map_err(|_| {
                Error::unsupported(
                    format!("tokenizer.tokens[{id}]"),
                    "not UTF-8, which tokenizer.json requires",
                )
            })
        };
        let is_text = matches!(token.kind, TokenKind::Normal | TokenKind::Unused);
        Ok(Some(match (token.kind, vocabulary.model) {
            _ if token.text.is_empty() => return Ok(None),
            (_, ModelKind::WordPiece) if token.continues => match vocabulary.spells_spaces {
                true => format!("##{}", text()?.replace(' ', SPACE)),
                false => format!("##{}", text()?),
            },
            _ if is_text && vocabulary.byte_level => to_byte_level(&token.text),
            _ if is_text && vocabulary.spells_spaces => text()?.replace(' ', SPACE),
            _ => text()?,
        }))
    };
    vocabulary.tokens.iter().enumerate().map(spell).collect()
}

/// Returns true if the token is matched in text before the tokenizer model runs.
fn is_added(vocabulary: &Vocabulary, token: &VocabularyToken) -> bool {
    match token.kind {
        TokenKind::Control | TokenKind::UserDefined | TokenKind::Added => !token.text.is_empty(),
        TokenKind::Unknown => vocabulary.model != ModelKind::Unigram && !token.text.is_empty(),
        _ => false,
    }
}

/// Returns the number of tokens in the model's vocabulary. If the tokens from the first added one on are all unknown to
/// the model, they are left out: readers of the file number them in order.
fn given(vocabulary: &Vocabulary) -> usize {
    let count = vocabulary.tokens.len();
    let first = vocabulary.tokens.iter().position(|token| token.kind == TokenKind::Added).unwrap_or(count);
    let is_unknown_to_it =
        |token: &VocabularyToken| matches!(token.kind, TokenKind::Added | TokenKind::Control);
    let holes = vocabulary.tokens[..first].iter().any(|token| token.text.is_empty());
    let behind = &vocabulary.tokens[first..];
    let steering = behind.iter().filter(|token| token.kind == TokenKind::Control);
    let steering: HashSet<&[u8]> = steering.map(|token| token.text.as_slice()).collect();
    let are_merged = match &vocabulary.merges {
        Merges::Listed(pairs) => {
            pairs.iter().any(|(left, right)| steering.contains([left.as_slice(), right].concat().as_slice()))
        }
        Merges::FromScores => true,
    };
    let alone = !holes
        && !are_merged
        && behind.iter().all(is_unknown_to_it)
        && vocabulary.special.unknown.is_none_or(|id| (id as usize) < first);
    if alone { first } else { count }
}

fn added(vocabulary: &Vocabulary, spellings: &[Option<String>]) -> Value {
    let tokens = vocabulary.tokens.iter().zip(spellings).enumerate();
    let added = tokens.filter(|(_, (token, _))| is_added(vocabulary, token));
    added
        .map(|(id, (token, spelling))| {
            json!({"id": id, "content": spelling, "single_word": token.single_word,
                "lstrip": token.strip_left, "rstrip": token.strip_right, "normalized": token.normalized,
                "special": !matches!(token.kind, TokenKind::UserDefined | TokenKind::Added)})
        })
        .collect()
}

fn model(vocabulary: &Vocabulary, spellings: &[Option<String>], notes: &mut Vec<String>) -> Result<Value> {
    let spellings = &spellings[..given(vocabulary)];
    let unknown = vocabulary.special.unknown.and_then(|id| spellings.get(id as usize).cloned().flatten());
    if vocabulary.model == ModelKind::Unigram {
        let vocab: Vec<Value> = vocabulary
            .tokens
            .iter()
            .zip(spellings)
            .map(|(token, spelling)| json!([spelling.clone().unwrap_or_default(), token.score]))
            .collect();
        return Ok(json!({"type": "Unigram", "unk_id": vocabulary.special.unknown, "vocab": vocab,
            "byte_fallback": vocabulary.byte_fallback}));
    }
    let mut vocab = Map::new();
    for (id, spelling) in spellings.iter().enumerate() {
        let Some(spelling) = spelling else { continue };
        if vocab.contains_key(spelling) {
            notes.push(format!("token {id} has the text of another token and is omitted"));
            continue;
        }
        vocab.insert(spelling.clone(), id.into());
    }
    Ok(match vocabulary.model {
        ModelKind::Bpe => json!({"type": "BPE", "dropout": null, "unk_token": unknown,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": vocabulary.fuse_unknown, "byte_fallback": vocabulary.byte_fallback,
            "ignore_merges": vocabulary.whole_first, "merges": merges(vocabulary, &vocab)?, "vocab": vocab}),
        ModelKind::WordPiece => json!({"type": "WordPiece", "unk_token": unknown,
            "continuing_subword_prefix": "##", "max_input_chars_per_word": vocabulary.longest_word,
            "vocab": vocab}),
        _ => json!({"type": "WordLevel", "vocab": vocab, "unk_token": unknown}),
    })
}

/// Returns the merges in order. Merges that are derived from scores are all ways to split a token into two.
fn merges(vocabulary: &Vocabulary, vocab: &Map<String, Value>) -> Result<Vec<Value>> {
    let spell = |text: &[u8]| -> Result<String> {
        if vocabulary.byte_level {
            return Ok(to_byte_level(text));
        }
        let text = std::str::from_utf8(text).map_err(|_| {
            Error::unsupported("tokenizer.merges", "not UTF-8, which tokenizer.json requires")
        })?;
        Ok(if vocabulary.spells_spaces { text.replace(' ', SPACE) } else { text.to_owned() })
    };
    match &vocabulary.merges {
        Merges::Listed(pairs) => {
            pairs.iter().map(|(left, right)| Ok(json!([spell(left)?, spell(right)?]))).collect()
        }
        Merges::FromScores => {
            let ids: HashMap<&str, u64> =
                vocab.iter().filter_map(|(text, id)| Some((text.as_str(), id.as_u64()?))).collect();
            let mut found = Vec::new();
            for (text, &id) in &ids {
                let Some(token) = vocabulary.tokens.get(id as usize) else { continue };
                if !matches!(token.kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused) {
                    continue;
                }
                for (at, _) in text.char_indices().skip(1) {
                    let (left, right) = text.split_at(at);
                    if let (Some(&a), Some(&b)) = (ids.get(left), ids.get(right)) {
                        found.push((token.score, id, a, b, left, right));
                    }
                }
            }
            found.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.1, x.2, x.3).cmp(&(y.1, y.2, y.3))));
            Ok(found.into_iter().map(|(.., left, right)| json!([left, right])).collect())
        }
    }
}

/// Returns the post-processor: the special tokens around a text.
fn template(vocabulary: &Vocabulary, spellings: &[Option<String>]) -> Value {
    let mut tokens = Map::new();
    let mut items = |items: &[TemplateItem]| -> Vec<Value> {
        let item = |item: &TemplateItem| match *item {
            TemplateItem::First { token_type } => json!({"Sequence": {"id": "A", "type_id": token_type}}),
            TemplateItem::Second { token_type } => json!({"Sequence": {"id": "B", "type_id": token_type}}),
            TemplateItem::Token { id, token_type } => {
                let text = spellings.get(id as usize).cloned().flatten().unwrap_or_default();
                tokens.insert(text.clone(), json!({"id": text, "ids": [id], "tokens": [text]}));
                json!({"SpecialToken": {"id": text, "type_id": token_type}})
            }
        };
        items.iter().map(item).collect()
    };
    let (single, pair) = (items(&vocabulary.single), items(&vocabulary.pair));
    let template =
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens});
    if vocabulary.trim != Trim::Spaces {
        return template;
    }
    let trim =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({"type": "Sequence", "processors": [trim, template]})
}

/// Builds `tokenizer_config.json`.
fn config(vocabulary: &Vocabulary, context: usize) -> Value {
    let special = &vocabulary.special;
    let mut config = Map::new();
    config.insert("tokenizer_class".to_owned(), "PreTrainedTokenizerFast".into());
    config.insert("model_max_length".to_owned(), context.into());
    config.insert("clean_up_tokenization_spaces".to_owned(), vocabulary.clean_spaces.into());
    for (name, id) in [
        ("bos_token", special.bos),
        ("eos_token", special.eos),
        ("unk_token", special.unknown),
        ("sep_token", special.separator),
        ("pad_token", special.pad),
        ("cls_token", special.class),
        ("mask_token", special.mask),
    ] {
        let text = id.and_then(|id| vocabulary.tokens.get(id as usize));
        let text = text.and_then(|token| String::from_utf8(token.text.clone()).ok());
        if let Some(text) = text {
            config.insert(name.to_owned(), text.into());
        }
    }
    Value::Object(config)
}
