//! Cross-entropy.

use siskin::Result;

use super::{Argument, Loss, Outputs, THREADS, Work, add_results, check_rows, lists, whole};
use crate::batch::Batch;
use crate::cuda::op::flag;
use crate::loss::{CrossEntropy, Targets};

impl Loss for CrossEntropy {
    fn check(&self, _: &Batch, targets: &Targets, shape: [usize; 2]) -> Result<()> {
        check_rows(targets, shape)
    }

    fn write_down(&self, work: &mut Work<'_>, outputs: &Outputs<'_>) {
        let [ids, weights] = lists(work, outputs);
        let arguments = [
            &[Argument::Place(outputs.place), ids, weights, Argument::Float(self.smoothing as f32)][..],
            &[outputs.scale, outputs.results].map(Argument::Place),
            &[whole(outputs.columns), whole(outputs.stride), flag(outputs.back)],
        ];
        let name = work.tape.named("cross_entropy");
        work.tape.kernel(&name, [outputs.rows, 1, 1], THREADS, 0, &arguments.concat());
        add_results(work, outputs, [outputs.rows, 1]);
    }
}
