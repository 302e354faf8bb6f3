//! Checks of a run before it begins: problems that a few batches reveal.

use std::collections::BTreeMap;

use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::Op;

use super::device_trainer::DeviceTrainer;
use super::host_trainer::HostTrainer;
use super::{RunConfig, RunSetup};
use crate::adapters;
use crate::clip::{self, GradientNorm};
use crate::data::{LoadedBatch, Loader, LoaderOptions, Position, TaskSettings};
use crate::grad::rule;
use crate::loss::LossSum;
use crate::optimizer::{Optimizer, OptimizerOptions, StepArguments};
use crate::program::{Side, layer_of};
use crate::real::Real;
use crate::runner::{NodeEvent, Phase, Probe};

/// Rows of the checked batch, where examples are not longer.
const ROWS: usize = 256;
/// The batch with the most examples is chosen from this many.
const BATCHES: usize = 8;
/// Optimizer steps in the overfitting check.
const STEPS: usize = 40;
/// Learning rates that the overfitting check tries.
const RATES: [f64; 2] = [1e-3, 1e-2];
/// Rows of short sequences.
const LENGTHS: [usize; 3] = [1, 2, 7];

/// How thorough a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Two passes over a small batch.
    Brief,
    /// Also short sequences of several lengths, a full batch, and whether the model can overfit one batch. This takes
    /// the memory of the parameters and of an optimizer once more.
    Full,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As expected.
    Pass,
    /// Suspicious, but possibly intended.
    Warning,
    /// Training cannot succeed.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// What was measured.
    pub result: String,
    /// What the user can do; empty if the outcome is good.
    pub advice: String,
}

impl Check {
    fn new(name: &'static str, outcome: Outcome, result: impl Into<String>, advice: &str) -> Self {
        let advice = if outcome == Outcome::Pass { "" } else { advice };
        Self { name, outcome, result: result.into(), advice: advice.to_owned() }
    }

    fn fail(name: &'static str, error: &Error, advice: &str) -> Self {
        Self::new(name, Outcome::Fail, error.to_string(), advice)
    }

    /// Returns the error of the first check with a bad outcome.
    pub fn reject(checks: &[Self]) -> Result<()> {
        match checks.iter().find(|check| check.outcome == Outcome::Fail) {
            Some(Self { name, result, advice, .. }) => {
                Err(Error::new(ErrorKind::Numeric, format!("check: {name}"), format!("{result}; {advice}")))
            }
            None => Ok(()),
        }
    }
}

/// The advice for data and model errors, worded like the error of a run.
const CHECK_DATA: &str = "check [data] and [model]";

/// The parts of a run that are checked.
pub(super) struct RunChecker<'a> {
    pub(super) config: &'a RunConfig,
    pub(super) setup: &'a RunSetup,
    pub(super) host: &'a mut HostTrainer,
    pub(super) device: Option<&'a mut DeviceTrainer>,
    /// Steps so far.
    pub(super) step: u64,
}

