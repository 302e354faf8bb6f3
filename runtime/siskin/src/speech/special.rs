//! The special tokens of a Whisper model, and those that are never generated.

use crate::logits_processors::LogitsProcessorOptions;
use crate::logits_processors::from_config::tokens;
use crate::model::Model;
use crate::{Error, ErrorKind, Result};

/// Models with a smaller vocabulary are English-only.
const MULTILINGUAL: usize = 51_865;

/// The ids of special tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Special {
    /// `<|endoftext|>`. Text tokens have smaller ids.
    pub end: u32,
    /// `<|startoftranscript|>`.
    pub start: u32,
    /// `<|startofprev|>`: precedes the previous text.
    pub previous: Option<u32>,
    /// The task token for transcription; absent in English-only models.
    pub transcribe: Option<u32>,
    /// The task token for translation to English.
    pub translate: Option<u32>,
    /// The token for no speech.
    pub silence: Option<u32>,
    /// `<|notimestamps|>`.
    pub no_times: u32,
    /// The timestamp 0. Later ones follow in steps of 20 ms, up to the end of the vocabulary.
    pub times: u32,
    /// Language codes such as `en`, and their tokens; empty for models of one language.
    pub languages: Vec<(String, u32)>,
    /// Suppressed tokens, also those suppressed only as the first token, and the end token.
    pub rules: LogitsProcessorOptions,
}

impl Special {
    /// Returns the special tokens of a model, by their text and by the model's config.
    pub(super) fn of(model: &Model) -> Result<Self> {
        let tokenizer = model.tokenizer()?;
        let find = |names: &[&str]| {
            let id = |name: &&str| tokenizer.token_to_id(name.as_bytes());
            names.iter().find_map(id).filter(|&id| (id as usize) < model.config().vocabulary)
        };
        let need = |name: &str| {
            let message = format!("no token {name}: this is not the tokenizer of a Whisper model");
            find(&[name]).ok_or_else(|| Error::new(ErrorKind::Missing, "tokenizer", message))
        };
        let start = need("<|startoftranscript|>")?;
        let no_times = need("<|notimestamps|>")?;
        let is_multilingual = model.config().vocabulary >= MULTILINGUAL;
        let translate = find(&["<|translate|>"]).filter(|_| is_multilingual);
        let code = |id: u32| {
            let text = std::str::from_utf8(tokenizer.token_text(id).ok()?).ok()?;
            Some((text.strip_prefix("<|")?.strip_suffix("|>")?.to_owned(), id))
        };
        let languages = (start + 1..translate.unwrap_or(0)).filter_map(code).collect();
        let config = model.config_reader();
        Ok(Self {
            end: need("<|endoftext|>")?,
            start,
            previous: find(&["<|startofprev|>"]),
            transcribe: find(&["<|transcribe|>"]).filter(|_| is_multilingual),
            translate,
            silence: find(&["<|nospeech|>", "<|nocaptions|>"]),
            no_times,
            times: no_times + 1,
            languages,
            rules: LogitsProcessorOptions {
                eos_token_ids: vec![need("<|endoftext|>")?],
                suppress: tokens(&config, "suppress_tokens"),
                suppress_first: tokens(&config, "begin_suppress_tokens"),
                ..LogitsProcessorOptions::default()
            },
        })
    }

    /// Returns the token of a language.
    pub(super) fn language(&self, code: &str) -> Result<u32> {
        let known = self.languages.iter().find(|(known, _)| known == code);
        known.map(|(_, id)| *id).ok_or_else(|| {
            let codes: Vec<&str> = self.languages.iter().map(|(code, _)| &**code).collect();
            let message = match codes.is_empty() {
                true => format!("`{code}`, but the model only supports English; leave out the language"),
                false => format!("unknown language `{code}`; expected one of {}", codes.join(", ")),
            };
            Error::argument("language", message)
        })
    }
}
