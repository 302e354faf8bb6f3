//! Runs models on an NVIDIA GPU, with the bits of the CPU.
//!
//! The backend interprets the plan of the CPU backend: the same fused matmuls, the same buffers in one arena, the same
//! blocks of the KV cache. Each step is a kernel launch or a few, and a batch is one command list. What changes from batch
//! to batch (tokens, positions, block lists, the keys that each query attends to) is copied to the device in one piece, so
//! that a list depends only on rounded sizes of the batch. The device replays an equal list as a captured graph.
//!
//! - [`CudaBackend`] is a device that loads models. It works on any [`Device`](siskin_device::Device); with the feature
//!   `driver`, `CudaBackend::shared` opens a GPU.
//! - `weights` uploads the panels of a model as they are in the file.
//! - `lowering` turns a plan into launches; `launches` has them, and their command list for a batch. `row_ops` encodes
//!   row-wise operations, which one kernel interprets.
//! - `input_tables` lays out and fills what is copied for each batch.
//! - `executable` runs batches; `block_storage` has the blocks of the KV cache in device memory, whose contents are those
//!   of the CPU's blocks, so that sequences can be saved on one and restored on the other.
//!
//! The kernels are `row_ops`, `panel_matmul_*`, `kv_store`, `paged_attention`, `expert_*`, `recurrence` and `gather_taps`
//! in `runtime/cuda/kernels/`. Each floating-point operation is one IEEE rounding in the order that the contracts in
//! `kernels/src/ops/` state.
#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "every match over operations names what it does with each of them"
)]

mod backend;
mod block_storage;
mod executable;
mod input_tables;
mod launches;
mod lowering;
mod memory;
mod row_ops;
mod weights;

pub use backend::CudaBackend;
