//! Every optimizer, step by step: parameters and optimizer state.

use siskin_emulator::cuda::{ExecutionMode, ThreadOrder};
use siskin_tests::cuda::TestDevice;
use siskin_tests::extent::cases;
use siskin_tests::gradients::{GradientCase, load};
use siskin_trainer::clip::GradientNorm;
use siskin_trainer::cuda::{DeviceRunner, HostOptimizer, Objective, RunnerBuilder};
use siskin_trainer::loss::Targets;
use siskin_trainer::optimizer::names;
use siskin_trainer::state::{TableData, Tables, restore, save};
use siskin_trainer::{Gradients, Optimizer, OptimizerOptions, Parameters, StepArguments};

use super::common::{device, error, targets};

/// A golden model that is trained on both devices.
struct Both {
    case: GradientCase,
    targets: Targets,
    gradients: Gradients<f32>,
    /// On the CPU.
    parameters: Parameters<f32>,
    optimizer: Optimizer,
    runner: DeviceRunner,
}

impl Both {
    fn new(settings: &serde_json::Value, device: TestDevice) -> Self {
        let case = load("gpt2");
        let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
        let output = case.program.graph.values[case.program.graph.output];
        let targets = targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns);
        let options: OptimizerOptions = serde_json::from_value(settings.clone()).unwrap();
        let gradients = Gradients::zeros(&parameters, |_| true);
        let optimizer = Optimizer::new(&options, &parameters, &gradients).unwrap();
        let program = case.program.clone();
        let host = HostOptimizer { options: &options, state: &optimizer };
        let builder = RunnerBuilder { optimizer: Some(host), ..RunnerBuilder::new(program, &parameters) };
        let runner = builder.build(Box::new(device)).unwrap();
        Self { case, targets, gradients, parameters, optimizer, runner }
    }

    fn backward(&mut self, scale: f64) {
        self.runner.run(&self.case.batch, &Objective::default(), &self.targets, scale).unwrap();
    }

    /// Makes a step on both devices from the gradients of the GPU, so that only the optimizers are compared.
    fn step(&mut self, rate: f64, scale: f64) {
        self.backward(scale);
        self.runner.gradients(&mut self.gradients).unwrap();
        let norm = GradientNorm::of(&self.gradients);
        let factor = norm.factor(scale, Some(0.5));
        let arguments = StepArguments { learning_rate: rate, grad_factor: factor };
        self.optimizer.step(&mut self.parameters, &self.gradients, arguments).unwrap();
        let judged = self.runner.step(rate, scale, Some(0.5)).unwrap();
        assert!(judged.finite && (judged.grad_norm * scale / norm.norm - 1.0).abs() < 1e-9, "{judged:?}");
        assert_eq!(judged.count, self.optimizer.count());
        self.runner.gradients(&mut self.gradients).unwrap();
        let zero = self.gradients.list.iter().flatten().flatten().all(|x| *x == 0.0);
        assert!(zero, "the next step begins at zero");
    }

    /// Returns the current state of the device.
    fn fetch(&mut self) -> (Parameters<f32>, Tables) {
        let (mut parameters, mut tables) = (self.parameters.clone(), Tables::new());
        self.runner.copy_from_device(&mut parameters, &mut tables).unwrap();
        (parameters, tables)
    }

    /// Returns the differences between the device and the CPU beyond `limit`, one per line.
    fn compare(&mut self, limit: f32) -> String {
        let (parameters, tables) = self.fetch();
        let mut report = String::new();
        for (own, want) in parameters.list.iter().zip(&self.parameters.list) {
            let error = error(&own.numbers, &want.numbers, 1e-3);
            if error > limit {
                report += &format!("{}: {error:.1e}\n", own.name);
            }
        }
        let want = save(&[&self.optimizer]);
        assert!(tables.keys().eq(want.keys()), "tables of a checkpoint");
        for ((name, own), want) in tables.iter().zip(want.values()) {
            let apart = match (own, want) {
                (TableData::Numbers(own), TableData::Numbers(want)) => error(own, want, 1e-9),
                (TableData::Bytes(own), TableData::Bytes(want)) if own.len() == want.len() => {
                    // A value halfway between two codes may be rounded to either.
                    let other = own.iter().zip(want).filter(|(own, want)| own != want).count();
                    if other * 500 > own.len() { 1.0 } else { 0.0 }
                }
                _ => f32::INFINITY,
            };
            if apart > 10.0 * limit {
                report += &format!("{name}: {apart:.1e}\n");
            }
        }
        report
    }

    /// Exchanges the states of the two devices.
    fn exchange(&mut self) {
        let (parameters, tables) = self.fetch();
        self.runner.copy_to_device(&self.parameters, &save(&[&self.optimizer])).unwrap();
        self.parameters = parameters;
        restore(&mut self.optimizer, &tables).unwrap();
    }
}

