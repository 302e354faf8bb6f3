//! The reference backend: interprets the graph with simple, unoptimized code. All other backends must match it bit for
//! bit.

mod cached;
mod operations;
mod pass;

use siskin_kernels::Cpu;
use siskin_kernels::ops::Kernels;

use std::sync::Arc;

use self::pass::{ReferencePass, Table};
use super::kv_storage::{KvStorage, KvStorageLayout};
use super::{
    Backend, BlockStorage, Capabilities, Distances, Executable, ExecutionLimits, ForwardInput, ForwardPass,
    MemoryUse, ModelWeights, Module, WeightSource,
};
use crate::thread_pool::ThreadPool;
use siskin_format::Result;
use siskin_kernels::ops::attention::CacheType;

/// The reference code, on one thread.
pub struct ReferenceBackend;

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: true, layer_skipping: true, cpu_features: true }
    }

    fn load(&self, source: &WeightSource<'_>) -> Result<Arc<dyn Module>> {
        Ok(Arc::new(ReferenceModule { weights: Arc::new(ModelWeights::bind(source)?) }))
    }
}

/// A model that the reference code computes.
struct ReferenceModule {
    weights: Arc<ModelWeights>,
}

impl Module for ReferenceModule {
    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Vec<&'static str> {
        vec!["reference"]
    }

    fn cache_type(&self) -> CacheType {
        self.weights.cache_type()
    }

    fn block_bytes(&self, limits: &ExecutionLimits) -> Result<Vec<usize>> {
        Ok(KvStorageLayout::new(&limits.passes, &limits.block_layout)?.block_bytes())
    }

    fn memory_requirements(&self, limits: &ExecutionLimits) -> Result<MemoryUse> {
        let layout = KvStorageLayout::new(&limits.passes, &limits.block_layout)?;
        let (activations, kv_cache) = (self.weights.vector_bytes(), layout.bytes(&limits.block_layout));
        Ok(MemoryUse { activations, kv_cache })
    }

    fn create_executable(&self, limits: &ExecutionLimits) -> Result<Box<dyn Executable>> {
        let passes = Arc::clone(&limits.passes);
        let distances = passes
            .iter()
            .map(|pass| Distances::new(pass.graph.attentions(), self.weights.of(pass.part), pass.positions))
            .collect();
        let layout = KvStorageLayout::new(&passes, &limits.block_layout)?;
        Ok(Box::new(ReferenceExecutable {
            weights: Arc::clone(&self.weights),
            scalar: Kernels::for_cpu(Cpu::scalar()),
            storage: KvStorage::new(layout, &limits.block_layout)?,
            passes,
            distances,
            outputs: Table::new(),
        }))
    }
}

/// The passes of a context, interpreted.
struct ReferenceExecutable {
    weights: Arc<ModelWeights>,
    /// The portable kernels, for functions defined by a polynomial.
    scalar: Kernels,
    storage: KvStorage,
    passes: Arc<[ForwardPass]>,
    /// The biases of each pass.
    distances: Vec<Distances>,
    /// The outputs of the last pass.
    outputs: Table,
}

impl Executable for ReferenceExecutable {
    fn forward(&mut self, _: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()> {
        let pass = &self.passes[input.pass];
        let forward = ReferencePass {
            graph: &pass.graph,
            weights: self.weights.of(pass.part),
            cache: self.storage.view(input.block_table),
            batch: input.batch,
            distances: &self.distances[input.pass],
            scalar: &self.scalar,
            stop: input.cancel,
        };
        self.outputs = forward.run()?;
        Ok(())
    }

    fn output(&self, row: usize) -> &[f32] {
        self.outputs.get(row).map_or(&[], Vec::as_slice)
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse { activations: self.weights.vector_bytes(), kv_cache: self.storage.bytes() }
    }

    fn block_storage(&self) -> &dyn BlockStorage {
        &self.storage
    }

    fn block_storage_mut(&mut self) -> &mut dyn BlockStorage {
        &mut self.storage
    }
}
