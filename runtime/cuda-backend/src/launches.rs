//! The launches of a pass, and the command list for a batch.

use siskin_cuda::int;
use siskin_device::{CommandList, DevicePtr, GridSize, KernelArgument, Precision};
use siskin_graph::{Attention, RowKind};
use siskin_kernels::ops::attention::{CacheType, padded};
use siskin_kernels::panel::{InputKind, PanelType, ROWS};

use crate::input_tables::{InputTables, TileTable};
use crate::row_ops::{CHUNK, DeviceRows};

/// Threads of the kernels that have a block of this size.
pub(crate) const THREADS: usize = 256;

/// The maximum number of rows for the matmul kernels that read weights once for all rows, and for split keys.
pub(crate) const FEW_ROWS: usize = 8;

/// Rows, panels and stages of a block of the matmul kernels for many rows: `ManyRows` in `panel_matmul.cuh`.
const MANY_ROWS: usize = 48;

const MANY_PANELS: usize = 8;

const MANY_STAGES: usize = 3;

/// Blocks of the matmul kernels for one row that a multiprocessor runs at once.
const ONE_ROW_BLOCKS: usize = 3;

/// Panels of a block of the matmul kernels for experts: `EXPERT_WARPS` in `expert_matmul.cuh`.
pub(crate) const EXPERT_PANELS: usize = 8;

/// Queries of an attention block with few rows per head group, and with many.
pub(crate) const QUERIES: [usize; 3] = [1, 4, 16];

/// The sizes that a command list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaunchShape {
    /// Rows, rounded up.
    pub rows: usize,
    /// The most frames of as many rows.
    pub frames: usize,
    /// Output rows, rounded up.
    pub outputs: usize,
    /// Chunks of keys, rounded up; 0: keys are not split.
    pub chunks: usize,
}

impl LaunchShape {
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
    pub tables: InputTables,
    pub steps: Vec<LoweredStep>,
    /// Lists of row-wise operations and of matrices, which the launches refer to.
    pub constants: Vec<u8>,
    pub places: Places,
    pub multiprocessors: usize,
}

/// A step; offsets count bytes of the constants.
pub(crate) enum LoweredStep {
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
pub(crate) struct ProjectedStore {
    pub kernel: String,
    pub heads: usize,
    pub count: usize,
    pub arguments: Vec<KernelArgument>,
}

/// An attention step.
pub(crate) struct AttentionStep {
    pub attention: Attention,
    pub cache: CacheType,
    /// Of the kernel, up to the positions.
    pub arguments: Vec<KernelArgument>,
    pub out: DeviceRows,
    pub ranges: usize,
    pub starts: usize,
    /// Tiles of as many rows as a block computes, of many.
    pub tiles: TileTable,
    /// Whether only the rows of the tiles attend.
    pub is_selective: bool,
    pub sinks: DevicePtr,
    pub can_split: bool,
}

impl LoweredPass {
    /// Returns the launches for a batch, with the constants at `constants`.
    pub(crate) fn commands(&self, shape: LaunchShape, constants: DevicePtr) -> CommandList {
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
        KernelArgument::Ptr(InputTables::ptr(self.places.tables, place))
    }

    /// Returns the argument with the number of rows.
    fn count(&self, rows: RowKind) -> KernelArgument {
        self.table(self.tables.count(rows))
    }

    fn attention(&self, commands: &mut CommandList, shape: LaunchShape, step: &AttentionStep) {
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

pub(crate) fn cache_name(cache: CacheType) -> &'static str {
    CacheType::NAMES.iter().find(|(kind, _)| *kind == cache).map_or("f32", |(_, name)| name)
}
