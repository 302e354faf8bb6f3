//! The tokenizer model with its vocabulary, and the added tokens.

use super::Spelling;
use super::json::JsonValue;
use siskin_format::Result;
use siskin_tokenizer::{Merges, ModelKind, TokenKind, Vocabulary, VocabularyToken};
use std::collections::HashMap;

/// Maximum number of unused ids, in addition to twice the number of tokens.
const MAX_UNUSED_IDS: usize = 1 << 12;

pub(super) fn read(root: &JsonValue<'_>, spelling: Spelling) -> Result<Vocabulary> {
    let model = root.require("model")?;
    let kind = match model.text_of("type")? {
        Some(kind) => kind,
        None if model.get("merges").is_some() => "BPE",
        None => return Err(model.unsupported("missing type")),
    };
    if spelling == Spelling::Bytes && kind != "BPE" {
        return Err(model.unsupported(format!("{kind} over bytes is not supported")));
    }
    let mut vocabulary = match kind {
        "BPE" => byte_pair(&model, spelling)?,
        "Unigram" => unigram(&model, spelling)?,
        "WordPiece" => word_piece(&model, spelling)?,
        "WordLevel" => {
            let mut vocabulary = Vocabulary::new(ModelKind::WordLevel, listed(&model, spelling)?);
            no_bytes(&mut vocabulary);
            vocabulary.special.unknown = unknown(&model, &vocabulary)?;
            vocabulary
        }
        other => return Err(model.unsupported(format!("the model {other:?} is not supported"))),
    };
    added_tokens(root, &mut vocabulary)?;
    Ok(vocabulary)
}

/// Reads tokens from a `vocab` that maps spellings to ids.
fn listed(model: &JsonValue<'_>, spelling: Spelling) -> Result<Vec<VocabularyToken>> {
    let vocab = model.require("vocab")?;
    let entries =
        vocab.value.as_object().ok_or_else(|| vocab.corrupt("expected an object of token texts and ids"))?;
    let mut ids = Vec::with_capacity(entries.len());
    for (text, id) in entries {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
        ids.push((text, id.ok_or_else(|| vocab.corrupt(format!("the id of {text:?} is not a number")))?));
    }
    let size = ids.iter().map(|&(_, id)| id.saturating_add(1)).max().unwrap_or(0);
    if size > 2 * ids.len() + MAX_UNUSED_IDS {
        return Err(
            vocab.corrupt(format!("the ids go up to {size}, but there are only {} tokens", ids.len()))
        );
    }
    let mut tokens = vec![hole(); size];
    for (text, id) in ids {
        if !tokens[id].text.is_empty() {
            return Err(vocab.corrupt(format!("two tokens have the id {id}")));
        }
        tokens[id] = token(text, spelling);
    }
    Ok(tokens)
}

/// Returns the placeholder of an unused id.
fn hole() -> VocabularyToken {
    VocabularyToken::new(Vec::new(), TokenKind::Unreachable)
}

fn token(text: &str, spelling: Spelling) -> VocabularyToken {
    match spelling.read(text) {
        Some(_) if is_byte(text) => VocabularyToken::new(text, TokenKind::Byte),
        Some(bytes) => VocabularyToken::new(bytes, TokenKind::Normal),
        None => VocabularyToken::new(text, TokenKind::Unreachable),
    }
}

/// Returns true if a token is spelled `<0xNN>`. The caller makes it an ordinary token if there is no byte fallback.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|text| text.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn byte_fallback(model: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    vocabulary.byte_fallback = model.flag("byte_fallback", false)?;
    if !vocabulary.byte_fallback {
        no_bytes(vocabulary);
    }
    Ok(())
}

/// Turns tokens that are spelled like bytes into ordinary text tokens.
fn no_bytes(vocabulary: &mut Vocabulary) {
    let bytes = vocabulary.tokens.iter_mut().filter(|token| token.kind == TokenKind::Byte);
    bytes.for_each(|token| token.kind = TokenKind::Normal);
}

fn unknown(model: &JsonValue<'_>, vocabulary: &Vocabulary) -> Result<Option<u32>> {
    let Some(place) = model.get("unk_token") else { return Ok(None) };
    let text = place.text()?;
    let found = vocabulary.tokens.iter().position(|token| token.text == text.as_bytes());
    Ok(found.map(|id| id as u32))
}

