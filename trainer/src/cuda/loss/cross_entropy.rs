//! Cross-entropy.

use siskin::Result;

use super::{
    DeviceLoss, DeviceOutputs, KernelArgument, THREADS, TapeBuilder, add_results, check_rows, lists, whole,
};
use crate::batch::TrainingBatch;
use crate::cuda::op::flag;
use crate::loss::{CrossEntropy, Targets};

impl DeviceLoss for CrossEntropy {
    fn check(&self, _: &TrainingBatch, targets: &Targets, shape: [usize; 2]) -> Result<()> {
        check_rows(targets, shape)
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, outputs: &DeviceOutputs<'_>) {
        let [ids, weights] = lists(work, outputs);
        let arguments = [
            &[
                KernelArgument::Place(outputs.place),
                ids,
                weights,
                KernelArgument::Float(self.smoothing as f32),
            ][..],
            &[outputs.scale, outputs.results].map(KernelArgument::Place),
            &[whole(outputs.columns), whole(outputs.stride), flag(outputs.back)],
        ];
        let name = work.tape.named("cross_entropy");
        work.tape.kernel(&name, [outputs.rows, 1, 1], THREADS, 0, &arguments.concat());
        add_results(work, outputs, [outputs.rows, 1]);
    }
}
