//! The graphs of a model as one program: the encoder's keys and values become an input of the decoder's
//! cross-attention.

mod memory;
mod names;
mod recompute;
mod schedule;

pub use memory::{BatchBytes, BatchShape, BufferLayout, Layouts, MemoryByPart, WeightBytes};
pub use recompute::{Recompute, layer_of};
pub use schedule::{Buffer, BufferUses, Schedule, ScheduleStep};

use std::collections::HashMap;

use siskin_format::file::File;
use siskin_format::{Error, Result};
use siskin_graph::arch::{ConfigReader, Family, Graphs, ModelConfig};
use siskin_graph::op::{Rope, SinusoidalPositions};
use siskin_graph::{AttentionMask, Graph, Op, OutputHead, RopeTable, RowCounts, RowKind, Weight, WeightId};

use crate::batch::{BatchSequences, TrainingBatch};
use crate::grad::rule;

/// Which sequences the rows of a value belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those of the encoder.
    Encoder,
    /// Those of the decoder.
    Decoder,
}

impl Side {
    /// Returns the sequences of this side.
    pub fn sequences(self, batch: &TrainingBatch) -> &BatchSequences {
        match self {
            Self::Encoder => &batch.encoder,
            Self::Decoder => &batch.decoder,
        }
    }
}

/// A value: a matrix of activations.
#[derive(Clone, Copy, Debug)]
pub struct ProgramValue {
    /// Its number of rows.
    pub rows: RowKind,
    /// Its number of columns.
    pub columns: usize,
    /// The side that its rows belong to.
    pub side: Side,
}

impl ProgramValue {
    /// Returns its number of rows in a batch.
    pub fn row_count(&self, batch: &TrainingBatch) -> usize {
        let texts = self.side.sequences(batch);
        let (batch, outputs) = (texts.rows.len(), texts.output_rows.len());
        RowCounts { batch, outputs, frames: texts.frame_count() }.of(self.rows)
    }
}

/// An operation, its inputs and its one output.
#[derive(Clone, Debug)]
pub struct ProgramNode {
    /// The operation.
    pub op: Op,
    /// The input values.
    pub inputs: Vec<usize>,
    /// The output value.
    pub output: usize,
}

/// The computation of encoder and decoder.
#[derive(Clone, Debug)]
pub struct Program {
    /// The nodes in topological order.
    pub nodes: Vec<ProgramNode>,
    /// The values between nodes.
    pub values: Vec<ProgramValue>,
    /// The tensors of all nodes, each once.
    pub weights: Vec<Weight>,
    /// The RoPE tables.
    pub ropes: Vec<RopeTable>,
    /// The output value.
    pub output: usize,
    /// What the rows of the output are.
    pub head: OutputHead,
    /// The first node of the head: from here on, each row is computed independently of other rows, from one value.
    pub head_start: usize,
    /// The value that enters the head.
    pub hidden: usize,
}

impl Program {
    /// Builds the program of a model's graphs, with their heads.
    pub fn new(graphs: &Graphs) -> Result<Self> {
        let mut join = GraphJoin::default();
        let mut last = None;
        for (side, graph) in [(Side::Encoder, &graphs.encoder), (Side::Decoder, &graphs.decoder)] {
            if let Some(graph) = graph {
                last = Some((join.append(side, graph)?, graph));
            }
        }
        let Some((values, graph)) = last else {
            return Err(Error::unsupported("model", "has no graph to train"));
        };
        let output = values[graph.output];
        let GraphJoin { nodes, values, weights, ropes, .. } = join;
        let mut program =
            Self { nodes, values, weights, ropes, output, head: graph.head, head_start: 0, hidden: 0 };
        program.drop_unused();
        (program.head_start, program.hidden) = program.find_head();
        Ok(program)
    }

    /// Builds the program of the model in a file.
    pub fn of_file(file: &File) -> Result<Self> {
        let (_, graphs) = graphs_of(file)?;
        Self::new(&graphs)
    }

    /// Returns the side that produces the output.
    pub fn side(&self) -> Side {
        self.values[self.output].side
    }

    /// Returns true if this side has nodes.
    pub fn has(&self, side: Side) -> bool {
        self.nodes.iter().any(|node| self.values[node.output].side == side)
    }

    /// Returns the values that a node reads.
    pub fn inputs(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes[node].inputs.iter().copied()
    }

    /// Returns for each weight whether all operations that read it take it packed.
    pub fn takes_packed(&self) -> Vec<bool> {
        let mut takes = vec![true; self.weights.len()];
        let packed = |node: &&ProgramNode| rule::<f32>(&node.op).is_ok_and(|rule| rule.takes_packed());
        for node in self.nodes.iter().filter(|node| !packed(node)) {
            node.op.weights().into_iter().for_each(|weight| takes[weight] = false);
        }
        takes
    }

