//! Optimizers.
//!
//! An optimizer is a file with a type that implements `UpdateRule`, and a line in `OPTIMIZERS`. A method defines the
//! state tables of a tensor and how one step changes tensor and tables; everything else is common and implemented
//! here: which tensors are trained, parameter groups, counting steps, saving and restoring. A step gives the same
//! bits for any number of threads.

mod adafactor;
mod adam;
mod adamw;
mod adamw_8bit;
mod dynamic_codebook;
mod group;
mod lion;
mod moments;
mod muon;
mod sgd;
#[cfg(test)]
mod tests;

pub use adafactor::AdafactorOptions;
pub use adam::AdamOptions;
pub use adamw::AdamWOptions;
pub use adamw_8bit::AdamW8bitOptions;
pub use group::{Group, GroupFactors};
pub use lion::LionOptions;
pub(crate) use moments::AdamSettings;
pub(crate) use muon::NEWTON_SCHULZ;
pub use muon::{AdjustLearningRate, MuonOptions};
pub use sgd::SgdOptions;

/// Returns the codebook of `adamw_8bit`, and the midpoints, each padded to 256 elements: signed or unsigned.
pub(crate) fn dynamic_codebook(signed: bool) -> Vec<f32> {
    dynamic_codebook::DynamicCodebook::new(signed).table()
}

use serde::{Deserialize, Serialize};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::WeightRole;

use crate::parameters::{Gradients, Parameter, Parameters};
use crate::settings::{Settings, unknown};
use crate::state::{Checkpointed, TableData, TableView, Tables, bytes_of, fill, words};

type Build = fn(&Settings) -> Result<Box<dyn UpdateRule>>;

/// Every optimizer: name, and constructor from settings.
const OPTIMIZERS: &[(&str, Build)] = &[
    ("adamw", adamw::build),
    ("adam", adam::build),
    ("sgd", sgd::build),
    ("lion", lion::build),
    ("adafactor", adafactor::build),
    ("muon", muon::build),
    ("adamw_8bit", adamw_8bit::build),
];

/// Returns the names of all optimizers.
pub fn names() -> impl Iterator<Item = &'static str> {
    OPTIMIZERS.iter().map(|(name, _)| *name)
}

/// Elements of a tensor that one task changes.
const CHUNK: usize = 1 << 14;

/// The tensor that state tables are created for.
pub(crate) struct TensorShape<'a> {
    name: &'a str,
    rows: usize,
    columns: usize,
    role: WeightRole,
}

impl<'a> TensorShape<'a> {
    fn of(parameter: &'a Parameter<f32>) -> Self {
        Self { name: &parameter.name, rows: parameter.rows, columns: parameter.columns, role: parameter.role }
    }

    fn count(&self) -> usize {
        self.rows * self.columns
    }
}

/// A tensor in a step.
pub(crate) struct StepTensor<'a> {
    numbers: &'a mut [f32],
    gradient: &'a [f32],
    shape: TensorShape<'a>,
    /// The learning rate of this tensor.
    learning_rate: f64,
    /// The factor on its weight decay.
    weight_decay_factor: f64,
    /// The factor on its gradient.
    grad_factor: f32,
    /// The number of this step; the first is 1.
    step: u64,
}

/// An update rule.
pub(crate) trait UpdateRule: Send + Sync {
    /// Returns the initial state tables of a tensor, with unique names.
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)>;

    /// Updates a tensor and its tables.
    fn step(&self, tensor: StepTensor<'_>, state: &mut [TableData]);
}

/// The optimizer and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimizerOptions {
    /// Its name.
    pub name: String,
    /// Parameter groups; if several match a tensor, the last one counts.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Its own settings. The defaults are those of PyTorch.
    #[serde(flatten)]
    pub settings: Settings,
}

impl OptimizerOptions {
    /// Returns an optimizer with its default settings.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// The arguments of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepArguments {
    /// The learning rate.
    pub learning_rate: f64,
    /// The factor on gradients: [`Norm::factor`](crate::clip::GradientNorm::factor).
    pub grad_factor: f64,
}

struct OptimizedTensor {
    name: String,
    factors: GroupFactors,
    count: usize,
    slots: Vec<&'static str>,
    state: Vec<TableData>,
}

/// An optimizer and its state.
pub struct Optimizer {
    name: &'static str,
    rule: Box<dyn UpdateRule>,
    count: u64,
    steps: TableData,
    list: Vec<Option<OptimizedTensor>>,
}

impl Optimizer {
    /// Creates an optimizer for the tensors that have gradients.
    ///
    /// # Errors
    /// If the optimizer, a setting or a tensor is unknown, or a setting is out of range.
    pub fn new(
        options: &OptimizerOptions,
        parameters: &Parameters<f32>,
        gradients: &Gradients<f32>,
    ) -> Result<Self> {
        let Some((name, build)) = OPTIMIZERS.iter().find(|(name, _)| *name == options.name) else {
            let known: Vec<_> = names().collect();
            return Err(unknown("optimizer.name", "optimizer", &options.name, &known));
        };
        let method = build(&options.settings).map_err(|error| error.within("optimizer"))?;
        let trained = |index: usize| gradients.has(index);
        group::check(&options.groups, parameters, trained)?;
        let of = |(index, parameter): (usize, &Parameter<f32>)| {
            trained(index).then(|| {
                let (slots, state) = method.slots(&TensorShape::of(parameter)).into_iter().unzip();
                let factors = group::factors(&options.groups, parameter);
                OptimizedTensor {
                    name: parameter.name.clone(),
                    factors,
                    count: parameter.numbers.len(),
                    slots,
                    state,
                }
            })
        };
        let list = parameters.list.iter().enumerate().map(of).collect();
        Ok(Self { name, rule: method, count: 0, steps: TableData::Bytes(bytes_of([0])), list })
    }

