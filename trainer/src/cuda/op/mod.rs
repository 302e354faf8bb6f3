//! The kernels and matmuls of each operation, forward and backward: the device counterpart of the rules in
//! [`grad`](crate::grad).

mod elementwise;
mod embed;
mod experts;
mod fp8_linear;
mod im2col;
mod indexing;
mod linear;
mod linear_attention;
mod norm;

pub(super) use linear::LinearPtrs;
pub(super) use linear_attention::is_logarithm;
pub(super) use norm::NormPtrs;

use siskin::graph::Op;
use siskin::{Error, Result};
use siskin_device::{CommandList, DevicePtr, GridSize, KernelArgument, MatrixShape, Precision, aligned};

use super::attention;
use super::batch_tables::BatchTables;
use super::fp8::Fp8LinearScaling;
use super::weights::{DeviceWeight, DeviceWeights};
use crate::batch::{BatchSequences, TrainingBatch};
use crate::program::{Program, ProgramNode, ProgramValue};

/// The command list, scratch memory and batch tables that operations write to.
pub(super) struct CommandBuilder<'a> {
    pub(super) commands: &'a mut CommandList,
    pub(super) tables: &'a mut BatchTables,
    pub(super) scratch: &'a mut OpScratch,
}

/// Scratch memory of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpScratch {
    base: DevicePtr,
    used: usize,
    /// The maximum that any operation used.
    pub(super) most: usize,
}

impl OpScratch {
    /// Scratch memory that begins at `base`.
    pub(super) fn new(base: DevicePtr) -> Self {
        Self { base, used: 0, most: 0 }
    }

    /// Allocates f32 elements, until the next operation begins.
    pub(super) fn floats(&mut self, count: usize) -> DevicePtr {
        let place = self.base + self.used as DevicePtr;
        self.used += aligned(4 * count);
        self.most = self.most.max(self.used);
        place
    }

    /// Like [`Self::floats`], in bytes.
    pub(super) fn bytes(&mut self, count: usize) -> DevicePtr {
        self.floats(count.div_ceil(4))
    }

    /// Like [`Self::floats`], for f64 elements.
    pub(super) fn doubles(&mut self, count: usize) -> DevicePtr {
        self.floats(2 * count)
    }

    /// Frees all scratch memory.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

/// The arguments of an operation.
#[derive(Clone, Copy)]
pub(super) struct OpCall<'a> {
    pub(super) program: &'a Program,
    pub(super) node: &'a ProgramNode,
    pub(super) batch: &'a TrainingBatch,
    pub(super) weights: &'a DeviceWeights,
    /// Rows of the output.
    pub(super) rows: usize,
    /// Elements from a row of the output to the next: the columns, except where the output of a matmul is padded.
    pub(super) stride: usize,
    /// Whether the amax of fp8 tensors is recorded.
    pub(super) records_amax: bool,
}

impl<'a> OpCall<'a> {
    /// Returns the scaling state of an fp8 matmul's tensors; `None` without fp8.
    fn fp8_scaling(&self) -> Option<Fp8LinearScaling> {
        self.weights.fp8.as_ref()?.of(self.node)
    }

    fn output(&self) -> ProgramValue {
        self.program.values[self.node.output]
    }

    pub(super) fn input(&self, index: usize) -> ProgramValue {
        self.program.values[self.node.inputs[index]]
    }

    pub(super) fn columns(&self) -> usize {
        self.output().columns
    }

    /// Returns the number of elements of the output.
    fn count(&self) -> usize {
        self.rows * self.columns()
    }

    /// Returns the sequences that the rows belong to.
    pub(super) fn sequences(&self) -> &'a BatchSequences {
        self.output().side.sequences(self.batch)
    }

    /// Returns a name for tables that all operations on these sequences share.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{what} {:?}", self.output().side)
    }

    pub(super) fn weight(&self, weight: usize) -> DeviceWeight {
        self.weights.list[weight]
    }
}

/// The gradient of an input, and whether it is accumulated into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GradientTarget {
    pub(super) ptr: DevicePtr,
    pub(super) accumulate: bool,
}

impl GradientTarget {
    /// Returns the arguments of a kernel.
    fn arguments(self) -> [KernelArgument; 2] {
        [KernelArgument::Ptr(self.ptr), flag(self.accumulate)]
    }
}

/// The inputs and outputs of a backward pass. Places of unused tensors are 0.
pub(super) struct OpBackward<'a> {
    pub(super) inputs: &'a [DevicePtr],
    pub(super) output: DevicePtr,
    pub(super) saved: DevicePtr,
    pub(super) gradient: DevicePtr,
    /// One for each input; `None` if not needed.
    pub(super) input_gradients: &'a [Option<GradientTarget>],
}

pub(super) fn flag(on: bool) -> KernelArgument {
    KernelArgument::Int(i32::from(on))
}

