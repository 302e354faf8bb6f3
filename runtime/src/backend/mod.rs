//! The backend interface, and its implementations.
//!
//! A [`Module`] is a model on a device: its weights, shared by all contexts. An [`Executable`] runs the graphs of one
//! context: it owns the memory of activations, and knows neither texts nor samplers. A new device implements both; a
//! context does not change.
//!
//! - [`cpu`] runs plans on the thread pool, with the kernels for this CPU.
//! - [`reference`] interprets graphs, row by row, with scalar code; it defines the bits.
//! - [`external`] calls another library.

mod batch;
pub(crate) mod cpu;
mod experts;
pub(crate) mod external;
mod position_bias;
pub(crate) mod reference;
mod rope_angles;
mod state;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub(crate) use batch::{Batch, TokenRow};
use batch::{marked_place, place};
use position_bias::Distances;
pub use rope_angles::angles;

use crate::activation_observer::Observer;
use crate::cache::{CacheOptions, KvCache};
use crate::graph::Graph;
use crate::plan::Weights;
use crate::thread_pool::ThreadPool;
use crate::{Error, Result};

/// Selects a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphSide {
    /// The encoder, which takes a whole sequence at once.
    Encoder,
    /// The decoder, which takes tokens step by step.
    Decoder,
}

/// The weights of the encoder and of the decoder; empty for what a model lacks.
#[derive(Debug, Default)]
pub(crate) struct ModelWeights {
    pub encoder: Weights,
    pub decoder: Weights,
}

impl ModelWeights {
    pub(crate) fn of(&self, side: GraphSide) -> &Weights {
        match side {
            GraphSide::Encoder => &self.encoder,
            GraphSide::Decoder => &self.decoder,
        }
    }

    /// Returns the bytes of the vectors (norms, biases), which are copied out of the file.
    fn vector_bytes(&self) -> usize {
        self.encoder.vector_bytes() + self.decoder.vector_bytes()
    }

    /// Returns whether any matrix of the file is f32.
    pub(crate) fn any_full_precision(&self) -> bool {
        self.encoder.any_full_precision() || self.decoder.any_full_precision()
    }
}

/// A graph that a context runs, with the sizes of its batches.
#[derive(Debug)]
pub(crate) struct GraphPass {
    pub graph: Graph,
    pub side: GraphSide,
    /// The maximum number of rows in a batch.
    pub rows: usize,
    /// The maximum number of output rows in a batch; at most `rows`.
    pub outputs: usize,
    /// The number of positions.
    pub positions: usize,
}

/// What a backend supports beyond running graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Keys and values are in the context's KV cache: its type can be chosen, windows work, and sequences can be saved.
    pub kv_cache: bool,
}

/// A model on a device.
pub(crate) trait Module: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// Returns the number of threads of the pool that it computes with.
    fn threads(&self) -> usize;

    /// Returns the names of the kernels.
    fn kernels(&self) -> Vec<&'static str>;

    /// Returns the bytes that [`Module::executable`] would allocate, and those of copied weights.
    fn cost(&self, passes: &[GraphPass], cache: &CacheOptions) -> Result<usize>;

    /// Prepares passes, numbered as in the list: plans them and allocates activations. Nothing is allocated by later
    /// calls.
    fn executable(&self, passes: Arc<[GraphPass]>, cache: &CacheOptions) -> Result<Box<dyn Executable>>;
}

/// The input of a forward pass.
pub(crate) struct ForwardInput<'a> {
    /// Which pass, by its number.
    pub pass: usize,
    pub batch: &'a Batch,
    pub cache: &'a KvCache,
    /// Cancels the pass, from another thread.
    pub cancel: &'a AtomicBool,
    /// The maximum number of threads.
    pub threads: usize,
}

/// The passes of a context, with the memory that they need.
pub(crate) trait Executable: Send + Sync {
    /// Runs a pass. After an error the KV cache has tokens with invalid keys and values.
    fn forward(&mut self, pool: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()>;

    /// Returns an output row of the last pass; empty if there is none.
    fn output(&self, row: usize) -> &[f32];

    /// Returns the allocated bytes, with those of copied weights.
    fn memory(&self) -> usize;

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

fn activation(kind: crate::graph::ActivationKind) -> siskin_kernels::ops::activation::ActivationFunction {
    use crate::graph::ActivationKind as Ours;
    use siskin_kernels::ops::activation::ActivationFunction;
    match kind {
        Ours::Silu => ActivationFunction::Silu,
        Ours::Gelu => ActivationFunction::Gelu,
        Ours::GeluTanh => ActivationFunction::GeluTanh,
        Ours::Relu => ActivationFunction::Relu,
        Ours::Sigmoid => ActivationFunction::Sigmoid,
        Ours::EluPlusOne => ActivationFunction::EluPlusOne,
    }
}

fn limits(limits: crate::graph::ClampLimits) -> siskin_kernels::ops::activation::GateLimits {
    siskin_kernels::ops::activation::GateLimits { limit: limits.limit, slope: limits.slope }
}
