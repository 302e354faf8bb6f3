//! Cached responses: looked up by the exact prompt, or by the similarity of its embedding (semantic cache).

use super::{Key, ResultCache, SimilarityHit, options};
use crate::encoder::{EmbedOptions, Encoder};
use crate::model::Model;
use crate::session::{FinishReason, GenerateOptions, SessionOptions, first_tokens};
use crate::{Error, Result};
use siskin_chat_template::Message;

/// The first prompt of a session, with everything that its response depends on.
///
/// This includes sampling: to be found, a prompt must come with the same options and, unless the temperature is zero,
/// with the same seed.
#[derive(Clone, Debug)]
pub struct CacheQuery {
    prompt: String,
    /// The key of the prompt's tokens and everything below.
    key: Key,
    /// The key of everything except the prompt; `None` if the chat template rejects empty messages.
    around: Option<Key>,
    /// The index of comparable prompts, and the embedding of this one.
    meaning: Option<(Key, Vec<f32>)>,
}

/// A cached response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedAnswer {
    /// Its text.
    pub text: String,
    /// The number of generated tokens.
    pub tokens: usize,
    /// The finish reason.
    pub finish_reason: FinishReason,
}

impl CacheQuery {
    /// Creates the lookup of `prompt` after `messages`, in a new session with these options.
    pub fn new(
        model: &Model,
        messages: &[Message],
        prompt: &str,
        session: &SessionOptions,
        generate: GenerateOptions,
    ) -> Result<Self> {
        if model.graphs().encoder.is_some() {
            return Err(Error::unsupported("model", "responses of encoder–decoder models cannot be cached"));
        }
        let tokens = |prompt| -> Result<Vec<u8>> {
            let tokens = first_tokens(model, messages, prompt, (&session.template, generate))?;
            Ok(tokens.iter().flat_map(|token| token.to_le_bytes()).collect())
        };
        let options = options::of_generation(session, generate);
        let model = Key::of_model(model, model.loaded().adapter_slot(session.adapter.as_deref())?);
        let key = |prompt| Ok::<_, Error>(Key::of("answer", &[model.bytes(), &options, &tokens(prompt)?]));
        // Messages and template variables surround any prompt in the same way.
        let (key, around) = (key(prompt)?, key("").ok());
        Ok(Self { prompt: prompt.to_owned(), key, around, meaning: None })
    }

    /// Computes the embedding of the prompt. Prompts are only compared if they are for the same model, options and
    /// previous messages, and were embedded by the same encoder with the same options. Without effect if the chat
    /// template rejects an empty prompt, which is how messages around a prompt are compared.
    pub fn embed(&mut self, encoder: &mut Encoder, options: &EmbedOptions) -> Result<()> {
        let Some(around) = self.around else { return Ok(()) };
        let by = Key::of_model(encoder.model(), options.adapter);
        let embedding = options::of_embedding(encoder.cache_type(), options);
        let index = Key::of("meaning", &[around.bytes(), by.bytes(), &embedding]);
        let vector = encoder.embed(&[&self.prompt], options)?.pop().unwrap_or_default();
        self.meaning = Some((index, vector));
        Ok(())
    }
}

impl ResultCache {
    /// Returns the response to exactly this prompt.
    pub fn answer(&self, question: &CacheQuery) -> Option<CachedAnswer> {
        CachedAnswer::from_bytes(&self.get(&question.key)?)
    }

    /// Returns the response to the most similar prompt and their cosine similarity, if that is at least `least`. `None`
    /// without [`CacheQuery::embed`].
    pub fn similar_answer(&self, question: &CacheQuery, least: f32) -> Option<(CachedAnswer, f32)> {
        let (index, vector) = question.meaning.as_ref()?;
        let SimilarityHit { value, similarity } = self.similar(index, vector, least)?;
        Some((CachedAnswer::from_bytes(&value)?, similarity))
    }

    /// Stores the response to a prompt.
    pub fn insert_answer(&self, question: &CacheQuery, answer: &CachedAnswer) -> Result<()> {
        let value = answer.to_bytes();
        match &question.meaning {
            Some((index, vector)) => self.insert_with_embedding(question.key, *index, vector, &value),
            None => {
                self.insert(question.key, &value);
                Ok(())
            }
        }
    }
}

/// Finish reasons by number.
const ENDS: [FinishReason; 4] =
    [FinishReason::Eos, FinishReason::Stop, FinishReason::Length, FinishReason::Context];

impl CachedAnswer {
    fn to_bytes(&self) -> Vec<u8> {
        let reason = ENDS.iter().position(|reason| *reason == self.finish_reason).unwrap_or(0);
        let mut bytes = vec![reason as u8];
        bytes.extend((self.tokens as u64).to_le_bytes());
        bytes.extend(self.text.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&reason, rest) = bytes.split_first()?;
        let (tokens, text) = rest.split_first_chunk::<8>()?;
        Some(Self {
            text: std::str::from_utf8(text).ok()?.to_owned(),
            tokens: usize::try_from(u64::from_le_bytes(*tokens)).ok()?,
            finish_reason: *ENDS.get(usize::from(reason))?,
        })
    }
}
