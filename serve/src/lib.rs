//! An HTTP server for models, on one engine: requests of all clients share forward passes.
//!
//! - [`Server`] listens on an address and answers until its [`ShutdownHandle`] is used.
//! - [`ServedModel`] is a model under the name by which requests select it; [`ModelRepository`] opens further ones while
//!   the server runs.
//! - [`load`] measures this and other servers under load.
//! - [`online_gate`] compares two running servers.
//!
//! ```no_run
//! use siskin_serve::{ServedModel, Server, ServerOptions};
//!
//! let model = siskin::Model::open("smollm2.siskin")?;
//! let server = Server::bind(&ServerOptions::default(), vec![ServedModel::new("smollm2", model)])?;
//! println!("listening on http://{}", server.address());
//! server.run()?;
//! # Ok::<(), siskin::Error>(())
//! ```
//!
//! `routes/table.rs` is the table of routes. `openai/`, `ollama/` and `inference_protocol/` have the types and the meaning of
//! one API each, `generation/` has what they share, and `page/` the chat page, a client. One thread reads and writes all
//! sockets; two others tokenize and render chat templates; the engine's thread and the thread pool compute. `/health` and
//! `/metrics` wait for none of them.
//!
//! A client cannot make the server read files or open connections. Requests from web pages of other origins, and those
//! that name another host, are rejected unless they are allowed. Prompts are not logged.
#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod agent_check;
mod body;
mod call;
mod client_stream;
mod clients;
mod embedding;
mod error;
mod event_stream;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod guard;
mod inference_protocol;
mod jobs;
mod listener;
pub mod load;
mod metrics;
mod models;
mod multipart;
mod ollama;
pub mod online_gate;
mod openai;
mod operations;
mod options;
mod page;
mod prometheus;
mod response;
mod response_store;
mod routes;
mod served_model;
mod service_manager;
mod shadow_scoring;
mod state;
mod sync;
mod tasks;
mod time;
mod tls;
mod uri;
mod worker_task;
mod workers;

pub use access_log::AccessLog;
pub use clients::{ApiKeys, NewApiKey};
pub use listener::{Server, ShutdownHandle};
pub use operations::{BaselinePrompt, DriftBaseline, OperationLog};
pub use options::ServerOptions;
pub use served_model::{ModelRepository, ServedModel};
pub use tls::TlsFiles;