impl RunChecker<'_> {
    /// Checks whether the run can be expected to learn. The state of the run does not change.
    pub(super) fn check(&mut self, depth: Depth) -> Result<Vec<Check>> {
        if let Some(too_long) = self.check_max_length() {
            return Ok(vec![too_long]);
        }
        let step = self.example(self.loader_of(ROWS, 0))?;
        let mut sums = AttentionSums::default();
        let first = match self.host.pass(&step, Some(&mut sums)) {
            Ok(sum) => sum,
            Err(error) => return Ok(vec![Check::fail("one batch", &error, CHECK_DATA)]),
        };
        let bits = self.bits(&first);
        let mut missing = self.without_gradient();
        let mut checks = vec![self.initial_loss(&first), sums.check()];
        checks.extend(self.device_check(&step, &first));
        let norms = self.norms();
        checks.push(match self.host.pass(&step, None) {
            Ok(sum) if self.bits(&sum) == bits => {
                Check::new("determinism", Outcome::Pass, "two passes over a batch give the same bits", "")
            }
            Ok(_) => {
                let advice = "training is not deterministic; report this as a bug, with the config";
                Check::new(
                    "determinism",
                    Outcome::Fail,
                    "two passes over a batch give different bits",
                    advice,
                )
            }
            Err(error) => Check::fail("determinism", &error, CHECK_DATA),
        });
        if depth == Depth::Full {
            let (learns, still_missing) = self.overfits(&step, &first)?;
            missing.retain(|name| still_missing.contains(name));
            checks.extend([learns, self.short_sequences(), self.largest_batch_check()]);
        } else {
            // The second matrix of an adapter is initialized to zero, so the first has no gradient yet.
            missing.retain(|name| !adapters::is_trained(name));
        }
        checks.insert(1, self.gradient_check(norms, &missing, depth));
        checks.extend(self.check_dropout());
        self.host.gradients.clear();
        Ok(checks)
    }

    /// Fails if sequences may be longer than the position tables of the model.
    fn check_max_length(&self) -> Option<Check> {
        let (program, settings) = (self.host.runner.program(), &self.setup.settings);
        let of_decoder = match program.has(Side::Encoder) {
            true => ("data.settings.max_target_length", settings.max_target_length()),
            false => ("data.settings.max_length", settings.max_length),
        };
        let lengths =
            [(Side::Encoder, ("data.settings.max_length", settings.max_length)), (Side::Decoder, of_decoder)];
        let too_long = |(side, (name, length)): (Side, (&str, usize))| {
            let positions = program.max_positions(side).filter(|positions| length > *positions)?;
            let result = format!("{name} is {length}, but the model has {positions} positions");
            let advice = format!("set {name} to {positions} or less, or remove it");
            Some(Check::new("maximum length", Outcome::Fail, result, &advice))
        };
        lengths.into_iter().find_map(too_long)
    }

    /// Warns of dropout in the config of the model that the run started from.
    fn check_dropout(&self) -> Option<Check> {
        let ignored = self.setup.ignored_dropout();
        let result = format!("the model's config sets {}, which training does not apply", ignored.join(", "));
        let advice = "regularize with weight decay and early stopping";
        (!ignored.is_empty()).then(|| Check::new("dropout", Outcome::Warning, result, advice))
    }

    /// Loader options for small batches.
    fn loader_of(&self, rows: usize, examples: usize) -> LoaderOptions {
        let options = self.setup.loader(self.config, true);
        LoaderOptions { max_tokens: rows.min(options.max_tokens), max_examples: examples, ..options }
    }

    fn example(&self, options: LoaderOptions) -> Result<LoadedBatch> {
        let loader = self.setup.training_batches(options, Position::default())?;
        let batches = loader.take(BATCHES).collect::<Result<Vec<_>>>()?;
        let largest = batches.into_iter().max_by_key(|step| step.examples.len());
        largest.ok_or_else(|| Error::argument("data", "there are no batches"))
    }

    /// Compares a device with the CPU, which has just processed the same batch.
    fn device_check(&mut self, step: &LoadedBatch, cpu: &LossSum) -> Option<Check> {
        let device = self.device.as_mut()?;
        let (name, advice) =
            ("device", "the device computes a different result; report this as a bug, with the config");
        let mut device_gradients = self.host.gradients.clone();
        let factor = 1.0 / cpu.weight.max(f64::MIN_POSITIVE);
        let sum = match device.pass(step, factor, &mut device_gradients) {
            Ok(sum) => sum,
            Err(error) => return Some(Check::fail(name, &error, CHECK_DATA)),
        };
        let (mut gradient_error, mut length) = (0.0, 0.0);
        let lists = self.host.gradients.list.iter().flatten().zip(device_gradients.list.iter().flatten());
        for (cpu, device) in lists.flat_map(|(cpu, device)| cpu.iter().zip(device)) {
            let (cpu, device) = (f64::from(*cpu), f64::from(*device));
            gradient_error += (cpu - device) * (cpu - device);
            length += cpu * cpu;
        }
        let gradient_error = (gradient_error / length.max(f64::MIN_POSITIVE)).sqrt();
        let losses = (sum.mean() - cpu.mean()).abs() / cpu.mean().abs().max(f64::MIN_POSITIVE);
        let result =
            format!("relative difference to the CPU: loss {losses:.1e}, gradient {gradient_error:.1e}");
        let exact = self.config.precision == "f32";
        let outcome = match (losses, gradient_error) {
            (losses, gradient_error)
                if losses <= 1e-3 && gradient_error <= if exact { 1e-2 } else { 0.2 } =>
            {
                Outcome::Pass
            }
            (losses, gradient_error) if losses <= 0.1 && gradient_error <= 0.7 && !exact => Outcome::Warning,
            _ => Outcome::Fail,
        };
        Some(Check::new(name, outcome, result, advice))
    }

    /// Returns a hash of the bits of a loss and of all gradients.
    fn bits(&self, sum: &LossSum) -> u64 {
        let mix = |state: u64, word: u64| {
            (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_add(word)
        };
        let numbers = self.host.gradients.list.iter().flatten().flatten();
        numbers.fold(sum.loss.to_bits(), |state, number| mix(state, u64::from(number.to_bits())))
    }

    /// Returns the names of trained tensors whose gradient is zero everywhere.
    fn without_gradient(&self) -> Vec<String> {
        let pairs = self.host.parameters.list.iter().zip(&self.host.gradients.list);
        let zero = |gradient: &Vec<f32>| gradient.iter().all(|number| *number == 0.0);
        pairs
            .filter(|(_, gradient)| gradient.as_ref().is_some_and(zero))
            .map(|(parameter, _)| parameter.name.clone())
            .collect()
    }

    /// Checks that an untrained model assigns all tokens or classes about the same probability.
    fn initial_loss(&self, sum: &LossSum) -> Check {
        let name = "initial loss";
        let entropy = self.config.loss.get("name").and_then(|name| name.as_str()) == Some("cross_entropy");
        let columns =
            self.host.runner.program().graph.values[self.host.runner.program().graph.output].columns;
        let (loss, even) = (sum.mean(), (columns.max(1) as f64).ln());
        if !entropy || !self.setup.is_random() || self.step > 0 {
            return Check::new(name, Outcome::Pass, format!("{loss:.4}"), "");
        }
        let result = format!("{loss:.4}; expected about ln({columns}) = {even:.4}");
        let is_close = (loss - even).abs() <= (0.1 * even).max(0.3);
        let advice = "check the initialization and the targets";
        Check::new(name, if is_close { Outcome::Pass } else { Outcome::Warning }, result, advice)
    }

    /// Returns the gradient norm of each layer.
    fn norms(&self) -> BTreeMap<String, f64> {
        let mut squares: BTreeMap<String, f64> = BTreeMap::new();
        for (parameter, gradient) in self.host.parameters.list.iter().zip(&self.host.gradients.list) {
            if let Some(gradient) = gradient {
                let name = &parameter.name;
                let part = layer_of(name).unwrap_or_else(|| name.split('.').next().unwrap_or(name));
                *squares.entry(part.to_owned()).or_default() += clip::sum_of_squares(gradient);
            }
        }
        squares.into_iter().map(|(layer, square)| (layer, square.sqrt())).collect()
    }

    fn gradient_check(&self, norms: BTreeMap<String, f64>, missing: &[String], depth: Depth) -> Check {
        let name = "gradients";
        if let Some((layer, norm)) = norms.iter().find(|(_, norm)| !norm.is_finite()) {
            let advice = "check the initial weights; `siskin inspect` lists them";
            return Check::new(name, Outcome::Fail, format!("{norm} in {layer}"), advice);
        }
        let least = norms.iter().min_by(|one, other| one.1.total_cmp(other.1));
        let largest = norms.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let (Some(least), Some(largest)) = (least, largest) else {
            return Check::new(name, Outcome::Fail, "no tensor is trained", "check model.trainable");
        };
        let result =
            format!("norms from {:.2e} in {} to {:.2e} in {}", least.1, least.0, largest.1, largest.0);
        if missing.is_empty() {
            return Check::new(name, Outcome::Pass, result, "");
        }
        // Tensors that no node reads, and experts that no row of a small batch chose, may have no gradient by design.
        let excused = |name: &String| self.unused_or_expert(name);
        let fail = depth == Depth::Full && !missing.iter().all(excused);
        let largest: Vec<&str> = missing.iter().take(6).map(String::as_str).collect();
        let more = if missing.len() > largest.len() { ", …" } else { "" };
        let result =
            format!("zero for {} tensors: {}{more}; other {result}", missing.len(), largest.join(", "));
        let advice = "exclude them with model.trainable, or find out why the loss does not depend on them";
        Check::new(name, if fail { Outcome::Fail } else { Outcome::Warning }, result, advice)
    }

    fn unused_or_expert(&self, name: &str) -> bool {
        let program = self.host.runner.program();
        let weight = program.graph.weights.iter().position(|weight| weight.name == name);
        let reads = |op: &Op| op.weights().into_iter().any(|own| Some(own) == weight);
        program
            .graph
            .nodes
            .iter()
            .filter(|node| reads(&node.op))
            .all(|node| matches!(node.op, Op::ExpertLinear(_)))
    }

    /// Overfits a copy of the model on one batch; also returns the tensors that have no gradient even then.
    fn overfits(&mut self, step: &LoadedBatch, first: &LossSum) -> Result<(Check, Vec<String>)> {
        let kept = self.host.parameters.clone();
        let (mut best, mut missing) = (f64::INFINITY, self.without_gradient());
        let mut failed = None;
        for rate in RATES {
            self.host.parameters.clone_from(&kept);
            match self.learn(step, rate) {
                Ok(loss) => best = best.min(loss),
                Err(error) => failed = Some(error),
            }
            let still = self.without_gradient();
            missing.retain(|name| still.contains(name));
            if best < 0.5 * first.mean() {
                break;
            }
        }
        self.host.parameters = kept;
        let name = "overfits a batch";
        if let Some(error) = failed.filter(|_| best.is_infinite()) {
            return Ok((Check::fail(name, &error, "check the initial weights"), missing));
        }
        let result = format!("loss from {:.4} to {best:.4} in {STEPS} steps", first.mean());
        let outcome = match best / first.mean().max(1e-9) {
            _ if first.mean() < 0.05 => Outcome::Pass,
            ratio if ratio < 0.7 => Outcome::Pass,
            ratio if ratio < 0.98 => Outcome::Warning,
            _ => Outcome::Fail,
        };
        let advice = "check which tensors are trained (model.trainable), and that targets match their texts";
        Ok((Check::new(name, outcome, result, advice), missing))
    }

    /// Returns the lowest loss over some steps on the same batch.
    fn learn(&mut self, step: &LoadedBatch, rate: f64) -> Result<f64> {
        let options = OptimizerOptions { name: "adam".to_owned(), ..OptimizerOptions::default() };
        let mut optimizer = Optimizer::new(&options, &self.host.parameters, &self.host.gradients)?;
        let mut best = f64::INFINITY;
        for _ in 0..STEPS {
            best = best.min(self.host.pass(step, None)?.mean());
            let norm = GradientNorm::of(&self.host.gradients);
            if let Some(error) = norm.error(&self.host.parameters) {
                return Err(error);
            }
            let arguments = StepArguments { learning_rate: rate, grad_factor: norm.factor(1.0, Some(1.0)) };
            optimizer.step(&mut self.host.parameters, &self.host.gradients, arguments)?;
            self.host.update_derived_weights();
        }
        Ok(best)
    }

    /// Runs forward and backward on short sequences.
    fn short_sequences(&mut self) -> Check {
        let (mut done, mut rejected) = (Vec::new(), Vec::new());
        for length in LENGTHS {
            let settings =
                TaskSettings { max_length: length, max_target_length: length, ..self.setup.settings.clone() };
            let options = self.loader_of(ROWS, 4);
            let task = self.setup.texts.training(&settings);
            let step =
                task.and_then(|task| Loader::new(task, options, Position::default())?.next().transpose());
            // A batch that the task cannot make here does not occur in the run either.
            let Ok(Some(step)) = step else {
                rejected.push(length.to_string());
                continue;
            };
            match self.host.pass(&step, None) {
                Ok(_) if GradientNorm::of(&self.host.gradients).is_finite() => done.push(length.to_string()),
                Ok(_) => {
                    let result = format!("a sequence of {length} tokens gives NaN or infinite gradients");
                    return Check::new(
                        "short sequences",
                        Outcome::Fail,
                        result,
                        "remove such texts from the data, and report this as a bug",
                    );
                }
                Err(error) => {
                    let error = error.within(&format!("a sequence of {length} tokens"));
                    return Check::fail("short sequences", &error, CHECK_DATA);
                }
            }
        }
        let mut result = format!("forward and backward of {} tokens", done.join(", "));
        if !rejected.is_empty() {
            result.push_str(&format!("; the task makes no sequences of {}", rejected.join(", ")));
        }
        Check::new("short sequences", Outcome::Pass, result, "")
    }

    /// Runs forward and backward on the largest of the first batches.
    fn largest_batch_check(&mut self) -> Check {
        let name = "largest batch";
        let step = match self.setup.largest_batch(self.config, self.config.batch.max_tokens) {
            Ok(step) => step,
            Err(error) => return Check::fail(name, &error, CHECK_DATA),
        };
        let texts = [&step.batch.encoder, &step.batch.decoder];
        let rows: usize = texts.iter().map(|texts| texts.rows.len()).sum();
        let longest = texts.iter().flat_map(|texts| texts.spans()).map(ExactSizeIterator::len).max();
        match self.host.pass(&step, None) {
            Ok(_) => {
                let result = format!(
                    "forward and backward of {rows} tokens, up to {} in a sequence",
                    longest.unwrap_or(0)
                );
                Check::new(name, Outcome::Pass, result, "")
            }
            Err(error) => Check::fail(name, &error, "lower data.settings.max_length or batch.max_tokens"),
        }
    }
}

