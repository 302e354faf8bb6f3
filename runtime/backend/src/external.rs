//! Models that another library computes, from their tokens alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::block_table::{BlockCopy, BlockId};
use super::{
    Backend, BlockFormat, BlockStorage, Capabilities, Executable, ExecutionLimits, ForwardInput, ForwardPass,
    MemoryUse, ModelPart, Module, WeightSource,
};
use crate::external_model::{ExternalModel, GENERAL, OutputMatrix};
use crate::thread_pool::ThreadPool;
use siskin_format::{Error, ErrorKind, Result};
use siskin_kernels::ops::attention::CacheType;

/// The backend of external models, whose files are in formats of their own.
pub struct ExternalModelBackend {
    /// The external model.
    pub model: Arc<dyn ExternalModel>,
}

impl Backend for ExternalModelBackend {
    fn name(&self) -> &'static str {
        GENERAL
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: false, layer_skipping: false, cpu_features: false }
    }

    fn load(&self, _: &WeightSource<'_>) -> Result<Arc<dyn Module>> {
        Ok(Arc::new(ExternalModule { model: Arc::clone(&self.model) }))
    }
}

/// An external model.
struct ExternalModule {
    model: Arc<dyn ExternalModel>,
}

impl Module for ExternalModule {
    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Vec<&'static str> {
        vec![GENERAL]
    }

    fn cache_type(&self) -> CacheType {
        CacheType::F32
    }

    fn block_bytes(&self, limits: &ExecutionLimits) -> Result<Vec<usize>> {
        Ok(vec![0; limits.block_layout.groups.len()])
    }

    fn memory_requirements(&self, _: &ExecutionLimits) -> Result<MemoryUse> {
        Ok(MemoryUse::default())
    }

    fn create_executable(&self, limits: &ExecutionLimits) -> Result<Box<dyn Executable>> {
        let (model, passes) = (Arc::clone(&self.model), Arc::clone(&limits.passes));
        Ok(Box::new(ExternalExecutable { model, passes, sequences: Vec::new(), outputs: Vec::new() }))
    }
}

/// External models have no blocks.
impl BlockStorage for ExternalExecutable {
    fn bytes(&self) -> usize {
        0
    }

    fn copy(&mut self, _: BlockCopy) -> Result<()> {
        Err(no_blocks())
    }

    fn format(&self, _: usize) -> Result<BlockFormat> {
        Err(no_blocks())
    }

    fn export(&self, _: usize, _: BlockId, _: &mut Vec<u8>) -> Result<()> {
        Err(no_blocks())
    }

    fn import(&mut self, _: usize, _: BlockId, _: &[[u8; 4]]) -> Result<()> {
        Err(no_blocks())
    }
}

fn no_blocks() -> Error {
    Error::unsupported("session", "external models have no state to save")
}

/// The passes of a context. External models are stateless: they get all tokens of a sequence with every call.
struct ExternalExecutable {
    model: Arc<dyn ExternalModel>,
    passes: Arc<[ForwardPass]>,
    sequences: Vec<SequenceHistory>,
    /// The outputs of the last pass.
    outputs: Vec<Vec<f32>>,
}

/// The tokens of a sequence, and its encoder output.
#[derive(Clone, Default)]
struct SequenceHistory {
    tokens: Vec<u32>,
    memory: Option<Arc<OutputMatrix>>,
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
        let model = Arc::clone(&self.model);
        let pass = &self.passes[input.pass];
        let reads = pass.part == ModelPart::Encoder;
        // Hidden states are wanted where the graph has no head.
        let head = pass.graph.output != pass.graph.hidden;
        let mut outputs = Vec::with_capacity(input.batch.output_rows.len());
        let mut start = 0;
        while let Some(first) = input.batch.rows.get(start) {
            if input.cancel.load(Ordering::Relaxed) {
                return Err(Error::canceled(""));
            }
            let rows = &input.batch.rows[start..];
            let count = rows.iter().take_while(|row| row.sequence == first.sequence).count();
            let ids: Vec<u32> = rows[..count].iter().map(|row| row.token).collect();
            let seen = self.history(first.sequence);
            let (given, before) = if reads {
                let token_types: Vec<u32> = rows[..count].iter().map(|row| row.token_type).collect();
                let given = Arc::new(model.encode(&ids, &token_types, head)?);
                seen.memory = model.interface().writes.then(|| Arc::clone(&given));
                (given, 0)
            } else {
                seen.tokens.truncate(first.position);
                seen.tokens.extend(&ids);
                (Arc::new(model.decode(&seen.tokens, seen.memory.as_deref())?), first.position)
            };
            for &row in input.batch.output_rows.iter().filter(|&&row| (start..start + count).contains(&row)) {
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

    fn memory(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn block_storage(&self) -> &dyn BlockStorage {
        self
    }

    fn block_storage_mut(&mut self) -> &mut dyn BlockStorage {
        self
    }

    fn fork(&mut self, from: usize, to: usize) {
        let history = self.history(from).clone();
        *self.history(to) = history;
    }
}