    /// Removes nodes that the output does not depend on (dead-code elimination).
    fn drop_unused(&mut self) {
        let mut used = vec![false; self.values.len()];
        used[self.output] = true;
        let mut kept = Vec::new();
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if used[node.output] {
                node.inputs.iter().for_each(|&input| used[input] = true);
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
    }

    /// Finds the first node of the head, and the value that enters it.
    fn find_head(&self) -> (usize, usize) {
        let alone = |op: &Op| {
            matches!(
                op,
                Op::Linear(_)
                    | Op::Norm(_)
                    | Op::Activate(_)
                    | Op::Gate(_)
                    | Op::SliceColumns(_)
                    | Op::Add(_)
                    | Op::Affine(_)
                    | Op::Scale(_)
                    | Op::Softcap(_)
                    | Op::Clamp(_)
            )
        };
        let mut best = (self.nodes.len(), self.output);
        for first in (0..self.nodes.len()).rev() {
            if !alone(&self.nodes[first].op) || self.values[self.nodes[first].output].rows != RowKind::Outputs
            {
                break;
            }
            let made: Vec<usize> = self.nodes[first..].iter().map(|node| node.output).collect();
            let mut from = self.nodes[first..].iter().flat_map(|node| &node.inputs);
            let mut outside: Vec<usize> =
                from.by_ref().copied().filter(|input| !made.contains(input)).collect();
            outside.dedup();
            if let [only] = outside[..] {
                best = (first, only);
            }
        }
        best
    }
}

/// Builds the graphs of the model in a file.
pub(crate) fn graphs_of(file: &File) -> Result<(ModelConfig, Graphs)> {
    let metadata = file.metadata();
    let family = Family::named(&metadata.architecture).map_err(|error| error.within("metadata"))?;
    let config = ConfigReader::new(metadata.config.clone());
    family.build(&config, &|name| file.tensor(name).is_some())
}

/// Graphs while they are joined into one program.
#[derive(Default)]
struct GraphJoin {
    nodes: Vec<ProgramNode>,
    values: Vec<ProgramValue>,
    weights: Vec<Weight>,
    known: HashMap<Weight, WeightId>,
    ropes: Vec<RopeTable>,
    /// The encoder keys and values that each layer of the decoder attends to.
    cross_kv: HashMap<usize, [usize; 2]>,
}

impl GraphJoin {
    /// Appends a graph; returns the new indices of its values.
    fn append(&mut self, side: Side, graph: &Graph) -> Result<Vec<usize>> {
        let values: Vec<usize> = (self.values.len()..).take(graph.values.len()).collect();
        self.values.extend(graph.values.iter().map(|value| ProgramValue {
            rows: value.rows,
            columns: value.columns,
            side,
        }));
        let weights: Vec<WeightId> = graph.weights.iter().map(|weight| self.weight(weight)).collect();
        let ropes = self.ropes.len();
        self.ropes.extend(graph.ropes.iter().cloned());
        for node in &graph.nodes {
            let mut op = node.op.clone();
            op.each_weight(&mut |weight| *weight = weights[*weight]);
            let mut inputs: Vec<usize> = node.inputs.iter().map(|&input| values[input]).collect();
            match &mut op {
                Op::Rope(Rope { rope, .. }) | Op::SinusoidalPositions(SinusoidalPositions { rope, .. }) => {
                    *rope += ropes;
                }
                Op::StoreCrossKv(store) => {
                    self.cross_kv.insert(store.attention.layer, [inputs[0], inputs[1]]);
                    continue;
                }
                Op::Attention(attention) if attention.attention_mask == AttentionMask::CrossAttention => {
                    let remembered = self.cross_kv.get(&attention.layer).ok_or_else(|| {
                        let message = format!(
                            "cross-attention in layer {} has no encoder keys and values",
                            attention.layer
                        );
                        Error::unsupported("graph", message)
                    })?;
                    inputs.truncate(1);
                    inputs.extend(remembered);
                }
                _ => {}
            }
            self.nodes.push(ProgramNode { op, inputs, output: values[node.output] });
        }
        Ok(values)
    }

    fn weight(&mut self, weight: &Weight) -> WeightId {
        if let Some(&known) = self.known.get(weight) {
            return known;
        }
        self.known.insert(weight.clone(), self.weights.len());
        self.weights.push(weight.clone());
        self.weights.len() - 1
    }
}
