//! Runs the passes of a context.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use siskin_backend::kv_storage::KvStorageLayout;
use siskin_backend::plan::{BufferView, Epilogue, Plan, PlanStep, RowOp};
use siskin_backend::position_bias::Distances;
use siskin_backend::thread_pool::ThreadPool;
use siskin_backend::{BlockStorage, Executable, ExecutionLimits, ForwardInput, ForwardPass, MemoryUse};
use siskin_device::{CommandList, DevicePtr, aligned};
use siskin_format::{Error, Result};
use siskin_graph::{Attention, AttentionMask, pass};
use siskin_kernels::ops::attention::{BLOCK, CHUNK, part_size};
use siskin_kernels::ops::rope;

use crate::block_storage::DeviceBlocks;
use crate::launches::{FEW_ROWS, LaunchShape, LoweredPass, Places};
use crate::lowering::{PassContext, lower_plan};
use crate::memory::{DeviceMemory, SharedDevice};
use crate::row_ops::DeviceRows;
use crate::weights::UploadedModel;

/// The most positions for which the angles of a RoPE table are kept on the device.
const MAX_ANGLE_POSITIONS: usize = 32 << 10;

/// The plans of all passes, and the words that they need.
pub(crate) struct MemoryPlan {
    plans: Vec<Plan>,
    arena_words: usize,
    scratch_words: usize,
    part_words: usize,
    list_words: usize,
}

impl MemoryPlan {
    pub(crate) fn new(model: &UploadedModel, limits: &ExecutionLimits) -> Result<Self> {
        let plan = |pass: &ForwardPass| {
            let fused = pass::all(&pass.graph);
            Plan::build(
                &fused,
                model.host.of(pass.part),
                pass.max_rows,
                pass.max_output_rows.min(pass.max_rows),
            )
        };
        let plans = limits.passes.iter().map(plan).collect::<Result<Vec<_>>>()?;
        let options = &limits.block_layout.options;
        let context = options.context_length.max(options.encoder_context);
        let sequences = options.max_sequences.max(1);
        let list_words = limits.block_layout.groups.len() * sequences * (context / BLOCK + 4);
        let parts = |attention: &Attention| {
            FEW_ROWS
                * attention.heads
                * (context / CHUNK + 2).next_power_of_two()
                * part_size(attention.head_size)
        };
        let attentions = limits.passes.iter().flat_map(|pass| pass.graph.attentions());
        Ok(Self {
            arena_words: plans.iter().map(|plan| plan.words).max().unwrap_or(0),
            scratch_words: plans.iter().map(scratch_words).max().unwrap_or(0),
            part_words: attentions.map(parts).max().unwrap_or(0),
            list_words,
            plans,
        })
    }

    /// Returns the bytes of activations.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.arena_words + self.scratch_words + self.part_words)
    }
}

/// Returns the words of matmul outputs before their epilogue.
fn scratch_words(plan: &Plan) -> usize {
    let words = |step: &PlanStep| {
        let PlanStep::Linear { rows, parts, after: Epilogue::Activate(_) | Epilogue::Gate(_), .. } = step
        else {
            return 0;
        };
        plan.row_count(*rows) * parts.iter().map(|part| part.to.columns).sum::<usize>()
    };
    plan.steps.iter().map(words).max().unwrap_or(0)
}

/// Batches of up to a number of rows of a pass.
struct Bucket {
    rows: usize,
    frames: usize,
    lowered: LoweredPass,
    constants: DeviceMemory,
    commands: HashMap<LaunchShape, CommandList>,
}

/// A pass, for batches of every size.
struct PreparedPass {
    ropes: Vec<siskin_graph::RopeTable>,
    buckets: Vec<Bucket>,
    output: BufferView,
}

impl PreparedPass {
    /// Lowers a pass for batches of every size.
    fn new(
        device: &SharedDevice,
        pass: &ForwardPass,
        plan: &Plan,
        parts: (&UploadedModel, &DeviceBlocks, &PassConstants, Places),
    ) -> Result<Self> {
        let bucket = |rows: usize| {
            let lowered = lower(pass, plan, rows, parts)?;
            let constants = device.upload(&lowered.constants)?;
            let frames = rows * pass.graph.frames_per_row();
            Ok(Bucket { rows, frames, lowered, constants, commands: HashMap::new() })
        };
        let buckets = bucket_sizes(pass.max_rows).into_iter().map(bucket).collect::<Result<_>>()?;
        Ok(Self { ropes: plan.ropes.clone(), buckets, output: plan.output })
    }
}

