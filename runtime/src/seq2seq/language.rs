//! How models of many languages are told which ones: by a task's name, or by tokens.

use super::Writing;
use crate::arch::Config;
use crate::logits_processors::of::tokens;
use crate::model::Model;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// The languages that the tasks of T5 name.
const NAMES: &[(&str, &str)] = &[("en", "English"), ("de", "German"), ("fr", "French"), ("ro", "Romanian")];

/// The most languages that an error lists.
const MOST_LISTED: usize = 200;

/// How the tokens of languages are spelt: around a code, or the code itself with more behind it.
const SPELLINGS: &[(&str, &str)] = &[("", ""), ("__", "__"), (">>", "<<"), ("<2", ">")];

impl Writing {
    /// A translation. Languages are named as the model names them (`de_DE`, `deu_Latn`, `German`), or by the code with
    /// which its own name begins. Models of one pair of languages need none.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] where the model has no such language, or needs to be told one and is not.
    pub fn translation(model: &Model, from: Option<&str>, to: Option<&str>) -> Result<Self> {
        reads(model, "translate")?;
        let config = model.config();
        let tokenizer = model.tokenizer()?;
        match (model.family(), config.word(&["model_type"])?.unwrap_or_default()) {
            ("t5" | "switch", _) => by_name(model, tokenizer, from, to),
            (_, "mbart" | "m2m_100" | "nllb") => by_tokens(model, &config, tokenizer, from, to),
            _ => by_first_token(model, tokenizer, to),
        }
    }
}

/// Refuses models that only write on from what they are given.
pub(super) fn reads(model: &Model, what: &str) -> Result<()> {
    if model.graphs().encoder.is_some() {
        return Ok(());
    }
    let message = format!("it writes on from texts and was not made to {what} them; ask it in a prompt");
    Err(Error::unsupported("model", message))
}

/// T5: the task's name stands before the text, or a token of the language.
fn by_name(model: &Model, tokenizer: &Tokenizer, from: Option<&str>, to: Option<&str>) -> Result<Writing> {
    let to = needed("to", to)?;
    if tokenizer.token_to_id(format!("<2{to}>").as_bytes()).is_some() {
        return by_first_token(model, tokenizer, Some(to));
    }
    let from = needed("from", from)?;
    let writing = Writing::task(model, &[&format!("translation_{from}_to_{to}")])?;
    if !writing.before.is_empty() {
        return Ok(writing);
    }
    let name = |code: &str| {
        let known = NAMES.iter().find(|(known, _)| *known == code);
        known.map_or_else(|| code.to_owned(), |(_, name)| (*name).to_owned())
    };
    Ok(Writing { before: format!("translate {} to {}: ", name(from), name(to)), ..writing })
}

/// Marian and others: a token of the language to be written stands before the text, where the model has such tokens.
fn by_first_token(model: &Model, tokenizer: &Tokenizer, to: Option<&str>) -> Result<Writing> {
    let writing = Writing::task(model, &["translation"])?;
    let known = languages(tokenizer, &|text| between(text, ">>", "<<").or(between(text, "<2", ">")));
    if known.is_empty() {
        return Ok(writing);
    }
    let id = language(tokenizer, "to", needed("to", to)?, &known)?;
    let end = tokenizer.eos().filter(|_| tokenizer.add_eos() || adds_end(tokenizer));
    Ok(Writing { around: Some((vec![id], end.into_iter().collect())), ..writing })
}

/// Whether the tokenizer puts its end behind a text.
fn adds_end(tokenizer: &Tokenizer) -> bool {
    let options = crate::tokenizer::EncodeOptions { add_special: true, parse_special: false };
    tokenizer.encode("a", options).is_ok_and(|ids| ids.last().copied() == tokenizer.eos())
}

/// MBART, M2M100 and NLLB: a token of its language stands beside the source, and the text is made to begin with one.
fn by_tokens(
    model: &Model,
    config: &Config,
    tokenizer: &Tokenizer,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Writing> {
    let mut writing = Writing::task(model, &["translation"])?;
    let known =
        languages(tokenizer, &|text| between(text, "__", "__").or(Some(text).filter(|text| is_code(text))));
    let from = language(tokenizer, "from", needed("from", from)?, &known)?;
    let to = language(tokenizer, "to", needed("to", to)?, &known)?;
    let ends = tokens(config, "eos_token_id");
    let end = ends.first().copied().or(tokenizer.eos()).ok_or_else(|| {
        Error::new(ErrorKind::Missing, "config.eos_token_id", "does not say which token ends a text")
    })?;
    let start = tokens(config, "decoder_start_token_id");
    if start.first().is_none_or(|start| *start == end) {
        writing.around = Some((vec![from], vec![end]));
        writing.search.rules.forced_first = Some(to);
    } else {
        // The first MBART: languages stand behind the source, and the text begins behind one.
        writing.around = Some((Vec::new(), vec![end, from]));
        writing.start = vec![to];
        writing.search.rules.forced_first = None;
    }
    Ok(writing)
}

fn needed<'a>(name: &str, code: Option<&'a str>) -> Result<&'a str> {
    code.ok_or_else(|| Error::argument(name, "the model knows many languages; name one"))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.strip_suffix(after).filter(|code| !code.is_empty())
}

/// Whether a token is a language with a country or a script: `de_DE`, `deu_Latn`.
fn is_code(text: &str) -> bool {
    text.split_once('_').is_some_and(|(code, rest)| {
        (2..=3).contains(&code.len())
            && code.bytes().all(|byte| byte.is_ascii_lowercase())
            && (2..=4).contains(&rest.len())
            && rest.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase())
            && rest.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

/// The languages that tokens stand for, by what `code` finds in their spelling.
fn languages(tokenizer: &Tokenizer, code: &dyn Fn(&str) -> Option<&str>) -> Vec<(String, u32)> {
    let language = |id: u32| {
        let text = std::str::from_utf8(tokenizer.token_text(id).ok()?).ok()?;
        Some((code(text)?.to_owned(), id))
    };
    (0..tokenizer.vocabulary_size()).filter_map(language).collect()
}

/// The token of a language.
fn language(tokenizer: &Tokenizer, name: &str, code: &str, known: &[(String, u32)]) -> Result<u32> {
    let spelt = SPELLINGS.iter().find_map(|(before, after)| {
        let id = tokenizer.token_to_id(format!("{before}{code}{after}").as_bytes())?;
        known.iter().any(|(_, known)| *known == id).then_some(id)
    });
    if let Some(id) = spelt {
        return Ok(id);
    }
    let begins = |(known, _): &&(String, u32)| known.split('_').next() == Some(code);
    let mut alike = known.iter().filter(begins);
    match (alike.next(), alike.next()) {
        (Some((_, id)), None) => Ok(*id),
        (Some((first, _)), Some((second, _))) => {
            Err(Error::argument(name, format!("`{code}` may be {first}, {second} or others; name it whole")))
        }
        (None, _) => {
            let mut codes: Vec<&str> = known.iter().map(|(code, _)| &**code).collect();
            codes.sort_unstable();
            codes.truncate(MOST_LISTED);
            Err(Error::argument(name, format!("`{code}` is none of {}", codes.join(", "))))
        }
    }
}
