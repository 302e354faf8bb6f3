//! When to stop because nothing gets better.

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use crate::settings::{Settings, read, unknown, within};
use crate::state::{Data, State, Tables, View, bytes_of, words};

/// The numbers of a look that can be watched.
const METRICS: &[&str] = &["loss", "right"];

/// How long to wait, and for how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PatienceOptions {
    /// The number that is watched: `loss`, which should fall, or `right`, the share of targets that was likeliest, which
    /// should rise.
    pub metric: String,
    /// By how much more than the best a number has to be better to count.
    pub improvement: f64,
    /// Looks one after the other without a better number that end the training.
    pub looks: u64,
}

impl Default for PatienceOptions {
    fn default() -> Self {
        Self { metric: "loss".to_owned(), improvement: 0.0, looks: 3 }
    }
}

/// What a look showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The best so far.
    Better,
    /// Not better: how many times one after the other.
    Waits(u64),
    /// Not better for too long: stop.
    Stop,
}

/// The best number, and how long it has stood.
#[derive(Clone, Debug)]
pub struct Patience {
    options: PatienceOptions,
    best: f64,
    waited: u64,
    kept: Data,
}

impl Patience {
    /// With settings by name.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        Self::new(read("patience", settings)?)
    }

    /// Nothing seen yet.
    pub fn new(options: PatienceOptions) -> Result<Self> {
        if !METRICS.contains(&options.metric.as_str()) {
            return Err(unknown("patience.metric", "number of a look", &options.metric, METRICS));
        }
        within("patience.improvement", options.improvement, 0.0..=f64::MAX)?;
        if options.looks == 0 {
            return Err(Error::argument("patience.looks", "is 0; give at least 1"));
        }
        let mut patience = Self { options, best: f64::NAN, waited: 0, kept: Data::Bytes(Vec::new()) };
        patience.keep();
        Ok(patience)
    }

    /// The name of the number that is watched.
    pub fn metric(&self) -> &str {
        &self.options.metric
    }

    /// How much better the first number is than the other.
    fn gain(&self, number: f64, other: f64) -> f64 {
        if self.options.metric == "right" { number - other } else { other - number }
    }

    /// Of a look's loss and share of right targets, the one that is watched.
    pub fn watched(&self, loss: f64, right: f64) -> f64 {
        if self.options.metric == "right" { right } else { loss }
    }

    /// Whether a number is better than another, by however little.
    pub fn prefers(&self, number: f64, other: f64) -> bool {
        self.gain(number, other) > 0.0
    }

    /// The best number, where there was one.
    pub fn best(&self) -> Option<f64> {
        (!self.best.is_nan()).then_some(self.best)
    }

    /// Shows the next number. One that is not a number is never better.
    pub fn look(&mut self, number: f64) -> Look {
        let better =
            self.gain(number, self.best) > self.options.improvement || self.best.is_nan() && !number.is_nan();
        if better {
            (self.best, self.waited) = (number, 0);
        } else {
            self.waited += 1;
        }
        self.keep();
        match self.waited {
            0 => Look::Better,
            waited if waited >= self.options.looks => Look::Stop,
            waited => Look::Waits(waited),
        }
    }

    fn keep(&mut self) {
        self.kept = Data::Bytes(bytes_of([self.best.to_bits(), self.waited]));
    }
}

const TABLE: &str = "patience.state";

impl State for Patience {
    fn prefix(&self) -> &'static str {
        "patience."
    }

    fn tables(&self) -> Vec<(String, View<'_>)> {
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
        let options = PatienceOptions { improvement: 0.1, looks: 2, ..PatienceOptions::default() };
        let rows = [
            (f64::NAN, Look::Waits(1)),
            (2.0, Look::Better),
            (1.95, Look::Waits(1)),
            (1.89, Look::Better),
            (f64::NAN, Look::Waits(1)),
            (1.80, Look::Stop),
            (1.5, Look::Better),
        ];
        for (sign, metric) in [(1.0, "loss"), (-1.0, "right")] {
            let new =
                || Patience::new(PatienceOptions { metric: metric.to_owned(), ..options.clone() }).unwrap();
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
        let error = Patience::new(PatienceOptions { metric: "rigth".to_owned(), ..options }).unwrap_err();
        assert!(error.message().contains("did you mean `right`"), "{error}");
    }
}
