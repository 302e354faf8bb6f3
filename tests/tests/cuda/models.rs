//! Whole models: losses and gradients compared to those of the CPU.

use std::collections::BTreeSet;

use siskin_device::{Command, KernelArgument, Precision};
use siskin_graph::Node;
use siskin_tests::extent::cases;
use siskin_tests::gradients::load;
use siskin_tests::{golden, texts};
use siskin_trainer::cuda::{Objective, RunnerBuilder, StepObserver};
use siskin_trainer::loss::{CrossEntropy, LossSum};
use siskin_trainer::{
    Gradients, NodeEvent, Parameters, Phase, Probe, Recompute, RouterOptions, Runner, TrainingObjective,
};

use super::common::{device, error, targets};

/// Returns loss and gradients of a golden model on both devices, or `None` if there is no C++ compiler.
fn both(name: &str, precision: Precision, recompute: Recompute) -> Option<[(LossSum, Vec<Vec<f32>>); 2]> {
    let case = load(name);
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let output = case.program.graph.values[case.program.graph.output];
    let targets = targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns);
    let loss = CrossEntropy { label_smoothing: 0.1 };
    let scale = 0.25;
    let mut own = Gradients::zeros(&parameters, |_| true);
    let runner =
        RunnerBuilder { precision, recompute, ..RunnerBuilder::new(case.program.clone(), &parameters) }
            .build(Box::new(device()?));
    let mut runner = runner.unwrap_or_else(|error| panic!("{name}: {error}"));
    runner.run(&case.batch, &loss.into(), &targets, scale).unwrap_or_else(|error| panic!("{name}: {error}"));
    let sum = runner.take_sum().unwrap();
    runner.gradients(&mut own).unwrap();
    let mut cpu = Runner::new(case.program.clone(), Recompute::None, |_| true).unwrap();
    let mut want = Gradients::zeros(&parameters, |_| true);
    let goal = TrainingObjective { loss: &loss, targets: &targets, scale };
    let cpu_sum = cpu.run(&parameters, &case.batch, goal, &mut want).unwrap();
    let list = |gradients: Gradients<f32>| gradients.list.into_iter().flatten().collect();
    Some([(sum, list(own)), (cpu_sum, list(want))])
}

fn compare(name: &str, precision: Precision, limit: f32) -> Option<String> {
    let [(sum, own), (cpu_sum, want)] = both(name, precision, Recompute::None)?;
    let mut report = String::new();
    let apart = (sum.mean() - cpu_sum.mean()).abs() / cpu_sum.mean().max(1e-9);
    if apart.is_nan() || apart > f64::from(limit) || sum.weight != cpu_sum.weight {
        report += &format!("{name} {precision:?}: {sum:?}, not {cpu_sum:?}\n");
    }
    let whole = want.iter().flatten().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let case = load(name);
    for ((weight, own), want) in case.program.graph.weights.iter().zip(&own).zip(&want) {
        let error = error(own, want, whole * 1e-3);
        if error.is_nan() || error > limit {
            report += &format!("{name} {precision:?}: {} {error:.1e}\n", weight.name);
        }
    }
    Some(report)
}

/// Returns the distinct operations of a model without their sizes, which determine its kernels.
fn operations(name: &str) -> BTreeSet<String> {
    let nodes = load(name).program.graph.nodes;
    let plain = |node: &Node| format!("{:?}", node.op).replace(|letter: char| letter.is_ascii_digit(), "");
    nodes.iter().map(plain).collect()
}

#[test]
fn gradients_match_the_cpu() {
    let mut known = BTreeSet::new();
    let mut is_new = |name: &&&str| {
        let count = known.len();
        known.extend(operations(name));
        known.len() > count
    };
    let names = cases("models", golden::NAMES.iter().chain(texts::NAMES), &mut is_new);
    let report: String = names.iter().filter_map(|name| compare(name, Precision::F32, 1e-4)).collect();
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
}

/// Collects the outputs of nodes.
#[derive(Default)]
struct Given(Vec<Vec<f32>>);

impl Given {
    fn add(&mut self, node: usize, numbers: &[f32]) {
        self.0.resize_with(self.0.len().max(node + 1), Vec::new);
        self.0[node].extend(numbers);
    }
}

