//! Validation on held-out text, and its consequences: the best weights, and early stopping.

use siskin::{Error, ErrorKind, Result};

use super::{Run, RunConfig, Validation, Watcher, measure};
use crate::checkpoint::CheckpointFolder;
use crate::early_stopping::{EarlyStopping, ValidationResult};
use crate::loss::Sum;
use crate::profile::{ProfiledThread, timed};

impl Run {
    /// Validates, and returns whether the run ends.
    pub(super) fn look(&mut self, watcher: &mut dyn Watcher) -> Result<(Validation, bool)> {
        let recorder = self.profiled.as_ref().map(|profiled| profiled.recorder.clone());
        let seen =
            timed(recorder.as_ref(), "look", ProfiledThread::Steps, || self.look_at_validation(watcher))?;
        match self.samples() {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => watcher.samples(self.step, &samples),
            Err(error) => watcher.note(&format!("no samples: {error}")),
        }
        Ok(seen)
    }

    fn look_at_validation(&mut self, watcher: &mut dyn Watcher) -> Result<(Validation, bool)> {
        let Some(sum) = self.evaluate()? else { return Ok((Validation::default(), false)) };
        let loss = sum.mean();
        let right = sum.right / sum.weight.max(f64::MIN_POSITIVE);
        let watched = self.patience.as_ref().map_or(loss, |patience| patience.watched(loss, right));
        let better = |best| match &self.patience {
            Some(patience) => patience.prefers(watched, best),
            None => watched < best,
        };
        let best = !watched.is_nan() && self.best.is_none_or(better);
        if best {
            self.best = Some(watched);
        }
        let seen = Validation { step: self.step, loss, right, best };
        watcher.look(&seen);
        let ends = match &mut self.patience {
            Some(patience) => patience.look(watched) == ValidationResult::Stop,
            None => false,
        };
        Ok((seen, ends))
    }

    /// Returns the name of the metric by which the best validation is chosen.
    pub(super) fn metric(&self) -> &str {
        self.patience.as_ref().map_or("loss", EarlyStopping::metric)
    }

    /// Returns the validation loss, with the averaged parameters if weights are averaged.
    pub fn evaluate(&mut self) -> Result<Option<Sum>> {
        if let Some(device) = &mut self.device {
            return device.look(&self.config, &self.material);
        }
        self.averaged(|run| {
            measure::look(&run.config, &run.material, &mut run.runner, run.loss.as_ref(), &run.parameters)
        })?
    }

    /// Loads the weights that the config exports, and returns the step that they are from.
    ///
    /// # Errors
    /// If the weights of the best validation are to be exported and the folder has no readable checkpoint of them.
    pub fn choose(&mut self) -> Result<u64> {
        if self.config.exports_best()? {
            let folder = self.folder.as_ref();
            let best = folder.map(CheckpointFolder::best).transpose()?.flatten().ok_or_else(|| {
                let message = "no look was kept as the best; train on, or export the last weights";
                Error::new(ErrorKind::Missing, "export.weights", message)
            })?;
            self.restore(&best)?;
        }
        Ok(self.step)
    }
}

/// Refuses options that need validation when there is no validation data.
pub(super) fn check_unseen(config: &RunConfig) -> Result<()> {
    let message = "needs looks at texts that are not trained on; give data.validation or data.share";
    if config.patience.is_some() {
        return Err(Error::argument("patience", message));
    }
    match config.exports_best()? {
        true => Err(Error::argument("export.weights", message)),
        false => Ok(()),
    }
}
