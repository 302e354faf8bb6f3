//! Trains the graphs that Siskin runs: backward is derived from the same graph that the runtime executes.

pub mod adapters;
pub mod average;
pub mod batch;
pub mod checkpoint;
pub mod clip;
pub mod cuda;
pub mod data;
pub mod events;
pub mod export;
pub mod gemm;
pub mod grad;
mod initial;
mod knobs;
pub mod loss;
pub mod optimiser;
mod parameters;
pub mod patience;
pub mod program;
pub mod random;
mod real;
pub mod run;
mod runner;
pub mod scaler;
pub mod schedule;
pub mod settings;
pub mod state;
pub mod tokenizer;

pub use initial::Beginning;
pub use optimiser::{Optimiser, OptimiserOptions, StepArguments};
pub use parameters::{Gradients, Parameter, Parameters};
pub use program::{Program, Recompute};
pub use real::Real;
pub use runner::{Goal, Runner, See};
pub use schedule::{Schedule, ScheduleOptions};
