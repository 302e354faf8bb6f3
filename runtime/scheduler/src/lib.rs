//! Continuous batching: requests of many clients, and of several models, in shared forward passes.
//!
//! A request's tokens are those that it would have had alone, to the bit: the logits of a row depend neither on the
//! other rows of a batch nor on how a prompt was split, and everything in this crate only decides which rows share a
//! pass and which blocks of the KV cache they share.
//!
//! - A [`policy::Scheduler`] plans each pass: decoding rows, chunks of prompts within a time budget, requests that
//!   start, and requests that are preempted when memory runs out. It is pure policy: no threads, no clock, no model.
//! - A [`prefix_cache::PrefixCache`] keeps sequences that have ended, for requests that begin with the same tokens.
//! - A [`speculation::Proposer`] drafts tokens, so that a pass can compute several of a request.
//! - An [`engine::TokenEngine`] runs the plans: it owns the contexts of its models, and calls each request's
//!   [`engine::RequestSampler`] with its logits.
//!
//! ```no_run
//! use siskin_scheduler::engine::{Drive, SchedulingOptions, RequestSampler, TokenEngine};
//! use siskin_scheduler::request::RequestSpec;
//!
//! # fn example(context: siskin_backend::context::Context, sampler: Box<dyn RequestSampler>) -> siskin_format::Result<()> {
//! let engine = TokenEngine::new(Drive::Caller)?;
//! let model = engine.add_model(context, SchedulingOptions::default(), None, None);
//! let request = RequestSpec { tokens: vec![1, 2, 3], max_tokens: 16, ..Default::default() };
//! engine.submit(model, request, sampler)?;
//! while engine.step() {}
//! # Ok(())
//! # }
//! ```

pub mod engine;
pub mod policy;
pub mod prefix_cache;
pub mod request;
pub mod speculation;
mod sync;
