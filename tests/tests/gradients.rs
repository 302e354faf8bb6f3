//! The gradients of every family compared to PyTorch's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use siskin_graph::Op;
use siskin_tests::extent::cases;
use siskin_tests::gradients::{Direction, GradientCase, UNTRAINED, WITHOUT, bless, load, reference, sample};
use siskin_tests::{golden, texts};
use siskin_trainer::loss::Targets;
use siskin_trainer::{Gradients, Parameters, Real, Recompute, Runner, TrainingObjective};

fn names() -> impl Iterator<Item = &'static str> {
    golden::NAMES.iter().chain(texts::NAMES).copied()
}

/// Returns the gradients of a case, tensor by tensor, and the outputs of the program.
fn run<T: Real>(case: &GradientCase, recompute: Recompute) -> (Vec<Vec<T>>, Vec<T>) {
    let parameters = Parameters::<T>::read(&case.program.graph.weights, &case.file).unwrap();
    let mut gradients = Gradients::zeros(&parameters, |_| true);
    let mut runner = Runner::new(case.program.clone(), recompute, |_| true).unwrap();
    let targets = Targets::default();
    let goal = TrainingObjective { loss: &Direction, targets: &targets, scale: 1.0 };
    let mut outputs = Vec::new();
    let mut see = |_, numbers: &[T]| outputs.extend_from_slice(numbers);
    runner.evaluate(&parameters, &case.batch, goal, Some(&mut see)).unwrap();
    runner.run(&parameters, &case.batch, goal, &mut gradients).unwrap();
    (gradients.list.into_iter().flatten().collect(), outputs)
}

/// Returns the differences of outputs and gradients from PyTorch's beyond `limit`, one per line.
fn compare<T: Real>(name: &str, limit: f64) -> String {
    let case = load(name);
    let (gradients, outputs) = run::<T>(&case, Recompute::None);
    let mut report = String::new();
    let outputs: Vec<f32> = outputs.iter().map(|x| x.f64() as f32).collect();
    let error = golden::relative_error(&outputs, &case.outputs);
    if error.is_nan() || f64::from(error) > limit {
        report += &format!("{name}: outputs {error:.1e}\n");
    }
    if WITHOUT.contains(&name) {
        return report;
    }
    let reference = reference(name);
    // Tensors with small gradients are compared relative to the norm of the whole gradient.
    let whole: f64 = reference.values().map(|kept| f64::from(kept[0]).powi(2)).sum::<f64>().sqrt();
    let untrained =
        |weight: &str| UNTRAINED.iter().any(|(model, part)| *model == name && weight.contains(part));
    let weights = case.program.graph.weights.iter().zip(&gradients).enumerate();
    for (index, (weight, gradient)) in weights.filter(|(_, (weight, _))| !untrained(&weight.name)) {
        let Some(want) = reference.get(&weight.name) else {
            report += &format!("{name}: {} ({}) has no reference\n", weight.name, case.operations(index));
            continue;
        };
        let got = sample(gradient);
        let largest = f64::from(want[1]).max(1e-3 * whole / (gradient.len() as f64).sqrt());
        let scale = |index: usize| if index == 0 { f64::from(want[0]).max(1e-3 * whole) } else { largest };
        let errors = got.iter().zip(want).enumerate();
        let worst =
            errors.map(|(i, (got, want))| (got - f64::from(*want)).abs() / scale(i)).fold(0.0, f64::max);
        if worst.is_nan() || worst > limit {
            let is_zero = gradient.iter().all(|number| number.f64() == 0.0);
            let what = if is_zero { "has no gradient".to_owned() } else { format!("{worst:.1e}") };
            report += &format!("{name}: {} ({}) {what}\n", weight.name, case.operations(index));
        }
    }
    report
}

#[test]
fn gradients_match_pytorch() {
    let report: String = names().map(|name| compare::<f32>(name, 1e-4)).collect();
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
}

#[test]
fn recomputation_is_bit_identical() {
    for name in ["llama", "gemma2", "mixtral", "bert", "t5", "qwen3-next", "longformer"] {
        let case = load(name);
        let want = run::<f32>(&case, Recompute::None).0;
        for recompute in [
            Recompute::Layers(1),
            Recompute::Layers(2),
            Recompute::Attention,
            Recompute::Cost(0),
            Recompute::Cost(64),
        ] {
            assert!(run::<f32>(&case, recompute).0 == want, "{name} with {recompute:?}");
        }
    }
}

