//! Losses compared to those of the CPU.

use siskin_device::Precision;
use siskin_tests::gradients::load;
use siskin_trainer::batch::TrainingBatch;
use siskin_trainer::cuda::{Objective, RunnerBuilder};
use siskin_trainer::loss::{Contrastive, Distillation, Loss, LossPooling, LossSum, Targets};
use siskin_trainer::program::Side;
use siskin_trainer::{Gradients, Parameters, Program, Recompute, Runner, TrainingObjective};

use super::common::{device, error, numbers, targets};

/// Returns a batch of five sequences.
fn batch(program: &Program) -> TrainingBatch {
    let mut batch = TrainingBatch::default();
    let texts = match program.side() {
        Side::Encoder => &mut batch.encoder,
        Side::Decoder => &mut batch.decoder,
    };
    for (text, length) in [3_u32, 5, 2, 4, 7].into_iter().enumerate() {
        let tokens: Vec<u32> = (0..length).map(|place| (text as u32 * 7 + place * 3) % 20 + 1).collect();
        texts.push(&tokens, &[]);
    }
    texts.output_all();
    batch
}

/// Returns the difference of a golden model's loss and gradients from those of the CPU.
fn apart<L: Loss<f32> + Clone>(
    name: &str,
    loss: &L,
    targets: impl Fn([usize; 2]) -> Targets,
    precision: Precision,
) -> Option<f32>
where
    Objective: From<L>,
{
    let case = load(name);
    let (program, batch) = (case.program.clone(), batch(&case.program));
    let parameters = Parameters::<f32>::read(&program.graph.weights, &case.file).unwrap();
    let output = program.graph.values[program.graph.output];
    let targets = targets([program.row_count(program.graph.output, &batch), output.columns]);
    let objective = Objective::from(loss.clone());
    let mut own = Gradients::zeros(&parameters, |_| true);
    let mut runner = RunnerBuilder { precision, ..RunnerBuilder::new(program.clone(), &parameters) }
        .build(Box::new(device()?))
        .unwrap();
    runner.evaluate(&batch, &objective, &targets).unwrap();
    let alone = runner.take_sum().unwrap();
    runner.run(&batch, &objective, &targets, 0.25).unwrap();
    let sum = runner.take_sum().unwrap();
    assert_eq!(alone.weight, sum.weight, "{name}");
    if precision == Precision::F32 {
        assert_eq!(alone, sum, "{name}: a look gives another loss than a step");
    }
    runner.gradients(&mut own).unwrap();
    let mut cpu = Runner::new(program, Recompute::None, |_| true).unwrap();
    let mut want = Gradients::zeros(&parameters, |_| true);
    let goal = TrainingObjective { loss, targets: &targets, scale: 0.25 };
    let cpu_sum: LossSum = cpu.run(&parameters, &batch, goal, &mut want).unwrap();
    assert_eq!(sum.weight, cpu_sum.weight, "{name}");
    if precision == Precision::F32 {
        assert_eq!(sum.correct, cpu_sum.correct, "{name}");
    }
    let largest = want.list.iter().flatten().flatten().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let mut worst = ((sum.loss - cpu_sum.loss) / cpu_sum.loss).abs() as f32;
    for (own, want) in own.list.iter().flatten().zip(want.list.iter().flatten()) {
        worst = worst.max(error(own, want, largest * 1e-2));
    }
    Some(worst)
}

const PRECISIONS: [(Precision, f32); 3] =
    [(Precision::F32, 1e-4), (Precision::Bf16, 0.12), (Precision::Fp16, 0.02)];

#[test]
fn contrastive_loss_matches_the_cpu() {
    let plain = Contrastive { scale: 5.0, ..Contrastive::default() };
    let of = |pooling, widths: &[usize]| Contrastive {
        pooling,
        matryoshka_dims: widths.to_vec(),
        ..plain.clone()
    };
    // Two examples, of which the first has a negative.
    let targets = |_: [usize; 2]| Targets { weights: vec![1.0, 0.0, 0.0, 1.0, 0.0], ..Targets::default() };
    let mut report = String::new();
    for name in ["bert", "gpt2"] {
        for (loss, limited) in [
            (of(LossPooling::Mean, &[]), false),
            (of(LossPooling::Cls, &[]), true),
            (of(LossPooling::Last, &[4, 9, 16]), true),
        ] {
            for (precision, limit) in PRECISIONS.into_iter().take(if limited { 1 } else { 3 }) {
                let Some(apart) = apart(name, &loss, targets, precision) else { return };
                if apart.is_nan() || apart > limit {
                    report += &format!("{name} {loss:?} {precision:?}: {apart:.1e}\n");
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn distillation_loss_matches_the_cpu() {
    let teacher = |[rows, columns]: [usize; 2]| Targets {
        numbers: numbers(rows * columns, 3).into_iter().map(|x| 4.0 * x).collect(),
        ..targets(rows, columns)
    };
    let mut report = String::new();
    for (temperature, share) in [(2.0, 0.5), (1.0, 1.0), (3.0, 0.2)] {
        for (precision, limit) in PRECISIONS {
            let loss = Distillation { temperature, kd_ratio: share };
            let Some(apart) = apart("gpt2", &loss, teacher, precision) else { return };
            if apart.is_nan() || apart > limit {
                report += &format!("{loss:?} {precision:?}: {apart:.1e}\n");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn out_of_bounds_targets_are_rejected() {
    let case = load("gpt2");
    let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
    let Some(device) = device() else { return };
    let (program, batch) = (case.program.clone(), batch(&case.program));
    let output = program.graph.values[program.graph.output];
    let (rows, columns) = (program.row_count(program.graph.output, &batch), output.columns);
    let mut runner = RunnerBuilder::new(program, &parameters).build(Box::new(device)).unwrap();
    let mut rejected = |loss: Objective, targets: Targets| {
        runner.run(&batch, &loss, &targets, 1.0).unwrap_err().location().to_owned()
    };
    let wide = Contrastive { group_size: 5, matryoshka_dims: vec![columns + 1], ..Contrastive::default() };
    assert_eq!(rejected(wide.into(), Targets::default()), "loss.matryoshka_dims");
    assert_eq!(rejected(Contrastive::default().into(), Targets::default()), "batch");
    assert_eq!(rejected(Distillation::default().into(), targets(rows, columns)), "targets.numbers");
    assert_eq!(rejected(Objective::default(), targets(rows - 1, columns)), "targets");
    let beyond = Targets { ids: vec![columns as u32; rows], ..targets(rows, columns) };
    assert_eq!(rejected(Objective::default(), beyond), "targets");
}
