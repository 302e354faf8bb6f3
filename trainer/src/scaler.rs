//! Dynamic loss scaling (mixed precision, arXiv:1710.03740), so that small gradients do not underflow in fp16.

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use crate::settings::{Settings, read, within};
use crate::state::{Checkpointed, TableData, TableView, Tables, bytes_of, words};

/// Settings of loss scaling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScalerOptions {
    /// The initial scale.
    pub initial: f64,
    /// The factor on the scale after `interval` successful steps.
    pub growth: f64,
    /// The factor on the scale after a step with non-finite gradients.
    pub backoff: f64,
    /// The number of consecutive successful steps before the scale grows.
    pub interval: u64,
    /// The scale below which a run ends: gradients that are not finite at any scale are a defect of the run.
    pub least: f64,
}

impl Default for ScalerOptions {
    fn default() -> Self {
        Self { initial: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, least: 1e-4 }
    }
}

/// The loss scale.
#[derive(Clone, Debug)]
pub struct Scaler {
    options: ScalerOptions,
    scale: f64,
    good: u64,
    kept: TableData,
}

impl Scaler {
    /// Creates a scaler from settings by name.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        Self::new(read("scaler", settings)?)
    }

    /// Creates a scaler with the initial scale.
    pub fn new(options: ScalerOptions) -> Result<Self> {
        within("scaler.initial", options.initial, f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX))?;
        within("scaler.growth", options.growth, 1.0..=1e6)?;
        within("scaler.backoff", options.backoff, 1e-6..=1.0)?;
        within("scaler.least", options.least, 0.0..=options.initial)?;
        if options.interval == 0 {
            return Err(Error::argument("scaler.interval", "is 0; give at least 1"));
        }
        let mut scaler =
            Self { scale: options.initial, good: 0, options, kept: TableData::Bytes(Vec::new()) };
        scaler.keep();
        Ok(scaler)
    }

    /// Returns the loss scale of this step.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns true if the scale is below its minimum.
    pub fn is_spent(&self) -> bool {
        self.scale < self.options.least
    }

    /// Updates the scale for a step with finite or non-finite gradients, and returns whether the step is applied.
    pub fn update(&mut self, finite: bool) -> bool {
        if finite {
            self.good += 1;
        } else {
            (self.scale, self.good) = (self.scale * self.options.backoff, 0);
        }
        if self.good >= self.options.interval {
            let grown = self.scale * self.options.growth;
            if grown <= f64::from(f32::MAX) {
                self.scale = grown;
            }
            self.good = 0;
        }
        self.keep();
        finite
    }

    fn keep(&mut self) {
        self.kept = TableData::Bytes(bytes_of([self.scale.to_bits(), self.good]));
    }
}

const TABLE: &str = "scaler.state";

impl Checkpointed for Scaler {
    fn prefix(&self) -> &'static str {
        "scaler."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        vec![(TABLE.to_owned(), self.kept.view())]
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        let [scale, good] = words(tables, TABLE)?;
        let scale = f64::from_bits(scale);
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::corrupt(format!("table {TABLE}"), format!("the factor is {scale}")));
        }
        (self.scale, self.good) = (scale, good);
        self.keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{restore, save};

    #[test]
    fn it_grows_after_good_steps_and_shrinks_after_bad_ones() {
        let options = ScalerOptions { initial: 8.0, interval: 3, ..ScalerOptions::default() };
        let mut scaler = Scaler::new(options.clone()).unwrap();
        let rows = [
            (true, 8.0),
            (true, 8.0),
            (false, 4.0),
            (true, 4.0),
            (true, 4.0),
            (true, 8.0),
            (true, 8.0),
            (true, 8.0),
            (false, 4.0),
        ];
        for (finite, want) in rows {
            let mut other = Scaler::new(options.clone()).unwrap();
            restore(&mut other, &save(&[&scaler])).unwrap();
            assert_eq!(scaler.update(finite), finite, "a step is done where it is finite");
            other.update(finite);
            assert_eq!([scaler.scale(), other.scale()], [want, want]);
        }
        let spent = |scaler: &Scaler| (0..).find(|bad| scaler.scale() * 0.5_f64.powi(*bad) < 1e-4).unwrap();
        let mut other = scaler.clone();
        for left in (0..spent(&scaler)).rev() {
            assert!(!other.is_spent());
            other.update(false);
            assert_eq!(other.is_spent(), left == 0);
        }
        let mut tables = save(&[&scaler]);
        tables.insert(TABLE.to_owned(), TableData::Bytes(bytes_of([f64::NAN.to_bits(), 0])));
        assert_eq!(restore(&mut scaler, &tables).unwrap_err().place(), "table scaler.state");
        assert_eq!(scaler.scale(), 4.0, "the state stays as it was");
    }
}
