//! Tests of the kernels and codecs. They use the crate from outside, so that its functions are compiled once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "kernels/activation.rs"]
mod activation;
#[path = "kernels/attention.rs"]
mod attention;
#[path = "kernels/codecs.rs"]
mod codecs;
#[path = "kernels/common.rs"]
mod common;
#[path = "kernels/elementwise.rs"]
mod elementwise;
#[path = "kernels/hadamard.rs"]
mod hadamard;
#[path = "kernels/identity.rs"]
mod identity;
#[path = "kernels/lookup.rs"]
mod lookup;
#[path = "kernels/matmul.rs"]
mod matmul;
#[path = "kernels/norm.rs"]
mod norm;
#[path = "kernels/panels.rs"]
mod panels;
#[path = "kernels/quantize.rs"]
mod quantize;
#[path = "kernels/quantize_rotated.rs"]
mod quantize_rotated;
#[path = "kernels/recurrence.rs"]
mod recurrence;
#[path = "kernels/rope.rs"]
mod rope;
#[path = "kernels/row_codecs.rs"]
mod row_codecs;

// Its functions are private, and its tests are beside them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "../src/cpu/amx_detection.rs"]
mod amx_detection;
