//! The tokenizer in a GGUF file's metadata.

use super::gguf::{Gguf, StringArray};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::DESCRIPTORS;
use siskin_tokenizer::{
    Behavior, Merges, ModelKind, Normalizer, PreTokenizer, PreTokenizerStep, TemplateItem, TokenKind,
    Vocabulary, VocabularyToken, find_ends, from_byte_level, named_pre_tokenizer,
};

/// SentencePiece's replacement of a space.
const SPACE: char = '\u{2581}';
/// Tokens that some chat formats need as text even where control tokens are not parsed.
const CHANNEL_TOKENS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Reads the tokenizer that `gguf` describes.
pub fn vocabulary(gguf: &Gguf) -> Result<Vocabulary> {
    let model = gguf.require("tokenizer.ggml.model").and_then(|_| gguf.string("tokenizer.ggml.model"))?;
    let mut vocabulary = match model.unwrap_or_default() {
        "gpt2" => byte_pair(gguf, gguf.string("tokenizer.ggml.pre")?.unwrap_or("default"))?,
        "gemma4" => byte_pair(gguf, "gemma4")?,
        "whitespace" => byte_pair(gguf, "whitespace")?,
        "llama" => sentence_piece(gguf)?,
        "t5" => unigram(gguf)?,
        "bert" => word_piece(gguf)?,
        other => {
            let message = format!(
                "the tokenizer model {other:?} is not supported; expected gpt2, llama, t5, bert or gemma4"
            );
            return Err(Error::unsupported("tokenizer.ggml.model", message));
        }
    };
    special_ids(gguf, &mut vocabulary)?;
    if model == Some("gemma4") {
        vocabulary.add_bos = true;
    }
    token_attributes(gguf, &mut vocabulary)?;
    templates(gguf, &mut vocabulary)?;
    find_ends(&mut vocabulary);
    for token in &mut vocabulary.tokens {
        if CHANNEL_TOKENS.iter().any(|text| text.as_bytes() == token.text) {
            token.kind = TokenKind::UserDefined;
        }
    }
    Ok(vocabulary)
}

fn byte_pair(gguf: &Gguf, pre: &str) -> Result<Vocabulary> {
    let PreTokenizer { pre_tokenizers, whole_first, add_bos, byte_level, spells_spaces, .. } =
        named_pre_tokenizer(pre)?;
    let spell = |text: &[u8]| match (byte_level, spells_spaces) {
        (true, _) => std::str::from_utf8(text).ok().and_then(from_byte_level),
        (_, true) => Some(spaced(text)),
        _ => Some(text.to_vec()),
    };
    let mut vocabulary = Vocabulary::new(ModelKind::Bpe, tokens(gguf, &spell)?);
    vocabulary.merges = match gguf.strings("tokenizer.ggml.merges")? {
        Some(merges) => Merges::Listed(listed_merges(merges, &spell)?),
        // If a model has no merges, token ids are the ranks.
        None if pre == "kimi-k2" => {
            for (id, token) in vocabulary.tokens.iter_mut().enumerate() {
                token.score = -(id as f32);
            }
            Merges::FromScores
        }
        None => {
            let message = "missing, but this tokenizer needs merges; convert the model again";
            return Err(Error::new(ErrorKind::Missing, "tokenizer.ggml.merges", message));
        }
    };
    vocabulary.pre_tokenizers = pre_tokenizers;
    vocabulary.whole_first = whole_first;
    vocabulary.add_bos = add_bos;
    vocabulary.byte_level = byte_level;
    if spells_spaces {
        spell_spaces(&mut vocabulary);
        vocabulary.byte_fallback = true;
    }
    if pre == "whitespace" && gguf.boolean("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(false) {
        vocabulary.normalizers.push(Normalizer::Lowercase);
    }
    Ok(vocabulary)
}

