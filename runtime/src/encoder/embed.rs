//! Texts to vectors.

use serde_json::Value;

use super::sentence::{Dense, Prompt};
use super::text::numbered;
use super::{Encoder, Long, Pooling, Tokens};
use crate::model::Model;
use crate::result_cache::{self, Key};
use crate::{Error, Result};

/// How texts become vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedOptions {
    /// How hidden states become one vector.
    pub pooling: Pooling,
    /// Whether vectors are brought to length one.
    pub normalise: bool,
    /// Columns to keep, for models that were trained to be cut off; 0: all.
    pub columns: usize,
    /// What is done with long texts. The vectors of parts are averaged by their tokens.
    pub long: Long,
    /// What stands before each text.
    pub prompt: Prompt,
}

impl EmbedOptions {
    /// What the model was made for, as far as its source says it: the mean, brought to length one.
    pub fn of(model: &Model) -> Result<Self> {
        let config = model.config();
        let pooling = match config.word(&["sentence_transformers/pooling"])? {
            None => Pooling::default(),
            Some(name) => Pooling::NAMES
                .iter()
                .find(|(_, known)| *known == name)
                .map(|(pooling, _)| *pooling)
                .ok_or_else(|| Error::unsupported("config.sentence_transformers.pooling", name))?,
        };
        let normalise =
            config.get("sentence_transformers/normalise").and_then(Value::as_bool).unwrap_or(true);
        Ok(Self { pooling, normalise, columns: 0, long: Long::Refuse, prompt: Prompt::Usual })
    }

    /// The columns that are wanted of a vector, as long as they are to be.
    fn finish(&self, mut vector: Vec<f32>) -> Result<Vec<f32>> {
        if self.columns > 0 {
            vector.truncate(self.columns);
        }
        if self.normalise {
            normalise(&mut vector);
        }
        Error::unless_finite("vector", &vector)?;
        Ok(vector)
    }
}

impl Encoder {
    /// A vector for each text, in order. The encoder must have been opened without its head, or have none.
    ///
    /// Where the encoder [remembers](Encoder::remember) vectors, only those of texts that are new to it are computed.
    pub fn embed<T: AsRef<str>>(&mut self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        self.check(options)?;
        let prompt = options.prompt.text(&self.config)?;
        if !prompt.is_empty() {
            if matches!(options.long, Long::Window { .. }) {
                let message =
                    "the parts of a long text would lack the prompt; cut texts, or ask for no prompt";
                return Err(Error::unsupported("long", message));
            }
            let texts: Vec<String> = texts.iter().map(|text| format!("{prompt}{}", text.as_ref())).collect();
            return self.embed_prompted(&texts, options);
        }
        self.embed_prompted(texts, options)
    }

    /// The same for texts that have their prompt.
    fn embed_prompted<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<Vec<Vec<f32>>> {
        let Some(memo) = self.memo.clone() else { return self.compute(&numbered(texts), options) };
        let (kind, columns) = (self.cache_type(), self.embedding_columns());
        let columns = if options.columns > 0 { options.columns } else { columns };
        let key = |text: &T| result_cache::embedding_key(&self.model, kind, options, text.as_ref());
        let keys: Vec<Key> = texts.iter().map(key).collect();
        let known = |key: &Key| memo.get(key).and_then(|value| result_cache::numbers_of(&value, columns));
        let mut vectors: Vec<Option<Vec<f32>>> = keys.iter().map(known).collect();
        let mut missing = numbered(texts);
        missing.retain(|(number, _)| vectors[*number].is_none());
        for ((number, _), vector) in missing.iter().zip(self.compute(&missing, options)?) {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            memo.put(keys[*number], &bytes);
            vectors[*number] = Some(vector);
        }
        Ok(vectors.into_iter().flatten().collect())
    }

    /// Vectors of texts, those of parts averaged by their tokens.
    fn compute(&mut self, texts: &[(usize, &str)], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        let parts = self.all_parts(texts, options.long)?;
        let (owners, inputs): (Vec<usize>, Vec<Tokens>) =
            parts.into_iter().map(|(owner, part)| (owner, part.tokens)).unzip();
        if inputs.len() == texts.len() {
            return self.embed_tokens(&inputs, options);
        }
        let parts = self.embed_tokens(&inputs, &EmbedOptions { normalise: false, ..*options })?;
        let mut all = owners.iter().zip(&inputs).zip(parts).peekable();
        let mut vectors = Vec::with_capacity(texts.len());
        while let Some(((&owner, tokens), mut vector)) = all.next() {
            let mut count = tokens.ids.len() as f32;
            let mut next = || all.next_if(|((other, _), _)| **other == owner);
            // A text of one part has its vector, as if it were alone.
            if let Some(second) = next() {
                vector.iter_mut().for_each(|x| *x *= count);
                for ((_, tokens), part) in std::iter::once(second).chain(std::iter::from_fn(next)) {
                    let weight = tokens.ids.len() as f32;
                    vector.iter_mut().zip(&part).for_each(|(sum, x)| *sum += weight * x);
                    count += weight;
                }
                vector.iter_mut().for_each(|sum| *sum /= count);
            }
            vectors.push(options.finish(vector)?);
        }
        Ok(vectors)
    }

    /// Whether the encoder can do what is wanted.
    fn check(&self, options: &EmbedOptions) -> Result<()> {
        if self.head() != crate::graph::Head::Hidden {
            let message = "vectors are made of hidden states; open the encoder without its head";
            return Err(Error::argument("encoder", message));
        }
        let columns = self.embedding_columns();
        if options.columns > columns {
            let message = format!("{} columns; the model has {columns}", options.columns);
            return Err(Error::argument("columns", message));
        }
        Ok(())
    }

    /// The same for texts as tokens, which have their prompt where they are to have one.
    pub fn embed_tokens(&mut self, texts: &[Tokens], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        self.check(options)?;
        let dense = std::mem::take(&mut self.dense);
        let outcome = self.pool(texts, options, &dense);
        self.dense = dense;
        outcome
    }

    fn pool(&mut self, texts: &[Tokens], options: &EmbedOptions, dense: &[Dense]) -> Result<Vec<Vec<f32>>> {
        let mut vectors = vec![Vec::new(); texts.len()];
        self.read(texts, options.pooling.wanted(), &mut |index, outputs| {
            let pooled = options.pooling.pool(outputs);
            let vector = dense.iter().try_fold(pooled, |vector, layer| layer.apply(&vector))?;
            vectors[index] = options.finish(vector)?;
            Ok(())
        })?;
        Ok(vectors)
    }
}

/// Divides by the length; a vector of zeros stays one.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}