/// The passes of a context on a device.
pub(crate) struct CudaExecutable {
    device: SharedDevice,
    model: Arc<UploadedModel>,
    passes: Vec<PreparedPass>,
    blocks: DeviceBlocks,
    workspace: DeviceMemory,
    tables: DeviceMemory,
    /// Angles by position, slopes and biases.
    constants: Vec<DeviceMemory>,
    /// The tables of a batch, before they are copied.
    words: Vec<u32>,
    bytes: Vec<u8>,
    /// The outputs of the last pass, and words from one to the next.
    outputs: Vec<f32>,
    output: BufferView,
}

impl CudaExecutable {
    pub(crate) fn new(
        device: &SharedDevice,
        model: &Arc<UploadedModel>,
        limits: &ExecutionLimits,
    ) -> Result<Self> {
        let plan = MemoryPlan::new(model, limits)?;
        let storage = KvStorageLayout::new(&limits.passes, &limits.block_layout)?;
        check_memory(device, plan.bytes().saturating_add(storage.bytes(&limits.block_layout)))?;
        let blocks = DeviceBlocks::new(device, storage, &limits.block_layout)?;
        let (arena, scratch) = (aligned(4 * plan.arena_words), aligned(4 * plan.scratch_words));
        let workspace = device.allocate(arena + scratch + aligned(4 * plan.part_words))?;
        // Lowered once to learn the size of the tables, which launches refer to.
        let mut places = Places {
            arena: workspace.ptr,
            scratch: workspace.ptr + arena as DevicePtr,
            parts: workspace.ptr + (arena + scratch) as DevicePtr,
            tables: 0,
        };
        let mut uploads = Uploads { device, limits, model, memory: Vec::new() };
        let constants = uploads.all(&plan)?;
        let sources = || limits.passes.iter().zip(&plan.plans).zip(&constants);
        let mut table_words = 0;
        for ((pass, plan), constants) in sources() {
            let lowered = lower(pass, plan, pass.max_rows, (model, &blocks, constants, places))?;
            table_words = table_words.max(lowered.tables.lists());
        }
        table_words += plan.list_words;
        let tables = device.allocate(4 * table_words)?;
        places.tables = tables.ptr;
        let prepared = |((pass, plan), constants): ((&ForwardPass, &Plan), &PassConstants)| {
            PreparedPass::new(device, pass, plan, (model, &blocks, constants, places))
        };
        let passes = sources().map(prepared).collect::<Result<Vec<_>>>()?;
        let output_words = passes.iter().zip(limits.passes.iter());
        let output_words =
            output_words.map(|(pass, limits)| pass.output.stride * limits.max_output_rows).max();
        let constants = uploads.memory;
        Ok(Self {
            device: device.clone(),
            model: Arc::clone(model),
            passes,
            blocks,
            workspace,
            tables,
            constants,
            words: vec![0; table_words],
            bytes: Vec::with_capacity(4 * table_words.max(output_words.unwrap_or(0))),
            outputs: Vec::with_capacity(output_words.unwrap_or(0)),
            output: BufferView { offset: 0, stride: 0, columns: 0 },
        })
    }
}

