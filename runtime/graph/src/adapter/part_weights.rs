//! The weights that adapters add to a graph.

use super::LoraMatrix;
use crate::{AdapterSlot, Graph, Weight, WeightId, WeightRole};

/// Returns the names of the tensors that a part adds to a graph.
pub(super) fn tensors(tensor: &str, slot: AdapterSlot) -> [String; 4] {
    ["a", "b", "factors", "zeros"].map(|part| format!("{tensor}.adapter{}_{part}", slot.0))
}

/// The weights that a part adds to a graph.
pub(super) struct PartWeights {
    pub a: WeightId,
    pub b: WeightId,
    /// DoRA: the factors, and zeros for products without a bias.
    pub scaling: Option<[WeightId; 2]>,
}

impl PartWeights {
    pub(super) fn new(graph: &mut Graph, part: &LoraMatrix, slot: AdapterSlot) -> Self {
        let [a, b, factors, zeros] = tensors(&part.tensor, slot);
        let mut add = |name: String, role: WeightRole, rows: usize, columns: usize| {
            graph.weights.push(Weight { name, rows, columns, role });
            graph.weights.len() - 1
        };
        let a = add(a, WeightRole::Matrix, part.rank, part.columns);
        let b = add(b, WeightRole::Matrix, part.rows, part.rank);
        let has_scaling = !part.magnitudes.is_empty();
        let mut vector = |name: String| add(name, WeightRole::Vector, 1, part.rows);
        Self { a, b, scaling: has_scaling.then(|| [factors, zeros].map(&mut vector)) }
    }
}