#[test]
fn recomputation_takes_less_memory() {
    let case = load("llama");
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let bytes = |recompute| {
        let runner = Runner::<f32>::new(case.program.clone(), recompute, |_| true).unwrap();
        runner.memory(&case.batch, &parameters).unwrap().activations
    };
    let all = bytes(Recompute::None);
    for recompute in [Recompute::Layers(1), Recompute::Attention, Recompute::Cost(0), Recompute::Cost(64)] {
        assert!(bytes(recompute) < all, "{recompute:?}: {} of {all}", bytes(recompute));
    }
    assert!(bytes(Recompute::Cost(64)) < bytes(Recompute::Cost(0)), "matmuls are recomputed as well");
}

/// Iterates over the models whose gradients are compared to finite differences: together they use every gradient rule.
fn differed() -> impl Iterator<Item = &'static str> {
    let more =
        ["gpt2", "gemma2", "qwen3-next", "gpt-oss", "switch", "whisper", "longformer", "mobilebert", "olmoe"];
    WITHOUT.iter().copied().chain(more)
}

/// Returns the operations whose gradients can be compared: not those without a rule, nor sinusoidal embeddings, which
/// depend on positions alone.
fn ruled() -> Vec<&'static str> {
    let without = ["ExternalInput", "MultiLora", "StoreCrossKv", "SinusoidalPositions"];
    Op::NAMES.iter().copied().filter(|name| !without.contains(name)).collect()
}

#[test]
fn every_backward_rule_is_tested_by_finite_differences_and_pytorch() {
    let rules = ruled();
    let missing = |names: &mut dyn Iterator<Item = &'static str>| -> Vec<&str> {
        let mut left = rules.clone();
        for name in names {
            let case = load(name);
            for node in &case.program.graph.nodes {
                left.retain(|rule| *rule != node.op.name());
            }
        }
        left
    };
    assert_eq!(
        missing(&mut differed()),
        Vec::<&str>::new(),
        "these operations are not compared with finite differences"
    );
    let known = missing(&mut names().filter(|name| !WITHOUT.contains(name)));
    assert_eq!(known, Vec::<&str>::new(), "these operations are not compared with PyTorch");
}

/// Central differences of some elements of every tensor.
#[test]
fn gradients_match_finite_differences() {
    // Those without a golden of PyTorch, and three more.
    let names = cases("models", differed(), |name| {
        WITHOUT.contains(name) || ["gpt2", "qwen3-next", "switch"].contains(name)
    });
    for name in names {
        let case = load(name);
        let mut parameters = Parameters::<f64>::read(&case.program.graph.weights, &case.file).unwrap();
        let gradients = run::<f64>(&case, Recompute::None).0;
        let mut runner = Runner::new(case.program.clone(), Recompute::None, |_| true).unwrap();
        let targets = Targets::default();
        let goal = TrainingObjective { loss: &Direction, targets: &targets, scale: 1.0 };
        let max = |gradient: &Vec<f64>| gradient.iter().map(|x| x.abs()).fold(0.0, f64::max);
        let whole = gradients.iter().map(max).fold(0.0, f64::max);
        for (weight, gradient) in gradients.iter().enumerate() {
            // Negligible gradients are compared relative to the others: biases of keys do not change attention weights.
            let largest = max(gradient).max(1e-4 * whole);
            let step = (gradient.len() / 3).max(1);
            for place in (0..gradient.len()).step_by(step) {
                let mut loss = |change: f64| {
                    let was = parameters.list[weight].numbers[place];
                    parameters.list[weight].numbers[place] = was + change;
                    let sum = runner.evaluate(&parameters, &case.batch, goal, None).unwrap();
                    parameters.list[weight].numbers[place] = was;
                    sum.loss
                };
                let slope = (loss(1e-5) - loss(-1e-5)) / 2e-5;
                let error = (slope - gradient[place]).abs() / largest;
                let (tensor, operations) =
                    (&case.program.graph.weights[weight].name, case.operations(weight));
                let found = gradient[place];
                assert!(error < 1e-4, "{name}: {tensor} ({operations}) at {place}: {slope} and {found}");
            }
        }
    }
}

/// Samples the gradients that `golden-scripts/make_gradients.py` wrote to the folder in SISKIN_GRADIENTS.
#[test]
#[ignore = "changes the reference"]
fn bless_gradients() {
    let folder = siskin_tests::env::gradients().expect("SISKIN_GRADIENTS names a folder");
    for name in names().filter(|name| !WITHOUT.contains(name)) {
        bless(name, &folder.join(name));
    }
}
