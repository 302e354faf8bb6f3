//! Early stopping.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use crate::settings::{Settings, read, unknown, within};
use crate::state::{Checkpointed, TableData, TableView, Tables, bytes_of, words};

/// The metrics that can be monitored.
const METRICS: &[&str] = &["loss", "accuracy"];

/// The metric, and the patience.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStoppingOptions {
    /// The monitored metric: `loss`, to be minimized, or `accuracy`, to be maximized.
    pub metric: String,
    /// The minimum improvement over the best value that counts.
    pub min_delta: f64,
    /// The number of consecutive validations without improvement after which training stops.
    pub patience: u64,
}

impl Default for EarlyStoppingOptions {
    fn default() -> Self {
        Self { metric: "loss".to_owned(), min_delta: 0.0, patience: 3 }
    }
}

/// The result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationResult {
    /// The best so far.
    Improved,
    /// No improvement, for this many consecutive validations.
    NotImproved(u64),
    /// No improvement for too long: stop.
    Stop,
}

/// The best value, and the number of validations since.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    options: EarlyStoppingOptions,
    best: f64,
    bad_validations: u64,
    kept: TableData,
}

impl EarlyStopping {
    /// Creates the state from settings by name.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        Self::new(read("early_stopping", settings)?)
    }

    /// Creates the state before the first validation.
    pub fn new(options: EarlyStoppingOptions) -> Result<Self> {
        if !METRICS.contains(&options.metric.as_str()) {
            return Err(unknown("early_stopping.metric", "metric", &options.metric, METRICS));
        }
        within("early_stopping.min_delta", options.min_delta, 0.0..=f64::MAX)?;
        if options.patience == 0 {
            return Err(Error::argument("early_stopping.patience", "expected at least 1, got 0"));
        }
        let mut patience =
            Self { options, best: f64::NAN, bad_validations: 0, kept: TableData::Bytes(Vec::new()) };
        patience.keep();
        Ok(patience)
    }

    /// Returns the name of the monitored metric.
    pub fn metric(&self) -> &str {
        &self.options.metric
    }

    /// Returns how much better the first value is than the other.
    fn improvement(&self, number: f64, other: f64) -> f64 {
        if self.options.metric == "accuracy" { number - other } else { other - number }
    }

    /// Returns the monitored one of a validation's loss and accuracy.
    pub fn metric_value(&self, loss: f64, accuracy: f64) -> f64 {
        if self.options.metric == "accuracy" { accuracy } else { loss }
    }

    /// Returns true if a value is better than another, by any amount.
    pub fn is_better(&self, number: f64, other: f64) -> bool {
        self.improvement(number, other) > 0.0
    }

    /// Returns the best value, if any.
    pub fn best(&self) -> Option<f64> {
        (!self.best.is_nan()).then_some(self.best)
    }

    /// Adds the value of the next validation. NaN is never better.
    pub fn update(&mut self, number: f64) -> ValidationResult {
        let better = self.improvement(number, self.best) > self.options.min_delta
            || self.best.is_nan() && !number.is_nan();
        if better {
            (self.best, self.bad_validations) = (number, 0);
        } else {
            self.bad_validations += 1;
        }
        self.keep();
        match self.bad_validations {
            0 => ValidationResult::Improved,
            waited if waited >= self.options.patience => ValidationResult::Stop,
            waited => ValidationResult::NotImproved(waited),
        }
    }

    fn keep(&mut self) {
        self.kept = TableData::Bytes(bytes_of([self.best.to_bits(), self.bad_validations]));
    }
}

const TABLE: &str = "early_stopping.state";

impl Checkpointed for EarlyStopping {
    fn prefix(&self) -> &'static str {
        "early_stopping."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        vec![(TABLE.to_owned(), self.kept.view())]
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        let [best, waited] = words(tables, TABLE)?;
        (self.best, self.bad_validations) = (f64::from_bits(best), waited);
        self.keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{restore, save};

    #[test]
    fn training_stops_after_patience_validations_without_improvement() {
        let options = EarlyStoppingOptions { min_delta: 0.1, patience: 2, ..EarlyStoppingOptions::default() };
        let rows = [
            (f64::NAN, ValidationResult::NotImproved(1)),
            (2.0, ValidationResult::Improved),
            (1.95, ValidationResult::NotImproved(1)),
            (1.89, ValidationResult::Improved),
            (f64::NAN, ValidationResult::NotImproved(1)),
            (1.80, ValidationResult::Stop),
            (1.5, ValidationResult::Improved),
        ];
        for (sign, metric) in [(1.0, "loss"), (-1.0, "accuracy")] {
            let new = || {
                EarlyStopping::new(EarlyStoppingOptions { metric: metric.to_owned(), ..options.clone() })
                    .unwrap()
            };
            let mut patience = new();
            for (number, want) in rows {
                let tables = save(&[&patience]);
                let mut other = new();
                restore(&mut other, &tables).unwrap();
                assert_eq!(patience.update(sign * number), want, "{number}");
                assert_eq!(other.update(sign * number), want, "{number}, restored");
            }
            assert_eq!(patience.best(), Some(sign * 1.5));
            assert!(patience.is_better(sign * 1.4, sign * 1.5) && !patience.is_better(f64::NAN, sign));
        }
        let error =
            EarlyStopping::new(EarlyStoppingOptions { metric: "acuracy".to_owned(), ..options }).unwrap_err();
        assert!(error.message().contains("did you mean `accuracy`"), "{error}");
    }
}