    /// Updates parameters. Gradients are read once if the method allows, and do not change.
    ///
    /// # Errors
    /// If the tensors are not those that it was created for; nothing is changed then.
    pub fn step(
        &mut self,
        parameters: &mut Parameters<f32>,
        gradients: &Gradients<f32>,
        step: StepArguments,
    ) -> Result<()> {
        self.check(parameters, gradients)?;
        self.count += 1;
        self.steps = TableData::Bytes(bytes_of([self.count]));
        let pairs = parameters.list.iter_mut().zip(&gradients.list);
        for (trained, (parameter, gradient)) in self.list.iter_mut().zip(pairs) {
            let (Some(trained), Some(gradient)) = (trained, gradient) else { continue };
            let Parameter { name, rows, columns, role, numbers, .. } = parameter;
            let tensor = StepTensor {
                numbers,
                gradient,
                shape: TensorShape { name, rows: *rows, columns: *columns, role: *role },
                learning_rate: step.learning_rate * trained.factors.lr,
                weight_decay_factor: trained.factors.weight_decay,
                grad_factor: step.grad_factor as f32,
                step: self.count,
            };
            self.rule.step(tensor, &mut trained.state);
        }
        Ok(())
    }

    fn check(&self, parameters: &Parameters<f32>, gradients: &Gradients<f32>) -> Result<()> {
        let counts = [parameters.list.len(), gradients.list.len()];
        if counts != [self.list.len(); 2] {
            let message = format!("created for {} tensors, not for {counts:?}", self.list.len());
            return Err(Error::new(ErrorKind::Shape, "optimizer", message));
        }
        let pairs = parameters.list.iter().zip(&gradients.list);
        for (trained, (parameter, gradient)) in self.list.iter().zip(pairs) {
            let Some(trained) = trained else { continue };
            let counts = [parameter.numbers.len(), gradient.as_ref().map_or(0, Vec::len)];
            if counts != [trained.count; 2] {
                let message = format!(
                    "{} elements in the optimizer, {} now, and {} in its gradient",
                    trained.count, counts[0], counts[1]
                );
                return Err(Error::new(ErrorKind::Shape, format!("tensor {}", trained.name), message));
            }
        }
        Ok(())
    }

    /// Returns the number of steps so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the group factors of a tensor; `None` if it is not trained.
    pub fn factors(&self, weight: usize) -> Option<GroupFactors> {
        Some(self.list.get(weight)?.as_ref()?.factors)
    }

    /// Returns the bytes of its state.
    pub fn bytes(&self) -> usize {
        self.list.iter().flatten().flat_map(|trained| &trained.state).map(|data| data.view().bytes()).sum()
    }

    /// Returns the name of the table that holds the step count.
    pub(crate) fn step_table(&self) -> String {
        format!("optimizer.{}", self.name)
    }

    /// Returns the state tables of a tensor, with their names in a checkpoint.
    pub(crate) fn tables_of(&self, weight: usize) -> impl Iterator<Item = (String, TableView<'_>)> {
        let trained = self.list.get(weight).and_then(Option::as_ref);
        trained.into_iter().flat_map(move |trained| trained.tables(self.name))
    }
}

impl OptimizedTensor {
    fn table(&self, optimizer: &str, slot: &str) -> String {
        format!("optimizer.{optimizer}.{slot}.{}", self.name)
    }

    fn tables(&self, optimizer: &str) -> impl Iterator<Item = (String, TableView<'_>)> {
        let pairs = self.slots.iter().zip(&self.state);
        pairs.map(move |(slot, data)| (self.table(optimizer, slot), data.view()))
    }
}

impl Checkpointed for Optimizer {
    fn prefix(&self) -> &'static str {
        "optimizer."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        let mut tables = vec![(self.step_table(), self.steps.view())];
        tables.extend(self.list.iter().flatten().flat_map(|trained| trained.tables(self.name)));
        tables
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        [self.count] = words(tables, &self.step_table())?;
        self.steps = TableData::Bytes(bytes_of([self.count]));
        for trained in self.list.iter_mut().flatten() {
            for index in 0..trained.slots.len() {
                let name = trained.table(self.name, trained.slots[index]);
                fill(&mut trained.state[index], tables, &name);
            }
        }
        Ok(())
    }
}

/// A zero for each element of a tensor.
fn zeros(count: usize) -> TableData {
    TableData::Numbers(vec![0.0; count])
}

/// Interpolates linearly between two numbers.
pub(crate) fn lerp(from: f32, to: f32, t: f32) -> f32 {
    match t < 0.5 {
        true => from + t * (to - from),
        false => to - (to - from) * (1.0 - t),
    }
}
