//! Texts to vectors.

use serde_json::Value;

use super::{Encoder, Long, Pooling, Tokens};
use crate::arch::Config;
use crate::model::Model;
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
}

impl EmbedOptions {
    /// What the model was made for, as far as its source says it: the mean, brought to length one.
    pub fn of(model: &Model) -> Result<Self> {
        let config = Config::new(model.file().metadata().config.clone());
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
        Ok(Self { pooling, normalise, columns: 0, long: Long::Refuse })
    }
}

impl Encoder {
    /// A vector for each text, in order. The encoder must have been opened without its head, or have none.
    pub fn embed<T: AsRef<str>>(&mut self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        let (mut inputs, mut owners) = (Vec::new(), Vec::new());
        for (index, text) in texts.iter().enumerate() {
            let parts = self.parts(text.as_ref(), options.long);
            for part in parts.map_err(|error| error.within(&format!("text {index}")))? {
                inputs.push(part.tokens);
                owners.push(index);
            }
        }
        if inputs.len() == texts.len() {
            return self.embed_tokens(&inputs, options);
        }
        let parts = self.embed_tokens(&inputs, &EmbedOptions { normalise: false, ..*options })?;
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut counts = vec![0.0_f32; texts.len()];
        for ((part, tokens), &owner) in parts.iter().zip(&inputs).zip(&owners) {
            let (vector, count): (&mut Vec<f32>, f32) = (&mut vectors[owner], tokens.ids.len() as f32);
            vector.resize(part.len(), 0.0);
            vector.iter_mut().zip(part).for_each(|(sum, x)| *sum += count * x);
            counts[owner] += count;
        }
        for (vector, count) in vectors.iter_mut().zip(counts) {
            vector.iter_mut().for_each(|sum| *sum /= count);
            if options.normalise {
                normalise(vector);
            }
        }
        Ok(vectors)
    }

    /// The same for texts as tokens.
    pub fn embed_tokens(&mut self, texts: &[Tokens], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        if self.head() != crate::graph::Head::Hidden {
            let message = "vectors are made of hidden states; open the encoder without its head";
            return Err(Error::argument("encoder", message));
        }
        if options.columns > self.columns() {
            let message = format!("{} columns; the model has {}", options.columns, self.columns());
            return Err(Error::argument("columns", message));
        }
        let mut vectors = vec![Vec::new(); texts.len()];
        self.read(texts, options.pooling.wanted(), &mut |index, outputs| {
            let mut vector = options.pooling.pool(outputs);
            if options.columns > 0 {
                vector.truncate(options.columns);
            }
            if options.normalise {
                normalise(&mut vector);
            }
            vectors[index] = vector;
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
