//! Dynamic loss scaling (mixed precision, arXiv:1710.03740), so that small gradients do not underflow in fp16.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use crate::settings::{Settings, read, within};
use crate::state::{Checkpointed, TableData, TableView, Tables, bytes_of, words};

/// Settings of loss scaling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GradScalerOptions {
    /// The initial scale.
    pub init_scale: f64,
    /// The factor on the scale after `interval` successful steps.
    pub growth_factor: f64,
    /// The factor on the scale after a step with non-finite gradients.
    pub backoff_factor: f64,
    /// The number of consecutive successful steps before the scale grows.
    pub growth_interval: u64,
    /// The scale below which a run ends: gradients that are not finite at any scale are a defect of the run.
    pub min_scale: f64,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        Self {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            min_scale: 1e-4,
        }
    }
}

/// The loss scale.
#[derive(Clone, Debug)]
pub struct GradScaler {
    options: GradScalerOptions,
    scale: f64,
    good_steps: u64,
    kept: TableData,
}

impl GradScaler {
    /// Creates a scaler from settings by name.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        Self::new(read("grad_scaler", settings)?)
    }

    /// Creates a scaler with the initial scale.
    pub fn new(options: GradScalerOptions) -> Result<Self> {
        within(
            "grad_scaler.init_scale",
            options.init_scale,
            f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX),
        )?;
        within("grad_scaler.growth_factor", options.growth_factor, 1.0..=1e6)?;
        within("grad_scaler.backoff_factor", options.backoff_factor, 1e-6..=1.0)?;
        within("grad_scaler.min_scale", options.min_scale, 0.0..=options.init_scale)?;
        if options.growth_interval == 0 {
            return Err(Error::argument("grad_scaler.growth_interval", "expected at least 1, got 0"));
        }
        let mut scaler =
            Self { scale: options.init_scale, good_steps: 0, options, kept: TableData::Bytes(Vec::new()) };
        scaler.keep();
        Ok(scaler)
    }

    /// Returns the loss scale of this step.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns true if the scale is below its minimum.
    pub fn is_below_minimum(&self) -> bool {
        self.scale < self.options.min_scale
    }

    /// Updates the scale for a step with finite or non-finite gradients, and returns whether the step is applied.
    pub fn update(&mut self, finite: bool) -> bool {
        if finite {
            self.good_steps += 1;
        } else {
            (self.scale, self.good_steps) = (self.scale * self.options.backoff_factor, 0);
        }
        if self.good_steps >= self.options.growth_interval {
            let grown = self.scale * self.options.growth_factor;
            if grown <= f64::from(f32::MAX) {
                self.scale = grown;
            }
            self.good_steps = 0;
        }
        self.keep();
        finite
    }

    fn keep(&mut self) {
        self.kept = TableData::Bytes(bytes_of([self.scale.to_bits(), self.good_steps]));
    }
}

const TABLE: &str = "grad_scaler.state";

impl Checkpointed for GradScaler {
    fn prefix(&self) -> &'static str {
        "grad_scaler."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        vec![(TABLE.to_owned(), self.kept.view())]
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        let [scale, steps] = words(tables, TABLE)?;
        let scale = f64::from_bits(scale);
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::corrupt(format!("table {TABLE}"), format!("the loss scale is {scale}")));
        }
        (self.scale, self.good_steps) = (scale, steps);
        self.keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{restore, save};

    #[test]
    fn the_scale_grows_after_finite_steps_and_backs_off_after_overflows() {
        let options =
            GradScalerOptions { init_scale: 8.0, growth_interval: 3, ..GradScalerOptions::default() };
        let mut scaler = GradScaler::new(options.clone()).unwrap();
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
            let mut other = GradScaler::new(options.clone()).unwrap();
            restore(&mut other, &save(&[&scaler])).unwrap();
            assert_eq!(scaler.update(finite), finite, "a step is done where it is finite");
            other.update(finite);
            assert_eq!([scaler.scale(), other.scale()], [want, want]);
        }
        let spent =
            |scaler: &GradScaler| (0..).find(|bad| scaler.scale() * 0.5_f64.powi(*bad) < 1e-4).unwrap();
        let mut other = scaler.clone();
        for left in (0..spent(&scaler)).rev() {
            assert!(!other.is_below_minimum());
            other.update(false);
            assert_eq!(other.is_below_minimum(), left == 0);
        }
        let mut tables = save(&[&scaler]);
        tables.insert(TABLE.to_owned(), TableData::Bytes(bytes_of([f64::NAN.to_bits(), 0])));
        assert_eq!(restore(&mut scaler, &tables).unwrap_err().location(), "table grad_scaler.state");
        assert_eq!(scaler.scale(), 4.0, "the state stays as it was");
    }
}
