//! Weight averaging: an exponential moving average (EMA) of the parameters.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::{Error, ErrorKind, Result};

use crate::optimizer::lerp;
use crate::parameters::{Gradients, Parameters};
use crate::settings::{Settings, read, within};
use crate::state::{Checkpointed, TableData, TableView, Tables, bytes_of, fill, words};

const CHUNK: usize = 1 << 14;

/// Settings of the average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmaOptions {
    /// The factor on the old average in each step.
    pub decay: f64,
    /// Whether `decay` is warmed up: (1 + n) / (10 + n) after n steps, and `decay` at most.
    pub warmup: bool,
}

impl Default for EmaOptions {
    fn default() -> Self {
        Self { decay: 0.999, warmup: false }
    }
}

impl EmaOptions {
    /// Returns the weight of the new parameters after `count` steps.
    pub(crate) fn update_weight(&self, count: u64) -> f32 {
        let count = count as f64;
        let max_decay = if self.warmup { (1.0 + count) / (10.0 + count) } else { 1.0 };
        (1.0 - self.decay.min(max_decay)) as f32
    }
}

/// The moving average of the trained tensors.
#[derive(Clone, Debug)]
pub struct ExponentialMovingAverage {
    options: EmaOptions,
    steps: TableData,
    count: u64,
    list: Vec<Option<(String, TableData)>>,
}

impl ExponentialMovingAverage {
    /// Creates an average from settings by name.
    pub fn from_settings(
        settings: &Settings,
        parameters: &Parameters<f32>,
        gradients: &Gradients<f32>,
    ) -> Result<Self> {
        Self::new(read("ema", settings)?, parameters, gradients)
    }

    /// Creates an average, initialized with the parameters.
    pub fn new(
        options: EmaOptions,
        parameters: &Parameters<f32>,
        gradients: &Gradients<f32>,
    ) -> Result<Self> {
        within("ema.decay", options.decay, 0.0..=1.0)?;
        let copy = |(index, parameter): (usize, &crate::Parameter<f32>)| {
            let numbers = || TableData::Numbers(parameter.numbers.clone());
            gradients.has(index).then(|| (parameter.name.clone(), numbers()))
        };
        let list = parameters.list.iter().enumerate().map(copy).collect();
        Ok(Self { options, steps: TableData::Bytes(bytes_of([0])), count: 0, list })
    }

    /// Returns the settings.
    pub(crate) fn options(&self) -> &EmaOptions {
        &self.options
    }

    /// Returns the name of a tensor's table in a checkpoint; `None` if it is not trained.
    pub(crate) fn table_of(&self, weight: usize) -> Option<String> {
        let (name, _) = self.list.get(weight)?.as_ref()?;
        Some(format!("ema.{name}"))
    }

    /// Updates the average, after each successful step.
    pub fn update(&mut self, parameters: &Parameters<f32>) -> Result<()> {
        let share = self.options.update_weight(self.count);
        self.check(parameters)?;
        for (own, parameter) in self.list.iter_mut().zip(&parameters.list) {
            let Some((_, TableData::Numbers(own))) = own else { continue };
            own.par_chunks_mut(CHUNK).zip(parameter.numbers.par_chunks(CHUNK)).for_each(|(own, numbers)| {
                own.iter_mut().zip(numbers).for_each(|(own, number)| *own = lerp(*own, *number, share));
            });
        }
        self.count += 1;
        self.steps = TableData::Bytes(bytes_of([self.count]));
        Ok(())
    }

    /// Swaps the average and the parameters; a second call restores them.
    pub fn swap(&mut self, parameters: &mut Parameters<f32>) -> Result<()> {
        self.check(parameters)?;
        for (own, parameter) in self.list.iter_mut().zip(&mut parameters.list) {
            if let Some((_, TableData::Numbers(own))) = own {
                std::mem::swap(own, &mut parameter.numbers);
            }
        }
        Ok(())
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.tables().iter().map(|(_, view)| view.bytes()).sum()
    }

    /// Checks that the parameters are those that it was created for.
    fn check(&self, parameters: &Parameters<f32>) -> Result<()> {
        let own =
            self.list.iter().map(|own| own.as_ref().map(|(_, data)| data.view().bytes() / size_of::<f32>()));
        let mut pairs = own.zip(&parameters.list);
        match pairs.find(|(own, parameter)| own.is_some_and(|own| own != parameter.numbers.len())) {
            _ if self.list.len() != parameters.list.len() => {
                let message = format!(
                    "{} tensors have an average, {} were passed",
                    self.list.len(),
                    parameters.list.len()
                );
                Err(Error::new(ErrorKind::Shape, "ema", message))
            }
            Some((_, parameter)) => {
                let message = "differs in size from its average; start a new average";
                Err(Error::new(ErrorKind::Shape, format!("tensor {}", parameter.name), message))
            }
            None => Ok(()),
        }
    }
}

/// The name of the table that holds the step count.
pub(crate) const STEPS: &str = "ema.steps";

impl Checkpointed for ExponentialMovingAverage {
    fn prefix(&self) -> &'static str {
        "ema."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        let mut tables = vec![(STEPS.to_owned(), self.steps.view())];
        for (weight, own) in self.list.iter().enumerate() {
            if let (Some(name), Some((_, data))) = (self.table_of(weight), own) {
                tables.push((name, data.view()));
            }
        }
        tables
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        [self.count] = words(tables, STEPS)?;
        self.steps = TableData::Bytes(bytes_of([self.count]));
        for (name, data) in self.list.iter_mut().flatten() {
            fill(data, tables, &format!("ema.{name}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use siskin_graph::WeightRole;

    use super::*;
    use crate::parameters::Parameter;
    use crate::state::{restore, save};

    fn one(number: f32) -> Parameters<f32> {
        let parameter = |name: &str| Parameter {
            name: name.to_owned(),
            rows: 1,
            columns: 1,
            role: WeightRole::Vector,
            numbers: vec![number],
            forward: Default::default(),
        };
        Parameters { list: vec![parameter("moves"), parameter("stays")] }
    }

    #[test]
    fn warmup_starts_with_a_low_decay() {
        let gradients = Gradients::zeros(&one(0.0), |parameter| parameter.name == "moves");
        let options = EmaOptions { decay: 0.25, warmup: true };
        let mut average = ExponentialMovingAverage::new(options.clone(), &one(0.0), &gradients).unwrap();
        let mut left = 1.0;
        // The decay is a tenth, then two elevenths, then three twelfths, and at most a quarter.
        for share in [1.0 / 10.0, 2.0 / 11.0, 0.25, 0.25] {
            let mut other = ExponentialMovingAverage::new(options.clone(), &one(7.0), &gradients).unwrap();
            restore(&mut other, &save(&[&average])).unwrap();
            left *= share;
            for average in [&mut average, &mut other] {
                average.update(&one(1.0)).unwrap();
                let mut parameters = one(1.0);
                average.swap(&mut parameters).unwrap();
                let got = f64::from(parameters.numbers(0)[0]);
                assert!((got - (1.0 - left)).abs() < 1e-6, "{got} is not {}", 1.0 - left);
                assert_eq!(parameters.numbers(1), [1.0], "what is not trained stays");
                average.swap(&mut parameters).unwrap();
                assert_eq!(parameters, one(1.0), "swapped twice, all is as before");
            }
        }
        let mut short = one(1.0);
        short.list.pop();
        assert_eq!(average.update(&short).unwrap_err().kind(), ErrorKind::Shape);
    }
}
