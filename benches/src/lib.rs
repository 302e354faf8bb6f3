//! What the measurements of kernels share. They need no more than the kernels, so that they are built in little time.

mod measure;
mod random;

pub use measure::{Lines, Matrix, Phase, Shared, quantised, read_rate, time_together, vector};
pub use random::Random;
