//! Small pure functions from graph to graph: one file and one line in [`PASSES`] each.
//!
//! A pass changes neither what is computed nor a single bit of it. Apart from them, `layers.rs` leaves layers out and
//! `cut.rs` takes parts.

pub(crate) mod cut;
mod join_products;
pub mod layers;
mod prune;

use super::Graph;

/// A pass.
pub type Pass = fn(&Graph) -> Graph;

/// Every pass, in the order in which they run.
pub const PASSES: &[(&str, Pass)] =
    &[("leave out what is not needed", prune::run), ("join products of one value", join_products::run)];

/// The graph after all passes.
pub fn all(graph: &Graph) -> Graph {
    PASSES.iter().fold(graph.clone(), |graph, (_, pass)| pass(&graph))
}