fn byte_pair(model: &JsonValue<'_>, spelling: Spelling) -> Result<Vocabulary> {
    for name in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if let Some(place) = model.get(name).filter(|place| place.value.as_str() != Some("")) {
            return Err(place.unsupported("prefixes and suffixes of words are not supported"));
        }
    }
    if let Some(place) = model.get("dropout").filter(|place| place.value.as_f64() != Some(0.0)) {
        return Err(place.unsupported("BPE dropout is not supported; remove it"));
    }
    let mut vocabulary = Vocabulary::new(ModelKind::Bpe, listed(model, spelling)?);
    byte_fallback(model, &mut vocabulary)?;
    vocabulary.fuse_unknown = model.flag("fuse_unk", false)?;
    vocabulary.whole_first = model.flag("ignore_merges", false)?;
    vocabulary.special.unknown = unknown(model, &vocabulary)?;
    let vocab = model.require("vocab")?;
    let mut merges = Vec::new();
    for place in model.require("merges")?.list()? {
        let (left, right) = match place.value.as_array().map(Vec::as_slice) {
            Some([left, right]) => left.as_str().zip(right.as_str()),
            Some(_) => None,
            None => place.text()?.split_once(' '),
        }
        .ok_or_else(|| place.corrupt("not a pair of strings"))?;
        for part in [left, right, &format!("{left}{right}")] {
            if vocab.value.get(part).is_none() {
                return Err(place.corrupt(format!("{part:?} is not in the vocabulary")));
            }
        }
        let bytes = |text| spelling.read(text).ok_or_else(|| place.corrupt("not a byte-level text"));
        merges.push((bytes(left)?, bytes(right)?));
    }
    vocabulary.merges = Merges::Listed(merges);
    Ok(vocabulary)
}

fn unigram(model: &JsonValue<'_>, spelling: Spelling) -> Result<Vocabulary> {
    let mut tokens = Vec::new();
    let mut lowest = f64::INFINITY;
    for place in model.require("vocab")?.list()? {
        let pair = place.value.as_array().map(Vec::as_slice);
        let Some([text, score]) = pair else { return Err(place.corrupt("not a token text and a score")) };
        let (Some(text), Some(score)) = (text.as_str(), score.as_f64()) else {
            return Err(place.corrupt("not a token text and a score"));
        };
        lowest = lowest.min(score);
        tokens.push(VocabularyToken { score: score as f32, ..token(text, spelling) });
    }
    let mut vocabulary = Vocabulary::new(ModelKind::Unigram, tokens);
    byte_fallback(model, &mut vocabulary)?;
    vocabulary.unknown_score = Some((lowest - 10.0) as f32);
    if let Some(place) = model.get("unk_id") {
        let id = place.number()?;
        let unknown = vocabulary.tokens.get_mut(id as usize).ok_or_else(|| place.corrupt("not a token"))?;
        unknown.kind = TokenKind::Unknown;
        vocabulary.special.unknown = Some(id);
    }
    Ok(vocabulary)
}

fn word_piece(model: &JsonValue<'_>, spelling: Spelling) -> Result<Vocabulary> {
    let mut vocabulary = Vocabulary::new(ModelKind::WordPiece, listed(model, spelling)?);
    vocabulary.special.unknown = unknown(model, &vocabulary)?;
    let prefix = model.text_of("continuing_subword_prefix")?.unwrap_or("##");
    if prefix.is_empty() {
        return Err(
            model.unsupported("continuing_subword_prefix is empty, but tokens that continue a word need it")
        );
    }
    no_bytes(&mut vocabulary);
    for token in &mut vocabulary.tokens {
        if let Some(rest) = token.text.strip_prefix(prefix.as_bytes()).filter(|rest| !rest.is_empty()) {
            token.text = rest.to_vec();
            token.continues = true;
        }
    }
    if let Some(place) = model.get("max_input_chars_per_word") {
        vocabulary.longest_word = place.number()?;
    }
    Ok(vocabulary)
}

fn added_tokens(root: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    let Some(added) = root.get("added_tokens") else { return Ok(()) };
    let added = added.list()?;
    let id_limit = 2 * (vocabulary.tokens.len() + added.len()) + MAX_UNUSED_IDS;
    let mut seen: HashMap<u32, &str> = HashMap::new();
    for place in added {
        let (id, text) = (place.require("id")?.number()?, place.require("content")?.text()?);
        if id as usize >= id_limit {
            return Err(place.corrupt(format!("the id {id} is far beyond the vocabulary")));
        }
        if text.is_empty() || seen.insert(id, text).is_some_and(|before| before != text) {
            return Err(place.corrupt("the token is empty, or another one has its id"));
        }
        if id as usize >= vocabulary.tokens.len() {
            vocabulary.tokens.resize_with(id as usize + 1, hole);
        }
        let token = &mut vocabulary.tokens[id as usize];
        token.kind = match place.flag("special", false)? {
            true => TokenKind::Control,
            false if token.text.is_empty() || token.kind == TokenKind::Added => TokenKind::Added,
            false => TokenKind::UserDefined,
        };
        token.text = text.as_bytes().to_vec();
        token.strip_left = place.flag("lstrip", false)?;
        token.strip_right = place.flag("rstrip", false)?;
        token.single_word = place.flag("single_word", false)?;
        token.normalized = place.flag("normalized", false)?;
        token.continues = false;
    }
    Ok(())
}
