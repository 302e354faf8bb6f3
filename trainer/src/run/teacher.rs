//! The teacher model of knowledge distillation (Hinton et al. 2015, arXiv:1503.02531).

use std::sync::{Mutex, PoisonError};

use siskin_format::file::{File, SectionKind};
use siskin_format::{Error, Result};

use crate::data::LoadedBatch;
use crate::loss::CrossEntropy;
use crate::parameters::Parameters;
use crate::program::{Program, Recompute, Side};
use crate::runner::{Runner, TrainingObjective};

/// A teacher that computes the scores of each batch. It runs on the CPU, ahead of the steps; its matrices stay
/// packed.
pub(super) struct Teacher {
    parts: Mutex<(Runner<f32>, Parameters<f32>)>,
    /// Scores per row.
    columns: usize,
}

impl Teacher {
    /// Loads the teacher in `file`, for a run of `own` with this tokenizer section.
    ///
    /// # Errors
    /// If the teacher has a different head, number of logits, or tokenizer.
    pub(super) fn new(file: &File, own: &Program, tokenizer: Option<&[u8]>) -> Result<Self> {
        let program = Program::of_file(file)?;
        let columns = |program: &Program| program.graph.values[program.graph.output].columns;
        let sides = |program: &Program| [Side::Encoder, Side::Decoder].map(|side| program.has(side));
        let reject = |message: String| Err(Error::argument("teacher.from", message));
        if program.graph.head != own.graph.head || sides(&program) != sides(own) {
            return reject(
                "not the head or architecture type of the trained model; use a teacher of the same \
                 kind"
                    .into(),
            );
        }
        if columns(&program) != columns(own) {
            let [theirs, own] = [columns(&program), columns(own)];
            return reject(format!("{theirs} logits per row, but the trained model has {own}"));
        }
        if file.section(SectionKind::Tokenizer).as_deref() != tokenizer {
            let message =
                "uses a different tokenizer than the trained model; set model.tokenizer to the teacher";
            return reject(message.into());
        }
        let takes = program.takes_packed();
        let parameters = Parameters::read_with_packed(&program.graph.weights, file, |weight| takes[weight])?;
        let columns = columns(&program);
        let runner = Runner::new(program, Recompute::None, |_| false)?;
        Ok(Self { parts: Mutex::new((runner, parameters)), columns })
    }

    /// Adds the teacher's scores to a batch.
    pub(super) fn add(&self, step: &mut LoadedBatch) -> Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (runner, parameters) = &mut *parts;
        let mut numbers = Vec::new();
        let mut see = |_: std::ops::Range<usize>, scores: &[f32]| numbers.extend_from_slice(scores);
        let goal = TrainingObjective { loss: &CrossEntropy::default(), targets: &step.targets, scale: 1.0 };
        let done = runner.evaluate(parameters, &step.batch, goal, Some(&mut see));
        done.map_err(|error| error.within("teacher"))?;
        step.targets.numbers = numbers;
        Ok(())
    }

    /// Allocates the scores of a batch without computing them.
    pub(super) fn reserve(&self, step: &mut LoadedBatch) {
        step.targets.numbers = vec![0.0; step.targets.ids.len() * self.columns];
    }
}
