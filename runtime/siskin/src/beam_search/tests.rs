use std::sync::Arc;

use siskin_kernels::Cpu;
use siskin_kernels::ops::Kernels;

use super::scores::{BeamCandidate, Best, log_softmax};
use super::*;

#[test]
fn of_equal_steps_the_first_that_came_is_better() {
    let mut best = Best::new(3);
    best.offer(0, -1.0, &[-1.0, -3.0, -1.0, f32::NEG_INFINITY]);
    best.offer(1, -2.0, &[0.0, -0.5, 5.0, -9.0]);
    let step = |of, id, sum| BeamCandidate { of, id, sum };
    assert_eq!(best.steps, [step(1, 2, 3.0), step(0, 0, -2.0), step(0, 2, -2.0)]);
    let mut far = vec![f32::NEG_INFINITY; 1300];
    (far[511], far[512], far[1299]) = (5.0, 4.0, 6.0);
    best.offer(2, 0.0, &far);
    assert_eq!(best.steps, [step(2, 1299, 6.0), step(2, 511, 5.0), step(2, 512, 4.0)]);
}

#[test]
fn logarithms_sum_up_to_one() {
    let kernels = Kernels::for_cpu(Cpu::detect());
    let mut scores = [1.0, 2.0, f32::NEG_INFINITY, 3.0];
    log_softmax(&kernels, &mut scores);
    let sum: f32 = scores.iter().map(|score| score.exp()).sum();
    assert!((sum - 1.0).abs() < 1e-6 && scores[2] == f32::NEG_INFINITY);
    let mut nothing = [f32::NEG_INFINITY; 2];
    log_softmax(&kernels, &mut nothing);
    assert_eq!(nothing, [f32::NEG_INFINITY; 2]);
    // More values than are processed at once on any CPU, compared with the definition.
    let logits: Vec<f32> = (0..1300).map(|index| ((index * 7919) % 1301) as f32 / 40.0 - 20.0).collect();
    let whole: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln();
    let mut scores = logits.clone();
    log_softmax(&kernels, &mut scores);
    let apart = |(score, logit): (&f32, &f32)| (f64::from(*score) - (f64::from(*logit) - whole)).abs();
    assert!(scores.iter().zip(&logits).map(apart).fold(0.0, f64::max) < 1e-5);
    let mut plain = logits;
    log_softmax(&Kernels::for_cpu(Cpu::scalar()), &mut plain);
    assert_eq!(plain, scores);
}

/// Returns the hypotheses that are found if each step has the same probabilities.
fn found(options: SearchOptions, shares: &[f32], max_tokens: usize) -> Vec<(Vec<u32>, f64)> {
    let settings = BeamSettings::new(&options, shares.len(), Kernels::for_cpu(Cpu::scalar())).unwrap();
    let logits: Vec<f32> = shares.iter().map(|share| share.ln()).collect();
    let mut beams = Beams::new(&settings, 0, &[9], Arc::from([]), max_tokens);
    let mut scratch = Vec::new();
    while beams.begun().next().is_some() {
        beams.step(|_| &logits, &mut scratch);
    }
    beams.finish().into_iter().map(|found| (found.tokens, found.score.exp())).collect()
}

#[test]
fn the_likeliest_texts_are_found() {
    let rules = LogitsProcessorOptions { eos_token_ids: vec![2], ..LogitsProcessorOptions::default() };
    let options = SearchOptions {
        beams: 3,
        num_return_sequences: 3,
        length_penalty: 0.0,
        early_stopping: BeamEarlyStopping::Never,
        logits_processors: rules,
        ..SearchOptions::default()
    };
    let found = found(options, &[0.5, 0.1, 0.4], 3);
    let want = [(vec![2], 0.4), (vec![0, 2], 0.2), (vec![0, 0, 0], 0.125)];
    for ((tokens, share), (wanted, whole)) in found.iter().zip(&want) {
        assert_eq!(tokens, wanted);
        assert!((share - whole).abs() < 1e-6);
    }
    assert_eq!(found.len(), want.len());
}

#[test]
fn groups_go_ways_of_their_own() {
    let options = SearchOptions {
        beams: 2,
        num_beam_groups: 2,
        num_return_sequences: 2,
        diversity_penalty: 10.0,
        max_tokens: 2,
        ..SearchOptions::default()
    };
    let texts: Vec<Vec<u32>> = found(options, &[0.5, 0.3, 0.2], 9).into_iter().map(|found| found.0).collect();
    assert_eq!(texts, [[0, 0], [1, 1]]);
}
