//! Planning a batch before it runs, while the device is busy.

use siskin_format::Result;

use super::{BatchPlan, DeviceObjective, DeviceRunner, PassKind, StepMemory};
use crate::batch::TrainingBatch;
use crate::cuda::loss::Objective;
use crate::loss::Targets;
use crate::runner::check;

/// A planned batch, and all that its plan depends on but the loss, which is the same for a whole run.
pub(super) struct PreparedBatch {
    batch: TrainingBatch,
    targets: Targets,
    scale: f64,
    areas: StepMemory,
    plan: BatchPlan,
}

impl DeviceRunner {
    /// Plans the forward and backward pass of a batch. The next call of [`DeviceRunner::run`] uses the plan if its
    /// arguments are the same.
    ///
    /// # Errors
    /// If the batch does not fit the program.
    pub fn prepare(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
    ) -> Result<()> {
        check(&self.program, batch)?;
        let layout = self.known_layout(batch, PassKind::Training)?;
        let goal = DeviceObjective { loss, targets, scale };
        let plan = self.record(batch, goal, &layout, PassKind::Training, false)?;
        let (batch, targets) = (batch.clone(), targets.clone());
        self.plans.prepared = Some(PreparedBatch { batch, targets, scale, areas: self.areas, plan });
        Ok(())
    }

    /// Returns the plan of a batch if it was prepared, and no memory was reallocated since.
    pub(super) fn take_prepared(
        &mut self,
        batch: &TrainingBatch,
        goal: DeviceObjective<'_>,
    ) -> Option<BatchPlan> {
        let prepared = self.plans.prepared.take()?;
        let same = prepared.areas == self.areas
            && prepared.scale == goal.scale
            && prepared.targets == *goal.targets
            && prepared.batch == *batch;
        same.then_some(prepared.plan)
    }
}
