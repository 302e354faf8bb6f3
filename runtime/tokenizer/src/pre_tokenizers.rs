//! Pre-tokenizers by their names in GGUF files.
//!
//! Patterns are those of the models' own `tokenizer.json` where known.

use super::split::{Behavior, PreTokenizerStep};
use siskin_format::{Error, Result};

/// The properties of a named pre-tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreTokenizer {
    /// How text is split.
    pub pre_tokenizers: Vec<PreTokenizerStep>,
    /// A piece that is a token becomes that token, regardless of merges (`ignore_merges`).
    pub whole_first: bool,
    /// The model expects a BOS token unless its file says otherwise.
    pub add_bos: bool,
    /// A separator is inserted between a pair of texts.
    pub add_separator: bool,
    /// Tokens are spelled in GPT-2's byte-level alphabet.
    pub byte_level: bool,
    /// Tokens spell spaces as U+2581.
    pub spells_spaces: bool,
}

const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const CJK: &str = "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const CJK_DEEPSEEK: &str = "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
const AFMOE_SCRIPTS: &str = "[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{8c48}-\u{faff}\u{3040}-\u{309f}\u{30a0}-\u{30ff}\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}\u{e40}-\u{e7f}\u{e80}-\u{eff}\u{1780}-\u{17ff}\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+";
const YOUTU_SCRIPTS: &str = "[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+|[\u{3105}-\u{312f}]+|[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const BLOOM: &str = " ?[^(\\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+";
const LINES: &str = r"[^\n]+|[\n]+";
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+";
const DEEPSEEK_SIGNS: &str =
    "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+";

/// Names, and the patterns that are applied one after another.
const PATTERNS: &[(&[&str], &[&str])] = &[
    (&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    (&["minicpm5"], &[r"\p{N}{1,3}", MINICPM_5]),
    (
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[LLAMA_3],
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5"], &[LLAMA_3]),
    (&["jais-2"], &[JAIS_2]),
    (&["deepseek-llm"], &["[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", CJK_DEEPSEEK, r"\p{N}+"]),
    (&["deepseek-coder"], &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_DEEPSEEK, r"\p{N}"]),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[r"\p{N}{1,3}", CJK, DEEPSEEK_3]),
    (&["spark2_5"], &[r"\p{N}{1,3}", CJK, SPARK, r"\p{N}"]),
    (&["youtu"], &[YOUTU_SCRIPTS, YOUTU]),
    (&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT_2, "[0-9][0-9][0-9]"]),
    (
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[r"\p{N}", GPT_2],
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
        ],
        &[GPT_2],
    ),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "stablelm2",
            "hunyuan",
            "megrez",
            "solar-open",
            "grok-2",
        ],
        &[QWEN_2],
    ),
    (&["qwen35"], &[QWEN_35]),
    (&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    (&["viking"], &[BLOOM, r"\p{N}"]),
    (&["tekken"], &[TEKKEN]),
    (
        &["chameleon"],
        &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT_2,
        ],
    ),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m"], &[GPT_4O]),
    (&["kimi-k2"], &[KIMI_K2]),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    (&["seed-coder"], &[SEED_CODER]),
    (&["ufakzeka"], &[UFAKZEKA]),
    (&["laguna"], &[LINES, QWEN_2]),
    (&["exaone-moe"], &[EXAONE_MOE]),
    (&["gemma4", "granite-embed-multi-311m", "sarvam-moe"], &[LINES]),
];

/// Names whose pieces are looked up as a whole before merging.
const WHOLE_FIRST: &[&str] = &[
    "minicpm5",
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "youtu",
    "glm4",
    "glm5",
    "tekken",
    "granite-embed-multi-97m",
];

/// Names of models that expect a BOS token.
const ADD_BOS: &[&str] = &[
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "tekken",
    "chameleon",
    "gemma4",
    "granite-embed-multi-311m",
];

/// Returns the properties of the pre-tokenizer `name`; an error for unknown names.
pub fn named_pre_tokenizer(name: &str) -> Result<PreTokenizer> {
    let pre_tokenizers = match name {
        "superbpe" => {
            vec![PreTokenizerStep::isolated(r"\p{N}+"), PreTokenizerStep::DigitGroups { at_word_ends: false }]
        }
        "afmoe" => vec![
            PreTokenizerStep::DigitGroups { at_word_ends: false },
            PreTokenizerStep::isolated(AFMOE_SCRIPTS),
            PreTokenizerStep::isolated(DEEPSEEK_3),
        ],
        "tiny_aya" | "cohere2moe" => {
            vec![PreTokenizerStep::DigitGroups { at_word_ends: true }, PreTokenizerStep::isolated(GPT_4O)]
        }
        "whitespace" => {
            vec![PreTokenizerStep::Pattern {
                pattern: r"\S+".to_owned(),
                behavior: Behavior::Removed,
                invert: true,
            }]
        }
        _ => {
            let row = PATTERNS.iter().find(|(names, _)| names.contains(&name));
            let (_, patterns) = row.ok_or_else(|| {
                Error::unsupported(
                    "tokenizer.ggml.pre",
                    format!("unknown pre-tokenizer {name:?}; update Siskin"),
                )
            })?;
            patterns.iter().map(|pattern| PreTokenizerStep::isolated(pattern)).collect()
        }
    };
    let spells_spaces = matches!(name, "gemma4" | "granite-embed-multi-311m" | "sarvam-moe");
    Ok(PreTokenizer {
        pre_tokenizers,
        whole_first: WHOLE_FIRST.contains(&name),
        add_bos: ADD_BOS.contains(&name),
        add_separator: matches!(name, "jina-v1-en" | "jina-v2-code" | "roberta-bpe"),
        byte_level: !spells_spaces && name != "whitespace",
        spells_spaces,
    })
}

/// Returns the name of a pre-tokenizer with the same pre_tokenizers and `whole_first`, if there is one.
pub fn pre_tokenizer_like(pre_tokenizers: &[PreTokenizerStep], whole_first: bool) -> Option<&'static str> {
    let alike = |patterns: &[&str]| {
        patterns.len() == pre_tokenizers.len()
            && patterns
                .iter()
                .zip(pre_tokenizers)
                .all(|(pattern, step)| *step == PreTokenizerStep::isolated(pattern))
    };
    let names = PATTERNS.iter().filter(|(_, patterns)| alike(patterns)).flat_map(|(names, _)| names.iter());
    let mut names = names.copied();
    let first = names.clone().next();
    names.find(|name| WHOLE_FIRST.contains(name) == whole_first).or(first)
}

#[cfg(test)]
mod tests {
    use super::super::regex::Pattern;
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for (names, patterns) in PATTERNS {
            assert!(named_pre_tokenizer(names[0]).is_ok());
            for pattern in *patterns {
                Pattern::new(pattern).unwrap_or_else(|error| panic!("{names:?}: {error}"));
            }
        }
        Pattern::new(AFMOE_SCRIPTS).unwrap();
        let error = named_pre_tokenizer("no-such-model").unwrap_err();
        assert_eq!(error.kind(), siskin_format::ErrorKind::Unsupported);
        assert!(error.message().contains("no-such-model"));
    }
}
