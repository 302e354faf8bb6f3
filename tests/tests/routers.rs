//! Router losses compared to PyTorch's, and their gradients to finite differences.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use siskin::file::Bytes;
use siskin_convert::import::safetensors;
use siskin_tests::gradients::{GradientCase, load};
use siskin_tests::{golden, paths};
use siskin_trainer::loss::{CrossEntropy, LossSum, Targets};
use siskin_trainer::{Gradients, Parameters, Real, Recompute, RouterOptions, Runner, TrainingObjective};

const BOTH: RouterOptions = RouterOptions { aux_loss_coef: 0.3, z_loss_coef: 0.05 };

/// Returns the next token of each token as target; the last token of a sequence has none.
fn targets(case: &GradientCase) -> Targets {
    let mut targets = Targets::default();
    for span in case.batch.decoder.spans() {
        for row in span.clone() {
            let next = case.batch.decoder.rows.get(row + 1).map_or(0, |row| row.token);
            targets.ids.push(next);
            targets.weights.push(if row + 1 < span.end { 1.0 } else { 0.0 });
        }
    }
    targets
}

/// Returns the losses of a batch and the gradients of their sum.
fn run<T: Real>(
    case: &GradientCase,
    parameters: &Parameters<T>,
    options: RouterOptions,
    recompute: Recompute,
) -> (LossSum, Gradients<T>) {
    let mut gradients = Gradients::zeros(parameters, |_| true);
    let runner = Runner::new(case.program.clone(), recompute, |_| true).unwrap();
    let targets = targets(case);
    let scale = 1.0 / f64::from(targets.weights.iter().sum::<f32>());
    let goal = TrainingObjective { loss: &CrossEntropy::default(), targets: &targets, scale };
    let sum = runner.with_routers(options).run(parameters, &case.batch, goal, &mut gradients).unwrap();
    (sum, gradients)
}

/// Reads the results of `tests/golden-scripts/make_routers.py`.
fn reference() -> HashMap<String, Vec<f64>> {
    let bytes = std::fs::read(paths::data("routers").join("mixtral.safetensors")).unwrap();
    let tensors = safetensors::parse(Bytes::new(bytes)).unwrap();
    let numbers = |data: &Bytes| data.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    tensors.into_iter().map(|(name, tensor)| (name, numbers(&tensor.data))).collect()
}

#[test]
fn router_losses_match_pytorch() {
    assert!(golden::NAMES.contains(&"mixtral"));
    let (case, want) = (load("mixtral"), reference());
    let parameters = Parameters::<f64>::read(&case.program.graph.weights, &case.file).unwrap();
    let (sum, gradients) = run(&case, &parameters, BOTH, Recompute::None);
    let [cross, balance, square] = want["losses"][..] else { panic!("three losses") };
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-5 * want.abs(), "{got} and {want}");
    near(sum.mean(), cross);
    near(sum.router_loss / sum.weight, 0.3 * balance + 0.05 * square);
    let mut seen = 0;
    for (weight, gradient) in case.program.graph.weights.iter().zip(&gradients.list) {
        let mut parts = weight.name.split('.');
        let key = match (parts.nth(1), parts.next()) {
            (Some(layer), Some("ffn_gate_inp")) => format!("{layer}.gate"),
            (Some(layer), Some("attn_q")) => format!("{layer}.q"),
            _ => continue,
        };
        let (got, want) = (gradient.as_ref().unwrap(), &want[&key]);
        let largest = want.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let error = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
        assert!(got.len() == want.len() && error < 1e-4, "{key}: {error:e}");
        seen += 1;
    }
    assert_eq!(seen, want.len() - 1);
}

/// Only router weights select experts: small changes keep the selection, and the total loss changes as its gradient
/// predicts.
#[test]
fn router_gradients_match_finite_differences() {
    for name in ["switch", "qwen2-moe"] {
        let case = load(name);
        let mut parameters = Parameters::<f64>::read(&case.program.graph.weights, &case.file).unwrap();
        let (sum, gradients) = run(&case, &parameters, BOTH, Recompute::None);
        assert!(sum.router_loss > 0.0);
        for (weight, gradient) in gradients.list.iter().enumerate() {
            if !case.program.graph.weights[weight].name.contains("ffn_gate_inp.weight") {
                continue;
            }
            let gradient = gradient.as_ref().unwrap();
            let largest = gradient.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
            for place in (0..gradient.len()).step_by(gradient.len() / 5) {
                let mut loss = |change: f64| {
                    let was = parameters.list[weight].numbers[place];
                    parameters.list[weight].numbers[place] = was + change;
                    let (sum, _) = run(&case, &parameters, BOTH, Recompute::None);
                    parameters.list[weight].numbers[place] = was;
                    (sum.loss + sum.router_loss) / sum.weight
                };
                let slope = (loss(1e-6) - loss(-1e-6)) / 2e-6;
                let error = (slope - gradient[place]).abs() / largest;
                assert!(error < 1e-4, "{name}: {weight} at {place}: {slope} and {}", gradient[place]);
            }
        }
    }
}

#[test]
fn router_losses_recompute_bit_identically_and_default_to_none() {
    let case = load("mixtral");
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let want = run(&case, &parameters, BOTH, Recompute::None);
    for recompute in [Recompute::Layers(1), Recompute::Cost(0)] {
        assert!(run(&case, &parameters, BOTH, recompute) == want, "{recompute:?}");
    }
    let (sum, plain) = run(&case, &parameters, RouterOptions::default(), Recompute::None);
    assert_eq!((sum.router_loss, sum.loss), (0.0, want.0.loss));
    assert_ne!(plain, want.1);
}
