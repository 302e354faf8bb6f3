//! Validation on held-out text, and its consequences: the best weights, and early stopping.

use siskin_format::{Error, ErrorKind, Result};

use super::{Run, RunCallbacks, RunConfig, Validation, evaluation};
use crate::checkpoint::CheckpointFolder;
use crate::early_stopping::{EarlyStopping, ValidationResult};
use crate::loss::LossSum;
use crate::profile::{ProfiledThread, timed};

impl Run {
    /// Validates, and returns whether the run ends.
    pub(super) fn validate_and_sample(
        &mut self,
        callbacks: &mut dyn RunCallbacks,
    ) -> Result<(Validation, bool)> {
        let recorder = self.profiled.as_ref().map(|profiled| profiled.recorder.clone());
        let result =
            timed(recorder.as_ref(), "validation", ProfiledThread::Steps, || self.validate(callbacks))?;
        match self.samples() {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => callbacks.samples(self.step, &samples),
            Err(error) => callbacks.warning(&format!("cannot generate samples: {error}")),
        }
        Ok(result)
    }

    fn validate(&mut self, callbacks: &mut dyn RunCallbacks) -> Result<(Validation, bool)> {
        let Some(sum) = self.evaluate()? else { return Ok((Validation::default(), false)) };
        let loss = sum.mean();
        let accuracy = sum.correct / sum.weight.max(f64::MIN_POSITIVE);
        let value = self
            .early_stopping
            .as_ref()
            .map_or(loss, |early_stopping| early_stopping.metric_value(loss, accuracy));
        let better = |best| match &self.early_stopping {
            Some(early_stopping) => early_stopping.is_better(value, best),
            None => value < best,
        };
        let best = !value.is_nan() && self.best.is_none_or(better);
        if best {
            self.best = Some(value);
        }
        let result = Validation { step: self.step, loss, accuracy, best };
        callbacks.validation(&result);
        let ends = match &mut self.early_stopping {
            Some(early_stopping) => early_stopping.update(value) == ValidationResult::Stop,
            None => false,
        };
        Ok((result, ends))
    }

    /// Returns the name of the metric by which the best validation is chosen.
    pub(super) fn metric(&self) -> &str {
        self.early_stopping.as_ref().map_or("loss", EarlyStopping::metric)
    }

    /// Returns the validation loss, with the averaged parameters if weights are averaged.
    pub fn evaluate(&mut self) -> Result<Option<LossSum>> {
        if let Some(device) = &mut self.device {
            return device.evaluate(&self.config, &self.setup);
        }
        self.with_ema(|run| {
            evaluation::evaluate_batches(
                &run.config,
                &run.setup,
                &mut run.runner,
                run.loss.as_ref(),
                &run.parameters,
            )
        })?
    }

    /// Loads the weights that the config exports, and returns the step that they are from.
    ///
    /// # Errors
    /// If the weights of the best validation are to be exported and the folder has no readable checkpoint of them.
    pub fn load_export_weights(&mut self) -> Result<u64> {
        if self.config.exports_best()? {
            let folder = self.folder.as_ref();
            let best = folder.map(CheckpointFolder::best).transpose()?.flatten().ok_or_else(|| {
                let message = "there is no checkpoint of a best validation; continue training, or export \
                               the last weights";
                Error::new(ErrorKind::Missing, "export.weights", message)
            })?;
            self.restore(&best)?;
        }
        Ok(self.step)
    }
}

/// Refuses options that need validation when there is no validation data.
pub(super) fn check_validation_data(config: &RunConfig) -> Result<()> {
    let message = "needs validation data; set data.validation or data.validation_split";
    if config.early_stopping.is_some() {
        return Err(Error::argument("early_stopping", message));
    }
    match config.exports_best()? {
        true => Err(Error::argument("export.weights", message)),
        false => Ok(()),
    }
}
