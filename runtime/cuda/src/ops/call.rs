//! The arguments of operations.

use siskin_device::{DevicePtr, KernelArgument};
use siskin_graph::{BatchSequences, Graph, Node, ValueShape, WeightId};

use crate::command_builder::flag;

/// The places of a weight's values: all that a forward pass needs of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceWeight {
    /// As f32, which norms, biases of attention scores, convolutions and per-column operations read; 0 if none does.
    pub f32: DevicePtr,
    /// In the precision of activations, which matmuls and embeddings read, biases of matmuls included; 0 if none does.
    /// May be the same place as [`Self::f32`].
    pub compute: DevicePtr,
    /// Rows; 1 for a vector.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl DeviceWeight {
    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.rows * self.columns
    }
}

/// The sequences that rows belong to.
#[derive(Clone, Copy, Debug)]
pub struct RowSequences<'a> {
    /// Their name in [`BatchTables`](crate::BatchTables): equal for the same sequences, different for others.
    pub name: &'static str,
    /// The sequences.
    pub batch: &'a BatchSequences,
}

/// The arguments of an operation that are known before its tensors are placed.
#[derive(Clone, Copy, Debug)]
pub struct OpCall<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// One of its nodes.
    pub node: &'a Node,
    /// The weights of the graph, by index.
    pub weights: &'a [DeviceWeight],
    /// The sequences that the rows of the output belong to.
    pub queries: RowSequences<'a>,
    /// The sequences that the rows of keys and values belong to: others than those of the output in cross-attention.
    pub keys: RowSequences<'a>,
    /// Rows of the output.
    pub rows: usize,
    /// Elements from a row of the output to the next: the columns, except where the output of a matmul is padded.
    pub stride: usize,
}

impl<'a> OpCall<'a> {
    /// Returns the shape of the output.
    pub fn output(&self) -> ValueShape {
        self.graph.values[self.node.output]
    }

    /// Returns the shape of an input.
    pub fn input(&self, index: usize) -> ValueShape {
        self.graph.values[self.node.inputs[index]]
    }

    /// Returns the number of columns of the output.
    pub fn columns(&self) -> usize {
        self.output().columns
    }

    /// Returns the number of elements of the output.
    pub fn count(&self) -> usize {
        self.rows * self.columns()
    }

    /// Returns the sequences that the rows of the output belong to.
    pub fn sequences(&self) -> &'a BatchSequences {
        self.queries.batch
    }

    /// Returns a name for tables that all operations on the sequences of the output share.
    pub fn table_name(&self, what: &str) -> String {
        format!("{what} {}", self.queries.name)
    }

    /// Returns a weight.
    pub fn weight(&self, weight: WeightId) -> DeviceWeight {
        self.weights[weight]
    }
}

/// The places of an operation's tensors.
#[derive(Clone, Copy, Debug)]
pub struct OpTensors<'a> {
    /// The inputs.
    pub inputs: &'a [DevicePtr],
    /// The output.
    pub out: DevicePtr,
    /// What the backward pass reads beside inputs and output: as many f32 elements as
    /// [`CudaForward::saved_len`](crate::CudaForward::saved_len) says. They are written in inference, too.
    pub saved: DevicePtr,
}

/// Where a kernel writes, and whether it adds to what is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Destination {
    /// The place; 0: the result is not needed.
    pub ptr: DevicePtr,
    /// Whether results are accumulated.
    pub accumulate: bool,
}

impl Destination {
    /// A place that is overwritten.
    pub fn overwrite(ptr: DevicePtr) -> Self {
        Self { ptr, accumulate: false }
    }

    /// Returns the arguments of a kernel.
    pub fn arguments(self) -> [KernelArgument; 2] {
        [KernelArgument::Ptr(self.ptr), flag(self.accumulate)]
    }
}
