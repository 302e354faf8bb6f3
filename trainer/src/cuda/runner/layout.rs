//! The buffer layout of a batch.

use std::sync::Arc;

use siskin::Result;
use siskin_device::{Device, aligned};

use super::DeviceRunner;
use crate::batch::TrainingBatch;
use crate::cuda::op;
use crate::program::{Buffer, BufferLayout};

impl<D: Device> DeviceRunner<D> {
    /// Computes the layout of a batch.
    pub(super) fn layout(&self, batch: &TrainingBatch, back: bool) -> Result<BufferLayout> {
        let schedule = if back { &self.schedule } else { &self.forward };
        BufferLayout::of_sizes(schedule, |buffer| Ok(self.bytes(batch, buffer)))
    }

    /// Like [`Self::layout`], cached: batches of a run often have equal shapes.
    pub(super) fn known_layout(&mut self, batch: &TrainingBatch, back: bool) -> Result<Arc<BufferLayout>> {
        let mut layouts = std::mem::take(&mut self.layouts[usize::from(!back)]);
        let layout = layouts.find_or(batch, || self.layout(batch, back));
        self.layouts[usize::from(!back)] = layouts;
        layout
    }

    fn bytes(&self, batch: &TrainingBatch, buffer: Buffer) -> usize {
        aligned(match buffer {
            Buffer::Value { value, .. } | Buffer::Gradient(value) => {
                let shape = self.program.values[value];
                shape.row_count(batch) * shape.columns * self.precision.bytes()
            }
            Buffer::Saved { node, .. } => {
                let node = &self.program.nodes[node];
                4 * op::saved_len(node, self.program.values[node.output].row_count(batch))
            }
        })
    }
}
