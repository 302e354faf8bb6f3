//! Trainings of a small network against PyTorch's and Transformers', step by step: see
//! `tests/golden-scripts/make_optimizers.py`, which says what the network is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use siskin::graph::WeightRole;
use siskin_trainer::average::{AverageOptions, MovingAverage};
use siskin_trainer::clip::GradientNorm;
use siskin_trainer::scaler::{Scaler, ScalerOptions};
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
    clip: Option<f64>,
    scaler: Option<ScalerOptions>,
    average: Option<AverageOptions>,
    losses: Vec<f64>,
    rates: Vec<f64>,
    prints: Vec<f64>,
    #[serde(default)]
    scales: Vec<f64>,
    #[serde(default)]
    averages: Vec<f64>,
    r#final: std::collections::BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct Rates {
    schedule: ScheduleOptions,
    steps: u64,
    rates: Vec<f64>,
}

fn read(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../tests/data/optimizers").join(name)).unwrap()
}

fn begin() -> Parameters<f32> {
    let tensor = |(t, (name, rows, columns)): (usize, (&str, usize, usize))| Parameter {
        name: name.to_owned(),
        rows,
        columns,
        role: if name.ends_with("bias") { WeightRole::Vector } else { WeightRole::Matrix },
        numbers: (0..rows * columns).map(|i| (0.3 * (1.7 * i as f64 + t as f64).sin()) as f32).collect(),
        seen: Default::default(),
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
            let steep = of_h[i] * (1.0 - h[i] * h[i]);
            sums[2][i] += steep;
            for j in 0..15 {
                sums[1][i * 15 + j] += steep * x[j];
                sums[0][token * 15 + j] += steep * up[i * 15 + j];
            }
        }
    }
    for (gradient, sums) in gradients.list.iter_mut().flatten().zip(sums) {
        gradient.iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient = sum as f32);
    }
    loss
}

/// One number that changes with every parameter, and how large the numbers are that were added up.
fn print_of(parameters: &Parameters<f32>) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for (t, parameter) in parameters.list.iter().enumerate() {
        for (i, number) in parameter.numbers.iter().enumerate() {
            let number = f64::from(*number) * ((i + t) as f64).cos();
            sums = [sums[0] + number, sums[1] + number * number];
        }
    }
    [sums[0], sums[1].sqrt()]
}

/// How far a training is from the one that is kept: losses, sums of parameters and of averages, parameters at the end.
fn compare(name: &str) -> [f64; 4] {
    let case: Case = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
    let mut parameters = begin();
    let mut gradients = Gradients::zeros(&parameters, |_| true);
    let mut optimizer = Optimizer::new(&case.optimizer, &parameters, &gradients).unwrap();
    // PyTorch's cycles need a step more than there are.
    let steps = if case.schedule.name == "one_cycle" { STEPS + 1 } else { STEPS };
    let mut options = case.schedule.clone();
    if case.schedule.name == "one_cycle" {
        options.settings.insert("warm_up".to_owned(), 30.into());
    }
    let schedule = LearningRateSchedule::new(&options, steps).unwrap();
    let mut scaler = case.scaler.clone().map(|options| Scaler::new(options).unwrap());
    let mut average =
        case.average.clone().map(|options| MovingAverage::new(options, &parameters, &gradients).unwrap());
    let first_rate = optimizer.factors(if case.optimizer.name == "muon" { 1 } else { 0 }).unwrap().rate;
    let mut worst = [0.0_f64; 4];
    let far = |got: f64, want: f64, size: f64| {
        let far = (got - want).abs() / size;
        if far.is_nan() { f64::INFINITY } else { far }
    };
    for step in 0..STEPS as usize {
        let loss = run(&parameters, step, &mut gradients);
        worst[0] = worst[0].max(far(loss, case.losses[step], case.losses[step]));
        let rate = schedule.rate(step as u64);
        let want = case.rates[step];
        assert!(
            (rate * first_rate - want).abs() <= 1e-9 * want,
            "{name}: rate {rate} of step {step}, not {want}"
        );
        let scale = scaler.as_ref().map_or(1.0, Scaler::scale);
        if let Some(want) = case.scales.get(step) {
            assert_eq!(scale, *want, "{name}: scale of step {step}");
            for number in gradients.list.iter_mut().flatten().flatten() {
                *number *= scale as f32;
                *number = if number.abs() > 65504.0 { f32::INFINITY } else { *number };
            }
        }
        let norm = GradientNorm::of(&gradients);
        if scaler.as_mut().is_none_or(|scaler| scaler.update(norm.is_finite())) {
            let factor = norm.factor(scale, case.clip);
            optimizer.step(&mut parameters, &gradients, StepArguments { rate, factor }).unwrap();
        }
        let [print, size] = print_of(&parameters);
        worst[1] = worst[1].max(far(print, case.prints[step], size));
        if let Some(average) = &mut average {
            average.update(&parameters).unwrap();
            average.swap(&mut parameters).unwrap();
            let [print, size] = print_of(&parameters);
            worst[2] = worst[2].max(far(print, case.averages[step], size));
            average.swap(&mut parameters).unwrap();
        }
    }
    for parameter in &parameters.list {
        let want = &case.r#final[&parameter.name];
        let largest = want.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        for (got, want) in parameter.numbers.iter().zip(want) {
            worst[3] = worst[3].max(far(f64::from(*got), *want, largest));
        }
    }
    worst
}

