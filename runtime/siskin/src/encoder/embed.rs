//! Text embeddings.

use serde_json::Value;

use super::sentence::{Dense, Prompt};
use super::text::numbered;
use super::{Encoder, EncoderInput, OverflowMode, Pooling, pooling};
use crate::model::Model;
use crate::result_cache::{self, Key};
use crate::{Error, ErrorKind, Result};
use siskin_graph::AdapterSlot;

/// Options for embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedOptions {
    /// How hidden states are pooled into one vector.
    pub pooling: Pooling,
    /// Whether vectors are L2-normalized.
    pub normalize: bool,
    /// The number of leading dimensions to keep, for models trained with Matryoshka representation learning
    /// (arXiv:2205.13147); 0 means all.
    pub dimensions: usize,
    /// How long texts are handled. The vectors of windows are averaged, weighted by their number of tokens.
    pub overflow: OverflowMode,
    /// The prompt before each text.
    pub prompt: Prompt,
    /// The adapter, of those that the model was opened with to choose from; see [`Model::adapter_slot`].
    pub adapter: AdapterSlot,
}

/// Texts in parts that the model accepts.
pub(crate) struct EmbeddingWindows {
    /// The index of the text of each window.
    pub owners: Vec<usize>,
    pub inputs: Vec<EncoderInput>,
}

impl EmbedOptions {
    /// Returns the options that the model was trained with; mean pooling and L2 normalization unless its config says
    /// otherwise.
    pub fn of(model: &Model) -> Result<Self> {
        let config = model.config_reader();
        let pooling = match config.word(&["sentence_transformers/pooling"])? {
            None => Pooling::default(),
            Some(name) => Pooling::NAMES
                .iter()
                .find(|(_, known)| *known == name)
                .map(|(pooling, _)| *pooling)
                .ok_or_else(|| Error::unsupported("config.sentence_transformers.pooling", name))?,
        };
        let normalize =
            config.get("sentence_transformers/normalize").and_then(Value::as_bool).unwrap_or(true);
        let (overflow, prompt) = (OverflowMode::Error, Prompt::Default);
        Ok(Self { pooling, normalize, dimensions: 0, overflow, prompt, adapter: AdapterSlot::MODEL })
    }

    /// Returns the options that give vectors for [`EmbedOptions::join_windows`].
    pub(crate) fn unfinished(&self) -> Self {
        let (overflow, prompt) = (OverflowMode::Error, Prompt::None);
        Self { normalize: false, dimensions: 0, overflow, prompt, ..*self }
    }

    /// Returns the vector of each text from those of its windows, which follow each other: their average, weighted by
    /// their number of tokens.
    pub(crate) fn join_windows(
        &self,
        owners: &[usize],
        lengths: &[usize],
        vectors: Vec<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut windows = owners.iter().zip(lengths).zip(vectors).peekable();
        let mut joined = Vec::new();
        while let Some(((&owner, &length), mut vector)) = windows.next() {
            let mut count = length as f32;
            let mut next = || windows.next_if(|((other, _), _)| **other == owner);
            // A text of a single window keeps its vector bit for bit.
            if let Some(second) = next() {
                vector.iter_mut().for_each(|x| *x *= count);
                for ((_, &length), window) in std::iter::once(second).chain(std::iter::from_fn(next)) {
                    let weight = length as f32;
                    vector.iter_mut().zip(&window).for_each(|(sum, x)| *sum += weight * x);
                    count += weight;
                }
                vector.iter_mut().for_each(|sum| *sum /= count);
            }
            joined.push(self.finish(vector)?);
        }
        Ok(joined)
    }

    /// Truncates and normalizes a vector.
    fn finish(&self, mut vector: Vec<f32>) -> Result<Vec<f32>> {
        if self.dimensions > 0 {
            vector.truncate(self.dimensions);
        }
        if self.normalize {
            normalize(&mut vector);
        }
        Error::unless_finite("vector", &vector)?;
        Ok(vector)
    }
}

impl Encoder {
    /// Returns the embedding of each text, in order. The encoder must have been opened without its head, or the model
    /// must have none.
    ///
    /// With an [embedding cache](Encoder::set_cache), only embeddings that it does not hold are computed.
    pub fn embed<T: AsRef<str>>(&mut self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        match self.prompted(texts, options)? {
            Some(texts) => self.embed_prompted(&texts, options),
            None => self.embed_prompted(texts, options),
        }
    }

    /// Checks the options, and returns the texts with their prompt; `None` if they have none.
    fn prompted<T: AsRef<str>>(&self, texts: &[T], options: &EmbedOptions) -> Result<Option<Vec<String>>> {
        self.check(options)?;
        let prompt = options.prompt.text(&self.config)?;
        if prompt.is_empty() {
            return Ok(None);
        }
        if matches!(options.overflow, OverflowMode::Window { .. }) {
            let message = "windows of a text would lack the prompt; truncate texts, or use no prompt";
            return Err(Error::unsupported("overflow", message));
        }
        Ok(Some(texts.iter().map(|text| format!("{prompt}{}", text.as_ref())).collect()))
    }

