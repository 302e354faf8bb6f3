//! The buffer layout of a batch.

use std::sync::Arc;

use siskin_cuda::ops::saved_len;
use siskin_device::aligned;
use siskin_format::Result;

use super::{DeviceRunner, PassKind};
use crate::batch::TrainingBatch;
use crate::program::{Buffer, BufferLayout, Layouts};

impl DeviceRunner {
    /// Computes the layout of a batch.
    pub(super) fn layout(&self, batch: &TrainingBatch, kind: PassKind) -> Result<BufferLayout> {
        let schedule = self.schedules.of(kind);
        BufferLayout::of_sizes(schedule, |buffer| Ok(self.bytes(batch, buffer)))
    }

    /// Like [`Self::layout`], cached: batches of a run often have equal shapes.
    pub(super) fn known_layout(
        &mut self,
        batch: &TrainingBatch,
        kind: PassKind,
    ) -> Result<Arc<BufferLayout>> {
        let mut layouts = std::mem::take(self.layouts_of(kind));
        let layout = layouts.find_or(batch, || self.layout(batch, kind));
        *self.layouts_of(kind) = layouts;
        layout
    }

    fn layouts_of(&mut self, kind: PassKind) -> &mut Layouts {
        match kind {
            PassKind::Training => &mut self.plans.training,
            PassKind::Evaluation => &mut self.plans.evaluation,
        }
    }

    fn bytes(&self, batch: &TrainingBatch, buffer: Buffer) -> usize {
        aligned(match buffer {
            Buffer::Value { value, .. } | Buffer::Gradient(value) => {
                let columns = self.program.graph.values[value].columns;
                self.program.row_count(value, batch) * columns * self.precision.bytes()
            }
            Buffer::Saved { node, .. } => {
                let node = &self.program.graph.nodes[node];
                4 * saved_len(node, self.program.row_count(node.output, batch))
            }
        })
    }
}
