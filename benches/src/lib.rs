//! Shared code of kernel benchmarks. It depends on the kernels only, so that benchmarks compile quickly.

mod measure;
mod random;

pub use measure::{
    AlignedLines, PackedMatrix, Phase, SharedRows, quantized, read_rate, time_together, vector,
};
pub use random::BenchRandom;