fn listed_merges(
    merges: &StringArray,
    spell: &impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    merges
        .iter()
        .enumerate()
        .map(|(rank, merge)| {
            let cut = merge.iter().skip(1).position(|&byte| byte == b' ').map(|at| at + 1);
            let (left, right) = cut
                .map(|at| (&merge[..at], &merge[at + 1..]))
                .filter(|(_, right)| !right.is_empty())
                .ok_or_else(|| {
                    Error::corrupt(
                        format!("tokenizer.ggml.merges[{rank}]"),
                        "not two strings separated by a space",
                    )
                })?;
            let part = |text: &[u8]| spell(text).unwrap_or_else(|| text.to_vec());
            Ok((part(left), part(right)))
        })
        .collect()
}

fn sentence_piece(gguf: &Gguf) -> Result<Vocabulary> {
    let mut vocabulary = Vocabulary::new(ModelKind::Bpe, tokens(gguf, &|text: &[u8]| Some(spaced(text)))?);
    vocabulary.merges = Merges::FromScores;
    vocabulary.byte_fallback = true;
    vocabulary.add_bos = true;
    if gguf.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(true) {
        vocabulary.normalizers.push(prefix());
        vocabulary.strip_leading_space = true;
    }
    spell_spaces(&mut vocabulary);
    Ok(vocabulary)
}

fn unigram(gguf: &Gguf) -> Result<Vocabulary> {
    let mut vocabulary =
        Vocabulary::new(ModelKind::Unigram, tokens(gguf, &|text: &[u8]| Some(spaced(text)))?);
    vocabulary.add_eos = true;
    if let Some(map) = gguf.get("tokenizer.ggml.precompiled_charsmap") {
        let numbers = map.as_numbers().ok_or_else(|| {
            Error::corrupt(
                "tokenizer.ggml.precompiled_charsmap",
                format!("expected bytes, found {}", map.type_name()),
            )
        })?;
        if numbers.bytes().len() != numbers.len() {
            return Err(Error::corrupt("tokenizer.ggml.precompiled_charsmap", "expected an array of bytes"));
        }
        vocabulary.charsmap = numbers.bytes().to_vec();
        vocabulary.normalizers.push(Normalizer::Charsmap);
    }
    if gguf.boolean("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false) {
        vocabulary.normalizers.push(Normalizer::CollapseSpaces);
    }
    if gguf.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(false) {
        vocabulary.normalizers.push(prefix());
        vocabulary.strip_leading_space = true;
    }
    spell_spaces(&mut vocabulary);
    Ok(vocabulary)
}

