//! Knowledge distillation: the KL divergence from a teacher's scores, which the host sends with each batch.

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_format::{Error, Result};

use super::{DeviceLoss, DeviceOutputs, THREADS, add_results, check_rows, lists};
use crate::batch::TrainingBatch;
use crate::loss::{Distillation, Targets};
use siskin_cuda::{CommandBuilder, flag, int};

impl DeviceLoss for Distillation {
    fn check(&self, _: &TrainingBatch, targets: &Targets, shape: MatrixShape) -> Result<()> {
        check_rows(targets, shape)?;
        match targets.numbers.len() < shape.rows * shape.columns {
            true => {
                Err(Error::argument("targets.numbers", "there are fewer teacher logits than student logits"))
            }
            false => Ok(()),
        }
    }

    fn record(&self, work: &mut CommandBuilder<'_>, outputs: &DeviceOutputs<'_>) {
        let [ids, weights] = lists(work, outputs);
        let teacher = work.tables.floats("teacher", || outputs.targets.numbers.clone());
        let teacher = teacher + (4 * outputs.first * outputs.columns) as DevicePtr;
        let arguments = [
            &[KernelArgument::Ptr(outputs.place), ids, weights, KernelArgument::Ptr(teacher)][..],
            &[self.temperature, self.kd_ratio].map(|number| KernelArgument::Float(number as f32)),
            &[outputs.scale, outputs.results].map(KernelArgument::Ptr),
            &[int(outputs.columns), int(outputs.stride), flag(outputs.back)],
        ];
        let name = work.commands.kernel_name("distillation");
        work.commands.kernel(&name, GridSize::linear(outputs.rows), THREADS, 0, &arguments.concat());
        add_results(work, outputs, outputs.rows, 1);
    }
}
