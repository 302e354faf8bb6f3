//! What is forgotten after the forward pass and computed again for backward: memory for time.

use siskin::graph::Op;

use super::Program;
use super::names::layer_of;

/// What is computed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing: everything that backward reads is kept.
    #[default]
    Nothing,
    /// All within so many layers, of which only what enters and leaves is kept.
    Layers(usize),
    /// Attention.
    Attention,
    /// What costs no more than so many multiplications for each number that is forgotten: with 0, everything but products and
    /// attention; products with so many columns as well. Attention, whose cost depends on the batch, stays.
    Cost(usize),
}

/// What is forgotten, and in which parts backward goes through the program.
#[derive(Clone, Debug)]
pub struct Forgotten {
    /// The part of each node.
    pub parts: Vec<usize>,
    /// Whether what a node gives is forgotten.
    pub nodes: Vec<bool>,
}

impl Recompute {
    /// Chooses nodes of `program` before its head. What another part reads is never forgotten.
    pub fn choose(self, program: &Program) -> Forgotten {
        let (layers, _) = layers(program);
        let width = if let Self::Layers(width) = self { width.max(1) } else { 1 };
        let parts: Vec<usize> =
            layers.iter().map(|layer| layer.map_or(0, |layer| layer / width + 1)).collect();
        let chosen = |node: usize| match self {
            Self::Nothing => false,
            Self::Layers(_) => true,
            Self::Attention => matches!(program.nodes[node].op, Op::Attention(_)),
            Self::Cost(most) => cost(program, &program.nodes[node].op).is_some_and(|cost| cost <= most),
        };
        let mut leaves = vec![false; program.values.len()];
        leaves[program.hidden] = true;
        let mut made = vec![0; program.values.len()];
        for (node, part) in program.nodes.iter().zip(&parts) {
            node.inputs.iter().for_each(|&input| leaves[input] |= made[input] != *part);
            made[node.output] = *part;
        }
        let forgets = |node: usize| {
            node < program.tail && parts[node] > 0 && chosen(node) && !leaves[program.nodes[node].output]
        };
        Forgotten { nodes: (0..program.nodes.len()).map(forgets).collect(), parts }
    }
}

/// Multiplications for each number that an operation gives; none where that depends on the batch.
fn cost(program: &Program, op: &Op) -> Option<usize> {
    match op {
        Op::Attention(_) | Op::LinearAttention(_) => None,
        Op::Linear { .. } | Op::ExpertLinear { .. } => {
            op.weights().first().map(|&weight| program.weights[weight].columns)
        }
        _ => Some(0),
    }
}

/// The layer that each node belongs to, encoders' before decoders', none before the first; and the names of layers.
pub(super) fn layers(program: &Program) -> (Vec<Option<usize>>, Vec<String>) {
    let mut names: Vec<(super::Side, &str)> = Vec::new();
    let mut current = None;
    let mut of_node = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let side = program.values[node.output].side;
        let named = node.op.weights().into_iter().find_map(|weight| layer_of(&program.weights[weight].name));
        if let Some(name) = named {
            let known = names.iter().position(|known| *known == (side, name));
            let named = known.unwrap_or_else(|| {
                names.push((side, name));
                names.len() - 1
            });
            // Layers may share what belongs to an earlier one.
            current = current.max(Some(named));
        }
        of_node.push(current);
    }
    let names = names.into_iter().map(|(_, name)| name.to_owned()).collect();
    (of_node, names)
}
