//! The backend interface.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use siskin_format::{Error, Result};
use siskin_graph::Graph;
use siskin_kernels::ops::attention::CacheType;

use crate::batch::Batch;
use crate::block_table::{BlockCopy, BlockId, BlockLayout, BlockTable};
use crate::observer::Observer;
use crate::thread_pool::ThreadPool;
use crate::weights::WeightSource;

/// A part of a model, which has weights of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPart {
    /// The encoder, which takes a whole sequence at once.
    Encoder,
    /// The decoder, which takes tokens step by step.
    Decoder,
}

/// A graph that a context runs, with the sizes of its batches.
#[derive(Debug)]
pub struct ForwardPass {
    /// The graph, as the family built it.
    pub graph: Graph,
    /// Which weights it uses.
    pub part: ModelPart,
    /// The maximum number of rows in a batch.
    pub max_rows: usize,
    /// The maximum number of output rows in a batch; at most `max_rows`.
    pub max_output_rows: usize,
    /// The number of positions.
    pub positions: usize,
}

/// What a backend supports beyond running graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Keys and values are in blocks: their type can be chosen, windows work, and sequences can be saved.
    pub kv_cache: bool,
    /// Layers can be skipped.
    pub layer_skipping: bool,
    /// The CPU features that kernels use can be restricted.
    pub cpu_features: bool,
}

/// A device that runs models.
pub trait Backend {
    /// Returns the name, such as `cpu`.
    fn name(&self) -> &'static str;

    /// Returns what the backend supports.
    fn capabilities(&self) -> Capabilities;

    /// Binds the weights of a model's graphs, which stay mapped, or uploads them.
    fn load(&self, source: &WeightSource<'_>) -> Result<Arc<dyn Module>>;
}

/// A model on a device.
pub trait Module: Send + Sync {
    /// Returns the number of threads of the pool that it computes with.
    fn threads(&self) -> usize;

    /// Returns the names of the kernels.
    fn kernels(&self) -> Vec<&'static str>;

    /// Returns the default number of tokens per batch: enough to compute at full speed.
    fn batch_tokens(&self) -> usize {
        256
    }

    /// Returns the default element type of the KV cache.
    fn cache_type(&self) -> CacheType;

    /// Returns the size of a block of each group.
    fn block_bytes(&self, limits: &ExecutionLimits) -> Result<Vec<usize>>;

    /// Returns what [`Module::create_executable`] would allocate.
    fn memory_requirements(&self, limits: &ExecutionLimits) -> Result<MemoryUse>;

    /// Prepares passes, indexed as in the list: plans them, and allocates activations and blocks. Nothing is allocated
    /// by later calls.
    fn create_executable(&self, limits: &ExecutionLimits) -> Result<Box<dyn Executable>>;
}

/// What an executable runs, and how much of it at once.
#[derive(Clone, Debug)]
pub struct ExecutionLimits {
    /// The passes, by their indices.
    pub passes: Arc<[ForwardPass]>,
    /// The KV cache groups and their numbers of blocks.
    pub block_layout: BlockLayout,
}

/// Allocated bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Activations, and copied weights.
    pub activations: usize,
    /// Blocks of the KV cache.
    pub kv_cache: usize,
}

impl MemoryUse {
    /// Returns all of them.
    pub fn total(&self) -> usize {
        self.activations.saturating_add(self.kv_cache)
    }
}

/// The input of a forward pass.
pub struct ForwardInput<'a> {
    /// The index of the pass.
    pub pass: usize,
    /// The rows.
    pub batch: &'a Batch,
    /// Where the keys and values of their sequences are.
    pub block_table: &'a BlockTable,
    /// Cancels the pass, from another thread.
    pub cancel: &'a AtomicBool,
    /// The maximum number of threads.
    pub threads: usize,
}

/// The passes of a context, with the memory that they need.
pub trait Executable: Send + Sync {
    /// Runs a pass. After an error the blocks of the batch's rows have invalid contents.
    fn forward(&mut self, pool: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()>;

    /// Returns an output row of the last pass; empty if there is none.
    fn output(&self, row: usize) -> &[f32];

    /// Returns the allocated bytes.
    fn memory(&self) -> MemoryUse;

    /// Returns the blocks of the KV cache.
    fn block_storage(&self) -> &dyn BlockStorage;

    /// Returns the blocks of the KV cache, for writing.
    fn block_storage_mut(&mut self) -> &mut dyn BlockStorage;

    /// Called when sequence `to` becomes a fork of `from`.
    fn fork(&mut self, _from: usize, _to: usize) {}

    /// Passes the inputs of all matmuls to `observer` from now on.
    fn observe(&mut self, _observer: Arc<Mutex<dyn Observer>>) -> Result<()> {
        Err(Error::unsupported(
            "observer",
            "this backend does not show the inputs of matmuls; use the CPU backend",
        ))
    }
}

/// The contents of KV cache blocks, wherever they are.
pub trait BlockStorage {
    /// Returns the allocated bytes.
    fn bytes(&self) -> usize;

    /// Copies a block.
    fn copy(&mut self, copy: BlockCopy) -> Result<()>;

    /// Returns the format of a group's blocks.
    fn format(&self, group: usize) -> Result<BlockFormat>;

    /// Appends the contents of a block to `out`.
    fn export(&self, group: usize, block: BlockId, out: &mut Vec<u8>) -> Result<()>;

    /// Replaces the contents of a block by what [`BlockStorage::export`] wrote, as little-endian words.
    fn import(&mut self, group: usize, block: BlockId, words: &[[u8; 4]]) -> Result<()>;

    /// Returns the memory of free blocks to the system, which provides it again when they are written.
    fn release(&mut self, _group: usize, _free: &[BlockId]) {}
}

/// The format of a group's blocks. Blocks can be exchanged if their formats have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// The name.
    pub name: String,
    /// The size of a block in words of four bytes.
    pub words: usize,
}
