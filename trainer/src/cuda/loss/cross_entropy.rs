//! Cross-entropy.

use siskin_device::{GridSize, KernelArgument, MatrixShape};
use siskin_format::Result;

use super::{DeviceLoss, DeviceOutputs, THREADS, add_results, check_rows, lists};
use crate::batch::TrainingBatch;
use crate::loss::{CrossEntropy, Targets};
use siskin_cuda::{CommandBuilder, flag, int};

impl DeviceLoss for CrossEntropy {
    fn check(&self, _: &TrainingBatch, targets: &Targets, shape: MatrixShape) -> Result<()> {
        check_rows(targets, shape)
    }

    fn record(&self, work: &mut CommandBuilder<'_>, outputs: &DeviceOutputs<'_>) {
        let [ids, weights] = lists(work, outputs);
        let arguments = [
            &[
                KernelArgument::Ptr(outputs.place),
                ids,
                weights,
                KernelArgument::Float(self.label_smoothing as f32),
            ][..],
            &[outputs.scale, outputs.results].map(KernelArgument::Ptr),
            &[int(outputs.columns), int(outputs.stride), flag(outputs.back)],
        ];
        let name = work.commands.kernel_name("cross_entropy");
        work.commands.kernel(&name, GridSize::linear(outputs.rows), THREADS, 0, &arguments.concat());
        add_results(work, outputs, outputs.rows, 1);
    }
}
