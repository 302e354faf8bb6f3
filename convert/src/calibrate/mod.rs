//! What goes into each matrix while a model reads a text, so that weights are rounded where it matters least.
//!
//! For block types, a column's errors count as much as its numbers are large. Row types know how columns go
//! together as well: an error is passed on to the columns that can still make up for it.

mod guide;
mod moments;

pub(crate) use guide::{Guide, Products};

use crate::progress::Progress;
use crate::{Cache, OpenOptions, open_any};
use moments::Moments;
use siskin::tokenizer::EncodeOptions;
use siskin::{Context, Error, ErrorKind, Model, ModelOptions, Observer, Piece, Result, SessionOptions};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens that the model reads at once.
const CHUNK: usize = 512;
/// Chunks that are read, spread over the text.
const CHUNKS: usize = 24;

/// What went into the matrices of a model.
pub struct Calibration {
    /// The moments of each matrix; matrices with the same input share them.
    seen: HashMap<String, Arc<Moments>>,
    /// Tokens that were read.
    tokens: usize,
}

/// Collects, while the model runs.
#[derive(Default)]
struct Collector {
    /// Which moments belong to a matrix.
    names: HashMap<String, usize>,
    moments: Vec<Moments>,
}

impl Observer for Collector {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn see(&mut self, matrices: &[&str], columns: usize, rows: &[f32]) {
        let known = matrices.iter().find_map(|name| self.names.get(*name).copied());
        let index = known.unwrap_or_else(|| {
            self.moments.push(Moments::new(columns));
            self.moments.len() - 1
        });
        for name in matrices {
            self.names.entry((*name).to_owned()).or_insert(index);
        }
        self.moments[index].add(rows);
    }
}

impl Calibration {
    /// Lets the model at `path` read `text`.
    ///
    /// # Errors
    /// Where the model has no tokenizer, or the text is shorter than a chunk of 512 tokens.
    pub fn collect(path: &Path, text: &str, progress: &dyn Progress) -> Result<Self> {
        let file = open_any(path, &OpenOptions { cache: Cache::Off, recipe: None, progress })?;
        let model = Model::from_file(file, &ModelOptions::default())?;
        let tokens = model.tokenizer()?.encode(text, EncodeOptions::default())?;
        let most = tokens.len() / CHUNK;
        if most == 0 {
            let message =
                format!("gives {} tokens; give at least {CHUNK}, better {}", tokens.len(), CHUNK * CHUNKS);
            return Err(Error::new(ErrorKind::Argument, "calibrate", message));
        }
        let chunks = most.min(CHUNKS);
        let options = SessionOptions { context: CHUNK, batch: CHUNK, ..SessionOptions::default() };
        let mut context = model.context(&options, 1, 1)?;
        let collector = Arc::new(Mutex::new(Collector::default()));
        context.observe(Arc::clone(&collector) as Arc<Mutex<dyn Observer>>);
        progress.message("reading");
        progress.total(chunks as u64);
        for chunk in 0..chunks {
            let start = chunk * most / chunks * CHUNK;
            read(&mut context, model.tokenizer()?.bos(), &tokens[start..start + CHUNK])?;
            progress.advance(1);
        }
        drop(context);
        let collector = std::mem::take(&mut *collector.lock().unwrap_or_else(PoisonError::into_inner));
        let moments: Vec<_> = collector.moments.into_iter().map(Arc::new).collect();
        let seen = collector.names.into_iter().map(|(name, index)| (name, Arc::clone(&moments[index])));
        Ok(Self { seen: seen.collect(), tokens: chunks * CHUNK })
    }

    /// Tokens that were read.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// How much an error in each column of the matrix counts, for block types.
    pub(crate) fn importance(&self, matrix: &str) -> Option<Vec<f32>> {
        Some(self.seen.get(matrix)?.squares())
    }

    /// How to round the matrix, for row types.
    pub(crate) fn guide(&self, matrix: &str) -> Option<Guide> {
        Some(Guide::new(self.seen.get(matrix)?))
    }
}

/// Takes a chunk through the model, its first token replaced as the model wants it.
fn read(context: &mut Context, bos: Option<u32>, tokens: &[u32]) -> Result<()> {
    let mut tokens = tokens.to_vec();
    if let (Some(bos), Some(first)) = (bos, tokens.first_mut()) {
        *first = bos;
    }
    let sequence = context.create();
    let outcome = context.forward(&[Piece { sequence, tokens: &tokens, every: false }]);
    context.remove(sequence);
    outcome
}
