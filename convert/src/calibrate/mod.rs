//! Calibration: collects activation statistics of every linear layer while a model runs over a text, for rounding.
//!
//! For block types, a column's squared error is weighted by the mean square of its activations. Row types use the full
//! Hessian as well: a rounding error is propagated to the columns that remain, as in GPTQ.

mod gptq;
mod hessian;

pub(crate) use gptq::{Gptq, OutputErrors};

use crate::progress::ProgressSink;
use crate::{OpenOptions, PackedCache, open_any};
use hessian::Hessian;
use siskin_backend::context::{BatchEntry, Context, DecoderLimits, OutputRows, SequenceInput};
use siskin_backend::loaded_model::{LoadedModel, ModelAdapters, ModelOptions};
use siskin_backend::observer::Observer;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::AdapterSlot;
use siskin_tokenizer::{EncodeOptions, Tokenizer};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens per forward pass, unless the model's context is smaller.
const CHUNK: usize = 512;
/// Number of chunks, evenly spread over the text.
const CHUNKS: usize = 24;

/// The activation statistics of a model.
pub struct Calibration {
    /// The Hessian of each matrix. Matrices with the same input share one.
    seen: HashMap<String, Arc<Hessian>>,
    /// Number of tokens processed.
    tokens: usize,
    /// The factors computed last: matrices with the same input follow each other.
    last: Mutex<Option<(Arc<Hessian>, Arc<Gptq>)>>,
}

/// Collects Hessians while the model runs.
#[derive(Default)]
struct Collector {
    /// Index of the Hessian of each matrix.
    names: HashMap<String, usize>,
    hessians: Vec<Hessian>,
}

impl Observer for Collector {
    fn is_observed(&self, _: &str) -> bool {
        true
    }

    fn observe(&mut self, matrices: &[&str], columns: usize, rows: &[f32]) {
        let known = matrices.iter().find_map(|name| self.names.get(*name).copied());
        let index = known.unwrap_or_else(|| {
            self.hessians.push(Hessian::new(columns));
            self.hessians.len() - 1
        });
        for name in matrices {
            self.names.entry((*name).to_owned()).or_insert(index);
        }
        self.hessians[index].add(rows);
    }
}

impl Calibration {
    /// Runs the model at `path` over `text` and collects statistics.
    ///
    /// # Errors
    /// If the model has no tokenizer, or the text is shorter than one chunk: 512 tokens, or the model's context if that
    /// is smaller.
    pub fn collect(path: &Path, text: &str, progress: &dyn ProgressSink) -> Result<Self> {
        let model = open(path, progress)?;
        let tokenizer = Tokenizer::of(&model.file)?;
        let tokens = tokenizer.encode(text, EncodeOptions::default())?;
        let model_config = &model.config;
        let max = if model.graphs.encoder.is_some() {
            model_config.encoder_context.min(model_config.context)
        } else {
            model_config.context
        };
        let size = CHUNK.min(max.max(1));
        if tokens.len() < size {
            let message = format!(
                "the text has only {} tokens; at least {size} are required, {} or more recommended",
                tokens.len(),
                size * CHUNKS
            );
            return Err(Error::new(ErrorKind::Argument, "calibrate", message));
        }
        Self::read(&model, &chunks(&tokens, size, tokenizer.bos().or(tokenizer.cls())), progress)
    }

    /// Runs the model at `path` over sequences of token ids and collects statistics.
    pub fn collect_tokens(path: &Path, texts: &[Vec<u32>], progress: &dyn ProgressSink) -> Result<Self> {
        Self::read(&open(path, progress)?, texts, progress)
    }

    fn read(model: &Arc<LoadedModel>, texts: &[Vec<u32>], progress: &dyn ProgressSink) -> Result<Self> {
        if model.config.features > 0 {
            return Err(Error::unsupported(
                "model",
                "audio models cannot be calibrated; calibration needs text",
            ));
        }
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let limits = DecoderLimits {
            context: longest,
            batch: longest,
            encoder_context: longest,
            ..DecoderLimits::default()
        };
        let mut context = Context::new(Arc::clone(model), &model.context_options(&limits, 1, 1)?, None)?;
        let collector = Arc::new(Mutex::new(Collector::default()));
        context.observe(Arc::clone(&collector) as Arc<Mutex<dyn Observer>>)?;
        progress.message("reading");
        progress.total(texts.len() as u64);
        for tokens in texts {
            let sequence = context.create();
            let outcome = see(model, &mut context, sequence, tokens);
            context.remove(sequence);
            outcome?;
            progress.advance(1);
            if progress.canceled() {
                return Err(Error::canceled(""));
            }
        }
        drop(context);
        let collector = std::mem::take(&mut *collector.lock().unwrap_or_else(PoisonError::into_inner));
        let hessians: Vec<_> = collector.hessians.into_iter().map(Arc::new).collect();
        let seen = collector.names.into_iter().map(|(name, index)| (name, Arc::clone(&hessians[index])));
        let tokens = texts.iter().map(Vec::len).sum();
        Ok(Self { seen: seen.collect(), tokens, last: Mutex::default() })
    }

