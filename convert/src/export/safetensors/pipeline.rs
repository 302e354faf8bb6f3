//! Normalizers, pre-tokenizers and decoders in the terms of `tokenizer.json`.

use serde_json::{Value, json};
use siskin_tokenizer::{Behavior, Normalizer, PreTokenizerStep, Vocabulary, named_pre_tokenizer};

/// SentencePiece's replacement of a space.
pub(super) const SPACE: &str = "\u{2581}";

/// The stages before the tokenizer model.
pub(super) struct Pipeline {
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
}

/// Converts the stages of `vocabulary`. Adds a note for each stage that `tokenizer.json` cannot express.
pub(super) fn of(vocabulary: &Vocabulary, notes: &mut Vec<String>) -> Pipeline {
    let mut steps = &vocabulary.normalizers[..];
    let mut cuts = Vec::new();
    let mut pre_tokenizers = &vocabulary.pre_tokenizers[..];
    if vocabulary.byte_level {
        let prefix =
            matches!(steps.last(), Some(Normalizer::Prefix { text, unless_there: true, .. }) if text == " ");
        steps = &steps[..steps.len() - usize::from(prefix)];
        let usual = named_pre_tokenizer("gpt-2").is_ok_and(|family| family.pre_tokenizers == pre_tokenizers);
        if !usual {
            cuts.extend(pre_tokenizers.iter().map(pre_tokenizer_step));
        }
        cuts.push(json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true,
            "use_regex": usual}));
        pre_tokenizers = &[];
    } else if let Some(metaspace) = metaspace(vocabulary) {
        steps = &steps[..steps.len() - metaspace.steps];
        if metaspace.by_words {
            cuts.push(json!({"type": "WhitespaceSplit"}));
        }
        cuts.push(json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": metaspace.scheme,
            "split": metaspace.split}));
        pre_tokenizers = &[];
    }
    cuts.extend(cut(pre_tokenizers));
    Pipeline {
        normalizer: sequence(normalizers(vocabulary, steps, notes), "normalizers"),
        pre_tokenizer: sequence(cuts, "pretokenizers"),
    }
}

fn sequence(mut parts: Vec<Value>, list: &str) -> Value {
    match parts.len() {
        0 => Value::Null,
        1 => parts.remove(0),
        _ => json!({"type": "Sequence", list: parts}),
    }
}

/// SentencePiece's treatment of spaces as one pre-tokenizer.
struct Metaspace {
    /// Number of normalizers that it replaces.
    steps: usize,
    scheme: &'static str,
    split: bool,
    by_words: bool,
}

fn metaspace(vocabulary: &Vocabulary) -> Option<Metaspace> {
    let marks =
        |step: &Normalizer| matches!(step, Normalizer::Replace { from, to } if from == SPACE && to == " ");
    let cut = PreTokenizerStep::Pattern {
        pattern: " ".to_owned(),
        behavior: Behavior::MergedWithNext,
        invert: false,
    };
    let split = match &vocabulary.pre_tokenizers[..] {
        [] => false,
        [only] if *only == cut => true,
        _ => return None,
    };
    let words = |steps: &[Normalizer]| match steps {
        [
            ..,
            mark,
            Normalizer::Strip { left: true, right: true },
            Normalizer::ReplacePattern { pattern, to },
        ] => marks(mark) && pattern == r"\s+" && to == " ",
        _ => false,
    };
    match &vocabulary.normalizers[..] {
        [before @ .., mark, Normalizer::Prefix { text, first_only, unless_there: true }]
            if marks(mark) && text == " " =>
        {
            let by_words = words(before);
            let scheme = if *first_only { "first" } else { "always" };
            Some(Metaspace { steps: if by_words { 5 } else { 2 }, scheme, split, by_words })
        }
        [.., mark] if marks(mark) && split => {
            Some(Metaspace { steps: 1, scheme: "never", split, by_words: false })
        }
        _ => None,
    }
}

