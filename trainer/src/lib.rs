//! Trains the graphs that backends run: the backward pass is derived from the graph itself.
//!
//! There is no second model definition. A [`Program`] joins the graphs of a family with a loss; each operation has a
//! gradient rule beside it ([`grad`]), and a schedule says which values are kept and which are recomputed. The CPU
//! executes it with one rule per operation. On CUDA the same schedule becomes a list of commands, which a device
//! replays ([`cuda`]). Gradients of every family equal PyTorch's in f64, and a run that is interrupted continues with
//! the same bits.
//!
//! - [`run::Run`] is a training run: data, steps, validation, checkpoints, export.
//! - [`run::RunConfig`] is its TOML file, checked as a whole before anything is read.
//! - [`Parameters`] are the weights that are trained, by tensor name.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use siskin_trainer::run::{Run, RunCallbacks, RunConfig, RunSetup};
//!
//! fn train(setup: RunSetup, callbacks: &mut dyn RunCallbacks) -> siskin_format::Result<()> {
//!     let config = RunConfig::parse(&std::fs::read_to_string("train.toml").unwrap_or_default())?;
//!     let mut run = Run::new(config, setup, Some("runs/first".as_ref()))?;
//!     run.train(&AtomicBool::new(false), callbacks)?;
//!     println!("{} bytes", run.load_export_weights()?);
//!     Ok(())
//! }
//! ```
//!
//! `docs/training.md` describes the settings.
#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "every match over operations names what it does with each of them"
)]

pub mod adapters;
pub mod batch;
pub mod checkpoint;
pub mod clip;
pub mod cuda;
pub mod data;
pub mod early_stopping;
pub mod ema;
pub mod events;
pub mod export;
mod fast_math;
mod files;
pub mod gemm;
pub mod grad;
pub mod grad_scaler;
mod initialization;
pub mod loss;
pub mod optimizer;
mod parameters;
pub mod profile;
pub mod program;
pub mod qat;
pub mod random;
mod real;
pub mod report;
mod roofline;
pub mod run;
mod run_folder;
mod runner;
pub mod schedule;
pub mod settings;
pub mod state;
pub mod statistics;
pub mod tokenizer;

pub use initialization::InitialModel;
pub use optimizer::{Optimizer, OptimizerOptions, StepArguments};
pub use parameters::{ForwardWeights, Gradients, PackedPanels, Parameter, Parameters};
pub use program::{Program, Recompute};
pub use real::Real;
pub use roofline::peak_flops as ceiling;
pub use runner::{NodeEvent, OutputCallback, Phase, Probe, RouterOptions, Runner, TrainingObjective};
pub use schedule::{LearningRateSchedule, ScheduleOptions};
