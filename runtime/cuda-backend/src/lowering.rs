//! Turns the plan of a pass into kernel launches.

use siskin_backend::kv_storage::{KvStorageLayout, LayerPlace};
use siskin_backend::plan::{BufferView, Epilogue, MatmulPart, Plan, PlanStep, RowOp};
use siskin_cuda::PointwiseFunction;
use siskin_device::{CommandList, DevicePtr, GridSize, KernelArgument, Precision};
use siskin_format::{Error, Result};
use siskin_graph::{
    ActivationFunction, Attention, AttentionMask, LinearAttention, LinformerProjection, NormKind, Routing,
    RowKind, StateUpdate,
};
use siskin_kernels::ops::attention::{CacheType, padded};
use siskin_kernels::ops::elementwise::ElementwiseFunction;
use siskin_kernels::panel::{InputKind, PanelType, ROWS};

use crate::batch_tables::{BatchTables, Taps, TileTable};
use crate::row_ops::{CHUNK, DeviceRows, EncodedRowOp, RowOpCode, bits};
use crate::weights::{DeviceMatrix, DeviceWeights};

/// Threads of the kernels that have a block of this size.
const THREADS: usize = 256;
/// The maximum number of rows for the matmul kernels that read weights once for all rows, and for split keys.
pub(crate) const FEW_ROWS: usize = 8;
/// Rows, panels and stages of a block of the matmul kernels for many rows: `ManyRows` in `panel_matmul.cuh`.
const MANY_ROWS: usize = 48;
const MANY_PANELS: usize = 8;
const MANY_STAGES: usize = 3;
/// Blocks of the matmul kernels for one row that a multiprocessor runs at once.
const ONE_ROW_BLOCKS: usize = 3;
/// The floats of shared memory that a normalized row may take.
const MAX_ROW_FLOATS: usize = 12 << 10;
/// The bytes of a matrix in the parts of a matmul launch: `MatmulPart` in `panel_matmul.cuh`.
const PART_BYTES: usize = 48;
/// Panels of a block of the matmul kernels for experts: `EXPERT_WARPS` in `expert_matmul.cuh`.
const EXPERT_PANELS: usize = 8;
/// Queries of an attention block with few rows per head group, and with many.
const QUERIES: [usize; 3] = [1, 4, 16];

/// The sizes that a command list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchShape {
    /// Rows, rounded up.
    pub rows: usize,
    /// The most frames of as many rows.
    pub frames: usize,
    /// Output rows, rounded up.
    pub outputs: usize,
    /// Chunks of keys, rounded up; 0: keys are not split.
    pub chunks: usize,
}

impl BatchShape {
    fn of(self, rows: RowKind) -> usize {
        match rows {
            RowKind::Outputs => self.outputs,
            RowKind::Slots(top_k) => self.rows * top_k,
            RowKind::Frames => self.frames,
            RowKind::Tokens => self.rows,
        }
    }
}

/// Addresses that launches refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Activations.
    pub arena: DevicePtr,
    /// Outputs of matmuls before their epilogue.
    pub scratch: DevicePtr,
    /// Partial results of attention.
    pub parts: DevicePtr,
    /// The tables of the batch.
    pub tables: DevicePtr,
}

/// A plan as launches, for batches of up to a number of rows.
pub(crate) struct LoweredPass {
    pub tables: BatchTables,
    steps: Vec<LoweredStep>,
    /// Lists of row-wise operations and of matrices, which the launches refer to.
    pub constants: Vec<u8>,
    places: Places,
    multiprocessors: usize,
}

/// A step; offsets count bytes of the constants.
enum LoweredStep {
    Rows {
        rows: RowKind,
        ops: usize,
        count: usize,
        columns: usize,
        shared_floats: usize,
    },
    Matmul {
        rows: RowKind,
        panel: PanelType,
        parts: usize,
        count: usize,
        panels: usize,
        input: DeviceRows,
        columns: usize,
    },
    Launch {
        kernel: String,
        heads: usize,
        threads: usize,
        arguments: Vec<KernelArgument>,
    },
    /// A block for each row; the last argument of the kernel is the number of rows.
    EachRow {
        rows: RowKind,
        kernel: &'static str,
        threads: usize,
        shared: usize,
        arguments: Vec<KernelArgument>,
    },
    /// `parts` blocks for each sequence.
    EachSequence {
        kernel: &'static str,
        parts: usize,
        threads: usize,
        shared: usize,
        arguments: Vec<KernelArgument>,
    },
    /// One block.
    OneBlock {
        kernel: &'static str,
        threads: usize,
        arguments: Vec<KernelArgument>,
    },
    Experts {
        panel: PanelType,
        parts: usize,
        count: usize,
        panels: usize,
        slots: DevicePtr,
        input: DeviceRows,
        columns: usize,
    },
    StoreProjected(ProjectedStore),
    Attention(Box<AttentionStep>),
}

/// Stores projected keys and values; the last argument of the kernel is the block lists.
struct ProjectedStore {
    kernel: String,
    heads: usize,
    count: usize,
    arguments: Vec<KernelArgument>,
}

