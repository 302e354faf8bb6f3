//! Helpers shared by the integration tests.
//!
//! - [`arch_rules`]: the rules of the code base, as functions over its source text.
//! - [`fuzz`]: one function per untrusted input, and deterministic mutations of committed seeds.
//! - [`counting`]: an allocator that counts the allocations of a thread.
//! - [`attention_masks`]: models whose attention mask a session chooses.
//! - [`chat_model`]: small models with a tokenizer and a chat template.
//! - [`paths`]: the paths of committed test data and downloaded models.
//! - [`header`]: the C header, generated from `ffi/src`.
//! - [`wrappers`]: the generated parts of the Kotlin and Swift wrappers.
//! - [`extent`]: selection of test cases.
//! - [`random`]: repeatable random numbers.
//! - [`random_adapters`]: adapters with random values.
//! - [`search`]: beam search results of Transformers on the golden models.
//! - [`soak`]: many clients of an engine for a long time.
//! - [`temp_folder`]: an empty folder for one test.
//! - [`training`]: a small text, and a small model that learns it.

pub mod arch_rules;
pub mod attention_masks;
pub mod chat_model;
pub mod counting;
pub mod cuda;
pub mod env;
pub mod every;
pub mod extent;
pub mod fuzz;
pub mod golden;
pub mod gradients;
pub mod header;
pub mod paths;
pub mod random;
pub mod random_adapters;
pub mod search;
pub mod soak;
pub mod temp_folder;
pub mod texts;
pub mod training;
pub mod wrappers;
