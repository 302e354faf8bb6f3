//! Finds nodes that one kernel can compute. Graphs stay as they are: a backend takes what it has kernels for.

use crate::op::{Linear, Op};
use crate::{ActivationFunction, Graph, Node, ValueId, WeightId};

/// Two nodes of which the second reads only the first, where the outputs of both are kept, as training needs them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FusedPair {
    /// A residual connection and the norm after it.
    SumAndNorm,
    /// A matmul and its activation.
    LinearAndActivation(ActivationFunction),
}

/// Returns how a node and the one computed next can be fused, if their outputs are kept.
pub fn pair(first: &Node, second: &Node) -> Option<FusedPair> {
    match (&first.op, &second.op) {
        _ if second.inputs != [first.output] => None,
        (Op::Add(_), Op::Norm(_)) => Some(FusedPair::SumAndNorm),
        (Op::Linear(_), Op::Activate(activate)) => Some(FusedPair::LinearAndActivation(activate.function)),
        _ => None,
    }
}

/// The operation that is fused into a matmul.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FusedOp {
    /// Residual: adds a value that is already computed.
    Plus(ValueId),
    /// Applies an activation.
    Activate(ActivationFunction),
    /// Gated MLP: activates the first matrix's outputs, or the first half of the only one's, and multiplies by the
    /// others.
    Gate(ActivationFunction),
}

/// The nodes that can be computed while a matmul's outputs are still in registers, where only the last output is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct MatmulEpilogue {
    /// The operation.
    pub op: FusedOp,
    /// The value that replaces the matmul's output.
    pub output: ValueId,
    /// The indices of the nodes.
    pub nodes: Vec<usize>,
    /// Whether the second matrix, or half, is the gate.
    pub gate_is_second: bool,
}

/// Returns what can be fused into a linear node.
pub fn matmul_epilogue(graph: &Graph, node: &Node) -> Option<MatmulEpilogue> {
    let Op::Linear(Linear { parts }) = &node.op else { return None };
    let rows = |part: &(WeightId, _)| graph.weights[part.0].rows;
    match &parts[..] {
        [_] => next(graph, node.output).or_else(|| gate(graph, node.output)),
        [first, second] if rows(first) == rows(second) => gate(graph, node.output),
        _ => None,
    }
}

/// Returns the node that reads a value, if there is exactly one and it reads it once.
fn only_use(graph: &Graph, value: ValueId) -> Option<(usize, &Node)> {
    let mut uses = graph.nodes.iter().enumerate().filter(|(_, node)| node.inputs.contains(&value));
    let (at, node) = uses.next()?;
    let once = node.inputs.iter().filter(|&&input| input == value).count() == 1;
    (once && uses.next().is_none() && graph.output != value).then_some((at, node))
}

fn next(graph: &Graph, product: ValueId) -> Option<MatmulEpilogue> {
    let (at, node) = only_use(graph, product)?;
    let op = match (&node.op, &node.inputs[..]) {
        // Addition is commutative, bit for bit.
        (Op::Add(_), &[a, b]) => {
            let other = if a == product { b } else { a };
            (graph.values[other].rows == graph.values[product].rows).then_some(FusedOp::Plus(other))?
        }
        (Op::Activate(activate), _) => FusedOp::Activate(activate.function),
        _ => return None,
    };
    Some(MatmulEpilogue { op, output: node.output, nodes: vec![at], gate_is_second: false })
}

/// Matches the two halves of a matmul's output, one of which gates the other.
fn gate(graph: &Graph, product: ValueId) -> Option<MatmulEpilogue> {
    let mut halves = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.inputs.contains(&product)) {
        let Op::SliceColumns(slice) = node.op else { return None };
        halves.push((slice.start, at, node.output));
    }
    let half = graph.values[product].columns / 2;
    let (&[(first, at, a), (second, other_at, b)], true) = (&halves[..], graph.output != product) else {
        return None;
    };
    let are_halves = [a, b].iter().all(|&value| graph.values[value].columns == half);
    if !are_halves || first.min(second) != 0 || first.max(second) != half {
        return None;
    }
    let ((gate_at, node), (same, _)) = (only_use(graph, a)?, only_use(graph, b)?);
    let (Op::Gate(gate), true) = (&node.op, gate_at == same) else { return None };
    let starts_with = if node.inputs.first() == Some(&a) { first } else { second };
    Some(MatmulEpilogue {
        op: FusedOp::Gate(gate.function),
        output: node.output,
        nodes: vec![at, other_at, gate_at],
        gate_is_second: starts_with != 0,
    })
}