/// Checks that the attention weights of each query sum to one: with all values set to one, the output of attention is
/// ones.
#[derive(Default)]
struct AttentionSums {
    worst: f64,
    place: String,
    operation_count: usize,
}

impl AttentionSums {
    fn check(&self) -> Check {
        // Sums of thousands of f32 are not exact; a real defect is far larger.
        const LIMIT: f64 = 1e-3;
        let name = "attention";
        if self.operation_count == 0 {
            return Check::new(name, Outcome::Pass, "no attention weights to check", "");
        }
        let result =
            format!("weights of {} operations sum to one within {:.1e}", self.operation_count, self.worst);
        if self.worst <= LIMIT {
            return Check::new(name, Outcome::Pass, result, "");
        }
        let result = format!("the weights of {} differ from a sum of one by {:.1e}", self.place, self.worst);
        Check::new(name, Outcome::Fail, result, "this is a bug in the operation; report it, with the config")
    }
}

impl<T: Real> Probe<T> for AttentionSums {
    fn node(&mut self, piece: &NodeEvent<'_, T>) {
        let Op::Attention(attention) = &piece.call.node.op else { return };
        // Where values are projected over positions (Linformer), ones do not stay ones.
        if piece.phase != Phase::Forward || attention.projection.is_some() {
            return;
        }
        let Ok(rule) = rule::<T>(&piece.call.node.op) else { return };
        let ones: Vec<Vec<T>> = piece.inputs.iter().map(|input| vec![T::ONE; input.len()]).collect();
        let mut inputs = piece.inputs.to_vec();
        inputs.iter_mut().zip(&ones).skip(2).for_each(|(input, ones)| *input = ones);
        let mut out = vec![T::ZERO; piece.output.len()];
        let mut kept = vec![T::ZERO; rule.saved_len(piece.call)];
        rule.forward(piece.call, &inputs, &mut out, &mut kept);
        // An attention sink takes a share of the softmax and contributes no value.
        let off = |sum: f64| match attention.sinks {
            _ if !sum.is_finite() => f64::INFINITY,
            Some(_) => (sum - 1.0).max(-sum).max(0.0),
            None => (sum - 1.0).abs(),
        };
        let worst = out.iter().map(|sum| off(sum.f64())).fold(0.0, f64::max);
        self.operation_count += 1;
        if worst > self.worst {
            self.worst = worst;
            self.place = format!("operation {}", piece.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failed_check_ends_the_run() {
        let check = |name, outcome| Check::new(name, outcome, "it is so", "do this");
        let passing = [check("one", Outcome::Pass), check("two", Outcome::Warning)];
        assert!(Check::reject(&passing).is_ok());
        assert!(passing[0].advice.is_empty() && passing[1].advice == "do this");
        let error =
            Check::reject(&[check("one", Outcome::Warning), check("two", Outcome::Fail)]).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Numeric, "check: two"));
        assert_eq!(error.message(), "it is so; do this");
    }

    #[test]
    fn attention_weights_that_do_not_sum_to_one_fail() {
        let outcome = |worst, operation_count| {
            AttentionSums { worst, place: String::new(), operation_count }.check().outcome
        };
        assert_eq!(
            [outcome(1e-6, 3), outcome(0.01, 3), outcome(f64::INFINITY, 1)],
            [Outcome::Pass, Outcome::Fail, Outcome::Fail]
        );
        assert_eq!(outcome(0.0, 0), Outcome::Pass, "models without attention");
    }
}
