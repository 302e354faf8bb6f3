//! Normalizers, pre-tokenizers and decoders.

use super::json::JsonValue;
use super::{SPACE, Spelling};
use crate::import::tokenizer_gguf::{bert_normalizers, bert_pre_tokenizers};
use siskin_format::Result;
use siskin_tokenizer::{Behavior, Normalizer, PreTokenizerStep, Trim, Vocabulary, named_pre_tokenizer};

/// ASCII punctuation and symbols, and Unicode punctuation.
const PUNCTUATION: &str = r"[!-/:-@\[-`{-~\p{P}]";

/// Runs of word characters (including the joiners), and runs of other non-space characters.
const WORDS: &str = r"[\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+";

/// Calls `visit` with every component of `place`, flattening sequences.
fn each<'a>(
    place: Option<JsonValue<'a>>,
    list: &str,
    visit: &mut impl FnMut(&JsonValue<'a>) -> Result<()>,
) -> Result<()> {
    let Some(place) = place else { return Ok(()) };
    if place.kind()? == "Sequence" {
        return place.require(list)?.list()?.into_iter().try_for_each(|part| each(Some(part), list, visit));
    }
    visit(&place)
}

/// Returns how the file spells its tokens, derived from its components.
pub(super) fn spelling(root: &JsonValue<'_>) -> Result<Spelling> {
    let mut spelling = Spelling::Plain;
    each(root.get("normalizer"), "normalizers", &mut |place| {
        match place.kind()? {
            "ByteLevel" => spelling = Spelling::Bytes,
            "Replace" if place.text_of("content")? == Some(SPACE) && literal(place)? == Some(" ") => {
                spelling = Spelling::Spaces;
            }
            _ => {}
        }
        Ok(())
    })?;
    each(root.get("pre_tokenizer"), "pretokenizers", &mut |place| {
        match place.kind()? {
            "ByteLevel" => spelling = Spelling::Bytes,
            "Metaspace" => spelling = Spelling::Spaces,
            _ => {}
        }
        Ok(())
    })?;
    Ok(spelling)
}

/// Returns the literal text of a component's `pattern`.
fn literal<'a>(place: &JsonValue<'a>) -> Result<Option<&'a str>> {
    place.require("pattern")?.text_of("String")
}

