//! Validation on held-out text, and its consequences: the best weights, and early stopping.

use siskin_format::{Error, Result};

use super::{RunConfig, Validation};
use crate::early_stopping::{EarlyStopping, ValidationResult};
use crate::loss::LossSum;

/// Which validation is the best so far, and whether training should stop.
#[derive(Default)]
pub(super) struct ModelSelection {
    pub(super) early_stopping: Option<EarlyStopping>,
    /// The value of the metric in the best validation.
    pub(super) best: Option<f64>,
}

impl ModelSelection {
    /// Returns the name of the metric by which the best validation is chosen.
    pub(super) fn metric(&self) -> &str {
        self.early_stopping.as_ref().map_or("loss", EarlyStopping::metric)
    }

    /// Judges the validation after a step.
    pub(super) fn judge(&mut self, step: u64, sum: &LossSum) -> Validation {
        let loss = sum.mean();
        let accuracy = sum.correct / sum.weight.max(f64::MIN_POSITIVE);
        let value = self.value(loss, accuracy);
        let better = |best| match &self.early_stopping {
            Some(early_stopping) => early_stopping.is_better(value, best),
            None => value < best,
        };
        let best = !value.is_nan() && self.best.is_none_or(better);
        if best {
            self.best = Some(value);
        }
        Validation { step, loss, accuracy, best }
    }

    /// Counts a validation; returns true if training should stop.
    pub(super) fn stops(&mut self, validation: &Validation) -> bool {
        let value = self.value(validation.loss, validation.accuracy);
        match &mut self.early_stopping {
            Some(early_stopping) => early_stopping.update(value) == ValidationResult::Stop,
            None => false,
        }
    }

    fn value(&self, loss: f64, accuracy: f64) -> f64 {
        let early_stopping = self.early_stopping.as_ref();
        early_stopping.map_or(loss, |early_stopping| early_stopping.metric_value(loss, accuracy))
    }
}

/// Rejects options that need validation when there is no validation data.
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