pub(super) fn int(number: usize) -> KernelArgument {
    KernelArgument::Int(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Returns the f32 elements that forward keeps for backward.
pub(super) fn saved_len(node: &ProgramNode, rows: usize) -> usize {
    match &node.op {
        Op::Attention(attention) => rows * attention.heads,
        _ => 0,
    }
}

/// Refuses operations without kernels, or whose kernels need more than `shared` bytes of shared memory.
pub(super) fn check(program: &Program, precision: Precision, shared: usize) -> Result<()> {
    for node in &program.nodes {
        let known = match &node.op {
            Op::Attention(description) => {
                attention::check(description, precision, shared)?;
                true
            }
            Op::Route(routing) if routing.experts > experts::most(precision) => {
                let most = experts::most(precision);
                let message = format!(
                    "more than {most} experts are not supported in this precision; use precision = \"f32\""
                );
                return Err(Error::unsupported("precision", message));
            }
            Op::LinearAttention(recurrence) => recurrence.key_size <= linear_attention::MAX_KEYS,
            Op::ExternalInput | Op::StoreCrossKv(_) => false,
            _ => true,
        };
        if !known {
            let name = format!("{:?}", node.op);
            let name = name.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
            let message = format!("there are no CUDA kernels for {name} yet; train with device = \"cpu\"");
            return Err(Error::unsupported("device", message));
        }
    }
    Ok(())
}

/// Appends an operation's forward pass to the command list.
pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    inputs: &[DevicePtr],
    out: DevicePtr,
    kept: DevicePtr,
) {
    work.scratch.clear();
    match &call.node.op {
        Op::Embed { .. } | Op::EmbedSegment { .. } | Op::EmbedPosition { .. } => {
            embed::forward(work, call, out)
        }
        Op::EmbedSine { .. } => embed::sines(work, call, out),
        Op::Features => embed::features(work, call, out),
        Op::Norm { .. } | Op::L2Normalize { .. } => norm::forward(work, call, inputs[0], out),
        Op::Linear { .. } => linear::forward(work, call, LinearPtrs { x: inputs[0], out, activated: 0 }),
        Op::SliceColumns { .. } | Op::RepeatColumns(_) | Op::SelectOutputs | Op::Rope { .. } => {
            indexing::forward(work, call, inputs[0], out)
        }
        Op::Attention(description) => attention::forward(work, call, description, inputs, out, kept),
        Op::Route(_) | Op::Dispatch(_) | Op::ExpertLinear { .. } | Op::Combine(_) => {
            experts::forward(work, call, inputs, out)
        }
        Op::Im2col { .. } => im2col::forward(work, call, inputs[0], out),
        Op::DecayGate { .. } | Op::CausalConv1d { .. } | Op::LinearAttention(_) => {
            linear_attention::forward(work, call, inputs, out)
        }
        _ => elementwise::forward(work, call, inputs, out),
    }
}

/// Appends an operation's backward pass to the command list.
pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    work.scratch.clear();
    match &call.node.op {
        Op::Embed { .. } | Op::EmbedSegment { .. } | Op::EmbedPosition { .. } => {
            embed::backward(work, call, back)
        }
        Op::EmbedSine { .. } | Op::Features => {}
        Op::Norm { .. } | Op::L2Normalize { .. } => norm::backward(work, call, back),
        Op::Linear { .. } => linear::backward(work, call, back),
        Op::SliceColumns { .. } | Op::RepeatColumns(_) | Op::SelectOutputs | Op::Rope { .. } => {
            indexing::backward(work, call, back)
        }
        Op::Attention(description) => attention::backward(work, call, description, back),
        Op::Route(_) | Op::Dispatch(_) | Op::ExpertLinear { .. } | Op::Combine(_) => {
            experts::backward(work, call, back)
        }
        Op::Im2col { .. } => im2col::backward(work, call, back),
        Op::DecayGate { .. } | Op::CausalConv1d { .. } | Op::LinearAttention(_) => {
            linear_attention::backward(work, call, back)
        }
        _ => elementwise::backward(work, call, back),
    }
}

/// Appends the fused norm of a sum of two values, which the node before adds.
pub(super) fn add_and_norm(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: NormPtrs) {
    work.scratch.clear();
    norm::of_sum(work, call, ptrs);
}

/// Returns true if GELU can be fused into the epilogue of a matmul, whose call this is.
pub(super) fn fuses_gelu(call: &OpCall<'_>, precision: Precision) -> bool {
    call.fp8_scaling().is_none() && linear::fuses_gelu(precision, call.node, call.columns())
}

/// Appends a matmul with a GELU epilogue.
pub(super) fn linear_gelu(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: LinearPtrs) {
    work.scratch.clear();
    linear::forward(work, call, ptrs);
}

/// Rows that one block sums: fixed, so that sums are the same on every device.
const PART: usize = 128;

/// Adds sums over rows to the gradient of a weight. `kernel` takes `arguments`, then the number of rows per part, and
/// where the sums of each part go.
fn sum_rows(
    work: &mut CommandBuilder<'_>,
    kernel: &str,
    MatrixShape { rows, columns }: MatrixShape,
    arguments: &[KernelArgument],
    to: DevicePtr,
) {
    let parts = rows.div_ceil(PART);
    let sums = work.scratch.floats(parts * columns);
    let arguments = [arguments, &[int(PART), KernelArgument::Ptr(sums)]].concat();
    let name = work.commands.kernel_name(kernel);
    let blocks = columns.div_ceil(32 * work.commands.precision().vector_width());
    work.commands.kernel(&name, GridSize::new(parts, blocks, 1), 256, 0, &arguments);
    if parts > 0 {
        let arguments = [KernelArgument::Ptr(sums), int(parts), int(columns), KernelArgument::Ptr(to)];
        work.commands.kernel("reduce_parts", GridSize::linear(columns.div_ceil(32)), 1024, 0, &arguments);
    }
}

/// Returns the padded width of table rows with `columns` columns.
pub(super) fn padded_width(precision: Precision, columns: usize) -> usize {
    columns.next_multiple_of(precision.vector_width())
}
