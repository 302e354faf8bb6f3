//! Forward and backward of each operation: every operation implements [`GradientRule`], one file per topic.
//!
//! A rule computes its forward pass in plain floats, not in the integers and panels of the runtime, and adds the
//! gradients of its inputs and weights.

mod add;
mod attention;
mod columns;
mod elementwise;
mod embed;
mod experts;
mod im2col;
mod linear;
mod linear_attention;
mod norm;
mod rope;
mod table;

use siskin_format::{Error, Result};
use siskin_graph::op::{ExternalInput, MultiLora, Op, StoreCrossKv};
use siskin_graph::{Node, ValueShape};

use crate::batch::{BatchSequences, TrainingBatch};
use crate::parameters::{Gradients, Parameter, Parameters};
use crate::program::Program;
use crate::real::Real;

/// The arguments of a rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleCall<'a, T> {
    /// The program.
    pub program: &'a Program,
    /// The node.
    pub node: &'a Node,
    /// The batch.
    pub batch: &'a TrainingBatch,
    /// The weights.
    pub parameters: &'a Parameters<T>,
    /// Rows of the output.
    pub rows: usize,
}

impl<'a, T: Real> RuleCall<'a, T> {
    /// Returns the output's shape.
    pub fn output(&self) -> ValueShape {
        self.program.graph.values[self.node.output]
    }

    /// Returns the shape of an input.
    pub fn input(&self, index: usize) -> ValueShape {
        self.program.graph.values[self.node.inputs[index]]
    }

    /// Returns the number of columns of the output.
    pub fn columns(&self) -> usize {
        self.output().columns
    }

    /// Returns the sequences that the rows belong to.
    pub fn sequences(&self) -> &'a BatchSequences {
        self.program.sequences(self.node.output, self.batch)
    }

    /// Returns the sequences that the rows of an input belong to.
    pub fn input_sequences(&self, index: usize) -> &'a BatchSequences {
        self.program.sequences(self.node.inputs[index], self.batch)
    }

    /// Returns the values of a weight that is not packed.
    pub fn weight(&self, weight: usize) -> &'a [T] {
        self.parameters.numbers(weight)
    }

    /// Returns a weight that may be packed.
    pub fn matrix(&self, weight: usize) -> &'a Parameter<T> {
        &self.parameters.list[weight]
    }
}

/// The inputs and outputs of a rule's backward pass.
#[derive(Debug)]
pub struct RuleBackward<'a, 'b, T> {
    /// The inputs; empty if the rule does not need them.
    pub inputs: &'a [&'b [T]],
    /// The output; empty if the rule does not need it.
    pub output: &'b [T],
    /// What the forward pass kept.
    pub saved: &'b [T],
    /// The gradient of the output.
    pub gradient: &'b [T],
    /// The gradients of the inputs, accumulated into; `None` if not needed.
    pub input_gradients: &'a mut [Option<&'b mut [T]>],
    /// The gradients of the weights, accumulated into.
    pub weight_gradients: &'a mut Gradients<T>,
}

/// What backward reads from forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The inputs.
    pub inputs: bool,
    /// The output.
    pub output: bool,
}

impl Reads {
    const NOTHING: Self = Self { inputs: false, output: false };
    const INPUTS: Self = Self { inputs: true, output: false };
    const BOTH: Self = Self { inputs: true, output: true };
}

/// Forward and backward of an operation in training.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no gradient rule",
    note = "implement `GradientRule<T>` for it in a file of `trainer/src/grad/`, or list it in `without_rule!`"
)]
pub trait GradientRule<T: Real>: Sync {
    /// Returns false if the operation cannot be trained; its other methods are then not called.
    fn is_supported(&self) -> bool {
        true
    }

    /// Returns true if the rule takes its matrices packed.
    fn takes_packed(&self) -> bool {
        false
    }

    /// Returns what backward reads.
    fn reads(&self) -> Reads {
        Reads::INPUTS
    }

    /// Returns the number of elements that forward keeps for backward.
    fn saved_len(&self, _: &RuleCall<'_, T>) -> usize {
        0
    }

    /// Returns the matmul FLOPs of a forward pass; backward does as many for the inputs, and as many for the weights.
    fn flops(&self, _: &RuleCall<'_, T>) -> f64 {
        0.0
    }

    /// Computes the whole output.
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], kept: &mut [T]);

    /// Adds to the gradients of inputs and weights.
    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>);
}

/// Rejects operations that no program contains, or that cannot be trained.
macro_rules! without_rule {
    ($($operation:ident),*) => {$(
        impl<T: Real> GradientRule<T> for $operation {
            fn is_supported(&self) -> bool {
                false
            }

            fn forward(&self, _: &RuleCall<'_, T>, _: &[&[T]], _: &mut [T], _: &mut [T]) {}

            fn backward(&self, _: &RuleCall<'_, T>, _: RuleBackward<'_, '_, T>) {}
        }
    )*};
}

without_rule!(ExternalInput, MultiLora, StoreCrossKv);

/// Returns the rule of an operation.
pub fn rule<T: Real>(op: &Op) -> Result<&dyn GradientRule<T>> {
    let rule: &dyn GradientRule<T> = siskin_graph::dispatch!(op, |operation| operation);
    if !rule.is_supported() {
        return Err(Error::unsupported("graph", format!("{} has no backward rule", op.name())));
    }
    Ok(rule)
}
