//! Compares the training of a small network with PyTorch and Transformers, step by step. The network is described in
//! `tests/golden-scripts/make_optimizers.py`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use siskin_graph::WeightRole;
use siskin_trainer::clip::GradientNorm;
use siskin_trainer::ema::{EmaOptions, ExponentialMovingAverage};
use siskin_trainer::grad_scaler::{GradScaler, GradScalerOptions};
use siskin_trainer::settings::Settings;
use siskin_trainer::{
    Gradients, LearningRateSchedule, Optimizer, OptimizerOptions, Parameter, Parameters, ScheduleOptions,
    StepArguments,
};

const STEPS: u64 = 100;
const ROWS: usize = 12;
const TENSORS: [(&str, usize, usize); 5] = [
    ("token_embd.weight", 8, 15),
    ("blk.0.up.weight", 18, 15),
    ("blk.0.up.bias", 1, 18),
    ("blk.0.down.weight", 5, 18),
    ("blk.0.down.bias", 1, 5),
];

#[derive(Deserialize)]
struct Case {
    optimizer: OptimizerOptions,
    schedule: ScheduleOptions,
    max_grad_norm: Option<f64>,
    grad_scaler: Option<GradScalerOptions>,
    ema: Option<EmaOptions>,
    losses: Vec<f64>,
    learning_rates: Vec<f64>,
    checksums: Vec<f64>,
    #[serde(default)]
    loss_scales: Vec<f64>,
    #[serde(default)]
    ema_checksums: Vec<f64>,
    r#final: std::collections::BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct ReferenceSchedule {
    schedule: ScheduleOptions,
    steps: u64,
    learning_rates: Vec<f64>,
}

fn read(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../tests/data/optimizers").join(name)).unwrap()
}

fn initial_parameters() -> Parameters<f32> {
    let tensor = |(t, (name, rows, columns)): (usize, (&str, usize, usize))| Parameter {
        name: name.to_owned(),
        rows,
        columns,
        role: if name.ends_with("bias") { WeightRole::Vector } else { WeightRole::Matrix },
        numbers: (0..rows * columns).map(|i| (0.3 * (1.7 * i as f64 + t as f64).sin()) as f32).collect(),
        forward: Default::default(),
    };
    Parameters { list: TENSORS.into_iter().enumerate().map(tensor).collect() }
}

/// The loss; writes its gradients.
fn run(parameters: &Parameters<f32>, step: usize, gradients: &mut Gradients<f32>) -> f64 {
    let doubles: Vec<Vec<f64>> =
        parameters.list.iter().map(|p| p.numbers.iter().map(|x| f64::from(*x)).collect()).collect();
    let [embd, up, up_bias, down, down_bias] = &doubles[..] else { panic!("five tensors") };
    let mut sums: Vec<Vec<f64>> = doubles.iter().map(|numbers| vec![0.0; numbers.len()]).collect();
    let mut loss = 0.0;
    for r in 0..ROWS {
        let token = (3 * r + 5 * step + r * r) % 8;
        let x: Vec<f64> =
            (0..15).map(|j| embd[token * 15 + j] + 0.5 * (0.4 * r as f64 + 0.2 * j as f64).sin()).collect();
        let h: Vec<f64> = (0..18)
            .map(|i| (x.iter().zip(&up[i * 15..]).map(|(x, w)| x * w).sum::<f64>() + up_bias[i]).tanh())
            .collect();
        let mut of_h = [0.0; 18];
        for c in 0..5 {
            let out = h.iter().zip(&down[c * 18..]).map(|(h, w)| h * w).sum::<f64>() + down_bias[c];
            let error = out - (0.9 * token as f64 + 1.3 * c as f64).cos();
            loss += error * error / (ROWS * 5) as f64;
            let error = 2.0 * error / (ROWS * 5) as f64;
            sums[4][c] += error;
            for i in 0..18 {
                sums[3][c * 18 + i] += error * h[i];
                of_h[i] += error * down[c * 18 + i];
            }
        }
        for i in 0..18 {
            let gradient = of_h[i] * (1.0 - h[i] * h[i]);
            sums[2][i] += gradient;
            for j in 0..15 {
                sums[1][i * 15 + j] += gradient * x[j];
                sums[0][token * 15 + j] += gradient * up[i * 15 + j];
            }
        }
    }
    for (gradient, sums) in gradients.list.iter_mut().flatten().zip(sums) {
        gradient.iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient = sum as f32);
    }
    loss
}

/// Returns a checksum of all parameters, and their norm.
fn checksum(parameters: &Parameters<f32>) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for (t, parameter) in parameters.list.iter().enumerate() {
        for (i, number) in parameter.numbers.iter().enumerate() {
            let number = f64::from(*number) * ((i + t) as f64).cos();
            sums = [sums[0] + number, sums[1] + number * number];
        }
    }
    [sums[0], sums[1].sqrt()]
}