fn word_piece(gguf: &Gguf) -> Result<Vocabulary> {
    let mut vocabulary =
        Vocabulary::new(ModelKind::WordPiece, tokens(gguf, &|text: &[u8]| Some(text.to_vec()))?);
    for token in &mut vocabulary.tokens {
        if token.kind == TokenKind::Normal {
            // GGUF marks tokens that start a word with a space; tokens without it continue one.
            match token.text.strip_prefix(SPACE.to_string().as_bytes()) {
                Some(start) => token.text = start.to_vec(),
                None => token.continues = true,
            }
        }
    }
    let lowercase = gguf.boolean("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let strip = gguf.boolean("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
    vocabulary.normalizers = bert_normalizers(true, true, strip, lowercase);
    vocabulary.pre_tokenizers = bert_pre_tokenizers();
    vocabulary.join_words = true;
    vocabulary.clean_spaces = true;
    Ok(vocabulary)
}

/// Returns the steps of BERT's normalizer.
pub(super) fn bert_normalizers(
    clean: bool,
    chinese: bool,
    strip_accents: bool,
    lowercase: bool,
) -> Vec<Normalizer> {
    let steps = [
        (clean, Normalizer::BertClean),
        (chinese, Normalizer::BertChinese),
        (strip_accents, Normalizer::Nfd),
        (strip_accents, Normalizer::StripMarks { all: false }),
        (lowercase, Normalizer::Lowercase),
    ];
    steps.into_iter().filter(|(wanted, _)| *wanted).map(|(_, step)| step).collect()
}

/// Returns BERT's pre-tokenizer: splits at whitespace, which is removed, and around punctuation.
pub(crate) fn bert_pre_tokenizers() -> Vec<PreTokenizerStep> {
    vec![
        PreTokenizerStep::Pattern { pattern: r"\s+".to_owned(), behavior: Behavior::Removed, invert: false },
        PreTokenizerStep::isolated(r"[!-/:-@\[-`{-~\p{P}]"),
    ]
}

fn prefix() -> Normalizer {
    Normalizer::Prefix { text: " ".to_owned(), first_only: false, unless_there: false }
}

fn spell_spaces(vocabulary: &mut Vocabulary) {
    vocabulary.spells_spaces = true;
    vocabulary.normalizers.push(Normalizer::Replace { from: SPACE.to_string(), to: " ".to_owned() });
}

/// Replaces SentencePiece's U+2581 by spaces.
pub(super) fn spaced(text: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(text) {
        Ok(text) => text.replace(SPACE, " ").into_bytes(),
        Err(_) => text.to_vec(),
    }
}

fn tokens(gguf: &Gguf, spell: &impl Fn(&[u8]) -> Option<Vec<u8>>) -> Result<Vec<VocabularyToken>> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let texts = gguf.require(TOKENS).and_then(|_| gguf.strings(TOKENS))?;
    let texts = texts.ok_or_else(|| Error::corrupt(TOKENS, "expected an array of strings"))?;
    let kinds = gguf.signed_array("tokenizer.ggml.token_type")?;
    let scores = gguf.float_array("tokenizer.ggml.scores")?;
    for (key, length) in [
        ("tokenizer.ggml.token_type", kinds.as_ref().map(Vec::len)),
        ("tokenizer.ggml.scores", scores.as_ref().map(Vec::len)),
    ] {
        if length.is_some_and(|length| length < texts.len()) {
            return Err(Error::corrupt(
                key,
                format!("fewer entries than there are tokens ({})", texts.len()),
            ));
        }
    }
    let token = |(id, text): (usize, &[u8])| {
        let kind = match kinds.as_ref().and_then(|kinds| kinds.get(id)) {
            Some(2) => TokenKind::Unknown,
            Some(3) => TokenKind::Control,
            Some(4) => TokenKind::UserDefined,
            Some(5) => TokenKind::Unused,
            Some(6) => TokenKind::Byte,
            _ => TokenKind::Normal,
        };
        let (kind, text) = match kind {
            TokenKind::Normal | TokenKind::Unused => {
                spell(text).map_or_else(|| (TokenKind::Unreachable, text.to_vec()), |text| (kind, text))
            }
            _ => (kind, text.to_vec()),
        };
        let score = scores.as_ref().and_then(|scores| scores.get(id)).copied().unwrap_or(0.0);
        VocabularyToken { score, ..VocabularyToken::new(text, kind) }
    };
    Ok(texts.iter().enumerate().map(token).collect())
}

fn special_ids(gguf: &Gguf, vocabulary: &mut Vocabulary) -> Result<()> {
    let count = vocabulary.tokens.len() as u64;
    let id = |key: &str, default: Option<u32>| -> Result<Option<u32>> {
        match gguf.unsigned(key)? {
            Some(id) if id < count => Ok(Some(id as u32)),
            // Files store ids like 2^32 - 1 for "none".
            Some(_) => Ok(None),
            None => Ok(default.filter(|&id| u64::from(id) < count)),
        }
    };
    let is_sentence_piece = vocabulary.model == ModelKind::Bpe
        && vocabulary.merges == Merges::FromScores
        && !vocabulary.byte_level;
    let [bos, eos, unknown, separator, pad, mask] = match vocabulary.model {
        ModelKind::Bpe if is_sentence_piece => [Some(1), Some(2), Some(0), None, None, None],
        ModelKind::Unigram => [None, Some(1), Some(2), None, Some(0), None],
        ModelKind::WordPiece => [Some(101), None, Some(100), Some(102), Some(0), Some(103)],
        _ => [None; 6],
    };
    let special = &mut vocabulary.special;
    special.bos = id("tokenizer.ggml.bos_token_id", bos)?;
    special.eos = id("tokenizer.ggml.eos_token_id", eos)?;
    special.eot = id("tokenizer.ggml.eot_token_id", None)?;
    special.unknown = id("tokenizer.ggml.unknown_token_id", unknown)?;
    special.separator = id("tokenizer.ggml.seperator_token_id", separator)?;
    special.pad = id("tokenizer.ggml.padding_token_id", pad)?;
    special.mask = id("tokenizer.ggml.mask_token_id", mask)?;
    special.class = id("tokenizer.ggml.cls_token_id", special.bos)?;
    if vocabulary.model == ModelKind::WordPiece {
        special.bos = special.class.or(special.bos);
    }
    if let Some(add) = gguf.boolean("tokenizer.ggml.add_bos_token")? {
        vocabulary.add_bos = add;
    }
    if let Some(add) = gguf.boolean("tokenizer.ggml.add_eos_token")? {
        vocabulary.add_eos = add;
    }
    Ok(())
}