impl Executable for CudaExecutable {
    fn forward(&mut self, _: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()> {
        let (pass, batch) = (&mut self.passes[input.pass], input.batch);
        if input.cancel.load(Ordering::Relaxed) {
            return Err(Error::canceled(""));
        }
        let rows = batch.rows.len();
        let frames = batch.frames.len();
        let bucket = pass.buckets.iter_mut().find(|bucket| bucket.rows >= rows && bucket.frames >= frames);
        let Some(bucket) = bucket else {
            return Err(Error::argument("batch", format!("{rows} rows are more than the context allows")));
        };
        let tables = &bucket.lowered.tables;
        let used =
            tables.fill(&pass.ropes, batch, input.block_table, &self.blocks.layout, &mut self.words)?;
        let is_split = bucket.rows <= FEW_ROWS && bucket.lowered.can_split();
        let chunks = match is_split {
            true => tables.max_chunks(&self.words, rows),
            false => 0,
        };
        let shape = LaunchShape {
            rows: bucket.rows,
            frames: bucket.frames,
            outputs: batch.output_rows.len().next_power_of_two(),
            chunks: if chunks > 1 { chunks.next_power_of_two() } else { 0 },
        };
        let Bucket { lowered, constants, commands, .. } = bucket;
        let commands = commands.entry(shape).or_insert_with(|| lowered.commands(shape, constants.ptr));
        self.bytes.clear();
        self.bytes.extend(self.words[..used].iter().flat_map(|word| word.to_le_bytes()));
        let mut device = self.device.lock();
        device.write(self.tables.ptr, &self.bytes)?;
        device.run(commands)?;
        self.output = pass.output;
        self.outputs.clear();
        let count = batch.output_rows.len() * pass.output.stride;
        self.bytes.clear();
        self.bytes.resize(4 * count, 0);
        device.read(self.workspace.ptr + 4 * pass.output.offset as DevicePtr, &mut self.bytes)?;
        self.outputs.extend(self.bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        Ok(())
    }

    fn output(&self, row: usize) -> &[f32] {
        let start = row * self.output.stride;
        self.outputs.get(start..start + self.output.columns).unwrap_or_default()
    }

    fn memory(&self) -> MemoryUse {
        let constants: usize = self.constants.iter().map(|memory| memory.bytes).sum();
        let activations = self.workspace.bytes + self.tables.bytes + constants + self.model.bytes();
        MemoryUse { activations, kv_cache: self.blocks.bytes() }
    }

    fn block_storage(&self) -> &dyn BlockStorage {
        &self.blocks
    }

    fn block_storage_mut(&mut self) -> &mut dyn BlockStorage {
        &mut self.blocks
    }
}

/// Returns an error if the device has less free memory.
fn check_memory(device: &SharedDevice, bytes: usize) -> Result<()> {
    match device.lock().free_bytes()? {
        Some(free) if free < bytes => {
            let message = format!(
                "the context needs {bytes} bytes on the device, {free} are free; use a smaller context or batch"
            );
            Err(Error::new(siskin_format::ErrorKind::Memory, "device", message))
        }
        _ => Ok(()),
    }
}

/// Returns the numbers of rows that batches are rounded up to: powers of two, and the maximum.
fn bucket_sizes(max_rows: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |size| size.checked_mul(2));
    let mut sizes: Vec<usize> = powers.take_while(|size| *size < max_rows).collect();
    sizes.push(max_rows.max(1));
    sizes
}

/// What a pass refers to beside weights.
struct PassConstants {
    /// By RoPE table: its angles by position.
    ropes: Vec<Option<DeviceRows>>,
    /// Sinusoidal positions, by RoPE table and offset.
    sinusoids: Vec<((usize, usize), DeviceRows)>,
    slopes: Vec<(Vec<f32>, DevicePtr)>,
    biases: Vec<(siskin_graph::RelativePositionBias, DevicePtr)>,
    reach: usize,
    /// By the size of BigBird blocks and the number of random ones.
    block_biases: Vec<((usize, usize), DevicePtr)>,
}

fn lower(
    pass: &ForwardPass,
    plan: &Plan,
    rows: usize,
    (model, blocks, constants, places): (&UploadedModel, &DeviceBlocks, &PassConstants, Places),
) -> Result<LoweredPass> {
    let pools: Vec<DevicePtr> = blocks.pools().collect();
    let bias = |attention: &Attention| {
        let known = attention.bias.and_then(|bias| constants.biases.iter().find(|(known, _)| *known == bias));
        known.map_or((0, 0), |(_, ptr)| (*ptr, constants.reach))
    };
    let slopes = |attention: &Attention| {
        constants.slopes.iter().find(|(known, _)| *known == attention.alibi).map_or(0, |(_, ptr)| *ptr)
    };
    let angles = |op: &RowOp| {
        if let RowOp::RopeCosSin { rope, .. } = *op {
            return constants.ropes[rope];
        }
        let RowOp::SinusoidalPositions { rope, offset, .. } = *op else { return None };
        constants.sinusoids.iter().find(|(known, _)| *known == (rope, offset)).map(|(_, rows)| *rows)
    };
    let block_bias = |blocks: (usize, usize)| {
        constants.block_biases.iter().find(|(known, _)| *known == blocks).map_or(0, |(_, ptr)| *ptr)
    };
    let context = PassContext {
        block_bias: &block_bias,
        weights: model.of(pass.part),
        storage: &blocks.layout,
        pools: &pools,
        bias: &bias,
        slopes: &slopes,
        angles: &angles,
        places,
        multiprocessors: blocks.multiprocessors(),
    };
    lower_plan(plan, rows, rows * pass.graph.frames_per_row(), &context)
}

/// Copies tables that do not change to the device.
struct Uploads<'a> {
    device: &'a SharedDevice,
    limits: &'a ExecutionLimits,
    model: &'a UploadedModel,
    memory: Vec<DeviceMemory>,
}

