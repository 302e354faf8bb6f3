//! LoRA adapters that differ between the rows of a batch.

use super::operation::check;
use super::{Affine, Operands, Operation, ShapeCheck};
use crate::types::{AdapterSlot, ValueShape, WeightId};

/// Adds to each row of a product the LoRA or DoRA adapter of its sequence (S-LoRA, arXiv:2311.03285).
///
/// The inputs are the input `x` of the product, and the product `W x`. A row without an adapter keeps its product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiLora {
    /// The adapters that change this product, sorted by their slots, which are distinct.
    pub adapters: Vec<LoraWeights>,
    /// The bias of the product, where one of the adapters is a DoRA, which scales before the bias is added.
    pub bias: Option<WeightId>,
}

/// The weights of an adapter for one product: `W x` becomes `W x + B A x`, times a factor per output with DoRA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoraWeights {
    /// The rows that it applies to.
    pub slot: AdapterSlot,
    /// A, rank × inputs.
    pub a: WeightId,
    /// B, outputs × rank, scaled.
    pub b: WeightId,
    /// DoRA: scales the sum, and adds the bias of the product.
    pub scaling: Option<Affine>,
}

impl MultiLora {
    /// Returns whether there is more to do than to add products: any adapter uses DoRA.
    pub fn has_scaling(&self) -> bool {
        self.bias.is_some() || self.adapters.iter().any(|adapter| adapter.scaling.is_some())
    }

    /// Returns the adapter of rows with this slot.
    pub fn adapter(&self, slot: AdapterSlot) -> Option<&LoraWeights> {
        self.adapters.iter().find(|adapter| adapter.slot == slot)
    }
}

impl Operation for MultiLora {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        for LoraWeights { slot: _, a, b, scaling } in &mut self.adapters {
            change(a);
            change(b);
            if let Some(scaling) = scaling {
                scaling.each_weight(change);
            }
        }
        self.bias.iter_mut().for_each(change);
    }

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        let [input, product] = [operands.inputs[0], operands.inputs[1]];
        let are_alike = input.rows == product.rows;
        check(are_alike, || format!("the inputs have {:?} and {:?}", input.rows, product.rows))?;
        for &LoraWeights { slot: _, a, b, ref scaling } in &self.adapters {
            operands.weight_has(a, input.columns)?;
            operands.weight_has(b, operands.weights[a].rows)?;
            let outputs = operands.weights[b].rows;
            check(outputs == product.columns, || {
                format!("B has {outputs} outputs instead of {}", product.columns)
            })?;
            let vectors = scaling.iter().flat_map(|scaling| [scaling.weight, scaling.bias]);
            vectors.chain(self.bias).try_for_each(|vector| operands.weight_has(vector, product.columns))?;
        }
        Ok(())
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.inputs[1]
    }
}
