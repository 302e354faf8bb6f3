//! The CUDA executor, with kernels run without a GPU, compared to the CPU.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what the files of this test share")]

#[path = "cuda/adapters.rs"]
mod adapters;
#[path = "cuda/backend.rs"]
mod backend;
#[path = "cuda/common.rs"]
mod common;
#[path = "cuda/forward.rs"]
mod forward;
#[path = "cuda/fp8.rs"]
mod fp8;
#[path = "cuda/losses.rs"]
mod losses;
#[path = "cuda/models.rs"]
mod models;
#[path = "cuda/mutations.rs"]
mod mutations;
#[path = "cuda/operations.rs"]
mod operations;
#[path = "cuda/optimizers.rs"]
mod optimizers;
#[path = "cuda/runs.rs"]
mod runs;
