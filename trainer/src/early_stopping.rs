//! Early stopping.

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use crate::settings::{Settings, read, unknown, within};
use crate::state::{Checkpointed, TableData, TableView, Tables, bytes_of, words};

/// The metrics that can be monitored.
const METRICS: &[&str] = &["loss", "right"];

/// The metric, and the patience.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStoppingOptions {
    /// The monitored metric: `loss`, to be minimized, or `right`, the accuracy, to be maximized.
    pub metric: String,
    /// The minimum improvement over the best value that counts.
    pub improvement: f64,
    /// The number of consecutive validations without improvement after which training stops.
    pub looks: u64,
}

impl Default for EarlyStoppingOptions {
    fn default() -> Self {
        Self { metric: "loss".to_owned(), improvement: 0.0, looks: 3 }
    }
}

/// The result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationResult {
    /// The best so far.
    Better,
    /// No improvement, for this many consecutive validations.
    Waits(u64),
    /// No improvement for too long: stop.
    Stop,
}

/// The best value, and the number of validations since.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    options: EarlyStoppingOptions,
    best: f64,
    waited: u64,
    kept: TableData,
}

impl EarlyStopping {
    /// Creates the state from settings by name.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        Self::new(read("patience", settings)?)
    }

    /// Creates the state before the first validation.
    pub fn new(options: EarlyStoppingOptions) -> Result<Self> {
        if !METRICS.contains(&options.metric.as_str()) {
            return Err(unknown("patience.metric", "number of a look", &options.metric, METRICS));
        }
        within("patience.improvement", options.improvement, 0.0..=f64::MAX)?;
        if options.looks == 0 {
            return Err(Error::argument("patience.looks", "is 0; give at least 1"));
        }
        let mut patience = Self { options, best: f64::NAN, waited: 0, kept: TableData::Bytes(Vec::new()) };
        patience.keep();
        Ok(patience)
    }

    /// Returns the name of the monitored metric.
    pub fn metric(&self) -> &str {
        &self.options.metric
    }

    /// Returns how much better the first value is than the other.
    fn gain(&self, number: f64, other: f64) -> f64 {
        if self.options.metric == "right" { number - other } else { other - number }
    }

    /// Returns the monitored one of a validation's loss and accuracy.
    pub fn watched(&self, loss: f64, right: f64) -> f64 {
        if self.options.metric == "right" { right } else { loss }
    }

    /// Returns true if a value is better than another, by any amount.
    pub fn prefers(&self, number: f64, other: f64) -> bool {
        self.gain(number, other) > 0.0
    }

    /// Returns the best value, if any.
    pub fn best(&self) -> Option<f64> {
        (!self.best.is_nan()).then_some(self.best)
    }

    /// Adds the value of the next validation. NaN is never better.
    pub fn look(&mut self, number: f64) -> ValidationResult {
        let better =
            self.gain(number, self.best) > self.options.improvement || self.best.is_nan() && !number.is_nan();
        if better {
            (self.best, self.waited) = (number, 0);
        } else {
            self.waited += 1;
        }
        self.keep();
        match self.waited {
            0 => ValidationResult::Better,
            waited if waited >= self.options.looks => ValidationResult::Stop,
            waited => ValidationResult::Waits(waited),
        }
    }

    fn keep(&mut self) {
        self.kept = TableData::Bytes(bytes_of([self.best.to_bits(), self.waited]));
    }
}

const TABLE: &str = "patience.state";

impl Checkpointed for EarlyStopping {
    fn prefix(&self) -> &'static str {
        "patience."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        vec![(TABLE.to_owned(), self.kept.view())]
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        let [best, waited] = words(tables, TABLE)?;
        (self.best, self.waited) = (f64::from_bits(best), waited);
        self.keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{restore, save};

    #[test]
    fn it_ends_when_nothing_gets_better_by_enough() {
        let options = EarlyStoppingOptions { improvement: 0.1, looks: 2, ..EarlyStoppingOptions::default() };
        let rows = [
            (f64::NAN, ValidationResult::Waits(1)),
            (2.0, ValidationResult::Better),
            (1.95, ValidationResult::Waits(1)),
            (1.89, ValidationResult::Better),
            (f64::NAN, ValidationResult::Waits(1)),
            (1.80, ValidationResult::Stop),
            (1.5, ValidationResult::Better),
        ];
        for (sign, metric) in [(1.0, "loss"), (-1.0, "right")] {
            let new = || {
                EarlyStopping::new(EarlyStoppingOptions { metric: metric.to_owned(), ..options.clone() })
                    .unwrap()
            };
            let mut patience = new();
            for (number, want) in rows {
                let tables = save(&[&patience]);
                let mut other = new();
                restore(&mut other, &tables).unwrap();
                assert_eq!(patience.look(sign * number), want, "{number}");
                assert_eq!(other.look(sign * number), want, "{number}, restored");
            }
            assert_eq!(patience.best(), Some(sign * 1.5));
            assert!(patience.prefers(sign * 1.4, sign * 1.5) && !patience.prefers(f64::NAN, sign));
        }
        let error =
            EarlyStopping::new(EarlyStoppingOptions { metric: "rigth".to_owned(), ..options }).unwrap_err();
        assert!(error.message().contains("did you mean `right`"), "{error}");
    }
}
