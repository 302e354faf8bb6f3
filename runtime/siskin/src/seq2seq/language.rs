//! How languages are passed to translation models: by a task name or by language tokens.

use super::Seq2SeqGenerateOptions;
use super::options::reads;
use crate::logits_processors::from_config::tokens;
use crate::model::Model;
use crate::{Error, ErrorKind, Result};
use siskin_graph::arch::{ConfigReader, TranslationPrompt};
use siskin_tokenizer::Tokenizer;

/// The languages in the task names of T5.
const NAMES: &[(&str, &str)] = &[("en", "English"), ("de", "German"), ("fr", "French"), ("ro", "Romanian")];

/// The maximum number of languages that an error lists.
const MAX_LISTED: usize = 200;

/// How language tokens are spelled: around a code, or as a code followed by more.
const SPELLINGS: &[(&str, &str)] = &[("", ""), ("__", "__"), (">>", "<<"), ("<2", ">")];

impl Seq2SeqGenerateOptions {
    /// Returns the options for a translation. Languages are given by the model's own names (`de_DE`, `deu_Latn`,
    /// `German`), or by the code that such a name begins with. Models of a single language pair need none.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the model does not have the language, or if it requires one and none is given.
    pub fn translation(model: &Model, from: Option<&str>, to: Option<&str>) -> Result<Self> {
        reads(model, "translate")?;
        let config = model.config_reader();
        let tokenizer = model.tokenizer()?;
        let model_type = config.word(&["model_type"])?.unwrap_or_default();
        match (model.tasks().translation)(model_type) {
            TranslationPrompt::TaskName => by_name(model, tokenizer, from, to),
            TranslationPrompt::SourceAndTarget => by_tokens(model, &config, tokenizer, from, to),
            TranslationPrompt::Target => by_first_token(model, tokenizer, to),
        }
    }
}

/// Returns the options for T5: a task name or a language token precedes the text.
fn by_name(
    model: &Model,
    tokenizer: &Tokenizer,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Seq2SeqGenerateOptions> {
    let to = needed("to", to)?;
    if tokenizer.token_to_id(format!("<2{to}>").as_bytes()).is_some() {
        return by_first_token(model, tokenizer, Some(to));
    }
    let from = needed("from", from)?;
    let writing = Seq2SeqGenerateOptions::task(model, &[&format!("translation_{from}_to_{to}")])?;
    if !writing.prefix.is_empty() {
        return Ok(writing);
    }
    let name = |code: &str| {
        let known = NAMES.iter().find(|(known, _)| *known == code);
        known.map_or_else(|| code.to_owned(), |(_, name)| (*name).to_owned())
    };
    Ok(Seq2SeqGenerateOptions { prefix: format!("translate {} to {}: ", name(from), name(to)), ..writing })
}

/// Returns the options for Marian and others: a token of the target language precedes the text, if the model has
/// such tokens.
fn by_first_token(model: &Model, tokenizer: &Tokenizer, to: Option<&str>) -> Result<Seq2SeqGenerateOptions> {
    let writing = Seq2SeqGenerateOptions::task(model, &["translation"])?;
    let known = languages(tokenizer, &|text| between(text, ">>", "<<").or(between(text, "<2", ">")));
    if known.is_empty() {
        return Ok(writing);
    }
    let id = language(tokenizer, "to", needed("to", to)?, &known)?;
    let end = tokenizer.eos().filter(|_| tokenizer.add_eos() || adds_end(tokenizer));
    Ok(Seq2SeqGenerateOptions { around: Some((vec![id], end.into_iter().collect())), ..writing })
}

/// Returns whether the tokenizer appends its EOS token.
fn adds_end(tokenizer: &Tokenizer) -> bool {
    let options = siskin_tokenizer::EncodeOptions { add_special: true, parse_special: false };
    tokenizer.encode("a", options).is_ok_and(|ids| ids.last().copied() == tokenizer.eos())
}

/// mBART, M2M100 and NLLB: a token of the source language is added to the source, and the text is forced to begin with
/// a token of the target language.
fn by_tokens(
    model: &Model,
    config: &ConfigReader,
    tokenizer: &Tokenizer,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Seq2SeqGenerateOptions> {
    let mut writing = Seq2SeqGenerateOptions::task(model, &["translation"])?;
    let known =
        languages(tokenizer, &|text| between(text, "__", "__").or(Some(text).filter(|text| is_code(text))));
    let from = language(tokenizer, "from", needed("from", from)?, &known)?;
    let to = language(tokenizer, "to", needed("to", to)?, &known)?;
    let ends = tokens(config, "eos_token_id");
    let end = ends.first().copied().or(tokenizer.eos()).ok_or_else(|| {
        Error::new(ErrorKind::Missing, "config.eos_token_id", "missing: the model needs an end token")
    })?;
    let start = tokens(config, "decoder_start_token_id");
    if start.first().is_none_or(|start| *start == end) {
        writing.around = Some((vec![from], vec![end]));
        writing.search.logits_processors.forced_bos_token_id = Some(to);
    } else {
        // The first mBART: the language token follows the source, and the decoder starts with that of the target
        // language.
        writing.around = Some((Vec::new(), vec![end, from]));
        writing.start = vec![to];
        writing.search.logits_processors.forced_bos_token_id = None;
    }
    Ok(writing)
}

fn needed<'a>(name: &str, code: Option<&'a str>) -> Result<&'a str> {
    code.ok_or_else(|| Error::argument(name, "the model supports several languages; name one"))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.strip_suffix(after).filter(|code| !code.is_empty())
}

/// Returns whether a token is a language with a country or a script: `de_DE`, `deu_Latn`.
fn is_code(text: &str) -> bool {
    text.split_once('_').is_some_and(|(code, rest)| {
        (2..=3).contains(&code.len())
            && code.bytes().all(|byte| byte.is_ascii_lowercase())
            && (2..=4).contains(&rest.len())
            && rest.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase())
            && rest.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

/// Returns the languages of the vocabulary's tokens; `code` extracts a language from a token's text.
fn languages(tokenizer: &Tokenizer, code: &dyn Fn(&str) -> Option<&str>) -> Vec<(String, u32)> {
    let language = |id: u32| {
        let text = std::str::from_utf8(tokenizer.token_text(id).ok()?).ok()?;
        Some((code(text)?.to_owned(), id))
    };
    (0..tokenizer.vocabulary_size()).filter_map(language).collect()
}

/// Returns the token of a language.
fn language(tokenizer: &Tokenizer, name: &str, code: &str, known: &[(String, u32)]) -> Result<u32> {
    let spelled = SPELLINGS.iter().find_map(|(before, after)| {
        let id = tokenizer.token_to_id(format!("{before}{code}{after}").as_bytes())?;
        known.iter().any(|(_, known)| *known == id).then_some(id)
    });
    if let Some(id) = spelled {
        return Ok(id);
    }
    let begins = |(known, _): &&(String, u32)| known.split('_').next() == Some(code);
    let mut alike = known.iter().filter(begins);
    match (alike.next(), alike.next()) {
        (Some((_, id)), None) => Ok(*id),
        (Some((first, _)), Some((second, _))) => Err(Error::argument(
            name,
            format!("`{code}` is ambiguous ({first}, {second} or others); use the full code"),
        )),
        (None, _) => {
            let mut codes: Vec<&str> = known.iter().map(|(code, _)| &**code).collect();
            codes.sort_unstable();
            codes.truncate(MAX_LISTED);
            Err(Error::argument(
                name,
                format!("unknown language `{code}`; expected one of {}", codes.join(", ")),
            ))
        }
    }
}