/// Adds attributes of special tokens that GGUF files omit for some models.
fn token_attributes(gguf: &Gguf, vocabulary: &mut Vocabulary) -> Result<()> {
    let name = gguf.string("general.name")?.unwrap_or_default().to_lowercase();
    let architecture = gguf.string("general.architecture")?.unwrap_or_default();
    let pre = gguf.string("tokenizer.ggml.pre")?.unwrap_or_default();
    let among = |text: &str, list: &[&str]| list.iter().any(|wanted| text.contains(wanted));
    if among(pre, &["jina-v2-de", "jina-v2-es", "jina-v2-code"])
        || among(architecture, &["nomic-bert-moe", "jina-bert-v3"])
    {
        strip_left(vocabulary, b"<mask>");
        return Ok(());
    }
    // As in llama.cpp, the name decides and not the architecture.
    let mut defaults = DESCRIPTORS.iter().map(|descriptor| &descriptor.tokenizer);
    let Some(defaults) = defaults.find(|defaults| among(&name, defaults.names)) else { return Ok(()) };
    defaults.strip_left.iter().for_each(|text| strip_left(vocabulary, text.as_bytes()));
    if !defaults.special_strip_right {
        return Ok(());
    }
    for token in &mut vocabulary.tokens {
        let is_special =
            matches!(token.kind, TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown);
        let is_in = |list: &[&str]| list.iter().any(|text| token.text == text.as_bytes());
        token.strip_right = (is_special || is_in(defaults.strip_right)) && !is_in(defaults.keep_right);
    }
    Ok(())
}

fn strip_left(vocabulary: &mut Vocabulary, text: &[u8]) {
    if let Some(token) = vocabulary.tokens.iter_mut().find(|token| token.text == text) {
        token.strip_left = true;
    }
}

fn templates(gguf: &Gguf, vocabulary: &mut Vocabulary) -> Result<()> {
    let token = |id: Option<u32>, token_type: u32| id.map(|id| TemplateItem::Token { id, token_type });
    let special = vocabulary.special.clone();
    if vocabulary.model == ModelKind::WordPiece {
        let start = token(special.class.or(special.bos), 0);
        let end = |token_type| token(special.separator, token_type);
        let first = Some(TemplateItem::First { token_type: 0 });
        let second = Some(TemplateItem::Second { token_type: 1 });
        vocabulary.single = [start, first, end(0)].into_iter().flatten().collect();
        vocabulary.pair = [start, first, end(0), second, end(1)].into_iter().flatten().collect();
        return Ok(());
    }
    let add_separator = match gguf.boolean("tokenizer.ggml.add_sep_token")? {
        Some(add) => add,
        None => gguf
            .string("tokenizer.ggml.pre")?
            .is_some_and(|pre| named_pre_tokenizer(pre).is_ok_and(|family| family.add_separator)),
    };
    let start = token(special.bos.filter(|_| vocabulary.add_bos), 0);
    let end = |token_type| token(special.eos.filter(|_| vocabulary.add_eos), token_type);
    let separator = token(special.separator.filter(|_| add_separator), 0);
    let first = Some(TemplateItem::First { token_type: 0 });
    let second = Some(TemplateItem::Second { token_type: 0 });
    vocabulary.single = [start, first, end(0)].into_iter().flatten().collect();
    vocabulary.pair = [start, first, end(0), separator, second, end(0)].into_iter().flatten().collect();
    Ok(())
}
