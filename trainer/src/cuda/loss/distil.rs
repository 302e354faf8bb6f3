//! Knowledge distillation: the KL divergence from a teacher's scores, which the host sends with each batch.

use siskin::{Error, Result};

use super::{
    DeviceLoss, DeviceOutputs, KernelArgument, Place, THREADS, TapeBuilder, add_results, check_rows, lists,
    whole,
};
use crate::batch::TrainingBatch;
use crate::cuda::op::flag;
use crate::loss::{Distil, Targets};

impl DeviceLoss for Distil {
    fn check(&self, _: &TrainingBatch, targets: &Targets, shape: [usize; 2]) -> Result<()> {
        check_rows(targets, shape)?;
        match targets.numbers.len() < shape[0] * shape[1] {
            true => Err(Error::argument("targets.numbers", "the teacher gave fewer scores than there are")),
            false => Ok(()),
        }
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, outputs: &DeviceOutputs<'_>) {
        let [ids, weights] = lists(work, outputs);
        let teacher = work.sheet.floats("teacher", || outputs.targets.numbers.clone());
        let teacher = teacher + (4 * outputs.first * outputs.columns) as Place;
        let arguments = [
            &[KernelArgument::Place(outputs.place), ids, weights, KernelArgument::Place(teacher)][..],
            &[self.temperature, self.share].map(|number| KernelArgument::Float(number as f32)),
            &[outputs.scale, outputs.results].map(KernelArgument::Place),
            &[whole(outputs.columns), whole(outputs.stride), flag(outputs.back)],
        ];
        let name = work.tape.named("distil");
        work.tape.kernel(&name, [outputs.rows, 1, 1], THREADS, 0, &arguments.concat());
        add_results(work, outputs, [outputs.rows, 1]);
    }
}