/// Returns settings of every optimizer, and the tolerance of its steps.
fn optimizers() -> Vec<(serde_json::Value, f32)> {
    let groups = serde_json::json!([{ "tensors": "blk.0.*", "lr_factor": 0.5, "weight_decay_factor": 2.0 }]);
    let of = |name: &str, more: serde_json::Value, limit: f32| {
        let mut settings = serde_json::json!({ "name": name, "groups": groups });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (settings, limit)
    };
    vec![
        of("adamw", serde_json::json!({ "weight_decay": 0.1 }), 1e-5),
        of("adam", serde_json::json!({ "weight_decay": 0.1, "betas": [0.8, 0.9] }), 1e-5),
        of("sgd", serde_json::json!({ "weight_decay": 0.1 }), 1e-5),
        of("sgd", serde_json::json!({ "momentum": 0.9, "dampening": 0.3 }), 1e-5),
        of("sgd", serde_json::json!({ "momentum": 0.9, "nesterov": true }), 1e-5),
        of("lion", serde_json::json!({ "weight_decay": 0.1 }), 1e-5),
        of("adafactor", serde_json::json!({ "weight_decay": 0.1 }), 1e-5),
        of("adafactor", serde_json::json!({ "relative_step": true, "scale_parameter": false }), 1e-5),
        of("muon", serde_json::json!({ "adamw_lr_factor": 0.3, "adjust_lr_fn": "match_rms_adamw" }), 1e-4),
        of("muon", serde_json::json!({ "nesterov": false, "ns_steps": 4 }), 1e-4),
        of("adamw_8bit", serde_json::json!({ "weight_decay": 0.1, "min_8bit_size": 300 }), 1e-5),
    ]
}

#[test]
fn optimizer_steps_match_the_cpu() {
    let missing: Vec<&str> =
        names().filter(|name| !optimizers().iter().any(|(settings, _)| settings["name"] == *name)).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
    let mut report = String::new();
    // All settings but these have kernels of their own.
    let like = |settings: &serde_json::Value| settings["name"] == "adam" || settings["nesterov"] == false;
    for (settings, limit) in cases("optimizers", optimizers(), |(settings, _)| !like(settings)) {
        let Some(device) = device() else { return };
        let mut both = Both::new(&settings, device);
        for step in 0..4 {
            both.step([1e-2, 3e-3][step % 2], [8.0, 2.0][step % 2]);
            let apart = both.compare(limit);
            report +=
                &apart.lines().map(|line| format!("{settings}, step {step}: {line}\n")).collect::<String>();
            both.exchange();
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Iterates over one setting per optimizer.
fn each() -> impl Iterator<Item = serde_json::Value> {
    let mut known = Vec::new();
    let all = optimizers().into_iter().map(|(settings, _)| settings);
    all.filter(move |settings| {
        let new = !known.contains(&settings["name"]);
        known.push(settings["name"].clone());
        new
    })
}

/// Returns true for the optimizers with special state tables, and for the one with the most kernels.
fn stands(settings: &serde_json::Value) -> bool {
    ["adafactor", "adamw_8bit", "muon"].iter().any(|name| settings["name"] == *name)
}

#[test]
fn steps_with_non_finite_gradients_are_skipped() {
    for settings in cases("optimizers", each(), stands) {
        let Some(device) = device() else { return };
        let mut both = Both::new(&settings, device);
        both.step(1e-2, 8.0);
        let before = both.fetch();
        both.backward(f64::INFINITY);
        let judged = both.runner.step(1e-2, 2.0, Some(0.5)).unwrap();
        assert!(!judged.finite && judged.count == 1, "{settings}: {judged:?}");
        assert!(both.fetch() == before, "{settings}: something changes");
        // Nor does it change the following steps.
        both.exchange();
        both.step(1e-2, 2.0);
        assert_eq!(both.compare(1e-4), "", "{settings}");
    }
}

/// The result does not depend on the order of threads.
#[test]
fn thread_order_changes_no_step() {
    for settings in cases("optimizers", each(), stands) {
        let results = [ThreadOrder::Forward, ThreadOrder::Reverse].map(|order| {
            let mut device = device()?;
            device.set_mode(ExecutionMode { order, ..ExecutionMode::default() }).unwrap();
            let mut both = Both::new(&settings, device);
            both.step(1e-2, 8.0);
            Some(both.fetch())
        });
        assert!(results[0] == results[1], "{settings}");
    }
}
