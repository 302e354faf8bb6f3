//! Pre-tokenizers by the name that GGUF files give them.
//!
//! Patterns are those of the models' own `tokenizer.json` where that is known.

use super::split::{Behavior, Splitter};
use crate::{Error, Result};

/// What a pre-tokenizer name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// How text is cut.
    pub splitters: Vec<Splitter>,
    /// A piece that is a token is that token, whatever the merges say.
    pub whole_first: bool,
    /// The model expects its beginning-of-sequence token unless its file says otherwise.
    pub add_bos: bool,
    /// A pair of texts has a separator between them.
    pub add_separator: bool,
    /// Tokens are spelt in GPT-2's alphabet of bytes.
    pub byte_level: bool,
    /// Tokens spell spaces as U+2581.
    pub spells_spaces: bool,
    /// Text is made lower case.
    pub lowercase: bool,
}

const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const CJK: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const CJK_DEEPSEEK: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";
const AFMOE_SCRIPTS: &str = "[一-鿿㐀-䶿豈-\u{faff}\u{3040}-ゟ゠-ヿ･-ﾟ⼀-⿟เ-\u{e7f}\u{e80}-\u{eff}ក-\u{17ff}က-\u{109f}ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+";
const YOUTU_SCRIPTS: &str = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-ゟ゠-ヿ]+";
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const LINES: &str = r"[^\n]+|[\n]+";
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_SIGNS: &str = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";

/// Names and the patterns that cut their text, one after the other.
const PATTERNS: &[(&[&str], &[&str])] = &[
    (&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    (&["minicpm5"], &[r"\p{N}{1,3}", MINICPM_5]),
    (
        &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        &[LLAMA_3],
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5"], &[LLAMA_3]),
    (&["jais-2"], &[JAIS_2]),
    (
        &["deepseek-llm"],
        &["[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", CJK_DEEPSEEK, r"\p{N}+"],
    ),
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
            "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
            "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "exaone4", "trillion",
            "granite-docling",
        ],
        &[GPT_2],
    ),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "megrez", "solar-open", "grok-2"],
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

/// Names whose pieces are looked up whole before merging.
const WHOLE_FIRST: &[&str] = &[
    "minicpm5", "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "youtu", "glm4", "glm5", "tekken", "granite-embed-multi-97m",
];

/// Names of models that expect a beginning-of-sequence token.
const ADD_BOS: &[&str] = &[
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    "tekken", "chameleon", "gemma4", "granite-embed-multi-311m",
];

/// What the pre-tokenizer called `name` does; an error that names it where it is unknown.
pub fn family(name: &str) -> Result<Family> {
    let splitters = match name {
        "superbpe" => vec![Splitter::isolated(r"\p{N}+"), Splitter::DigitGroups { at_word_ends: false }],
        "afmoe" => vec![
            Splitter::DigitGroups { at_word_ends: false },
            Splitter::isolated(AFMOE_SCRIPTS),
            Splitter::isolated(DEEPSEEK_3),
        ],
        "tiny_aya" | "cohere2moe" => {
            vec![Splitter::DigitGroups { at_word_ends: true }, Splitter::isolated(GPT_4O)]
        }
        "whitespace" => {
            vec![Splitter::Pattern { pattern: r"\S+".to_owned(), behavior: Behavior::Removed, invert: true }]
        }
        _ => {
            let row = PATTERNS.iter().find(|(names, _)| names.contains(&name));
            let (_, patterns) = row.ok_or_else(|| {
                Error::unsupported(
                    "tokenizer.ggml.pre",
                    format!("the pre-tokenizer {name:?} is not known to this version; it is not guessed"),
                )
            })?;
            patterns.iter().map(|pattern| Splitter::isolated(pattern)).collect()
        }
    };
    let spells_spaces = matches!(name, "gemma4" | "granite-embed-multi-311m" | "sarvam-moe");
    Ok(Family {
        splitters,
        whole_first: WHOLE_FIRST.contains(&name),
        add_bos: ADD_BOS.contains(&name),
        add_separator: matches!(name, "jina-v1-en" | "jina-v2-code" | "roberta-bpe"),
        byte_level: !spells_spaces && name != "whitespace",
        spells_spaces,
        lowercase: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::regex::Pattern;
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for (names, patterns) in PATTERNS {
            assert!(family(names[0]).is_ok());
            for pattern in *patterns {
                Pattern::new(pattern).unwrap_or_else(|error| panic!("{names:?}: {error}"));
            }
        }
        for pattern in [AFMOE_SCRIPTS] {
            Pattern::new(pattern).unwrap();
        }
        let error = family("no-such-model").unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
        assert!(error.message().contains("no-such-model"));
    }
}
