//! What a generated text depends on: an answer is found again by its prompt, or by what the prompt means.

use super::{Key, Memo, Near};
use crate::encoder::{EmbedOptions, Encoder};
use crate::model::Model;
use crate::session::{Ended, GenerateOptions, SessionOptions, first_tokens};
use crate::template::Message;
use crate::{Error, Result};

/// The first question to a session of a model, with everything that its answer depends on.
///
/// Sampling is part of it: to be found again, a question must come with the same options and, unless the temperature is
/// zero, with the same seed.
#[derive(Clone, Debug)]
pub struct Question {
    prompt: String,
    /// Of the tokens that the model reads.
    key: Key,
    /// Of everything but the prompt.
    around: Key,
    /// Where questions that mean the same are, and what this one means.
    meaning: Option<(Key, Vec<f32>)>,
}

/// An answer that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its text.
    pub text: String,
    /// How many tokens it took.
    pub tokens: usize,
    /// Why it ended.
    pub ended: Ended,
}

impl Question {
    /// The question `prompt` after `messages`, to a fresh session with these options.
    pub fn new(
        model: &Model,
        messages: &[Message],
        prompt: &str,
        session: &SessionOptions,
        generate: GenerateOptions,
    ) -> Result<Self> {
        if model.graphs().encoder.is_some() {
            return Err(Error::unsupported("model", "what it writes depends on a text that it reads first"));
        }
        let tokens = first_tokens(model, messages, prompt, generate)?;
        let tokens: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        // How prompts are cut changes no answer, and no random number is drawn for greedy ones.
        let mut session = SessionOptions { batch: 0, text: 0, ..session.clone() };
        if session.sampler.temperature == 0.0 {
            session.sampler.seed = 0;
        }
        let options = format!("{session:?} {generate:?}");
        let model = Key::of_model(model);
        let key = Key::of("answer", &[model.bytes(), options.as_bytes(), &tokens]);
        let around =
            Key::of("questions", &[model.bytes(), options.as_bytes(), format!("{messages:?}").as_bytes()]);
        Ok(Self { prompt: prompt.to_owned(), key, around, meaning: None })
    }

    /// Finds out what the prompt means. Only questions to the same model, with the same options and after the same
    /// messages, whose meaning was found by the same encoder, are compared with it.
    pub fn understand(&mut self, encoder: &mut Encoder, options: &EmbedOptions) -> Result<()> {
        let by = Key::of_model(encoder.model());
        let options_text = format!("{:?} {options:?}", encoder.cache_type());
        let shelf = Key::of("meaning", &[self.around.bytes(), by.bytes(), options_text.as_bytes()]);
        let vector = encoder.embed(&[&self.prompt], options)?.pop().unwrap_or_default();
        self.meaning = Some((shelf, vector));
        Ok(())
    }
}

impl Memo {
    /// The answer to exactly this question.
    pub fn recall(&self, question: &Question) -> Option<Answered> {
        Answered::from_bytes(&self.get(&question.key)?)
    }

    /// The answer to the question that means nearly the same, and how like they are, where the cosine of the angle
    /// between their meanings is at least `least`. Nothing where the meaning was not found out.
    pub fn recall_near(&self, question: &Question, least: f32) -> Option<(Answered, f32)> {
        let (shelf, vector) = question.meaning.as_ref()?;
        let Near { value, likeness } = self.near(shelf, vector, least)?;
        Some((Answered::from_bytes(&value)?, likeness))
    }

    /// Stores the answer to a question.
    pub fn keep(&self, question: &Question, answer: &Answered) -> Result<()> {
        let value = answer.to_bytes();
        match &question.meaning {
            Some((shelf, vector)) => self.put_near(question.key, *shelf, vector, &value),
            None => {
                self.put(question.key, &value);
                Ok(())
            }
        }
    }
}

/// Why answers end, by number.
const ENDS: [Ended; 4] = [Ended::Model, Ended::StopText, Ended::Length, Ended::Context];

impl Answered {
    fn to_bytes(&self) -> Vec<u8> {
        let ended = ENDS.iter().position(|ended| *ended == self.ended).unwrap_or(0);
        let mut bytes = vec![ended as u8];
        bytes.extend((self.tokens as u64).to_le_bytes());
        bytes.extend(self.text.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&ended, rest) = bytes.split_first()?;
        let (tokens, text) = rest.split_first_chunk::<8>()?;
        Some(Self {
            text: std::str::from_utf8(text).ok()?.to_owned(),
            tokens: usize::try_from(u64::from_le_bytes(*tokens)).ok()?,
            ended: *ENDS.get(usize::from(ended))?,
        })
    }
}