impl Uploads<'_> {
    fn all(&mut self, plan: &MemoryPlan) -> Result<Vec<PassConstants>> {
        let passes = Arc::clone(&self.limits.passes);
        passes.iter().zip(&plan.plans).map(|(pass, plan)| self.pass(pass, plan)).collect()
    }

    fn pass(&mut self, pass: &ForwardPass, plan: &Plan) -> Result<PassConstants> {
        let mut ropes = Vec::new();
        for table in &plan.ropes {
            let keeps = table.scaling.is_none() && pass.positions <= MAX_ANGLE_POSITIONS;
            ropes.push(if keeps { Some(self.angles(table, 0, pass.positions, 0)?) } else { None });
        }
        let mut sinusoids = Vec::new();
        let ops = plan.steps.iter().flat_map(|step| {
            let PlanStep::Rows { ops, .. } = step else { return &[][..] };
            ops
        });
        for op in ops {
            if let RowOp::SinusoidalPositions { rope, offset, to } = *op {
                let rows = self.angles(&plan.ropes[rope], offset, pass.positions, to.columns / 2)?;
                sinusoids.push(((rope, offset), rows));
            }
        }
        let mut slopes: Vec<(Vec<f32>, DevicePtr)> = Vec::new();
        for attention in pass.graph.attentions().filter(|attention| !attention.alibi.is_empty()) {
            if slopes.iter().all(|(known, _)| *known != attention.alibi) {
                slopes.push((attention.alibi.clone(), self.floats(&attention.alibi)?));
            }
        }
        let distances =
            Distances::new(pass.graph.attentions(), self.model.host.of(pass.part), pass.positions);
        let mut biases: Vec<(siskin_graph::RelativePositionBias, DevicePtr)> = Vec::new();
        for bias in pass.graph.attentions().filter_map(|attention| attention.bias) {
            if biases.iter().all(|(known, _)| *known != bias)
                && let Some(numbers) = distances.table(&bias)
            {
                biases.push((bias, self.floats(numbers)?));
            }
        }
        let mut block_biases: Vec<((usize, usize), DevicePtr)> = Vec::new();
        for mask in pass.graph.attentions().map(|attention| attention.attention_mask) {
            if let AttentionMask::BigBird { size, random } = mask
                && block_biases.iter().all(|(known, _)| *known != (size, random))
            {
                let numbers = distances.of_blocks(size, random, distances.reach());
                block_biases.push(((size, random), self.floats(numbers)?));
            }
        }
        Ok(PassConstants { ropes, sinusoids, slopes, biases, reach: distances.reach(), block_biases })
    }

    /// Uploads the angles of all positions, each row rotated left by `rotation` columns.
    fn angles(
        &mut self,
        table: &siskin_graph::RopeTable,
        offset: usize,
        positions: usize,
        rotation: usize,
    ) -> Result<DeviceRows> {
        let columns = 2 * table.frequencies.len();
        let mut rows = vec![0.0; columns * positions];
        for (position, row) in rows.chunks_exact_mut(columns.max(1)).enumerate() {
            rope::cos_sin(&table.frequencies, table.magnitude, (position + offset) as u32, row);
            row.rotate_left(rotation);
        }
        Ok(DeviceRows { ptr: self.floats(&rows)?, stride: columns })
    }

    fn floats(&mut self, numbers: &[f32]) -> Result<DevicePtr> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let memory = self.device.upload(&bytes)?;
        let ptr = memory.ptr;
        self.memory.push(memory);
        Ok(ptr)
    }
}