/// Returns the largest errors relative to a reference run: of losses, checksums of parameters and of their moving
/// averages, and final parameters.
fn compare(name: &str) -> [f64; 4] {
    let case: Case = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
    let mut parameters = initial_parameters();
    let mut gradients = Gradients::zeros(&parameters, |_| true);
    let mut optimizer = Optimizer::new(&case.optimizer, &parameters, &gradients).unwrap();
    // PyTorch's OneCycleLR spans one more step than the run has.
    let steps = if case.schedule.name == "one_cycle" { STEPS + 1 } else { STEPS };
    let mut options = case.schedule.clone();
    if case.schedule.name == "one_cycle" {
        options.settings.insert("warmup_steps".to_owned(), 30.into());
    }
    let schedule = LearningRateSchedule::new(&options, steps).unwrap();
    let mut scaler = case.grad_scaler.clone().map(|options| GradScaler::new(options).unwrap());
    let mut ema = case
        .ema
        .clone()
        .map(|options| ExponentialMovingAverage::new(options, &parameters, &gradients).unwrap());
    let first_rate = optimizer.factors(if case.optimizer.name == "muon" { 1 } else { 0 }).unwrap().lr;
    let mut worst = [0.0_f64; 4];
    let far = |got: f64, want: f64, size: f64| {
        let far = (got - want).abs() / size;
        if far.is_nan() { f64::INFINITY } else { far }
    };
    for step in 0..STEPS as usize {
        let loss = run(&parameters, step, &mut gradients);
        worst[0] = worst[0].max(far(loss, case.losses[step], case.losses[step]));
        let rate = schedule.learning_rate(step as u64);
        let want = case.learning_rates[step];
        assert!(
            (rate * first_rate - want).abs() <= 1e-9 * want,
            "{name}: learning rate {rate} of step {step}, not {want}"
        );
        let scale = scaler.as_ref().map_or(1.0, GradScaler::scale);
        if let Some(want) = case.loss_scales.get(step) {
            assert_eq!(scale, *want, "{name}: scale of step {step}");
            for number in gradients.list.iter_mut().flatten().flatten() {
                *number *= scale as f32;
                *number = if number.abs() > 65504.0 { f32::INFINITY } else { *number };
            }
        }
        let norm = GradientNorm::of(&gradients);
        if scaler.as_mut().is_none_or(|scaler| scaler.update(norm.is_finite())) {
            let factor = norm.factor(scale, case.max_grad_norm);
            optimizer
                .step(&mut parameters, &gradients, StepArguments { learning_rate: rate, grad_factor: factor })
                .unwrap();
        }
        let [sum, size] = checksum(&parameters);
        worst[1] = worst[1].max(far(sum, case.checksums[step], size));
        if let Some(ema) = &mut ema {
            ema.update(&parameters).unwrap();
            ema.swap(&mut parameters).unwrap();
            let [sum, size] = checksum(&parameters);
            worst[2] = worst[2].max(far(sum, case.ema_checksums[step], size));
            ema.swap(&mut parameters).unwrap();
        }
    }
    for parameter in &parameters.list {
        let want = &case.r#final[&parameter.name];
        let largest = want.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        for (got, want) in parameter.numbers.iter().zip(want) {
            worst[3] = worst[3].max(far(f64::from(*got), *want, largest));
        }
    }
    worst
}

/// The reference runs, and the tolerances.
const CASES: [(&str, f64); 14] = [
    ("adamw", 1e-5),
    ("adamw_groups", 1e-5),
    ("adamw_scaled", 1e-5),
    ("adam", 1e-5),
    ("sgd", 1e-5),
    ("sgd_momentum", 1e-5),
    ("sgd_nesterov", 1e-5),
    ("lion", 1e-5),
    ("adafactor", 1e-5),
    ("adafactor_relative", 1e-5),
    ("adamw_8bit", 1e-5),
    // The reference orthogonalizes in f64; the iteration amplifies f32 rounding errors by up to 500.
    ("muon", 3e-5),
    ("muon_matched", 3e-5),
    // PyTorch's Muon multiplies in bf16.
    ("muon_bfloat16", 5e-2),
];

#[test]
fn optimizers_match_pytorch() {
    let mut report = String::new();
    for (name, limit) in CASES {
        let worst = compare(name);
        let far = worst.map(|far| format!("{far:.1e}")).join(", ");
        println!("{name}: {far}");
        if worst.iter().any(|far| *far > limit) {
            report += &format!("{name}: above {limit:.0e}: {far}\n");
        }
    }
    assert!(report.is_empty(), "losses, checksums, moving averages, parameters:\n{report}");
}

