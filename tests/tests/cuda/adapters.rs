//! Adapters on frozen matrices of any packed type.

use siskin_device::Precision;
use siskin_tests::extent::cases;
use siskin_tests::golden;
use siskin_trainer::adapters::{self, AdapterKind, AdapterOptions};
use siskin_trainer::batch::TrainingBatch;
use siskin_trainer::cuda::{HostAdapters, HostOptimizer, Objective, RunnerBuilder};
use siskin_trainer::loss::CrossEntropy;
use siskin_trainer::{
    Gradients, Optimizer, OptimizerOptions, Parameters, Program, Recompute, Runner, StepArguments,
    TrainingObjective,
};

use super::common::{device, error, targets};

/// Runs some steps of a golden model with adapters on both devices, and returns the difference of losses, and in f32
/// also of the final parameters.
fn apart(recipe: Option<&str>, method: AdapterKind, precision: Precision) -> Option<f32> {
    let golden = golden::load_as("llama", recipe.map(|recipe| recipe.parse().unwrap()));
    let tensors = ["*attn_q.weight", "*attn_v.weight", "*ffn_down.weight"];
    let tensors = tensors.map(str::to_owned).to_vec();
    let options = AdapterOptions { method, rank: 4, alpha: 8.0, tensors };
    let mut program = Program::of_file(&golden.file).unwrap();
    let own = program.graph.weights.len();
    let adapters = adapters::insert_adapters(&mut program, &options).unwrap();
    let takes = program.takes_packed();
    let mut parameters =
        Parameters::read_with_packed(&program.graph.weights[..own], &golden.file, |weight| takes[weight])
            .unwrap();
    adapters::initialize(&program, &adapters, &options, &mut parameters, 3);
    let mut batch = TrainingBatch::default();
    golden.ids.iter().for_each(|ids| batch.decoder.push(ids, &[]));
    batch.decoder.output_all();
    let output = program.graph.values[program.graph.output];
    let targets = targets(program.row_count(program.graph.output, &batch), output.columns);
    let mut gradients = Gradients::zeros(&parameters, |tensor| adapters::is_trained(&tensor.name));
    let settings = serde_json::json!({ "name": "adamw", "eps": 1e-4 });
    let optimizer: OptimizerOptions = serde_json::from_value(settings).unwrap();
    let mut cpu_optimizer = Optimizer::new(&optimizer, &parameters, &gradients).unwrap();
    let trains: Vec<bool> = (0..program.graph.weights.len()).map(|weight| gradients.has(weight)).collect();
    let builder = RunnerBuilder {
        precision,
        trained: trains.clone(),
        optimizer: Some(HostOptimizer { options: &optimizer, state: &cpu_optimizer }),
        adapters: Some(HostAdapters { list: &adapters, options: &options }),
        ..RunnerBuilder::new(program.clone(), &parameters)
    };
    let mut runner = builder.build(Box::new(device()?)).unwrap();
    let mut cpu = Runner::new(program, Recompute::None, |weight| trains[weight]).unwrap();
    let rate = 5e-3;
    let mut fetched = parameters.clone();
    let loss = CrossEntropy::default();
    let mut worst = 0.0_f32;
    for _ in 0..3 {
        gradients.clear();
        let goal = TrainingObjective { loss: &loss, targets: &targets, scale: 1.0 };
        let want = cpu.run(&parameters, &batch, goal, &mut gradients).unwrap();
        cpu_optimizer
            .step(&mut parameters, &gradients, StepArguments { learning_rate: rate, grad_factor: 1.0 })
            .unwrap();
        adapters::update_norms(&mut parameters, &adapters, &options);
        runner.run(&batch, &Objective::default(), &targets, 1.0).unwrap();
        let sum = runner.take_sum().unwrap();
        assert!(runner.step(rate, 1.0, None).unwrap().finite);
        worst = worst.max(((sum.mean() - want.mean()) / want.mean()).abs() as f32);
    }
    if precision != Precision::F32 {
        // AdamW normalizes the step size: rounding residue gives steps as long as true gradients.
        return Some(worst);
    }
    runner.read(&mut fetched).unwrap();
    for (own, want) in fetched.list.iter().zip(&parameters.list) {
        assert_eq!(own.forward, want.forward, "{}", own.name);
        if !want.numbers.is_empty() {
            worst = worst.max(error(&own.numbers, &want.numbers, 1e-2));
        }
    }
    Some(worst)
}

#[test]
fn adapter_training_matches_the_cpu() {
    let mut report = String::new();
    let [floats, halves] = [(Precision::F32, 1e-3), (Precision::Bf16, 0.02)];
    let all = [
        (Some("W8r"), AdapterKind::Dora, floats),
        (Some("Q4_0"), AdapterKind::Lora, halves),
        (None, AdapterKind::Lora, floats),
        (None, AdapterKind::Lora, halves),
        (None, AdapterKind::Dora, floats),
        (None, AdapterKind::Dora, halves),
        (Some("W8r"), AdapterKind::Dora, halves),
        (Some("Q4_0"), AdapterKind::Lora, floats),
    ];
    // Both methods, both precisions, and packed matrices of both kinds.
    let mut count = 0;
    let first = |_: &_| {
        count += 1;
        count <= 2
    };
    for (recipe, method, (precision, limit)) in cases("adapters", all, first) {
        let Some(apart) = apart(recipe, method, precision) else { return };
        if apart.is_nan() || apart > limit {
            report += &format!("{recipe:?} {method:?} {precision:?}: {apart:.1e}\n");
        }
    }
    assert!(report.is_empty(), "{report}");
}
