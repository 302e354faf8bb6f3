//! Matmul epilogue fusion: finds the nodes that can be computed while a matmul's outputs are still in cache.

use siskin_kernels::panel::ROWS;

use siskin_graph::op::Linear;
use siskin_graph::{ActivationFunction, Graph, Node, Op, ValueId, WeightId};

/// The fused operation.
pub(super) enum FusedOp {
    /// Residual: adds a value that is already computed.
    Plus(ValueId),
    /// Applies an activation.
    Activate(ActivationFunction),
    /// Gated MLP: activates the first matrix's outputs, or the first half of the only one's, and multiplies by the
    /// others.
    Gate(ActivationFunction),
}

/// Nodes that are fused into a matmul.
pub(super) struct Fusion {
    pub with: FusedOp,
    /// The value that replaces the matmul's output.
    pub output: ValueId,
    pub nodes: Vec<usize>,
    /// Whether the second matrix is the gate.
    pub turned: bool,
}

/// Returns what can be fused into a linear node.
pub(super) fn of(graph: &Graph, node: &Node) -> Option<Fusion> {
    let Op::Linear(Linear { parts }) = &node.op else { return None };
    let rows = |part: &(WeightId, _)| graph.weights[part.0].rows;
    match &parts[..] {
        [whole] => next(graph, node.output)
            .or_else(|| gate(graph, node.output).filter(|_| rows(whole).is_multiple_of(2 * ROWS))),
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

fn next(graph: &Graph, product: ValueId) -> Option<Fusion> {
    let (at, node) = only_use(graph, product)?;
    let with = match (&node.op, &node.inputs[..]) {
        // Addition is commutative, bit for bit.
        (Op::Add(_), &[a, b]) => {
            let other = if a == product { b } else { a };
            (graph.values[other].rows == graph.values[product].rows).then_some(FusedOp::Plus(other))?
        }
        (Op::Activate(activate), _) => FusedOp::Activate(activate.function),
        _ => return None,
    };
    Some(Fusion { with, output: node.output, nodes: vec![at], turned: false })
}

/// Matches the two halves of a matmul's output, one of which gates the other.
fn gate(graph: &Graph, product: ValueId) -> Option<Fusion> {
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
    let nodes = vec![at, other_at, gate_at];
    Some(Fusion { with: FusedOp::Gate(gate.function), output: node.output, nodes, turned: starts_with != 0 })
}