#[test]
fn every_reference_run_is_compared() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/optimizers");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".json", ""))
        .filter(|name| name != "schedules")
        .collect();
    let mut known: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    names.sort();
    known.sort_unstable();
    assert_eq!(names, known);
    let used: Vec<String> = known
        .iter()
        .map(|name| serde_json::from_str::<Case>(&read(&format!("{name}.json"))).unwrap().optimizer.name)
        .collect();
    for name in siskin_trainer::optimizer::names() {
        assert!(used.iter().any(|used| used == name), "{name} has no reference run");
    }
}

#[test]
fn schedules_match_pytorch_and_transformers() {
    let cases: Vec<ReferenceSchedule> = serde_json::from_str(&read("schedules.json")).unwrap();
    for name in siskin_trainer::schedule::names() {
        assert!(cases.iter().any(|case| case.schedule.name == name), "{name} has no reference");
    }
    for case in cases {
        let schedule = LearningRateSchedule::new(&case.schedule, case.steps).unwrap();
        for (step, want) in case.learning_rates.iter().enumerate() {
            let got = schedule.learning_rate(step as u64);
            let limit = 1e-9 * want.max(1e-6 * case.schedule.learning_rate);
            assert!((got - want).abs() <= limit, "{:?}: {got} in step {step}, not {want}", case.schedule);
        }
    }
}

#[test]
fn learning_rates_are_constant_after_the_last_step() {
    for name in siskin_trainer::schedule::names().filter(|name| !["constant", "inverse_sqrt"].contains(name))
    {
        let settings: Settings =
            serde_json::from_value(serde_json::json!({ "min_lr_ratio": 0.125 })).unwrap();
        let schedule = LearningRateSchedule::new(
            &ScheduleOptions { name: name.to_owned(), learning_rate: 8.0, settings },
            50,
        )
        .unwrap();
        for step in [50, 51, 1000, u64::MAX] {
            assert!(
                (schedule.learning_rate(step) - 1.0).abs() < 1e-12,
                "{name}: {}",
                schedule.learning_rate(step)
            );
        }
    }
}

#[test]
fn unknown_and_out_of_range_settings_are_rejected() {
    let parameters = initial_parameters();
    let gradients = Gradients::zeros(&parameters, |_| true);
    let optimizer = |options: Value| {
        let options: OptimizerOptions = serde_json::from_value(options).unwrap();
        Optimizer::new(&options, &parameters, &gradients).map(|_| ()).unwrap_err().to_string()
    };
    let schedule = |options: Value| {
        let options: ScheduleOptions = serde_json::from_value(options).unwrap();
        LearningRateSchedule::new(&options, 100).map(|_| ()).unwrap_err().to_string()
    };
    use serde_json::json;
    for (error, want) in [
        (optimizer(json!({"name": "adanw"})), "did you mean `adamw`"),
        (
            optimizer(json!({"name": "adamw", "beta": 1})),
            "adamw.beta: unknown setting `beta`; did you mean `betas`",
        ),
        (optimizer(json!({"name": "adamw", "betas": [0.9, 1.0]})), "adamw.betas[1]"),
        (optimizer(json!({"name": "muon", "adamw": {"beta": 1}})), "unknown field `beta`"),
        (optimizer(json!({"name": "muon", "adjust_lr_fn": "x"})), "match_rms_adamw"),
        (optimizer(json!({"name": "sgd", "nesterov": true})), "sgd.nesterov"),
        (
            optimizer(json!({"name": "sgd", "groups": [{"tensors": "blk.1.*"}]})),
            "optimizer.groups[0].tensors",
        ),
        (optimizer(json!({"name": "lion", "weight_decay": -1.0})), "lion.weight_decay"),
        (schedule(json!({"name": "cosin", "learning_rate": 1.0})), "did you mean `cosine`"),
        (
            schedule(json!({"name": "linear", "learning_rate": 1.0, "warmup": 1})),
            "did you mean `warmup_steps`",
        ),
        (
            schedule(json!({"name": "linear", "learning_rate": 1.0, "warmup_steps": 101})),
            "linear.warmup_steps",
        ),
        (schedule(json!({"name": "linear", "learning_rate": -1.0})), "schedule.learning_rate"),
        (
            schedule(json!({"name": "cosine", "learning_rate": 1.0, "min_lr_ratio": 1.5})),
            "cosine.min_lr_ratio",
        ),
        (
            schedule(
                json!({"name": "warmup_stable_decay", "learning_rate": 1.0, "decay_steps": 90, "warmup_steps": 20}),
            ),
            ".decay_steps",
        ),
    ] {
        assert!(error.contains(want), "{error}: not {want}");
    }
}
