//! Losses compared with finite differences, and with PyTorch.

use super::*;
use crate::batch::BatchSequences;

/// A pseudo-random number.
fn number(i: usize) -> f64 {
    ((i * 7919 + 13) % 1009) as f64 / 504.5 - 1.0
}

fn batch(texts: usize, rows: usize) -> TrainingBatch {
    let mut reader = BatchSequences::default();
    (0..texts).for_each(|_| reader.push(&vec![0; rows], &[]));
    reader.output_all();
    TrainingBatch { encoder: reader, ..TrainingBatch::default() }
}

/// Checks the gradient against finite differences.
fn check(loss: &dyn Loss<f64>, batch: &TrainingBatch, columns: usize, targets: &Targets) -> f64 {
    let rows = batch.encoder.output_rows.len();
    let mut numbers: Vec<f64> = (0..rows * columns).map(number).collect();
    let mut gradient = vec![f64::NAN; numbers.len()];
    let run = |numbers: &[f64], gradient: &mut [f64]| {
        let outputs = LossRows { first: 0, columns, numbers, batch };
        loss.add(&outputs, targets, 0.5, gradient).unwrap()
    };
    let sum = run(&numbers, &mut gradient);
    let mut unused = gradient.clone();
    for place in 0..numbers.len() {
        let was = numbers[place];
        let mut at = |x: f64| {
            numbers[place] = x;
            run(&numbers, &mut unused).loss
        };
        let slope = (at(was + 1e-5) - at(was - 1e-5)) / 2e-5;
        numbers[place] = was;
        assert!((slope * 0.5 - gradient[place]).abs() < 1e-7, "{place}: {slope} and {}", gradient[place]);
    }
    sum.loss
}

fn targets(rows: usize, columns: usize) -> Targets {
    Targets {
        ids: (0..rows).map(|row| (row * 3 % columns) as u32).collect(),
        weights: (0..rows).map(|row| [1.0, 0.0, 0.5][row % 3]).collect(),
        numbers: (0..rows * columns).map(|i| number(i + 5000) as f32).collect(),
    }
}

#[test]
fn gradients_match_finite_differences() {
    let batch = batch(4, 3);
    for smoothing in [0.0, 0.1] {
        check(&CrossEntropy { label_smoothing: smoothing }, &batch, 7, &targets(12, 7));
    }
    check(&Distillation { temperature: 2.0, kd_ratio: 0.7 }, &batch, 7, &targets(12, 7));
    for pooling in [LossPooling::Mean, LossPooling::Cls, LossPooling::Last] {
        let loss = Contrastive { scale: 20.0, pooling, group_size: 2, matryoshka_dims: vec![4, 8] };
        check(&loss, &batch, 8, &Targets::default());
    }
    let loss =
        Contrastive { scale: 5.0, pooling: LossPooling::Mean, group_size: 4, matryoshka_dims: Vec::new() };
    check(&loss, &batch, 8, &Targets::default());
}

/// The PyTorch result for the embeddings of [`number`], eight columns per sequence: anchors 0, 2 and 5, matches 1, 3
/// and 6, and a negative after each of the last two (`tests/golden-scripts/make_contrastive.py`).
const MIXED: f64 = 7.449_864_276_316_124_5;

#[test]
fn examples_with_and_without_negatives_can_be_mixed() {
    let mixed = batch(8, 1);
    let weights = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0].to_vec();
    let targets = Targets { weights, ..Targets::default() };
    let loss = Contrastive { scale: 5.0, ..Contrastive::default() };
    let got = check(&loss, &mixed, 8, &targets);
    assert!((got - MIXED).abs() < 1e-9, "{got}");
    assert_eq!(Loss::<f64>::weight(&loss, &mixed, &targets), 3.0);
    // With equally many negatives for each anchor, the result is that of fixed groups.
    let even = Targets { weights: [1.0, 0.0, 0.0, 0.0].repeat(2), ..Targets::default() };
    let fixed = Contrastive { group_size: 4, ..loss.clone() };
    assert_eq!(check(&loss, &mixed, 8, &even), check(&fixed, &mixed, 8, &Targets::default()));
}

#[test]
fn anchors_without_a_positive_are_rejected() {
    let batch = batch(4, 1);
    let rejected = |weights: [f32; 4]| {
        let targets = Targets { weights: weights.to_vec(), ..Targets::default() };
        let outputs = LossRows { first: 0, columns: 2, numbers: &[1.0_f64; 8], batch: &batch };
        let error = Contrastive::default().add(&outputs, &targets, 1.0, &mut [0.0; 8]).unwrap_err();
        error.message().to_owned()
    };
    assert!(rejected([1.0, 0.0, 0.0, 1.0]).contains("sequence 3"));
    assert!(rejected([1.0, 1.0, 0.0, 0.0]).contains("sequence 0"));
    assert!(rejected([0.0, 1.0, 0.0, 0.0]).contains("not an anchor"));
}

#[test]
fn losses_of_row_chunks_sum_to_the_whole() {
    let batch = batch(4, 3);
    let (columns, targets) = (7, targets(12, 7));
    let numbers: Vec<f64> = (0..12 * columns).map(number).collect();
    let run = |rows: std::ops::Range<usize>| {
        let mut gradient = vec![0.0; rows.len() * columns];
        let part = &numbers[rows.start * columns..rows.end * columns];
        let outputs = LossRows { first: rows.start, columns, numbers: part, batch: &batch };
        let loss = Distillation { temperature: 3.0, kd_ratio: 0.5 };
        (loss.add(&outputs, &targets, 1.0, &mut gradient).unwrap(), gradient)
    };
    let (all, gradient) = run(0..12);
    let (mut sum, first) = run(0..5);
    let (second, rest) = run(5..12);
    sum.add(&second);
    assert!((sum.loss - all.loss).abs() < 1e-12 && sum.weight == all.weight);
    assert_eq!([first, rest].concat(), gradient);
}
