//! From what is said to tokens.

use super::{GenerateOptions, Generation, Session};
use crate::model::Model;
use crate::template::{ChatTemplate, Data, Date, Message, RenderOptions};
use crate::text::TextStream;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::writer::start_tokens;
use crate::{Error, ErrorKind, Result};

/// How often a message is looked through for control tokens that only appear when others are broken.
const MOST_ROUNDS: usize = 16;

impl Session {
    /// The tokens that have to follow for the model to answer `prompt`.
    pub(super) fn prompt_tokens(&mut self, prompt: &str, options: GenerateOptions) -> Result<Vec<u32>> {
        let model = self.model.clone();
        let tokenizer = model.tokenizer()?;
        if model.graphs().encoder.is_some() {
            let encode = EncodeOptions { add_special: true, parse_special: options.special };
            self.read(&tokenizer.encode(prompt, encode)?.into())?;
            return start_tokens(&model);
        }
        let template = if options.raw { None } else { model.template()? };
        let Some(template) = template else {
            let add_special = self.position() == 0;
            let options = EncodeOptions { add_special, parse_special: options.special };
            let mut tokens = tokenizer.encode(prompt, options)?;
            tokens.splice(0..0, self.unread);
            return Ok(tokens);
        };
        self.messages.push(Message::new("user", prompt));
        let tokens = conversation(tokenizer, &template, &self.messages)?;
        self.keep_common(&tokens)
    }

    /// Begins the answer to a whole conversation, which takes the place of what was said before. What it shares with
    /// that is not read again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the model has no chat template.
    pub fn converse(&mut self, messages: &[Message], options: GenerateOptions) -> Result<Generation> {
        let stream = TextStream::new(&self.options.stop)?;
        let model = self.model.clone();
        let template = model.template()?.ok_or_else(|| {
            Error::unsupported("model", "it has no chat template; give it a text to go on from")
        })?;
        if model.graphs().encoder.is_some() {
            return Err(Error::unsupported("model", "it makes a text of a text and does not chat"));
        }
        let tokens = conversation(model.tokenizer()?, &template, messages)?;
        let rest = self.keep_common(&tokens)?;
        self.prefill(&rest)?;
        self.messages = messages.to_vec();
        Ok(self.begun(stream, GenerateOptions { raw: false, ..options }))
    }
}

/// The tokens that a fresh session of `model` reads to answer `prompt` after `messages`.
pub(crate) fn first_tokens(
    model: &Model,
    messages: &[Message],
    prompt: &str,
    options: GenerateOptions,
) -> Result<Vec<u32>> {
    let tokenizer = model.tokenizer()?;
    let template = if options.raw { None } else { model.template()? };
    match template {
        Some(template) => {
            let messages = [messages, &[Message::new("user", prompt)]].concat();
            conversation(tokenizer, &template, &messages)
        }
        None => tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: options.special }),
    }
}

/// The tokens of a conversation. Control tokens come from the template alone: what a message spells stays text.
fn conversation(tokenizer: &Tokenizer, template: &ChatTemplate, messages: &[Message]) -> Result<Vec<u32>> {
    let text = |id: Option<u32>| {
        id.and_then(|id| tokenizer.token_text(id).ok()).map(|text| String::from_utf8_lossy(text).into_owned())
    };
    let options = RenderOptions {
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        now: Some(Date::now()),
        ..RenderOptions::default()
    };
    let (messages, marker) = marked(tokenizer, messages)?;
    let rendered = template.render(&Data::from(messages.as_slice()), &options)?;
    let mut text = String::with_capacity(rendered.len());
    let mut guards = Vec::new();
    for character in rendered.chars() {
        if character == marker {
            guards.push(text.len());
        } else {
            text.push(character);
        }
    }
    let options = EncodeOptions { add_special: false, parse_special: true };
    let mut tokens = tokenizer.encode_guarded(&text, &guards, options)?;
    if tokenizer.add_bos() && tokens.first().copied() != tokenizer.bos() {
        tokens.splice(0..0, tokenizer.bos());
    }
    Ok(tokens)
}

/// The messages, a marker that none of them holds standing between the characters of every control token that
/// they spell. Templates handle it as any other character of the message.
fn marked(tokenizer: &Tokenizer, messages: &[Message]) -> Result<(Vec<Message>, char)> {
    let held = |marker: char| {
        messages.iter().any(|message| message.content.contains(marker) || message.role.contains(marker))
    };
    let marker = ('\u{F0000}'..='\u{FFFFD}').find(|&marker| !held(marker)).ok_or_else(|| {
        Error::argument("messages", "hold every character of a private plane; take some of them out")
    })?;
    let mark = |message: &Message| {
        let [role, content] = [&message.role, &message.content].map(|text| break_up(tokenizer, text, marker));
        Ok(Message::new(role?, content?))
    };
    Ok((messages.iter().map(mark).collect::<Result<_>>()?, marker))
}

fn break_up(tokenizer: &Tokenizer, text: &str, marker: char) -> Result<String> {
    let mut text = text.to_owned();
    for _ in 0..MOST_ROUNDS {
        let spans = tokenizer.control_spans(&text)?;
        if spans.is_empty() {
            return Ok(text);
        }
        let mut broken = String::with_capacity(text.len() * 2);
        let mut spans = spans.into_iter().peekable();
        for (at, character) in text.char_indices() {
            broken.push(character);
            while spans.next_if(|span| span.end <= at).is_some() {}
            if spans.peek().is_some_and(|span| span.contains(&at)) && character != marker {
                broken.push(marker);
            }
        }
        text = broken;
    }
    let message = "spells control tokens inside each other; take them out";
    Err(Error::new(ErrorKind::Argument, "messages", message))
}
