//! Turns the plan of a pass into kernel launches.

mod attention;
mod matmul;
mod row_wise;
mod states;

use siskin_backend::kv_storage::KvStorageLayout;
use siskin_backend::plan::{BufferView, Plan, PlanStep, RowOp};
use siskin_device::DevicePtr;
use siskin_format::{Error, Result};
use siskin_graph::{Attention, RowKind};

use crate::input_tables::InputTables;
use crate::launches::{LoweredPass, LoweredStep, Places};
use crate::row_ops::{DeviceRows, EncodedRowOp};
use crate::weights::UploadedWeights;

/// The floats of shared memory that a normalized row may take.
const MAX_ROW_FLOATS: usize = 12 << 10;

/// What lowering needs beside the plan.
pub(crate) struct PassContext<'a> {
    pub weights: &'a UploadedWeights,
    pub storage: &'a KvStorageLayout,
    /// The address of the first block of each KV cache group.
    pub pools: &'a [DevicePtr],
    /// Returns the relative position bias of an attention, and its reach; 0: none.
    pub bias: &'a dyn Fn(&Attention) -> (DevicePtr, usize),
    /// Returns the bias by position of BigBird blocks of a size and a number of random ones.
    pub block_bias: &'a dyn Fn((usize, usize)) -> DevicePtr,
    /// Returns the ALiBi slopes of an attention; 0: none.
    pub slopes: &'a dyn Fn(&Attention) -> DevicePtr,
    /// Returns rows of angles by position for an operation that computes them; `None`: computed for each batch.
    pub angles: &'a dyn Fn(&RowOp) -> Option<DeviceRows>,
    pub places: Places,
    /// The multiprocessors of the device.
    pub multiprocessors: usize,
}

/// Lowers a plan for batches of up to `rows` rows and `frames` frames.
///
/// # Errors
/// If the plan has an operation without a kernel.
pub(crate) fn lower_plan(
    plan: &Plan,
    rows: usize,
    frames: usize,
    context: &PassContext<'_>,
) -> Result<LoweredPass> {
    let mut lowering = Lowering {
        context,
        tables: InputTables::new(rows, frames),
        steps: Vec::new(),
        constants: Vec::new(),
        pending: None,
    };
    for step in &plan.steps {
        lowering.step(step)?;
    }
    lowering.flush();
    let Lowering { tables, steps, constants, .. } = lowering;
    Ok(LoweredPass {
        tables,
        steps,
        constants,
        places: context.places,
        multiprocessors: context.multiprocessors,
    })
}

/// A pass while it is lowered.
struct Lowering<'a> {
    context: &'a PassContext<'a>,
    tables: InputTables,
    steps: Vec<LoweredStep>,
    constants: Vec<u8>,
    /// Row-wise operations of the next launch.
    pending: Option<(RowKind, Vec<EncodedRowOp>)>,
}

impl Lowering<'_> {
    fn step(&mut self, step: &PlanStep) -> Result<()> {
        match step {
            PlanStep::Rows { rows, ops } => {
                self.use_rows(*rows);
                for op in ops {
                    match self.each_row(op) {
                        Some((kernel, threads, shared, arguments)) => {
                            self.launch(LoweredStep::EachRow {
                                rows: *rows,
                                kernel,
                                threads,
                                shared,
                                arguments,
                            });
                        }
                        None => {
                            let op = self.row_op(op)?;
                            self.push(*rows, op);
                        }
                    }
                }
                Ok(())
            }
            PlanStep::Linear { rows, input, kind, parts, after } => {
                self.linear(*rows, (*input, *kind), parts, *after)
            }
            PlanStep::StoreKv { attention, keys, values } => self.store(attention, *keys, *values),
            PlanStep::Attention { attention, queries, to } => self.attention(attention, *queries, *to),
            PlanStep::Arrange { routing, routed, to } => {
                self.arrange(routing, *routed, *to);
                Ok(())
            }
            PlanStep::ExpertLinear { slots, input, kind, parts, .. } => {
                self.experts(*slots, (*input, *kind), parts)
            }
            PlanStep::LoraLinear { .. } => Err(unsupported("per-request LoRA adapters")),
            PlanStep::CausalConv1d { state, taps, weight, from, to } => {
                self.causal_conv1d((*state, *taps), *weight, *from, *to)
            }
            PlanStep::LinearAttention { attention, inputs, to } => {
                self.linear_attention(attention, inputs, *to)
            }
        }
    }

    /// Appends an operation to the next launch.
    fn push(&mut self, rows: RowKind, op: EncodedRowOp) {
        let follows = |(pending, ops): &(RowKind, Vec<EncodedRowOp>)| {
            *pending == rows && ops.iter().all(|earlier| op.can_follow(earlier))
        };
        if !self.pending.as_ref().is_none_or(follows) {
            self.flush();
        }
        self.pending.get_or_insert_with(|| (rows, Vec::new())).1.push(op);
    }

    /// Ends the launch of row-wise operations.
    fn flush(&mut self) {
        let Some((rows, list)) = self.pending.take() else { return };
        let ops = self.constants.len();
        list.iter().for_each(|op| op.write(&mut self.constants));
        let floats = |which: usize| list.iter().map(|op| op.shared_floats()[which]).max().unwrap_or(0);
        let fitting = list.iter().map(|op| op.shared_floats()[1]).filter(|floats| *floats <= MAX_ROW_FLOATS);
        let shared_floats = fitting.max().unwrap_or(0).max(floats(0));
        let columns = list.iter().map(EncodedRowOp::padded_columns).max().unwrap_or(0);
        self.steps.push(LoweredStep::Rows { rows, ops, count: list.len(), columns, shared_floats });
    }

    /// Appends a step that is not row-wise.
    fn launch(&mut self, step: LoweredStep) {
        self.flush();
        self.steps.push(step);
    }

    fn rows(&self, view: BufferView) -> DeviceRows {
        DeviceRows { ptr: self.context.places.arena + 4 * view.offset as DevicePtr, stride: view.stride }
    }

    fn table(&self, place: usize) -> DevicePtr {
        InputTables::ptr(self.context.places.tables, place)
    }
}

fn unsupported(what: &str) -> Error {
    Error::unsupported("device", format!("the CUDA backend does not support {what}; use the CPU"))
}
