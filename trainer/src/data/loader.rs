//! The data loader: examples in batches, epoch after epoch.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::permutation::Permutation;
use super::task::{TaskBatch, TrainingTask};
use crate::batch::TrainingBatch;
use crate::loss::Targets;
use crate::random::Random;

/// The first element of the names of random streams.
mod stream {
    pub(super) const ORDER: u64 = 1;
    pub(super) const BATCHES: u64 = 2;
    pub(super) const EXAMPLE: u64 = 3;
}

/// How examples become batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderOptions {
    /// The seed of shuffling and of the tasks' random numbers.
    pub seed: u64,
    /// The maximum number of rows of a batch, of encoder and decoder together. A longer example is a batch by itself.
    pub max_tokens: usize,
    /// The maximum number of examples of a batch; 0: no limit.
    pub max_examples: usize,
    /// The number of examples of a shuffle pool, which are cut into batches together. The last batch of each pool may
    /// be smaller than the others.
    pub pool_size: usize,
    /// Whether the examples of a pool are first sorted by length, so that those of a batch have similar lengths.
    pub group_by_length: bool,
    /// Whether each epoch is shuffled; otherwise examples stay in order.
    pub shuffle: bool,
    /// The number of epochs; 0: unlimited.
    pub epochs: u64,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            max_tokens: 4096,
            max_examples: 0,
            pool_size: 4096,
            group_by_length: true,
            shuffle: true,
            epochs: 0,
        }
    }
}

/// The position of a run in its data: everything needed to resume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The number of completed epochs.
    pub epoch: u64,
    /// The number of batches of this epoch that were returned.
    pub batch: u64,
}

/// A batch, and the position after it.
#[derive(Clone, Debug)]
pub struct LoadedBatch {
    /// The batch.
    pub batch: TrainingBatch,
    /// The targets of its output rows.
    pub targets: Targets,
    /// The indices of its examples.
    pub examples: Vec<usize>,
    /// The position after this batch.
    pub next: Position,
}

/// An iterator of batches. A batch is a function of the task, the options and its position: a loader that starts at a
/// position returns what any other returns there.
pub struct Loader {
    task: Arc<dyn TrainingTask>,
    options: LoaderOptions,
    /// The position of the next batch.
    position: Position,
    order: Option<Permutation>,
    /// The next pool of this epoch.
    pool: usize,
    /// Batches of the previous pool that were not returned yet.
    planned: VecDeque<Vec<usize>>,
    /// Applied to each batch.
    transform: Option<Box<BatchTransform>>,
}

/// Adds something to a batch.
type BatchTransform = dyn Fn(&mut LoadedBatch) -> Result<()> + Send + Sync;

impl Loader {
    /// Creates a loader that starts at a position.
    pub fn new(task: Arc<dyn TrainingTask>, options: LoaderOptions, from: Position) -> Result<Self> {
        if task.count() == 0 {
            return Err(Error::argument("data", "contains no examples; add texts that are not empty"));
        }
        for (name, value) in [("max_tokens", options.max_tokens), ("pool_size", options.pool_size)] {
            if value == 0 {
                return Err(Error::argument(name, "expected at least 1, got 0"));
            }
        }
        let start = Position { epoch: from.epoch, batch: 0 };
        let mut loader = Self {
            task,
            options,
            position: start,
            order: None,
            pool: 0,
            planned: VecDeque::new(),
            transform: None,
        };
        loader.begin(from.epoch);
        while loader.position.batch < from.batch {
            if loader.planned.is_empty() && !loader.plan() {
                let message = format!(
                    "batch {} of an epoch with {} batches; the data or the batch settings differ from \
                     those that the run began with",
                    from.batch, loader.position.batch
                );
                return Err(Error::argument("position", message));
            }
            let left = (from.batch - loader.position.batch).min(loader.planned.len() as u64);
            loader.planned.drain(..left as usize);
            loader.position.batch += left;
        }
        Ok(loader)
    }

