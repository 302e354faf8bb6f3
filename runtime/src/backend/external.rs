//! Models that another library computes, from their tokens alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Capabilities, Executable, ForwardInput, GraphPass, GraphSide, Module};
use crate::cache::CacheOptions;
use crate::external_backend::{ExternalBackend, GENERAL, RowCount};
use crate::thread_pool::ThreadPool;
use crate::{Error, ErrorKind, Result};

/// A model that an external backend computes.
pub(crate) struct ExternalModule {
    backend: Arc<dyn ExternalBackend>,
}

impl ExternalModule {
    pub(crate) fn new(backend: Arc<dyn ExternalBackend>) -> Self {
        Self { backend }
    }
}

impl Module for ExternalModule {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: false }
    }

    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Vec<&'static str> {
        vec![GENERAL]
    }

    fn cost(&self, _: &[GraphPass], _: &CacheOptions) -> Result<usize> {
        Ok(0)
    }

    fn executable(&self, passes: Arc<[GraphPass]>, _: &CacheOptions) -> Result<Box<dyn Executable>> {
        let backend = Arc::clone(&self.backend);
        Ok(Box::new(ExternalExecutable { backend, passes, sequences: Vec::new(), outputs: Vec::new() }))
    }
}

/// The passes of a context. External backends are stateless: they get all tokens of a sequence with every call.
struct ExternalExecutable {
    backend: Arc<dyn ExternalBackend>,
    passes: Arc<[GraphPass]>,
    sequences: Vec<SequenceHistory>,
    /// The outputs of the last pass.
    outputs: Vec<Vec<f32>>,
}

/// The tokens of a sequence, and its encoder output.
#[derive(Clone, Default)]
struct SequenceHistory {
    tokens: Vec<u32>,
    memory: Option<Arc<RowCount>>,
}

impl ExternalExecutable {
    fn history(&mut self, sequence: usize) -> &mut SequenceHistory {
        if self.sequences.len() <= sequence {
            self.sequences.resize(sequence + 1, SequenceHistory::default());
        }
        &mut self.sequences[sequence]
    }

    /// Computes the output rows of a batch.
    fn run(&mut self, input: &ForwardInput<'_>) -> Result<Vec<Vec<f32>>> {
        let backend = Arc::clone(&self.backend);
        let pass = &self.passes[input.pass];
        let reads = pass.side == GraphSide::Encoder;
        // Hidden states are wanted where the graph has no head.
        let head = pass.graph.output != pass.graph.hidden;
        let mut outputs = Vec::with_capacity(input.batch.wanted.len());
        let mut start = 0;
        while let Some(first) = input.batch.rows.get(start) {
            if input.cancel.load(Ordering::Relaxed) {
                return Err(Error::cancelled(""));
            }
            let rows = &input.batch.rows[start..];
            let count = rows.iter().take_while(|row| row.sequence == first.sequence).count();
            let ids: Vec<u32> = rows[..count].iter().map(|row| row.token).collect();
            let seen = self.history(first.sequence);
            let (given, before) = if reads {
                let segments: Vec<u32> = rows[..count].iter().map(|row| row.segment).collect();
                let given = Arc::new(backend.encode(&ids, &segments, head)?);
                seen.memory = backend.interface().writes.then(|| Arc::clone(&given));
                (given, 0)
            } else {
                seen.tokens.truncate(first.position);
                seen.tokens.extend(&ids);
                (Arc::new(backend.decode(&seen.tokens, seen.memory.as_deref())?), first.position)
            };
            for &row in input.batch.wanted.iter().filter(|&&row| (start..start + count).contains(&row)) {
                let row = given.row(before + row - start).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Shape,
                        "output",
                        "the model returned fewer rows than there are tokens",
                    )
                })?;
                outputs.push(row.to_vec());
            }
            start += count;
        }
        Ok(outputs)
    }
}

impl Executable for ExternalExecutable {
    fn forward(&mut self, _: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()> {
        self.outputs = self.run(&input)?;
        Ok(())
    }

    fn output(&self, row: usize) -> &[f32] {
        self.outputs.get(row).map_or(&[], Vec::as_slice)
    }

    fn memory(&self) -> usize {
        0
    }

    fn fork(&mut self, from: usize, to: usize) {
        let history = self.history(from).clone();
        *self.history(to) = history;
    }
}
