//! The arena allocator of a training step: buffers with disjoint lifetimes share memory.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use siskin_device::{ArenaPlan, BufferLifetime};
use siskin_format::Result;

use super::{Buffer, Program, Schedule, ScheduleStep};
use crate::batch::TrainingBatch;
use crate::grad::{RuleCall, rule};
use crate::parameters::Parameters;
use crate::real::Real;

/// The offsets of all buffers of a step.
#[derive(Clone, Debug, Default)]
pub struct BufferLayout {
    offsets: HashMap<Buffer, Range<usize>>,
    /// Gradients that must be zeroed before each step.
    pub zeroed: Vec<Vec<Range<usize>>>,
    /// Elements of the arena.
    pub size: usize,
}

/// The key of a layout: for encoder and decoder the numbers of rows, output rows and frames, which determine all
/// buffer sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape([usize; 6]);

impl BatchShape {
    /// Returns the key of a batch.
    pub fn of(batch: &TrainingBatch) -> Self {
        let [reader, writer] = [&batch.encoder, &batch.decoder]
            .map(|texts| [texts.rows.len(), texts.output_rows.len(), texts.frame_count()]);
        Self([reader[0], reader[1], reader[2], writer[0], writer[1], writer[2]])
    }
}

/// A cache of a schedule's layouts for the shapes of recent batches.
#[derive(Debug, Default)]
pub struct Layouts {
    known: VecDeque<(BatchShape, Arc<BufferLayout>)>,
}

impl Layouts {
    /// The maximum number of cached layouts.
    const MAX_LAYOUTS: usize = 8;

    /// Returns the layout of a batch.
    pub fn find<T: Real>(
        &mut self,
        program: &Program,
        schedule: &Schedule,
        batch: &TrainingBatch,
        parameters: &Parameters<T>,
    ) -> Result<Arc<BufferLayout>> {
        self.find_or(batch, || BufferLayout::new(program, schedule, batch, parameters))
    }

    /// Returns the layout of a batch, calling `make` on a cache miss.
    pub(crate) fn find_or(
        &mut self,
        batch: &TrainingBatch,
        make: impl FnOnce() -> Result<BufferLayout>,
    ) -> Result<Arc<BufferLayout>> {
        let shape = BatchShape::of(batch);
        if let Some((_, layout)) = self.known.iter().find(|(known, _)| *known == shape) {
            return Ok(layout.clone());
        }
        let layout = Arc::new(make()?);
        self.known.truncate(Self::MAX_LAYOUTS - 1);
        self.known.push_front((shape, layout.clone()));
        Ok(layout)
    }
}

/// What a batch takes besides the weights, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchBytes {
    /// The arena: activations, their gradients, and what forward keeps for backward.
    pub activations: usize,
    /// Scratch memory.
    pub scratch: usize,
}

/// What the weights take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightBytes {
    /// All tensors.
    pub parameters: usize,
    /// The gradients of the trained ones.
    pub gradients: usize,
}

/// Memory by part, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryByPart {
    /// The weights.
    pub parameters: usize,
    /// Their gradients.
    pub gradients: usize,
    /// Optimizer states.
    pub optimizer: usize,
    /// The arena: activations, their gradients, and what forward keeps for backward.
    pub activations: usize,
    /// Scratch memory of the head for a chunk of rows.
    pub scratch: usize,
}

impl MemoryByPart {
    /// Returns each part with its name.
    pub fn list(&self) -> [(&'static str, usize); 5] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("scratch", self.scratch),
        ]
    }

    /// Returns the total.
    pub fn total(&self) -> usize {
        self.parameters + self.gradients + self.optimizer + self.activations + self.scratch
    }
}

impl BufferLayout {
    /// Computes the layout for the shape of `batch`.
    pub fn new<T: Real>(
        program: &Program,
        schedule: &Schedule,
        batch: &TrainingBatch,
        parameters: &Parameters<T>,
    ) -> Result<Self> {
        Self::of_sizes(schedule, |buffer| size(program, batch, parameters, buffer))
    }