/// An attention step.
struct AttentionStep {
    attention: Attention,
    cache: CacheType,
    /// Of the kernel, up to the positions.
    arguments: Vec<KernelArgument>,
    out: DeviceRows,
    ranges: usize,
    starts: usize,
    /// Tiles of as many rows as a block computes, of many.
    tiles: TileTable,
    /// Whether only the rows of the tiles attend.
    is_selective: bool,
    sinks: DevicePtr,
    can_split: bool,
}

/// What lowering needs beside the plan.
pub(crate) struct PassContext<'a> {
    pub weights: &'a DeviceWeights,
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

impl LoweredPass {
    /// Lowers a plan for batches of up to `rows` rows and `frames` frames.
    ///
    /// # Errors
    /// If the plan has an operation without a kernel.
    pub(crate) fn new(plan: &Plan, rows: usize, frames: usize, context: &PassContext<'_>) -> Result<Self> {
        let mut lowering = Lowering {
            context,
            tables: BatchTables::new(rows, frames),
            steps: Vec::new(),
            constants: Vec::new(),
            pending: None,
        };
        for step in &plan.steps {
            lowering.step(step)?;
        }
        lowering.flush();
        let Lowering { tables, steps, constants, .. } = lowering;
        Ok(Self {
            tables,
            steps,
            constants,
            places: context.places,
            multiprocessors: context.multiprocessors,
        })
    }

    /// Returns the launches for a batch, with the constants at `constants`.
    pub(crate) fn commands(&self, shape: BatchShape, constants: DevicePtr) -> CommandList {
        let mut commands = CommandList::new(Precision::F32);
        let at = |offset: usize| KernelArgument::Ptr(constants + offset as DevicePtr);
        for step in &self.steps {
            match step {
                LoweredStep::Rows { rows, ops, count, columns, shared_floats } => {
                    // Few rows are divided among blocks by columns.
                    let per_row = (2 * self.multiprocessors / shape.of(*rows).max(1)).max(1);
                    let chunk = columns.div_ceil(per_row).next_multiple_of(CHUNK);
                    let chunks = columns.div_ceil(chunk.max(1)).max(1);
                    let chunk = if chunks > 1 { chunk } else { 0 };
                    let arguments =
                        [at(*ops), int(*count), self.count(*rows), int(*shared_floats), int(chunk)];
                    let grid = GridSize::new(shape.of(*rows), chunks, 1);
                    commands.kernel("row_ops", grid, THREADS, 4 * shared_floats, &arguments);
                }
                LoweredStep::Matmul { rows, panel, parts, count, panels, input, columns } => {
                    let multiprocessors = self.multiprocessors;
                    let launch =
                        MatmulLaunch { panel: *panel, panels: *panels, columns: *columns, multiprocessors };
                    let parts = [at(*parts), int(*count), KernelArgument::Ptr(input.ptr)];
                    launch.append(&mut commands, shape.of(*rows), &parts, input.stride, self.count(*rows));
                }
                LoweredStep::Launch { kernel, heads, threads, arguments } => {
                    commands.kernel(kernel, GridSize::new(shape.rows, *heads, 1), *threads, 0, arguments);
                }
                LoweredStep::EachRow { rows, kernel, threads, shared, arguments } => {
                    let arguments = [&arguments[..], &[self.count(*rows)]].concat();
                    commands.kernel(kernel, GridSize::linear(shape.of(*rows)), *threads, *shared, &arguments);
                }
                LoweredStep::EachSequence { kernel, parts, threads, shared, arguments } => {
                    commands.kernel(
                        kernel,
                        GridSize::new(shape.rows, *parts, 1),
                        *threads,
                        *shared,
                        arguments,
                    );
                }
                LoweredStep::OneBlock { kernel, threads, arguments } => {
                    commands.kernel(kernel, GridSize::linear(1), *threads, 0, arguments);
                }
                LoweredStep::Experts { panel, parts, count, panels, slots, input, columns } => {
                    let arguments = [at(*parts), KernelArgument::Ptr(*slots), KernelArgument::Ptr(input.ptr)];
                    append_experts(
                        &mut commands,
                        *panel,
                        [*panels, *count, *columns],
                        &arguments,
                        input.stride,
                    );
                }
                LoweredStep::StoreProjected(ProjectedStore { kernel, heads, count, arguments }) => {
                    let arguments = [&arguments[..], &[self.table(self.tables.lists())]].concat();
                    commands.kernel(kernel, GridSize::new(shape.rows, *heads, *count), 128, 0, &arguments);
                }
                LoweredStep::Attention(step) => self.attention(&mut commands, shape, step),
            }
        }
        commands
    }