/// Each training, and how far it may be from the one that is kept.
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
    ("adamw8", 1e-5),
    // What is kept was made orthogonal in doubles; the iteration multiplies what floats lack by up to 500.
    ("muon", 3e-5),
    ("muon_matched", 3e-5),
    // PyTorch's Muon multiplies in bfloat16, with three digits.
    ("muon_bfloat16", 5e-2),
];

#[test]
fn trainings_are_those_of_pytorch() {
    let mut report = String::new();
    for (name, limit) in CASES {
        let worst = compare(name);
        let far = worst.map(|far| format!("{far:.1e}")).join(", ");
        println!("{name}: {far}");
        if worst.iter().any(|far| *far > limit) {
            report += &format!("{name}: beyond {limit:.0e}: {far}\n");
        }
    }
    assert!(report.is_empty(), "losses, sums, averages, parameters:\n{report}");
}

#[test]
fn every_training_that_is_kept_is_compared() {
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
        assert!(used.iter().any(|used| used == name), "{name} has no training");
    }
}

#[test]
fn rates_are_those_of_pytorch_and_transformers() {
    let cases: Vec<Rates> = serde_json::from_str(&read("schedules.json")).unwrap();
    for name in siskin_trainer::schedule::names() {
        assert!(cases.iter().any(|case| case.schedule.name == name), "{name} has no rates");
    }
    for case in cases {
        let schedule = LearningRateSchedule::new(&case.schedule, case.steps).unwrap();
        for (step, want) in case.rates.iter().enumerate() {
            let got = schedule.rate(step as u64);
            let limit = 1e-9 * want.max(1e-6 * case.schedule.rate);
            assert!((got - want).abs() <= limit, "{:?}: {got} in step {step}, not {want}", case.schedule);
        }
    }
}

#[test]
fn rates_stay_as_they_are_after_the_last_step() {
    for name in siskin_trainer::schedule::names().filter(|name| !["constant", "inverse_root"].contains(name))
    {
        let settings: Settings = serde_json::from_value(serde_json::json!({ "last": 0.125 })).unwrap();
        let schedule =
            LearningRateSchedule::new(&ScheduleOptions { name: name.to_owned(), rate: 8.0, settings }, 50)
                .unwrap();
        for step in [50, 51, 1000, u64::MAX] {
            assert!((schedule.rate(step) - 1.0).abs() < 1e-12, "{name}: {}", schedule.rate(step));
        }
    }
}

#[test]
fn what_is_not_known_or_out_of_range_is_refused() {
    let parameters = begin();
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
        (optimizer(json!({"name": "muon", "adjust": "x"})), "match_rms_adamw"),
        (optimizer(json!({"name": "sgd", "nesterov": true})), "sgd.nesterov"),
        (
            optimizer(json!({"name": "sgd", "groups": [{"tensors": "blk.1.*"}]})),
            "optimizer.groups[0].tensors",
        ),
        (optimizer(json!({"name": "lion", "weight_decay": -1.0})), "lion.weight_decay"),
        (schedule(json!({"name": "cosin", "rate": 1.0})), "did you mean `cosine`"),
        (schedule(json!({"name": "linear", "rate": 1.0, "warmup": 1})), "did you mean `warm_up`"),
        (schedule(json!({"name": "linear", "rate": 1.0, "warm_up": 101})), "linear.warm_up"),
        (schedule(json!({"name": "linear", "rate": -1.0})), "schedule.rate"),
        (schedule(json!({"name": "cosine", "rate": 1.0, "last": 1.5})), "cosine.last"),
        (
            schedule(json!({"name": "warm_up_stable_decay", "rate": 1.0, "decay": 90, "warm_up": 20})),
            ".decay",
        ),
    ] {
        assert!(error.contains(want), "{error}: not {want}");
    }
}
