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
use siskin_graph::op::{HeadRole, Rope, SinusoidalPositions};
use siskin_graph::pass::prune;
use siskin_graph::{AttentionMask, Graph, Node, Op, RowKind, ValueId, Weight, WeightId};

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
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
        }
    }

    /// Returns the sequences of this side.
    pub fn sequences(self, batch: &TrainingBatch) -> &BatchSequences {
        match self {
            Self::Encoder => &batch.encoder,
            Self::Decoder => &batch.decoder,
        }
    }
}

/// The computation of encoder and decoder as one graph, with what training adds to it.
///
/// Graphs of a model keep encoder and decoder apart: keys and values of cross-attention are stored by one graph and
/// read by the other. Here they are inputs of [`Op::Attention`], and [`Op::StoreCrossKv`] does not occur.
#[derive(Clone, Debug)]
pub struct Program {
    /// The graph. It has no nodes that its output does not depend on, and no early exits. Its hidden value is the one
    /// that enters the head.
    pub graph: Graph,
    /// The side that the rows of each value belong to.
    pub sides: Vec<Side>,
    /// The first node of the head: from here on, each row is computed independently of other rows, from one value.
    pub head_start: usize,
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
            return Err(Error::unsupported("model", "no graph to train"));
        };
        let (output, head) = (values[graph.output], graph.head);
        let GraphJoin { graph, sides, .. } = join;
        let graph = prune(&Graph { output, head, ..graph });
        let mut program = Self { graph, sides, head_start: 0 };
        (program.head_start, program.graph.hidden) = program.find_head();
        Ok(program)
    }

    /// Builds the program of the model in a file.
    pub fn of_file(file: &File) -> Result<Self> {
        let (_, graphs) = graphs_of(file)?;
        Self::new(&graphs)
    }

    /// Returns the side that produces the output.
    pub fn side(&self) -> Side {
        self.sides[self.graph.output]
    }

    /// Returns true if this side has nodes.
    pub fn has(&self, side: Side) -> bool {
        self.graph.nodes.iter().any(|node| self.sides[node.output] == side)
    }

    /// Returns the sequences that the rows of a value belong to.
    pub fn sequences<'a>(&self, value: ValueId, batch: &'a TrainingBatch) -> &'a BatchSequences {
        self.sides[value].sequences(batch)
    }

    /// Returns the number of rows of a value in a batch.
    pub fn row_count(&self, value: ValueId, batch: &TrainingBatch) -> usize {
        self.sequences(value, batch).row_counts().of(self.graph.values[value].rows)
    }

    /// Returns the values that a node reads.
    pub fn inputs(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.nodes[node].inputs.iter().copied()
    }

    /// Returns for each weight whether all operations that read it take it packed.
    pub fn takes_packed(&self) -> Vec<bool> {
        let mut takes = vec![true; self.graph.weights.len()];
        let packed = |node: &&Node| rule::<f32>(&node.op).is_ok_and(|rule| rule.takes_packed());
        for node in self.graph.nodes.iter().filter(|node| !packed(node)) {
            node.op.weights().into_iter().for_each(|weight| takes[weight] = false);
        }
        takes
    }

    /// Finds the first node of the head, and the value that enters it.
    fn find_head(&self) -> (usize, usize) {
        let nodes = &self.graph.nodes;
        let mut best = (nodes.len(), self.graph.output);
        for first in (0..nodes.len()).rev() {
            let is_outside = nodes[first].op.head_role() == HeadRole::Outside;
            if is_outside || self.graph.values[nodes[first].output].rows != RowKind::Outputs {
                break;
            }
            let made: Vec<usize> = nodes[first..].iter().map(|node| node.output).collect();
            let mut from = nodes[first..].iter().flat_map(|node| &node.inputs);
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
    graph: Graph,
    sides: Vec<Side>,
    known: HashMap<Weight, WeightId>,
    /// The encoder keys and values that each layer of the decoder attends to.
    cross_kv: HashMap<usize, [usize; 2]>,
}

impl GraphJoin {
    /// Appends a graph; returns the new indices of its values.
    fn append(&mut self, side: Side, graph: &Graph) -> Result<Vec<usize>> {
        let values: Vec<usize> = (self.graph.values.len()..).take(graph.values.len()).collect();
        self.graph.values.extend(&graph.values);
        self.sides.resize(self.graph.values.len(), side);
        let weights: Vec<WeightId> = graph.weights.iter().map(|weight| self.weight(weight)).collect();
        let ropes = self.graph.ropes.len();
        self.graph.ropes.extend(graph.ropes.iter().cloned());
        for node in &graph.nodes {
            let mut op = node.op.clone();
            op.each_weight(&mut |weight| *weight = weights[*weight]);
            let mut inputs: Vec<usize> = node.inputs.iter().map(|&input| values[input]).collect();
            if let Op::Rope(Rope { rope, .. }) | Op::SinusoidalPositions(SinusoidalPositions { rope, .. }) =
                &mut op
            {
                *rope += ropes;
            } else if let Op::StoreCrossKv(store) = &op {
                self.cross_kv.insert(store.attention.layer, [inputs[0], inputs[1]]);
                continue;
            } else if let Op::Attention(attention) = &op
                && attention.attention_mask == AttentionMask::CrossAttention
            {
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
            self.graph.nodes.push(Node { op, inputs, output: values[node.output] });
        }
        Ok(values)
    }

    fn weight(&mut self, weight: &Weight) -> WeightId {
        if let Some(&known) = self.known.get(weight) {
            return known;
        }
        self.known.insert(weight.clone(), self.graph.weights.len());
        self.graph.weights.push(weight.clone());
        self.graph.weights.len() - 1
    }
}
