//! How long tokens take.

use super::Pair;
use super::report::{GateCheck, Report};
use siskin::sample::SamplerOptions;
use siskin::{GenerateOptions, GenerationStep, Model, Result, SessionOptions};
use std::time::Instant;

/// Prompts of this many tokens, responses of so many, and how often each model gets one, in turns.
const PROMPT: usize = 256;
const RESPONSE: usize = 32;
const ROUNDS: usize = 9;

/// Seconds to the first token and between tokens.
#[derive(Default)]
struct Times {
    first: Vec<f64>,
    between: Vec<f64>,
}

/// Compares the times of both models, which take turns.
pub(super) fn compare(pair: &Pair, bound: f64, report: &mut Report) -> Result<()> {
    let mut times = [Times::default(), Times::default()];
    for _ in 0..ROUNDS {
        for (model, times) in [&pair.baseline, &pair.candidate].into_iter().zip(&mut times) {
            generate(model, times)?;
        }
    }
    let [before, after] = times;
    for (name, before, after) in [
        ("first token, p95, ratio", before.first, after.first),
        ("between tokens, p95, ratio", before.between, after.between),
    ] {
        let (before, after) = (p95(before), p95(after));
        report.push(GateCheck::at_most(name, after / before, bound).comparing(before, after));
    }
    Ok(())
}

fn generate(model: &Model, times: &mut Times) -> Result<()> {
    let vocabulary = model.config().vocabulary.max(1);
    let context = (PROMPT + RESPONSE).min(model.config().context.max(2));
    let prompt: Vec<u32> = (0..context.saturating_sub(RESPONSE).max(1))
        .map(|index| ((1000 + 7919 * index) % vocabulary) as u32)
        .collect();
    let options = SessionOptions { context, sampler: SamplerOptions::greedy(), ..SessionOptions::default() };
    let mut session = model.session(options)?;
    let mut last = Instant::now();
    let mut generation = session
        .begin_tokens(&prompt, GenerateOptions { max_tokens: RESPONSE, ..GenerateOptions::default() })?;
    let (mut text, mut is_first) = (String::new(), true);
    while let Some(step) = generation.step(&mut session, &mut text)? {
        if let GenerationStep::Token(_) = step {
            let seconds = last.elapsed().as_secs_f64();
            if std::mem::take(&mut is_first) {
                times.first.push(seconds)
            } else {
                times.between.push(seconds)
            }
            last = Instant::now();
        }
    }
    Ok(())
}

fn p95(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) * 95 / 100).copied().unwrap_or(f64::NAN)
}