    /// Returns whether keys can be split for few rows.
    pub(crate) fn can_split(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, LoweredStep::Attention(step) if step.can_split))
    }

    fn table(&self, place: usize) -> KernelArgument {
        KernelArgument::Ptr(BatchTables::ptr(self.places.tables, place))
    }

    /// Returns the argument with the number of rows.
    fn count(&self, rows: RowKind) -> KernelArgument {
        self.table(self.tables.count(rows))
    }

    fn attention(&self, commands: &mut CommandList, shape: BatchShape, step: &AttentionStep) {
        let attention = &step.attention;
        let (heads, kv_heads, head_size) = (attention.heads, attention.kv_heads, attention.head_size);
        let group = heads / kv_heads;
        let is_few = shape.rows <= FEW_ROWS;
        let is_split = step.can_split && shape.chunks > 0;
        // With few keys, heads are computed apart for the sake of latency.
        let queries = match is_few {
            true if !is_split => QUERIES[0],
            true => QUERIES.into_iter().find(|queries| *queries >= group).unwrap_or(QUERIES[2]),
            false => QUERIES[2],
        };
        let (tiles, tile_count) = match is_few && !step.is_selective {
            true => (KernelArgument::Ptr(0), self.count(RowKind::Tokens)),
            false => (self.table(step.tiles.tiles), self.table(step.tiles.count)),
        };
        let head_blocks = group.div_ceil(group.min(queries));
        let chunks = if is_split { shape.chunks } else { 0 };
        let ranges = self.table(step.ranges);
        let mut arguments = step.arguments.clone();
        arguments.extend([
            self.table(self.tables.positions),
            ranges,
            self.table(step.starts),
            self.table(self.tables.lists()),
            tiles,
            tile_count,
            KernelArgument::Ptr(self.places.parts),
            int(chunks),
        ]);
        let columns = padded(head_size);
        let shared = 4 * (queries * (256 + 2 * columns + 128) + columns);
        let grid = GridSize::new(shape.rows, kv_heads * head_blocks, chunks.max(1));
        let name = cache_name(step.cache);
        commands.kernel(&format!("paged_attention_{name}_{queries}"), grid, THREADS, shared, &arguments);
        if is_split {
            let arguments = [
                KernelArgument::Ptr(self.places.parts),
                int(chunks),
                ranges,
                KernelArgument::Ptr(step.sinks),
                KernelArgument::Ptr(step.out.ptr),
                int(step.out.stride),
                int(head_size),
                int(heads),
                self.count(RowKind::Tokens),
            ];
            let threads = head_size.next_multiple_of(32).min(THREADS);
            commands.kernel("merge_attention", GridSize::new(shape.rows, heads, 1), threads, 0, &arguments);
        }
    }
}

/// Matmuls of rows with matrices of one panel type.
struct MatmulLaunch {
    panel: PanelType,
    panels: usize,
    columns: usize,
    multiprocessors: usize,
}

impl MatmulLaunch {
    fn append(
        &self,
        commands: &mut CommandList,
        rows: usize,
        parts: &[KernelArgument; 3],
        stride: usize,
        count: KernelArgument,
    ) {
        let name = self.panel.name().to_lowercase();
        let blocks = self.columns.div_ceil(self.panel.block_columns());
        if self.panel.input() == InputKind::Float {
            let together = rows.min(THREADS / ROWS);
            let padded = blocks * self.panel.block_columns();
            let arguments = [&parts[..], &[int(stride), count, int(self.columns), int(padded)]].concat();
            let grid = GridSize::new(self.panels, rows.div_ceil(together), 1);
            return commands.kernel(&format!("matmul_floats_{name}"), grid, together * ROWS, 0, &arguments);
        }
        let macros = blocks * self.panel.block_columns() / 64;
        let arguments = [&parts[..], &[count, int(macros)]].concat();
        if rows == 1 {
            let grid = GridSize::linear(self.panels.min(ONE_ROW_BLOCKS * self.multiprocessors));
            // The row.
            let shared = (64 * macros).next_multiple_of(256) / 2 * 3;
            return commands.kernel(&format!("matmul_one_{name}"), grid, THREADS, shared, &arguments);
        }
        if rows <= FEW_ROWS {
            let grid = GridSize::linear(self.panels);
            return commands.kernel(&format!("matmul_few_{name}"), grid, THREADS, 0, &arguments);
        }
        // A stage of shared memory: for each row 256 padded columns, scales, and sums for types with a minimum.
        let sums = match (self.panel.has_min(), self.panel.sub_block()) {
            (false, _) => 0,
            (true, 16) => 64,
            (true, _) => 32,
        };
        let shared = MANY_STAGES * MANY_ROWS * (288 + 32 + sums);
        let grid = GridSize::new(rows.div_ceil(MANY_ROWS), self.panels.div_ceil(MANY_PANELS), 1);
        commands.kernel(&format!("matmul_many_{name}"), grid, THREADS, shared, &arguments);
    }
}

/// Appends the matmul of `experts` experts of `panels` panels with the rows of their slots.
fn append_experts(
    commands: &mut CommandList,
    panel: PanelType,
    [panels, experts, columns]: [usize; 3],
    arguments: &[KernelArgument],
    stride: usize,
) {
    let name = panel.name().to_lowercase();
    let padded = columns.next_multiple_of(panel.block_columns());
    if panel.input() == InputKind::Float {
        let arguments = [arguments, &[int(stride), int(columns), int(padded)]].concat();
        let grid = GridSize::new(panels, experts, 1);
        return commands.kernel(&format!("expert_floats_{name}"), grid, THREADS, 0, &arguments);
    }
    let arguments = [arguments, &[int(padded / 64)]].concat();
    let grid = GridSize::new(panels.div_ceil(EXPERT_PANELS), experts, 1);
    commands.kernel(&format!("expert_matmul_{name}"), grid, THREADS, 0, &arguments);
}

