//! Transformers as graphs, independent of how they are executed.
//!
//! A [`Graph`] is a list of [`Node`]s in topological order. Each applies an [`Op`] to values, matrices with one row per
//! token of the batch (or per output row, after [`SelectOutputs`](op::SelectOutputs)) and a fixed number of f32
//! columns. Weights are named, not present: kernels, buffers and devices do not appear here, so that backends, the
//! trainer and the exporters all work on the same graph.
//!
//! A model family ([`arch::Family`]) reads its hyperparameters from a file's metadata and builds its graphs; it also
//! describes how its models are named and configured in other formats. Passes ([`pass`]) rewrite graphs: fuse linear
//! layers, remove dead nodes, skip layers, cut at early exits. An [`adapter::Adapter`] (LoRA, DoRA) is an overlay: more
//! nodes, and tensors beside those of the file.
//!
//! ```no_run
//! use siskin_graph::arch::{ConfigReader, Family};
//!
//! let file = siskin_format::file::File::open("smollm2.siskin")?;
//! let metadata = file.metadata();
//! let family = Family::named(&metadata.architecture)?;
//! let config = ConfigReader::new(metadata.config.clone());
//! let (model, graphs) = family.build(&config, &|name| file.tensor(name).is_some())?;
//! println!("{} layers", model.layers);
//! for node in graphs.iter().flat_map(|graph| &graph.nodes) {
//!     println!("{:?}", node.op);
//! }
//! # Ok::<(), siskin_format::Error>(())
//! ```
#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "every match over operations names what it does with each of them"
)]

pub mod adapter;
pub mod arch;
mod attention_mask;
mod batch;
mod builder;
mod graph;
mod key_runs;
pub mod op;
pub mod pass;
mod pooling;
mod rope;
mod types;
mod window;

pub use attention_mask::{QueryPosition, RUNS};
pub use batch::{BatchRow, BatchSequence, BatchSequences};
pub use builder::Builder;
pub use graph::{Exit, Graph, Node, OutputHead};
pub use op::{
    Attention, AttentionMask, LinearAttention, LinformerProjection, NormKind, Op, RelativePositionBias,
    Routing, STATE_PANEL, StateUpdate,
};
pub use pooling::Pooling;
pub use rope::{RopeScaling, RopeScalingMethod, RopeTable};
pub use types::*;
pub use window::StreamingWindow;

pub use siskin_kernels::functions::{ActivationFunction, GateLimits};
