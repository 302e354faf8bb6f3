//! Knowledge distillation: the KL divergence from a teacher's scores, which the host sends with each batch.

use siskin::{Error, Result};

use super::{Argument, Loss, Outputs, Place, THREADS, Work, add_results, check_rows, lists, whole};
use crate::batch::Batch;
use crate::cuda::op::flag;
use crate::loss::{Distil, Targets};

impl Loss for Distil {
    fn check(&self, _: &Batch, targets: &Targets, shape: [usize; 2]) -> Result<()> {
        check_rows(targets, shape)?;
        match targets.numbers.len() < shape[0] * shape[1] {
            true => Err(Error::argument("targets.numbers", "the teacher gave fewer scores than there are")),
            false => Ok(()),
        }
    }

    fn write_down(&self, work: &mut Work<'_>, outputs: &Outputs<'_>) {
        let [ids, weights] = lists(work, outputs);
        let teacher = work.sheet.floats("teacher", || outputs.targets.numbers.clone());
        let teacher = teacher + (4 * outputs.first * outputs.columns) as Place;
        let arguments = [
            &[Argument::Place(outputs.place), ids, weights, Argument::Place(teacher)][..],
            &[self.temperature, self.share].map(|number| Argument::Float(number as f32)),
            &[outputs.scale, outputs.results].map(Argument::Place),
            &[whole(outputs.columns), whole(outputs.stride), flag(outputs.back)],
        ];
        let name = work.tape.named("distil");
        work.tape.kernel(&name, [outputs.rows, 1, 1], THREADS, 0, &arguments.concat());
        add_results(work, outputs, [outputs.rows, 1]);
    }
}