    /// Returns the windows of texts, to embed them with others.
    pub(crate) fn embedding_windows<T: AsRef<str>>(
        &self,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<EmbeddingWindows> {
        match self.prompted(texts, options)? {
            Some(texts) => self.windows(&numbered(&texts), options),
            None => self.windows(&numbered(texts), options),
        }
    }

    fn windows(&self, texts: &[(usize, &str)], options: &EmbedOptions) -> Result<EmbeddingWindows> {
        let parts = self.all_parts(texts, options.overflow)?;
        let input = |tokens: EncoderInput| EncoderInput { adapter: options.adapter, ..tokens };
        let (owners, inputs) = parts.into_iter().map(|(owner, part)| (owner, input(part.tokens))).unzip();
        Ok(EmbeddingWindows { owners, inputs })
    }

    /// Returns tokenized texts as windows, each text as one.
    pub(crate) fn embedding_windows_of(
        &self,
        mut inputs: Vec<EncoderInput>,
        options: &EmbedOptions,
    ) -> Result<EmbeddingWindows> {
        self.check(options)?;
        let (max, vocabulary) = (self.max_tokens(), self.model.config().vocabulary);
        for (index, input) in inputs.iter_mut().enumerate() {
            input.adapter = options.adapter;
            if input.ids.len() > max && options.overflow == OverflowMode::Truncate {
                input.ids.truncate(max);
            }
            if input.ids.len() > max {
                let message = format!(
                    "{} tokens, but the model accepts {max}: shorten or truncate it",
                    input.ids.len()
                );
                return Err(Error::new(ErrorKind::TooLong, format!("text {index}"), message));
            }
            if let Some(token) = input.ids.iter().find(|&&token| token as usize >= vocabulary) {
                let message =
                    format!("token {token} is out of range for a vocabulary of {vocabulary} tokens");
                return Err(Error::argument(format!("text {index}"), message));
            }
        }
        let owners = (0..self.lengths(&inputs)?.len()).collect();
        Ok(EmbeddingWindows { owners, inputs })
    }

    /// Returns the embeddings of texts that include their prompt.
    fn embed_prompted<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<Vec<Vec<f32>>> {
        let Some(result_cache) = self.result_cache.clone() else {
            return self.compute(&numbered(texts), options);
        };
        let (kind, all) = (self.cache_type(), self.embedding_dimensions());
        let dimensions = if options.dimensions > 0 { options.dimensions } else { all };
        let key = |text: &T| result_cache::embedding_key(&self.model, kind, options, text.as_ref());
        let keys: Vec<Key> = texts.iter().map(key).collect();
        let known =
            |key: &Key| result_cache.get(key).and_then(|value| result_cache::numbers_of(&value, dimensions));
        let mut vectors: Vec<Option<Vec<f32>>> = keys.iter().map(known).collect();
        let mut missing = numbered(texts);
        missing.retain(|(number, _)| vectors[*number].is_none());
        for ((number, _), vector) in missing.iter().zip(self.compute(&missing, options)?) {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            result_cache.insert(keys[*number], &bytes);
            vectors[*number] = Some(vector);
        }
        Ok(vectors.into_iter().flatten().collect())
    }

    fn compute(&mut self, texts: &[(usize, &str)], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        let EmbeddingWindows { owners, inputs } = self.windows(texts, options)?;
        let vectors = self.embed_tokens(&inputs, &options.unfinished())?;
        let lengths: Vec<usize> = inputs.iter().map(|input| input.ids.len()).collect();
        options.join_windows(&owners, &lengths, vectors)
    }

    /// Checks that the encoder supports the options.
    fn check(&self, options: &EmbedOptions) -> Result<()> {
        if self.head() != siskin_graph::OutputHead::Hidden {
            let message = "embeddings are computed from hidden states; open the encoder without its head";
            return Err(Error::argument("encoder", message));
        }
        let dimensions = self.embedding_dimensions();
        if options.dimensions > dimensions {
            let message = format!("expected at most {dimensions}, got {}", options.dimensions);
            return Err(Error::argument("dimensions", message));
        }
        Ok(())
    }

    /// Returns the embeddings of tokenized texts, which include their prompt if they are to have one. An adapter of the
    /// options replaces those of the texts.
    pub fn embed_tokens(&mut self, texts: &[EncoderInput], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        self.check(options)?;
        let adapted: Vec<EncoderInput>;
        let texts = match options.adapter {
            AdapterSlot::MODEL => texts,
            adapter => {
                adapted = texts.iter().map(|text| EncoderInput { adapter, ..text.clone() }).collect();
                &adapted
            }
        };
        if let Some(batches) = &self.shared_batches {
            self.lengths(texts)?;
            return batches.embed(texts.to_vec(), options, &self.cancel);
        }
        let dense = std::mem::take(&mut self.dense);
        let outcome = self.pool(texts, options, &dense);
        self.dense = dense;
        outcome
    }

    fn pool(
        &mut self,
        texts: &[EncoderInput],
        options: &EmbedOptions,
        dense: &[Dense],
    ) -> Result<Vec<Vec<f32>>> {
        let mut vectors = vec![Vec::new(); texts.len()];
        self.encode(texts, pooling::output_rows(options.pooling), &mut |index, outputs| {
            let pooled = pooling::pool(options.pooling, outputs);
            let vector = dense.iter().try_fold(pooled, |vector, layer| layer.apply(&vector))?;
            vectors[index] = options.finish(vector)?;
            Ok(())
        })?;
        Ok(vectors)
    }
}

/// L2-normalizes a vector; zeros stay zeros.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}
