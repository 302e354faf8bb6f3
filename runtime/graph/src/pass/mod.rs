//! Graph passes: small pure functions from graph to graph, one file and one line in [`PASSES`] each.
//!
//! A pass never changes the result, not even by one bit. Apart from the passes, `layers.rs` skips layers, `cut.rs`
//! extracts parts, and `fusion.rs` finds nodes that one kernel can compute.

pub mod cut;
mod fuse_linear;
pub mod fusion;
pub mod layers;
mod prune;

pub use prune::prune;

use super::Graph;

/// A graph pass.
pub type Pass = fn(&Graph) -> Graph;

/// Every pass, in the order in which they run.
pub const PASSES: &[(&str, Pass)] =
    &[("eliminate dead code", prune), ("fuse linear layers with one input", fuse_linear::run)];

/// Applies all passes.
pub fn all(graph: &Graph) -> Graph {
    PASSES.iter().fold(graph.clone(), |graph, (_, pass)| pass(&graph))
}