fn normalizers(vocabulary: &Vocabulary, steps: &[Normalizer], notes: &mut Vec<String>) -> Vec<Value> {
    let spelled = |text: &str| {
        if vocabulary.spells_spaces { text.replace(' ', SPACE) } else { text.to_owned() }
    };
    let mut out = Vec::new();
    let mut rest = steps;
    while let Some((step, after)) = rest.split_first() {
        rest = after;
        let plain = |name: &str| json!({"type": name});
        let values = match step {
            Normalizer::BertClean | Normalizer::BertChinese => {
                let taken = bert(steps_from(steps, rest), &mut out);
                rest = &steps[steps.len() - rest.len() - 1 + taken..];
                continue;
            }
            Normalizer::Nfc => vec![plain("NFC")],
            Normalizer::Nfd => vec![plain("NFD")],
            Normalizer::Nfkc => vec![plain("NFKC")],
            Normalizer::Nfkd => vec![plain("NFKD")],
            Normalizer::Lowercase => vec![plain("Lowercase")],
            Normalizer::StripMarks { .. } => vec![plain("StripAccents")],
            Normalizer::Strip { left, right } => {
                vec![json!({"type": "Strip", "strip_left": left, "strip_right": right})]
            }
            Normalizer::Replace { from, to } if from == SPACE && vocabulary.spells_spaces && to == " " => {
                vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})]
            }
            Normalizer::Replace { from, to } => {
                vec![json!({"type": "Replace", "pattern": {"String": from}, "content": to})]
            }
            Normalizer::ReplacePattern { pattern, to } => {
                vec![json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": to})]
            }
            Normalizer::Prefix { text, .. } => vec![json!({"type": "Prepend", "prepend": spelled(text)})],
            Normalizer::Charsmap => {
                vec![json!({"type": "Precompiled", "precompiled_charsmap": base64(&vocabulary.charsmap)})]
            }
            Normalizer::CollapseSpaces => vec![
                json!({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}),
                json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
            ],
            other => {
                notes.push(format!("tokenizer.json cannot express the step {other:?}: it is omitted"));
                Vec::new()
            }
        };
        out.extend(values);
    }
    out
}

/// Returns the steps that start one before `rest`.
fn steps_from<'a>(steps: &'a [Normalizer], rest: &[Normalizer]) -> &'a [Normalizer] {
    &steps[steps.len() - rest.len() - 1..]
}

/// Combines BERT's steps into one and returns their number.
fn bert(steps: &[Normalizer], out: &mut Vec<Value>) -> usize {
    let mut at = 0;
    let mut take = |wanted: &[Normalizer]| {
        let found = steps.get(at..).is_some_and(|rest| rest.starts_with(wanted));
        at += if found { wanted.len() } else { 0 };
        found
    };
    let clean = take(&[Normalizer::BertClean]);
    let chinese = take(&[Normalizer::BertChinese]);
    let strip = take(&[Normalizer::Nfd, Normalizer::StripMarks { all: false }]);
    let lowercase = take(&[Normalizer::Lowercase]);
    out.push(json!({"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese,
        "strip_accents": strip, "lowercase": lowercase}));
    at
}

fn cut(pre_tokenizers: &[PreTokenizerStep]) -> Vec<Value> {
    if pre_tokenizers == crate::import::tokenizer_gguf::bert_pre_tokenizers() {
        return vec![json!({"type": "BertPreTokenizer"})];
    }
    pre_tokenizers.iter().map(pre_tokenizer_step).collect()
}

fn pre_tokenizer_step(pre_tokenizer_step: &PreTokenizerStep) -> Value {
    let split = |pattern: &str, behavior: &str, invert: bool| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert});
    match pre_tokenizer_step {
        PreTokenizerStep::Pattern { pattern, behavior, invert } => {
            let behavior = match behavior {
                Behavior::Removed => "Removed",
                Behavior::Isolated => "Isolated",
                Behavior::MergedWithPrevious => "MergedWithPrevious",
                Behavior::MergedWithNext => "MergedWithNext",
                Behavior::Contiguous => "Contiguous",
            };
            split(pattern, behavior, *invert)
        }
        PreTokenizerStep::DigitGroups { at_word_ends: false } => {
            split(r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))", "Isolated", false)
        }
        _ => split(r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*\b)", "Isolated", false),
    }
}

/// Returns the decoder, from tokens to text.
pub(super) fn decoder(vocabulary: &Vocabulary) -> Value {
    if vocabulary.byte_level {
        return json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    }
    if vocabulary.spells_spaces {
        let mut parts = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if vocabulary.strip_leading_space {
            parts.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        return json!({"type": "Sequence", "decoders": parts});
    }
    match (vocabulary.join_words, vocabulary.clean_spaces) {
        (false, _) => json!({"type": "Fuse"}),
        (true, cleanup) => json!({"type": "WordPiece", "prefix": "##", "cleanup": cleanup}),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let number =
            chunk.iter().fold(0u32, |number, &byte| number << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = (number >> (18 - 6 * digit) & 63) as usize;
            out.push(if digit <= chunk.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    out
}
