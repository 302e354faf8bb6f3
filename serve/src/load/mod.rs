//! A load generator for servers with the OpenAI API.
//!
//! A [`LoadPlan`] is computed before it runs: prompts, lengths and arrival times depend on the seed alone. Requests of an
//! open loop start at their arrival time, however many are still running, and their latencies count from it, so that a
//! server that falls behind is not favored (coordinated omission).
//!
//! ```no_run
//! use siskin_serve::load::{LoadOptions, LoadPlan, Target, Workload};
//!
//! let target = Target::new("http://127.0.0.1:8080", Some("smollm2".to_owned()))?;
//! let plan = LoadPlan::new(Workload::Chat, &LoadOptions::default())?;
//! let report = plan.run(&target)?;
//! println!("{} tokens/s", report.generated_tokens_per_second());
//! # Ok::<(), siskin::Error>(())
//! ```

mod client;
mod plan;
mod random;
mod report;
mod words;

pub use client::Target;
pub use plan::{LoadOptions, LoadPlan, Workload};
pub use report::{LatencyPercentiles, LatencyTargets, LoadReport};