    /// Applies a function to each batch before it is returned.
    pub fn and_then(mut self, then: impl Fn(&mut LoadedBatch) -> Result<()> + Send + Sync + 'static) -> Self {
        self.transform = Some(Box::new(then));
        self
    }

    /// Returns the position of the next batch.
    pub fn position(&self) -> Position {
        self.position
    }

    fn begin(&mut self, epoch: u64) {
        self.position = Position { epoch, batch: 0 };
        self.pool = 0;
        self.order = self.options.shuffle.then(|| {
            let mut random = Random::new(self.options.seed, &[stream::ORDER, epoch]);
            Permutation::new(self.task.count() as u64, &mut random)
        });
    }

    /// Plans the batches of the next pool. Returns false at the end of the epoch.
    fn plan(&mut self) -> bool {
        let first = self.pool.saturating_mul(self.options.pool_size);
        let last = first.saturating_add(self.options.pool_size).min(self.task.count());
        if first >= last {
            return false;
        }
        let at = |place: usize| match &self.order {
            Some(order) => order.at(place as u64) as usize,
            None => place,
        };
        let measured = |place: usize| (self.task.rows(at(place)), at(place));
        let mut examples: Vec<(usize, usize)> = (first..last).map(measured).collect();
        if self.options.group_by_length {
            // A stable sort: examples of the same length stay in order.
            examples.sort_by_key(|&(rows, _)| rows);
        }
        let mut batches = self.cut(&examples);
        if self.options.shuffle {
            let name = [stream::BATCHES, self.position.epoch, self.pool as u64];
            Random::new(self.options.seed, &name).shuffle(&mut batches);
        }
        self.planned = batches.into();
        self.pool += 1;
        true
    }

    /// Splits examples, given with their rows, into batches.
    fn cut(&self, examples: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let most = if self.options.max_examples == 0 { usize::MAX } else { self.options.max_examples };
        let (mut batches, mut batch, mut sum) = (Vec::new(), Vec::new(), 0);
        for &(rows, example) in examples {
            if !batch.is_empty() && (sum + rows > self.options.max_tokens || batch.len() == most) {
                batches.push(std::mem::take(&mut batch));
                sum = 0;
            }
            batch.push(example);
            sum += rows;
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        batches
    }

    /// Returns the batch of this epoch with the most rows; `None` at the end of the epoch.
    pub fn largest(mut self) -> Option<Result<LoadedBatch>> {
        let mut largest: Option<(usize, Vec<usize>)> = None;
        loop {
            for batch in std::mem::take(&mut self.planned) {
                let rows = batch.iter().map(|&example| self.task.rows(example)).sum();
                if largest.as_ref().is_none_or(|(most, _)| rows > *most) {
                    largest = Some((rows, batch));
                }
            }
            if !self.plan() {
                return largest.map(|(_, batch)| self.make(batch));
            }
        }
    }

    fn make(&self, examples: Vec<usize>) -> Result<LoadedBatch> {
        let mut made = TaskBatch::default();
        for &example in &examples {
            let name = [stream::EXAMPLE, self.position.epoch, example as u64];
            let mut random = Random::new(self.options.seed, &name);
            let added = self.task.add(example, &mut random, &mut made);
            added.map_err(|error| error.within(&format!("example {example}")))?;
        }
        let next = Position { batch: self.position.batch + 1, ..self.position };
        let mut step = LoadedBatch { batch: made.batch, targets: made.targets, examples, next };
        self.transform.as_ref().map_or(Ok(()), |then| then(&mut step))?;
        Ok(step)
    }
}

impl Iterator for Loader {
    type Item = Result<LoadedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.options.epochs > 0 && self.position.epoch >= self.options.epochs {
                return None;
            }
            if let Some(examples) = self.planned.pop_front() {
                let step = self.make(examples);
                self.position.batch += 1;
                return Some(step);
            }
            if !self.plan() {
                self.begin(self.position.epoch + 1);
            }
        }
    }
}