/// A pass while it is lowered.
struct Lowering<'a> {
    context: &'a PassContext<'a>,
    tables: BatchTables,
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
            PlanStep::CausalConv1d { state, taps, weight, from, to } => {
                let weights = self.context.weights.vector(Some(*weight));
                let (from, to, columns) = (self.rows(*from), self.rows(*to), from.columns);
                let rest = [
                    int(*taps),
                    KernelArgument::Ptr(weights),
                    KernelArgument::Ptr(from.ptr),
                    int(from.stride),
                    KernelArgument::Ptr(to.ptr),
                    int(to.stride),
                    int(columns),
                ];
                let arguments = [&self.states(*state)?[..], &rest].concat();
                let (kernel, parts) = ("convolve_sequences", columns.div_ceil(THREADS));
                self.launch(LoweredStep::EachSequence {
                    kernel,
                    parts,
                    threads: THREADS,
                    shared: 0,
                    arguments,
                });
                Ok(())
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
        BatchTables::ptr(self.context.places.tables, place)
    }

    fn embed(&self, table: DeviceMatrix, ids: usize, offset: usize, to: BufferView) -> EncodedRowOp {
        EncodedRowOp::new(RowOpCode::Embed, DeviceRows::default(), self.rows(to), to.columns).parameters([
            self.table(ids),
            offset as u64,
            u64::from(table.panel.id()),
            table.panels,
            table.panel_bytes as u64,
            table.rows as u64,
        ])
    }

    /// Rows that the host computes: from a table by position, or for each batch.
    fn angles(&mut self, op: &RowOp, rope: Option<usize>, to: BufferView) -> Result<EncodedRowOp> {
        if let Some(by_position) = (self.context.angles)(op) {
            let positions = self.table(self.tables.positions);
            return Ok(EncodedRowOp::new(RowOpCode::Select, by_position, self.rows(to), to.columns)
                .parameters([positions]));
        }
        let rope = rope.ok_or_else(|| unsupported("sinusoidal positions in so long a context"))?;
        let place = self.tables.rope(rope, to.columns);
        let from = DeviceRows { ptr: self.table(place), stride: to.columns };
        Ok(EncodedRowOp::new(RowOpCode::Copy, from, self.rows(to), to.columns))
    }

    fn row_op(&mut self, op: &RowOp) -> Result<EncodedRowOp> {
        let weights = self.context.weights;
        let unary = |own: &Self, code, from: BufferView, to: BufferView| {
            EncodedRowOp::new(code, own.rows(from), own.rows(to), to.columns)
        };
        Ok(match *op {
            RowOp::RopeCosSin { rope, to } => self.angles(op, Some(rope), to)?,
            RowOp::SinusoidalPositions { to, .. } => self.angles(op, None, to)?,
            RowOp::Embed { table, to } => self.embed(weights.matrix(table)?, self.tables.tokens, 0, to),
            RowOp::EmbedSegment { table, to } => {
                self.embed(weights.matrix(table)?, self.tables.token_types, 0, to)
            }
            RowOp::EmbedPosition { table, offset, to } => {
                self.embed(weights.matrix(table)?, self.tables.positions, offset, to)
            }
            RowOp::ExternalInput { to } => {
                let place = self.tables.external_input(to.columns);
                let from = DeviceRows { ptr: self.table(place), stride: to.columns };
                EncodedRowOp::new(RowOpCode::Copy, from, self.rows(to), to.columns)
            }
            RowOp::SelectOutputs { from, to } => {
                unary(self, RowOpCode::Select, from, to).parameters([self.table(self.tables.output_rows)])
            }
            RowOp::Norm { kind, weight, bias, epsilon, from, to } => {
                let group = weights_len(self.context, weight);
                unary(self, RowOpCode::Norm, from, to).parameters([
                    weights.vector(Some(weight)),
                    weights.vector(bias),
                    bits(epsilon),
                    u64::from(kind == NormKind::Layer),
                    group as u64,
                ])
            }
            RowOp::Rope { cos_sin, head_size, from, to } => unary(self, RowOpCode::Rope, from, to)
                .other(self.rows(cos_sin))
                .parameters([head_size as u64, cos_sin.columns as u64 / 2]),
            RowOp::Activate { function, from, to } => pointwise(
                unary(self, RowOpCode::Pointwise, from, to),
                PointwiseFunction::Activation(function),
                0.0,
            ),
            RowOp::Elementwise { function, from, to } => {
                let (function, parameter) = match function {
                    ElementwiseFunction::Scale(factor) => (PointwiseFunction::Scale(factor), factor),
                    ElementwiseFunction::Softcap(cap) => (PointwiseFunction::Softcap(cap), cap),
                    ElementwiseFunction::Clamp(limit) => (PointwiseFunction::Clamp(limit), limit),
                };
                pointwise(unary(self, RowOpCode::Pointwise, from, to), function, parameter)
            }
            RowOp::Gate { function, gate, up, to } => {
                gated(function, self.rows(gate), self.rows(up), self.rows(to), to.columns)
            }
            RowOp::ClampedGate { limits, gate, up, to } => unary(self, RowOpCode::ClampedGate, gate, to)
                .other(self.rows(up))
                .parameters([bits(limits.limit), bits(limits.slope)]),
            RowOp::RepeatColumns { times, from, to } => {
                unary(self, RowOpCode::RepeatColumns, from, to).parameters([times as u64])
            }
            RowOp::Add { a, b, to } => unary(self, RowOpCode::Add, a, to).other(self.rows(b)),
            RowOp::Affine { weight, bias, from, to } => unary(self, RowOpCode::Affine, from, to)
                .parameters([weights.vector(Some(weight)), weights.vector(Some(bias))]),
            RowOp::Quantize { from, to } => {
                EncodedRowOp::new(RowOpCode::Quantize, self.rows(from), self.rows(to), from.columns)
            }
            RowOp::QuantizeRotated { from, to } => {
                EncodedRowOp::new(RowOpCode::QuantizeRotated, self.rows(from), self.rows(to), from.columns)
            }
            RowOp::InputFeatures { to } => {
                let place = self.tables.features(to.columns);
                let from = DeviceRows { ptr: self.table(place), stride: to.columns };
                EncodedRowOp::new(RowOpCode::Copy, from, self.rows(to), to.columns)
            }
            RowOp::Im2col { .. } | RowOp::L2Normalize { .. } | RowOp::DecayGate { .. } => {
                return Err(unsupported("linear attention"));
            }
            RowOp::Route { .. } | RowOp::Dispatch { .. } | RowOp::Combine { .. } => {
                return Err(Error::argument("graph", "operations of experts have kernels of their own"));
            }
        })
    }

    /// Adds what launches for rows of this kind refer to.
    fn use_rows(&mut self, rows: RowKind) {
        if let RowKind::Slots(top_k) = rows {
            self.tables.add_slot_count(top_k);
        }
    }

    /// Returns the kernel of an operation that has one of its own, its threads and shared memory, and its arguments but
    /// the number of rows.
    fn each_row(&mut self, op: &RowOp) -> Option<(&'static str, usize, usize, Vec<KernelArgument>)> {
        let rows = |own: &Self, view: BufferView| {
            let rows = own.rows(view);
            [KernelArgument::Ptr(rows.ptr), int(rows.stride)]
        };
        let slots_at = |own: &Self, view: BufferView| KernelArgument::Ptr(own.rows(view).ptr);
        Some(match *op {
            RowOp::Route { routing, from, to } => {
                let rest = [int(routing.experts), int(routing.top_k), int(usize::from(routing.normalize))];
                let arguments = [&rows(self, from)[..], &rows(self, to), &rest].concat();
                ("expert_route", 128, 8 * routing.experts, arguments)
            }
            RowOp::Dispatch { routing, slots, from, to } => {
                let rest = [int(to.columns), slots_at(self, slots), int(routing.experts)];
                ("expert_dispatch", THREADS, 0, [&rows(self, from)[..], &rows(self, to), &rest].concat())
            }
            RowOp::Combine { routing, slots, routed, from, to } => {
                let rest = [int(to.columns), slots_at(self, slots), int(routing.experts), int(routing.top_k)];
                let views = [rows(self, from), rows(self, routed), rows(self, to)].concat();
                ("expert_combine", THREADS, 0, [&views[..], &rest].concat())
            }
            RowOp::Im2col { ref offsets, stride, rows: kinds, from, to } => {
                let place = self.tables.taps(&Taps { offsets: offsets.clone(), stride, rows: kinds });
                let rest = [int(from.columns), KernelArgument::Ptr(self.table(place)), int(offsets.len())];
                ("gather_taps", THREADS, 0, [&rows(self, from)[..], &rows(self, to), &rest].concat())
            }
            RowOp::L2Normalize { group, epsilon, factor, from, to } => {
                let rest = [
                    int(to.columns),
                    int(group),
                    KernelArgument::Float(epsilon),
                    KernelArgument::Float(factor),
                ];
                let arguments = [&rows(self, from)[..], &rows(self, to), &rest].concat();
                ("l2_normalize_rows", 128, 4 * to.columns.div_ceil(group), arguments)
            }
            RowOp::DecayGate { log, bias, from, to } => {
                let vector = |id| KernelArgument::Ptr(self.context.weights.vector(Some(id)));
                let rest = [int(to.columns), vector(log), vector(bias)];
                ("decay_gate_rows", 128, 0, [&rows(self, from)[..], &rows(self, to), &rest].concat())
            }
            _ => return None,
        })
    }

    /// Returns the arguments of kernels that say where a recurrent state and the rows of each sequence are.
    fn states(&mut self, state: usize) -> Result<[KernelArgument; 7]> {
        let place = self.context.storage.state(state);
        let (group, offset) =
            place.ok_or_else(|| Error::argument("graph", format!("state {state} has no memory")))?;
        let (blocks, tables) = (self.tables.states(group), self.tables.sequences());
        Ok([
            KernelArgument::Ptr(self.context.pools[group]),
            KernelArgument::Long(self.context.storage.block_words(group) as i64),
            int(offset),
            KernelArgument::Ptr(self.table(tables.count)),
            KernelArgument::Ptr(self.table(blocks)),
            KernelArgument::Ptr(self.table(tables.starts)),
            KernelArgument::Ptr(self.table(tables.rows)),
        ])
    }

    fn linear_attention(
        &mut self,
        attention: &LinearAttention,
        inputs: &[BufferView],
        to: BufferView,
    ) -> Result<()> {
        let mut arguments = self.states(attention.state)?.to_vec();
        let view = |index: usize| inputs.get(index).map_or_else(DeviceRows::default, |view| self.rows(*view));
        for (index, heads) in
            [attention.query_heads, attention.key_heads, attention.value_heads].into_iter().enumerate()
        {
            let rows = view(index);
            arguments.extend([KernelArgument::Ptr(rows.ptr), int(rows.stride), int(heads)]);
        }
        for rows in [view(3), view(4), self.rows(to)] {
            arguments.extend([KernelArgument::Ptr(rows.ptr), int(rows.stride)]);
        }
        // The numbers of UpdateRule in `recurrence.cu`.
        let rule = match attention.rule {
            StateUpdate::Additive => 0,
            StateUpdate::BidirectionalAdditive => 1,
            StateUpdate::GatedDelta => 2,
        };
        arguments.extend([attention.heads, attention.key_size, attention.value_size, rule].map(int));
        let (kernel, parts, shared) = ("recur_sequences", attention.heads, 8 * attention.key_size);
        let threads = attention.state_columns().next_multiple_of(32).min(THREADS);
        self.launch(LoweredStep::EachSequence { kernel, parts, threads, shared, arguments });
        Ok(())
    }

    fn arrange(&mut self, routing: &Routing, routed: BufferView, to: BufferView) {
        let run_starts = self.tables.run_starts();
        let routed = self.rows(routed);
        let arguments = vec![
            KernelArgument::Ptr(routed.ptr),
            int(routed.stride),
            int(routing.experts),
            int(routing.top_k),
            KernelArgument::Int(
                routing.capacity.map_or(-1, |capacity| i32::try_from(capacity).unwrap_or(i32::MAX)),
            ),
            KernelArgument::Ptr(self.table(run_starts)),
            KernelArgument::Ptr(self.table(self.tables.count(RowKind::Tokens))),
            KernelArgument::Ptr(self.rows(to).ptr),
        ];
        self.launch(LoweredStep::OneBlock { kernel: "expert_slots", threads: THREADS, arguments });
    }

    fn experts(
        &mut self,
        slots: BufferView,
        (input, kind): (BufferView, InputKind),
        parts: &[(usize, MatmulPart)],
    ) -> Result<()> {
        self.flush();
        let mut parts_of_type: Vec<(PanelType, Vec<(usize, EncodedPart)>)> = Vec::new();
        for (expert, part) in parts {
            let matrix = self.context.weights.matrix(part.weight)?;
            let encoded = EncodedPart {
                weights: matrix.panels,
                bias: self.context.weights.vector(part.bias),
                out: self.rows(part.to),
                residual: DeviceRows::default(),
                outputs: part.to.columns,
                columns: matrix.columns,
            };
            match parts_of_type.iter_mut().find(|(panel, _)| *panel == matrix.panel) {
                Some((_, list)) => list.push((*expert, encoded)),
                None => parts_of_type.push((matrix.panel, vec![(*expert, encoded)])),
            }
        }
        let input = match kind {
            InputKind::Float => self.rows(input),
            InputKind::Quantized | InputKind::Rotated => DeviceRows { stride: 0, ..self.rows(input) },
        };
        let slots = self.rows(slots).ptr;
        for (panel, list) in parts_of_type {
            let start = self.constants.len();
            list.iter().for_each(|(expert, part)| part.write(*expert, &mut self.constants));
            let panels = list.iter().map(|(_, part)| part.outputs.div_ceil(ROWS)).max().unwrap_or(0);
            let (count, columns) = (list.len(), list.first().map_or(0, |(_, part)| part.columns));
            self.steps.push(LoweredStep::Experts {
                panel,
                parts: start,
                count,
                panels,
                slots,
                input,
                columns,
            });
        }
        Ok(())
    }

    fn linear(
        &mut self,
        rows: RowKind,
        (input, kind): (BufferView, InputKind),
        parts: &[MatmulPart],
        after: Epilogue,
    ) -> Result<()> {
        self.flush();
        self.use_rows(rows);
        let near = matches!(after, Epilogue::Activate(_) | Epilogue::Gate(_));
        let residual = match after {
            Epilogue::Plus(view) => Some(view),
            Epilogue::Nothing | Epilogue::Activate(_) | Epilogue::Gate(_) => None,
        };
        let width = parts.first().map_or(0, |part| part.to.columns);
        let scratch = |index: usize| DeviceRows {
            ptr: self.context.places.scratch + 4 * (index * width) as DevicePtr,
            stride: parts.len() * width,
        };
        let mut parts_of_type: Vec<(PanelType, Vec<EncodedPart>)> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let matrix = self.context.weights.matrix(part.weight)?;
            let bias = match self.context.weights.vector(part.bias) {
                0 => 0,
                bias => bias + 4 * part.first as DevicePtr,
            };
            let encoded = EncodedPart {
                weights: matrix.panels + (part.first / ROWS * matrix.panel_bytes) as DevicePtr,
                bias,
                out: if near { scratch(index) } else { self.rows(part.to) },
                residual: residual.map_or_else(DeviceRows::default, |view| {
                    // A residual has the columns of all parts, of which there is one.
                    self.rows(view)
                }),
                outputs: part.to.columns,
                columns: matrix.columns,
            };
            match parts_of_type.iter_mut().find(|(panel, _)| *panel == matrix.panel) {
                Some((_, list)) => list.push(encoded),
                None => parts_of_type.push((matrix.panel, vec![encoded])),
            }
        }
        let input = match kind {
            InputKind::Float => self.rows(input),
            InputKind::Quantized | InputKind::Rotated => DeviceRows { stride: 0, ..self.rows(input) },
        };
        for (panel, list) in parts_of_type {
            let (start, mut panels) = (self.constants.len(), 0);
            for part in &list {
                part.write(panels, &mut self.constants);
                panels += part.outputs.div_ceil(ROWS);
            }
            let (count, columns) = (list.len(), list.first().map_or(0, |part| part.columns));
            self.steps.push(LoweredStep::Matmul { rows, panel, parts: start, count, panels, input, columns });
        }
        let Some(first) = parts.first() else { return Ok(()) };
        let (to, columns) = (self.rows(first.to), first.to.columns);
        match after {
            Epilogue::Nothing | Epilogue::Plus(_) => {}
            Epilogue::Activate(function) => {
                let op = EncodedRowOp::new(RowOpCode::Pointwise, scratch(0), to, columns);
                self.push(rows, pointwise(op, PointwiseFunction::Activation(function), 0.0));
            }
            Epilogue::Gate(function) => {
                let op = gated(function, scratch(0), scratch(1), to, columns);
                self.push(rows, op);
            }
        }
        Ok(())
    }

    /// Returns where an attention layer's keys and values are, and the arguments of kernels that say so.
    fn layer(&self, attention: &Attention) -> Result<(LayerPlace, [KernelArgument; 4])> {
        let place = self.context.storage.layer(attention.layer);
        let place = place
            .ok_or_else(|| Error::argument("graph", format!("layer {} has no KV cache", attention.layer)))?;
        let arguments = [
            KernelArgument::Ptr(self.context.pools[place.group]),
            KernelArgument::Long(self.context.storage.block_words(place.group) as i64),
            int(place.offset),
            int(place.head_words),
        ];
        Ok((place, arguments))
    }

    fn store(&mut self, attention: &Attention, keys: BufferView, values: BufferView) -> Result<()> {
        let (place, layer) = self.layer(attention)?;
        if let Some(projection) = attention.projection {
            return self.store_projected(attention, projection, [keys, values], (place, layer));
        }
        let tables = self.tables.group(place.group);
        self.store_at(attention, [keys, values], (place, layer), [tables.stores, self.tables.positions]);
        if matches!(attention.attention_mask, AttentionMask::LongformerLocal(_)) {
            let second = self.tables.second_places(place.group);
            self.store_at(attention, [keys, values], (place, layer), second);
        }
        Ok(())
    }

    /// Stores keys and values in the blocks and at the positions that two tables have by row.
    fn store_at(
        &mut self,
        attention: &Attention,
        [keys, values]: [BufferView; 2],
        (place, layer): (LayerPlace, [KernelArgument; 4]),
        [blocks, positions]: [usize; 2],
    ) {
        let cache = self.context.storage.cache_type(place.group);
        let columns = attention.kv_heads * attention.head_size;
        let (keys, values) = (self.rows(keys), self.rows(values));
        if !cache.is_integer() {
            let op =
                EncodedRowOp::new(RowOpCode::StoreKv, keys, DeviceRows::default(), columns).other(values);
            let op = op.parameters([
                self.context.pools[place.group],
                self.context.storage.block_words(place.group) as u64,
                (place.offset as u64) << 32 | place.head_words as u64,
                attention.head_size as u64,
                self.table(blocks),
                self.table(positions),
                u64::from(cache == CacheType::F16),
            ]);
            return self.push(RowKind::Tokens, op);
        }
        let rest = [
            KernelArgument::Ptr(keys.ptr),
            KernelArgument::Ptr(values.ptr),
            int(keys.stride),
            int(values.stride),
            int(attention.head_size),
            KernelArgument::Ptr(self.table(blocks)),
            KernelArgument::Ptr(self.table(positions)),
            KernelArgument::Ptr(self.table(self.tables.count(RowKind::Tokens))),
        ];
        let kernel = format!("kv_store_{}", cache_name(cache));
        let arguments = [&layer[..], &rest].concat();
        self.launch(LoweredStep::Launch { kernel, heads: attention.kv_heads, threads: 128, arguments });
    }

    /// Stores keys and values projected over the positions of each sequence (Linformer).
    fn store_projected(
        &mut self,
        attention: &Attention,
        projection: LinformerProjection,
        views: [BufferView; 2],
        (place, layer): (LayerPlace, [KernelArgument; 4]),
    ) -> Result<()> {
        let (tables, sequences) = (self.tables.group(place.group), self.tables.sequences());
        let [keys, values] = views.map(|view| self.rows(view));
        let weights = |id| KernelArgument::Ptr(self.context.weights.vector(Some(id)));
        let rest = [
            KernelArgument::Ptr(keys.ptr),
            KernelArgument::Ptr(values.ptr),
            int(keys.stride),
            int(values.stride),
            int(attention.head_size),
            weights(projection.keys),
            weights(projection.values),
            int(projection.positions),
            KernelArgument::Ptr(self.table(sequences.starts)),
            KernelArgument::Ptr(self.table(sequences.rows)),
            KernelArgument::Ptr(self.table(sequences.count)),
            KernelArgument::Ptr(self.table(tables.starts)),
        ];
        let step = ProjectedStore {
            kernel: format!(
                "kv_store_projected_{}",
                cache_name(self.context.storage.cache_type(place.group))
            ),
            heads: attention.kv_heads,
            count: projection.count,
            arguments: [&layer[..], &rest].concat(),
        };
        self.launch(LoweredStep::StoreProjected(step));
        Ok(())
    }

    fn attention(&mut self, attention: &Attention, queries: BufferView, to: BufferView) -> Result<()> {
        let (place, layer) = self.layer(attention)?;
        let (queries, out) = (self.rows(queries), self.rows(to));
        let (bias, reach) = (self.context.bias)(attention);
        let sinks = self.context.weights.vector(attention.sinks);
        let key_bias = match attention.attention_mask {
            AttentionMask::LongformerLocal(_) => {
                let place = self.tables.global_bias();
                self.table(place)
            }
            AttentionMask::BigBird { size, random } => (self.context.block_bias)((size, random)),
            _ => 0,
        };
        let key_bias_ranges = match key_bias {
            0 => KernelArgument::Ptr(0),
            _ => {
                let place = self.tables.key_bias_ranges(attention);
                KernelArgument::Ptr(self.table(place))
            }
        };
        let key_bias = KernelArgument::Ptr(key_bias);
        let is_selective = attention.attention_mask == AttentionMask::LongformerGlobal;
        let rest = [
            KernelArgument::Ptr(queries.ptr),
            KernelArgument::Ptr(out.ptr),
            int(queries.stride),
            int(out.stride),
            int(attention.head_size),
            int(attention.heads),
            int(attention.kv_heads),
            KernelArgument::Float(attention.scale),
            KernelArgument::Float(attention.softcap.unwrap_or(0.0)),
            KernelArgument::Ptr((self.context.slopes)(attention)),
            KernelArgument::Ptr(sinks),
            KernelArgument::Ptr(bias),
            int(reach),
            key_bias,
            key_bias_ranges,
        ];
        let group = attention.heads / attention.kv_heads;
        let rows_together = QUERIES[2] / group.min(QUERIES[2]);
        let step = AttentionStep {
            attention: attention.clone(),
            cache: self.context.storage.cache_type(place.group),
            arguments: [&layer[..], &rest].concat(),
            out,
            ranges: self.tables.ranges(attention),
            starts: self.tables.group(place.group).starts,
            tiles: if is_selective { self.tables.global_tiles() } else { self.tables.tiles(rows_together) },
            is_selective,
            sinks,
            can_split: can_split(attention),
        };
        self.launch(LoweredStep::Attention(Box::new(step)));
        Ok(())
    }
}