impl Probe<f32> for Given {
    fn node(&mut self, piece: &NodeEvent<'_, f32>) {
        if piece.phase == Phase::Forward {
            self.add(piece.number, piece.output);
        }
    }
}

/// Watched outputs are those of the CPU's operations, including sums that are fused with norms and the logarithms of
/// decays.
#[test]
fn operation_outputs_are_observable() {
    let mut report = String::new();
    for name in ["qwen3-next", "bart", "mixtral", "gpt2"] {
        let case = load(name);
        let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
        let output = case.program.graph.values[case.program.graph.output];
        let targets = targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns);
        let loss = CrossEntropy::default();
        let Some(device) = device() else { return };
        let (program, recompute) = (case.program.clone(), Recompute::Layers(1));
        let mut runner = RunnerBuilder { recompute, ..RunnerBuilder::new(program, &parameters) }
            .build(Box::new(device))
            .unwrap();
        let mut own = Given::default();
        let show = &mut |node: usize, numbers: &[f32]| own.add(node, numbers);
        runner.run_observed(&case.batch, &loss.into(), &targets, 1.0, StepObserver::Outputs(show)).unwrap();
        let mut want = Given::default();
        let mut cpu = Runner::new(case.program.clone(), Recompute::None, |_| true).unwrap();
        let mut gradients = Gradients::zeros(&parameters, |_| true);
        let goal = TrainingObjective { loss: &loss, targets: &targets, scale: 1.0 };
        cpu.run_probed(&parameters, &case.batch, goal, &mut gradients, Some(&mut want)).unwrap();
        assert_eq!(own.0.len(), want.0.len(), "{name}");
        for (node, (own, want)) in case.program.graph.nodes.iter().zip(own.0.iter().zip(&want.0)) {
            let error = error(own, want, 1e-3);
            if error.is_nan() || error > 1e-4 {
                report += &format!("{name}: {:?} {error:.1e}\n", node.op);
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Results in 16-bit precision are close to f32 results.
#[test]
fn half_precision_is_close_to_f32() {
    let names = ["gpt2", "llama", "gemma2", "bert", "bart", "mixtral", "longformer", "bert-mixed"];
    let report: String = cases("models", names, |name| ["gemma2", "bart", "mixtral"].contains(name))
        .into_iter()
        .flat_map(|name| [(name, Precision::Bf16, 0.12), (name, Precision::Fp16, 0.02)])
        .filter_map(|(name, precision, limit)| compare(name, precision, limit))
        .collect();
    assert!(report.is_empty(), "{report}");
}

#[test]
fn recomputation_is_bit_identical() {
    for name in ["llama", "t5"] {
        let Some([want, _]) = both(name, Precision::F32, Recompute::None) else { return };
        for recompute in [Recompute::Layers(1), Recompute::Attention, Recompute::Cost(0), Recompute::Cost(64)]
        {
            assert!(
                both(name, Precision::F32, recompute).unwrap()[0].1 == want.1,
                "{name} with {recompute:?}"
            );
        }
    }
}

/// A prepared plan is used only for the batch that it was made for.
#[test]
fn prepared_plans_change_no_bit() {
    let case = load("gpt2");
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let output = case.program.graph.values[case.program.graph.output];
    let own = targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns);
    let mut others = own.clone();
    others.ids.rotate_left(1);
    let Some(device) = device() else { return };
    let program = case.program.clone();
    let mut runner = RunnerBuilder::new(program, &parameters).build(Box::new(device)).unwrap();
    let (loss, mut gradients) = (Objective::default(), Gradients::zeros(&parameters, |_| true));
    let mut results = Vec::new();
    for prepared in [None, Some((&own, 1.0)), Some((&others, 1.0)), Some((&own, 0.5))] {
        if let Some((targets, scale)) = prepared {
            runner.prepare(&case.batch, &loss, targets, scale).unwrap();
        }
        runner.run(&case.batch, &loss, &own, 1.0).unwrap();
        runner.gradients(&mut gradients).unwrap();
        results.push((runner.take_sum().unwrap(), gradients.clone()));
        runner.clear().unwrap();
    }
    assert!(results.iter().all(|result| *result == results[0]));
}

/// Residual additions and the norms after them are fused into one kernel.
#[test]
fn residual_adds_and_norms_are_fused() {
    let case = load("gpt2");
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let Some(device) = device() else { return };
    let rows = case.program.row_count(case.program.graph.output, &case.batch);
    let targets = targets(rows, case.program.graph.values[case.program.graph.output].columns);
    let program = case.program;
    let runner = RunnerBuilder::new(program, &parameters).build(Box::new(device)).unwrap();
    let (commands, bytes) = runner.plan(&case.batch, &Objective::default(), &targets).unwrap();
    let of_sums = commands.iter().filter(|command| match command {
        Command::Launch(launch) => {
            launch.kernel == "norm_f32" && launch.arguments[2] != KernelArgument::Ptr(0)
        }
        _ => false,
    });
    // One for the embeddings, and two for each layer but the last, whose output rows are gathered first.
    assert!(of_sums.count() == 4 && bytes.activations > 0 && bytes.scratch > 0);
}

/// GELU is a matmul epilogue where cuBLASLt supports it, in the forward pass only.
#[test]
fn matmul_and_gelu_are_fused() {
    let case = load("gpt2");
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let output = case.program.graph.values[case.program.graph.output];
    let targets = targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns);
    for (precision, want) in [(Precision::F32, [0, 2]), (Precision::Bf16, [2, 0]), (Precision::Fp16, [2, 0])]
    {
        let (Some(device), program) = (device(), case.program.clone()) else { return };
        let mut runner = RunnerBuilder { precision, ..RunnerBuilder::new(program, &parameters) }
            .build(Box::new(device))
            .unwrap();
        let loss = Objective::default();
        // Memory is allocated by the first batch; before that, all addresses are zero.
        runner.run(&case.batch, &loss, &targets, 1.0).unwrap();
        let (commands, _) = runner.plan(&case.batch, &loss, &targets).unwrap();
        let count = |which: &dyn Fn(&Command) -> bool| commands.iter().filter(|c| which(c)).count();
        let products =
            count(&|command| matches!(command, Command::Matmul(product) if product.pre_activation > 0));
        let alone = count(&|command| match command {
            Command::Launch(launch) => {
                launch.kernel.starts_with("activate_") && !launch.kernel.starts_with("activate_backward")
            }
            _ => false,
        });
        assert_eq!([products, alone], want, "{precision:?}");
    }
}

/// Router losses are the same as on the CPU, for decoders and encoder–decoders.
#[test]
fn router_losses_match_the_cpu() {
    let mut report = String::new();
    for name in ["mixtral", "switch"] {
        let case = load(name);
        let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
        let output = case.program.graph.values[case.program.graph.output];
        let (targets, loss) = (
            targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns),
            CrossEntropy::default(),
        );
        let (options, scale) = (RouterOptions { aux_loss_coef: 0.3, z_loss_coef: 0.05 }, 0.25);
        let mut cpu = Runner::new(case.program.clone(), Recompute::None, |_| true).unwrap();
        cpu = cpu.with_routers(options);
        let mut want = Gradients::zeros(&parameters, |_| true);
        let goal = TrainingObjective { loss: &loss, targets: &targets, scale };
        let cpu_sum = cpu.run(&parameters, &case.batch, goal, &mut want).unwrap();
        for recompute in [Recompute::None, Recompute::Layers(1)] {
            let (Some(device), program) = (device(), case.program.clone()) else { return };
            let mut runner =
                RunnerBuilder { recompute, routers: options, ..RunnerBuilder::new(program, &parameters) }
                    .build(Box::new(device))
                    .unwrap();
            runner.run(&case.batch, &loss.into(), &targets, scale).unwrap();
            let (sum, mut own) = (runner.take_sum().unwrap(), Gradients::zeros(&parameters, |_| true));
            runner.gradients(&mut own).unwrap();
            if (sum.router_loss / cpu_sum.router_loss - 1.0).abs() > 1e-5 || cpu_sum.router_loss == 0.0 {
                report += &format!("{name}: {sum:?}, not {cpu_sum:?}\n");
            }
            let whole = want.list.iter().flatten().flatten().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            let pairs = own.list.iter().flatten().zip(want.list.iter().flatten());
            for (weight, (own, want)) in case.program.graph.weights.iter().zip(pairs) {
                let error = error(own, want, whole * 1e-3);
                if error.is_nan() || error > 1e-4 {
                    report += &format!("{name}: {} {error:.1e}\n", weight.name);
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}