    /// Returns the number of tokens processed.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the weight of each column's squared error, for block types.
    pub(crate) fn importance(&self, matrix: &str) -> Option<Vec<f32>> {
        Some(self.seen.get(matrix)?.squares())
    }

    /// Returns the GPTQ factors of the matrix, for row types.
    pub(crate) fn guide(&self, matrix: &str) -> Option<Arc<Gptq>> {
        let hessian = self.seen.get(matrix)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, guide)) if Arc::ptr_eq(of, hessian) => Some(Arc::clone(guide)),
            _ => {
                let guide = Arc::new(Gptq::new(hessian)?);
                *last = Some((Arc::clone(hessian), Arc::clone(&guide)));
                Some(guide)
            }
        }
    }
}

/// Runs the tokens through the encoder, the decoder, or both.
fn see(model: &Arc<LoadedModel>, context: &mut Context, sequence: usize, tokens: &[u32]) -> Result<()> {
    if model.graphs.encoder.is_some() {
        let outputs = OutputRows::None;
        let (token_type_ids, features, global_positions, padding_token) = (&[][..], &[][..], &[][..], None);
        context.encode(&[SequenceInput {
            sequence,
            tokens,
            token_type_ids,
            features,
            global_positions,
            padding_token,
            adapter: AdapterSlot::MODEL,
            outputs,
        }])?;
    }
    match model.graphs.decoder {
        Some(_) => context.forward(&[BatchEntry::new(sequence, tokens, OutputRows::Last)]),
        None => Ok(()),
    }
}

/// Cuts up to [`CHUNKS`] chunks of `size` tokens, evenly spread over `tokens`. Each starts with `bos` if there is one.
fn chunks(tokens: &[u32], size: usize, bos: Option<u32>) -> Vec<Vec<u32>> {
    let available = tokens.len() / size;
    let count = available.min(CHUNKS);
    let chunk = |index: usize| {
        let mut chunk = tokens[index * available / count * size..][..size].to_vec();
        chunk[0] = bos.unwrap_or(chunk[0]);
        chunk
    };
    (0..count).map(chunk).collect()
}

fn open(path: &Path, progress: &dyn ProgressSink) -> Result<Arc<LoadedModel>> {
    let file = open_any(path, &OpenOptions { cache: PackedCache::Off, recipe: None, progress })?;
    LoadedModel::new(file, ModelAdapters::None, &ModelOptions::default()).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    #[test]
    fn models_that_read_whole_texts_are_seen_as_well() {
        for (name, matrices) in [
            ("bert", &["blk.0.attn_q.weight", "blk.1.ffn_down.weight"][..]),
            (
                "t5",
                &[
                    "enc.blk.0.ffn_down.weight",
                    "dec.blk.2.cross_attn_q.weight",
                    "dec.blk.0.cross_attn_k.weight",
                ],
            ),
        ] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden-texts").join(name);
            let texts = [vec![5, 6, 7, 8], vec![9, 10]];
            let seen = Calibration::collect_tokens(&path, &texts, &NoProgress).unwrap();
            for matrix in matrices {
                let importance = seen.importance(matrix).unwrap_or_default();
                assert!(importance.iter().any(|&x| x > 0.0), "{name}: {matrix}");
            }
        }
    }

    #[test]
    fn chunks_are_spread_and_no_longer_than_asked_for() {
        let tokens: Vec<u32> = (0..1000).collect();
        let of_ten = chunks(&tokens, 10, Some(7777));
        assert_eq!(of_ten.len(), CHUNKS);
        assert!(of_ten.iter().all(|chunk| chunk.len() == 10 && chunk[0] == 7777));
        assert_eq!((of_ten[0][9], of_ten[CHUNKS - 1][1]), (9, 951));
        assert_eq!(chunks(&tokens, 400, None), [tokens[..400].to_vec(), tokens[400..800].to_vec()]);
    }
}
