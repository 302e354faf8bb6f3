//! Helpers shared by the integration tests.
//!
//! - [`house`]: the rules of the code base, as functions over its source text.
//! - [`fuzz`]: one function per untrusted input, and the deterministic mutations run over committed seeds.
//! - [`counting`]: an allocator that says how much a thread has allocated.
//! - [`kinds`]: models that attend as a session chooses.
//! - [`paths`]: where the committed test data and the downloaded models lie.
//! - [`extent`]: which cases stand for others.
//! - [`search`]: what Transformers finds with the golden models.
//! - [`training`]: a small text, and a small model that learns it.

pub mod counting;
pub mod cuda;
pub mod every;
pub mod extent;
pub mod fuzz;
pub mod golden;
pub mod gradients;
pub mod header;
pub mod house;
pub mod kinds;
pub mod knobs;
pub mod paths;
pub mod search;
pub mod texts;
pub mod training;