/// A matrix of a matmul launch.
struct EncodedPart {
    weights: DevicePtr,
    bias: DevicePtr,
    out: DeviceRows,
    residual: DeviceRows,
    outputs: usize,
    columns: usize,
}

impl EncodedPart {
    /// Appends the bytes; `first_panel` panels of the launch precede the part, or it is the number of an expert.
    fn write(&self, first_panel: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for ptr in [self.weights, self.bias, self.out.ptr, self.residual.ptr] {
            out.extend(ptr.to_le_bytes());
        }
        for number in [self.out.stride, self.residual.stride, self.outputs, first_panel] {
            out.extend((number as u32).to_le_bytes());
        }
        debug_assert_eq!(out.len() - start, PART_BYTES, "the fields of MatmulPart");
    }
}

/// Returns whether the keys of a row are one range, so that they can be split among blocks.
pub(crate) fn can_split(attention: &Attention) -> bool {
    !matches!(
        attention.attention_mask,
        AttentionMask::LongformerLocal(_)
            | AttentionMask::LongformerGlobal
            | AttentionMask::StreamingLlm { .. }
            | AttentionMask::BigBird { .. }
    )
}

fn unsupported(what: &str) -> Error {
    Error::unsupported("device", format!("the CUDA backend does not support {what}; use the CPU"))
}

fn weights_len(context: &PassContext<'_>, weight: siskin_graph::WeightId) -> usize {
    context.weights.vector_len(weight)
}

fn pointwise(op: EncodedRowOp, function: PointwiseFunction, parameter: f32) -> EncodedRowOp {
    op.parameters([function.code() as u64, bits(parameter)])
}

fn gated(
    function: ActivationFunction,
    gate: DeviceRows,
    up: DeviceRows,
    to: DeviceRows,
    columns: usize,
) -> EncodedRowOp {
    let code = PointwiseFunction::Activation(function).code();
    EncodedRowOp::new(RowOpCode::Gate, gate, to, columns).other(up).parameters([code as u64])
}

fn cache_name(cache: CacheType) -> &'static str {
    CacheType::NAMES.iter().find(|(kind, _)| *kind == cache).map_or("f32", |(_, name)| name)
}

fn int(number: usize) -> KernelArgument {
    siskin_cuda::int(number)
}
