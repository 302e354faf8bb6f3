//! Activation checkpointing (Chen et al. 2016, arXiv:1604.06174): activations are dropped after the forward pass and
//! recomputed for the backward pass, trading time for memory.

use siskin_graph::Op;

use super::Program;

/// What is recomputed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing: all activations that backward reads are kept.
    #[default]
    None,
    /// Everything within segments of this many layers, of which only inputs and outputs are kept.
    Layers(usize),
    /// Attention.
    Attention,
    /// Operations with at most this many multiplications per element of their output. 0: everything but matmuls and
    /// attention; larger values include matmuls with up to that many columns. Attention, whose cost depends on the
    /// batch, is kept.
    Cost(usize),
}

/// What is dropped, and the segments in which backward traverses the program.
#[derive(Clone, Debug)]
pub struct RecomputePlan {
    /// The segment of each node.
    pub segments: Vec<usize>,
    /// Whether the output of a node is dropped.
    pub dropped: Vec<bool>,
}

impl Recompute {
    /// Chooses nodes of `program` before its head. Values that another segment reads are never dropped.
    pub fn choose(self, program: &Program) -> RecomputePlan {
        let (layers, _) = layers(program);
        let width = if let Self::Layers(width) = self { width.max(1) } else { 1 };
        let parts: Vec<usize> =
            layers.iter().map(|layer| layer.map_or(0, |layer| layer / width + 1)).collect();
        let chosen = |node: usize| match self {
            Self::None => false,
            Self::Layers(_) => true,
            Self::Attention => matches!(program.graph.nodes[node].op, Op::Attention(_)),
            Self::Cost(max_cost) => {
                cost(program, &program.graph.nodes[node].op).is_some_and(|cost| cost <= max_cost)
            }
        };
        let mut leaves = vec![false; program.graph.values.len()];
        leaves[program.graph.hidden] = true;
        let mut made = vec![0; program.graph.values.len()];
        for (node, part) in program.graph.nodes.iter().zip(&parts) {
            node.inputs.iter().for_each(|&input| leaves[input] |= made[input] != *part);
            made[node.output] = *part;
        }
        let is_dropped = |node: usize| {
            node < program.head_start
                && parts[node] > 0
                && chosen(node)
                && !leaves[program.graph.nodes[node].output]
        };
        RecomputePlan { dropped: (0..program.graph.nodes.len()).map(is_dropped).collect(), segments: parts }
    }
}

/// Returns the multiplications per output element of an operation; `None` if they depend on the batch.
fn cost(program: &Program, op: &Op) -> Option<usize> {
    match op {
        Op::Attention(_) | Op::LinearAttention(_) => None,
        Op::Linear(_) | Op::ExpertLinear(_) => {
            op.weights().first().map(|&weight| program.graph.weights[weight].columns)
        }
        Op::Embed(_)
        | Op::EmbedSegment(_)
        | Op::SinusoidalPositions(_)
        | Op::EmbedPosition(_)
        | Op::InputFeatures(_)
        | Op::ExternalInput(_)
        | Op::Im2col(_)
        | Op::Norm(_)
        | Op::Route(_)
        | Op::Dispatch(_)
        | Op::Combine(_)
        | Op::SliceColumns(_)
        | Op::Rope(_)
        | Op::StoreCrossKv(_)
        | Op::MultiLora(_)
        | Op::Activate(_)
        | Op::Gate(_)
        | Op::ClampedGate(_)
        | Op::RepeatColumns(_)
        | Op::L2Normalize(_)
        | Op::DecayGate(_)
        | Op::CausalConv1d(_)
        | Op::Add(_)
        | Op::Affine(_)
        | Op::Scale(_)
        | Op::Softcap(_)
        | Op::Clamp(_)
        | Op::SelectOutputs(_) => Some(0),
    }
}

/// Returns the layer that each node belongs to, encoder layers before decoder layers, `None` before the first; and
/// the names of layers.
pub(super) fn layers(program: &Program) -> (Vec<Option<usize>>, Vec<String>) {
    let mut names: Vec<(super::Side, &str)> = Vec::new();
    let mut current = None;
    let mut of_node = Vec::with_capacity(program.graph.nodes.len());
    for node in &program.graph.nodes {
        let side = program.sides[node.output];
        let named =
            node.op.weights().into_iter().find_map(|weight| layer_of(&program.graph.weights[weight].name));
        if let Some(name) = named {
            let known = names.iter().position(|known| *known == (side, name));
            let named = known.unwrap_or_else(|| {
                names.push((side, name));
                names.len() - 1
            });
            // Layers may share tensors of an earlier one.
            current = current.max(Some(named));
        }
        of_node.push(current);
    }
    let names = names.into_iter().map(|(_, name)| name.to_owned()).collect();
    (of_node, names)
}

/// Returns the layer that a tensor belongs to, such as `blk.3`; `None` for tensors outside layers.
pub fn layer_of(tensor: &str) -> Option<&str> {
    let (prefix, rest) = tensor.split_once("blk.")?;
    let digits = rest.find('.')?;
    Some(&tensor[..prefix.len() + "blk.".len() + digits])
}