    /// Computes the layout for the buffer sizes that `size` returns.
    pub fn of_sizes(schedule: &Schedule, size: impl Fn(Buffer) -> Result<usize>) -> Result<Self> {
        let mut lifetimes: Vec<BufferLifetime> = Vec::new();
        let mut known: HashMap<Buffer, usize> = HashMap::new();
        let mut first_added = Vec::with_capacity(schedule.steps.len());
        for (index, &step) in schedule.steps.iter().enumerate() {
            let mut added = Vec::new();
            for buffer in schedule.uses[index].all() {
                if let Some(&lifetime) = known.get(&buffer) {
                    lifetimes[lifetime].steps.end = index + 1;
                    continue;
                }
                known.insert(buffer, lifetimes.len());
                let size = size(buffer)?;
                lifetimes.push(BufferLifetime { steps: index..index + 1, size });
                if matches!(step, ScheduleStep::Backward { .. }) && matches!(buffer, Buffer::Gradient(_)) {
                    added.push(buffer);
                }
            }
            first_added.push(added);
        }
        let plan = ArenaPlan::new(&lifetimes);
        let ranges = known.into_iter().map(|(buffer, index)| (buffer, plan.ranges[index].clone()));
        let offsets: HashMap<Buffer, Range<usize>> = ranges.filter(|(_, range)| !range.is_empty()).collect();
        // Empty buffers have no offset.
        let find =
            |added: Vec<Buffer>| added.iter().filter_map(|buffer| offsets.get(buffer).cloned()).collect();
        let zeroed = first_added.into_iter().map(find).collect();
        Ok(Self { offsets, zeroed, size: plan.size })
    }

    /// Returns the range of a buffer in the arena.
    pub fn place(&self, buffer: Buffer) -> Range<usize> {
        self.offsets.get(&buffer).cloned().unwrap_or(0..0)
    }
}

fn size<T: Real>(
    program: &Program,
    batch: &TrainingBatch,
    parameters: &Parameters<T>,
    buffer: Buffer,
) -> Result<usize> {
    let of_value = |value: usize| program.row_count(value, batch) * program.graph.values[value].columns;
    Ok(match buffer {
        Buffer::Value { value, .. } | Buffer::Gradient(value) => of_value(value),
        Buffer::Saved { node, .. } => {
            let node = &program.graph.nodes[node];
            let rows = program.row_count(node.output, batch);
            rule(&node.op)?.saved_len(&RuleCall { program, node, batch, parameters, rows })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Recompute;

    fn small_program() -> (Program, Parameters<f32>, Schedule) {
        let config = serde_json::from_value(serde_json::json!({
            "vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40,
        }));
        let beginning = crate::InitialModel::new("gpt2", None, config.unwrap()).unwrap();
        let program = Program::new(&beginning.graphs).unwrap();
        let parameters = beginning.parameters::<f32>(&program.graph.weights, 1);
        let schedule = Schedule::new(&program, Recompute::None, |_| true).unwrap();
        (program, parameters, schedule)
    }

    #[test]
    fn empty_batches_take_no_memory() {
        let (program, parameters, schedule) = small_program();
        let layout = BufferLayout::new(&program, &schedule, &TrainingBatch::default(), &parameters).unwrap();
        assert_eq!((layout.size, layout.zeroed.concat()), (0, Vec::new()));
    }

    #[test]
    fn layouts_are_reused_for_batches_of_the_same_shape() {
        let batch = |tokens: &[u32], wanted: usize| {
            let mut batch = TrainingBatch::default();
            batch.decoder.push(tokens, &[]);
            batch.decoder.output_rows = (0..wanted).collect();
            batch
        };
        let (program, parameters, schedule) = small_program();
        let mut layouts = Layouts::default();
        let mut find = |batch: &TrainingBatch| layouts.find(&program, &schedule, batch, &parameters).unwrap();
        let first = find(&batch(&[1, 2, 3], 3));
        assert!(Arc::ptr_eq(&first, &find(&batch(&[4, 5, 6], 3))), "other tokens change no place");
        let others = [batch(&[1, 2, 3, 4], 3), batch(&[1, 2, 3], 2)];
        for other in &others {
            let own = find(other);
            assert!(!Arc::ptr_eq(&first, &own));
            let fresh = BufferLayout::new(&program, &schedule, other, &parameters).unwrap();
            assert_eq!((own.size, &own.zeroed), (fresh.size, &fresh.zeroed));
        }
        (5..5 + Layouts::MAX_LAYOUTS as u32).for_each(|length| {
            find(&batch(&(0..length).collect::<Vec<_>>(), 1));
        });
        assert!(!Arc::ptr_eq(&first, &find(&batch(&[1, 2, 3], 3))), "the oldest are dropped");
    }
}