/// Returns the regular expression of a component's `pattern`, escaping literals.
fn pattern(place: &JsonValue<'_>, spelling: Spelling) -> Result<String> {
    let pattern = place.require("pattern")?;
    match (pattern.text_of("String")?, pattern.text_of("Regex")?) {
        (Some(text), _) => Ok(escape(&spelling.plain(text))),
        (None, Some(regex)) => Ok(spelling.plain(regex)),
        (None, None) => Err(pattern.unsupported("neither a String nor a Regex")),
    }
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if !character.is_alphanumeric() && !character.is_whitespace() && character.is_ascii() {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

pub(super) fn read(root: &JsonValue<'_>, spelling: Spelling, vocabulary: &mut Vocabulary) -> Result<()> {
    vocabulary.byte_level = spelling == Spelling::Bytes;
    vocabulary.spells_spaces = spelling == Spelling::Spaces;
    let mut behind = None;
    each(root.get("normalizer"), "normalizers", &mut |place| {
        let kind = place.kind()?;
        match behind {
            // It would process the text in another alphabet.
            Some("ByteLevel") => {
                return Err(place.unsupported("a normalizer after ByteLevel is not supported"));
            }
            Some(_) if matches!(kind, "Strip" | "BertNormalizer" | "ByteLevel") => {
                return Err(
                    place.unsupported(format!("{kind:?} after replacing spaces by U+2581 is not supported"))
                );
            }
            Some(_) if kind == "Replace" && literal(place)?.is_none() => {
                return Err(place.unsupported("a Regex after replacing spaces by U+2581 is not supported"));
            }
            _ => {}
        }
        let hides =
            kind == "Replace" && place.text_of("content")? == Some(SPACE) && literal(place)? == Some(" ");
        if hides || kind == "ByteLevel" {
            behind = Some(kind);
        }
        normalizer(place, spelling, vocabulary)
    })?;
    let mark = Normalizer::Replace { from: SPACE.to_owned(), to: " ".to_owned() };
    let mut hides_spaces = vocabulary.normalizers.contains(&mark);
    let mut in_bytes = false;
    each(root.get("normalizer"), "normalizers", &mut |place| {
        in_bytes |= place.kind()? == "ByteLevel";
        Ok(())
    })?;
    each(root.get("pre_tokenizer"), "pretokenizers", &mut |place| {
        if in_bytes {
            // It would process the text in another alphabet.
            return Err(place.unsupported("a pre-tokenizer after ByteLevel is not supported"));
        }
        in_bytes = place.kind()? == "ByteLevel";
        if hides_spaces && !sees_no_spaces(place)? {
            return Ok(());
        }
        hides_spaces |= place.kind()? == "Metaspace";
        pre_tokenizer(place, spelling, vocabulary)
    })?;
    // Without a decoder, tokens are joined with spaces.
    vocabulary.join_words = root.get("decoder").is_none();
    each(root.get("decoder"), "decoders", &mut |place| decoder(place, vocabulary))
}

fn normalizer(place: &JsonValue<'_>, spelling: Spelling, vocabulary: &mut Vocabulary) -> Result<()> {
    let steps = &mut vocabulary.normalizers;
    match place.kind()? {
        "NFC" => steps.push(Normalizer::Nfc),
        "NFD" => steps.push(Normalizer::Nfd),
        "NFKC" => steps.push(Normalizer::Nfkc),
        "NFKD" => steps.push(Normalizer::Nfkd),
        "Lowercase" => steps.push(Normalizer::Lowercase),
        "StripAccents" => steps.push(Normalizer::StripMarks { all: true }),
        "Strip" => steps.push(Normalizer::Strip {
            left: place.flag("strip_left", true)?,
            right: place.flag("strip_right", true)?,
        }),
        "Replace" => {
            let content = place.require("content")?.text()?;
            let to = spelling.plain(content);
            steps.push(match literal(place)? {
                // The runtime uses spaces where the file has U+2581.
                Some(" ") if content == SPACE => Normalizer::Replace { from: SPACE.to_owned(), to },
                Some("") => return Err(place.corrupt("replaces an empty text")),
                Some(text) => Normalizer::Replace { from: spelling.plain(text), to },
                None => Normalizer::ReplacePattern { pattern: pattern(place, spelling)?, to },
            });
        }
        "Prepend" => steps.push(Normalizer::Prefix {
            text: spelling.plain(place.require("prepend")?.text()?),
            first_only: false,
            unless_there: false,
        }),
        "BertNormalizer" => {
            let lowercase = place.flag("lowercase", true)?;
            let strip = place.flag("strip_accents", lowercase)?;
            let (clean, chinese) =
                (place.flag("clean_text", true)?, place.flag("handle_chinese_chars", true)?);
            steps.extend(bert_normalizers(clean, chinese, strip, lowercase));
        }
        "Precompiled" => {
            let map = place.require("precompiled_charsmap")?;
            if !vocabulary.charsmap.is_empty() {
                return Err(place.unsupported("a second character map is not supported"));
            }
            vocabulary.charsmap = base64(map.text()?).ok_or_else(|| map.corrupt("not base64"))?;
            steps.push(Normalizer::Charsmap);
        }
        "ByteLevel" => {}
        other => return Err(place.unsupported(format!("the normalizer {other:?} is not supported"))),
    }
    Ok(())
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::from(digit(byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

fn behavior(place: &JsonValue<'_>) -> Result<Behavior> {
    Ok(match place.text_of("behavior")?.unwrap_or("Isolated") {
        "Removed" => Behavior::Removed,
        "Isolated" => Behavior::Isolated,
        "MergedWithPrevious" => Behavior::MergedWithPrevious,
        "MergedWithNext" => Behavior::MergedWithNext,
        "Contiguous" => Behavior::Contiguous,
        other => return Err(place.unsupported(format!("the behavior {other:?} is not supported"))),
    })
}

fn pre_tokenizer(place: &JsonValue<'_>, spelling: Spelling, vocabulary: &mut Vocabulary) -> Result<()> {
    let cut = |pattern: &str, behavior, invert| PreTokenizerStep::Pattern {
        pattern: pattern.to_owned(),
        behavior,
        invert,
    };
    let steps = &mut vocabulary.pre_tokenizers;
    match place.kind()? {
        "ByteLevel" => return byte_level(place, vocabulary),
        "Metaspace" => return metaspace(place, vocabulary),
        "Split" => {
            let step = cut(&pattern(place, spelling)?, behavior(place)?, place.flag("invert", false)?);
            steps.push(step);
        }
        "Whitespace" => steps.push(cut(WORDS, Behavior::Removed, true)),
        "WhitespaceSplit" => steps.push(cut(r"\s+", Behavior::Removed, false)),
        "Digits" if place.flag("individual_digits", false)? => {
            steps.push(PreTokenizerStep::isolated(r"\p{N}"))
        }
        "Digits" => steps.push(PreTokenizerStep::isolated(r"\p{N}+")),
        "Punctuation" => steps.push(cut(PUNCTUATION, behavior(place)?, false)),
        "BertPreTokenizer" => steps.extend(bert_pre_tokenizers()),
        "CharDelimiterSplit" => {
            let delimiter = escape(place.require("delimiter")?.text()?);
            steps.push(cut(&delimiter, Behavior::Removed, false));
        }
        other => return Err(place.unsupported(format!("the pre-tokenizer {other:?} is not supported"))),
    }
    Ok(())
}

/// Returns true if this pre-tokenizer, which runs after the normalizer replaced spaces by U+2581, treats spaces as it
/// would treat U+2581. Returns false if it cannot match at all.
fn sees_no_spaces(place: &JsonValue<'_>) -> Result<bool> {
    match place.kind()? {
        "Digits" | "Punctuation" | "Metaspace" => Ok(true),
        "Split" => match literal(place)? {
            Some(text) => Ok(!text.contains(' ')),
            None => Err(place.unsupported("a Regex after replacing spaces by U+2581 is not supported")),
        },
        other => {
            Err(place.unsupported(format!("{other:?} after replacing spaces by U+2581 is not supported")))
        }
    }
}

fn byte_level(place: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    if place.flag("add_prefix_space", true)? {
        if !vocabulary.pre_tokenizers.is_empty() {
            return Err(place.unsupported("add_prefix_space after other pre-tokenizers is not supported"));
        }
        vocabulary.normalizers.push(Normalizer::Prefix {
            text: " ".to_owned(),
            first_only: false,
            unless_there: true,
        });
    }
    if place.flag("use_regex", true)? {
        vocabulary.pre_tokenizers.extend(named_pre_tokenizer("gpt-2")?.pre_tokenizers);
    }
    Ok(())
}

fn metaspace(place: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    if place.text_of("replacement")?.is_some_and(|text| text != SPACE) {
        return Err(place.unsupported("a replacement other than U+2581 is not supported"));
    }
    let scheme = match place.text_of("prepend_scheme")? {
        Some(scheme) => scheme,
        None if place.flag("add_prefix_space", true)? => "always",
        None => "never",
    };
    let steps = &mut vocabulary.normalizers;
    let by_words = [PreTokenizerStep::Pattern {
        pattern: r"\s+".to_owned(),
        behavior: Behavior::Removed,
        invert: false,
    }];
    if vocabulary.pre_tokenizers == by_words {
        // Splitting into words first and marking each is the same as one space before every word.
        if scheme != "always" {
            return Err(place.unsupported("this prepend_scheme after WhitespaceSplit is not supported"));
        }
        vocabulary.pre_tokenizers.clear();
        vocabulary.trim = Trim::WhiteSpace;
        steps.push(Normalizer::Replace { from: SPACE.to_owned(), to: " ".to_owned() });
        steps.push(Normalizer::Strip { left: true, right: true });
        steps.push(Normalizer::ReplacePattern { pattern: r"\s+".to_owned(), to: " ".to_owned() });
    } else if !vocabulary.pre_tokenizers.is_empty() {
        return Err(place.unsupported("Metaspace after this pre-tokenizer is not supported"));
    }
    steps.push(Normalizer::Replace { from: SPACE.to_owned(), to: " ".to_owned() });
    match scheme {
        "always" | "first" => steps.push(Normalizer::Prefix {
            text: " ".to_owned(),
            first_only: scheme == "first",
            unless_there: true,
        }),
        "never" => {}
        other => return Err(place.unsupported(format!("the prepend_scheme {other:?} is not supported"))),
    }
    if place.flag("split", true)? {
        let behavior = Behavior::MergedWithNext;
        vocabulary.pre_tokenizers.push(PreTokenizerStep::Pattern {
            pattern: " ".to_owned(),
            behavior,
            invert: false,
        });
    }
    Ok(())
}

fn decoder(place: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    match place.kind()? {
        "ByteLevel" | "ByteFallback" | "Fuse" => {}
        "Metaspace" => {
            let scheme = place.text_of("prepend_scheme")?;
            let adds = place.flag("add_prefix_space", true)?;
            vocabulary.strip_leading_space = scheme.map_or(adds, |scheme| scheme != "never");
        }
        "WordPiece" => {
            vocabulary.join_words = true;
            vocabulary.clean_spaces = place.flag("cleanup", true)?;
        }
        "Replace" if literal(place)? == Some(SPACE) && place.text_of("content")? == Some(" ") => {}
        "Strip"
            if place.text_of("content")? == Some(" ") && place.value["stop"].as_u64().unwrap_or(0) == 0 =>
        {
            match place.value["start"].as_u64() {
                Some(0) => {}
                Some(1) => vocabulary.strip_leading_space = true,
                _ => return Err(place.unsupported("stripping more than one space is not supported")),
            }
        }
        other => {
            return Err(place.unsupported(format!("the decoder {other:?} in this form is not supported")));
        }
    }
    Ok(())
}
